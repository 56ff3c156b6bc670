package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"holdfast/tools/faultfs"
)

// TestCorruption: the file is damaged in each of its regions and in several ways, while it is closed or while it is open. What is published is the last state or the one
// before it (if what says which is the last is damaged), whole; or the damage is found, the file set aside, and a new one can be published to.
func TestCorruption(t *testing.T) {
	t.Parallel()
	s := filledTo(t, filepath.Join(t.TempDir(), "clone.db"), 0, 20_000)
	for n := range 40 { // of one level of pages more
		if err := s.Update(func(tx *Tx) error { return tx.Put(fmt.Sprint("value", n), bytes.Repeat([]byte{byte(n)}, 300)) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(publishNumber(s, 1, 0), publishNumber(s, 2, 0)); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	whole, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	stride := faultfs.Pick(*long, 4096, 256, 32)
	path := filepath.Join(faultfs.Scratch(t), "clone.db")
	found := map[string]int{}
	for _, kind := range []string{"cut", "zeroed", "erased", "flipped", "flipped all over"} {
		for at := 0; at < len(whole); at += stride {
			b := bytes.Clone(whole)
			part := b[at:min(at+stride, len(b))]
			switch kind {
			case "cut":
				b = b[:at]
			case "zeroed":
				clear(part)
			case "erased":
				copy(part, bytes.Repeat([]byte{0xFF}, len(part)))
			case "flipped":
				part[len(part)/3] ^= 1 << (at / stride % 8)
			default:
				for i := range part {
					part[i] ^= 0x55
				}
			}
			if bytes.Equal(b, whole) {
				continue
			}
			for _, isOpen := range []bool{false, true} {
				what := fmt.Sprintf("%s at %d, open: %v", kind, at, isOpen)
				if err := os.WriteFile(path, whole, 0o600); err != nil {
					t.Fatal(err)
				}
				spoil := func() {
					f, err := os.OpenFile(path, os.O_WRONLY, 0)
					if err == nil && kind == "cut" {
						err = f.Truncate(int64(at))
					} else if err == nil {
						_, err = f.WriteAt(b, 0)
					}
					if err := errors.Join(err, f.Close()); err != nil {
						t.Fatal(err)
					}
				}
				if !isOpen {
					spoil()
				}
				s, aside, err := Open(path, Options{})
				if err != nil {
					t.Fatalf("%s: Open = %v", what, err)
				}
				if isOpen {
					spoil()
				}
				n, _, err := stored(s)
				switch {
				case aside != nil && n == -1 && err == nil:
					found["at the start"]++
				case errors.Is(err, ErrCorrupt), errors.Is(err, plumbing.ErrObjectNotFound), err == nil && n == -1: // a key
					found["by reading it"]++
					if s, aside, err = s.SetAsideAndReopen(errors.New("it is bad")); err != nil || aside == nil {
						t.Fatalf("%s: SetAsideAndReopen = %+v, %v", what, aside, err)
					}
				case err != nil || n != 2 && n != 1:
					t.Errorf("%s: published is %d, %v, set aside %+v", what, n, err, aside)
				}
				if err := publishNumber(s, 3, 0); errors.Is(err, ErrCorrupt) {
					found["by writing to it"]++
					if s, _, err = s.SetAsideAndReopen(err); err == nil {
						err = publishNumber(s, 3, 0)
					}
					if err != nil {
						t.Errorf("%s: publish to a new file = %v", what, err)
					}
				} else if err != nil {
					t.Errorf("%s: publish = %v", what, err)
				}
				closed(t, s)
				if s, aside, err = Open(path, Options{}); err != nil {
					t.Fatalf("%s: Open = %v", what, err)
				}
				if n, _, err := stored(s); isOpen && aside != nil && n == -1 && err == nil {
					found["at the next start"]++ // nobody had read that meanwhile
				} else if err != nil || n != 3 || aside != nil {
					t.Errorf("%s: published is %d, %v, set aside %+v; want 3", what, n, err, aside)
				}
				closed(t, s)
				if t.Failed() {
					t.FailNow()
				}
			}
		}
	}
	t.Logf("%d bytes; found: %v", len(whole), found)
	if len(found) < 2 {
		t.Error("that shows nothing")
	}
}
