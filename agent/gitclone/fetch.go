package gitclone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Fetch asks the server for the branch's head, once, and publishes its document if it is new, proven and valid. A head
// that is published already costs no write. On an error nothing has changed: Desired is what it was. The error is always
// an *Error.
func (c *Clone) Fetch(ctx context.Context) (Fetched, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.FetchTimeout, errTimeout)
	defer cancel()
	down := c.remote.link.down.Load()
	head, st, err := c.ask(ctx)
	f := Fetched{BytesDown: c.remote.link.down.Load() - down}
	if !head.IsZero() {
		f.Revision = head.String()
	}
	if err != nil {
		return f, c.refuse(head, err)
	}
	if st == nil {
		c.settleUnchanged()
		f.Notices = c.remarks
		return f, nil
	}
	before := c.desired.Load()
	c.staged = st
	if err := c.publish(st); err != nil {
		return f, err // staged stays: the next Fetch need not download it again
	}
	c.remarks = st.notices
	f.Notices = c.remarks
	same := before != nil && bytes.Equal(before.Data, st.desired.Data)
	f.Changed = !same || before.origin() != st.desired.origin()
	f.SameDocument = f.Changed && same
	c.rejected = nil
	if c.store != nil {
		c.staged = nil
	}
	c.useAcceptance(st.head)
	return f, nil
}

// refuse sorts an error, and remembers a head that would be refused again.
func (c *Clone) refuse(head plumbing.Hash, err error) *Error {
	e := c.remote.sorted(err)
	switch r := c.rejected; {
	case head.IsZero() || !aboutContent(e.Kind):
	case r != nil && r.head == head && r.err == e: // it is that one
	case !errors.Is(e, errCaps):
		c.rejected = &rejection{head: head, err: e}
	default:
		wait := firstDoubtful
		if r != nil && r.head == head {
			wait = min(max(2*r.wait, wait), maxDoubtful)
		}
		c.rejected = &rejection{head, e, wait, wait}
	}
	return e
}

func (r *remote) sorted(err error) *Error {
	return classify("fetch from "+r.safeURL(), err, r.o.Now(), r.redact)
}

// origin is where a document comes from.
func (d *Desired) origin() [4]string { return [4]string{d.Revision, d.URL, d.Branch, d.File} }

// settleUnchanged is for a head that is published already. What is published in memory only, because the disk could not
// be written, is tried again; nothing else touches the disk.
func (c *Clone) settleUnchanged() {
	c.rejected = nil
	d := c.desired.Load()
	if c.store == nil && c.staged != nil && c.staged.head.String() == d.Revision {
		_ = c.publish(c.staged)
	}
	if c.store != nil {
		c.staged = nil
	}
}

// aboutContent reports whether an error lies in the revision itself, so that fetching it again is of no use.
func aboutContent(k Kind) bool {
	switch k {
	case ErrHistoryRewritten, ErrFileMissing, ErrFileInvalid, ErrNotAFile, ErrTooLarge:
		return true
	}
	return false
}

// published is the head for which there is nothing to do; zero if there is none.
func (c *Clone) published() plumbing.Hash {
	d := c.desired.Load()
	if d == nil || d.URL != c.remote.safeURL() || d.Branch != c.o.Branch || d.File != c.o.File || c.store != nil && !c.whole {
		return plumbing.ZeroHash
	}
	return plumbing.NewHash(d.Revision)
}

// question is all that a conversation with the server needs to know of the clone. It is a copy, so that a conversation
// that does not end in time can be left behind: it writes to nothing of ours, and reads only what is stored, if that is
// still open.
type question struct {
	published plumbing.Hash // the head for which there is nothing to do
	rejected  *rejection
	staged    *staged
	old       plumbing.Hash // the revision that a head must descend from; zero: none
	active    plumbing.Hash // the revision that it would be good to descend from
	accepted  string
	stored    source // what proves old; nil if that is not whole
}

type answer struct {
	head   plumbing.Hash
	staged *staged
	err    error
}

// stopGrace is how long a conversation may take to notice that its context is over. maxLeft bounds how many are left
// behind that never do: no transport is known to ignore its context, and this is the belt.
const (
	stopGrace = 5 * time.Second
	maxLeft   = 4
)

// ask talks to the server. A nil staged without an error means that the head is published.
func (c *Clone) ask(ctx context.Context) (plumbing.Hash, *staged, error) {
	c.notesMu.Lock()
	q := question{published: c.published(), rejected: c.rejected, staged: c.staged, accepted: c.accepted, active: plumbing.NewHash(c.o.ActiveRevision)}
	c.notesMu.Unlock()
	if r := c.rejected; r != nil && r.wait > 0 {
		if r.left--; r.left < 0 {
			q.rejected = nil
		}
	}
	if d := c.desired.Load(); d != nil {
		if c.store != nil && c.whole {
			q.stored = newStoreSource(c.store, d.Data)
		}
		q.old, q.active = plumbing.NewHash(d.Revision), plumbing.ZeroHash
	}
	a := c.converse(ctx, q)
	if a.err != nil && ctx.Err() != nil && KindOf(a.err) == "" {
		a.err = fmt.Errorf("%w: %w", context.Cause(ctx), a.err)
	}
	return a.head, a.staged, a.err
}

// converse is one conversation, which ends when ctx does. Over HTTP it does so by itself: what it waits for is a socket,
// which is closed then. That is as well, for to wake another goroutine costs half as much as all the rest of a poll.
func (c *Clone) converse(ctx context.Context, q question) (a answer) {
	if !c.remote.stream() {
		return c.remote.answer(ctx, q)
	}
	if c.left.Load() >= maxLeft {
		return answer{err: fail(ErrOffline, "%d earlier fetches have not ended: restart the agent", maxLeft)}
	}
	c.left.Add(1)
	done := make(chan answer, 1)
	go func() {
		a := c.remote.answer(ctx, q)
		c.left.Add(-1)
		done <- a
	}()
	select {
	case a = <-done:
	case <-ctx.Done():
		select {
		case a = <-done:
		case <-time.After(stopGrace):
			a.err = fmt.Errorf("the connection does not end: %w", context.Cause(ctx))
		}
	}
	return a
}

// answer contains panics: of go-git, over what a server sent.
func (r *remote) answer(ctx context.Context, q question) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{err: fail(ErrProtocol, "cannot read what the server sent: %v", p)}
		}
	}()
	a.head, a.staged, a.err = r.converse(ctx, q)
	return a
}

// converse is one conversation: the head, and if it is new, its document, proven and valid. It changes nothing.
func (r *remote) converse(ctx context.Context, q question) (head plumbing.Hash, st *staged, err error) {
	conv, err := r.dial(ctx)
	if err != nil {
		return head, nil, err
	}
	defer conv.close()
	head = conv.head
	switch {
	case conv.empty:
		return head, nil, fail(ErrRepositoryEmpty, "there is no revision at %s", r.safeURL())
	case head.IsZero():
		return head, nil, fail(ErrBranchGone, "there is no branch %s at %s", r.o.Branch, r.safeURL())
	}
	accepted := q.accepted == head.String()
	switch {
	case q.published == head:
		return head, nil, nil
	case q.rejected != nil && q.rejected.head == head && !(accepted && q.rejected.err.Kind == ErrHistoryRewritten):
		return head, nil, q.rejected.err
	case q.staged != nil && q.staged.head == head:
		return head, q.staged, nil
	}
	st, err = r.climb(ctx, conv, q, accepted)
	return head, st, err
}

// judge proves the descent of the revision and the file. A signature would be checked between the two. History comes
// before the file: a rewritten history is the graver news.
func (r *remote) judge(ctx context.Context, conv *conversation, have *objects, q question, accepted bool) (p *proof, notice string, err error) {
	if have.ask == nil {
		// All that will come is here. If it is not even a revision, a question about its history is in vain.
		if p, err = prove(have, conv.head, r.o.File, r.o.MaxFileBytes); sort(err) == ErrProtocol {
			return nil, "", err
		}
	}
	notice, herr := r.checkHistory(ctx, conv, have, q, accepted)
	if herr != nil {
		return nil, "", herr
	}
	if have.ask != nil {
		p, err = prove(have, conv.head, r.o.File, r.o.MaxFileBytes)
	}
	return p, notice, err
}

// stage is what is left to do when all is proven: is the document valid?
func (r *remote) stage(head plumbing.Hash, p *proof, how, notice string) (*staged, error) {
	if r.o.Validate != nil {
		if err := r.o.Validate(r.o.File, p.data); err != nil {
			return nil, fail(ErrFileInvalid, "%w", err)
		}
	}
	notices := p.notices
	if notice != "" {
		notices = append([]string{notice}, notices...)
	}
	return &staged{
		head: head, objects: p.objects, notices: notices,
		desired: Desired{
			Revision: head.String(), Author: clean(p.revision.author), Subject: clean(p.revision.subject), When: p.revision.authored,
			URL: r.safeURL(), Branch: r.o.Branch, File: r.o.File, How: how, FetchedAt: r.o.Now(), Data: p.data,
		},
	}, nil
}

// checkHistory applies Options.History to a new head.
func (r *remote) checkHistory(ctx context.Context, conv *conversation, have *objects, q question, accepted bool) (notice string, err error) {
	if r.o.History == Follow || accepted {
		return "", nil
	}
	head, old := conv.head, q.old
	if old.IsZero() {
		old = q.active
	}
	if old.IsZero() || old == head {
		return "", nil
	}
	if q.old.IsZero() && !conv.filter {
		return "", nil // all of the files of all of the history are too high a price for a notice
	}
	a, err := r.relate(ctx, conv, have, head, old)
	if err != nil {
		return "", err
	}
	switch {
	case a == descends:
		return "", nil
	case q.old.IsZero() && a == unconnected:
		return fmt.Sprintf("revision %s does not descend from %s, which is in force; it is trusted because the clone is new", short(head), short(old)), nil
	case q.old.IsZero():
		return "", nil
	case a == unconnected:
		return "", rewritten(head, "revision %s does not descend from %s", short(head), short(old))
	}
	if have.tooLong != nil {
		return "", rewritten(head, "revision %s cannot be shown to descend from %s: %w", short(head), short(old), have.tooLong)
	}
	return "", rewritten(head, "revision %s cannot be shown to descend from %s", short(head), short(old))
}

// rewritten refuses a head, and says how to take it all the same.
func rewritten(head plumbing.Hash, format string, args ...any) *Error {
	e := fail(ErrHistoryRewritten, format, args...)
	e.Advice = fmt.Sprintf(e.Advice, head)
	return e
}
