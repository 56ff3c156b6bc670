// Package api is what the guard's socket speaks: the wire types and a client. HTTP/JSON over a Unix socket, under /v1,
// additive only, because agent and guard may differ by a version: an unknown field is ignored, a missing one has its zero value.
//
//	GET  /v1/effective?wait=GENERATION  → Lease; with wait, once its generation is another one (or after 25 s)
//	POST /v1/trials                     TrialRequest → bootslot.Decision (the agent's user only)
//	POST /v1/heartbeat                  Heartbeat → 204 (the agent's user only)
//	GET  /v1/state?wait=CHANGE          → State; with wait, once its change counter is another one (or after 25 s)
//	GET  /v1/history?last=N&before=SEQ  → []bootslot.Event, oldest first: the last N of those before SEQ
//	GET  /v1/selftest                   → []Check, each measured after the question came, or as it is after 10 s
//	POST /v1/retry                      {} → Lease, the grant is in the ledger
//	POST /v1/rollback                   RollbackRequest → Lease
//	POST /v1/suspend                    SuspendRequest → Suspension
//	POST /v1/resume                     {} → Lease
//
// A POST's body is one JSON object, and may be empty where {} stands above. It may carry DeadlineHeader; past it, it is answered with 408 and not carried out.
//
// An error is a status of 400 and above with Error: 403 a right is missing, 409 the state does not allow it, 503 it cannot be recorded.
package api

import (
	"time"

	"holdfast/bootslot"
	"holdfast/device"
)

// Lease is what the device is to be now. Nothing may be written with it later than device.TargetTTL after it was asked for.
type Lease struct {
	Generation uint64        `json:"generation"`
	Fields     device.Fields `json:"fields"`
	// Proven is what the device is to be when the trial is over and the guard is silent: last-known-good.
	Proven device.Fields `json:"proven"`
	// TrialEndsInSeconds is what is left of the trial's window, 0 without a trial.
	TrialEndsInSeconds float64 `json:"trialEndsInSeconds,omitempty"`
	// Instance names this run of the guard: a generation of another run is stale.
	Instance string `json:"instance"`
}

// TrialRequest asks for the desired release. The guard computes the candidate.
type TrialRequest struct {
	Release  bootslot.Release `json:"release"`
	Revision string           `json:"revision,omitempty"`
	Origin   bootslot.Origin  `json:"origin,omitzero"`
	Retry    uint64           `json:"retry,omitempty"`
}

// Wish is the request as the rules take it.
func (r TrialRequest) Wish() bootslot.Wish {
	return bootslot.Wish{Release: r.Release, Revision: r.Revision, Origin: r.Origin, Number: r.Retry}
}

// Heartbeat comes once per device interval from the agent's device loop, even while the device hangs.
type Heartbeat struct {
	Generation uint64 `json:"generation"`
	Instance   string `json:"instance"`
	// Refused maps a field to the device's message where it answered 400 to a value of this generation.
	Refused map[string]string `json:"refused,omitempty"`
	// NonConvergent are fields that read back different right after each successful write.
	NonConvergent []string `json:"nonConvergent,omitempty"`
	// Contended are fields that converge and drift again often: somebody else moves them.
	Contended []string `json:"contended,omitempty"`
	// Goodbye says that the agent was told to stop: an open trial is settled as cancelled.
	Goodbye bool `json:"goodbye,omitempty"`
}

// RollbackRequest is `holdfast rollback`.
type RollbackRequest struct {
	ToFallback bool `json:"toFallback,omitempty"`
}

// SuspendRequest is `holdfast suspend`.
type SuspendRequest struct {
	ForSeconds float64 `json:"forSeconds"`
	Repair     bool    `json:"repair,omitempty"` // repair stops, too
}

// Suspension is the file `suspend` in the run folder, obeyed by both processes. It ends when the uptime has passed Until, or
// with the boot: the folder is gone then, and BootID another.
type Suspension struct {
	UntilUptimeSeconds float64 `json:"untilUptimeSeconds"`
	BootID             string  `json:"bootID"`
	Repair             bool    `json:"repair,omitempty"`
	Who                string  `json:"who,omitempty"`
	// Rested says that under Repair the device has read back last-known-good for long enough: nobody drives any more, and a process
	// that is restarted meanwhile does not, either.
	Rested bool `json:"rested,omitempty"`
}

// Phase is what the guard is doing.
type Phase string

const (
	PhaseIdle      Phase = "idle"
	PhaseTrial     Phase = "trial"
	PhaseReturning Phase = "returning"
)

// State is all that the guard knows, for status and for scenarios.
type State struct {
	Version  string          `json:"version"`
	PID      int             `json:"pid"`
	Instance string          `json:"instance"`
	Change   uint64          `json:"change"` // +1 for each change of this view that is not only time passing
	Phase    Phase           `json:"phase"`
	Lease    Lease           `json:"lease"`
	Ledger   bootslot.Ledger `json:"ledger"`
	// LastKnownGood is the active slot's release, else the fallback.
	LastKnownGood bootslot.Release `json:"lastKnownGood"`
	Fallback      bootslot.Release `json:"fallback"`
	// Wish and Decision are the newest wish of this run of the guard and its answer.
	Wish     *TrialRequest      `json:"wish,omitempty"`
	Decision *bootslot.Decision `json:"decision,omitempty"`
	Driver   string             `json:"driver"` // agent, guard or nobody
	// HeartbeatSecondsAgo is the age of the last valid heartbeat, -1 if there was none.
	HeartbeatSecondsAgo float64 `json:"heartbeatSecondsAgo"`
	Checks              []Check `json:"checks"`
	// CheckFolders are where the guard looks for executable checks.
	CheckFolders []string `json:"checkFolders,omitempty"`
	// Baseline says what is missing for a trial to start, "" for nothing.
	Baseline string         `json:"baseline,omitempty"`
	Device   *device.State  `json:"device,omitempty"` // newest that the guard saw
	Answers  bool           `json:"answers"`          // the device answered the guard's last question
	Drift    []device.Drift `json:"drift,omitempty"`
	// Suspended is the suspension in force.
	Suspended *SuspendedFor `json:"suspended,omitempty"`
	// Problems are what is wrong with the guard's own means: a file that was set aside, a disk that is full, a broken configuration.
	Problems []string `json:"problems,omitempty"`
}

// SuspendedFor is a suspension as people see it.
type SuspendedFor struct {
	SecondsLeft float64 `json:"secondsLeft"`
	Repair      bool    `json:"repair,omitempty"`
	Who         string  `json:"who,omitempty"`
}

// Check is a check's newest result.
type Check struct {
	Name     string `json:"name"`
	Required bool   `json:"required"`
	OK       bool   `json:"ok"`
	// Known is false while there is no result yet.
	Known   bool   `json:"known"`
	Message string `json:"message,omitempty"` // what is wrong, "" if it holds
	// Found is what the newest measurement saw, whether it holds or not, and AgeSeconds how long ago that was; 0 if there was none.
	Found      string  `json:"found,omitempty"`
	AgeSeconds float64 `json:"ageSeconds,omitempty"`
	// Value is the reading, or the bytes free of a disk.
	Value *float64 `json:"value,omitempty"`
	// Limit says what holds: "at most 38 °C".
	Limit string `json:"limit,omitempty"`
	// SinceSeconds is for how long it has been as it is.
	SinceSeconds float64 `json:"sinceSeconds"`
	// UnhealthySince is when a required check began to fail on the release in force, wall clock.
	UnhealthySince time.Time `json:"unhealthySince,omitzero"`
	// Role is convicting or exempt while a trial runs.
	Role string `json:"role,omitempty"`
}
