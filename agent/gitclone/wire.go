package gitclone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// line leads to a git-upload-pack: over HTTP each request is an exchange of its own, over SSH and on a local path all go
// through one process.
type line interface {
	hello(ctx context.Context) (*pktReader, error) // what it says when called
	ask(ctx context.Context, request []byte) (*pktReader, error)
	stream() bool
	forget() // what was learned of where it leads
	abort()  // from another goroutine
	close()
}

// speaks is what a server has said that it can do.
type speaks struct {
	v2       bool
	shallow  bool // deepen, shallow
	since    bool // deepen-since
	filter   bool
	anyWant  bool // gives any object that it is asked for; over HTTP with the older protocol that must be tried
	sideband bool
	quiet    bool // no-progress
	ofsDelta bool
	thin     bool
}

// conversation is one exchange with the server: the head, read once, then packs.
//
// Protocol v2 is asked for, because there the question for one branch has one line for an answer, however many branches
// there are, and because its server gives any object that is asked for by its hash. A server that does not know it answers
// with all that it has, as ever.
type conversation struct {
	remote *remote
	line   line
	speaks
	head  plumbing.Hash // zero: there is no such branch
	empty bool          // there is no branch at all
	stale bool          // the stream can carry no further request
}

// dial asks for the head. Over HTTP, a server that is known to speak v2 is asked at once; if its answer makes no sense, it
// is asked what it speaks first, as at the first time.
func (r *remote) dial(ctx context.Context) (_ *conversation, err error) {
	_ = r.link.take() // what went wrong before is not the cause of what goes wrong now
	l, known, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	c := &conversation{remote: r, line: l}
	defer func() {
		if err != nil {
			l.close()
			err = r.cause(err)
		}
	}()
	if known != nil {
		c.speaks = *known
		err := r.cause(c.lsRefs(ctx))
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil || sort(err) == ErrOffline {
			return nil, err
		}
		r.forget()
		l.forget()
	}
	if err := c.hello(ctx); err != nil {
		return nil, err
	}
	if !c.v2 {
		return c, nil
	}
	if err := c.lsRefs(ctx); err != nil {
		return nil, err
	}
	r.remember(l, c.speaks)
	return c, nil
}

func (c *conversation) close() { c.line.close() }

// abort ends what runs; a stream is started anew for the next request.
func (c *conversation) abort() { c.line.abort() }

// hello reads what the server says first: in v2 what it can do, before that also what it has.
func (c *conversation) hello(ctx context.Context) error {
	p, err := c.line.hello(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	p.left, c.speaks, c.stale = c.remote.o.MaxAdvertisementBytes, speaks{}, false
	b, m, err := p.next()
	if err == nil && m == pktData && strings.HasPrefix(string(b), "# service=") {
		if b, m, err = p.next(); err == nil && m == pktFlush {
			b, m, err = p.next()
		}
	}
	if err == nil && m == pktData && string(b) == "version 1" {
		b, m, err = p.next()
	}
	switch text, bad := said(b); {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the answer is empty", errNotGit)
	case err != nil:
		return err
	case bad:
		return fmt.Errorf("%w: the server says: %s", errAuth, text)
	case m == pktFlush:
		c.empty = true
		return nil
	case m != pktData:
		return fmt.Errorf("%w: it begins with a mark", errNotGit)
	case string(b) == "version 2":
		return c.capabilities(p)
	}
	return c.advertisement(p, b)
}

func (c *conversation) capabilities(p *pktReader) error {
	c.speaks = speaks{v2: true, anyWant: true, sideband: true, quiet: true, ofsDelta: true, thin: true}
	fetches := false
	for {
		b, m, err := p.next()
		if err != nil {
			return unfinished(err)
		}
		if m != pktData {
			break
		}
		key, value, _ := strings.Cut(string(b), "=")
		switch key {
		case "fetch":
			fetches = true
			for f := range strings.FieldsSeq(value) {
				c.shallow = c.shallow || f == "shallow"
				c.filter = c.filter || f == "filter"
			}
			c.since = c.shallow
		case "object-format":
			if value != "sha1" {
				return fail(ErrProtocol, "the repository's hashes are %s, and only sha1 is known here", clean(value))
			}
		}
	}
	if !fetches {
		return fail(ErrProtocol, "the server speaks protocol v2 without fetch")
	}
	return nil
}

// advertisement reads all that the server has, and keeps of it our branch.
func (c *conversation) advertisement(p *pktReader, first []byte) error {
	ref := string(branchRef(c.remote.o.Branch))
	c.empty = true
	name, caps, _ := strings.Cut(string(first), "\x00")
	for f := range strings.FieldsSeq(caps) {
		switch f {
		case "shallow":
			c.shallow = true
		case "deepen-since":
			c.since = true
		case "filter":
			c.filter = true
		case "allow-reachable-sha1-in-want", "allow-any-sha1-in-want":
			c.anyWant = true
		case "side-band-64k":
			c.sideband = true
		case "no-progress":
			c.quiet = true
		case "ofs-delta":
			c.ofsDelta = true
		case "thin-pack":
			c.thin = true
		case "object-format=sha256":
			return fail(ErrProtocol, "the repository's hashes are sha256, and only sha1 is known here")
		}
	}
	c.anyWant = c.anyWant || !c.line.stream()
	for {
		h, rest, ok := parseHash(name)
		switch {
		case strings.HasPrefix(name, "shallow "):
		case !ok:
			return fmt.Errorf("%w: there is no hash in a list of branches", errNotGit)
		case rest == ref:
			c.head = h
			fallthrough
		case !h.IsZero():
			c.empty = false
		}
		b, m, err := p.next()
		if err != nil {
			return unfinished(err)
		}
		if m == pktFlush {
			return nil
		}
		if text, bad := said(b); bad {
			return fmt.Errorf("%w: %s", errSays, text)
		}
		name = string(b)
	}
}

// lsRefs asks for one branch.
func (c *conversation) lsRefs(ctx context.Context) error {
	ref := string(branchRef(c.remote.o.Branch))
	any, err := c.refs(ctx, ref, func(h plumbing.Hash, name string) bool {
		if name == ref {
			c.head = h
		}
		return true
	})
	if err != nil || any {
		return err // a branch with a longer name is also an answer: the repository is not empty
	}
	// Gone, or never was? One line of all that there is will tell.
	any, err = c.refs(ctx, "", func(plumbing.Hash, string) bool { return false })
	c.empty = !any
	return err
}

// refs calls do with each reference that begins with prefix, until it says false.
func (c *conversation) refs(ctx context.Context, prefix string, do func(plumbing.Hash, string) bool) (any bool, err error) {
	var w pktWriter
	w.line("command=ls-refs")
	w.delim()
	if prefix != "" {
		w.line("ref-prefix ", prefix)
	}
	w.flush()
	p, err := c.send(ctx, w.b)
	if err != nil {
		return false, err
	}
	defer p.close()
	p.left = c.remote.o.MaxAdvertisementBytes
	for first := true; ; first = false {
		b, m, err := p.next()
		switch text, bad := said(b); {
		case errors.Is(err, io.EOF) && first:
			return any, fmt.Errorf("%w: the answer is empty", errNotGit)
		case err != nil:
			return any, unfinished(err)
		case bad:
			return any, fmt.Errorf("%w: %s", errSays, text)
		case m == pktFlush:
			p.ended = true
			return any, nil
		}
		h, rest, ok := parseHash(string(b))
		if !ok {
			return any, fmt.Errorf("%w: there is no hash in a list of branches", errNotGit)
		}
		any = true
		name, _, _ := strings.Cut(rest, " ")
		if !do(h, name) {
			c.stale = true
			return any, nil
		}
	}
}

// wants is one request for a pack, in words that both protocols know.
type wants struct {
	want  plumbing.Hash
	have  plumbing.Hash // "I have this revision, and nothing before it"; zero: nothing
	depth int           // revisions; 0: all
	since time.Time     // revisions not older; zero: all
	leave string        // filter: what the server is to leave out of what hangs below; "": nothing
	thin  bool          // deltas may be against what is under have
}

// Filters, for wants.leave. What is wanted by its own hash always comes.
const (
	foldersAndFiles = "tree:0"
	files           = "blob:none"
)

// pack asks for a pack and returns its bytes, limit of them at most.
func (c *conversation) pack(ctx context.Context, q wants, limit int64) (io.ReadCloser, error) {
	p, err := c.askPack(ctx, q, limit)
	if err != nil {
		return nil, c.remote.cause(err)
	}
	return p, nil
}

func (c *conversation) askPack(ctx context.Context, q wants, limit int64) (io.ReadCloser, error) {
	request := c.encodeV0
	if c.v2 {
		request = encodeV2
	}
	p, err := c.send(ctx, request(q))
	if err != nil {
		return nil, err
	}
	p.left = c.remote.o.MaxAdvertisementBytes
	find := c.findPackV0
	if c.v2 {
		find = findPackV2
	}
	c.stale = true
	if err := find(p, q); err != nil {
		_ = p.close()
		return nil, err
	}
	b := &packBody{conv: c, p: p, left: limit}
	if c.sideband {
		b.side = &sideband{p: p}
	}
	return b, nil
}

// send sends a request. A stream that was left in the middle of an answer carries none, and one of the older protocol none
// after its first. Nor is one of v2 asked for a second pack: git keeps the boundaries of the first in mind, and then denies
// that a revision has parents.
func (c *conversation) send(ctx context.Context, request []byte) (*pktReader, error) {
	if c.line.stream() && c.stale {
		before, head, empty := c.speaks, c.head, c.empty
		if err := c.hello(ctx); err != nil {
			return nil, err
		}
		c.filter = before.filter // which may have been given up
		if c.speaks != before {
			return nil, fail(ErrProtocol, "the server speaks otherwise than a moment ago")
		}
		c.head, c.empty = head, empty // it is read once
	}
	return c.line.ask(ctx, request)
}

func encodeV2(q wants) []byte {
	var w pktWriter
	w.line("command=fetch")
	w.delim()
	w.line("no-progress")
	w.line("ofs-delta")
	if q.thin {
		w.line("thin-pack")
	}
	w.line("want ", q.want.String())
	encodeBounds(&w, q)
	if !q.have.IsZero() {
		w.line("have ", q.have.String())
	}
	w.line("done")
	w.flush()
	return w.b
}

func encodeBounds(w *pktWriter, q wants) {
	if !q.have.IsZero() {
		w.line("shallow ", q.have.String())
	}
	switch {
	case q.depth > 0:
		w.line("deepen ", strconv.Itoa(q.depth))
	case !q.since.IsZero():
		w.line("deepen-since ", strconv.FormatInt(q.since.Unix(), 10))
	}
	if q.leave != "" {
		w.line("filter ", q.leave)
	}
}

// encodeV0 asks without multi_ack, so that one ACK or NAK comes before the pack.
func (c *conversation) encodeV0(q wants) []byte {
	caps := []string{"agent=holdfast"}
	add := func(cap string, ok bool) {
		if ok {
			caps = append(caps, cap)
		}
	}
	add("side-band-64k", c.sideband)
	add("no-progress", c.quiet)
	add("ofs-delta", c.ofsDelta)
	add("shallow", c.shallow)
	add("deepen-since", !q.since.IsZero())
	add("filter", q.leave != "")
	add("thin-pack", q.thin)
	var w pktWriter
	w.line("want ", q.want.String(), " ", strings.Join(caps, " "))
	encodeBounds(&w, q)
	w.flush()
	if !q.have.IsZero() {
		w.line("have ", q.have.String())
	}
	w.line("done")
	return w.b
}

// findPackV2 reads to where the pack begins.
func findPackV2(p *pktReader, _ wants) error {
	for first := true; ; first = false {
		b, _, err := p.next()
		switch text, bad := said(b); {
		case errors.Is(err, io.EOF) && first:
			return fmt.Errorf("%w: the answer is empty", errNotGit)
		case err != nil:
			return unfinished(err)
		case bad:
			return fmt.Errorf("%w: %s", errSays, text)
		case string(b) == "packfile":
			return nil
		}
	}
}

func (c *conversation) findPackV0(p *pktReader, q wants) error {
	list := q.depth > 0 || !q.since.IsZero() // then a list of boundaries comes first, and a flush
	for first := true; ; first = false {
		b, m, err := p.next()
		switch text, bad := said(b); {
		case errors.Is(err, io.EOF) && first:
			return fmt.Errorf("%w: the answer is empty", errNotGit)
		case err != nil:
			return unfinished(err)
		case bad:
			return fmt.Errorf("%w: %s", errSays, text)
		case list:
			list = m != pktFlush
		case string(b) == "NAK" || strings.HasPrefix(string(b), "ACK "):
			return nil
		default:
			return fmt.Errorf("%w: %s, instead of ACK or NAK", errSays, clean(string(b)))
		}
	}
}

// unfinished is for an answer that ends too soon.
func unfinished(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// packBody bounds a pack whatever it comes through, and gives the cause of a broken one.
type packBody struct {
	conv *conversation
	p    *pktReader
	side *sideband // nil: the pack is all of the rest
	left int64
}

func (b *packBody) Read(p []byte) (int, error) {
	var n int
	var err error
	if b.side != nil {
		n, err = b.side.Read(p)
	} else {
		n, err = b.p.r.Read(p)
	}
	if b.left -= int64(n); b.left < 0 {
		return n, errBytes
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.conv.remote.cause(err)
	}
	return n, err
}

func (b *packBody) Close() error {
	if b.side != nil && b.side.done {
		b.p.ended = true
	}
	return b.p.close()
}
