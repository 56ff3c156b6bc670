package boltstore

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"holdfast/tools/faultfs"
)

var long = flag.Bool("long", false, "also what is too long for every day")

// stored is what is stored: its number, and its hash. -1 is a store in which nothing is published.
func stored(s *Store) (n int, h plumbing.Hash, err error) {
	doc, err := s.Value("document")
	if errors.Is(err, ErrNotFound) {
		return -1, h, nil
	}
	if err != nil {
		return 0, h, err
	}
	if _, err := fmt.Sscanf(string(doc), "pump: on # %d\n", &n); err != nil {
		return 0, h, fmt.Errorf("the document is %q", doc[:min(len(doc), 30)])
	}
	h = plumbing.ComputeHash(plumbing.BlobObject, doc)
	_, err = s.EncodedObject(plumbing.BlobObject, h)
	return n, h, err
}

// published is what is stored if all of it says the same.
func published(s *Store) (int, error) {
	n, h, err := stored(s)
	if err != nil || n == -1 {
		return n, err
	}
	ref, err1 := s.Reference("refs/heads/main")
	sh, err2 := s.Shallow()
	if err := errors.Join(err1, err2); err != nil || ref.Hash() != h || len(sh) != 1 || sh[0] != h {
		return 0, fmt.Errorf("parts of two publishes: %w, ref %v, shallow %v, want %s", err, ref, sh, h)
	}
	return n, nil
}

// publishNumber publishes a state of so many bytes.
func publishNumber(s *Store, n, size int) error {
	doc := fmt.Sprintf("pump: on # %d\n", n)
	doc += strings.Repeat("#", max(0, size-len(doc)))
	return s.Update(func(tx *Tx) error {
		h, err := tx.SetEncodedObject(blob(doc))
		return errors.Join(err,
			tx.PruneObjects(map[plumbing.Hash]bool{h: true}),
			tx.SetReference(plumbing.NewHashReference("refs/heads/main", h)),
			tx.SetShallow([]plumbing.Hash{h}),
			tx.Put("document", []byte(doc)))
	})
}

// TestPowerCutOnRealFiles: whenever the power fails while the file is made, published to, compacted or set aside, and whatever of what was not synced is lost, torn
// or out of order, the next Open finds the state that was published last, or that was being published, whole.
func TestPowerCutOnRealFiles(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(t)
	path := filepath.Join(fs.Dir, "clone.db")
	type mark struct{ began, done, n int } // by the disk's log
	marks := []mark{}
	step := func(n int, do func() error) {
		t.Helper()
		began := fs.Len()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		marks = append(marks, mark{began, fs.Len(), n})
	}
	var s *Store
	reopen := func() (err error) {
		if s != nil {
			err = s.Close()
		}
		if err == nil {
			s, _, err = Open(path, Options{})
		}
		return err
	}
	step(-1, reopen)
	for n, size := range []int{0, 0, 9000, 100, 300_000, 20, 30} {
		step(n, func() error { return publishNumber(s, n, size) })
	}
	step(6, reopen) // it is compacted
	step(7, func() error { return publishNumber(s, 7, 0) })
	step(-1, func() (err error) { s, _, err = s.SetAsideAndReopen(errors.New("found bad")); return err })
	step(8, func() error { return publishNumber(s, 8, 0) })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log := fs.Log(0)
	compacted := false
	for _, op := range log {
		compacted = compacted || op.Kind == faultfs.Rename && op.To == "clone.db" && op.File > 1
	}
	if !compacted {
		t.Error("nothing was compacted")
	}

	depth := faultfs.Pick(*long, faultfs.Depth{All: 2}, faultfs.Depth{All: 5, Torn: 7, Random: 8}, faultfs.Depth{All: 10, Torn: 64, Random: 500})
	dir := filepath.Join(faultfs.Scratch(t), "image")
	known, found := map[uint64]int{}, map[int]bool{}
	states := 0
	for image := range faultfs.Crashes(log, 0, depth) {
		states++
		n, ok := known[image.Key]
		if !ok {
			if err := image.Write(dir); err != nil {
				t.Fatal(err)
			}
			s, aside, err := Open(filepath.Join(dir, "clone.db"), Options{})
			if err != nil || aside != nil {
				t.Fatalf("%v: Open = %v, set aside %+v", image, err, aside)
			}
			if n, err = published(s); err != nil {
				t.Fatalf("%v: %v", image, err)
			}
			if err := errors.Join(publishNumber(s, 99, 0), s.Close()); err != nil {
				t.Fatalf("%v: %v", image, err)
			}
			known[image.Key] = n
		}
		found[n] = true
		i := -1
		for i+1 < len(marks) && marks[i+1].done <= image.After {
			i++
		}
		switch {
		case i >= 0 && marks[i].n == n:
		case i+1 < len(marks) && marks[i+1].began < image.After && marks[i+1].n == n:
		case i < 0 && n == -1:
		default:
			t.Fatalf("%v: %d is published, the last that was confirmed is %+v", image, n, marks[max(i, 0)])
		}
	}
	for _, m := range marks {
		if !found[m.n] {
			t.Errorf("%d was never found", m.n)
		}
	}
	t.Logf("%d calls, %d states after a power cut, %d different; %v", len(log), states, len(known), fs.Counts())
}
