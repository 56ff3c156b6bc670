package gitclone

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// Fetch asks the server for the branch's head, once, and publishes its document if it is new, proven and valid. A head
// that is published already costs no write. On an error nothing has changed: Desired is what it was. The error is always
// an *Error.
func (c *Clone) Fetch(ctx context.Context) (Fetched, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.FetchTimeout, errTimeout)
	defer cancel()
	f, err := c.fetch(ctx)
	if err == nil {
		return f, nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	e := classify("fetch from "+c.remote.safeURL(), err, c.o.Now())
	return f, e
}

func (c *Clone) fetch(ctx context.Context) (f Fetched, err error) {
	conv, err := c.remote.dial(ctx)
	if err != nil {
		return f, err
	}
	defer conv.close()
	head, ok := conv.head(branchRef(c.o.Branch))
	if !ok {
		return f, fail(ErrBranchGone, "there is no branch %s at %s", c.o.Branch, c.remote.safeURL())
	}
	f.Revision = head.String()

	now := c.desired.Load()
	switch {
	case c.isPublished(head):
		c.rejected, c.staged = nil, nil
		return f, nil
	case c.rejected != nil && c.rejected.head == head && !(c.rejected.err.Kind == ErrHistoryRewritten && c.isAccepted(head)):
		return f, c.rejected.err
	}

	if c.staged == nil || c.staged.head != head {
		st, err := c.download(ctx, conv, head)
		if err != nil {
			var e *Error
			if errors.As(err, &e) && aboutContent(e.Kind) {
				c.rejected = &rejection{head, e}
			}
			return f, err
		}
		c.staged = st
	}
	if err := c.publish(c.staged); err != nil {
		return f, err
	}
	f.Changed = true
	f.SameDocument = now != nil && bytes.Equal(now.Data, c.staged.desired.Data)
	c.rejected, c.staged = nil, nil
	return f, nil
}

// aboutContent reports whether an error lies in the revision itself, so that fetching it again is of no use.
func aboutContent(k Kind) bool {
	switch k {
	case ErrHistoryRewritten, ErrFileMissing, ErrFileInvalid, ErrNotAFile, ErrTooLarge:
		return true
	}
	return false
}

// isPublished reports whether there is nothing to do for a head.
func (c *Clone) isPublished(head plumbing.Hash) bool {
	d := c.desired.Load()
	return d != nil && d.Revision == head.String() && d.URL == c.remote.safeURL() && d.Branch == c.o.Branch &&
		d.File == c.o.File && (c.whole || c.store == nil)
}

// download brings a head's document, proven and valid. It changes nothing.
func (c *Clone) download(ctx context.Context, conv *conversation, head plumbing.Hash) (*staged, error) {
	req := conv.request(head)
	if conv.can(capability.Shallow) {
		req.Depth = packp.DepthCommits(1)
	}
	body, err := conv.pack(ctx, req)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	objects, err := unpack(body, c.o)
	if err != nil {
		return nil, err
	}
	p, err := prove(objects, head, c.o.File, c.o.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	if c.o.Validate != nil {
		if err := c.o.Validate(c.o.File, p.data); err != nil {
			return nil, fail(ErrFileInvalid, "%w", err)
		}
	}
	subject, _, _ := strings.Cut(p.commit.Message, "\n")
	return &staged{
		head: head, objects: p.objects,
		desired: Desired{
			Revision: head.String(), Author: p.commit.Author.Name, Subject: subject, When: p.commit.Author.When,
			URL: c.remote.safeURL(), Branch: c.o.Branch, File: c.o.File, How: "depth-1", FetchedAt: c.o.Now(), Data: p.data,
		},
	}, nil
}
