package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/tools/faultfs"
)

// TestIOErrors: whichever call of an Open, a publish or a compaction fails, once or from then on, the error says so, or it was of no account; what is published is the
// state before or after it; when the disk is well the same Store goes on. And whenever the power fails after that, one of the states that were published is
// found, whole: nothing that was given to a sync that failed is believed to be on the disk.
func TestIOErrors(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(t)
	scratch := filepath.Join(faultfs.Scratch(t), "image")
	tried, images, left := 0, 0, 0
	for _, tt := range []struct {
		name   string
		before func(path string) *Store
		do     func(s *Store, path string) (*Store, error)
		is     int // what is published then
	}{
		{"create", func(string) *Store { return nil }, func(_ *Store, path string) (*Store, error) { s, _, err := Open(path, Options{}); return s, err }, -1},
		{"publish", func(path string) *Store { return filledTo(t, path, 1, 0) }, func(s *Store, _ string) (*Store, error) { return s, publishNumber(s, 2, 0) }, 2},
		{"publish what needs room", func(path string) *Store { return filledTo(t, path, 1, 0) }, func(s *Store, _ string) (*Store, error) { return s, publishNumber(s, 2, 100_000) }, 2},
		{"open", func(path string) *Store { closed(t, filledTo(t, path, 1, 0)); return nil },
			func(_ *Store, path string) (*Store, error) { s, _, err := Open(path, Options{}); return s, err }, 1},
		{"compact", func(path string) *Store {
			s := filledTo(t, path, 0, 300_000)
			if err := publishNumber(s, 1, 0); err != nil {
				t.Fatal(err)
			}
			closed(t, s)
			return nil
		}, func(_ *Store, path string) (*Store, error) { s, _, err := Open(path, Options{}); return s, err }, 1},
	} {
	calls:
		for n := 0; ; n++ {
			for _, fault := range []faultfs.Fault{
				{Errno: unix.EIO}, {Errno: unix.ENOSPC, Stays: true}, {Errno: unix.EROFS}, {Errno: unix.EIO, Stays: true}, {Errno: unix.ENOSPC}, {Errno: unix.EROFS, Stays: true},
			} {
				if left++; left%faultfs.Pick(*long, 11, 3, 1) != 0 {
					continue
				}
				fault.After = n
				what := fmt.Sprintf("%s: %+v", tt.name, fault)
				dir := filepath.Join(fs.Dir, fmt.Sprint(tried))
				from := fs.Len()
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				d, err := os.Open(fs.Dir)
				if err := errors.Join(err, d.Sync(), d.Close()); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, "clone.db")
				s := tt.before(path)
				was := -1
				if s != nil {
					if was, err = published(s); err != nil {
						t.Fatal(err)
					}
				} else if tt.is == 1 {
					was = 1
				}
				began := fs.Len() - from

				fs.Fail(fault)
				s, err = tt.do(s, path)
				failed := fs.Heal()
				if failed == 0 && err != nil {
					t.Errorf("%s: no call has failed: %v", what, err)
				}
				if errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: %v: the file is not at fault", what, err)
				}
				if s == nil { // as the clone does it: it opens the file again
					var aside *SetAside
					if s, aside, err = Open(path, Options{}); err != nil || aside != nil {
						t.Fatalf("%s: Open on a disk that is well = %v, %v", what, err, aside)
					}
				}
				if is, err := published(s); err != nil || is != was && is != tt.is {
					t.Errorf("%s: published is %d, %v; want %d or %d", what, is, err, was, tt.is)
				}
				done := fs.Len() - from
				if err := publishNumber(s, 5, 0); err != nil {
					t.Errorf("%s: publish on a disk that is well = %v", what, err)
				}
				if is, err := published(s); err != nil || is != 5 {
					t.Errorf("%s: published is %d, %v; want 5", what, is, err)
				}
				if err := s.Close(); err != nil {
					t.Errorf("%s: Close = %v", what, err)
				}
				log := fs.Log(from)
				known := map[uint64]bool{}
				for image := range faultfs.Crashes(log, began, faultfs.Depth{All: 3, Random: 1}) {
					if image.After < len(log) && known[image.Key] {
						continue
					}
					known[image.Key] = true
					images++
					if err := image.Write(scratch); err != nil {
						t.Fatal(err)
					}
					s, aside, err := Open(filepath.Join(scratch, fmt.Sprint(tried), "clone.db"), Options{})
					if err != nil || aside != nil {
						t.Fatalf("%s: %v: Open = %v, %+v", what, image, err, aside)
					}
					is, err := published(s)
					if err != nil || is != 5 && (image.After == len(log) || is != was && is != tt.is && (is != -1 || image.After > done)) {
						t.Errorf("%s: %v: published is %d, %v", what, image, is, err)
					}
					_ = s.Close()
				}
				tried++
				if t.Failed() {
					for _, op := range log {
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
	t.Logf("%d with a fault, %d images after them", tried, images)
}

// filledTo is an open store in which n is published.
func filledTo(t *testing.T, path string, n, size int) *Store {
	t.Helper()
	s, _, err := Open(path, Options{})
	if err == nil {
		err = publishNumber(s, n, size)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
