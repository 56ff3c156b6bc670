// Package ledger keeps the guard's record on the disk: the one durable truth on the device.
//
// It stands in two files, ledger.db (bbolt, with the history beside it) and its sidecar ledger.json, and each alone is enough:
//
//	Save:  bbolt commit ──► sidecar (write, fsync, rename, fsync folder) ──► only then may the caller act on it
//
//	Open:  both readable, one id   → the higher generation wins, the other is rewritten
//	       both readable, two ids  → ledger.db wins (the sidecar is of a ledger that was lost)
//	       one readable            → it wins, the other is rewritten
//	       neither                 → a new ledger: the fallback is in force
//
// A file that is not readable is set aside under another name and reported. A disk that is full or read-only is no reason not
// to start: what can be read is in force, and Save reports an error until it works again. Nor is one that cannot be read at all; the record that
// comes to light later wins over one that was made up meanwhile (FoundError). Each record carries a checksum, because bbolt has none on
// its data pages, and bbolt sees no file whose structure is damaged (package boltfile).
package ledger

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/device/boltfile"
	"holdfast/device/durable"
)

// MaxEvents is how many events the history keeps.
const MaxEvents = 10_000

// maxFile bounds ledger.db in bytes: 10,000 events of some hundred bytes and the record, with room for a transaction.
const maxFile = 64 << 20

// reserve is what is allocated for ledger.db from the start, so that a verdict finds room on a disk that something else has filled.
const reserve = 512 << 10

// lockWait is how long to wait for another process to let go of the file.
const lockWait = 2 * time.Second

var (
	bucketRecord  = []byte("record")
	bucketHistory = []byte("history")
	keyLedger     = []byte("ledger")
)

// ErrLocked reports that another process has ledger.db open.
var ErrLocked = errors.New("another guard has the ledger open")

// FoundError reports that the files, which could not be read before, hold a newer record than the caller's, or a real one where his was made
// up. Nothing was saved. The caller goes on with Ledger: anything else would lose its marks.
type FoundError struct{ Ledger bootslot.Ledger }

func (e *FoundError) Error() string {
	return fmt.Sprintf("the files hold another record, of generation %d, which is in force now", e.Ledger.Generation)
}

// Store is the two files, open.
type Store struct {
	db      *file
	dbPath  string
	sidecar string
	// whole is the newest record that both files have held, or, before they ever did, the one in force; to rebuild them from.
	whole []byte
	// madeUp says that whole is a new ledger only because neither file could be read.
	madeUp bool
	// undo are the events that stand, or may stand, in ledger.db of a record that was not saved: nobody has acted on it.
	undo []change
	// unwritable is why ledger.db, which is there, could not be opened for writing.
	unwritable error
	// unsure says that the last commit failed: it may stand in the kernel's memory, where bbolt looks, and not on the disk.
	unsure bool
	// beforeWrite is called with the name of each durable write right before it; a test cuts the power there.
	beforeWrite func(what string) error
	notices     []string
}

// Lost is the notice of a ledger of which neither copy is left. It is over when a slot is good again.
const Lost = "the ledger is lost: no slot is good, the fallback is in force until a release passes again"

// Open opens or creates both files in dir (mode 0750) and returns the record in force. Notices say what was set aside, lost or rewritten. An
// error means that nothing can be saved yet (Save tries again); the record returned with it is in force all the same. ErrLocked is the only
// error with which the caller must not go on.
func Open(dir string) (s *Store, l bootslot.Ledger, notices []string, err error) {
	s = &Store{dbPath: filepath.Join(dir, "ledger.db"), sidecar: filepath.Join(dir, "ledger.json"), beforeWrite: func(string) error { return nil }}
	l, err = s.open()
	notices, s.notices = s.notices, nil
	return s, l, notices, err
}

func (s *Store) note(format string, args ...any) {
	s.notices = append(s.notices, fmt.Sprintf(format, args...))
}

func (s *Store) open() (bootslot.Ledger, error) {
	dirErr := durable.MakeFolder(filepath.Dir(s.dbPath), 0o750)
	side, sideRaw, sideErr := readSidecar(s.sidecar)
	if sideErr != nil && !errors.Is(sideErr, fs.ErrNotExist) {
		if bad, err := setAside(s.sidecar, sideErr); err == nil {
			s.note("%s is not readable (%v) and was set aside as %s", s.sidecar, sideErr, bad)
		} else {
			s.note("%s is not readable (%v)", s.sidecar, sideErr)
		}
	}
	main, mainRaw, mainErr := s.openDB(sideErr == nil)
	if errors.Is(mainErr, ErrLocked) {
		return bootslot.Ledger{}, mainErr
	}

	var l bootslot.Ledger
	var raw []byte
	switch {
	case mainErr == nil && sideErr == nil && main.ID != side.ID:
		s.note("%s belongs to another ledger (%.8s, not %.8s) and is replaced", s.sidecar, side.ID, main.ID)
		l, raw = main, mainRaw
	case mainErr == nil && (sideErr != nil || main.Generation >= side.Generation):
		l, raw = main, mainRaw
	case sideErr == nil:
		if mainErr == nil {
			s.note("%s is older (generation %d) than its sidecar (%d) and is rewritten from it", s.dbPath, main.Generation, side.Generation)
		} else {
			s.note("the ledger is restored from its sidecar, generation %d", side.Generation)
		}
		l, raw = side, sideRaw
	case s.whole != nil: // nothing is left on the disk of what this process knows
	default:
		id := make([]byte, 16)
		rand.Read(id) // never fails (crypto/rand)
		l = bootslot.NewLedger(hex.EncodeToString(id))
		if !errors.Is(sideErr, fs.ErrNotExist) || !errors.Is(mainErr, fs.ErrNotExist) {
			s.note(Lost)
		}
		var err error
		if raw, err = json.Marshal(l); err != nil {
			return l, err
		}
		s.madeUp = true
	}
	var found *FoundError
	if s.whole != nil {
		// Opened again: the record that this process has is in force, unless a better one has come to light.
		var mine bootslot.Ledger
		if err := json.Unmarshal(s.whole, &mine); err != nil {
			return l, err
		}
		switch {
		case raw == nil, bytes.Equal(raw, s.whole):
			l, raw = mine, s.whole
		case s.madeUp || l.ID == mine.ID && l.Generation > mine.Generation:
			found, s.madeUp = &FoundError{l}, false
		default:
			l, raw = mine, s.whole
		}
	}
	s.whole = raw
	if s.madeUp && isSystem(sideErr) {
		dirErr = errors.Join(dirErr, sideErr) // the record may be in there, and come to light
	}
	err := s.bring(raw, mainRaw, sideRaw, dirErr)
	if found != nil {
		return l, found
	}
	return l, err
}

// bring makes both files hold raw, the record in force. And if power fails now? Each of the two writes is atomic, and the choice that open made
// comes out the same again.
func (s *Store) bring(raw, mainRaw, sideRaw []byte, dirErr error) error {
	if dirErr != nil {
		return dirErr
	}
	if s.db == nil {
		if err := s.create(raw); err != nil {
			return err
		}
	} else if !bytes.Equal(mainRaw, raw) {
		if err := s.put(raw, nil); err != nil {
			return err
		}
	}
	if !bytes.Equal(sideRaw, raw) {
		if err := s.putSidecar(raw); err != nil {
			return err
		}
	}
	s.madeUp = false
	return nil
}

// setAside renames a file that is damaged, and leaves alone one that only cannot be read now.
func setAside(path string, why error) (bad string, err error) {
	if isSystem(why) {
		return "", why
	}
	return durable.SetAside(path)
}

// openDB opens ledger.db and reads its record. A damaged file is set aside; one that the disk cannot read any more as well if there is another copy of the
// record: it would stand in the way for ever.
func (s *Store) openDB(copied bool) (l bootslot.Ledger, raw []byte, err error) {
	if _, err := os.Stat(s.dbPath); err != nil {
		return l, nil, err
	}
	var db *file
	err = protect(func() (err error) {
		if db, err = open(s.dbPath, false, false); err != nil {
			return err
		}
		if l, raw, err = readRecord(db.DB); err != nil {
			return err
		}
		return checkHistory(db.DB)
	})
	switch {
	case err == nil:
		s.db = db
		return l, raw, nil
	case errors.Is(err, boltfile.ErrLocked):
		return l, nil, ErrLocked
	case isSystem(err):
		// The disk's fault, not the file's: look at it without writing.
		readErr := protect(func() error {
			ro, err := open(s.dbPath, true, false)
			if err != nil {
				return err
			}
			defer ro.Close()
			l, raw, err = readRecord(ro.DB)
			return err
		})
		s.unwritable = err
		if readErr == nil {
			return l, raw, nil
		}
		if err = readErr; !copied || !errors.Is(err, unix.EIO) {
			return l, nil, err
		}
	}
	if db != nil {
		db.discard(err)
	}
	if bad, aerr := durable.SetAside(s.dbPath); aerr == nil {
		s.note("%s is damaged (%v) and was set aside as %s", s.dbPath, err, bad)
	} else {
		s.note("%s is damaged (%v)", s.dbPath, err)
		s.unwritable = aerr
		err = fmt.Errorf("%w; and it cannot be set aside: %w", err, aerr)
	}
	if raw != nil {
		return l, raw, nil // it is the history that is
	}
	return l, nil, err
}

// isDamage reports whether err is about what is in the file.
func isDamage(err error) bool {
	return errors.As(err, new(panicError)) || errors.Is(err, boltfile.ErrDamaged)
}

// isSystem tells a fault of the disk or of rights from a damaged file.
func isSystem(err error) bool {
	for _, e := range []error{unix.EROFS, unix.ENOSPC, unix.EDQUOT, unix.EACCES, unix.EPERM, unix.EIO, unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// file is a bbolt file that is open.
type file struct {
	*bolt.DB
	f *os.File
}

// open opens a file with bbolt, if bbolt may see it. If bbolt panics over it all the same, it is let go of: the lock would shut this process out as well, and
// the file may only have been unreadable for a moment.
func open(path string, readOnly, fresh bool) (*file, error) {
	var db file
	err := protect(func() (err error) {
		db.DB, err = bolt.Open(path, 0o640, &bolt.Options{Timeout: lockWait, ReadOnly: readOnly, FreelistType: bolt.FreelistMapType, MaxSize: maxFile,
			OpenFile: boltfile.Opener(&db.f, lockWait, fresh)})
		return err
	})
	if errors.As(err, new(panicError)) && db.f != nil {
		_ = boltfile.LetGo(db.f)
	}
	if err != nil {
		return nil, err
	}
	return &db, nil
}

// check looks again before bbolt does: what it reads is not in its memory but in a file, and what is in a file can change under it.
func (f *file) check() error { return boltfile.CheckFile(f.f) }

// discard closes a file about which there was err. After a panic bbolt's own Close can wait for ever, and the lock would shut this process out if the file cannot
// be set aside.
func (f *file) discard(err error) {
	if errors.As(err, new(panicError)) {
		_ = boltfile.LetGo(f.f) // its mapping is lost to this process, once per damage
		return
	}
	_ = protect(f.Close)
}

// create makes ledger.db under a temporary name and renames it, because a power cut in bbolt's very first write leaves a file that it cannot open. And if
// power fails now? Until the rename there is no ledger.db and the sidecar, or a new ledger, is in force; a leftover temporary file is removed here.
func (s *Store) create(raw []byte) error {
	if err := s.beforeWrite("create"); err != nil {
		return err
	}
	if _, err := os.Stat(s.dbPath); err == nil {
		return fmt.Errorf("%s is there but cannot be opened for writing: %w", s.dbPath, s.unwritable)
	}
	tmp := s.dbPath + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := protect(func() error {
		db, err := open(tmp, false, true)
		if err != nil {
			return err
		}
		err = db.Update(func(tx *bolt.Tx) error {
			_, err := putRecord(tx, raw, nil)
			return err
		})
		return errors.Join(err, db.Close())
	})
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	if f, err := os.OpenFile(tmp, os.O_RDWR, 0); err == nil {
		// Only a help on a full disk: a file system that cannot do it works without.
		_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, reserve)
		err = errors.Join(f.Sync(), f.Close())
		if err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, s.dbPath); err != nil {
		return err
	}
	if err := durable.SyncFolder(filepath.Dir(s.dbPath)); err != nil {
		return err
	}
	db, err := open(s.dbPath, false, false)
	s.db = db
	return err
}

// Save stores the outcome of a transition. When it returns nil both files hold it, and only then may the caller act on it.
//
// And if power fails now? Before bbolt's commit: nothing has happened. Between commit and sidecar: at the next start ledger.db has the higher generation
// and wins, and nobody has acted on it yet. While the sidecar is written: its old or new content is whole, and ledger.db has the record.
func (s *Store) Save(step bootslot.Step) error {
	raw, err := json.Marshal(step.Ledger)
	if err != nil {
		return err
	}
	return s.SaveRaw(raw, step.Events)
}

// SaveRaw is Save for a record that only a newer guard may write and this one has settled (bootslot.SettleForeign).
func (s *Store) SaveRaw(raw []byte, events []bootslot.Event) error {
	if s.db == nil {
		if _, err := s.open(); err != nil {
			return fmt.Errorf("cannot open the ledger: %w", err)
		}
	}
	if err := s.put(raw, events); err != nil {
		return fmt.Errorf("cannot write %s: %w", s.dbPath, err)
	}
	if err := s.putSidecar(raw); err != nil {
		return fmt.Errorf("cannot write %s: %w", s.sidecar, err)
	}
	s.whole, s.undo, s.madeUp = raw, nil, false
	return nil
}

// Restore brings both files back to the record in force after a Save that failed, or opens them at last: nil says that the disk can be written
// again. A *FoundError is as with Save.
//
// And if power fails now? Until ledger.db is rewritten it holds what Save could not finish, which is in force after a start then; after that, the record.
func (s *Store) Restore() error {
	if s.db == nil {
		_, err := s.open()
		return err
	}
	if err := s.put(s.whole, nil); err != nil {
		return fmt.Errorf("cannot write %s: %w", s.dbPath, err)
	}
	if err := s.putSidecar(s.whole); err != nil {
		return fmt.Errorf("cannot write %s: %w", s.sidecar, err)
	}
	s.undo = nil
	return nil
}

// Append stores events that come with no change of the record. They are not in the sidecar, and losing them loses no decision.
func (s *Store) Append(events ...bootslot.Event) error {
	return s.put(nil, events)
}

// put commits one bbolt transaction. A file that turns out to be damaged is set aside and made anew from the last whole record, once.
func (s *Store) put(raw []byte, events []bootslot.Event) error {
	if s.db == nil {
		return errors.New("the ledger is not open for writing")
	}
	if err := s.beforeWrite("commit"); err != nil {
		return err
	}
	update := func() error {
		standing, written := s.undo, []change(nil)
		err := protect(func() error {
			if err := s.db.check(); err != nil {
				return err
			}
			return s.db.Update(func(tx *bolt.Tx) (err error) {
				if raw != nil {
					if standing, err = takeBack(tx, s.undo); err != nil {
						return err
					}
				}
				written, err = putRecord(tx, raw, events)
				return err
			})
		})
		if raw != nil && err == nil {
			s.undo = written
		} else if raw != nil {
			// Of a commit that fails at its last write or sync bbolt goes on with what it has written, of any other with what was there: either may stand.
			s.undo = append(standing, written...)
		}
		s.unsure = err != nil
		return err
	}
	var err error
	if s.unsure {
		err = s.makeSure()
	}
	if err == nil {
		err = update()
	}
	if !isDamage(err) {
		return err
	}
	if s.db != nil {
		s.db.discard(err)
	}
	s.db, s.unsure = nil, false
	bad, aerr := durable.SetAside(s.dbPath)
	if aerr != nil {
		return errors.Join(err, aerr)
	}
	s.note("%s is damaged (%v) and was set aside as %s", s.dbPath, err, bad)
	s.undo = nil
	if err := s.create(s.whole); err != nil {
		return err
	}
	return update()
}

// makeSure goes on after a commit that failed (boltfile.MakeSure).
func (s *Store) makeSure() error {
	if err := boltfile.MakeSure(s.db.f); err != nil {
		return err
	}
	old := s.db
	s.db = nil
	err := protect(old.Close)
	if err == nil {
		s.db, err = open(s.dbPath, false, false)
	}
	s.unsure = err != nil
	return err
}

func (s *Store) putSidecar(raw []byte) error {
	if err := s.beforeWrite("sidecar"); err != nil {
		return err
	}
	return durable.Replace(s.sidecar, seal(raw), 0o640)
}

// Notices returns what Save and Append had to report since it was last asked.
func (s *Store) Notices() []string {
	n := s.notices
	s.notices = nil
	return n
}

// Raw returns the record as it stands in the files, with all that this code does not know.
func (s *Store) Raw() []byte { return s.whole }

// History returns the last n events, oldest first; all with n <= 0.
func (s *Store) History(n int) ([]bootslot.Event, error) { return s.HistoryBefore(0, n) }

// HistoryBefore returns the last n events before the one with the sequence number before; 0 for before none.
func (s *Store) HistoryBefore(before uint64, n int) (events []bootslot.Event, err error) {
	if s.db == nil {
		return nil, errors.New("the history cannot be read: the ledger is not open")
	}
	err = protect(func() (err error) {
		if err := s.db.check(); err != nil {
			return err
		}
		events, err = readHistory(s.db.DB, before, n)
		return err
	})
	return events, err
}

// Close closes ledger.db.
func (s *Store) Close() error {
	if s.db == nil {
		return nil
	}
	return protect(s.db.Close)
}

// ReadSidecar reads a ledger.json without opening anything else: for those who only look, with or without a guard.
func ReadSidecar(path string) (bootslot.Ledger, error) {
	l, _, err := readSidecar(path)
	return l, err
}

// ReadDB reads the record and the last n events (all with n <= 0) of a ledger.db that no guard has open. ErrLocked if one has.
func ReadDB(path string, n int) (l bootslot.Ledger, events []bootslot.Event, err error) {
	if _, err := os.Stat(path); err != nil {
		return l, nil, err
	}
	err = protect(func() error {
		db, err := open(path, true, false)
		if errors.Is(err, boltfile.ErrLocked) {
			return ErrLocked
		}
		if err != nil {
			return err
		}
		defer db.Close()
		if l, _, err = readRecord(db.DB); err != nil {
			return err
		}
		events, err = readHistory(db.DB, 0, n)
		return err
	})
	return l, events, err
}

// sealed is the form of a record in both files.
type sealed struct {
	SHA256 string          `json:"sha256"`
	Ledger json.RawMessage `json:"ledger"`
}

func seal(raw []byte) []byte {
	sum := sha256.Sum256(raw)
	return fmt.Appendf(nil, "{\"sha256\":%q,\"ledger\":%s}\n", hex.EncodeToString(sum[:]), raw)
}

func unseal(b []byte) (l bootslot.Ledger, raw []byte, err error) {
	var s sealed
	if err := json.Unmarshal(b, &s); err != nil {
		return l, nil, err
	}
	sum := sha256.Sum256(s.Ledger)
	if hex.EncodeToString(sum[:]) != s.SHA256 {
		return l, nil, errors.New("its checksum is wrong")
	}
	if err := json.Unmarshal(s.Ledger, &l); err != nil {
		return l, nil, err
	}
	if l.ID == "" || l.Slots == nil {
		return l, nil, errors.New("it is not a ledger")
	}
	// What only a newer guard may write is driven by and settled, by its fixed part: its rules are not known here.
	if err := l.Valid(); err != nil && l.Writable() {
		return l, nil, fmt.Errorf("it is not a ledger: %w", err)
	}
	return l, s.Ledger, nil
}

func readSidecar(path string) (l bootslot.Ledger, raw []byte, err error) {
	if fi, err := os.Stat(path); err == nil && fi.Size() > maxFile { // no record is, and a board has no memory for it
		return l, nil, fmt.Errorf("it has %d bytes", fi.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return l, nil, err
	}
	return unseal(b)
}

func readRecord(db *bolt.DB) (l bootslot.Ledger, raw []byte, err error) {
	err = db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketRecord)
		if b == nil {
			return errors.New("it has no record")
		}
		l, raw, err = unseal(bytes.Clone(b.Get(keyLedger)))
		return err
	})
	return l, raw, err
}

// checkHistory says whether the history can be read and added to: that is better found now than in the middle of a verdict.
func checkHistory(db *bolt.DB) error {
	return db.View(func(tx *bolt.Tx) error {
		h := tx.Bucket(bucketHistory)
		if h == nil {
			return nil
		}
		return h.ForEach(func(k, v []byte) error {
			if len(k) != 8 || v == nil || binary.BigEndian.Uint64(k) > h.Sequence() {
				return errors.New("its history is damaged")
			}
			return nil
		})
	})
}

// change is what one event did to the history: the value at key was before (nil: there was none) and is now.
type change struct{ key, before, now []byte }

// takeBack undoes changes that nobody has acted on, as far as they stand there and nothing else was written since. It returns those.
func takeBack(tx *bolt.Tx, undo []change) (standing []change, err error) {
	h := tx.Bucket(bucketHistory)
	if h == nil {
		return nil, nil
	}
	for _, c := range slices.Backward(undo) {
		if !bytes.Equal(h.Get(c.key), c.now) {
			continue
		}
		standing = slices.Insert(standing, 0, c)
		if c.before != nil {
			if err := h.Put(c.key, c.before); err != nil {
				return undo, err
			}
			continue
		}
		if err := h.Delete(c.key); err != nil {
			return undo, err
		}
		if seq := binary.BigEndian.Uint64(c.key); seq == h.Sequence() {
			if err := h.SetSequence(seq - 1); err != nil {
				return undo, err
			}
		}
	}
	return standing, nil
}

// putRecord stores raw (nil: the record stays) and appends events; one that repeats the last one is counted there. It returns what that did to the history.
func putRecord(tx *bolt.Tx, raw []byte, events []bootslot.Event) (written []change, err error) {
	if raw != nil {
		b, err := tx.CreateBucketIfNotExists(bucketRecord)
		if err != nil {
			return nil, err
		}
		if err := b.Put(keyLedger, seal(raw)); err != nil {
			return nil, err
		}
	}
	h, err := tx.CreateBucketIfNotExists(bucketHistory)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		e = clipped(e)
		if k, v := h.Cursor().Last(); k != nil {
			var last bootslot.Event
			if json.Unmarshal(v, &last) == nil && sameEvent(last, e) {
				last.Count = max(last.Count, 1) + 1
				last.At = e.At
				b, err := json.Marshal(last)
				if err != nil {
					return nil, err
				}
				c := change{bytes.Clone(k), bytes.Clone(v), b}
				if err := h.Put(c.key, b); err != nil {
					return nil, err
				}
				written = append(written, c)
				continue
			}
		}
		if e.Seq, err = h.NextSequence(); err != nil {
			return nil, err
		}
		b, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		c := change{binary.BigEndian.AppendUint64(nil, e.Seq), nil, b}
		if err := h.Put(c.key, b); err != nil {
			return nil, err
		}
		written = append(written, c)
		// Sequence numbers are dense, so this is the oldest beyond the bound.
		if e.Seq > MaxEvents {
			if err := h.Delete(binary.BigEndian.AppendUint64(nil, e.Seq-MaxEvents)); err != nil {
				return nil, err
			}
		}
	}
	return written, nil
}

// maxMessage and maxText bound an event's texts, in bytes: 10,000 events must fit into maxFile, or no verdict could be written any more. The whole
// message of a verdict is in its mark.
const (
	maxMessage = 512
	maxText    = 128
)

func clipped(e bootslot.Event) bootslot.Event {
	e.Message = Clip(e.Message, maxMessage)
	e.Revision, e.Check, e.Who = Clip(e.Revision, maxText), Clip(e.Check, maxText), Clip(e.Who, maxText)
	return e
}

// Clip shortens s to at most that many bytes, at the end of a character.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len("…")], "") + "…"
}

// sameEvent reports whether b says again what a said, whenever that was.
func sameEvent(a, b bootslot.Event) bool {
	a.Seq, a.At, a.Count, a.Generation = b.Seq, b.At, b.Count, b.Generation
	return reflect.DeepEqual(a, b)
}

func readHistory(db *bolt.DB, before uint64, n int) (events []bootslot.Event, err error) {
	err = db.View(func(tx *bolt.Tx) error {
		h := tx.Bucket(bucketHistory)
		if h == nil {
			return nil
		}
		c := h.Cursor()
		k, v := c.Last()
		if before > 0 {
			if at, _ := c.Seek(binary.BigEndian.AppendUint64(nil, before)); at != nil {
				k, v = c.Prev()
			} else {
				k, v = c.Last() // it is newer than all
			}
		}
		for ; k != nil && (n <= 0 || len(events) < n); k, v = c.Prev() {
			var e bootslot.Event
			if json.Unmarshal(v, &e) != nil {
				continue // one damaged line must not hide the others
			}
			events = append(events, e)
		}
		return nil
	})
	for i, j := 0, len(events)-1; i < j; i, j = i+1, j-1 {
		events[i], events[j] = events[j], events[i]
	}
	return events, err
}

// panicError is what a panic or a fault inside bbolt was turned into.
type panicError struct{ what any }

func (e panicError) Error() string { return fmt.Sprintf("damaged: %v", e.what) }

// protect runs f and turns a panic, and a fault in the mapped file, into an error: bbolt trusts its file more than a board can.
func protect(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			err = panicError{r}
		}
	}()
	return f()
}
