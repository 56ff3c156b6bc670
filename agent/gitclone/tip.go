package gitclone

import (
	"errors"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// tip is how a new clone gets around a whole fleet where the server has no filters, but gives what it is asked for by its
// hash: it says that it has what it has not. A server leaves out what one has, and that is all that it does with the word.
//
//	"I have the head, not its parent, and want the parent"  → the parent, without what the head has as well
//	"I have the parent, and want the head"                  → the head, its root folder, and each folder that it changed
//	the folder of our file, by its hash                     → with all its files: a hundred, if it is one of a fleet's
//	our file, by its hash
//
// A folder further up comes with the whole fleet if it is asked for. If the head has not changed it, an earlier revision
// has: that one is wanted, against its parent.
type tip struct {
	r    *remote
	conv *conversation
	have *objects
	pull func(w wants, limit int64) (*pack, error)
	back bool // history has been asked for
}

const (
	// tipHistory is how many revisions are looked at for the one that changed a folder: of a fleet, 300 bytes each.
	tipHistory = 64
	// maxParentBytes is what these may take: more comes from a server that does not leave out what is said to be here.
	maxParentBytes = 128 << 10
	// maxTipBytes is what a revision may have changed. A folder of 10,000 devices has 240 KB.
	maxTipBytes = 1 << 20
	// maxFolderBytes is what a folder may have with all its files: some hundred devices'.
	maxFolderBytes = 64 << 10
)

var errNoTip = errors.New("the head's folders cannot be had alone")

// start gets the head and what it changed.
func (t *tip) start() error {
	parent, err := t.parents(2)
	if err != nil {
		return err
	}
	_, err = t.pull(wants{want: t.conv.head, have: parent}, maxTipBytes)
	return err
}

// parents gets revisions before the head, as changes to what it has, and returns one.
func (t *tip) parents(depth int) (plumbing.Hash, error) {
	p, err := t.pull(wants{want: t.conv.head, have: t.conv.head, depth: depth, thin: true}, maxParentBytes)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	for _, e := range p.entries {
		if e.typ == plumbing.CommitObject {
			return e.hash, nil
		}
	}
	return plumbing.ZeroHash, fail(ErrProtocol, "%w: it has no parent", errNoTip)
}

// folder gets a folder of the chain that is missing. All above it are here.
func (t *tip) folder(h plumbing.Hash) error {
	last := strings.Count(t.r.o.File, "/") // the one that our file lies in
	down := 0
	for at := plumbing.ZeroHash; at != h; down++ {
		var err error
		if at, err = t.at(t.conv.head, down); err != nil || at != h && down == last {
			return fail(ErrProtocol, "%w: %w", errNoTip, err)
		}
	}
	if down--; down == last {
		_, err := t.pull(wants{want: h}, maxFolderBytes)
		return err
	}
	if !t.back {
		t.back = true
		if _, err := t.parents(tipHistory); err != nil {
			return err
		}
	}
	for rev := t.conv.head; ; {
		r, err := t.revision(rev)
		if err != nil {
			return err
		}
		if len(r.parents) == 0 {
			return fail(ErrProtocol, "%w: a first revision has made them", errNoTip)
		}
		parent := r.parents[0]
		at, err := t.at(parent, down)
		if err != nil {
			return err
		}
		if at != h { // this revision has made it
			_, err := t.pull(wants{want: rev, have: parent}, maxTipBytes)
			return err
		}
		rev = parent
	}
}

// at is the folder so far down on the way to our file in a revision; zero if there is none.
func (t *tip) at(rev plumbing.Hash, down int) (plumbing.Hash, error) {
	r, err := t.revision(rev)
	at := r.tree
	for _, name := range strings.SplitN(t.r.o.File, "/", down+1)[:down] {
		if err != nil {
			break
		}
		var b []byte
		var e *treeEntry
		if b, err = t.have.find(at, plumbing.TreeObject); err == nil {
			e, _, err = lookup(b, name)
		}
		if e == nil || e.mode&modeKind != modeFolder {
			at = plumbing.ZeroHash
			break
		}
		at = e.hash
	}
	if err != nil {
		return at, fail(ErrProtocol, "%w: %w", errNoTip, err)
	}
	return at, nil
}

func (t *tip) revision(h plumbing.Hash) (revision, error) {
	b, err := t.have.find(h, plumbing.CommitObject)
	if err != nil {
		return revision{}, fail(ErrProtocol, "%w: %w", errNoTip, err)
	}
	r, err := parseRevision(b)
	if err != nil {
		return r, fail(ErrProtocol, "%w: %w", errNoTip, err)
	}
	return r, nil
}
