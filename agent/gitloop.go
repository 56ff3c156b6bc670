package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"holdfast/agent/gitclone"
	"holdfast/agent/status"
)

const (
	// backoffMax is the longest pause between two fetches of a server that cannot be reached.
	backoffMax = 10 * time.Minute
	// jitter keeps ten thousand boards that came back with the mains from asking in the same second.
	jitter = 0.2
)

// gitState is how it stands with the repository.
type gitState struct {
	view  status.Git
	since time.Duration // uptime of view.Since
	next  time.Duration // uptime of the next fetch
}

func (g gitState) status(now time.Duration) status.Git {
	v := g.view
	if !v.Running {
		v.NextInSeconds = max(0, (g.next - now).Seconds())
	}
	return v
}

// nextFetch is how long to wait after a fetch that ended with kind, "" for well, for the times-th time in a row. random is from 0 to 1.
// A server that answers is asked at the interval, whatever it says: what is wrong there may be mended with the next push.
// One that cannot be reached, or does not let us in, is asked ever more rarely.
func nextFetch(every time.Duration, kind gitclone.Kind, times int, random float64) time.Duration {
	wait := every
	switch kind {
	case "", gitclone.ErrFileInvalid, gitclone.ErrFileMissing, gitclone.ErrNotAFile, gitclone.ErrHistoryRewritten, gitclone.ErrBranchGone,
		gitclone.ErrRepositoryEmpty, gitclone.ErrTooLarge:
	default:
		for i := 1; i < times && wait < backoffMax; i++ {
			wait *= 2
		}
		wait = max(every, min(wait, backoffMax))
	}
	return time.Duration(float64(wait) * (1 + jitter*(2*random-1)))
}

// gitLoop fetches, for ever. It wakes the device loop when what is desired has changed, and knows nothing else of it.
func (a *Agent) gitLoop(ctx context.Context) error {
	for {
		a.mu.Lock()
		a.git.view.Running = true
		a.mu.Unlock()
		// Beside the loop: a fetch that does not heed its context must not keep the process from ending.
		type result struct {
			gitclone.Fetched
			err error
		}
		ended := make(chan result, 1)
		go func() {
			f, err := a.o.Clone.Fetch(ctx)
			ended <- result{f, err}
		}()
		var wait time.Duration
		select {
		case <-ctx.Done():
			return nil
		case r := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			wait = a.fetched(ctx, r.Fetched, r.err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.o.Clock.After(wait):
		case <-a.now:
		}
	}
}

// fetched takes in how a fetch ended, and returns how long to wait for the next.
func (a *Agent) fetched(ctx context.Context, f gitclone.Fetched, err error) time.Duration {
	now, wall := a.o.Clock.Uptime(), a.o.Clock.Now()
	kind := gitclone.KindOf(err)
	if err != nil && kind == "" {
		kind = gitclone.ErrProtocol
	}
	a.mu.Lock()
	a.fetches++
	g := &a.git
	old := g.view
	g.view.Running = false
	if f.Revision != "" {
		g.view.RemoteRevision = f.Revision
	}
	if kind == "" {
		g.view.State, g.view.Times, g.view.Message, g.view.Advice, g.view.LastFetch, g.view.Notices = status.GitOK, 0, "", "", wall, f.Notices
	} else {
		g.view.State, g.view.Message, g.view.Advice = string(kind), err.Error(), adviceOf(err)
		g.view.Times++
	}
	if old.State != g.view.State {
		g.view.Since, g.since = wall, now
		if kind != "" {
			g.view.Times = 1
		}
	}
	if old.State != g.view.State || old.Message != g.view.Message || old.RemoteRevision != g.view.RemoteRevision || !slices.Equal(old.Notices, g.view.Notices) {
		a.changes.bump()
	}
	a.told.fetched(ctx, a.o.Log, old, g.view, now)
	wait := nextFetch(a.o.GitEvery, kind, g.view.Times, rand.Float64())
	g.next = now + wait
	first := a.fetches == 1
	a.mu.Unlock()
	if f.Changed {
		a.wake(false)
	}
	if f.Changed || first {
		debug.FreeOSMemory() // the start and a fetch take some MB that are not needed again for days
	}
	return wait
}

func adviceOf(err error) string {
	var e *gitclone.Error
	if errors.As(err, &e) {
		return e.Advice
	}
	return ""
}
