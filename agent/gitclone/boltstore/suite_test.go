package boltstore

import (
	"path/filepath"
	"testing"

	"github.com/go-git/go-git/v5/storage/test"
	"gopkg.in/check.v1"
)

// TestStorerSuite runs go-git's own acceptance test for stores.
func TestStorerSuite(t *testing.T) { check.TestingT(t) }

type storerSuite struct {
	test.BaseStorageSuite
	dir   string
	store *Store
}

var _ = check.Suite(&storerSuite{})

func (s *storerSuite) SetUpTest(c *check.C) {
	s.dir = c.MkDir()
	st, aside, err := Open(filepath.Join(s.dir, "clone.db"), Options{})
	c.Assert(err, check.IsNil)
	c.Assert(aside, check.IsNil)
	s.store = st
	s.BaseStorageSuite = test.NewBaseStorageSuite(st)
}

func (s *storerSuite) TearDownTest(c *check.C) {
	c.Assert(s.store.Close(), check.IsNil)
	s.BaseStorageSuite.TearDownTest(c)
}
