package device

import (
	"context"
	"errors"
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

// Driver brings a device to a target and remembers, in memory only, which fields to leave in peace for a
// while: those that it refuses and those that never converge get growing pauses.
type Driver struct{}

// NewDriver returns a driver. interval is the time between two cycles; pauses grow from it.
func NewDriver(c contract, p Profile, ck clock.Clock, interval time.Duration) *Driver {
	return &Driver{}
}

// Drive observes, compares, writes only what has drifted, in the profile's order, and observes again. target is called
// for the target at the start and anew before each write of a sequence; no write goes out later than TargetTTL after its
// target's ReadAt. All drifted keys go in one request; after a 400 they go one at a time, so that a refused
// key never stops the others. When target reports an error nothing is written.
func (d *Driver) Drive(ctx context.Context, target func(context.Context) (Target, error)) Report {
	return Report{}
}
