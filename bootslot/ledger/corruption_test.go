package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/device/boltfile"
	"holdfast/tools/faultfs"
)

// damage is one way in which a file goes bad.
type damage struct {
	what string
	do   func(f *os.File) error
}

// damages cover a file of so many bytes, stride by stride.
func damages(whole []byte, stride int) (all []damage) {
	over := func(what string, at, n int, with func(b byte) byte) {
		b := bytes.Clone(whole[min(at, len(whole)):min(at+n, len(whole))])
		same := true
		for i := range b {
			same = same && with(b[i]) == b[i]
			b[i] = with(b[i])
		}
		if same {
			return
		}
		all = append(all, damage{fmt.Sprintf("%s [%d,%d)", what, at, at+len(b)), func(f *os.File) error {
			_, err := f.WriteAt(b, int64(at))
			return err
		}})
	}
	for at := 0; at < len(whole); at += stride {
		all = append(all, damage{fmt.Sprintf("cut at %d", at), func(f *os.File) error { return f.Truncate(int64(at)) }})
		over("zeroed", at, stride, func(byte) byte { return 0 })
		over("erased", at, stride, func(byte) byte { return 0xFF })
		over("flipped", at+stride/3, 1, func(b byte) byte { return b ^ 1<<(at/stride%8) })
		over("flipped all over", at, stride, func(b byte) byte { return b ^ 0x55 })
	}
	return all
}

// aged is a ledger with a mark and a history of more than one level of pages, closed.
func aged(t *testing.T, dir string) bootslot.Ledger {
	t.Helper()
	l := marked(t, dir)
	s, _, _ := mustOpen(t, dir)
	for i := range 10 {
		var events []bootslot.Event
		for k := range 6 {
			events = append(events, bootslot.Event{Kind: bootslot.EventUnhealthy, Check: fmt.Sprint(i, k), Message: strings.Repeat("it is hot ", 20)})
		}
		if err := s.Append(events...); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return l
}

func spoil(t *testing.T, path string, d damage) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = d.do(f)
		_ = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// goOn uses a store as a guard does: it changes the record, tells the history, and asks for it. It returns the record.
func goOn(t *testing.T, what string, s *Store, l bootslot.Ledger) bootslot.Ledger {
	t.Helper()
	for range 2 {
		l.Generation++
		if err := s.Save(bootslot.Step{Ledger: l, Events: []bootslot.Event{{Kind: bootslot.EventConfigured, Generation: l.Generation}}}); err != nil {
			t.Errorf("%s: Save = %v", what, err)
		}
		if err := s.Append(bootslot.Event{Kind: bootslot.EventSuspended, Generation: l.Generation}); err != nil {
			t.Errorf("%s: Append = %v", what, err)
		}
		if events, err := s.History(0); err != nil || len(events) < 2 {
			t.Errorf("%s: History = %d events, %v", what, len(events), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("%s: Close = %v", what, err)
	}
	return l
}

// TestCorruption: either file is damaged, in each of its regions and in several ways, while no guard runs or while one does. It is set aside and made anew from
// the other, which is told; the record is what it was, and goes on being kept in both.
func TestCorruption(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	want := aged(t, base)
	whole := readFiles(t, base)
	dir := filepath.Join(faultfs.Scratch(t), "guard")
	for _, name := range []string{"ledger.db", "ledger.json"} {
		stride := faultfs.Pick(*long, 4096, 512, 64)
		if name == "ledger.json" {
			stride = 64
		}
		for _, open := range []bool{false, true} {
			all := damages(whole[name], stride)
			told := 0
			for _, d := range all {
				what := fmt.Sprintf("%s %s, open: %v", name, d.what, open)
				whole.put(t, dir)
				path := filepath.Join(dir, name)
				if !open {
					spoil(t, path, d)
				}
				s, l, notices := mustOpen(t, dir)
				if asJSON(t, l) != asJSON(t, want) {
					t.Fatalf("%s: in force is %s, %q", what, asJSON(t, l), notices)
				}
				if open {
					spoil(t, path, d)
				}
				l = goOn(t, what, s, l)
				if notices = append(notices, s.Notices()...); len(notices) > 0 {
					told++
					if _, err := os.Stat(path + ".bad"); err != nil && !strings.Contains(notices[0], "is older") {
						t.Errorf("%s: %q, and it is not set aside", what, notices)
					}
				}
				// Each of the two has it.
				for _, other := range []string{"ledger.json", "ledger.db"} {
					if err := os.Remove(filepath.Join(dir, other)); err != nil {
						t.Fatal(err)
					}
					s, again, notices, err := Open(dir)
					if err != nil || asJSON(t, again) != asJSON(t, l) {
						t.Errorf("%s; then without %s: %v, %q, %s", what, other, err, notices, asJSON(t, again))
					}
					_ = s.Close()
				}
				if t.Failed() {
					t.FailNow()
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%s, open: %v: %d damages, %d found by what they are in", name, open, len(all), told)
			if told == 0 && !(open && name == "ledger.json") { // nobody reads that one while it is open
				t.Errorf("%s, open: %v: none of %d damages is found", name, open, len(all))
			}
		}
	}
}

// TestDamageThatBoltDoesNotSee: two entries of a page name the same page, or a page is in use and free. bbolt finds nothing wrong with that, and shows things twice,
// or writes over what is in use, later; it is found before it can.
func TestDamageThatBoltDoesNotSee(t *testing.T) {
	base := t.TempDir()
	want := aged(t, base)
	whole := readFiles(t, base)
	dir := filepath.Join(t.TempDir(), "guard")
	db := whole["ledger.db"]
	found := map[uint16]int{}
	for page := 8192; page < len(db); page += 4096 {
		const branch, freelist = 1, 16
		flags, count := binary.NativeEndian.Uint16(db[page+8:]), binary.NativeEndian.Uint16(db[page+10:])
		b := bytes.Clone(db)
		switch {
		case flags == branch && count > 1:
			copy(b[page+16+16+8:page+16+16+16], b[page+16+8:]) // the second child is the first
		case flags == freelist && count > 0:
			for other := 2; other < len(db)/4096 && boltfile.Check(bytes.NewReader(b), int64(len(b))) == nil; other++ {
				binary.NativeEndian.PutUint64(b[page+16:], uint64(other)) // until it is one that is in use
			}
		default:
			continue
		}
		if boltfile.Check(bytes.NewReader(b), int64(len(b))) == nil {
			continue // the page is of a state that was
		}
		d := damage{fmt.Sprintf("page %d, kind %d", page/4096, flags), func(f *os.File) error { _, err := f.WriteAt(b, 0); return err }}
		found[flags]++
		for _, open := range []bool{false, true} {
			whole.put(t, dir)
			if !open {
				spoil(t, filepath.Join(dir, "ledger.db"), d)
			}
			s, l, notices := mustOpen(t, dir)
			if open {
				spoil(t, filepath.Join(dir, "ledger.db"), d)
				if _, err := s.History(0); !errors.Is(err, boltfile.ErrDamaged) {
					t.Errorf("%s: History = %v", d.what, err)
				}
				if err := s.Append(bootslot.Event{Kind: bootslot.EventSuspended}); err != nil {
					t.Errorf("%s: Append = %v", d.what, err)
				}
			}
			if notices = append(notices, s.Notices()...); len(notices) == 0 || !strings.Contains(notices[0], boltfile.ErrDamaged.Error()) || asJSON(t, l) != asJSON(t, want) {
				t.Errorf("%s, open %v: %q", d.what, open, notices)
			}
			goOn(t, d.what, s, l)
		}
	}
	if len(found) != 2 {
		t.Errorf("kinds of pages: %v, want two", found)
	}
}

// TestCutShortInTheMiddleOfATransaction: the file goes between the look at it and bbolt's, whose mapping then leads nowhere. That is a fault of memory, and no end
// of the process; the next Save is well.
func TestCutShortInTheMiddleOfATransaction(t *testing.T) {
	dir := t.TempDir()
	s, l, _ := mustOpen(t, dir)
	l = save(t, s, opened(t, l))
	err := protect(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			if err := os.Truncate(s.dbPath, 0); err != nil {
				return err
			}
			return fmt.Errorf("bbolt read %d bytes of nothing", len(tx.Bucket(bucketRecord).Get(keyLedger)))
		})
	})
	if !isDamage(err) {
		t.Errorf("a transaction on a file that is gone = %v", err)
	}
	l = goOn(t, "cut short", s, l)
	s, again, _ := mustOpen(t, dir)
	defer s.Close()
	if asJSON(t, again) != asJSON(t, l) {
		t.Errorf("opened again: %s", asJSON(t, again))
	}
}

// TestDamageOnADiskThatCannotBeWritten: the file cannot be set aside. It is, and all is kept again, when the disk is well; nobody has shut himself out meanwhile.
func TestDamageOnADiskThatCannotBeWritten(t *testing.T) {
	fs := faultfs.New(t)
	base := t.TempDir()
	aged(t, base)
	whole := readFiles(t, base)
	dir := filepath.Join(fs.Dir, "guard")
	for _, open := range []bool{false, true} {
		whole.put(t, dir)
		d := damage{"zeroed", func(f *os.File) error {
			_, err := f.WriteAt(make([]byte, len(whole["ledger.db"])-8192), 8192)
			return err
		}}
		if !open {
			spoil(t, filepath.Join(dir, "ledger.db"), d)
			fs.Fail(faultfs.Fault{Errno: unix.EROFS, Stays: true})
		}
		s, l, _, err := Open(dir)
		if (err == nil) != open || len(l.Marks) != 1 {
			t.Errorf("open %v: Open = %v, %d marks", open, err, len(l.Marks))
		}
		if open {
			spoil(t, filepath.Join(dir, "ledger.db"), d)
			fs.Fail(faultfs.Fault{Errno: unix.EROFS, Stays: true})
		}
		next := l
		next.Generation++
		for range 3 {
			if err := s.Save(bootslot.Step{Ledger: next}); err == nil {
				t.Errorf("open %v: Save = nil", open)
			}
		}
		fs.Heal()
		goOn(t, fmt.Sprint("open: ", open), s, next)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBothFilesDamaged: the record is lost, which is said, and a new one is in force and kept.
func TestBothFilesDamaged(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	old := aged(t, base)
	whole := readFiles(t, base)
	dir := filepath.Join(faultfs.Scratch(t), "guard")
	side := damages(whole["ledger.json"], 100)
	lost := 0
	for i, d := range damages(whole["ledger.db"], faultfs.Pick(*long, 4096, 1024, 64)) {
		what := d.what + ", and the sidecar " + side[i%len(side)].what
		whole.put(t, dir)
		spoil(t, filepath.Join(dir, "ledger.db"), d)
		spoil(t, filepath.Join(dir, "ledger.json"), side[i%len(side)])
		s, l, notices := mustOpen(t, dir)
		if l.ID == old.ID && asJSON(t, l) != asJSON(t, old) {
			t.Errorf("%s: in force is a mixture: %s", what, asJSON(t, l))
		}
		if l.ID != old.ID {
			lost++
			if len(l.Marks) > 0 || len(notices) == 0 || !strings.Contains(strings.Join(notices, " "), "the ledger is lost") {
				t.Errorf("%s: %q, %s", what, notices, asJSON(t, l))
			}
		}
		l = goOn(t, what, s, l)
		s, again, _ := mustOpen(t, dir)
		if asJSON(t, again) != asJSON(t, l) {
			t.Errorf("%s: opened again: %s, want %s", what, asJSON(t, again), asJSON(t, l))
		}
		_ = s.Close()
		if t.Failed() {
			t.FailNow()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if lost == 0 {
		t.Error("it was never lost")
	}
}
