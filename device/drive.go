package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/device/clock"
)

// TargetTTL is how old a lease may be when a write, retries included, goes out (docs/design.md, "Driving").
const TargetTTL = 3 * time.Second

// ErrStale reports that a write was not sent because its target was too old; the next cycle reads a new one.
var ErrStale = errors.New("the lease is too old to write with")

// Target is what the device is to be now, and the uptime at which that was asked for (not answered).
type Target struct {
	Generation uint64
	Fields     Fields
	ReadAt     time.Duration
}

// Expired reports whether nothing may be sent with t any more at uptime now. An age below zero is no age: such a target is from before a reboot, or
// from another clock.
func (t Target) Expired(now time.Duration) bool {
	age := now - t.ReadAt
	return age < 0 || age > TargetTTL
}

// Report is what one Drive saw and did; the agent tells the guard (heartbeat).
type Report struct {
	Generation uint64 `json:"generation"`
	// Answered says that the device answered GET /state in this cycle, Error what went wrong otherwise or later.
	Answered bool   `json:"answered"`
	Error    string `json:"error,omitempty"`
	// Observed is the newest state seen in this cycle (after the writes, if there were any), nil if none.
	Observed *State `json:"observed,omitempty"`
	// Drift is what differed before the writes, Left what still differs after them.
	Drift []Drift `json:"drift,omitempty"`
	Left  []Drift `json:"left,omitempty"`
	// Written are the fields for which a write was accepted, in order.
	Written []string `json:"written,omitempty"`
	// Refused maps a field whose value the device answered with 400 to its message.
	Refused map[string]string `json:"refused,omitempty"`
	// NonConvergent are fields that read back different right after each successful write;
	// Contended fields converge, and drift again often. Unknown actuators are left alone.
	NonConvergent []string `json:"nonConvergent,omitempty"`
	Contended     []string `json:"contended,omitempty"`
	Unknown       []string `json:"unknown,omitempty"`
}

// Converged reports whether the device answered and reads back its target.
func (r Report) Converged() bool { return r.Answered && len(r.Left) == 0 && r.Error == "" }

// contract is the part of the client that driving needs.
type contract interface {
	State(ctx context.Context) (State, error)
	Apply(ctx context.Context, set Fields, before func() error) (State, error)
}

const (
	// nonConvergentAfter is how many successful writes in a row a field must read back different after.
	nonConvergentAfter = 2
	// contendedAfter drifts from a state that had been reached, within contendedWindow cycles, make a field contended.
	contendedAfter  = 3
	contendedWindow = 10
	// maxPause caps the growing pauses: a device that is mended is noticed within that time.
	maxPause = 10 * time.Minute
	// reuseTarget is how old a target may be to write with it without asking again. Older ones (the device was slow to
	// answer) would come too close to TargetTTL.
	reuseTarget = time.Second
)

// Driver brings a device to a target and remembers, in memory only, which fields to leave in peace for a
// while: those that it refuses and those that never converge get growing pauses (interval * 2^n, 10 min at most). What is
// remembered of a field is forgotten when its target value changes, and with the process: nothing here is a verdict.
//
// In one cycle a field goes through at most
//
//	drifted ──write──▶ accepted ──read back──▶ settled            (drifts later: corrected at once; often: contended)
//	   │                  └───────different──▶ again next cycle   (twice in a row: non-convergent, paused)
//	   └────write──▶ 400 ──▶ refused, paused
type Driver struct {
	c        contract
	p        Profile
	clock    clock.Clock
	interval time.Duration

	mu     sync.Mutex // one Drive at a time
	fields map[string]*memory
	// oneByOne says that the last request for several keys ended in a 5xx. Such a device may choke on one of
	// them, so the next cycle sends them one at a time and the others get through.
	oneByOne bool
}

// memory is what a driver remembers of one field.
type memory struct {
	want string // the target value that all of it is about

	refusals int    // 400s since the last accepted write
	message  string // of the last one
	diverged int    // successful writes in a row that read back different
	until    time.Duration

	settled bool            // it has read back want, and not drifted since
	drifts  []time.Duration // uptimes at which it had drifted from settled, within the window
}

// NewDriver returns a driver. interval is the time between two cycles; pauses grow from it.
func NewDriver(c contract, p Profile, ck clock.Clock, interval time.Duration) *Driver {
	return &Driver{c: c, p: p, clock: ck, interval: interval, fields: map[string]*memory{}}
}

// Drive observes, compares, writes only what has drifted, in the profile's order, and observes again. target is called
// for the target at the start and anew before each write of a sequence (before the first one only if the device was slow
// to answer); no write goes out later than TargetTTL after its target's ReadAt. All drifted keys go in one request; after a 400 they
// go one at a time, so that a refused key never stops the others. When target reports an error nothing is written; when it
// returns another generation in mid-sequence the cycle stops writing there, and the next one takes it.
//
// A cycle takes at most some time-outs of the client when the device answers slowly or not at all (more in
// a sequence); a caller that owes somebody a heartbeat meanwhile sends it from elsewhere, or bounds ctx.
func (d *Driver) Drive(ctx context.Context, target func(context.Context) (Target, error)) Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	cy := cycle{Driver: d, read: target}
	cy.run(ctx)
	return cy.report
}

// cycle is one Drive.
type cycle struct {
	*Driver
	read   func(context.Context) (Target, error)
	target Target
	report Report
	errs   []error
	sent   bool // something may have reached the device
	// echoed is what the writes' own answers showed of the fields that they set.
	echoed map[string]string
	// answer is the newest answer to a write, nil if there was none.
	answer *State
}

func (cy *cycle) run(ctx context.Context) {
	r := &cy.report
	defer func() {
		if err := errors.Join(cy.errs...); err != nil {
			r.Error = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}()

	var targetErr error
	if cy.target, targetErr = cy.read(ctx); targetErr != nil {
		cy.errs = append(cy.errs, fmt.Errorf("cannot read the target: %w", targetErr))
	}
	s, err := cy.c.State(ctx)
	if err != nil {
		r.Generation = cy.target.Generation
		cy.errs = append(cy.errs, err)
		return
	}
	r.Answered, r.Observed = true, &s
	r.Unknown = Unknown(cy.p, s.Actuators)
	if targetErr != nil {
		return // what the device shows is reported, but there is nothing to compare it with
	}
	r.Generation = cy.target.Generation
	r.Drift = Diff(cy.p, cy.target.Fields, s.Actuators)
	r.Left = r.Drift
	cy.recall()
	if due := cy.due(); len(due) > 0 {
		if cy.write(ctx, due); cy.sent {
			cy.verify(ctx)
		}
	}
	cy.tell()
}

// recall brings the memory up to this cycle's target and observation.
func (cy *cycle) recall() {
	now := cy.clock.Uptime()
	maps.DeleteFunc(cy.fields, func(field string, m *memory) bool {
		want, ok := cy.target.Fields[field]
		return !ok || want != m.want
	})
	for field, want := range cy.target.Fields {
		m := cy.fields[field]
		if m == nil {
			m = &memory{want: want}
			cy.fields[field] = m
		}
		m.drifts = slices.DeleteFunc(m.drifts, func(t time.Duration) bool {
			return now-t > contendedWindow*cy.interval
		})
		switch drifted := has(cy.report.Drift, field); {
		case !drifted:
			*m = memory{want: want, settled: true, drifts: m.drifts} // however it got there, it is not refused and does converge
		case m.settled:
			m.settled = false
			m.drifts = append(m.drifts, now)
		}
	}
}

// due lists the drifted fields that are not paused, in the profile's order.
func (cy *cycle) due() []Drift {
	now := cy.clock.Uptime()
	return slices.DeleteFunc(slices.Clone(cy.report.Drift), func(dr Drift) bool {
		return now < cy.fields[dr.Field].until
	})
}

// write sends what is due.
func (cy *cycle) write(ctx context.Context, due []Drift) {
	single := cy.oneByOne
	cy.oneByOne = false
	if len(due) > 1 && !single {
		if !cy.fresh(ctx, false) {
			return
		}
		err := cy.apply(ctx, due)
		var refused *RefusedError
		var status *StatusError
		switch {
		case err == nil:
			return
		case errors.As(err, &refused):
			// Nothing was applied. Which key it was is not the device's to say: its message is for people.
		case errors.As(err, &status):
			cy.oneByOne = status.Status >= 500
			fallthrough
		default:
			cy.errs = append(cy.errs, err)
			return
		}
		single = true
	}
	for i, dr := range due {
		if !cy.fresh(ctx, single || i > 0) {
			return
		}
		err := cy.apply(ctx, due[i:i+1])
		var refused *RefusedError
		var status *StatusError
		switch {
		case err == nil:
		case errors.As(err, &refused):
			m := cy.fields[dr.Field]
			m.refusals++
			m.message = refused.Message
			m.until = cy.clock.Uptime() + cy.pause(m.refusals)
		case errors.As(err, &status) && status.Status >= 500:
			// It is alive and unwell about this one; the others may still get through.
			cy.errs = append(cy.errs, fmt.Errorf("%s: %w", dr.Field, err))
			cy.oneByOne = true
		default:
			cy.errs = append(cy.errs, fmt.Errorf("%s: %w", dr.Field, err))
			return
		}
	}
}

// fresh makes sure that there is a target to write with, and reports false if there is none or if it is of another
// generation by now: then the cycle stops writing.
func (cy *cycle) fresh(ctx context.Context, anew bool) bool {
	if age := cy.clock.Uptime() - cy.target.ReadAt; !anew && age >= 0 && age <= reuseTarget {
		return true
	}
	t, err := cy.read(ctx)
	if err != nil {
		cy.errs = append(cy.errs, fmt.Errorf("cannot read the target: %w", err))
		return false
	}
	if t.Generation != cy.target.Generation {
		return false
	}
	cy.target.ReadAt = t.ReadAt
	return true
}

// apply sends one request with the given fields.
func (cy *cycle) apply(ctx context.Context, due []Drift) error {
	set := make(Fields, len(due))
	for _, dr := range due {
		set[dr.Field] = dr.Want
	}
	target := cy.target
	answer, err := cy.c.Apply(ctx, set, func() error {
		if target.Expired(cy.clock.Uptime()) {
			return ErrStale
		}
		cy.sent = true
		return nil
	})
	if err != nil {
		return err
	}
	cy.sent, cy.answer = true, &answer
	if cy.echoed == nil {
		cy.echoed = map[string]string{}
	}
	for _, dr := range due {
		cy.report.Written = append(cy.report.Written, dr.Field)
		if v, ok := answer.Actuators[dr.Field]; ok {
			cy.echoed[dr.Field] = v
		}
		m := cy.fields[dr.Field]
		m.refusals, m.message = 0, ""
	}
	return nil
}

// verify observes again. A field that was written counts as read back when its write's own answer shows it, if that
// names it, and GET /state too: the second alone says what is, but a device whose two answers differ is not at rest.
func (cy *cycle) verify(ctx context.Context) {
	r := &cy.report
	s, err := cy.c.State(ctx)
	if err != nil {
		cy.errs = append(cy.errs, err)
		if cy.answer != nil {
			r.Observed = cy.answer
			r.Left = Diff(cy.p, cy.target.Fields, cy.answer.Actuators)
		}
		return
	}
	r.Observed = &s
	r.Unknown = Unknown(cy.p, s.Actuators)
	shown := maps.Clone(s.Actuators)
	for field, v := range cy.echoed {
		if differs := len(Diff(cy.p, Fields{field: cy.target.Fields[field]}, cy.echoed)) > 0; differs && !has(Diff(cy.p, cy.target.Fields, shown), field) {
			shown[field] = v
		}
	}
	r.Left = Diff(cy.p, cy.target.Fields, shown)
	for field, m := range cy.fields {
		left := has(r.Left, field)
		switch {
		case !left:
			*m = memory{want: m.want, settled: true, drifts: m.drifts}
		case slices.Contains(r.Written, field):
			m.diverged++
			if m.diverged >= nonConvergentAfter {
				m.until = cy.clock.Uptime() + cy.pause(m.diverged)
			}
		}
	}
}

// tell puts what is remembered into the report: a field that is paused must not look as if it were well.
func (cy *cycle) tell() {
	r := &cy.report
	for _, a := range cy.p.Actuators {
		m := cy.fields[a.Name]
		if m == nil {
			continue
		}
		if m.refusals > 0 {
			if r.Refused == nil {
				r.Refused = map[string]string{}
			}
			r.Refused[a.Name] = m.message
		}
		if m.diverged >= nonConvergentAfter {
			r.NonConvergent = append(r.NonConvergent, a.Name)
		}
		if len(m.drifts) >= contendedAfter {
			r.Contended = append(r.Contended, a.Name)
		}
	}
}

// pause is how long to leave a field in peace after its nth failure in a row.
func (d *Driver) pause(n int) time.Duration {
	p := d.interval
	for range n {
		if p *= 2; p >= maxPause {
			return maxPause
		}
	}
	return p
}

// has reports whether drift names field.
func has(drift []Drift, field string) bool {
	return slices.ContainsFunc(drift, func(dr Drift) bool { return dr.Field == field })
}
