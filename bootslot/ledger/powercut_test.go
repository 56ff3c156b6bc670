package ledger

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/bootslot"
	"holdfast/device/durable"
	"holdfast/tools/faultfs"
)

var long = flag.Bool("long", false, "also what is too long for every day")

// depth is how closely a power cut is looked at.
func depth() faultfs.Depth {
	return faultfs.Pick(*long, faultfs.Depth{All: 2}, faultfs.Depth{All: 5, Torn: 7, Random: 6}, faultfs.Depth{All: 10, Torn: 64, Random: 400})
}

// step is one change of the record.
type step struct {
	name string
	next func(bootslot.Ledger) bootslot.Step
}

// life is what a record goes through: a good, a failing and an interrupted trial, a retry, a rollback. Each step is the one that the step before it allows.
func life(t *testing.T) []step {
	t.Helper()
	wish := func(lamp string) func(bootslot.Ledger) bootslot.Step {
		return func(l bootslot.Ledger) bootslot.Step {
			d, s := bootslot.Admit(l, board, bootslot.Wish{Release: release(lamp), Revision: "r-" + lamp}, facts)
			if s == nil {
				t.Fatalf("Admit = %v %q, want a step", d.Kind, d.Reason)
			}
			return *s
		}
	}
	settle := func(v bootslot.Verdict) func(bootslot.Ledger) bootslot.Step {
		return func(l bootslot.Ledger) bootslot.Step {
			return bootslot.Settle(l, board, v, bootslot.Evidence{Check: "c", Message: "as it was measured", During: bootslot.Readings{"temperature": 50}})
		}
	}
	operator := func(s bootslot.Step, err error) bootslot.Step {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return []step{
		{"adopted", wish("off")},
		{"trial", wish("dim")},
		{"passed", settle(bootslot.Passed)},
		{"another trial", wish("on")},
		{"failed", settle(bootslot.Failed)},
		{"the mark stands", func(l bootslot.Ledger) bootslot.Step {
			return bootslot.CloseReturning(l, board, true, bootslot.Evidence{})
		}},
		{"retry", func(l bootslot.Ledger) bootslot.Step {
			return operator(bootslot.Retry(l, board, bootslot.Wish{Release: release("on")}, "eva", boardTime))
		}},
		{"trial after retry", wish("on")},
		{"interrupted", func(l bootslot.Ledger) bootslot.Step { return *bootslot.Boot(l, board, boardTime) }},
		{"rollback", func(l bootslot.Ledger) bootslot.Step {
			return operator(bootslot.Rollback(l, board, false, nil, "eva", boardTime))
		}},
	}
}

var boardTime = time.Date(1970, 1, 1, 0, 1, 0, 0, time.UTC)

// saved is a record, and when it was saved by the disk's log.
type saved struct {
	name        string
	raw         string
	began, done int // calls made before Save, and after it
	events      int // in the history by then
}

// recording is a life on a disk that remembers.
type recording struct {
	fs    *faultfs.FS
	dir   string
	saved []saved
}

func (r *recording) note(name, raw string, began, events int) {
	if n := len(r.saved); n > 0 {
		events += r.saved[n-1].events
	}
	r.saved = append(r.saved, saved{name, raw, began, r.fs.Len(), events})
}

// record plays a whole life, in a new folder of the disk.
func record(t *testing.T) *recording {
	t.Helper()
	r := &recording{fs: faultfs.New(t)}
	r.dir = filepath.Join(r.fs.Dir, "state", "guard")
	s, l, _ := mustOpen(t, r.dir)
	r.note("created", asJSON(t, l), 0, 0)
	for i, st := range life(t) {
		began := r.fs.Len()
		next := st.next(l)
		l = save(t, s, next)
		r.note(st.name, asJSON(t, l), began, len(next.Events))
		// The history grows beyond one page and beyond the file's first size meanwhile.
		began = r.fs.Len()
		var events []bootslot.Event
		for k := range 12 {
			events = append(events, bootslot.Event{Kind: bootslot.EventUnhealthy, Check: fmt.Sprint(i, k), Message: strings.Repeat("it is hot ", 10)})
		}
		if err := s.Append(events...); err != nil {
			t.Fatal(err)
		}
		r.note("appended", asJSON(t, l), began, len(events))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// woken is what a start finds after a power cut.
type woken struct {
	raw     string
	id      string
	events  int
	notices []string
	err     error
}

// wake starts on an image, stops, and starts again: the second start finds what the first has found, and has nothing left to mend.
func wake(t *testing.T, dir string) woken {
	t.Helper()
	s, l, notices, err := Open(dir)
	w := woken{asJSON(t, l), l.ID, 0, notices, err}
	if err != nil {
		return w
	}
	events, err := s.History(0)
	w.events, w.err = len(events), errors.Join(err, s.Close())
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, again, notices, err := Open(dir)
	if err != nil || asJSON(t, again) != w.raw || len(notices) > 0 {
		t.Errorf("the second start: %v, %q, %s\nthe first: %s", err, notices, asJSON(t, again), w.raw)
		return w
	}
	after, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("files after the first start: %v, after the second: %v", before, after)
	}
	w.err = errors.Join(w.err, s.Close())
	return w
}

// TestPowerCutOnRealFiles: whenever the power fails, and whatever of what was not synced is lost, torn or out of order, the next start finds the record that
// the last Save confirmed or the one that was being saved, whole; a confirmed event is not lost; and no file is found damaged.
func TestPowerCutOnRealFiles(t *testing.T) {
	t.Parallel()
	r := record(t)
	found := r.cut(t, 0, func(image faultfs.Image, w woken) {
		for _, n := range w.notices {
			if strings.Contains(n, "damaged") || strings.Contains(n, "not readable") || strings.Contains(n, "lost") {
				t.Errorf("%v: %s", image, n)
			}
		}
	})
	distinct := map[string]bool{}
	for _, s := range r.saved {
		distinct[s.raw] = true
	}
	if len(found) != len(distinct) {
		t.Errorf("%d records were found, %d were saved", len(found), len(distinct))
	}
}

// TestPowerCutWhileFilesAreMended: a start that has something to mend loses nothing either, whenever it is cut.
func TestPowerCutWhileFilesAreMended(t *testing.T) {
	dir := t.TempDir()
	marked(t, dir)
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	oldDB, oldSide := read("ledger.db"), read("ledger.json")
	s, l, _ := mustOpen(t, dir)
	l = save(t, s, bootslot.CloseReturning(l, board, true, bootslot.Evidence{}))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	newDB, newSide := read("ledger.db"), read("ledger.json")
	other := t.TempDir()
	marked(t, other)
	foreign, err := os.ReadFile(filepath.Join(other, "ledger.json"))
	if err != nil {
		t.Fatal(err)
	}
	torn := slices.Concat(newDB[:8192], make([]byte, len(newDB)-8192))
	for name, files := range map[string]struct{ db, side []byte }{
		"the sidecar is older":              {newDB, oldSide},
		"the sidecar is newer":              {oldDB, newSide},
		"the sidecar is another's":          {newDB, foreign},
		"the sidecar is damaged":            {newDB, newSide[:100]},
		"the sidecar is not there":          {newDB, nil},
		"ledger.db is damaged":              {torn, newSide},
		"ledger.db is not there":            {nil, newSide},
		"ledger.db is empty":                {[]byte{}, newSide},
		"ledger.db has its meta pages only": {newDB[:8192], newSide},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recording{fs: faultfs.New(t)}
			r.dir = filepath.Join(r.fs.Dir, "state", "guard")
			if err := durable.MakeFolder(r.dir, 0o750); err != nil {
				t.Fatal(err)
			}
			for name, b := range map[string][]byte{"ledger.db": files.db, "ledger.json": files.side} {
				if b == nil {
					continue
				}
				if err := durable.Replace(filepath.Join(r.dir, name), b, 0o640); err != nil {
					t.Fatal(err)
				}
			}
			from := r.fs.Len()
			r.note("before", asJSON(t, l), from, 0)
			s, got, _ := mustOpen(t, r.dir)
			if asJSON(t, got) != asJSON(t, l) {
				t.Fatalf("opened: %s", asJSON(t, got))
			}
			began := r.fs.Len()
			next := bootslot.Step{Ledger: got, Events: []bootslot.Event{{Kind: bootslot.EventRetry}}}
			next.Ledger.Generation++
			save(t, s, next)
			r.note("next", asJSON(t, next.Ledger), began, len(next.Events))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			r.cut(t, from, func(faultfs.Image, woken) {})
		})
	}
}

// cut fails the power at each point of the recording from a number of calls on, wakes in each state that this can leave, and looks whether what was
// confirmed is there, or what was being saved. It returns the records that it found.
func (r *recording) cut(t *testing.T, from int, also func(faultfs.Image, woken)) map[string]bool {
	t.Helper()
	log := r.fs.Log(0)
	dir := filepath.Join(faultfs.Scratch(t), "image")
	known, found := map[uint64]woken{}, map[string]bool{}
	states := 0
	for image := range faultfs.Crashes(log, from, depth()) {
		states++
		w, ok := known[image.Key]
		if !ok {
			if err := image.Write(dir); err != nil {
				t.Fatal(err)
			}
			w = wake(t, filepath.Join(dir, "state", "guard"))
			known[image.Key] = w
		}
		if w.err != nil {
			t.Errorf("%v: %v", image, w.err)
			continue
		}
		// What is confirmed by then, and what is being done.
		i := -1
		for i+1 < len(r.saved) && r.saved[i+1].done <= image.After {
			i++
		}
		var allowed []string
		events := 0
		if i >= 0 {
			allowed, events = append(allowed, r.saved[i].raw), r.saved[i].events
		}
		if i+1 < len(r.saved) && r.saved[i+1].began < image.After {
			allowed = append(allowed, r.saved[i+1].raw)
		}
		switch at := slices.Index(allowed, w.raw); {
		case at >= 0:
			found[w.raw] = true
		case i < 0 && strings.Contains(w.raw, `"generation":1,`): // another new ledger, as nobody has seen the first
		default:
			t.Errorf("%v: woke with %s\nwant one of %s", image, w.raw, strings.Join(allowed, "\nor "))
		}
		if w.events < events {
			t.Errorf("%v: %d events, %d were confirmed", image, w.events, events)
		}
		also(image, w)
		if t.Failed() && states > 100 {
			t.Fatalf("… after %d states", states)
		}
	}
	t.Logf("%d calls, %d states after a power cut, %d different; %v", len(log), states, len(known), r.fs.Counts())
	return found
}
