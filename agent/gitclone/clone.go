package gitclone

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"holdfast/agent/gitclone/boltstore"
)

// Histories, for Options.History.
const (
	FastForward = "fast-forward" // a new head must descend from the revision in force
	Follow      = "follow"       // take what comes
)

// Options says where the state repository is and what bounds a fetch. URL and File are required.
type Options struct {
	Path    string // clone.db
	URL     string // http, https, ssh, file, or a local path
	Branch  string // default main
	File    string // path in the repository, with forward slashes
	History string // FastForward (default) or Follow

	TokenFile      string // HTTP: the password; read anew at each fetch
	SSHKeyFile     string
	KnownHostsFile string
	CAFile         string // HTTPS: trusted besides the system's
	// Locate says where a file really is that is called path above, with an error that names it as that; nil: there.
	Locate func(path string) (string, error)

	// Validate says whether a document may be published; name is File. nil: all may.
	Validate func(name string, data []byte) error

	// ActiveRevision, if set, is the revision in force on the device. A clone made anew trusts its first head, but says so
	// in Fetched.Notice when that can be seen not to descend from it.
	ActiveRevision string

	ConnectTimeout    time.Duration // default 10 s: connection, handshake
	StallTimeout      time.Duration // default 30 s: silence of the server
	FetchTimeout      time.Duration // default 15 min: all of one Fetch
	StepTimeout       time.Duration // default 5 min: one request of a cheaper way, before the next way is tried
	MinBytesPerSecond int64         // default 256: slower, on average, than this is a dead link

	MaxAdvertisementBytes int64 // default 8 MiB: the server's list of branches
	MaxPackBytes          int64 // default 64 MiB on the wire
	MaxObjects            int   // default 200,000 in one pack
	MaxMemoryBytes        int64 // default 64 MiB: what is kept of one pack until the file is proven
	MaxFileBytes          int64 // default 1 MiB: the document
	MaxStoreBytes         int   // default 32 MiB: clone.db

	// Now is the wall clock, shown and used for certificates; default time.Now.
	Now func() time.Time
}

// read reads one of the files that are called path above.
func (o Options) read(path string) ([]byte, error) {
	at, err := o.locate(path)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(at)
}

func (o Options) locate(path string) (string, error) {
	if o.Locate == nil {
		return path, nil
	}
	return o.Locate(path)
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def64 := func(n *int64, v int64) {
		if *n <= 0 {
			*n = v
		}
	}
	def(&o.ConnectTimeout, 10*time.Second)
	def(&o.StallTimeout, 30*time.Second)
	def(&o.FetchTimeout, 15*time.Minute)
	def(&o.StepTimeout, 5*time.Minute)
	def64(&o.MinBytesPerSecond, 256)
	def64(&o.MaxAdvertisementBytes, 8<<20)
	def64(&o.MaxPackBytes, 64<<20)
	def64(&o.MaxMemoryBytes, 64<<20)
	def64(&o.MaxFileBytes, 1<<20)
	if o.MaxObjects <= 0 {
		o.MaxObjects = 200_000
	}
	if o.MaxStoreBytes <= 0 {
		o.MaxStoreBytes = 32 << 20
	}
	if o.Branch == "" {
		o.Branch = "main"
	}
	if o.History == "" {
		o.History = FastForward
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Desired is the last valid document that was published, and where it came from.
type Desired struct {
	Revision  string    `json:"revision"` // 40 hex digits
	Author    string    `json:"author"`
	Subject   string    `json:"subject"` // first line of the message
	When      time.Time `json:"when"`    // the author's clock
	URL       string    `json:"url"`     // without credentials
	Branch    string    `json:"branch"`
	File      string    `json:"file"`
	How       string    `json:"how"`       // by which rung it came: path, thin, incremental, tip, depth-1
	FetchedAt time.Time `json:"fetchedAt"` // this board's wall clock
	Data      []byte    `json:"-"`
}

// Fetched says what a Fetch found.
type Fetched struct {
	Revision     string // the branch's head at the server, "" if it could not be read
	Changed      bool   // Desired has changed
	SameDocument bool   // Changed, but only in where it comes from: the document is byte for byte the same
	BytesDown    int64  // what came from the server, without HTTP's headers
	// Notices are what a person should read about the published revision, though nothing failed: the same at each Fetch, until another one is published.
	Notices []string
}

// Notice is something about the clone itself that a person should read: a condition while it lasts, or a loss until the
// clone is opened anew.
type Notice struct {
	What string // one of the words below
	Text string
}

// Unwritten reports whether the disk cannot be written for as long as this lasts.
func (n Notice) Unwritten() bool { return n.What == noticeReadOnly || n.What == noticeInMemory }

// What a Notice can be.
const (
	noticeSetAside    = "set-aside"    // a damaged file; loss
	noticeObjectsLost = "objects-lost" // the document was whole, what proves it was not; loss
	noticeReadOnly    = "read-only"    // the disk cannot be written, what it holds is in force; condition
	noticeInMemory    = "in-memory"    // the disk cannot be written and holds nothing; condition
)

// Clone is the local copy of the state repository, as far as one file needs it. Its methods may be called concurrently;
// Desired never waits for Fetch.
type Clone struct {
	o      Options
	remote *remote

	desired atomic.Pointer[Desired] // what is published; nil before the first

	mu       sync.Mutex       // one Fetch at a time; guards what follows
	store    *boltstore.Store // nil: the disk cannot be written
	whole    bool             // the store has the objects that prove desired
	onDisk   bool             // there is a document on disk that a restart would find
	rejected *rejection
	staged   *staged  // fetched and valid, but not yet on disk
	remarks  []string // Fetched.Notices of what is published

	left atomic.Int32 // conversations that run, or were left behind

	notesMu  sync.Mutex // guards what follows; never held long
	accepted string
	notices  []Notice
}

// rejection is a head that is not fetched again, because it would be refused again.
//
// Hashes vouch for most reasons. Not for that more came than is allowed: damage on the way can look like it. Such a
// head is asked for again, ever more rarely.
type rejection struct {
	head plumbing.Hash
	err  *Error
	wait int // fetches until it is asked for again; 0: it is not
	left int // of those
}

const (
	firstDoubtful = 4
	maxDoubtful   = 1024 // fetches
)

// staged is what a publish needs, and no more.
type staged struct {
	desired Desired
	head    plumbing.Hash
	objects []object
	notices []string // see Fetched
}

// Open opens the clone, and makes it if there is none. A damaged file is set aside, and a disk that cannot be written is
// done without: both are in Notices. It fails when another process has the clone, and on options that cannot work.
func Open(o Options) (*Clone, error) {
	o = o.withDefaults()
	var errs []error
	if !validPath(o.File) {
		errs = append(errs, fmt.Errorf("file %q is not a path in a repository", o.File))
	}
	if o.History != FastForward && o.History != Follow {
		errs = append(errs, fmt.Errorf("history %q is not one of %s, %s", o.History, FastForward, Follow))
	}
	r, err := newRemote(o)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c := &Clone{o: o, remote: r}
	if err := c.openStore(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Clone) note(what, format string, args ...any) {
	c.dropNotices(what)
	c.notesMu.Lock()
	defer c.notesMu.Unlock()
	c.notices = append(c.notices, Notice{what, clean(fmt.Sprintf(format, args...))})
}

func (c *Clone) dropNotices(what ...string) {
	c.notesMu.Lock()
	defer c.notesMu.Unlock()
	c.notices = slices.DeleteFunc(c.notices, func(n Notice) bool { return slices.Contains(what, n.What) })
}

// Notices returns what there is to say about the clone itself.
func (c *Clone) Notices() []Notice {
	c.notesMu.Lock()
	defer c.notesMu.Unlock()
	return slices.Clone(c.notices)
}

// Desired returns the last valid published document, however old; false if there has never been one. It asks neither
// network nor disk.
func (c *Clone) Desired() (Desired, bool, error) {
	p := c.desired.Load()
	if p == nil {
		return Desired{}, false, nil
	}
	d := *p
	d.Data = bytes.Clone(d.Data)
	return d, true, nil
}

// Accept lets a revision be published once though it does not descend from the one in force. It takes effect at the next
// Fetch that finds it as the head.
func (c *Clone) Accept(revision string) error {
	if !plumbing.IsHash(revision) {
		return fmt.Errorf("%q is not a revision: 40 hex digits", revision)
	}
	c.notesMu.Lock()
	defer c.notesMu.Unlock()
	c.accepted = plumbing.NewHash(revision).String()
	return nil
}

// useAcceptance ends an acceptance that has been used.
func (c *Clone) useAcceptance(h plumbing.Hash) {
	c.notesMu.Lock()
	defer c.notesMu.Unlock()
	if c.accepted == h.String() {
		c.accepted = ""
	}
}

// Close lets go of the file. It waits for a Fetch that runs.
func (c *Clone) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remote.close()
	if c.store == nil {
		return nil
	}
	s := c.store
	c.store = nil
	return s.Close()
}

// names of the values in the store
const (
	valueDesired  = "desired"  // provenance, JSON of Desired
	valueDocument = "document" // the file's bytes
)

// openStore opens the file and loads what is published.
func (c *Clone) openStore() error {
	err := c.reopen()
	if errors.Is(err, boltstore.ErrLocked) {
		return fail(ErrStore, "cannot open %s: %w", c.o.Path, err)
	}
	if err != nil {
		// The disk is full or read-only. What it holds can still be read; for what comes see publish.
		c.onDisk = c.loadSnapshot()
		if c.onDisk {
			c.note(noticeReadOnly, "the clone cannot be written: %v", err)
		} else {
			c.note(noticeInMemory, "the clone cannot be written, and is kept in memory only: %v", err)
		}
		return nil
	}
	d, err := load(c.store)
	switch {
	case errors.Is(err, boltstore.ErrNotFound):
		return nil
	case err != nil:
		c.replaceStore(err)
		return nil
	}
	c.desired.Store(d)
	c.onDisk = true
	err = c.proven(d)
	c.whole = err == nil
	if c.whole {
		return nil
	}
	// The document has a sum of its own and is as it was published; only what proves it is lost. The next Fetch brings that
	// again.
	c.note(noticeObjectsLost, "objects of revision %s are lost and will be fetched again: %v", d.Revision, err)
	if !errors.Is(err, boltstore.ErrCorrupt) {
		return nil
	}
	c.replaceStore(err)
	if c.store == nil {
		return nil
	}
	if err := c.write(&staged{desired: *d, head: plumbing.NewHash(d.Revision)}); err != nil {
		c.note(noticeReadOnly, "the clone cannot be written: %v", err)
		return nil
	}
	c.onDisk = true
	return nil
}

func (c *Clone) loadSnapshot() bool {
	s, err := boltstore.Snapshot(c.o.Path, boltstore.Options{MaxBytes: c.o.MaxStoreBytes})
	if err != nil {
		return false
	}
	defer s.Close()
	d, err := load(s)
	if err == nil {
		c.desired.Store(d)
	}
	return err == nil
}

// replaceStore sets a store aside that was found bad while open, and goes on with an empty one or, if there can be none,
// in memory.
func (c *Clone) replaceStore(why error) {
	n, aside, err := c.store.SetAsideAndReopen(why)
	c.store, c.whole, c.onDisk = n, false, false
	c.noteAside(aside)
	if err != nil {
		c.store = nil
		c.note(noticeInMemory, "the clone cannot be written, and is kept in memory only: %v", err)
	}
}

func (c *Clone) noteAside(a *boltstore.SetAside) {
	if a != nil {
		c.note(noticeSetAside, "the clone was damaged and is now %s: %v", a.Path, a.Err)
	}
}

func load(s *boltstore.Store) (*Desired, error) {
	var d Desired
	return &d, s.View(func(tx *boltstore.Tx) error {
		v, err := tx.Value(valueDesired)
		data, dataErr := tx.Value(valueDocument)
		if errors.Is(err, boltstore.ErrNotFound) != errors.Is(dataErr, boltstore.ErrNotFound) {
			return fmt.Errorf("%w: of %s and %s one is missing", boltstore.ErrCorrupt, valueDesired, valueDocument)
		}
		if err := errors.Join(err, dataErr); err != nil {
			return err
		}
		if err := json.Unmarshal(v, &d); err != nil {
			return fmt.Errorf("%w: %w", boltstore.ErrCorrupt, err)
		}
		d.Data = data
		return nil
	})
}

// proven is nil if the store's objects still prove the document. What there is to say about them is said again.
func (c *Clone) proven(d *Desired) error {
	p, err := prove(newStoreSource(c.store, d.Data), plumbing.NewHash(d.Revision), d.File, c.o.MaxFileBytes)
	if err == nil {
		c.remarks = p.notices
	}
	return err
}

// storeSource is what is stored: revision and folders as objects, the file as the document. To store that twice would
// cost a page of flash more at each change.
type storeSource struct {
	document []byte
	objects  func() (map[plumbing.Hash]object, error)
}

// newStoreSource reads the objects when first asked for one, all of them, as each look into the file begins with a check
// of it; and so one conversation's question must not be the next one's.
func newStoreSource(s *boltstore.Store, document []byte) storeSource {
	return storeSource{document, sync.OnceValues(func() (map[plumbing.Hash]object, error) {
		all := make(map[plumbing.Hash]object)
		err := s.View(func(tx *boltstore.Tx) error {
			return tx.ForEachObject(func(h plumbing.Hash, typ plumbing.ObjectType, content []byte) error {
				all[h] = object{typ, h, content}
				return nil
			})
		})
		return all, err
	})}
}

func (s storeSource) get(h plumbing.Hash, want plumbing.ObjectType) ([]byte, error) {
	if want == plumbing.BlobObject && plumbing.ComputeHash(want, s.document) == h {
		return s.document, nil
	}
	all, err := s.objects()
	if err != nil {
		return nil, err
	}
	if o, ok := all[h]; ok && o.typ == want {
		return o.content, nil
	}
	return nil, plumbing.ErrObjectNotFound
}

// publish makes what was fetched, proven and validated the clone's state: on disk first, then for Desired.
func (c *Clone) publish(st *staged) error {
	if c.store == nil {
		if err := c.reopen(); err != nil && c.onDisk {
			// Were this one only in memory, a restart would go back to the older one on disk, and ask the guard for it: a
			// downgrade that nobody wants.
			return fail(ErrStore, "cannot write %s: %w", c.o.Path, err)
		}
	}
	if c.store != nil {
		err := c.write(st)
		if errors.Is(err, boltstore.ErrCorrupt) {
			c.replaceStore(err)
			err = nil
			if c.store != nil {
				err = c.write(st)
			}
		}
		if err != nil && c.onDisk {
			return fail(ErrStore, "cannot write %s: %w", c.o.Path, err)
		}
		if err != nil { // room for an empty file only
			_ = c.store.Close()
			c.store = nil
			c.note(noticeInMemory, "the clone cannot be written, and is kept in memory only: %v", err)
		}
	}
	c.whole = c.store != nil
	if c.whole {
		c.onDisk = true
		c.dropNotices(noticeInMemory, noticeReadOnly)
	}
	c.desired.Store(&st.desired)
	return nil
}

func (c *Clone) reopen() error {
	s, aside, err := boltstore.Open(c.o.Path, boltstore.Options{MaxBytes: c.o.MaxStoreBytes})
	c.noteAside(aside)
	if err == nil {
		c.store = s
	}
	return err
}

// write is the one durable write of this package. It takes two syncs, and the first of a file one more.
//
// And if power fails now? Objects, reference, shallow list, provenance and document are one transaction: the next Open
// finds the state before, and the next Fetch fetches again, or the state after. Older objects go in the same
// transaction, so that the file does not grow with the number of changes.
func (c *Clone) write(st *staged) error {
	provenance, err := json.Marshal(st.desired)
	if err != nil {
		return err
	}
	if !c.onDisk {
		// Room for this and the next, which is written beside it: a change needs no third sync to make the file longer.
		size := len(st.desired.Data)
		for _, o := range st.objects {
			size += len(o.content)
		}
		if err := c.store.Reserve(2*size + 32<<10); err != nil {
			return err
		}
	}
	return c.store.Update(func(tx *boltstore.Tx) error {
		keep := make(map[plumbing.Hash]bool)
		for _, o := range st.objects {
			if o.typ == plumbing.BlobObject {
				continue // it is the document
			}
			keep[o.hash] = true
			if err := tx.PutObject(o.hash, o.typ, o.content); err != nil {
				return err
			}
		}
		ref := branchRef(c.o.Branch)
		return errors.Join(
			tx.PruneObjects(keep),
			tx.PruneReferences(ref),
			tx.SetReference(plumbing.NewHashReference(ref, st.head)),
			tx.SetShallow([]plumbing.Hash{st.head}),
			tx.Put(valueDesired, provenance),
			tx.Put(valueDocument, st.desired.Data),
		)
	})
}

func branchRef(branch string) plumbing.ReferenceName { return plumbing.NewBranchReferenceName(branch) }

// Read looks at a clone without the agent: nothing is written, and a lock does not matter. False without an error means
// that nothing has been published, or that there is no clone.
func Read(path string) (Desired, bool, error) {
	s, err := boltstore.Snapshot(path, boltstore.Options{})
	if errors.Is(err, fs.ErrNotExist) {
		return Desired{}, false, nil
	}
	if err != nil {
		return Desired{}, false, fail(ErrStore, "cannot read %s: %w", path, err)
	}
	defer s.Close()
	d, err := load(s)
	if errors.Is(err, boltstore.ErrNotFound) {
		return Desired{}, false, nil
	}
	if err != nil {
		return Desired{}, false, fail(ErrStore, "cannot read %s: %w", path, err)
	}
	return *d, true, nil
}
