package gitclone

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// pack holds what a server sent, in memory, until it is proven. go-git's scanner reads the stream; its parser is not
// used, because it allocates what a header claims before anything of ours can refuse it, keeps everything, and writes
// object by object into a store.
//
// Bounded are: objects, bytes inflated, and bytes kept. A blob that is larger than our file may be is read past and not
// kept, so that a large file in another folder costs bandwidth but no memory.
type pack struct {
	o        Options
	entries  []entry
	known    map[plumbing.Hash]int   // objects → entry
	large    map[plumbing.Hash]int64 // blobs read past, with their size
	dropped  int                     // deltas against those, whose hash nobody knows
	kept     int64                   // bytes
	children map[int][]int           // entry → deltas against it
	waiting  map[plumbing.Hash][]int // hash → deltas against it
	solved   map[plumbing.ObjectType]bool
	base     baseFunc
}

// baseFunc returns content that is here already and against which a delta may be; false if there is none. It vouches for
// the hash.
type baseFunc func(plumbing.Hash, plumbing.ObjectType) ([]byte, bool)

// entry is one object of the stream: whole, or a delta until it is asked for.
type entry struct {
	typ     plumbing.ObjectType // the delta's own type until applied
	hash    plumbing.Hash       // once it is known
	content []byte
	offset  int64 // in the stream; grows from entry to entry
	gone    bool  // read past
}

// entryBytes is about what an entry costs besides its content.
const entryBytes = 192

func (e *entry) isDelta() bool { return e.typ.IsDelta() }

// maxInflation is how many times more than the wire's limit a pack may inflate to. Text compresses some 3 to 10 times;
// what is beyond that is meant to hurt.
const maxInflation = 16

// unpack reads a whole pack and checks its sum. base may be nil.
func unpack(r io.Reader, o Options, base baseFunc) (*pack, error) {
	s := packfile.NewScanner(r)
	_, count, err := s.Header()
	if err != nil {
		return nil, fmt.Errorf("cannot read the pack: %w", err)
	}
	if int64(count) > int64(o.MaxObjects) {
		return nil, fail(ErrTooLarge, "the server sends %d objects, %d are allowed: %w", count, o.MaxObjects, errCaps)
	}
	p := &pack{
		o: o, base: base, known: make(map[plumbing.Hash]int), large: make(map[plumbing.Hash]int64),
		children: make(map[int][]int), waiting: make(map[plumbing.Hash][]int), solved: make(map[plumbing.ObjectType]bool),
	}
	inflated := int64(0)
	for range count {
		h, err := s.NextObjectHeader()
		if err != nil {
			return nil, fmt.Errorf("cannot read the pack: %w", err)
		}
		if h.Length < 0 || h.Length > maxInflation*o.MaxPackBytes-inflated {
			return nil, fail(ErrTooLarge, "the pack inflates to more than %d bytes: %w", maxInflation*o.MaxPackBytes, errCaps)
		}
		inflated += h.Length
		if err := p.read(s, h); err != nil {
			return nil, err
		}
	}
	if _, err := s.Checksum(); err != nil {
		return nil, fmt.Errorf("cannot read the pack: %w", err)
	}
	// What follows the pack is for nobody, but a stream read to its end can carry the next request.
	_, _ = io.Copy(io.Discard, io.LimitReader(r, 4<<10))
	return p, nil
}

// read reads one object of the stream.
func (p *pack) read(s *packfile.Scanner, h *packfile.ObjectHeader) error {
	e := entry{typ: h.Type, offset: h.Offset}
	i := len(p.entries)
	switch h.Type {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
	case plumbing.OFSDeltaObject:
		base, ok := slices.BinarySearchFunc(p.entries, h.OffsetReference, func(e entry, at int64) int { return cmp.Compare(e.offset, at) })
		if !ok {
			return fail(ErrProtocol, "the pack has a delta against nothing")
		}
		e.gone = p.entries[base].gone
		p.children[base] = append(p.children[base], i)
	case plumbing.REFDeltaObject:
		p.waiting[h.Reference] = append(p.waiting[h.Reference], i)
	default:
		return fail(ErrProtocol, "the pack has an object of type %d", h.Type)
	}
	e.gone = e.gone || h.Type == plumbing.BlobObject && h.Length > p.o.MaxFileBytes

	need := int64(entryBytes)
	if !e.gone {
		need += h.Length
	}
	if err := p.keep(need); err != nil {
		return err
	}
	hash, buf := plumbing.NewHasher(h.Type, h.Length), &capped{left: h.Length}
	var to io.Writer
	switch {
	case e.gone && e.isDelta():
		to = io.Discard
	case e.gone:
		to = hash
	case e.isDelta():
		to = buf
	default:
		to = io.MultiWriter(hash, buf)
	}
	n, _, err := s.NextObject(to)
	if err != nil {
		return fmt.Errorf("cannot read the pack: %w", err)
	}
	if n != h.Length {
		return fail(ErrProtocol, "an object of the pack has %d bytes instead of %d", n, h.Length)
	}
	switch {
	case e.gone && e.isDelta():
		p.dropped++
	case e.gone:
		e.hash = hash.Sum()
		p.large[e.hash] = h.Length
	case !e.isDelta():
		e.hash = hash.Sum()
		p.known[e.hash] = i
	}
	e.content = buf.b
	p.entries = append(p.entries, e)
	return nil
}

// keep accounts for bytes that stay in memory.
func (p *pack) keep(n int64) error {
	if p.kept += n; p.kept > p.o.MaxMemoryBytes {
		return fail(ErrTooLarge, "what the server sends needs more than %d bytes of memory: %w", p.o.MaxMemoryBytes, errCaps)
	}
	return nil
}

// capped grows as bytes come, and not as a header promises.
type capped struct {
	b    []byte
	left int64
}

func (c *capped) Write(b []byte) (int, error) {
	if int64(len(b)) > c.left {
		return 0, packfile.ErrInflatedSizeMismatch
	}
	c.left -= int64(len(b))
	c.b = append(c.b, b...)
	return len(b), nil
}

// get returns an object that the pack holds. Its hash is what was computed, not what the server says.
func (p *pack) get(h plumbing.Hash, want plumbing.ObjectType) ([]byte, error) {
	i, ok := p.known[h]
	if !ok && !p.solved[want] {
		if err := p.solve(want); err != nil {
			return nil, err
		}
		i, ok = p.known[h]
	}
	switch size, large := p.large[h]; {
	case ok:
	case large:
		return nil, fail(ErrTooLarge, "it has %d bytes, %d are allowed", size, p.o.MaxFileBytes)
	case want == plumbing.BlobObject && p.dropped > 0:
		return nil, fail(ErrTooLarge, "it, or the file that it was sent as a change to, has more than %d bytes", p.o.MaxFileBytes)
	default:
		return nil, plumbing.ErrObjectNotFound
	}
	if e := p.entries[i]; e.typ == want {
		return e.content, nil
	}
	return nil, fail(ErrProtocol, "the server sent a %s as %s %s", p.entries[i].typ, want, h)
}

// solve applies the deltas of one type, each once, bases before those that wait for them. A pack is thin if a base is not
// in it: then it is what is stored, which has our path and no other. A delta against other devices' files stays
// unsolved, and who needs its object does not find it.
func (p *pack) solve(want plumbing.ObjectType) error {
	p.solved[want] = true
	var todo []int
	for i := range p.entries {
		if p.entries[i].typ == want {
			todo = append(todo, i)
		}
	}
	if p.base != nil {
		for h := range p.waiting {
			if _, here := p.known[h]; here {
				continue
			}
			b, ok := p.base(h, want)
			if !ok {
				continue
			}
			if err := p.keep(entryBytes + int64(len(b))); err != nil {
				return err
			}
			todo, p.known[h] = append(todo, len(p.entries)), len(p.entries)
			p.entries = append(p.entries, entry{typ: want, hash: h, content: b})
		}
	}
	for len(todo) > 0 {
		base := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		b := &p.entries[base]
		deltas := append(p.children[base], p.waiting[b.hash]...)
		delete(p.children, base)
		delete(p.waiting, b.hash)
		for _, i := range deltas {
			if err := p.apply(i, b); err != nil {
				return err
			}
			todo = append(todo, i)
		}
	}
	return nil
}

// apply turns entry i, a delta against b, into an object of b's type.
func (p *pack) apply(i int, b *entry) error {
	e := &p.entries[i]
	if e.gone {
		e.typ = b.typ
		return nil
	}
	if b.gone {
		p.drop(e, b.typ)
		return nil
	}
	size, delta, err := deltaHeader(e.content, len(b.content))
	if err != nil {
		return fail(ErrProtocol, "cannot apply a delta: %w", err)
	}
	if b.typ == plumbing.BlobObject && size > p.o.MaxFileBytes {
		p.drop(e, b.typ)
		return nil
	}
	if err := p.keep(size); err != nil {
		return err
	}
	out, err := patch(b.content, delta, size)
	if err != nil {
		return fail(ErrProtocol, "cannot apply a delta: %w", err)
	}
	p.kept -= int64(len(e.content))
	e.typ, e.content, e.hash = b.typ, out, plumbing.ComputeHash(b.typ, out)
	p.known[e.hash] = i
	return nil
}

// drop gives up an entry whose content is too large to keep.
func (p *pack) drop(e *entry, typ plumbing.ObjectType) {
	p.kept -= int64(len(e.content))
	e.gone, e.typ, e.content = true, typ, nil
	p.dropped++
}

var errDelta = errors.New("it is damaged")

// deltaHeader reads how long a delta's base is, which must be so, and how long its result. What it does follows
// (gitformat-pack(5), deltified representation).
func deltaHeader(delta []byte, base int) (size int64, rest []byte, err error) {
	var n [2]int64
	for i := range n {
		for shift := 0; ; shift += 7 {
			if len(delta) == 0 || shift > 35 {
				return 0, nil, errDelta
			}
			b := delta[0]
			n[i] |= int64(b&0x7f) << shift
			delta = delta[1:]
			if b&0x80 == 0 {
				break
			}
		}
	}
	if n[0] != int64(base) {
		return 0, nil, fmt.Errorf("it is a change to %d bytes, and there are %d", n[0], base)
	}
	return n[1], delta, nil
}

// patch makes the result of a delta, of so many bytes. It allocates that, once it is known to be true, and nothing else:
// with folders of 10,000 names that counts.
func patch(base, delta []byte, size int64) ([]byte, error) {
	made := int64(0)
	err := pieces(base, delta, func(p []byte) { made += int64(len(p)) })
	if err == nil && made != size {
		err = errDelta
	}
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, size+1) // see boltstore's PutObject
	return out, pieces(base, delta, func(p []byte) { out = append(out, p...) })
}

// pieces calls do with what a delta's result is made of, in order: new bytes, and pieces of its base.
func pieces(base, delta []byte, do func([]byte)) error {
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		if op&0x80 == 0 { // so many new bytes
			if op == 0 || int(op) > len(delta) {
				return errDelta
			}
			do(delta[:op])
			delta = delta[op:]
			continue
		}
		// A piece of the base: four bytes of where and three of how long, as far as they are not zero.
		var at uint64
		for i := range 7 {
			if op&(1<<i) == 0 {
				continue
			}
			if len(delta) == 0 {
				return errDelta
			}
			at |= uint64(delta[0]) << (8 * i)
			delta = delta[1:]
		}
		from, n := at&math.MaxUint32, at>>32
		if n == 0 {
			n = 1 << 16
		}
		if from+n > uint64(len(base)) {
			return errDelta
		}
		do(base[from : from+n])
	}
	return nil
}
