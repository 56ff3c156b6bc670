package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/device"
)

var (
	board = bootslot.Board{Fallback: release("off"), Attempts: 3}
	facts = bootslot.Facts{Rest: bootslot.RestFacts{AtRest: true, Required: []string{"c"}, Holding: []string{"c"}}}
)

func release(lamp string) bootslot.Release {
	return bootslot.Release{Fields: device.Fields{"lamp": lamp, "pump": "off"}}
}

// opened is l with a trial of lamp=on opened, failed is that trial failed: the step that makes a mark.
func opened(t *testing.T, l bootslot.Ledger) bootslot.Step {
	t.Helper()
	d, s := bootslot.Admit(l, board, bootslot.Wish{Release: release("on"), Revision: "r1"}, facts)
	if d.Kind != bootslot.Trying || s == nil {
		t.Fatalf("Admit = %v %q, want a trial", d.Kind, d.Reason)
	}
	return *s
}

func failed(l bootslot.Ledger) bootslot.Step {
	return bootslot.Settle(l, board, bootslot.Failed, bootslot.Evidence{Check: "c", Message: "too hot"})
}

func mustOpen(t *testing.T, dir string) (*Store, bootslot.Ledger, []string) {
	t.Helper()
	s, l, notices, err := Open(dir)
	if err != nil {
		t.Fatalf("Open: %v (%v)", err, notices)
	}
	return s, l, notices
}

func save(t *testing.T, s *Store, step bootslot.Step) bootslot.Ledger {
	t.Helper()
	if err := s.Save(step); err != nil {
		t.Fatalf("Save: %v", err)
	}
	return step.Ledger
}

// marked makes a ledger with one mark in dir and returns it, closed.
func marked(t *testing.T, dir string) bootslot.Ledger {
	t.Helper()
	s, l, notices := mustOpen(t, dir)
	if len(notices) > 0 {
		t.Errorf("a new board has notices: %v", notices)
	}
	l = save(t, s, opened(t, l))
	l = save(t, s, failed(l))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return l
}

func asJSON(t *testing.T, l bootslot.Ledger) string {
	t.Helper()
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReopened(t *testing.T) {
	dir := t.TempDir()
	want := marked(t, dir)
	s, l, notices := mustOpen(t, dir)
	defer s.Close()
	if asJSON(t, l) != asJSON(t, want) || len(notices) > 0 {
		t.Errorf("reopened:\n got %s %v\nwant %s", asJSON(t, l), notices, asJSON(t, want))
	}
	events, err := s.History(0)
	if err != nil || len(events) != 2 || events[0].Kind != bootslot.EventTrial || events[1].Kind != "failed" || events[1].Mark == 0 {
		t.Errorf("History = %+v, %v", events, err)
	}
	if last, err := s.History(1); err != nil || len(last) != 1 || last[0].Seq != 2 {
		t.Errorf("History(1) = %+v, %v", last, err)
	}
	for before, want := range map[uint64][]uint64{0: {1, 2}, 1: nil, 2: {1}, 3: {1, 2}, 99: {1, 2}} {
		events, err := s.HistoryBefore(before, 0)
		var got []uint64
		for _, e := range events {
			got = append(got, e.Seq)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("HistoryBefore(%d) = %v, %v, want %v", before, got, err, want)
		}
	}
	if last, err := s.HistoryBefore(3, 1); err != nil || len(last) != 1 || last[0].Seq != 2 {
		t.Errorf("HistoryBefore(3, 1) = %+v, %v", last, err)
	}
}

func TestOpeningTwiceIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := mustOpen(t, dir)
	defer s.Close()
	if _, _, _, err := Open(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("second Open = %v, want ErrLocked", err)
	}
	if _, _, err := ReadDB(filepath.Join(dir, "ledger.db"), 0); !errors.Is(err, ErrLocked) {
		t.Errorf("ReadDB = %v, want ErrLocked", err)
	}
	if _, err := ReadSidecar(filepath.Join(dir, "ledger.json")); err != nil {
		t.Errorf("ReadSidecar = %v: one who only looks must not need the lock", err)
	}
}

// What is in force after damage to either file, or both.
func TestDamage(t *testing.T) {
	db, side := "ledger.db", "ledger.json"
	remove := func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	junk := func(t *testing.T, path string) {
		if err := os.WriteFile(path, []byte("junk"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	empty := func(t *testing.T, path string) {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	flipValue := func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(b, []byte(`"lamp":"on"`)) {
			t.Fatalf("%s does not hold the mark's value", path)
		}
		if err := os.WriteFile(path, bytes.ReplaceAll(b, []byte(`"lamp":"on"`), []byte(`"lamp":"oN"`)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name        string
		db, side    func(*testing.T, string)
		kept        bool // the mark
		setAside    bool // a ledger.db.bad
		wantNotices bool
	}{
		{"ledger gone", remove, nil, true, false, true},
		{"ledger junk", junk, nil, true, true, true},
		{"ledger empty", empty, nil, true, true, true},
		{"a value flipped in the ledger", flipValue, nil, true, true, true},
		{"sidecar gone", nil, remove, true, false, false},
		{"sidecar junk", nil, junk, true, false, true},
		{"a value flipped in the sidecar", nil, flipValue, true, false, true},
		{"both gone", remove, remove, false, false, false},
		{"ledger junk, sidecar gone", junk, remove, false, true, true},
		{"ledger gone, sidecar flipped", remove, flipValue, false, false, true},
		{"both flipped", flipValue, flipValue, false, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			want := marked(t, dir)
			if tt.db != nil {
				tt.db(t, filepath.Join(dir, db))
			}
			if tt.side != nil {
				tt.side(t, filepath.Join(dir, side))
			}
			s, l, notices := mustOpen(t, dir)
			defer s.Close()
			if kept := len(l.Marks) == 1; kept != tt.kept {
				t.Errorf("mark kept: %v, want %v", kept, tt.kept)
			}
			if tt.kept && asJSON(t, l) != asJSON(t, want) {
				t.Errorf("record changed:\n got %s\nwant %s", asJSON(t, l), asJSON(t, want))
			}
			if (len(notices) > 0) != tt.wantNotices {
				t.Errorf("notices = %q, want some: %v", notices, tt.wantNotices)
			}
			if _, err := os.Stat(filepath.Join(dir, db+".bad")); (err == nil) != tt.setAside {
				t.Errorf("set aside: %v, want %v", err == nil, tt.setAside)
			}
			// Both files hold the record again, and it can be written.
			if side, err := ReadSidecar(filepath.Join(dir, side)); err != nil || asJSON(t, side) != asJSON(t, l) {
				t.Errorf("sidecar after Open = %v, %v", side, err)
			}
			if l.Returning == nil {
				l = save(t, s, opened(t, l))
				l = save(t, s, failed(l))
			}
			save(t, s, bootslot.CloseReturning(l, board, true, bootslot.Evidence{}))
		})
	}
}

func TestForeignSidecar(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	want := marked(t, dir)
	marked(t, other)
	copyFile(t, filepath.Join(other, "ledger.json"), filepath.Join(dir, "ledger.json"))
	s, l, notices := mustOpen(t, dir)
	defer s.Close()
	if l.ID != want.ID || len(notices) != 1 || !strings.Contains(notices[0], "another ledger") {
		t.Errorf("id %s, notices %q; want id %s and a notice", l.ID, notices, want.ID)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An older copy of ledger.db that somebody restored: the sidecar knows better.
func TestOlderLedgerWithNewerSidecar(t *testing.T) {
	dir := t.TempDir()
	db, old := filepath.Join(dir, "ledger.db"), filepath.Join(dir, "old")
	s, _, _ := mustOpen(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyFile(t, db, old)
	s, l, _ := mustOpen(t, dir)
	want := save(t, s, opened(t, l))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyFile(t, old, db)
	s, l, notices := mustOpen(t, dir)
	defer s.Close()
	if l.Generation != want.Generation || l.Trial == nil || len(notices) != 1 {
		t.Errorf("generation %d, notices %q; want %d and one notice", l.Generation, notices, want.Generation)
	}
}

// A power cut before and between every durable write of a whole life: after each, the board wakes with the record of before or of after the
// step that was cut, never with a rollback without its mark, and what Save has confirmed is never lost.
func TestPowerCutAtEveryWrite(t *testing.T) {
	errCut := errors.New("power cut")
	for cut := 0; ; cut++ {
		dir := t.TempDir()
		s := &Store{dbPath: filepath.Join(dir, "ledger.db"), sidecar: filepath.Join(dir, "ledger.json")}
		n := 0
		s.beforeWrite = func(string) error {
			if n++; n > cut {
				return errCut
			}
			return nil
		}
		l, err := s.open()
		confirmed := uint64(0)
		steps := []func(bootslot.Ledger) bootslot.Step{
			func(l bootslot.Ledger) bootslot.Step { return opened(t, l) },
			failed,
			func(l bootslot.Ledger) bootslot.Step {
				return bootslot.CloseReturning(l, board, true, bootslot.Evidence{})
			},
		}
		for _, step := range steps {
			if err != nil {
				break
			}
			confirmed = l.Generation
			st := step(l)
			if err = s.Save(st); err == nil {
				l = st.Ledger
				confirmed = l.Generation
			}
		}
		_ = s.Close()
		s2, woke, notices := mustOpen(t, dir)
		if woke.Generation < confirmed || woke.Generation > confirmed+1 && confirmed > 0 {
			t.Errorf("cut at write %d: woke with generation %d, confirmed was %d (%q)", cut, woke.Generation, confirmed, notices)
		}
		if spare := woke.Slots[bootslot.SlotA].Status; (spare == bootslot.SlotFailed) != (len(woke.Marks) == 1) {
			t.Errorf("cut at write %d: slot %s with %d marks", cut, spare, len(woke.Marks))
		}
		_ = s2.Close()
		if n <= cut {
			if cut < 8 {
				t.Fatalf("only %d writes were seen", cut)
			}
			return // the cut fell after the last write: every point has been tried
		}
	}
}

// A file cut short or overwritten anywhere never stops the start, and never loses the mark while the sidecar is whole.
func TestEveryRegionOfTheLedgerDamaged(t *testing.T) {
	dir := t.TempDir()
	want := marked(t, dir)
	whole, err := os.ReadFile(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		at := len(whole) * i / 64
		for _, kind := range []string{"truncated", "zeroed", "flipped"} {
			b := bytes.Clone(whole)
			switch kind {
			case "truncated":
				b = b[:at]
			case "zeroed":
				clear(b[at:min(at+512, len(b))])
			case "flipped":
				for j := at; j < min(at+64, len(b)); j++ {
					b[j] ^= 0x55
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "ledger.db"), b, 0o644); err != nil {
				t.Fatal(err)
			}
			s, l, notices, err := Open(dir)
			if err != nil {
				t.Fatalf("%s at %d: %v %q", kind, at, err, notices)
			}
			if len(l.Marks) != 1 || l.Generation != want.Generation {
				t.Errorf("%s at %d: %d marks, generation %d; want 1, %d", kind, at, len(l.Marks), l.Generation, want.Generation)
			}
			if err := s.Append(bootslot.Event{Kind: bootslot.EventSuspended, Message: fmt.Sprint(kind, at)}); err != nil {
				t.Errorf("%s at %d: cannot append: %v", kind, at, err)
			}
			_ = s.Close()
		}
	}
}

func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	want := marked(t, dir)
	if os.Geteuid() == 0 {
		// Root is not stopped by modes: a read-only mount would be needed; the scenario "read-only" has one.
		s := &Store{dbPath: filepath.Join(dir, "ledger.db"), sidecar: filepath.Join(dir, "ledger.json"),
			beforeWrite: func(string) error { return unix.EROFS }}
		l, err := s.open()
		defer s.Close()
		if err != nil || len(l.Marks) != 1 {
			t.Errorf("open = %d marks, %v", len(l.Marks), err)
		}
		if err := s.Save(bootslot.CloseReturning(l, board, true, bootslot.Evidence{})); !errors.Is(err, unix.EROFS) {
			t.Errorf("Save = %v, want EROFS", err)
		}
		return
	}
	if err := os.Chmod(filepath.Join(dir, "ledger.db"), 0o440); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o550); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o750)
	s, l, _, err := Open(dir)
	if err == nil || asJSON(t, l) != asJSON(t, want) {
		t.Errorf("Open = %v; want an error and the record all the same", err)
	}
	if err := s.Save(bootslot.CloseReturning(l, board, true, bootslot.Evidence{})); err == nil {
		t.Error("Save did not report that nothing can be written")
	}
}

func TestHistoryIsBoundedAndCountsRepetitions(t *testing.T) {
	s, l, _ := mustOpen(t, t.TempDir())
	defer s.Close()
	var many []bootslot.Event
	for i := range MaxEvents + 50 {
		many = append(many, bootslot.Event{Kind: bootslot.EventUnhealthy, Check: fmt.Sprint("c", i)})
	}
	if err := s.Append(many...); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Append(bootslot.Event{Kind: bootslot.EventSuspended, Generation: l.Generation}); err != nil {
			t.Fatal(err)
		}
	}
	events, err := s.History(0)
	if err != nil || len(events) != MaxEvents {
		t.Fatalf("%d events, %v; want %d", len(events), err, MaxEvents)
	}
	if last := events[len(events)-1]; last.Kind != bootslot.EventSuspended || last.Count != 3 {
		t.Errorf("last event = %+v, want a start counted 3 times", last)
	}
	if first := events[0].Check; first != "c51" {
		t.Errorf("oldest event = %s, want c51", first)
	}
}

// A record that a newer guard wrote keeps what this one does not know, and is settled by its fixed part alone.
func TestNewerRecord(t *testing.T) {
	dir := t.TempDir()
	s, l, _ := mustOpen(t, dir)
	step := opened(t, l)
	raw, err := json.Marshal(step.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Replace(raw, []byte(`"minWriter":1`), []byte(`"minWriter":9,"signature":{"by":"somebody"}`), 1)
	if err := s.SaveRaw(raw, nil); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	s, l, _ = mustOpen(t, dir)
	defer s.Close()
	if l.Writable() || l.Trial == nil {
		t.Fatalf("writable %v, trial %v", l.Writable(), l.Trial)
	}
	settled, open, err := bootslot.SettleForeign(s.Raw())
	if err != nil || !open {
		t.Fatal(open, err)
	}
	if err := s.SaveRaw(settled, nil); err != nil {
		t.Fatal(err)
	}
	side, err := ReadSidecar(filepath.Join(dir, "ledger.json"))
	if err != nil || side.Trial != nil || side.Generation != l.Generation+1 || side.Slots[bootslot.SlotA].Status != bootslot.SlotEmpty {
		t.Errorf("settled = %+v, %v", side, err)
	}
	if !bytes.Contains(s.Raw(), []byte(`"signature":{"by":"somebody"}`)) {
		t.Errorf("the unknown field is gone: %s", s.Raw())
	}
}

// The sidecar cannot be written: nothing is confirmed, and the generation that stands in ledger.db already is found at the next start.
func TestSidecarFails(t *testing.T) {
	dir := t.TempDir()
	s, l, _ := mustOpen(t, dir)
	s.beforeWrite = func(what string) error {
		if what == "sidecar" {
			return unix.ENOSPC
		}
		return nil
	}
	step := opened(t, l)
	if err := s.Save(step); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("Save = %v, want ENOSPC", err)
	}
	_ = s.Close()
	s, l, notices := mustOpen(t, dir)
	defer s.Close()
	if l.Generation != step.Ledger.Generation || l.Trial == nil {
		t.Errorf("woke with generation %d (%q), want %d", l.Generation, notices, step.Ledger.Generation)
	}
}
