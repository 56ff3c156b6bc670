package bootslot

import (
	"fmt"
	"time"
)

// Driver is who writes to the device (docs/design.md, "Who drives").
type Driver string

const (
	AgentDrives  Driver = "agent"
	GuardDrives  Driver = "guard"
	NobodyDrives Driver = "nobody" // the repair is suspended
)

// missedBeats is after how many device intervals without a heartbeat an agent is taken for dead.
const missedBeats = 3

// Heard is what a guard has heard of the agent: its heartbeats, by the uptime at which they came. The zero value is that of a guard that has just
// started and has heard none. Since, below, is the uptime since when the lease has its generation.
type Heard struct {
	Any        time.Duration // the newest, 0 for none
	Valid      time.Duration // the newest that had the generation which the lease had then, 0 for none
	Generation uint64        // of that
}

// Beat takes a heartbeat of the given generation. current says that this is the lease's, of this run of the guard.
func (h *Heard) Beat(now time.Duration, generation uint64, current bool) {
	h.Any = now
	if current {
		h.Valid, h.Generation = now, generation
	}
}

// Current reports whether a heartbeat of that generation has come.
func (h Heard) Current(generation uint64) bool { return h.Valid > 0 && h.Generation == generation }

// Alive reports whether heartbeats of the lease's generation arrive.
func (h Heard) Alive(now, interval time.Duration, generation uint64) bool {
	return h.Current(generation) && now-h.Valid <= missedBeats*interval
}

// Driver says whose the device is to drive: the agent's as long as heartbeats arrive, and not for longer than one interval with an old generation;
// else the guard's. Quiet says that the repair is suspended.
func (h Heard) Driver(now, interval time.Duration, generation uint64, since time.Duration, quiet bool) Driver {
	switch {
	case quiet:
		return NobodyDrives
	case h.Any == 0 || now-h.Any > missedBeats*interval:
		return GuardDrives
	case h.Alive(now, interval, generation) || now-since <= interval:
		return AgentDrives
	}
	return GuardDrives
}

// Sample is what AgentAlive measures: the heartbeats themselves, so that an agent that dies right after one has not held for the time in which it
// is only missed. A generation that is new is not known to the agent yet: that is neither alive nor dead, and false.
func (h Heard) Sample(now, interval time.Duration, generation uint64, since time.Duration) (Sample, bool) {
	limit := missedBeats * interval
	switch {
	case h.Alive(now, interval, generation):
		return Sample{Check: AgentAlive, OK: true, At: h.Valid}, true
	case now-since > limit:
		return Sample{Check: AgentAlive, Message: fmt.Sprintf("no heartbeat of this generation for %v", limit), At: now}, true
	}
	return Sample{}, false
}

// SilenceMax is for how long an agent that hears nothing of the guard waits for the end of its trial, before it drives to last-known-good by itself. So a guard that
// has heard nothing of the agent for as long must not drive to the candidate any more. It is no shorter than what makes an agent dead: one whose device is
// looked at once a minute is not silent in between.
func SilenceMax(interval time.Duration) time.Duration {
	return max(60*time.Second, missedBeats*interval)
}

// Silent reports whether nothing has been heard of the agent for SilenceMax, nor of anything before since.
func (h Heard) Silent(now, interval, since time.Duration) bool {
	return now-max(h.Any, since) >= SilenceMax(interval)
}

// QuietAfter is how long last-known-good must have been read back before `suspend --repair` stops the driving.
const QuietAfter = 5 * time.Second

// Quiet follows, under `suspend --repair`, whether the device is to be left alone. The zero value is that of a suspension that has just begun.
type Quiet struct {
	Over  bool          // it is left alone
	Since time.Duration // uptime since when last-known-good has been read back, 0 if it has not
}

// See takes one look: readBack says that the device reads back last-known-good. It reports whether the device is left alone from now on.
func (q *Quiet) See(now time.Duration, readBack bool) (begins bool) {
	switch {
	case q.Over:
		return false
	case !readBack:
		q.Since = 0
		return false
	case q.Since == 0:
		q.Since = now
	}
	q.Over = now-q.Since >= QuietAfter
	return q.Over
}
