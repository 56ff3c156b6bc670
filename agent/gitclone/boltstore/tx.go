package boltstore

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/index"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/memory"
	"go.etcd.io/bbolt"
)

// Tx is one transaction of a Store: a storage.Storer whose writes appear together or not at all.
type Tx struct {
	tx    *bbolt.Tx
	index *memory.IndexStorage
}

var (
	_ storage.Storer = (*Tx)(nil)
	_ storage.Storer = (*Store)(nil)
)

// names of the values that go-git's interfaces need
const (
	valueShallow = "shallow" // 20 bytes per hash
	valueConfig  = "config"  // git's own format
)

// Put stores a value under a name.
func (t *Tx) Put(name string, data []byte) error {
	sum := sha256.Sum256(data)
	return t.tx.Bucket(bucketValues).Put([]byte(name), append(sum[:], data...))
}

// Value returns a value: ErrNotFound if there is none, ErrCorrupt if it is not what was put.
func (t *Tx) Value(name string) ([]byte, error) {
	b := t.tx.Bucket(bucketValues)
	if b == nil {
		return nil, corrupt(fmt.Errorf("no bucket %q", bucketValues))
	}
	v := b.Get([]byte(name))
	if v == nil {
		return nil, ErrNotFound
	}
	if len(v) < sha256.Size {
		return nil, corrupt(fmt.Errorf("value %q is cut short", name))
	}
	if sum := sha256.Sum256(v[sha256.Size:]); !bytes.Equal(sum[:], v[:sha256.Size]) {
		return nil, corrupt(fmt.Errorf("value %q is not what was stored", name))
	}
	return bytes.Clone(v[sha256.Size:]), nil
}

// PruneObjects removes every object that is not in keep.
func (t *Tx) PruneObjects(keep map[plumbing.Hash]bool) error {
	return pruneBucket(t.tx.Bucket(bucketObjects), func(k []byte) bool { return keep[plumbing.Hash(k)] })
}

// PruneReferences removes every reference that is not named.
func (t *Tx) PruneReferences(keep ...plumbing.ReferenceName) error {
	return pruneBucket(t.tx.Bucket(bucketRefs), func(k []byte) bool { return slices.Contains(keep, plumbing.ReferenceName(k)) })
}

func pruneBucket(b *bbolt.Bucket, keep func(k []byte) bool) error {
	var gone [][]byte // a bucket must not change under ForEach
	if err := b.ForEach(func(k, _ []byte) error {
		if !keep(k) {
			gone = append(gone, bytes.Clone(k))
		}
		return nil
	}); err != nil {
		return err
	}
	for _, k := range gone {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// NewEncodedObject returns an object to be filled and set.
func (t *Tx) NewEncodedObject() plumbing.EncodedObject { return &plumbing.MemoryObject{} }

// SetEncodedObject stores an object under the hash of its content.
func (t *Tx) SetEncodedObject(o plumbing.EncodedObject) (plumbing.Hash, error) {
	switch o.Type() {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
	default:
		return plumbing.ZeroHash, plumbing.ErrInvalidType
	}
	r, err := o.Reader()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	h := plumbing.ComputeHash(o.Type(), b)
	return h, t.PutObject(h, o.Type(), b)
}

// PutObject stores an object under its hash, which the caller has computed. One that is there already is not written
// again: a folder that has not changed costs no page. Content that has room for one byte more is not copied, but keeps
// that byte.
func (t *Tx) PutObject(h plumbing.Hash, typ plumbing.ObjectType, content []byte) error {
	b := t.tx.Bucket(bucketObjects)
	v := append(content, byte(typ))
	if bytes.Equal(b.Get(h[:]), v) {
		return nil
	}
	return b.Put(h[:], v)
}

// EncodedObject returns an object of type want, which may be AnyObject. It is hashed again: one that does not have the
// hash it is stored under is ErrCorrupt.
func (t *Tx) EncodedObject(want plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	v := t.tx.Bucket(bucketObjects).Get(h[:])
	if v == nil {
		return nil, plumbing.ErrObjectNotFound
	}
	typ, content, err := decodeObject(h[:], v)
	if err != nil {
		return nil, err
	}
	if want != plumbing.AnyObject && want != typ {
		return nil, plumbing.ErrObjectNotFound
	}
	return encoded(typ, content)
}

// decodeObject reads an object out of the file, from which it must be copied: the mapping is gone with the transaction.
func decodeObject(k, v []byte) (plumbing.ObjectType, []byte, error) {
	if len(k) != len(plumbing.ZeroHash) || len(v) == 0 {
		return 0, nil, corrupt(fmt.Errorf("object %x is cut short", k))
	}
	last := len(v) - 1
	typ, content := plumbing.ObjectType(v[last]), bytes.Clone(v[:last])
	if got := plumbing.ComputeHash(typ, content); got != plumbing.Hash(k) {
		return 0, nil, corrupt(fmt.Errorf("object %x has the content of %s", k, got))
	}
	return typ, content, nil
}

func encoded(typ plumbing.ObjectType, content []byte) (plumbing.EncodedObject, error) {
	o := &plumbing.MemoryObject{}
	o.SetType(typ)
	_, err := o.Write(content)
	return o, err
}

// IterEncodedObjects returns all objects of a type, read and re-hashed now.
func (t *Tx) IterEncodedObjects(want plumbing.ObjectType) (storer.EncodedObjectIter, error) {
	var all []plumbing.EncodedObject
	err := t.ForEachObject(func(_ plumbing.Hash, typ plumbing.ObjectType, content []byte) error {
		if want != plumbing.AnyObject && want != typ {
			return nil
		}
		o, err := encoded(typ, content)
		all = append(all, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	return storer.NewEncodedObjectSliceIter(all), nil
}

// ForEachObject calls fn with each object, hashed again as by EncodedObject. What fn gets may be kept.
func (t *Tx) ForEachObject(fn func(h plumbing.Hash, typ plumbing.ObjectType, content []byte) error) error {
	return t.tx.Bucket(bucketObjects).ForEach(func(k, v []byte) error {
		typ, content, err := decodeObject(k, v)
		if err != nil {
			return err
		}
		return fn(plumbing.Hash(k), typ, content)
	})
}

// HasEncodedObject reports whether an object is there and whole. A bad one must not pass for there: go-git would not
// ask the server for it.
func (t *Tx) HasEncodedObject(h plumbing.Hash) error {
	_, err := t.EncodedObject(plumbing.AnyObject, h)
	return err
}

// EncodedObjectSize returns an object's size in bytes.
func (t *Tx) EncodedObjectSize(h plumbing.Hash) (int64, error) {
	v := t.tx.Bucket(bucketObjects).Get(h[:])
	if len(v) == 0 {
		return 0, plumbing.ErrObjectNotFound
	}
	return int64(len(v) - 1), nil
}

// AddAlternate is refused: this store is one file.
func (t *Tx) AddAlternate(string) error { return errors.New("boltstore: alternates are not supported") }

// SetReference stores a reference. A name that could not safely be a path is refused, as go-git's own stores do.
func (t *Tx) SetReference(r *plumbing.Reference) error {
	if r == nil {
		return nil
	}
	if !r.Name().IsSafe() {
		return fmt.Errorf("boltstore: unsafe reference name %q", r.Name())
	}
	parts := r.Strings()
	return t.tx.Bucket(bucketRefs).Put([]byte(parts[0]), []byte(parts[1]))
}

// CheckAndSetReference stores a reference if it now is old. A nil old matches everything.
func (t *Tx) CheckAndSetReference(r, old *plumbing.Reference) error {
	if r == nil {
		return nil
	}
	if old != nil {
		now, err := t.Reference(old.Name())
		if err != nil && !errors.Is(err, plumbing.ErrReferenceNotFound) {
			return err
		}
		if now != nil && now.Hash() != old.Hash() {
			return storage.ErrReferenceHasChanged
		}
	}
	return t.SetReference(r)
}

// Reference returns a reference.
func (t *Tx) Reference(n plumbing.ReferenceName) (*plumbing.Reference, error) {
	v := t.tx.Bucket(bucketRefs).Get([]byte(n))
	if v == nil {
		return nil, plumbing.ErrReferenceNotFound
	}
	return plumbing.NewReferenceFromStrings(string(n), string(v)), nil
}

// IterReferences returns all references.
func (t *Tx) IterReferences() (storer.ReferenceIter, error) {
	var all []*plumbing.Reference
	err := t.tx.Bucket(bucketRefs).ForEach(func(k, v []byte) error {
		all = append(all, plumbing.NewReferenceFromStrings(string(k), string(v)))
		return nil
	})
	return storer.NewReferenceSliceIter(all), err
}

// RemoveReference removes a reference, if it is there.
func (t *Tx) RemoveReference(n plumbing.ReferenceName) error {
	return t.tx.Bucket(bucketRefs).Delete([]byte(n))
}

// CountLooseRefs and PackRefs have no meaning here: there are no files.
func (t *Tx) CountLooseRefs() (int, error) { return 0, nil }

// PackRefs does nothing.
func (t *Tx) PackRefs() error { return nil }

// SetShallow replaces the list of revisions whose parents are not here. It is always replaced, never appended to: git
// and go-git grow it by one line per fetch for ever.
func (t *Tx) SetShallow(hashes []plumbing.Hash) error {
	v := make([]byte, 0, len(hashes)*len(plumbing.ZeroHash))
	for _, h := range hashes {
		v = append(v, h[:]...)
	}
	return t.Put(valueShallow, v)
}

// Shallow returns the list of revisions whose parents are not here.
func (t *Tx) Shallow() ([]plumbing.Hash, error) {
	v, err := t.Value(valueShallow)
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	var hashes []plumbing.Hash
	for c := range slices.Chunk(v, len(plumbing.ZeroHash)) {
		if len(c) == len(plumbing.ZeroHash) {
			hashes = append(hashes, plumbing.Hash(c))
		}
	}
	return hashes, nil
}

// SetIndex keeps the index in memory: there is no worktree.
func (t *Tx) SetIndex(idx *index.Index) error { return t.index.SetIndex(idx) }

// Index returns the index in memory.
func (t *Tx) Index() (*index.Index, error) { return t.index.Index() }

// SetConfig stores git's configuration.
func (t *Tx) SetConfig(c *config.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	v, err := c.Marshal()
	if err != nil {
		return err
	}
	return t.Put(valueConfig, v)
}

// Config returns git's configuration, or an empty one.
func (t *Tx) Config() (*config.Config, error) {
	c := config.NewConfig()
	v, err := t.Value(valueConfig)
	if err != nil {
		return c, ignoreNotFound(err)
	}
	return c, c.Unmarshal(v)
}

// Module returns an empty store: submodules are refused, not fetched.
func (t *Tx) Module(string) (storage.Storer, error) { return memory.NewStorage(), nil }

func ignoreNotFound(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
