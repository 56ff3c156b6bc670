// Package boltstore keeps git objects, references and a few named values in one bbolt file, and is the only package of
// the agent that touches bbolt. It implements go-git's storage.Storer.
//
// # The file is a cache, and may be bad
//
// What it holds can be fetched again, so a bad file is never mended. Open sets it aside under another name, keeps the
// newest such file for whoever wants to look, and makes a new one. bbolt trusts its file, and reads it through a mapping:
// each transaction first looks at the structure of all of it (package boltfile), recovers from bbolt's panics and from
// faults of the mapping all the same, says ErrCorrupt, and refuses all that follows. bbolt has no checksum on its data
// pages either: objects are re-hashed on read, values carry a sha256 of their own.
//
// # What a power cut can do
//
//	creation     the file gets its name when it is complete; a cut before leaves at most clone.db.new, removed by the next Open
//	Update       bbolt writes new pages, syncs, then one meta page, syncs: a cut leaves the state before or after, whole
//	compaction   the copy gets the name when it is complete; a cut before leaves clone.db.new, and the old file in force
//	setting aside one rename: the bad file is there under the old name or the new one, and either is handled by the next Open
//
// One publish is one Update. Methods of Store that write are a transaction each and meant for tests and for go-git's
// own use; methods of Tx share one.
package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/storage/memory"
	"go.etcd.io/bbolt"

	"holdfast/device/boltfile"
)

var (
	// ErrCorrupt reports a file that cannot be trusted. All but Close fails with it from then on.
	ErrCorrupt = errors.New("clone is damaged")
	// ErrLocked reports that another process has the file open for writing.
	ErrLocked = errors.New("clone is in use by another process")
	// ErrNotFound reports a value that is not there.
	ErrNotFound = errors.New("no such value")
)

// format is what the file says about itself. A file of another format is set aside like a bad one: it is a cache.
const format = "holdfast-clone-2"

var (
	bucketObjects = []byte("objects") // 20-byte hash → content + type byte
	bucketRefs    = []byte("refs")    // name → "hash" or "ref: target"
	bucketValues  = []byte("values")  // name → 32 bytes of sha256 + value
	keyFormat     = "format"
)

// Options bounds a Store. The zero value is usable.
type Options struct {
	LockTimeout time.Duration // wait for another process's lock; default 2 s. Never for ever: a second agent would hang in silence
	MaxBytes    int           // the file grows no further; default 32 MiB
}

func (o Options) withDefaults() Options {
	if o.LockTimeout <= 0 {
		o.LockTimeout = 2 * time.Second
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 32 << 20
	}
	return o
}

// compactAbove and compactFactor say when a file is much larger than its content. A clone of one device's path is some
// 32 KiB, and bbolt reuses free pages, so this is for the file that once held something big.
const (
	compactAbove  = 256 << 10 // bytes
	compactFactor = 4
)

// Store is an open file.
type Store struct {
	path   string
	opts   Options
	db     *bbolt.DB
	file   *os.File // bbolt's own; nil while it cannot be opened again
	unsure bool     // the last Update failed: it may stand in the kernel's memory, where bbolt looks, and not on the disk
	broken atomic.Bool
	index  memory.IndexStorage // there is no worktree: go-git's interface wants an index, the disk does not
}

// SetAside says what Open did with a bad file.
type SetAside struct {
	Path string // its new name
	Err  error  // why
}

// Open opens the file for writing, and makes it if there is none. A bad file is set aside first, which aside reports.
// The error is ErrLocked, or what the system says about a folder or disk that cannot be written.
func Open(path string, o Options) (s *Store, aside *SetAside, err error) {
	o = o.withDefaults()
	// Left over from a creation or a compaction that was cut: never complete, never of use.
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for range 3 { // open; set aside and create; once more if the file was exchanged under the lock
		_, statErr := os.Lstat(path)
		if errors.Is(statErr, fs.ErrNotExist) {
			if err := create(path, o); err != nil {
				return nil, aside, fmt.Errorf("cannot create %s: %w", path, err)
			}
		} else if statErr != nil {
			return nil, aside, statErr
		}
		s, err = openFile(path, o, false)
		switch {
		case err == nil && !s.isAt(path):
			_ = s.Close() // another process has replaced the file while we waited for its lock
			err = ErrLocked
			continue
		case err == nil:
			if err = s.compactIfWasteful(); err == nil {
				// And if power fails now? The name may be lost, or be the one before a compaction, and nothing has been published
				// yet. At each start, as whoever gave the file its name may have been killed before he came to this.
				err = syncFolder(path)
			}
			if err == nil {
				return s, aside, nil
			}
			_ = s.Close()
			if !errors.Is(err, ErrCorrupt) {
				return nil, aside, err
			}
			fallthrough
		case errors.Is(err, ErrCorrupt):
			moved, asideErr := moveAside(path)
			if asideErr != nil {
				return nil, aside, fmt.Errorf("%w, and cannot be set aside: %w", err, asideErr)
			}
			aside = &SetAside{Path: moved, Err: err}
		default:
			return nil, aside, err
		}
	}
	return nil, aside, err
}

// SetAsideAndReopen is for a store that was found bad while in use: the file is set aside and a new one made.
func (s *Store) SetAsideAndReopen(why error) (*Store, *SetAside, error) {
	_ = s.Close()
	moved, err := moveAside(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	n, second, err := Open(s.path, s.opts)
	if second == nil {
		second = &SetAside{Path: moved, Err: why}
	}
	return n, second, err
}

// moveAside gives a bad file another name. There is one such name, so at most one bad file is kept: the newest.
func moveAside(path string) (string, error) {
	to := path + ".bad-1"
	// And if power fails now? A rename is whole or has not happened. In the first case the next Open makes a new file, in
	// the second it finds this one bad again.
	return to, os.Rename(path, to)
}

// create makes an empty store.
func create(path string, o Options) error {
	tmp := path + ".new"
	// bbolt's README warns that power loss during the very first initialisation can leave a file that is neither empty
	// nor valid. And if power fails now? Only tmp is bad, and the next Open removes it unseen.
	s, err := openFile(tmp, o, true)
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	if err := s.settle(); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	// And if power fails now? The file is complete on disk under one name or the other.
	if err := os.Rename(tmp, path); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return nil
}

// settle closes a file that is to be renamed, all of it on disk.
func (s *Store) settle() error {
	err := s.file.Sync() // bbolt syncs data; this also covers the length
	return errors.Join(err, s.Close())
}

// openFile opens one file and proves that it is whole. With fresh it also fills a new file.
func openFile(path string, o Options, fresh bool) (*Store, error) {
	s := &Store{path: path, opts: o}
	if err := s.open(&bbolt.Options{
		Timeout:      o.LockTimeout,
		FreelistType: bbolt.FreelistMapType, // the default slows down with fragmentation
		MaxSize:      o.MaxBytes,
		OpenFile:     boltfile.Opener(&s.file, o.LockTimeout, fresh),
	}); err != nil {
		return nil, err
	}
	if fresh {
		if err := s.Update(func(tx *Tx) error {
			for _, b := range [][]byte{bucketObjects, bucketRefs, bucketValues} {
				if _, err := tx.tx.CreateBucket(b); err != nil {
					return err
				}
			}
			return tx.Put(keyFormat, []byte(format))
		}); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	if err := s.check(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// open hands the file to bbolt, and lets go of it and of its lock if bbolt panics. The group may read it: those who operate are told what is declared when the
// agent is dead, too.
func (s *Store) open(bo *bbolt.Options) error {
	err := contain(func() (err error) {
		s.db, err = bbolt.Open(s.path, 0o640, bo)
		return err
	})
	switch {
	case err == nil:
		s.db.AllocSize = 0 // a file grows by what it needs, and not to the size of its mapping, which would double it
		return nil
	case errors.Is(err, boltfile.ErrLocked):
		return ErrLocked
	case errors.Is(err, boltfile.ErrDamaged):
		return corrupt(err)
	}
	if s.file != nil {
		_ = boltfile.LetGo(s.file) // after a panic nobody else does, and the lock would stay
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return err // the system's word: permission, read-only, no space, input/output error
	}
	return corrupt(err)
}

// check says whether this is a clone, of this format. That the file is whole is known already (package boltfile).
func (s *Store) check() error {
	return s.View(func(tx *Tx) error {
		if v, err := tx.Value(keyFormat); err != nil {
			return corrupt(fmt.Errorf("no format: %w", err))
		} else if string(v) != format {
			return corrupt(fmt.Errorf("format is %q, not %q", v, format))
		}
		for _, name := range [][]byte{bucketObjects, bucketRefs, bucketValues} {
			if tx.tx.Bucket(name) == nil {
				return corrupt(fmt.Errorf("no bucket %q", name))
			}
		}
		return nil
	})
}

// isAt reports whether path still names the file that is open and locked.
func (s *Store) isAt(path string) bool {
	at, err := os.Stat(path)
	if err != nil {
		return false
	}
	open, err := s.file.Stat()
	return err == nil && os.SameFile(at, open)
}

// compactIfWasteful replaces the file by a copy of its content when it is much larger than that.
func (s *Store) compactIfWasteful() error {
	fi, err := s.file.Stat()
	if err != nil || fi.Size() <= compactAbove {
		return err
	}
	var used int64
	if err := s.View(func(tx *Tx) error {
		used = tx.tx.Size() - int64(s.db.Stats().FreePageN)*int64(s.db.Info().PageSize)
		return nil
	}); err != nil {
		return err
	}
	if used*compactFactor > fi.Size() {
		return nil
	}
	return s.compact()
}

func (s *Store) compact() error {
	tmp := s.path + ".new"
	to := &Store{path: tmp, opts: s.opts}
	// And if power fails now? The old file is untouched and in force; the next Open removes tmp.
	if err := to.open(&bbolt.Options{Timeout: s.opts.LockTimeout, FreelistType: bbolt.FreelistMapType,
		OpenFile: boltfile.Opener(&to.file, s.opts.LockTimeout, true)}); err != nil {
		return keepOld(tmp, err)
	}
	if err := contain(func() error { return bbolt.Compact(to.db, s.db, 1<<20) }); err != nil {
		_ = to.Close()
		return keepOld(tmp, err)
	}
	if err := to.settle(); err != nil {
		return keepOld(tmp, err)
	}
	// And if power fails now? Both files are complete and say the same; the name belongs to one of them.
	if err := os.Rename(tmp, s.path); err != nil {
		return keepOld(tmp, err)
	}
	n, err := openFile(s.path, s.opts, false)
	if err != nil {
		return err
	}
	old := &Store{db: s.db, file: s.file}
	s.db, s.file = n.db, n.file
	return old.Close()
}

// keepOld gives up a compaction. A full disk is no reason to do without a good file; damage is.
func keepOld(tmp string, err error) error {
	_ = os.Remove(tmp)
	if errors.Is(err, ErrCorrupt) {
		return err
	}
	return nil
}

// Close lets go of the file and its lock.
func (s *Store) Close() error {
	if s.file == nil {
		return nil
	}
	if s.broken.Load() {
		// bbolt's own Close can wait for ever on a lock that a panic left behind.
		// The mapping is lost to this process, once per damage and bounded by MaxBytes.
		return boltfile.LetGo(s.file)
	}
	return contain(s.db.Close)
}

// Path is the file's name.
func (s *Store) Path() string { return s.path }

// Update runs fn in one transaction: all of it is on disk when Update returns nil, and none of it when not.
//
// And if power fails now? bbolt writes pages that the state in force does not use, syncs them, writes one meta page
// that makes them the state in force, and syncs again. The next Open finds the newest whole meta page.
func (s *Store) Update(fn func(*Tx) error) error {
	if s.unsure && !s.broken.Load() {
		if err := s.makeSure(); err != nil {
			return err
		}
	}
	err := s.run(true, fn)
	s.unsure = err != nil
	return err
}

// makeSure goes on after an Update that failed (boltfile.MakeSure).
func (s *Store) makeSure() error {
	if s.file != nil {
		if err := boltfile.MakeSure(s.file); err != nil {
			return err
		}
		s.file = nil
		if err := contain(s.db.Close); err != nil {
			return err
		}
	}
	n, err := openFile(s.path, s.opts, false)
	if errors.Is(err, ErrCorrupt) {
		s.broken.Store(true)
	}
	if err == nil {
		s.db, s.file, s.unsure = n.db, n.file, false
	}
	return err
}

// Reserve makes the file so long, if it is shorter: bbolt does as much, with a sync of its own, in the transaction that
// needs it. No block is taken before something is in it.
//
// And if power fails now? The file is longer or it is not. What of it is in use stands in it.
func (s *Store) Reserve(size int) error {
	const page = 4 << 10
	size = min((size+page-1)/page*page, s.opts.MaxBytes)
	info, err := s.file.Stat()
	if err != nil || info.Size() >= int64(size) {
		return err
	}
	if err := s.file.Truncate(int64(size)); err != nil {
		return err
	}
	return s.file.Sync()
}

// View runs fn on the last published state. What fn gets from Tx is copied out and may be kept.
func (s *Store) View(fn func(*Tx) error) error { return s.run(false, fn) }

func (s *Store) run(write bool, fn func(*Tx) error) error {
	if s.broken.Load() {
		return ErrCorrupt
	}
	if s.file == nil {
		return fmt.Errorf("%s: %w", s.path, os.ErrClosed)
	}
	err := contain(func() error {
		// Again and again: it reads through a mapping, and what is in a file can change under it.
		if err := boltfile.CheckFile(s.file); errors.Is(err, boltfile.ErrDamaged) {
			return corrupt(err)
		} else if err != nil {
			return err
		}
		inner := func(tx *bbolt.Tx) error { return fn(&Tx{tx, &s.index}) }
		if write {
			return s.db.Update(inner)
		}
		return s.db.View(inner)
	})
	if errors.Is(err, ErrCorrupt) {
		s.broken.Store(true)
	}
	return err
}

// TxID is the number of the last transaction that wrote. It is for tests that assert that nothing was written.
func (s *Store) TxID() (id int, err error) {
	err = s.View(func(tx *Tx) error { id = tx.tx.ID(); return nil })
	return id, err
}

// contain runs fn and turns its panics, and faults of the mapping it reads through, into ErrCorrupt.
func contain(fn func() error) (err error) {
	// A file that is shorter than its meta page says is a fault on access: fatal to the process, unless asked for as a
	// panic. The setting is the goroutine's own.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = corrupt(fmt.Errorf("%v", p))
		}
	}()
	return fn()
}

func corrupt(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

func syncFolder(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
