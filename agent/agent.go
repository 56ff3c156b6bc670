// Package agent is the reconciler layer: it makes the device match the declared state, for ever.
//
// Two loops run side by side and share nothing but a wake-up:
//
//	git loop                              device loop
//	every repository.interval ±20 %       every device.interval, and at once when guard, device or git say so
//	┌──────────────┐  desired changed     ┌──────────────────────────────────────────────────────────┐
//	│ fetch, prove ├─────────wake────────▶│ read the lease ─ ask for the desired release ─ heartbeat │
//	└──────────────┘                      │ ─ observe, compare, write what drifted, observe again    │
//	                                      └──────────────────────────────────────────────────────────┘
//
// The git loop never touches the device and the device loop never waits for git: a server that hangs delays no repair. The
// heartbeat comes from the device loop, once per interval even while the device hangs.
//
// Everything is level-triggered. What the loop remembers (Memory, decide.go) is for a silent guard and for log lines; kill the
// agent anywhere, start it, and it does the right thing from what it sees. It writes nothing to disk but its clone.
//
// The agent cannot apply a release. It asks the guard for a trial of what git declares, and drives the device to what the
// guard's lease says. Decide is a pure function.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/agent/gitclone"
	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/journal"
	"holdfast/device"
	"holdfast/device/clock"
)

// guard is the part of the guard's socket that the loop needs.
type guard interface {
	Effective(ctx context.Context, wait *uint64) (api.Lease, error)
	Trial(ctx context.Context, r api.TrialRequest) (bootslot.Decision, error)
	Heartbeat(ctx context.Context, h api.Heartbeat) error
}

// driver brings the device to a target (device.Driver).
type driver interface {
	Drive(ctx context.Context, target func(context.Context) (device.Target, error)) device.Report
}

// watcher is the device's long-poll (device.Client).
type watcher interface {
	WaitState(ctx context.Context, tag string) (newTag string, err error)
}

// clone is the part of the state repository's local copy that the loops need (gitclone.Clone).
type clone interface {
	Fetch(ctx context.Context) (gitclone.Fetched, error)
	Desired() (gitclone.Desired, bool, error)
	Notices() []gitclone.Notice
	Accept(revision string) error
}

// Options are what an agent is made of. All but Writes, Notify and Problems are required.
type Options struct {
	Interval time.Duration // of the device loop
	Timeout  time.Duration // of one request to the device
	GitEvery time.Duration // of the git loop

	Guard   guard
	Driver  driver
	Watcher watcher
	// Writes is the device that Driver drives; nil if nobody remembers how its writes end.
	Writes  *Writes
	Clone   clone
	Profile device.Profile
	// Parse makes a validated release of a declared document (agent/desired), with its retry number.
	Parse func(name string, data []byte) (bootslot.Release, uint64, error)
	// Record returns what ledger.json says, nil if it has no active release or cannot be read.
	Record func() *Record
	// Suspended returns the suspension in force and what is left of it, 0 for none.
	Suspended func() (api.Suspension, time.Duration)

	Clock   clock.Clock
	Log     *slog.Logger
	Version string
	// Notify tells the service manager (sd_notify); nil for nobody.
	Notify func(state string)
	// WatchdogEvery is how often it wants to hear WATCHDOG=1, 0 for never.
	WatchdogEvery time.Duration
	// Problems are what was wrong before the agent was made: its configuration, its lock, its socket.
	Problems []string
}

// Agent is the two loops. Make one with New and Run it once.
type Agent struct {
	o       Options
	wakes   chan bool     // true: what is being driven to is out of date
	now     chan struct{} // fetch now
	beating atomic.Bool   // a heartbeat is on its way
	wg      sync.WaitGroup

	mu       sync.Mutex // guards what follows
	memory   Memory
	action   Action
	seen     seen
	told     told
	lastBeat api.Heartbeat
	parsed   parsed
	decision *bootslot.Decision
	git      gitState
	driving  time.Duration // uptime at which the running drive began, 0 if none runs
	cycles   uint64
	fetches  uint64
	refusals map[string]string // why the guard does not take our wish or heartbeat, by which
	changes  changes
	ready    bool
	line     string // what the service manager was told last
}

// seen is what the newest cycle saw of the device.
type seen struct {
	report  *device.Report
	leased  bool // it drove to Effective
	at      time.Duration
	cycle   uint64        // its number
	state   *device.State // the newest that any cycle saw
	stateAt time.Duration
}

// parsed is the clone's document as a release.
type parsed struct {
	revision string
	document string
	declared *status.Declared // nil if it does not parse
	problem  string
}

// New returns an agent. from is the one that it takes over from in the same process, when the configuration has changed; nil for none.
// What that knew of the guard's silence, and what it has said in the log, goes on.
func New(o Options, from *Agent) *Agent {
	if o.Notify == nil {
		o.Notify = func(string) {}
	}
	a := &Agent{o: o, wakes: make(chan bool, 1), now: make(chan struct{}, 1), changes: newChanges(),
		refusals: map[string]string{}, git: gitState{view: status.Git{State: status.GitUnknown}}}
	if from != nil {
		from.mu.Lock()
		defer from.mu.Unlock()
		a.memory, a.told, a.git, a.ready, a.line = from.memory, from.told, from.git, from.ready, from.line
		a.changes.n, a.cycles, a.fetches = from.changes.n+1, from.cycles, from.fetches
		a.parsed = parsed{declared: from.parsed.declared, problem: from.parsed.problem} // to be parsed again: the profile may be another
	}
	if a.memory.Started == 0 {
		a.memory.Started = o.Clock.Uptime()
	}
	return a
}

// Run runs both loops until ctx ends. It returns when the device loop is at rest; a fetch that does not heed its context is left behind.
func (a *Agent) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.deviceLoop(ctx) })
	g.Go(func() error { return a.gitLoop(ctx) })
	g.Go(func() error { return a.watchGuard(ctx) })
	g.Go(func() error { return a.watchDevice(ctx) })
	err := g.Wait()
	a.wg.Wait()
	return err
}

// Goodbye tells the guard that this agent was told to stop, so that it settles an open trial. Call it after Run.
func (a *Agent) Goodbye(ctx context.Context) {
	h, ok := a.heartbeat()
	if !ok {
		return
	}
	h.Goodbye = true
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	if err := a.o.Guard.Heartbeat(ctx, h); err != nil {
		_, why := status.Why(err)
		a.o.Log.InfoContext(ctx, "goodbye not heard", "event", journal.Goodbye, "error", why)
	}
}

// TrialLeft is for how long the newest lease says that a trial still runs, 0 for none. A guard that has died leaves none behind for longer.
func (a *Agent) TrialLeft() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.memory.Lease
	if l == nil {
		return 0
	}
	return max(0, a.memory.LeaseAt+time.Duration(l.TrialEndsInSeconds*float64(time.Second))-a.o.Clock.Uptime())
}

// wake makes the device loop run a cycle at once. outOfDate says that a running one drives to the wrong target.
func (a *Agent) wake(outOfDate bool) {
	select {
	case a.wakes <- outOfDate:
	default:
		if outOfDate { // the stronger word replaces the weaker
			select {
			case <-a.wakes:
			default:
			}
			select {
			case a.wakes <- true:
			default:
			}
		}
	}
}

// FetchNow makes the git loop fetch at once, and the device loop look again.
func (a *Agent) FetchNow() { a.Reconcile(true) }

// Reconcile makes the device loop look again at once and, with fetch, the git loop fetch. It says which fetch and which cycle that are.
func (a *Agent) Reconcile(fetch bool) Reconciling {
	a.mu.Lock()
	r := Reconciling{Cycle: a.cycles + 1}
	if fetch {
		r.Fetch = a.fetches + 1
		if a.git.view.Running { // the one that runs began before
			r.Fetch++
		}
	}
	a.mu.Unlock()
	if fetch {
		select {
		case a.now <- struct{}{}:
		default:
		}
	}
	a.wake(false)
	return r
}

// Status is the agent's own part of the view.
func (a *Agent) Status() status.Agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Clock.Uptime()
	s := status.Agent{
		Version: a.o.Version, PID: os.Getpid(), Change: a.changes.n,
		Declared: a.parsed.declared, CloneProblem: a.parsed.problem,
		Git:    a.git.status(now),
		Drives: a.action.Drives, Why: a.action.Why,
		Report:       a.seen.report,
		DeviceCycles: a.cycles, EndedCycle: a.seen.cycle, GitCycles: a.fetches,
		Problems: append([]string(nil), a.o.Problems...),
	}
	if a.action.Drives != status.DrivesNot {
		s.Target = a.action.Fields
	}
	if a.memory.Silent {
		s.GuardSilentSeconds = max(0.001, (now - a.memory.SilentSince).Seconds())
	}
	if a.o.Writes != nil {
		s.WriteError, s.WriteErrors = a.o.Writes.Last()
	}
	if s.Report != nil {
		s.ReportSecondsAgo = (now - a.seen.at).Seconds()
	}
	if a.driving != 0 && now-a.driving > a.o.Interval+a.o.Timeout {
		s.HangsSeconds = (now - a.driving).Seconds()
	}
	for _, what := range slices.Sorted(maps.Keys(a.refusals)) {
		s.Problems = append(s.Problems, fmt.Sprintf("the guard does not take the agent's %s: %s", what, a.refusals[what]))
	}
	for _, n := range a.o.Clone.Notices() {
		s.Problems = append(s.Problems, n.Text)
	}
	return s
}

// changes is a counter that somebody can wait on.
type changes struct {
	n uint64
	c chan struct{} // closed at the next change
}

func newChanges() changes { return changes{c: make(chan struct{})} }

// bump counts a change; a.mu is held.
func (c *changes) bump() {
	c.n++
	close(c.c)
	c.c = make(chan struct{})
}
