package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"holdfast/bootslot"
)

// unmounted hides dir behind something that is no folder, and returns what brings it back.
func unmounted(t *testing.T, dir string) (mount func()) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Rename(dir, dir+".away"))
	must(os.WriteFile(dir, nil, 0o600))
	return func() {
		must(os.Remove(dir))
		must(os.Rename(dir+".away", dir))
	}
}

// A record that could not be read when the guard started is not overwritten by the one that was made up meanwhile.
func TestARecordThatComesToLightWins(t *testing.T) {
	for name, save := range map[string]func(*Store, bootslot.Ledger) error{
		"save":    func(s *Store, l bootslot.Ledger) error { return s.Save(opened(t, l)) },
		"restore": func(s *Store, _ bootslot.Ledger) error { return s.Restore() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "guard")
			want := marked(t, dir)
			mount := unmounted(t, dir)
			s, l, _, err := Open(dir)
			if err == nil || l.ID == want.ID {
				t.Fatalf("Open = %v, %v; want an error and a new ledger", l.ID, err)
			}
			if err := s.Restore(); err == nil {
				t.Error("Restore without the folder = nil")
			}
			mount()
			var found *FoundError
			if err := save(s, l); !errors.As(err, &found) || asJSON(t, found.Ledger) != asJSON(t, want) {
				t.Fatalf("saved over it: %v; want a FoundError with the record", err)
			}
			// The caller goes on with what was found.
			if err := s.Save(bootslot.CloseReturning(found.Ledger, board, true, bootslot.Evidence{})); err != nil {
				t.Errorf("Save = %v", err)
			}
			s.Close()
			s, l, _ = mustOpen(t, dir)
			defer s.Close()
			if l.ID != want.ID || len(l.Marks) != 1 || l.Returning != nil {
				t.Errorf("after it: %s", asJSON(t, l))
			}
		})
	}
}

// A new board whose disk comes late keeps the ledger that was made for it.
func TestAMadeUpRecordIsSavedWhereThereIsNone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "guard")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mount := unmounted(t, dir)
	s, l, _, err := Open(dir)
	if err == nil {
		t.Fatal("Open = nil")
	}
	mount()
	want := save(t, s, opened(t, l))
	s.Close()
	s, l, _ = mustOpen(t, dir)
	defer s.Close()
	if asJSON(t, l) != asJSON(t, want) {
		t.Errorf("reopened: %s", asJSON(t, l))
	}
}

// Both files are damaged while the guard runs: it knows the record all the same.
func TestBothFilesDamagedUnderARunningGuard(t *testing.T) {
	dir := t.TempDir()
	s, l, _ := mustOpen(t, dir)
	l = save(t, s, opened(t, l))
	for _, f := range []string{"ledger.db", "ledger.json"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("junk"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s.db = nil // as after a rebuilding that found no room
	want := save(t, s, failed(l))
	s.Close()
	s, l, _ = mustOpen(t, dir)
	defer s.Close()
	if asJSON(t, l) != asJSON(t, want) {
		t.Errorf("reopened: %s", asJSON(t, l))
	}
}

// A verdict whose sidecar finds no room is tried again and again; the history tells it once.
func TestWhatCouldNotBeSavedIsNotHistory(t *testing.T) {
	dir := t.TempDir()
	s, l, _ := mustOpen(t, dir)
	defer s.Close()
	l = save(t, s, opened(t, l))
	full := true
	s.beforeWrite = func(what string) error {
		if full && what == "sidecar" {
			return errors.New("no space left")
		}
		return nil
	}
	for range 5 {
		step := failed(l)
		if err := s.Save(step); err == nil {
			t.Fatal("Save = nil")
		}
		l.Generation = step.Ledger.Generation // as the guard does: none is used twice
		if err := s.Append(bootslot.Event{Kind: bootslot.EventUnhealthy, Check: "c"}); err != nil {
			t.Fatal(err)
		}
	}
	full = false
	save(t, s, failed(l))
	events, err := s.History(0)
	if err != nil {
		t.Fatal(err)
	}
	told, seqs := map[bootslot.EventKind]int{}, map[uint64]bool{}
	for _, e := range events {
		told[e.Kind]++
		seqs[e.Seq] = true
	}
	if told["failed"] != 1 || told[bootslot.EventTrial] != 1 || len(seqs) != len(events) {
		t.Errorf("the history tells %v", told)
	}

	// Given up instead: what was half saved is gone, from the history and at the next start.
	full = true
	if err := s.Save(bootslot.Step{Ledger: l, Events: []bootslot.Event{{Kind: bootslot.EventRollback}}}); err == nil {
		t.Fatal("Save = nil")
	}
	full = false
	before := asJSONRaw(s)
	if err := s.Restore(); err != nil {
		t.Errorf("Restore = %v", err)
	}
	if last, err := s.History(1); err != nil || last[0].Kind == bootslot.EventRollback {
		t.Errorf("the history ends with %+v, %v", last, err)
	}
	s.Close()
	again, l, _ := mustOpen(t, dir)
	defer again.Close()
	if asJSON(t, l) != before {
		t.Errorf("after Restore: %s, want %s", asJSON(t, l), before)
	}
}

func asJSONRaw(s *Store) string { return string(s.Raw()) }

// A full history of long messages leaves room for the record, and one damaged line hides no other.
func TestALongHistory(t *testing.T) {
	dir := t.TempDir()
	s, l, _ := mustOpen(t, dir)
	defer s.Close()
	s.db.NoSync = true
	long := strings.Repeat("é", 2100)
	var batch []bootslot.Event
	for i := range MaxEvents + 500 {
		batch = append(batch, bootslot.Event{Kind: bootslot.EventUnhealthy, Message: fmt.Sprint(i, long), Revision: long, Who: long, Check: long})
		if len(batch) == 250 {
			if err := s.Append(batch...); err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
			batch = nil
		}
	}
	s.db.NoSync = false
	save(t, s, opened(t, l))
	if fi, err := os.Stat(s.dbPath); err != nil || fi.Size() > 40<<20 {
		t.Errorf("ledger.db: %v bytes, %v", fi.Size(), err)
	}
	err := s.db.Update(func(tx *bolt.Tx) error {
		h := tx.Bucket(bucketHistory)
		k, _ := h.Cursor().First()
		return h.Put(k, []byte("{"))
	})
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.History(0)
	if err != nil || len(events) != MaxEvents-1 || len(events[0].Message) > maxMessage {
		t.Errorf("History = %d events, %v", len(events), err)
	}
}

func TestADamagedSidecarIsSetAside(t *testing.T) {
	dir := t.TempDir()
	marked(t, dir)
	side := filepath.Join(dir, "ledger.json")
	if err := os.WriteFile(side, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, l, notices := mustOpen(t, dir)
	defer s.Close()
	if b, err := os.ReadFile(side + ".bad"); err != nil || string(b) != "junk" || len(l.Marks) != 1 || len(notices) != 1 {
		t.Errorf("set aside: %q, %v; %d marks; %v", b, err, len(l.Marks), notices)
	}
}

// A sidecar that has grown beyond all records, as a file system's fault may make it, takes no memory, and its place.
func TestAHugeSidecarIsSetAside(t *testing.T) {
	dir := t.TempDir()
	want := marked(t, dir)
	path := filepath.Join(dir, "ledger.json")
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	s, l, notices := mustOpen(t, dir)
	defer s.Close()
	if l.Generation != want.Generation || len(notices) != 1 || !strings.Contains(notices[0], "set aside") {
		t.Errorf("generation %d, %q; want %d, and the sidecar set aside", l.Generation, notices, want.Generation)
	}
}
