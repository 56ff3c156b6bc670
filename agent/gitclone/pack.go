package gitclone

import (
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/storage/memory"
)

// staging holds what a server sent, in memory, until it is proven.
type staging struct{ s *memory.Storage }

func unpack(r io.Reader, _ Options) (*staging, error) {
	s := memory.NewStorage()
	if err := packfile.UpdateObjectStorage(s, r); err != nil {
		return nil, err
	}
	return &staging{s}, nil
}

func (s *staging) get(h plumbing.Hash) (plumbing.EncodedObject, error) {
	return s.s.EncodedObject(plumbing.AnyObject, h)
}
