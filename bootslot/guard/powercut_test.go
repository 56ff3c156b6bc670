package guard

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/config"
	"holdfast/device"
	"holdfast/tools/faultfs"
)

var long = flag.Bool("long", false, "also what is too long for every day")

// board is a guard with a device whose temperature is what its lamp says, and an agent that asks again and again for what is declared.
type board struct {
	*bench
	declared []string // as in bench.wish
	retry    uint64
	saves    []save
	now      func() int // how many calls the disk has seen; nil: it does not count
	shown    []shown
	asked    []asked
}

// save is a record that the guard has saved, and when by the disk's log.
type save struct {
	ledger      bootslot.Ledger
	began, done int
}

// shown is what somebody outside could see.
type shown struct {
	at         int
	generation uint64
	effective  device.Fields
}

// asked is what was declared from a moment on.
type asked struct {
	at       int
	declared []string
	retry    uint64
}

// newBoard is a board with its state in a folder that may hold some already.
func newBoard(t *testing.T, cfg config.Config, state string, now func() int) *board {
	t.Helper()
	b := &board{bench: &bench{T: t, clock: &handClock{up: time.Minute}, temp: 20, cfg: cfg, state: map[string]string{}}, now: now}
	b.cfg.State, b.cfg.Run = state, t.TempDir()
	b.boot()
	t.Cleanup(func() { _ = b.g.Close() })
	for k, v := range b.g.profile.Fallback {
		b.state[k] = v
	}
	return b
}

func (b *board) calls() int {
	if b.now == nil {
		return 0
	}
	return b.now()
}

// boot is a guard's start.
func (b *board) boot() {
	b.Helper()
	began := b.calls()
	b.start()
	if n := len(b.saves); n == 0 || b.saves[n-1].ledger.Generation != b.g.ledger.Generation {
		b.saves = append(b.saves, save{b.g.ledger, began, b.calls()})
	}
	b.disk.record = &savesNoter{b.disk.record, b}
	b.g.log = slog.New(b)
	b.look()
}

// A board is also what its guard's log is written to: that can be seen, too.
func (b *board) Enabled(context.Context, slog.Level) bool { return true }
func (b *board) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *board) WithGroup(string) slog.Handler            { return b }
func (b *board) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "generation" {
			b.shown = append(b.shown, shown{b.calls(), a.Value.Uint64(), nil})
		}
		return true
	})
	return nil
}

type savesNoter struct {
	record
	b *board
}

func (n *savesNoter) Save(s bootslot.Step) error {
	began := n.b.calls()
	err := n.record.Save(s)
	if err == nil {
		n.b.saves = append(n.b.saves, save{s.Ledger, began, n.b.calls()})
	}
	return err
}

// look notes what can be seen.
func (b *board) look() {
	l := b.lease()
	if n := len(b.shown); n == 0 || b.shown[n-1].generation != l.Generation || !reflect.DeepEqual(b.shown[n-1].effective, l.Fields) {
		b.shown = append(b.shown, shown{b.calls(), l.Generation, l.Fields})
	}
}

// declare is a push.
func (b *board) declare(retry uint64, fields ...string) {
	b.declared, b.retry = fields, retry
	b.asked = append(b.asked, asked{b.calls(), fields, retry})
}

// live lets d go by.
func (b *board) live(d time.Duration) {
	b.Helper()
	for range d / time.Second {
		b.temp = 20
		if b.state["lamp"] == "on" {
			b.temp = 50
		}
		b.wish(b.retry, b.declared...)
		b.look()
		b.pass(time.Second)
		b.look()
	}
}

// until lets time go by until something is so.
func (b *board) until(what string, so func() bool) {
	b.Helper()
	for range 4 * 3600 {
		if so() {
			return
		}
		b.live(time.Second)
	}
	b.Fatalf("it did not come about that %s", what)
}

// post is an operator's request.
func (b *board) post(path, body string) {
	b.Helper()
	w := httptest.NewRecorder()
	b.g.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	if w.Code != http.StatusOK {
		b.Fatalf("POST %s = %d %s", path, w.Code, w.Body)
	}
	b.look()
}

func (b *board) idle() bool { return b.g.phase() == api.PhaseIdle }

// story is a life in which everything happens once: adopted, passed, failed, tried once more, passed, rolled back, interrupted until the attempts are gone.
func (b *board) story() {
	b.Helper()
	b.declare(0)
	b.until("the fallback is adopted", func() bool { return b.g.ledger.HasGood() })
	b.declare(0, "fan", "on")
	b.until("fan=on passes", func() bool { return b.lease().Proven["fan"] == "on" })
	b.declare(0, "fan", "on", "lamp", "on")
	b.until("lamp=on fails", func() bool { return len(b.g.ledger.Marks) == 1 && b.idle() })
	b.live(time.Minute)
	b.post("/v1/retry", "{}")
	b.until("lamp=on fails again", func() bool { return b.g.ledger.Grant == nil && b.idle() })
	b.declare(0, "fan", "on", "pump", "on")
	b.until("pump=on passes", func() bool { return b.lease().Proven["pump"] == "on" })
	b.live(5 * time.Second)
	b.post("/v1/rollback", "{}")
	b.live(time.Minute)
	b.want("pump after the rollback", b.lease().Fields["pump"], "off")
	b.declare(0, "fan", "on", "vent", "off")
	for len(b.g.ledger.Marks) < 3 {
		b.until("it is tried", func() bool { return b.g.phase() == api.PhaseTrial })
		b.live(3 * time.Second)
		if err := b.g.store.Close(); err != nil {
			b.Fatal(err)
		}
		b.boot()
	}
	b.declare(1, "fan", "on", "vent", "off")
	b.until("vent=off passes with a number", func() bool { return b.lease().Proven["vent"] == "off" })
	b.live(5 * time.Second)
}

func recordJSON(t *testing.T, l bootslot.Ledger) string {
	t.Helper()
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPowerCutOnRealFiles: whenever in a guard's life the power fails, and whatever of what was not synced is lost, torn or out of order, the next guard has the
// record that was saved last, or the one that was being saved, with its open trial ended; nothing that anybody could see came before its record; the
// device is driven to last-known-good. From there on a content gets at most the one conclusive trial that it has not had, and then nothing changes any more.
func TestPowerCutOnRealFiles(t *testing.T) {
	t.Parallel()
	fs, cfg := faultfs.New(t), newBench(t, "").cfg
	first := newBoard(t, cfg, filepath.Join(fs.Dir, "state"), fs.Len)
	first.story()
	if err := first.g.Close(); err != nil {
		t.Fatal(err)
	}
	log := fs.Log(0)
	dir := filepath.Join(faultfs.Scratch(t), "image")

	type woken struct {
		record string
		ledger bootslot.Ledger
		lease  api.Lease
		said   []string
	}
	known, settled := map[uint64]woken{}, map[string]bool{}
	states := 0
	for image := range faultfs.Crashes(log, 0, faultfs.Pick(*long, faultfs.Depth{All: 1}, faultfs.Depth{All: 3, Torn: 3, Random: 3}, faultfs.Depth{All: 8, Torn: 64, Random: 100})) {
		states++
		declared := asked{}
		for _, a := range first.asked {
			if a.at <= image.After {
				declared = a
			}
		}
		w, ok := known[image.Key]
		if key := w.record + strings.Join(declared.declared, " "); !ok || !settled[key] {
			if err := image.Write(dir); err != nil {
				t.Fatal(err)
			}
			b := newBoard(t, cfg, filepath.Join(dir, "state"), nil)
			w = woken{recordJSON(t, b.g.ledger), b.g.ledger, b.lease(), nil}
			for _, p := range b.g.problems {
				w.said = append(w.said, p)
			}
			b.want("phase", b.g.phase() == api.PhaseTrial, false)
			known[image.Key] = w
			if key := w.record + strings.Join(declared.declared, " "); !settled[key] {
				settled[key] = true
				settle(b, image, declared)
			}
			if err := b.g.Close(); err != nil {
				t.Error(err)
			}
		}

		// The record.
		i := -1
		for i+1 < len(first.saves) && first.saves[i+1].done <= image.After {
			i++
		}
		var allowed []string
		for k := max(i, 0); k <= i+1 && k < len(first.saves); k++ {
			s := first.saves[k]
			if k == i+1 && s.began >= image.After {
				continue
			}
			l := s.ledger
			if step := bootslot.Boot(l, first.g.board, (&handClock{up: time.Minute}).Now()); step != nil {
				l = step.Ledger
			}
			allowed = append(allowed, recordJSON(t, l))
		}
		isNew := i < 0 && w.ledger.Generation == 1 && len(w.ledger.Marks) == 0
		if !slices.Contains(allowed, w.record) && !isNew {
			t.Errorf("%v: woke with %s\nwant one of %s", image, w.record, strings.Join(allowed, "\nor "))
		}
		// What was seen.
		for _, s := range first.shown {
			if s.at <= image.After && s.generation > w.ledger.Generation {
				t.Errorf("%v: generation %d was shown, and the record is of generation %d", image, s.generation, w.ledger.Generation)
				break
			}
		}
		// What is driven to.
		if lkg := w.ledger.LastKnownGood(first.g.board).Fields; !reflect.DeepEqual(w.lease.Fields, lkg) || !reflect.DeepEqual(w.lease.Proven, lkg) {
			t.Errorf("%v: driven to %v, last-known-good is %v", image, w.lease.Fields, lkg)
		}
		for _, s := range w.said {
			if !strings.Contains(s, "is older") {
				t.Errorf("%v: %s", image, s)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d records saved in %d calls; %d states after a power cut, %d different; %d lives went on from there", len(first.saves), len(log), states, len(known), len(settled))
	if len(settled) < len(first.saves) {
		t.Errorf("%d lives went on, from %d records", len(settled), len(first.saves))
	}
}

// settle lets a board go on with what is declared.
func settle(b *board, image faultfs.Image, declared asked) {
	b.Helper()
	for i := 0; i+1 < len(declared.declared); i += 2 {
		b.state[declared.declared[i]] = declared.declared[i+1] // as far as the device had come
	}
	b.declare(declared.retry, declared.declared...)
	woke := b.g.ledger
	release := bootslot.Release{Fields: b.g.profile.Fallback.Clone()}
	for i := 0; i+1 < len(declared.declared); i += 2 {
		release.Fields[declared.declared[i]] = declared.declared[i+1]
	}
	had := woke.LastKnownGood(b.g.board).Equal(release) || // it has had its trial
		woke.Grant == nil && woke.Spent >= declared.retry && slices.ContainsFunc(woke.Marks, func(m bootslot.Mark) bool { return slices.Contains(m.Candidates, release.Digest()) })

	quiet := 0
	for quiet < 75*60 { // longer than the longest pause
		n := len(b.saves)
		b.live(time.Second)
		if quiet++; len(b.saves) > n {
			quiet = 0
		}
		if len(b.saves) > 40 {
			b.Fatalf("%v: it does not end: %d records, of which the last is %s", image, len(b.saves), recordJSON(b.T, b.g.ledger))
		}
	}
	conclusive := 0
	for i := 1; i < len(b.saves); i++ {
		was, is := b.saves[i-1].ledger, b.saves[i].ledger
		if was.Trial == nil || is.Trial != nil {
			continue
		}
		if s := is.Slots[was.Trial.Slot].Status; s == bootslot.SlotGood || s == bootslot.SlotFailed {
			conclusive++
		}
	}
	if conclusive > 1 || had && conclusive > 0 {
		b.Errorf("%v: %v declared: %d conclusive trials after it, though it had had one: %v", image, declared.declared, conclusive, had)
	}
	for _, m := range woke.Marks {
		for _, d := range m.Candidates { // marks are folded; what they remember stays, unless it is what passed
			if d != b.g.ledger.LastKnownGood(b.g.board).Digest() && !slices.ContainsFunc(b.g.ledger.Marks, func(m bootslot.Mark) bool { return slices.Contains(m.Candidates, d) }) {
				b.Errorf("%v: nothing remembers %s any more", image, d.Short())
			}
		}
	}
	if l := b.lease(); l.Fields["lamp"] != "off" || !reflect.DeepEqual(l.Fields, l.Proven) || !reflect.DeepEqual(map[string]string(l.Fields), b.state) {
		b.Errorf("%v: it ends with %v, last-known-good %v, the device at %v", image, l.Fields, l.Proven, b.state)
	}
}
