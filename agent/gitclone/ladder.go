package gitclone

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// rung is one way to come by what proves the file, from the cheapest to the one that every server has.
type rung int

const (
	rungPath        rung = iota // revision, folders on the way and file, one by one: a server with filters
	rungThin                    // what has changed since the revision that is stored, as changes to it
	rungIncremental             // the same, each file and folder in full
	rungTip                     // what the head has changed, then what is missing: see tip
	rungDepth1                  // all of one revision
)

func (g rung) String() string {
	return [...]string{"path", "thin", "incremental", "tip", "depth-1"}[g]
}

// possible reports whether a rung can be tried.
func (g rung) possible(c *conversation, q question) bool {
	switch g {
	case rungPath:
		return c.filter && c.shallow && c.anyWant
	case rungThin:
		return c.thin && rungIncremental.possible(c, q)
	case rungIncremental:
		return c.shallow && q.stored != nil && !q.old.IsZero() && q.old != c.head
	case rungTip:
		return c.shallow && c.anyWant && c.thin
	}
	return true
}

// ladder remembers which rung holds. A server that says it has filters and then fails on them costs its failure once, and
// again after retryAbove downloads: a fault may pass.
type ladder struct {
	from  rung // where to begin
	since int  // downloads since then
	cuts  int  // times in a row that the link broke on from
}

const (
	// maxCuts is how often a link may break on one rung before the next is tried. A server that dies over a request looks
	// like a link that breaks.
	maxCuts    = 2
	retryAbove = 16
)

// works notes that there has been a download, and from which rung on it is worth to try: those above it failed, and not
// over what is in the revision.
func (l *ladder) works(from rung) {
	l.cuts = 0
	if from > l.from {
		l.from, l.since = from, 1
		return
	}
	if l.since++; l.since >= retryAbove {
		*l = ladder{}
	}
}

// fails notes that no rung from g on has brought one.
func (l *ladder) fails(g rung, link bool) {
	switch {
	case !link:
		l.from, l.cuts = rungPath, 0
	case l.from == rungDepth1 && l.cuts+1 >= maxCuts:
		l.from, l.cuts = rungPath, 0
	default:
		if l.cuts++; l.cuts >= maxCuts {
			l.from, l.since, l.cuts = min(g+1, rungDepth1), 0, 0
		}
	}
}

// climb brings head's document, proven and valid, by the first rung that holds.
func (r *remote) climb(ctx context.Context, conv *conversation, q question, accepted bool) (*staged, error) {
	r.mu.Lock()
	l := r.ladder
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.ladder = l
		r.mu.Unlock()
	}()
	from := l.from
	if l.from > rungPath {
		conv.filter = false // it is what has failed: the proof of descent does without as well
	}
	for g := l.from; ; g++ {
		if g > rungDepth1 {
			g = rungDepth1
		}
		if g != rungDepth1 && !g.possible(conv, q) {
			continue
		}
		st, err := r.fetchBy(ctx, conv, g, q, accepted)
		kind := sort(err)
		tooMuch, tooLong := errors.Is(err, errCaps), errors.Is(err, errStep)
		switch {
		case err == nil || aboutContent(kind) && (!tooMuch || kind == ErrHistoryRewritten):
			l.works(from)
			if l == (ladder{}) {
				r.forget() // what it can do may have changed as well
			}
			return st, err
		case g == rungDepth1 || ctx.Err() != nil || kind != ErrProtocol && !tooMuch && !tooLong:
			// A broken link is no reason to ask for more: what costs more breaks more often. Unless it breaks again.
			l.fails(g, kind == ErrOffline)
			return nil, err
		}
		// That the server leaves out what it thinks is here, or sends it as a change to what is not, is no fault of its own.
		if g == rungPath || tooLong {
			from = g + 1
		}
		if g == rungPath {
			conv.filter = false
		}
	}
}

// fetchBy brings head's document by one rung.
func (r *remote) fetchBy(ctx context.Context, conv *conversation, g rung, q question, accepted bool) (*staged, error) {
	have, err := r.start(ctx, conv, g, q, accepted)
	if err != nil {
		return nil, err
	}
	p, notice, err := r.judge(ctx, conv, have, q, accepted)
	if err != nil {
		return nil, err
	}
	return r.stage(conv.head, p, g.String(), notice)
}

// start makes the first requests of a rung: what can be known to be needed.
func (r *remote) start(ctx context.Context, conv *conversation, g rung, q question, accepted bool) (*objects, error) {
	have := &objects{stored: q.stored}
	pullSome := func(w wants, limit int64) (*pack, error) {
		p, err := r.pull(ctx, conv, w, have, g, min(limit, r.o.MaxPackBytes))
		if err == nil {
			have.fetched = append(have.fetched, p)
		}
		return p, err
	}
	pull := func(w wants) (*pack, error) { return pullSome(w, r.o.MaxPackBytes) }
	if conv.anyWant && g != rungDepth1 {
		have.ask = func(h plumbing.Hash, want plumbing.ObjectType) error {
			w := wants{want: h}
			if conv.filter && want != plumbing.BlobObject {
				w.leave = foldersAndFiles
			}
			_, err := pull(w)
			return err
		}
	}
	one := wants{want: conv.head, depth: 1}
	switch g {
	case rungPath:
		revisions, err := r.revisions(conv, have, q, accepted, pull)
		if err == nil && have.between {
			if a, err := walk(have, conv.head, q.old); a == unconnected && err == nil {
				return have, nil // it will be refused
			}
		}
		if err == nil && rungThin.possible(conv, q) && (revisions <= fewRevisions || r.largeFolder(q)) {
			// One request for what is new, instead of one for each folder on the way.
			one.have, one.thin = q.old, true
			if revisions > fewRevisions {
				one.leave = files // all devices' but ours are of no use
			}
			_, err = pull(one)
		}
		if err != nil {
			return nil, err
		}
	case rungThin, rungIncremental:
		one.have, one.thin = q.old, g == rungThin
		if _, err := pull(one); err != nil {
			return nil, err
		}
	case rungTip:
		have.stored = nil // everything comes anew
		t := &tip{r: r, conv: conv, have: have, pull: pullSome}
		file := have.ask
		have.ask = func(h plumbing.Hash, want plumbing.ObjectType) error {
			if want == plumbing.TreeObject {
				return t.folder(h)
			}
			return file(h, want)
		}
		if err := t.start(); err != nil {
			return nil, err
		}
	default:
		have.stored = nil // everything comes anew
		if !conv.shallow {
			one.depth = 0
		}
		if _, err := pull(one); err != nil {
			return nil, err
		}
	}
	return have, nil
}

// fewRevisions is up to how many it is cheaper to ask for all that has changed than folder by folder: a folder of a
// hundred devices has 3 KiB, a device's file and what changes in its folder 0.2 KiB.
const fewRevisions = 16

// largeFolder is from which size on a folder is to come as a change to the one that is stored.
const largeFolder = 16 << 10

func (r *remote) largeFolder(q question) bool {
	p, err := prove(q.stored, q.old, r.o.File, r.o.MaxFileBytes)
	return err == nil && slices.ContainsFunc(p.objects, func(o object) bool {
		return o.typ == plumbing.TreeObject && len(o.content) > largeFolder
	})
}

// revisions asks for the head, and if that is to descend from a stored revision, for all between the two: their number
// is returned.
func (r *remote) revisions(conv *conversation, have *objects, q question, accepted bool, pull func(wants) (*pack, error)) (int, error) {
	w := wants{want: conv.head, depth: 1, leave: foldersAndFiles}
	if r.o.History != FastForward || accepted || q.old.IsZero() || q.old == conv.head {
		_, err := pull(w)
		return math.MaxInt, err
	}
	between := w
	between.depth, between.have, have.between = 0, q.old, true
	p, err := pull(between)
	if errors.Is(err, errCaps) {
		have.tooLong = err
		_, err = pull(w)
		return math.MaxInt, err
	}
	if err != nil {
		return 0, err
	}
	return len(p.entries), nil
}

// pull makes one request and reads its pack. A step of any rung but the last has less time than the whole, so that the
// last has some.
func (r *remote) pull(ctx context.Context, conv *conversation, q wants, have *objects, g rung, limit int64) (*pack, error) {
	step := ctx
	if g != rungDepth1 {
		var cancel context.CancelFunc
		step, cancel = context.WithTimeoutCause(ctx, r.o.StepTimeout, errStep)
		defer cancel()
	}
	p, err := r.download(step, conv, q, have, limit)
	if err == nil {
		return p, nil
	}
	if step.Err() != nil && ctx.Err() == nil {
		return nil, fail(ErrOffline, "%w: %w", errStep, r.sorted(err))
	}
	// Here, because what is above cannot tell a broken link from a server that leaves something out.
	return nil, r.sorted(err)
}

func (r *remote) download(ctx context.Context, conv *conversation, q wants, have *objects, limit int64) (*pack, error) {
	body, err := conv.pack(ctx, q, limit)
	if err != nil {
		return nil, err
	}
	// A stream does not heed the context by itself: its process is the whole conversation's.
	if conv.line.stream() {
		defer context.AfterFunc(ctx, conv.abort)()
	}
	o := r.o
	for _, p := range have.fetched { // the bound is for all that one proof is made of
		o.MaxMemoryBytes -= p.kept
	}
	p, err := unpack(body, o, have.base)
	err = errors.Join(err, ignore(body))
	if errors.Is(err, errBytes) {
		err = fail(ErrTooLarge, "revision %s needs more than %d bytes: %w", short(conv.head), limit, errCaps)
	}
	return p, err
}

func ignore(c io.Closer) error { _ = c.Close(); return nil }

// objects is where a proof finds its links: in what has been fetched, then in what is stored, then by asking for them.
type objects struct {
	fetched []*pack
	stored  source                                         // may be nil
	ask     func(plumbing.Hash, plumbing.ObjectType) error // adds to fetched; may be nil
	asked   int
	tooLong error // why between was given up
	between bool  // fetched has all revisions between head and old that the server would give
}

func (o *objects) get(h plumbing.Hash, want plumbing.ObjectType) ([]byte, error) {
	b, err := o.find(h, want)
	// Revisions are not asked for one by one: see relate.
	if !errors.Is(err, plumbing.ErrObjectNotFound) || o.ask == nil || want == plumbing.CommitObject || o.asked > maxDepth {
		return b, err
	}
	o.asked++
	if err := o.ask(h, want); err != nil {
		return nil, err
	}
	return o.find(h, want)
}

func (o *objects) find(h plumbing.Hash, want plumbing.ObjectType) ([]byte, error) {
	for _, p := range o.fetched {
		b, err := p.get(h, want)
		if !errors.Is(err, plumbing.ErrObjectNotFound) {
			return b, err
		}
	}
	if b, ok := o.base(h, want); ok {
		return b, nil
	}
	return nil, plumbing.ErrObjectNotFound
}

// base returns what is stored under a hash. The store hashes what it reads; what it cannot read is asked for again.
func (o *objects) base(h plumbing.Hash, want plumbing.ObjectType) ([]byte, bool) {
	if o.stored == nil {
		return nil, false
	}
	b, err := o.stored.get(h, want)
	return b, err == nil
}

// committed is when a stored revision was made, as its maker's clock had it; zero if it is not stored.
func (o *objects) committed(h plumbing.Hash) time.Time {
	b, ok := o.base(h, plumbing.CommitObject)
	if !ok {
		return time.Time{}
	}
	r, err := parseRevision(b)
	if err != nil || r.committed.Unix() <= 0 {
		return time.Time{}
	}
	return r.committed
}
