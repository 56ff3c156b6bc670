package gitclone

import (
	"context"
	"errors"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// ancestry is what can be said about two revisions.
type ancestry int

const (
	unknown     ancestry = iota // the history that was seen ends before it can be told
	descends                    // a chain of parents leads from the new revision to the old one
	unconnected                 // all of the new revision's history was seen, and the old one is not in it
)

// walk looks for old among the ancestors of head, in what src has. Each revision is hashed before its parents are
// believed, so a server can hide a descent but not invent one.
func walk(src source, head, old plumbing.Hash) (ancestry, error) {
	seen := map[plumbing.Hash]bool{head: true}
	todo := []plumbing.Hash{head}
	all := true
	for len(todo) > 0 {
		h := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if h == old {
			return descends, nil
		}
		o, err := src.get(h, plumbing.CommitObject)
		if errors.Is(err, plumbing.ErrObjectNotFound) || err == nil && o.Type() != plumbing.CommitObject {
			all = false // beyond a shallow boundary
			continue
		}
		if err != nil {
			return unknown, err
		}
		b, err := content(o)
		if err != nil {
			return unknown, err
		}
		if got := plumbing.ComputeHash(plumbing.CommitObject, b); got != h {
			return unknown, fail(ErrProtocol, "revision %s has the content of %s", h, got)
		}
		c := &object.Commit{}
		if err := c.Decode(o); err != nil {
			return unknown, fail(ErrProtocol, "cannot read revision %s: %w", h, err)
		}
		for _, p := range c.ParentHashes {
			if !seen[p] {
				seen[p] = true
				todo = append(todo, p)
			}
		}
	}
	if all {
		return unconnected, nil
	}
	return unknown, nil
}

// relate finds out whether head descends from old: first in what has been fetched, where the parent often is; then by
// asking for the revisions between the two, without folders and files if the server can leave them out.
func (r *remote) relate(ctx context.Context, conv *conversation, have source, head, old plumbing.Hash) (ancestry, error) {
	if a, err := walk(have, head, old); a != unknown || err != nil {
		return a, err
	}
	if !conv.can(capability.Shallow) {
		return unknown, nil // then all of the history has been fetched, and the server itself has no more
	}
	req := conv.request(head)
	// "I have old, and nothing before it." The server sends what is between, or, if old is not an ancestor, everything: it
	// may not conclude from old that we have old's parents.
	req.Shallows = []plumbing.Hash{old}
	req.Haves = []plumbing.Hash{old}
	if conv.can(capability.Filter) {
		_ = req.Capabilities.Set(capability.Filter)
		req.Filter = packp.FilterTreeDepth(0)
	}
	body, err := conv.pack(ctx, req)
	if err != nil {
		return unknown, err
	}
	defer body.Close()
	p, err := unpack(body, r.o)
	if KindOf(err) == ErrTooLarge || errors.Is(err, errBytes) {
		return unknown, nil // too long a history to tell
	}
	if err != nil {
		return unknown, err
	}
	return walk(p, head, old)
}
