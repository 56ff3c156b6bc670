package gitclone

import (
	"context"
	"errors"

	"github.com/go-git/go-git/v5/plumbing"
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
		b, err := src.get(h, plumbing.CommitObject)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			all = false // beyond a shallow boundary
			continue
		}
		if err != nil {
			return unknown, err
		}
		if got := plumbing.ComputeHash(plumbing.CommitObject, b); got != h {
			return unknown, fail(ErrProtocol, "revision %s has the content of %s", h, got)
		}
		r, err := parseRevision(b)
		if err != nil {
			return unknown, fail(ErrProtocol, "cannot read revision %s: %w", h, err)
		}
		for _, p := range r.parents {
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
func (r *remote) relate(ctx context.Context, conv *conversation, have *objects, head, old plumbing.Hash) (ancestry, error) {
	a, err := walk(have, head, old)
	if a != unknown || err != nil || have.between || !conv.shallow {
		return a, err // without shallow, all of the history has been fetched, and the server itself has no more
	}
	have.between = true
	// "I have old, and nothing before it." The server sends what is between, or, if old is not an ancestor, everything: it
	// may not conclude from old that we have old's parents.
	between := wants{want: head, have: old}
	if conv.filter {
		between.leave = foldersAndFiles
	}
	limit := r.o.MaxPackBytes
	if t := have.committed(old); !conv.filter && conv.since && !t.IsZero() {
		// With their folders and files, everything is too much. Descendants are younger, if all clocks were right.
		since := between
		since.since, since.thin = t, conv.thin
		// A server may die over it when the head is older: that looks like a broken link, and is no answer.
		if a, err := r.between(ctx, conv, since, have, limit); a == descends || ctx.Err() != nil {
			return a, err
		}
		limit = min(limit, maxSkewedBytes)
	}
	a, err = r.between(ctx, conv, between, have, limit)
	if errors.Is(err, errCaps) {
		have.tooLong = err // too long a history to tell
		return unknown, nil
	}
	return a, err
}

// maxSkewedBytes is what is spent on a history that does not lead to the old revision in the order of its clocks: most
// likely it has been rewritten.
const maxSkewedBytes = 1 << 20

func (r *remote) between(ctx context.Context, conv *conversation, q wants, have *objects, limit int64) (ancestry, error) {
	p, err := r.pull(ctx, conv, q, have, rungDepth1, limit)
	if err != nil {
		return unknown, err
	}
	return walk(p, q.want, q.have)
}
