package ledger

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/device/durable"
	"holdfast/tools/faultfs"
)

// faults are the ways in which a disk fails from its n-th call on.
func faults(n int) (all []faultfs.Fault) {
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EROFS} {
		for _, stays := range []bool{false, true} {
			all = append(all, faultfs.Fault{After: n, Errno: errno, Stays: stays})
		}
	}
	return all
}

// files are a guard's folder.
type files map[string][]byte

func readFiles(t *testing.T, dir string) files {
	t.Helper()
	out := files{}
	for _, name := range []string{"ledger.db", "ledger.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = b
	}
	return out
}

// put makes dir hold f, all of it durable.
func (f files) put(t *testing.T, dir string) {
	t.Helper()
	err := durable.MakeFolder(dir, 0o750)
	for name, b := range f {
		err = errors.Join(err, durable.Replace(filepath.Join(dir, name), b, 0o640))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestIOErrorsInSave: whichever call of a Save fails, once or from then on, the record and the history are those of before or of after it; when the disk is
// well again the same Store goes on. And whenever the power fails after that, what was confirmed is there, and no file is found damaged: nothing that was
// given to a sync that failed is believed to be on the disk.
func TestIOErrorsInSave(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(t)
	scratch := filepath.Join(faultfs.Scratch(t), "image")
	base := t.TempDir()
	tried, images, left := 0, 0, 0
	for _, st := range life(t) {
		s, before, _ := mustOpen(t, base)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		f := readFiles(t, base)
		next := st.next(before)
	calls:
		for n := 0; ; n++ {
			for _, fault := range faults(n) {
				for _, restore := range []bool{false, true} {
					if left++; left%faultfs.Pick(*long, 101, 17, 1) != 0 {
						continue
					}
					dir := fmt.Sprint("d", tried)
					tried++
					x := saveWithFault{t: t, what: fmt.Sprintf("%s, call %d: %v, stays %v, restore %v", st.name, n, fault.Errno, fault.Stays, restore),
						fs: fs, dir: filepath.Join(fs.Dir, dir), fault: fault, before: before, next: next, restore: restore}
					from := fs.Len()
					f.put(t, x.dir)
					s, _, _ := mustOpen(t, x.dir)
					began := fs.Len() - from
					want, failed := x.do(s)
					if err := s.Close(); err != nil {
						t.Errorf("%s: Close = %v", x.what, err)
					}
					log := fs.Log(from)
					known := map[uint64]woken{}
					for image := range faultfs.Crashes(log, began, faultfs.Pick(*long, faultfs.Depth{}, faultfs.Depth{All: 2, Random: 1}, faultfs.Depth{All: 6, Torn: 7, Random: 10})) {
						w, ok := known[image.Key]
						if !ok {
							images++
							if err := image.Write(scratch); err != nil {
								t.Fatal(err)
							}
							w = wake(t, filepath.Join(scratch, dir))
							known[image.Key] = w
						}
						for _, n := range w.notices {
							if !strings.Contains(n, "is older") {
								t.Errorf("%s: %v: %s", x.what, image, n)
							}
						}
						if w.err != nil || w.raw != want && (image.After == len(log) || w.raw != asJSON(t, before) && w.raw != asJSON(t, next.Ledger)) {
							t.Errorf("%s: %v: woke with %s, %v\nwant %s", x.what, image, w.raw, w.err, want)
						}
					}
					if t.Failed() {
						for _, op := range log {
							t.Log(op)
						}
						t.FailNow()
					}
					if failed == 0 {
						break calls // it was to come after the last call: each has failed
					}
				}
			}
		}
		s, _, _ = mustOpen(t, base)
		save(t, s, next)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d Saves with a fault, %d images after them", tried, images)
}

// saveWithFault is a Save on a disk that fails, and what a caller does after it.
type saveWithFault struct {
	t       *testing.T
	what    string
	fs      *faultfs.FS
	dir     string
	fault   faultfs.Fault
	before  bootslot.Ledger
	next    bootslot.Step
	restore bool // the caller gives it up; else he tries it again
}

// do returns the record that is confirmed in the end, and how many calls have failed.
func (x saveWithFault) do(s *Store) (want string, failed int) {
	x.fs.Fail(x.fault)
	err := s.Save(x.next)
	if x.fault.Stays && err != nil {
		if again := errors.Join(s.Save(x.next), s.Restore()); again == nil {
			x.t.Errorf("%s: tried again, nil", x.what)
		}
	}
	failed = x.fs.Heal()
	if failed == 0 && err != nil {
		x.t.Errorf("%s: no call has failed, and Save = %v", x.what, err)
	}
	if err != nil && (!strings.Contains(err.Error(), "ledger.") || !strings.Contains(err.Error(), x.fault.Errno.Error())) {
		x.t.Errorf("%s: Save = %v, which does not say of which file, or what", x.what, err)
	}
	end := x.next
	switch {
	case err == nil: // what has failed was of no account
	case x.restore:
		if err := s.Restore(); err != nil {
			x.t.Errorf("%s: Restore on a disk that is well = %v", x.what, err)
		}
		end = bootslot.Step{Ledger: x.before}
	default:
		end.Ledger.Generation++ // none is used twice
		if err := s.Save(end); err != nil {
			x.t.Errorf("%s: Save on a disk that is well = %v", x.what, err)
		}
	}
	events, err := s.History(0)
	told := 0
	for i, e := range events {
		if e.Kind == x.next.Events[0].Kind && e.Generation == x.next.Events[0].Generation {
			told++
		}
		if e.Seq != uint64(i+1) {
			x.t.Errorf("%s: event %d has number %d", x.what, i, e.Seq)
		}
	}
	if wantTold := min(len(end.Events), 1); err != nil || told != wantTold {
		x.t.Errorf("%s: the history tells it %d times, %v; want %d", x.what, told, err, wantTold)
	}
	if n := s.Notices(); len(n) > 0 {
		x.t.Errorf("%s: %q", x.what, n)
	}
	return asJSON(x.t, end.Ledger), failed
}

// TestIOErrorsInOpen: whichever call of a start fails, once or for the whole start, a record that is on the disk is in force, or comes to light when the disk
// is well again; nothing that was made up meanwhile is written over it.
func TestIOErrorsInOpen(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(t)
	dir := t.TempDir()
	older := marked(t, dir)
	old := readFiles(t, dir)
	s, l, _ := mustOpen(t, dir)
	l = save(t, s, bootslot.CloseReturning(l, board, true, bootslot.Evidence{}))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole := readFiles(t, dir)
	tried, left := 0, 0
	disks := map[string]files{
		"both files":          whole,
		"an older sidecar":    {"ledger.db": whole["ledger.db"], "ledger.json": old["ledger.json"]},
		"an older ledger.db":  {"ledger.db": old["ledger.db"], "ledger.json": whole["ledger.json"]},
		"no sidecar":          {"ledger.db": whole["ledger.db"]},
		"no ledger.db":        {"ledger.json": whole["ledger.json"]},
		"a damaged ledger.db": {"ledger.db": whole["ledger.db"][:8192], "ledger.json": whole["ledger.json"]},
		"a damaged sidecar":   {"ledger.db": whole["ledger.db"], "ledger.json": whole["ledger.json"][:100]},
		"a board that is new": {},
	}
	for _, name := range slices.Sorted(maps.Keys(disks)) { // the same sample each time
		f := disks[name]
		for _, reading := range []bool{false, true} {
		calls:
			for n := 0; ; n++ {
				for _, fault := range faults(n) {
					if left++; reading && fault.Errno != unix.EIO || !reading && left%faultfs.Pick(*long, 29, 7, 1) != 0 {
						continue
					}
					fault.Reading = reading
					what := fmt.Sprintf("%s, %+v", name, fault)
					dir := filepath.Join(fs.Dir, fmt.Sprint("d", tried))
					tried++
					f.put(t, dir)
					from := fs.Len()
					fs.Fail(fault)
					s, got, notices, err := Open(dir)
					failed := fs.Heal()
					if failed == 0 && err != nil {
						t.Errorf("%s: no call has failed, and Open = %v", what, err)
					}
					least := l
					if reading && name == "an older ledger.db" {
						least = older // which is in force if the newer one cannot be read: a block that stays bad must not stop everything
					}
					if (err == nil || !reading) && len(f) > 0 && got.Generation < least.Generation {
						t.Errorf("%s: Open = %v with %s, %q", what, err, asJSON(t, got), notices)
					}
					// The caller goes on, and finds the disk well again.
					step := func(l bootslot.Ledger) bootslot.Step {
						l.Generation++
						return bootslot.Step{Ledger: l, Events: []bootslot.Event{{Kind: bootslot.EventConfigured}}}
					}
					next := step(got)
					err = s.Save(next)
					var found *FoundError
					if errors.As(err, &found) {
						next = step(found.Ledger)
						err = s.Save(next)
					}
					if err != nil {
						t.Errorf("%s: Save on a disk that is well = %v", what, err)
					}
					if len(f) > 0 && (len(next.Ledger.Marks) != 1 || next.Ledger.ID != l.ID || next.Ledger.Generation <= least.Generation) {
						t.Errorf("%s: the record is lost, and %s is in force; %q", what, asJSON(t, next.Ledger), notices)
					}
					if err := s.Close(); err != nil {
						t.Errorf("%s: Close = %v", what, err)
					}
					if s, again, notices, err := Open(dir); err != nil || asJSON(t, again) != asJSON(t, next.Ledger) || len(notices) > 0 {
						t.Errorf("%s: opened again: %v, %q, %s", what, err, notices, asJSON(t, again))
					} else if err := s.Close(); err != nil {
						t.Error(err)
					}
					if t.Failed() {
						for _, op := range fs.Log(from) {
							t.Log(op)
						}
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

// TestADeadBlock: a file of which the disk cannot read something any more is as good as none: the other has the record, and both are there again after the
// start.
func TestADeadBlock(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(t)
	dir := t.TempDir()
	l := marked(t, dir)
	f := readFiles(t, dir)
	for _, name := range []string{"ledger.db", "ledger.json"} {
		for n := 0; ; n++ {
			what := fmt.Sprintf("%s cannot be read from call %d on", name, n)
			dir := filepath.Join(fs.Dir, fmt.Sprint(name, n))
			f.put(t, dir)
			fs.Fail(faultfs.Fault{Of: name, Reading: true, After: n, Stays: true, Errno: unix.EIO})
			s, got, notices, err := Open(dir)
			if asJSON(t, got) != asJSON(t, l) {
				t.Fatalf("%s: in force is %s, %v", what, asJSON(t, got), notices)
			}
			next := bootslot.CloseReturning(got, board, true, bootslot.Evidence{})
			if serr := s.Save(next); serr != nil {
				t.Errorf("%s: Save = %v; Open = %v, %q", what, serr, err, notices)
			}
			failed := fs.Heal()
			if failed > 0 && len(notices) == 0 {
				t.Errorf("%s, and nobody is told", what)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			for _, name := range []string{"ledger.db", "ledger.json"} {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				s, again, _ := mustOpen(t, dir)
				if asJSON(t, again) != asJSON(t, next.Ledger) {
					t.Errorf("%s, and later there is no %s: %s", what, name, asJSON(t, again))
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if failed == 0 {
				break
			}
		}
	}
}

// TestADeadBlockUnderARunningGuard: the same, found while the file is open.
func TestADeadBlockUnderARunningGuard(t *testing.T) {
	fs := faultfs.New(t)
	dir := t.TempDir()
	marked(t, dir)
	f := readFiles(t, dir)
	for n := 0; ; n++ {
		dir := filepath.Join(fs.Dir, fmt.Sprint(n))
		f.put(t, dir)
		s, l, _ := mustOpen(t, dir)
		fs.Fail(faultfs.Fault{Of: "ledger.db", Reading: true, After: n, Stays: true, Errno: unix.EIO})
		if other, err := os.Open(filepath.Join(dir, "ledger.db")); err == nil { // which empties the kernel's cache of it
			other.Close()
		}
		next := bootslot.CloseReturning(l, board, true, bootslot.Evidence{})
		if err := s.Save(next); err != nil {
			t.Errorf("read %d: Save = %v", n, err)
		}
		failed := fs.Heal()
		if told := s.Notices(); (failed > 0) != (len(told) > 0) {
			t.Errorf("read %d: %d have failed, %q", n, failed, told)
		}
		if err := errors.Join(s.Close(), os.Remove(filepath.Join(dir, "ledger.json"))); err != nil {
			t.Error(err)
		}
		s, again, _ := mustOpen(t, dir)
		if asJSON(t, again) != asJSON(t, next.Ledger) {
			t.Errorf("read %d: ledger.db has %s", n, asJSON(t, again))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if failed == 0 {
			if n == 0 {
				t.Error("nothing was read")
			}
			break
		}
	}
}
