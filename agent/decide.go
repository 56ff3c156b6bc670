package agent

import (
	"fmt"
	"time"

	"holdfast/agent/status"
	"holdfast/bootslot/api"
	"holdfast/device"
)

// How long the agent leaves the device alone before it acts without the guard's word (docs/design.md, "Who drives").
const (
	// silenceMax bounds how long a silent guard's trial is waited for.
	silenceMax = 60 * time.Second
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
	Fields     device.Fields // of the active release
}

// Facts are what the device loop sees now.
type Facts struct {
	Now time.Duration // uptime
	// Lease is the guard's answer, nil if it gave none; LeaseAt the uptime before it was asked for.
	Lease   *api.Lease
	LeaseAt time.Duration
	// Record is ledger.json's, nil if it has no active release or cannot be read. It matters only without a lease.
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
//	guard silent, had a lease, its trial runs ───▶ waits, silenceMax at most
//	guard silent, had a lease ───────────────────▶ proven (the lease's, or ledger.json's if that is newer)
//	guard silent, never had a lease, just started▶ waits, firstLeaseWait
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
		if l := m.Lease; l != nil {
			home = l.Proven
			trial := min(time.Duration(l.TrialEndsInSeconds*float64(time.Second)), silenceMax)
			switch until := m.LeaseAt + trial; {
			case f.Record != nil && f.Record.Generation > l.Generation:
				// Its last word did not reach us: a release has passed, or somebody has rolled back from the one that the lease calls proven.
				home = f.Record.Fields
				a = Action{Drives: status.DrivesProven, Fields: home, Generation: f.Record.Generation,
					Why: "the guard is silent; kept at last-known-good, from ledger.json, which is newer than its last lease"}
			case f.Now < until:
				a = Action{Drives: status.DrivesNot, Fields: l.Fields, Generation: l.Generation,
					Why: "the guard is silent and its trial may still run; at its end the device goes back to last-known-good"}
			default:
				a = Action{Drives: status.DrivesProven, Fields: l.Proven, Generation: l.Generation, Why: "the guard is silent; kept at last-known-good"}
			}
		} else {
			from := "ledger.json"
			if f.Record != nil {
				home = f.Record.Fields
			} else {
				home, from = f.Fallback, "the fallback"
			}
			a = Action{Drives: status.DrivesRecord, Fields: home, Why: "there was no guard since the start; kept at last-known-good, from " + from}
			if f.Now < m.Started+firstLeaseWait {
				a.Drives = status.DrivesNot
				a.Why = fmt.Sprintf("waiting for a guard, %v after the start at most; then it is kept at last-known-good, from %s", firstLeaseWait, from)
			}
		}
	}

	if f.Lease == nil {
		a.At = f.Now
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
