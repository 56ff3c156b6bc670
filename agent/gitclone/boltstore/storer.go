package boltstore

import (
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/index"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage"
)

// Store is a storage.Storer too, for go-git and its test-suite: each call is a transaction of its own. A publish uses
// Update, because one transaction per object is 20 times slower, and because none of these calls is atomic with the next.

// view and update are a transaction that returns something.
func view[T any](s *Store, fn func(*Tx) (T, error)) (v T, err error) {
	err = s.View(func(tx *Tx) (err error) { v, err = fn(tx); return err })
	return v, err
}

func update[T any](s *Store, fn func(*Tx) (T, error)) (v T, err error) {
	err = s.Update(func(tx *Tx) (err error) { v, err = fn(tx); return err })
	return v, err
}

func (s *Store) NewEncodedObject() plumbing.EncodedObject { return &plumbing.MemoryObject{} }

func (s *Store) SetEncodedObject(o plumbing.EncodedObject) (plumbing.Hash, error) {
	return update(s, func(tx *Tx) (plumbing.Hash, error) { return tx.SetEncodedObject(o) })
}

func (s *Store) EncodedObject(t plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	return view(s, func(tx *Tx) (plumbing.EncodedObject, error) { return tx.EncodedObject(t, h) })
}

func (s *Store) IterEncodedObjects(t plumbing.ObjectType) (storer.EncodedObjectIter, error) {
	return view(s, func(tx *Tx) (storer.EncodedObjectIter, error) { return tx.IterEncodedObjects(t) })
}

func (s *Store) HasEncodedObject(h plumbing.Hash) error {
	return s.View(func(tx *Tx) error { return tx.HasEncodedObject(h) })
}

func (s *Store) EncodedObjectSize(h plumbing.Hash) (int64, error) {
	return view(s, func(tx *Tx) (int64, error) { return tx.EncodedObjectSize(h) })
}

func (s *Store) AddAlternate(remote string) error { return (*Tx)(nil).AddAlternate(remote) }

func (s *Store) SetReference(r *plumbing.Reference) error {
	return s.Update(func(tx *Tx) error { return tx.SetReference(r) })
}

func (s *Store) CheckAndSetReference(r, old *plumbing.Reference) error {
	return s.Update(func(tx *Tx) error { return tx.CheckAndSetReference(r, old) })
}

func (s *Store) Reference(n plumbing.ReferenceName) (*plumbing.Reference, error) {
	return view(s, func(tx *Tx) (*plumbing.Reference, error) { return tx.Reference(n) })
}

func (s *Store) IterReferences() (storer.ReferenceIter, error) {
	return view(s, func(tx *Tx) (storer.ReferenceIter, error) { return tx.IterReferences() })
}

func (s *Store) RemoveReference(n plumbing.ReferenceName) error {
	return s.Update(func(tx *Tx) error { return tx.RemoveReference(n) })
}

func (s *Store) CountLooseRefs() (int, error) { return 0, nil }

func (s *Store) PackRefs() error { return nil }

func (s *Store) SetShallow(h []plumbing.Hash) error {
	return s.Update(func(tx *Tx) error { return tx.SetShallow(h) })
}

func (s *Store) Shallow() ([]plumbing.Hash, error) {
	return view(s, func(tx *Tx) ([]plumbing.Hash, error) { return tx.Shallow() })
}

func (s *Store) SetIndex(idx *index.Index) error { return s.index.SetIndex(idx) }

func (s *Store) Index() (*index.Index, error) { return s.index.Index() }

func (s *Store) SetConfig(c *config.Config) error {
	return s.Update(func(tx *Tx) error { return tx.SetConfig(c) })
}

func (s *Store) Config() (*config.Config, error) {
	return view(s, func(tx *Tx) (*config.Config, error) { return tx.Config() })
}

func (s *Store) Module(name string) (storage.Storer, error) { return (*Tx)(nil).Module(name) }

// Value returns a named value: ErrNotFound, ErrCorrupt.
func (s *Store) Value(name string) ([]byte, error) {
	return view(s, func(tx *Tx) ([]byte, error) { return tx.Value(name) })
}
