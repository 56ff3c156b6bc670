package agent

import (
	"fmt"
	"time"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

// How long the agent leaves the device alone before it acts without the guard's word (docs/design.md, "Who drives").
const (
	// firstLeaseWait is how long an agent that never had a lease waits for a guard.
	firstLeaseWait = 60 * time.Second
	// settleTime is how long the device must have read back last-known-good before `suspend --repair` stops the repair.
	settleTime = 5 * time.Second
	// reuseLease is how old the lease of the cycle's beginning may be for the first write.
	reuseLease = 500 * time.Millisecond
)

// Memory is all that the device loop knows from earlier cycles of this run. None of it is on disk: an agent that is
// killed anywhere and started again begins with the zero value, and Started.
type Memory struct {
	Started time.Duration // uptime at which this run began
	// Lease is the newest lease, nil if there never was one; LeaseAt the uptime before it was asked for.
	Lease   *api.Lease
	LeaseAt time.Duration
	// Silent says that the guard has not answered since SilentSince.
	Silent      bool
	SilentSince time.Duration
	// Home is last-known-good, as far as it was known in the newest cycle.
	Home device.Fields
	// Settled says that the device reads back Home, and has done so from SettledSince on.
	Settled      bool
	SettledSince time.Duration
	// Rested says that under the present `suspend --repair` the device did so for settleTime: nobody drives until that ends.
	Rested bool
}

// Record is what ledger.json says is in force.
type Record struct {
	Generation uint64
	Fields     device.Fields // of the active release, nil if no slot is good
	Trial      bool          // one is open
}

// Facts are what the device loop sees now.
type Facts struct {
	Now time.Duration // uptime
	// Lease is the guard's answer, nil if it gave none; LeaseAt the uptime before it was asked for.
	Lease   *api.Lease
	LeaseAt time.Duration
	// Record is ledger.json's, nil if it cannot be read. It matters only without a lease.
	Record   *Record
	Fallback device.Fields
	// RepairSuspended says that `suspend --repair` is in force.
	RepairSuspended bool
	// RepairRested says that the guard has seen last-known-good read back for settleTime under it, perhaps before this run began.
	RepairRested bool
	// Observed are the device's actuators as the newest cycle saw them at ObservedAt, nil if it saw none.
	Observed   map[string]string
	ObservedAt time.Duration
	Profile    device.Profile
	Interval   time.Duration // of the device loop
}

// Action is what the device loop does.
type Action struct {
	Drives     string        // one of status.Drives…
	Fields     device.Fields // the target; when nobody drives, what the device is to be all the same
	Generation uint64        // of the lease, or the record, that Fields is from
	// At is the uptime at which the lease was asked for or, without a guard, at which this was decided. Fields may be written only as
	// long as that is young.
	At  time.Duration
	Why string // for people, "" when the agent drives to Effective
}

// fresh reports whether the cycle's first write may still go by a at uptime now; else it has to be decided anew.
func (a Action) fresh(now time.Duration) bool { return now-a.At <= reuseLease }

// target is what is written.
func (a Action) target() device.Target {
	return device.Target{Generation: a.Generation, Fields: a.Fields, ReadAt: a.At}
}

// Decide says who drives to what, and what to remember. It is the agent's half of docs/design.md, "Who drives":
//
//	guard answers ───────────────────────────────▶ effective (its lease)
//	guard silent, had a lease, a trial runs ─────▶ waits, bootslot.SilenceMax at most
//	guard silent, had a lease ───────────────────▶ proven (the lease's, or ledger.json's if that is newer)
//	guard silent, never had a lease, just started▶ waits, firstLeaseWait; bootslot.SilenceMax if ledger.json has a trial open
//	guard silent, never had a lease ─────────────▶ record (ledger.json's active release, else the fallback)
//	suspend --repair, last-known-good read back ─▶ waits
//
// What the clone holds does not occur: the agent cannot apply a release, it can only ask the guard for it.
func Decide(m Memory, f Facts) (Memory, Action) {
	var a Action
	var home device.Fields // last-known-good, as far as it is known
	if f.Lease != nil {
		m.Lease, m.LeaseAt, m.Silent, m.SilentSince = f.Lease, f.LeaseAt, false, 0
		home = f.Lease.Proven
		a = Action{Drives: status.DrivesEffective, Fields: f.Lease.Fields, Generation: f.Lease.Generation, At: f.LeaseAt}
	} else {
		if !m.Silent {
			m.Silent, m.SilentSince = true, f.Now
		}
		a, home = withoutGuard(m, f)
	}

	if !home.Equal(m.Home) {
		m.Home, m.Settled = home, false // what was read back was another one
	}
	switch settled := f.Observed != nil && len(device.Diff(f.Profile, home, f.Observed)) == 0; {
	case !settled:
		m.Settled, m.SettledSince = false, 0
	case !m.Settled:
		m.Settled, m.SettledSince = true, f.ObservedAt
	}
	m.Rested = f.RepairSuspended && (m.Rested || f.RepairRested || m.Settled && f.ObservedAt-m.SettledSince >= settleTime)
	if m.Rested {
		a.Drives, a.Why = status.DrivesNot, "the repair is suspended"
	}
	return m, a
}

// withoutGuard decides while the guard does not answer. home is last-known-good, as far as it is known.
func withoutGuard(m Memory, f Facts) (a Action, home device.Fields) {
	record, from := f.Fallback, "the fallback"
	if f.Record != nil && f.Record.Fields != nil {
		record, from = f.Record.Fields, "ledger.json"
	}
	var until time.Duration // nobody drives before
	wait := Action{Why: "the guard is silent and its trial may still run; at its end the device goes back to last-known-good"}
	switch l := m.Lease; {
	case l == nil:
		long := firstLeaseWait
		if f.Record != nil && f.Record.Trial {
			long = bootslot.SilenceMax(f.Interval) // a guard that cannot be heard may drive to its candidate for as long
		}
		home, until = record, m.Started+long
		a = Action{Drives: status.DrivesRecord, Why: "there was no guard since the start; kept at last-known-good, from " + from}
		wait = Action{Fields: home, Why: fmt.Sprintf("waiting for a guard, %v after the start at most; then it is kept at last-known-good, from %s", long, from)}
	case f.Record != nil && (f.Record.Generation > l.Generation || f.Record.Generation == l.Generation && !record.Equal(l.Proven)):
		// The guard's last word did not reach us. (With the same generation it is that of another run: the one before had used it up for a write that
		// failed.) A release has passed, or somebody has rolled back from the one that the lease calls proven; or a trial
		// was opened of which we know nothing else.
		if home = record; f.Record.Trial {
			until = m.SilentSince + bootslot.SilenceMax(f.Interval)
		}
		a = Action{Drives: status.DrivesProven, Generation: f.Record.Generation,
			Why: "the guard is silent; kept at last-known-good, from " + from + ": the record is newer than its last lease"}
		wait.Fields = home
	default:
		home, until = l.Proven, m.LeaseAt+min(time.Duration(l.TrialEndsInSeconds*float64(time.Second)), bootslot.SilenceMax(f.Interval))
		a = Action{Drives: status.DrivesProven, Generation: l.Generation, Why: "the guard is silent; kept at last-known-good"}
		wait.Fields = l.Fields
	}
	a.Fields, a.At = home, f.Now
	if f.Now < until {
		a.Drives, a.Fields, a.Why = status.DrivesNot, wait.Fields, wait.Why
	}
	return a, home
}
