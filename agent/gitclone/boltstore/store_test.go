package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	berrors "go.etcd.io/bbolt/errors"
)

func open(t *testing.T, path string) (*Store, *SetAside) {
	t.Helper()
	s, aside, err := Open(path, Options{})
	if err != nil {
		t.Fatalf("Open(%s) = %v", path, err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, aside
}

// filled is a closed file with a value and an object.
func filled(t *testing.T, path string) plumbing.Hash {
	t.Helper()
	s, _, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var h plumbing.Hash
	if err := s.Update(func(tx *Tx) (err error) {
		h, err = tx.SetEncodedObject(blob("pump: on\n"))
		return errors.Join(err, tx.Put("document", []byte("pump: on\n")))
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return h
}

func blob(content string) plumbing.EncodedObject {
	o := &plumbing.MemoryObject{}
	o.SetType(plumbing.BlobObject)
	_, _ = o.Write([]byte(content))
	return o
}

// TestCreationIsSafe: the file has its name only when it is complete, and what a cut left behind is removed.
func TestCreationIsSafe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "clone.db")
	if err := os.WriteFile(path+".new", []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, aside := open(t, path)
	if aside != nil {
		t.Errorf("a new store was set aside: %v", aside)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(names) != 1 || names[0] != path {
		t.Errorf("files after creation: %v, want only %s", names, path)
	}
	if fi, _ := os.Stat(path); fi.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, want 0640", fi.Mode().Perm())
	}
	if _, err := s.Reference("refs/heads/main"); !errors.Is(err, plumbing.ErrReferenceNotFound) {
		t.Errorf("Reference in an empty store = %v, want %v", err, plumbing.ErrReferenceNotFound)
	}
}

// TestTruncatedAnywhere: a file cut short at any point is opened, or set aside and replaced; nothing escapes.
func TestTruncatedAnywhere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "clone.db")
	filled(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	readable, replaced := 0, 0
	for i := range 34 {
		size := i * len(whole) / 33
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		_, snapErr := Snapshot(path, Options{})
		s, aside, err := Open(path, Options{})
		if err != nil {
			t.Fatalf("cut at %d of %d: Open = %v, want a store", size, len(whole), err)
		}
		v, valueErr := s.Value("document")
		if aside == nil {
			readable++
			if valueErr != nil || string(v) != "pump: on\n" || snapErr != nil {
				t.Errorf("cut at %d: opened, document = %q, %v; Snapshot = %v", size, v, valueErr, snapErr)
			}
		} else {
			replaced++
			if !errors.Is(valueErr, ErrNotFound) || !errors.Is(snapErr, ErrCorrupt) || !errors.Is(aside.Err, ErrCorrupt) {
				t.Errorf("cut at %d: replaced, document = %q, %v; Snapshot = %v; aside = %v", size, v, valueErr, snapErr, aside.Err)
			}
			if err := s.Update(func(tx *Tx) error { return tx.Put("document", []byte("x")) }); err != nil {
				t.Errorf("cut at %d: the new store cannot be written: %v", size, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("cut at %d: Close = %v", size, err)
		}
	}
	if readable == 0 || replaced == 0 {
		t.Errorf("%d readable and %d replaced: the test has lost its point", readable, replaced)
	}
	if bad, _ := filepath.Glob(path + ".bad*"); len(bad) != 1 {
		t.Errorf("bad files kept: %v, want exactly one", bad)
	}
}

// TestFlippedAnywhere: one flipped byte in each stretch of the file is never taken for content.
func TestFlippedAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clone.db")
	h := filled(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 5; at < len(whole); at += 61 {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x55
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, aside, err := Open(path, Options{})
		if err != nil {
			t.Fatalf("flipped at %d: Open = %v", at, err)
		}
		v, err := s.Value("document")
		if err == nil && string(v) != "pump: on\n" {
			t.Errorf("flipped at %d: document = %q", at, v)
		}
		if o, err := s.EncodedObject(plumbing.BlobObject, h); err == nil && o.Hash() != h {
			t.Errorf("flipped at %d: object %s has hash %s", at, h, o.Hash())
		}
		_ = aside
		_ = s.Close()
	}
}

// TestCutShortWhileOpen: a file that loses its end under us is an error, not the end of the process.
func TestCutShortWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clone.db")
	filled(t, path)
	s, _ := open(t, path)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if v, err := s.Value("document"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Value = %q, %v, want %v", v, err, ErrCorrupt)
		}
	}
	n, aside, err := s.SetAsideAndReopen(ErrCorrupt)
	if err != nil || aside == nil {
		t.Fatalf("SetAsideAndReopen = %v, %v", aside, err)
	}
	defer n.Close()
	if err := n.Update(func(tx *Tx) error { return tx.Put("document", []byte("x")) }); err != nil {
		t.Errorf("Update of the new store = %v", err)
	}
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clone.db")
	filled(t, path)
	open(t, path)
	start := time.Now()
	if _, _, err := Open(path, Options{LockTimeout: 60 * time.Millisecond}); !errors.Is(err, ErrLocked) {
		t.Errorf("second Open = %v, want %v", err, ErrLocked)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("waited %v for the lock", d)
	}
	// A command may look all the same.
	snap, err := Snapshot(path, Options{})
	if err != nil {
		t.Fatalf("Snapshot of a locked file = %v", err)
	}
	defer snap.Close()
	if v, err := snap.Value("document"); err != nil || string(v) != "pump: on\n" {
		t.Errorf("Value of a snapshot = %q, %v", v, err)
	}
	if err := snap.Update(func(tx *Tx) error { return nil }); err == nil {
		t.Error("Update of a snapshot succeeded")
	}
}

func TestSnapshotOfNothing(t *testing.T) {
	if _, err := Snapshot(filepath.Join(t.TempDir(), "clone.db"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Snapshot = %v, want %v", err, fs.ErrNotExist)
	}
}

// TestUpdateIsAtomic: a transaction that fails, or panics, leaves nothing.
func TestUpdateIsAtomic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clone.db")
	h := filled(t, path)
	s, _ := open(t, path)
	boom := errors.New("boom")
	err := s.Update(func(tx *Tx) error {
		if err := errors.Join(tx.PruneObjects(nil), tx.Put("document", []byte("y"))); err != nil {
			t.Fatal(err)
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Errorf("Update = %v, want %v", err, boom)
	}
	if err := s.HasEncodedObject(h); err != nil {
		t.Errorf("object after a failed transaction: %v", err)
	}
	if err := s.Update(func(tx *Tx) error { _ = tx.Put("document", []byte("y")); panic("bbolt met a bad page") }); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Update that panics = %v, want %v", err, ErrCorrupt)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close after a panic = %v", err)
	}
	again, aside := open(t, path)
	if v, err := again.Value("document"); err != nil || string(v) != "pump: on\n" || aside != nil {
		t.Errorf("after reopening: %q, %v, aside %v", v, err, aside)
	}
}

// TestObjectIsRehashed: bbolt has no checksum on pages; a blob that rotted on flash must not come back.
func TestObjectIsRehashed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clone.db")
	h := filled(t, path)
	s, _ := open(t, path)
	if err := s.Update(func(tx *Tx) error {
		b := tx.tx.Bucket(bucketObjects)
		v := bytes.Clone(b.Get(h[:]))
		v[len(v)-2] ^= 1
		return b.Put(h[:], v)
	}); err != nil {
		t.Fatal(err)
	}
	if o, err := s.EncodedObject(plumbing.BlobObject, h); !errors.Is(err, ErrCorrupt) {
		t.Errorf("EncodedObject = %v, %v, want %v", o, err, ErrCorrupt)
	}
}

func TestMaxBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clone.db")
	s, _, err := Open(path, Options{MaxBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Update(func(tx *Tx) error { return tx.Put("document", []byte("small")) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(tx *Tx) error { return tx.Put("document", make([]byte, 1<<20)) }); !errors.Is(err, berrors.ErrMaxSizeReached) {
		t.Errorf("Update beyond MaxBytes = %v, want %v", err, berrors.ErrMaxSizeReached)
	}
	if v, err := s.Value("document"); err != nil || string(v) != "small" {
		t.Errorf("Value after that = %q, %v", v, err)
	}
}

// TestCompaction: a file that once held something big gives the space back at the next start.
func TestCompaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clone.db")
	h := filled(t, path)
	s, _, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := s.Update(func(tx *Tx) error { return tx.Put(fmt.Sprint("big", i), make([]byte, 1<<20)) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Update(func(tx *Tx) error {
		return pruneBucket(tx.tx.Bucket(bucketValues), func(k []byte) bool { return !bytes.HasPrefix(k, []byte("big")) })
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(path)
	s2, aside := open(t, path)
	after, _ := os.Stat(path)
	if aside != nil || before.Size() < 3<<20 || after.Size() > 64<<10 {
		t.Errorf("file had %d bytes, has %d; aside %v", before.Size(), after.Size(), aside)
	}
	if v, err := s2.Value("document"); err != nil || string(v) != "pump: on\n" {
		t.Errorf("Value = %q, %v", v, err)
	}
	if err := s2.HasEncodedObject(h); err != nil {
		t.Errorf("HasEncodedObject = %v", err)
	}
	// The lock is on the new file.
	if _, _, err := Open(path, Options{LockTimeout: 60 * time.Millisecond}); !errors.Is(err, ErrLocked) {
		t.Errorf("second Open = %v, want %v", err, ErrLocked)
	}
}

// TestNotWritable: a folder that cannot be written is the system's error, not damage.
func TestNotWritable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may write anywhere; a path below a file stands in for a folder that may not be written")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, _, err := Open(filepath.Join(dir, "file", "clone.db"), Options{}); err == nil || errors.Is(err, ErrCorrupt) {
		t.Errorf("Open below a file = %v, %v", s, err)
	}
}
