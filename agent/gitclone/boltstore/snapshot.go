package boltstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"holdfast/device/boltfile"
)

// Snapshot opens a copy in memory of the file, for reading: by a command while the agent may hold the lock, and by the
// agent itself when it may not write. It writes nothing to disk, waits for no lock, and cannot be cut short under the
// reader. fs.ErrNotExist if there is no file.
//
// The copy is taken without the lock, so the agent may be writing. bbolt writes only pages that the last published
// state does not use, so that a copy is whole unless two transactions end while it is taken; then its sums do not fit,
// and it is taken again.
func Snapshot(path string, o Options) (s *Store, err error) {
	o = o.withDefaults()
	for range 3 {
		if s, err = snapshot(path, o); err == nil || !errors.Is(err, ErrCorrupt) {
			return s, err
		}
	}
	return nil, err
}

func snapshot(path string, o Options) (*Store, error) {
	from, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	if fi, err := from.Stat(); err != nil {
		return nil, err
	} else if !fi.Mode().IsRegular() || fi.Size() > 2*int64(o.MaxBytes) {
		return nil, fmt.Errorf("%w: not a clone: %s, %d bytes", ErrCorrupt, fi.Mode(), fi.Size())
	}
	fd, err := unix.MemfdCreate("clone.db", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot make a file in memory: %w", err)
	}
	to := os.NewFile(uintptr(fd), "clone.db")
	if n, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		return nil, err
	} else if err := boltfile.Check(to, n); err != nil {
		_ = to.Close()
		return nil, corrupt(err)
	}
	s := &Store{path: path, opts: o, file: to}
	if err := s.open(&bbolt.Options{
		ReadOnly: true,
		Timeout:  time.Second, // of a lock that nobody else can know
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { return to, nil },
	}); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}
