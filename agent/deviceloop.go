package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/journal"
	"holdfast/device"
)

const (
	// leaseTime is how long to wait for a lease: one that took longer would be too old to write with.
	leaseTime = 2 * time.Second
	// driveTimeouts bounds a cycle, in time-outs of the device: a sequence of single writes to a slow device.
	driveTimeouts = 15
	// noticeTime is how long the device loop may take to see for itself that the lease has changed.
	noticeTime = 100 * time.Millisecond
	// cycleSlack is how much longer than that a cycle may take for all else: the guard's answers, a clone that is being written on a slow disk.
	cycleSlack = 30 * time.Second
	// readyTime is after how long the agent is ready if its first cycle has not ended: it drives the device as soon as that answers.
	readyTime = 10 * time.Second
	// stopTime is how long a cycle that was told to end may take for it.
	stopTime = 3 * time.Second
)

// errNoTarget stops a drive before it compares: the device is looked at and nothing is written.
var errNoTarget = errors.New("nobody drives")

// errOtherTarget stops a drive in mid-sequence: what it drives to is not what the device is to be any more.
var errOtherTarget = errors.New("the target has changed; the next cycle takes it")

// deviceLoop runs cycles, one at a time, each beside the loop itself: a device that hangs holds up its cycle for as long as its time-outs last, and neither the
// heartbeat nor the watchdog. A cycle that does not end by then hangs by itself: the guard hears nothing more and drives, the service manager hears nothing more
// and starts this process anew.
func (a *Agent) deviceLoop(ctx context.Context) error {
	ck, every := a.o.Clock, a.o.Interval
	var (
		due      = ck.Uptime()
		tick     = ck.After(0)
		ready    = ck.After(readyTime)
		watchdog <-chan time.Time
		began    time.Duration // uptime at which the newest cycle began
		running  bool
		stop     context.CancelFunc
		done     = make(chan struct{}, 1)
		again    bool             // a wake-up came while a cycle ran
		later    <-chan time.Time // a wake-up came too soon after a cycle began
	)
	if a.o.WatchdogEvery > 0 {
		watchdog = ck.After(0)
	}
	stuck := func() bool { return running && ck.Uptime()-began > driveTimeouts*a.o.Timeout+cycleSlack }
	start := func(regular bool) {
		var cctx context.Context
		cctx, stop = context.WithCancel(ctx)
		running, began, later = true, ck.Uptime(), nil
		go func() {
			a.cycle(cctx, ctx, regular)
			done <- struct{}{}
		}()
	}
	// soon begins a cycle for a wake-up, but not more than eight per interval: a device that flips for ever must not make
	// the loop spin.
	soon := func() {
		if wait := began + every/8 - ck.Uptime(); wait > 0 {
			if later == nil {
				later = ck.After(wait)
			}
			return
		}
		start(false)
	}
	for {
		select {
		case <-ctx.Done():
			if running {
				stop()
				select {
				case <-done:
				case <-ck.After(stopTime):
				}
			}
			return nil
		case <-watchdog:
			watchdog = ck.After(a.o.WatchdogEvery)
			if !stuck() {
				a.o.Notify("WATCHDOG=1")
			}
		case <-ready:
			a.beReady()
		case <-tick:
			now := ck.Uptime()
			if due += every; due <= now { // the clock jumped, or the board was asleep
				due = now + every
			}
			tick = ck.After(due - now)
			if !running {
				start(true)
			} else if !stuck() {
				a.beat(ctx)
			}
		case outOfDate := <-a.wakes:
			if !running {
				soon()
				continue
			}
			again = true
			if outOfDate {
				stop()
			}
		case <-later:
			later = nil
			if !running {
				start(false)
			}
		case <-done:
			stop()
			running = false
			if again {
				again = false
				soon()
			}
		}
	}
}

// beReady says READY=1 once: when the first cycle has ended, or after readyTime if it hangs.
func (a *Agent) beReady() {
	a.mu.Lock()
	was := a.ready
	a.ready = true
	a.mu.Unlock()
	if !was {
		a.o.Notify("READY=1")
	}
}

// cycle is one round of the device loop. A regular one sends the heartbeat of its interval; every one sends another
// when there is something new to tell. ctx ends with the cycle, loop with the loop: heartbeats are the loop's.
func (a *Agent) cycle(ctx, loop context.Context, regular bool) {
	a.mu.Lock()
	a.cycles++
	number := a.cycles
	a.mu.Unlock()

	act, lease := a.look(ctx)
	declared := a.desired(ctx) // read in any case: status tells it with no guard, too
	if lease != nil && declared != nil && a.ask(ctx, *lease, *declared) {
		act, _ = a.look(ctx)
	}
	if regular || a.news() {
		a.beat(loop)
	}

	a.mu.Lock()
	a.driving = a.o.Clock.Uptime()
	a.mu.Unlock()
	report, target := a.drive(ctx, act)
	a.mu.Lock()
	a.driving = 0
	a.mu.Unlock()

	if ctx.Err() != nil && len(report.Written) == 0 {
		return // it was cut off; what it has to say of the device is about that
	}
	a.record(ctx, number, report, target)
	if a.news() {
		a.beat(loop)
	}
	a.beReady()
	a.tellManager()
}

// tellManager gives the service manager one line (STATUS=) when it has changed. It has no seconds that count down.
func (a *Agent) tellManager() {
	a.mu.Lock()
	line := ""
	switch d := a.decision; {
	case a.action.Drives != status.DrivesEffective:
		line = a.action.Why
	case a.seen.report != nil && !a.seen.report.Answered:
		line = "the device does not answer"
	case a.parsed.declared == nil:
		line = "nothing is declared yet; keeping last-known-good"
	case d == nil || d.Kind == bootslot.Same:
		line = "as declared"
	case d.Kind == bootslot.Held:
		line = "keeping last-known-good; " + d.Reason
	case d.Kind == bootslot.Trying:
		line = "a trial runs"
	default:
		line = "keeping last-known-good; the declared state is not tried yet"
	}
	changed := line != a.line
	a.line = line
	a.mu.Unlock()
	if changed {
		a.o.Notify("STATUS=" + line)
	}
}

// look reads the lease and everything else that a decision depends on, decides, and remembers. lease is nil if the guard gave none.
func (a *Agent) look(ctx context.Context) (Action, *api.Lease) {
	f := Facts{Fallback: a.o.Profile.Fallback, Profile: a.o.Profile, Interval: a.o.Interval, LeaseAt: a.o.Clock.Uptime()}
	lctx, cancel := context.WithTimeout(ctx, leaseTime)
	l, err := a.o.Guard.Effective(lctx, nil)
	cancel()
	switch {
	case err == nil:
		f.Lease = &l
	case ctx.Err() != nil: // it is we who stop: that says nothing of the guard
		a.mu.Lock()
		defer a.mu.Unlock()
		return Action{Drives: status.DrivesNot, Why: "stopping"}, nil
	}
	suspension, left := a.o.Suspended()
	f.RepairSuspended = left > 0 && suspension.Repair
	f.RepairRested = f.RepairSuspended && suspension.Rested

	if f.Lease == nil {
		f.Record = a.o.Record()
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.seen.state; s != nil {
		f.Observed, f.ObservedAt = s.Actuators, a.seen.stateAt
	}
	f.Now = a.o.Clock.Uptime()
	before := a.action
	a.memory, a.action = Decide(a.memory, f)
	if before.Drives != a.action.Drives || before.Generation != a.action.Generation || !before.Fields.Equal(a.action.Fields) || before.Why != a.action.Why {
		a.changes.bump()
	}
	a.told.drives(ctx, a.o.Log, a.action, a.memory, f.Now, err)
	return a.action, f.Lease
}

// ask asks the guard for what git declares, and reports whether the lease is another one by that.
func (a *Agent) ask(ctx context.Context, lease api.Lease, d status.Declared) (leaseChanged bool) {
	dec, err := a.o.Guard.Trial(ctx, api.TrialRequest{Release: d.Release(), Revision: d.Revision, Origin: d.Origin(), Retry: d.Retry})
	if ctx.Err() != nil {
		return false
	}
	a.refused(ctx, "wish", err)
	if err != nil {
		return false
	}
	a.mu.Lock()
	if a.told.decided(ctx, a.o.Log, dec, d) {
		a.changes.bump()
	}
	first := a.decision == nil || a.decision.Kind != dec.Kind || a.decision.Digest != dec.Digest
	a.decision = &dec
	a.mu.Unlock()
	runs := dec.Kind == bootslot.Trying || dec.Kind == bootslot.Waiting
	return first || runs != (lease.TrialEndsInSeconds > 0)
}

// refused notes whether the guard takes what ("wish" or "heartbeat") from us. It answers, but says no: mostly the agent does not run
// as the user that it should. Silence is another matter.
func (a *Agent) refused(ctx context.Context, what string, err error) {
	var se *api.StatusError
	if err != nil && !errors.As(err, &se) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old, was := a.refusals[what]
	switch {
	case err == nil && was:
		delete(a.refusals, what)
		a.o.Log.InfoContext(ctx, "guard takes the agent's word again", "event", journal.GuardRefusesOver, "what", what)
	case err != nil && old != se.Message:
		a.refusals[what] = se.Message
		a.o.Log.WarnContext(ctx, "guard refuses the agent", "event", journal.GuardRefuses, "what", what, "error", se.Message)
	default:
		return
	}
	a.changes.bump()
}

// drive brings the device to act's target, which it returns, or looks at it only.
func (a *Agent) drive(ctx context.Context, act Action) (device.Report, device.Fields) {
	ctx, cancel := context.WithTimeout(ctx, driveTimeouts*a.o.Timeout)
	defer cancel()
	first, changed := true, false
	report := a.o.Driver.Drive(ctx, func(ctx context.Context) (device.Target, error) {
		at := act
		if !first || !at.fresh(a.o.Clock.Uptime()) {
			at, _ = a.look(ctx)
		}
		if !first && (at.Drives != act.Drives || !at.Fields.Equal(act.Fields)) {
			changed = true
			return device.Target{}, errOtherTarget
		}
		first, act = false, at
		if at.Drives == status.DrivesNot {
			return device.Target{}, errNoTarget
		}
		return at.target(), nil
	})
	switch {
	case changed:
		report.Error = "" // it is ours, not the device's
		a.wake(false)
	case act.Drives == status.DrivesNot && report.Answered && report.Observed != nil:
		report.Error = ""
		report.Drift = device.Diff(a.o.Profile, act.Fields, report.Observed.Actuators)
		report.Left = report.Drift
	}
	a.mu.Lock()
	a.seen.leased = act.Drives == status.DrivesEffective
	a.mu.Unlock()
	if act.Drives == status.DrivesNot {
		return report, nil
	}
	return report, act.Fields
}

// record takes in what the cycle of that number saw.
func (a *Agent) record(ctx context.Context, number uint64, r device.Report, target device.Fields) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Clock.Uptime()
	if old := a.seen.report; old == nil || differs(*old, r) {
		a.changes.bump()
	}
	a.seen.report, a.seen.at, a.seen.cycle = &r, now, number
	if r.Observed != nil {
		a.seen.state, a.seen.stateAt = r.Observed, now
	} else {
		a.seen.state = nil
	}
	a.told.saw(ctx, a.o.Log, r, target, now)
}

// differs reports whether two reports differ in more than readings and times.
func differs(a, b device.Report) bool {
	return a.Answered != b.Answered || a.Generation != b.Generation || !slices.Equal(a.Left, b.Left) || !slices.Equal(a.Written, b.Written) ||
		!maps.Equal(a.Refused, b.Refused) || !slices.Equal(a.NonConvergent, b.NonConvergent) || !slices.Equal(a.Contended, b.Contended) ||
		!slices.Equal(a.Unknown, b.Unknown)
}

// desired returns what git declares, nil if nothing valid does.
func (a *Agent) desired(ctx context.Context) *status.Declared {
	d, ok, err := a.o.Clone.Desired()
	notices := a.o.Clone.Notices()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told.storage(ctx, a.o.Log, notices)
	p := parsed{}
	switch {
	case err != nil:
		p.problem = err.Error()
	case !ok:
	case a.parsed.revision == d.Revision && a.parsed.document == string(d.Data):
		return a.parsed.declared
	default:
		p.revision, p.document = d.Revision, string(d.Data)
		if r, retry, err := a.o.Parse(d.File, d.Data); err != nil {
			// It was valid when it was published: the board's profile has changed since.
			p.problem = fmt.Sprintf("revision %s is not valid for this board: %v", d.Revision, err)
		} else {
			p.declared = status.NewDeclared(d, r, retry)
		}
	}
	if !reflect.DeepEqual(p, a.parsed) {
		if p.problem != a.parsed.problem || !reflect.DeepEqual(p.declared, a.parsed.declared) {
			a.told.desired(ctx, a.o.Log, a.parsed.declared, p)
		}
		a.parsed = p
		a.changes.bump()
	}
	return a.parsed.declared
}

// heartbeat is what the guard is to know now; false if there is no lease that it could be about.
func (a *Agent) heartbeat() (api.Heartbeat, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.memory.Lease
	if l == nil {
		return api.Heartbeat{}, false
	}
	h := api.Heartbeat{Generation: l.Generation, Instance: l.Instance}
	if r := a.seen.report; r != nil && a.seen.leased && r.Generation == l.Generation {
		h.Refused, h.NonConvergent, h.Contended = r.Refused, r.NonConvergent, r.Contended
	}
	return h, true
}

// news reports whether the heartbeat would say something that the last one did not.
func (a *Agent) news() bool {
	h, ok := a.heartbeat()
	a.mu.Lock()
	defer a.mu.Unlock()
	return ok && (h.Generation != a.lastBeat.Generation || h.Instance != a.lastBeat.Instance ||
		!maps.Equal(h.Refused, a.lastBeat.Refused) || !slices.Equal(h.NonConvergent, a.lastBeat.NonConvergent) || !slices.Equal(h.Contended, a.lastBeat.Contended))
}

// beat sends a heartbeat without waiting for it. While one is on its way no other is sent; what is new by then follows it. Nor is any sent that
// would be about a lease which was not given again: the guard would count on an agent that goes its own way.
func (a *Agent) beat(loop context.Context) {
	h, ok := a.heartbeat()
	if _, silent := a.knownLease(); silent || !ok || loop.Err() != nil || !a.beating.CompareAndSwap(false, true) {
		return
	}
	a.mu.Lock()
	a.lastBeat = h
	a.mu.Unlock()
	// One that has been sent is not called back: at the loop's end too the guard may hear it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(loop), leaseTime)
	a.wg.Go(func() {
		defer cancel()
		a.refused(ctx, "heartbeat", a.o.Guard.Heartbeat(ctx, h))
		a.beating.Store(false)
		if a.news() {
			a.beat(loop)
		}
	})
}

// watchGuard wakes the device loop when the guard hands out another lease.
func (a *Agent) watchGuard(ctx context.Context) error {
	for ctx.Err() == nil {
		known, silent := a.knownLease()
		if silent { // the device loop finds the guard, once per interval
			a.sleep(ctx, a.o.Interval/4)
			continue
		}
		asked := a.o.Clock.Uptime()
		l, err := a.o.Guard.Effective(ctx, &known.Generation)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			a.wake(false) // perhaps it died: the device loop finds out
			a.sleep(ctx, a.o.Interval)
		case l.Generation != known.Generation || l.Instance != known.Instance:
			// Mostly the device loop caused it, by asking, and is about to read the lease itself.
			a.sleep(ctx, noticeTime)
			if now, _ := a.knownLease(); now.Generation == known.Generation && now.Instance == known.Instance {
				a.wake(true)
				a.sleep(ctx, a.o.Interval/4) // until it has read it
			}
		case a.o.Clock.Uptime()-asked < time.Second: // a guard that does not wait
			a.sleep(ctx, a.o.Interval)
		}
	}
	return nil
}

// knownLease is the newest lease; silent without one, or while the guard does not answer.
func (a *Agent) knownLease() (l api.Lease, silent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.memory.Lease == nil || a.memory.Silent {
		return api.Lease{}, true
	}
	return *a.memory.Lease, false
}

// watchDevice wakes the device loop when the device says that its actuators have changed. It is a hint: a device without it is
// looked at once per interval.
func (a *Agent) watchDevice(ctx context.Context) error {
	tag := ""
	for ctx.Err() == nil {
		next, err := a.o.Watcher.WaitState(ctx, tag)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			tag = ""
			a.sleep(ctx, a.o.Interval)
		case next == "": // it has no tags, or does not wait
			tag = ""
			a.sleep(ctx, max(a.o.Interval, time.Minute))
		case next != tag:
			if tag != "" {
				a.wake(false)
			}
			tag = next
		}
	}
	return nil
}

func (a *Agent) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-a.o.Clock.After(d):
	}
}
