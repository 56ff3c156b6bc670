package guard

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/ledger"
	"holdfast/tools/faultfs"
)

// deed is something that a guard stores.
type deed struct {
	name string
	// before brings a board to the moment before it; do does it, in at most half a minute, whether it can be stored or not.
	before, do func(b *board)
	// want says whether it has come true, when the disk has been well for a while.
	want func(b *board) bool
}

// ask is an operator's request that may be refused because it cannot be stored, and is made until it is not.
func ask(path string) func(b *board) {
	return func(b *board) {
		b.Helper()
		w := httptest.NewRecorder()
		b.g.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}")))
		if w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable && w.Code != http.StatusConflict {
			b.Errorf("POST %s = %d %s", path, w.Code, w.Body)
		}
		if w.Code == http.StatusServiceUnavailable && !strings.Contains(w.Body.String(), "record") {
			b.Errorf("POST %s = %d %s, which does not say that it cannot be recorded", path, w.Code, w.Body)
		}
	}
}

func deeds() []deed {
	half := func(b *board) { b.live(30 * time.Second) }
	adopted := func(b *board) {
		b.declare(0)
		b.until("the fallback is adopted", func() bool { return b.g.ledger.HasGood() })
	}
	tried := func(fields ...string) func(b *board) {
		return func(b *board) {
			adopted(b)
			b.declare(0, fields...)
			b.until("it is tried", func() bool { return b.g.phase() == api.PhaseTrial })
			b.live(time.Second)
		}
	}
	marked := func(b *board) bool {
		return slices.ContainsFunc(b.g.ledger.Marks, func(m bootslot.Mark) bool { return m.Cause == bootslot.CauseFailed && m.Set["lamp"] == "on" })
	}
	failed := func(b *board) {
		tried("lamp", "on")(b)
		b.until("lamp=on fails", func() bool { return len(b.g.ledger.Marks) == 1 })
	}
	return []deed{
		{"adoption", func(b *board) {}, func(b *board) { b.declare(0); half(b) }, func(b *board) bool { return b.g.ledger.HasGood() }},
		{"a trial is opened", adopted, func(b *board) { b.declare(0, "fan", "on"); half(b) }, func(b *board) bool { return b.lease().Proven["fan"] == "on" }},
		{"a pass", tried("fan", "on"), half, func(b *board) bool { return b.lease().Proven["fan"] == "on" }},
		{"a failure", tried("lamp", "on"), half, marked},
		{"the mark stands", failed, half, func(b *board) bool { return marked(b) && b.idle() }},
		{"not desired any more", tried("fan", "on"), func(b *board) { b.declare(0); half(b) }, func(b *board) bool { return b.idle() && b.lease().Fields["fan"] == "off" }},
		{"goodbye", tried("fan", "on"), func(b *board) { b.g.goodbye("stopped"); half(b) }, func(b *board) bool { return b.lease().Proven["fan"] == "on" }},
		{"a start after an interruption", tried("fan", "on"), func(b *board) {
			_ = b.g.store.Close() // as the kernel does it, whatever the disk says
			b.boot()
			half(b)
		}, func(b *board) bool { return b.lease().Proven["fan"] == "on" }},
		{"retry", func(b *board) { failed(b); b.until("the mark stands", b.idle); b.live(time.Minute) }, ask("/v1/retry"),
			func(b *board) bool {
				if len(b.saves) < 6 && b.g.ledger.Grant == nil && b.idle() {
					ask("/v1/retry")(b)
				}
				return marked(b) && b.idle() && b.g.ledger.Grant == nil && len(b.saves) >= 6
			}},
		{"rollback", func(b *board) { tried("fan", "on")(b); b.until("fan=on passes", b.idle); b.live(time.Second) }, ask("/v1/rollback"),
			func(b *board) bool {
				if b.lease().Fields["fan"] == "on" {
					ask("/v1/rollback")(b)
				}
				return b.lease().Proven["fan"] == "off" && slices.ContainsFunc(b.g.ledger.Marks, func(m bootslot.Mark) bool { return m.Cause == bootslot.CauseOperator })
			}},
		{"rollback in a trial", tried("fan", "on"), ask("/v1/rollback"),
			func(b *board) bool {
				return b.lease().Fields["fan"] == "off" && slices.ContainsFunc(b.g.ledger.Marks, func(m bootslot.Mark) bool { return m.Cause == bootslot.CauseOperator })
			}},
	}
}

// safe looks whether what is in force may be: a candidate only if both files have its trial, and else last-known-good.
func (b *board) safe(what string) {
	b.Helper()
	l := b.lease()
	if reflect.DeepEqual(l.Fields, l.Proven) {
		return
	}
	side, err := ledger.ReadSidecar(b.cfg.LedgerJSON())
	if err != nil || side.Trial == nil || side.Generation != l.Generation || !reflect.DeepEqual(side.Trial.Candidate.Fields, l.Fields) {
		b.Errorf("%s: %v is in force, generation %d, and the sidecar has generation %d (%v)", what, l.Fields, l.Generation, side.Generation, err)
	}
}

// TestIOErrors: whichever call fails of those with which the guard stores something, once or for half a minute, it goes on and drives the device to what it may;
// when the disk is well again what was to be stored is, without a start, and the next start finds it.
func TestIOErrors(t *testing.T) {
	t.Parallel()
	fs, cfg := faultfs.New(t), newBench(t, "").cfg
	tried, left := 0, 0
	for _, d := range deeds() {
	calls:
		for n := 0; ; n++ {
			for _, fault := range []faultfs.Fault{
				{Errno: unix.EIO}, {Errno: unix.ENOSPC, Stays: true}, {Errno: unix.EROFS}, {Errno: unix.EIO, Stays: true}, {Errno: unix.ENOSPC}, {Errno: unix.EROFS, Stays: true},
			} {
				if left++; left%faultfs.Pick(*long, 23, 5, 1) != 0 {
					continue
				}
				fault.After = n
				what := fmt.Sprintf("%s: %+v", d.name, fault)
				b := newBoard(t, cfg, filepath.Join(fs.Dir, fmt.Sprint(tried)), nil)
				tried++
				d.before(b)
				fs.Fail(fault)
				d.do(b)
				b.safe(what)
				lkg := b.lease().Proven
				failed := fs.Heal()
				b.until(what+", and it is not stored later", func() bool { b.safe(what); return d.want(b) })
				b.live(30 * time.Second)
				b.want(what+": problem with the ledger", b.g.problems["ledger"], "")
				if failed == 0 && !d.want(b) {
					t.Errorf("%s: it is undone", what)
				}
				for _, p := range b.g.problems {
					t.Errorf("%s: problem: %s, last-known-good then: %v", what, p, lkg)
				}
				conclusive(b, what)
				record := recordJSON(t, b.g.ledger)
				events, err := b.g.store.History(0)
				if err != nil {
					t.Errorf("%s: history: %v", what, err)
				}
				for i, e := range events {
					if i > 0 && e.Generation == events[i-1].Generation && e.Kind == events[i-1].Kind && e.Kind != bootslot.EventConfigured {
						t.Errorf("%s: told twice: %+v", what, e)
					}
				}
				if b.g.phase() == api.PhaseIdle {
					b.crash()
					if again := recordJSON(t, b.g.ledger); again != record {
						t.Errorf("%s: the next start finds %s\nwant %s", what, again, record)
					}
				}
				if err := errors.Join(b.g.Close(), os.RemoveAll(b.cfg.State)); err != nil {
					t.Error(err)
				}
				if t.Failed() {
					t.FailNow()
				}
				if failed == 0 {
					break calls
				}
			}
		}
	}
	t.Logf("%d deeds with a fault", tried)
}

// conclusive looks whether a content had more than its one conclusive trial.
func conclusive(b *board, what string) {
	b.Helper()
	had := map[string]int{}
	for i := 1; i < len(b.saves); i++ {
		was, is := b.saves[i-1].ledger, b.saves[i].ledger
		if was.Trial == nil || is.Trial != nil {
			continue
		}
		if s := is.Slots[was.Trial.Slot].Status; s == bootslot.SlotGood || s == bootslot.SlotFailed {
			had[fmt.Sprint(was.Trial.Digest.Short(), was.Trial.Number, was.Trial.Granted)]++
		}
	}
	for content, n := range had {
		if n > 1 {
			b.Errorf("%s: %d conclusive trials of %s", what, n, content)
		}
	}
}

// TestIOErrorsAtTheStart: whichever call of a start fails, for reading or for writing, once or for half a minute, the guard starts, and drives the device to
// last-known-good or the fallback; when the disk is well again the record that was there is in force, with its mark, or a new board's is kept.
func TestIOErrorsAtTheStart(t *testing.T) {
	t.Parallel()
	fs, cfg := faultfs.New(t), newBench(t, "").cfg
	first := newBoard(t, cfg, filepath.Join(fs.Dir, "first"), nil)
	for _, d := range deeds() {
		if d.name == "the mark stands" {
			d.before(first)
			d.do(first)
		}
	}
	first.declare(0, "fan", "on")
	first.until("it is tried", func() bool { return first.g.phase() == api.PhaseTrial }) // open when the power goes
	if err := first.g.Close(); err != nil {
		t.Fatal(err)
	}
	tried, left := 0, 0
	for _, isNew := range []bool{false, true} {
		for _, reading := range []bool{false, true} {
		calls:
			for n := 0; ; n++ {
				for _, fault := range []faultfs.Fault{
					{Errno: unix.EIO}, {Errno: unix.ENOSPC, Stays: true}, {Errno: unix.EIO, Stays: true}, {Errno: unix.EROFS, Stays: true},
				} {
					if left++; reading && fault.Errno != unix.EIO || !reading && left%faultfs.Pick(*long, 13, 3, 1) != 0 {
						continue
					}
					fault.After, fault.Reading = n, reading
					what := fmt.Sprintf("new board %v: %+v", isNew, fault)
					state := filepath.Join(fs.Dir, fmt.Sprint(tried))
					tried++
					if !isNew {
						if err := os.CopyFS(filepath.Join(state, "guard"), os.DirFS(first.cfg.GuardFolder())); err != nil {
							t.Fatal(err)
						}
					}
					fs.Fail(fault)
					b := newBoard(t, cfg, state, nil)
					b.declare(0)
					b.live(10 * time.Second)
					l := b.lease()
					b.want(what+": fan", l.Fields["fan"], "off")
					b.want(what+": lamp", l.Fields["lamp"], "off")
					failed := fs.Heal()
					b.until(what+": it is kept", func() bool { return b.g.problems["ledger"] == "" && b.g.ledger.HasGood() })
					b.live(time.Minute)
					marks := 1
					if isNew {
						marks = 0
					}
					b.want(what+": marks", len(b.g.ledger.Marks), marks)
					if !isNew {
						b.want(what+": attempts of the interrupted trial", len(b.g.ledger.Tries) > 0 && b.g.ledger.Tries[len(b.g.ledger.Tries)-1].Count == 1, true)
						b.want(what+": lamp=on again", b.wish(0, "lamp", "on").Kind, bootslot.Held)
					}
					record := recordJSON(t, b.g.ledger)
					b.crash()
					if again := recordJSON(t, b.g.ledger); again != record {
						t.Errorf("%s: the next start finds %s\nwant %s", what, again, record)
					}
					if err := errors.Join(b.g.Close(), os.RemoveAll(state)); err != nil {
						t.Error(err)
					}
					if t.Failed() {
						t.FailNow()
					}
					if failed == 0 {
						break calls
					}
				}
			}
		}
	}
	t.Logf("%d starts with a fault", tried)
}
