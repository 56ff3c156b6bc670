package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/agent/gitclone"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/journal"
	"holdfast/device"
	"holdfast/device/clock"
)

// world is an agent with everything around it made up, in a synctest bubble: time passes only when all are waiting.
type world struct {
	t       *testing.T
	clock   clock.Clock
	guard   *fakeGuard
	device  *fakeDevice
	clone   *fakeClone
	log     *logged
	record  *Record
	suspend atomic.Pointer[api.Suspension]
	dog     time.Duration // Options.WatchdogEvery
	every   time.Duration // Options.Interval
	notes   logged        // what the service manager was told
	agent   *Agent
	stop    func()
}

const (
	every   = 8 * time.Second
	timeout = 2 * time.Second
)

// inWorld runs a test in a bubble of its own.
func inWorld(t *testing.T, f func(*world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ck := clock.NewProcess()
		w := &world{t: t, clock: ck, log: &logged{}, every: every}
		w.guard = &fakeGuard{clock: ck, lease: api.Lease{Generation: 1, Fields: proven, Proven: proven, Instance: "one"}, changed: make(chan struct{}), reads: map[time.Duration]bool{}}
		w.device = &fakeDevice{clock: ck, actuators: map[string]string{"vent": "off", "lamp": "off"}, changed: make(chan struct{})}
		w.clone = &fakeClone{hang: make(chan struct{})}
		f(w)
		if w.stop != nil {
			w.stop()
		}
		close(w.clone.hang)
		time.Sleep(time.Minute) // what heeds no context comes to its end
	})
}

// start starts an agent with nothing in its memory.
func (w *world) start() { w.startFrom(nil) }

func (w *world) startFrom(old *Agent) {
	w.agent = New(Options{
		Interval: w.every, Timeout: timeout, GitEvery: 30 * time.Second,
		Guard: w.guard, Driver: device.NewDriver(w.device, house, w.clock, every), Watcher: w.device, Clone: w.clone,
		Profile: house, Parse: parseHouse,
		Record: func() *Record { return w.record },
		Suspended: func() (api.Suspension, time.Duration) {
			s := w.suspend.Load()
			if s == nil {
				return api.Suspension{}, 0
			}
			return *s, max(0, time.Duration(s.UntilUptimeSeconds*float64(time.Second))-w.clock.Uptime())
		},
		Clock: w.clock, Log: slog.New(w.log), Version: "test",
		Notify: w.notes.add, WatchdogEvery: w.dog,
	}, old)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.agent.Run(ctx) }()
	w.stop = func() {
		w.stop = nil
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

// suspendFor is `holdfast suspend`.
func (w *world) suspendFor(d time.Duration, repair bool) {
	w.suspend.Store(&api.Suspension{UntilUptimeSeconds: (w.clock.Uptime() + d).Seconds(), Repair: repair})
}

// pass lets time go by, to just before the next thing would happen.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func parseHouse(name string, data []byte) (bootslot.Release, uint64, error) {
	f := device.Fields{}
	for _, kv := range strings.Fields(string(data)) {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return bootslot.Release{}, 0, fmt.Errorf("%s: %q is no field", name, kv)
		}
		f[k] = v
	}
	return bootslot.Release{Fields: f}, 0, nil
}

// fakeGuard hands out whatever lease it was told to.
type fakeGuard struct {
	clock clock.Clock

	mu      sync.Mutex
	lease   api.Lease
	changed chan struct{}
	silent  bool          // it does not answer at all, as if stopped
	slow    time.Duration // before each answer
	mean    bool          // it gives no lease
	decide  func(*fakeGuard, api.TrialRequest) bootslot.Decision
	wishes  []api.TrialRequest
	beats   []api.Heartbeat
	beatAt  []time.Duration
	refuse  error
	// lastTrialAt is when decide opened a trial.
	lastTrialAt time.Duration
	reads       map[time.Duration]bool // uptimes at which a lease was asked for
}

func (g *fakeGuard) set(l api.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLocked(l)
}

func (g *fakeGuard) setLocked(l api.Lease) {
	g.lease = l
	close(g.changed)
	g.changed = make(chan struct{})
}

// do changes how the guard behaves.
func (g *fakeGuard) do(f func(*fakeGuard)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(g)
}

func (g *fakeGuard) setSilent(s bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.silent = s
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *fakeGuard) answer(ctx context.Context) error {
	g.mu.Lock()
	silent, slow := g.silent, g.slow
	g.mu.Unlock()
	if silent {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", api.ErrSilent, ctx.Err())
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", api.ErrSilent, ctx.Err())
	case <-time.After(slow):
		return nil
	}
}

func (g *fakeGuard) Effective(ctx context.Context, wait *uint64) (api.Lease, error) {
	g.mu.Lock()
	g.reads[g.clock.Uptime()] = true
	mean := g.mean
	g.mu.Unlock()
	if mean {
		return api.Lease{}, api.ErrSilent
	}
	if wait != nil {
		end := time.After(api.LongPoll)
		for {
			g.mu.Lock()
			same, changed, silent := g.lease.Generation == *wait, g.changed, g.silent
			g.mu.Unlock()
			if !same && !silent {
				break
			}
			select {
			case <-changed:
				continue
			case <-end:
			case <-ctx.Done():
				return api.Lease{}, ctx.Err()
			}
			break
		}
	}
	if err := g.answer(ctx); err != nil {
		return api.Lease{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lease, nil
}

func (g *fakeGuard) Trial(ctx context.Context, r api.TrialRequest) (bootslot.Decision, error) {
	if err := g.answer(ctx); err != nil {
		return bootslot.Decision{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wishes = append(g.wishes, r)
	if g.refuse != nil {
		return bootslot.Decision{}, g.refuse
	}
	if g.decide == nil {
		return bootslot.Decision{Kind: bootslot.Same}, nil
	}
	return g.decide(g, r), nil
}

func (g *fakeGuard) Heartbeat(ctx context.Context, h api.Heartbeat) error {
	if err := g.answer(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.beats = append(g.beats, h)
	g.beatAt = append(g.beatAt, g.clock.Uptime())
	return g.refuse
}

// fakeDevice remembers when it was written to.
type fakeDevice struct {
	clock clock.Clock

	mu        sync.Mutex
	actuators map[string]string
	changed   chan struct{}
	tag       int
	hangs     bool
	away      bool
	slow      time.Duration // to answer GET /state
	slowWrite time.Duration // between the decision to write and the write
	refuses   map[string]string
	forgets   []string // fields that a write does not change
	writes    []write
	looks     int
}

type write struct {
	at  time.Duration
	set device.Fields
}

var errAway = errors.New("connection refused")

func (d *fakeDevice) state() device.State {
	a := map[string]string{}
	for k, v := range d.actuators {
		a[k] = v
	}
	return device.State{Actuators: a, Readings: map[string]float64{"temperature": 20 + float64(d.looks%7)}}
}

func (d *fakeDevice) State(ctx context.Context) (device.State, error) {
	d.mu.Lock()
	hangs, slow, away := d.hangs, d.slow, d.away
	d.looks++
	d.mu.Unlock()
	if away {
		return device.State{}, errAway
	}
	if hangs {
		<-ctx.Done()
		return device.State{}, ctx.Err()
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return device.State{}, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state(), nil
}

func (d *fakeDevice) Apply(ctx context.Context, set device.Fields, before func() error) (device.State, error) {
	d.mu.Lock()
	slow := d.slowWrite
	d.mu.Unlock()
	time.Sleep(slow)
	if err := before(); err != nil {
		return device.State{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range set {
		if msg := d.refuses[k]; msg != "" {
			return device.State{}, &device.RefusedError{Message: msg}
		}
	}
	d.writes = append(d.writes, write{d.clock.Uptime(), set.Clone()})
	for k, v := range set {
		if !slices.Contains(d.forgets, k) {
			d.actuators[k] = v
		}
	}
	d.bump()
	return d.state(), nil
}

func (d *fakeDevice) bump() {
	d.tag++
	close(d.changed)
	d.changed = make(chan struct{})
}

// set changes how the device behaves.
func (d *fakeDevice) set(f func(*fakeDevice)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// turn is somebody at the knobs.
func (d *fakeDevice) turn(field, value string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.actuators[field] = value
	d.bump()
}

func (d *fakeDevice) get(field string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.actuators[field]
}

// WaitState has no hint to give while the device hangs or is away.
func (d *fakeDevice) WaitState(ctx context.Context, tag string) (string, error) {
	d.mu.Lock()
	now, changed, dumb := fmt.Sprint(d.tag), d.changed, d.hangs || d.away
	d.mu.Unlock()
	switch {
	case dumb:
		return "", errAway
	case tag != now:
		return now, nil
	}
	select {
	case <-changed:
	case <-time.After(25 * time.Second):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.tag), nil
}

func (d *fakeDevice) written() []write {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.writes)
}

// fakeClone is a repository whose fetches end as they are told to.
type fakeClone struct {
	mu      sync.Mutex
	desired *gitclone.Desired
	next    *gitclone.Desired // what the next fetch finds
	err     error
	hangs   bool
	hang    chan struct{} // closed when the test is over
	fetches []time.Time
	slow    func() // called in each Desired, if not nil
	notices []string
	own     []gitclone.Notice
}

func (c *fakeClone) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *fakeClone) push(revision, data string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = &gitclone.Desired{Revision: revision, Subject: "about " + revision, Author: "ann", File: "house.yaml", Data: []byte(data)}
}

func (c *fakeClone) Fetch(context.Context) (gitclone.Fetched, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetches = append(c.fetches, time.Now())
	if c.hangs { // and heeds nothing
		c.mu.Unlock()
		<-c.hang
		c.mu.Lock()
	}
	if c.err != nil {
		return gitclone.Fetched{}, c.err
	}
	if c.next == nil {
		return gitclone.Fetched{}, nil
	}
	f := gitclone.Fetched{Revision: c.next.Revision, Changed: c.desired == nil || c.desired.Revision != c.next.Revision, Notices: c.notices}
	c.desired = c.next
	return f, nil
}

func (c *fakeClone) Desired() (gitclone.Desired, bool, error) {
	c.mu.Lock()
	if slow := c.slow; slow != nil {
		c.mu.Unlock()
		slow()
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if c.desired == nil {
		return gitclone.Desired{}, false, nil
	}
	return *c.desired, true, nil
}
func (c *fakeClone) Notices() []gitclone.Notice {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}
func (c *fakeClone) Accept(string) error { return nil }

// logged counts log lines.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(ctx context.Context, r slog.Record) error {
	var b bytes.Buffer
	r.Time = time.Time{}
	if err := journal.New(&b, "holdfast").Handle(ctx, r); err != nil {
		return err
	}
	l.add(strings.TrimSpace(b.String()))
	return nil
}

func (l *logged) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, s)
}

// count is how many lines have part.
func (l *logged) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, s := range l.lines {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

func (l *logged) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}
