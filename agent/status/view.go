// Package status is the one JSON view of a board that the CLI, the dashboard and the scenarios read.
//
// Its parts come from whoever is alive: the guard tells its State (guard.sock), the agent its Agent (agent.sock). When the
// guard is dead its ledger is read from the sidecar; when the agent is dead what is declared is read from the clone. Build puts
// them together and is a pure function: it asks nobody, and looks at no clock.
//
//	guard.sock ──State──┐
//	ledger.json ────────┤
//	history ────────────┤──▶ Sources ──Build──▶ View ──▶ text, JSON, exit code
//	agent.sock ──Agent──┤
//	clone.db ───────────┘
//
// The JSON is additive only: a key keeps its meaning, a list that is empty may be absent.
package status

import (
	"maps"
	"time"

	"holdfast/agent/gitclone"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

// View is all that can be known of a board now.
type View struct {
	At time.Time `json:"at"` // wall clock of the reader
	// Summary is one sentence for people; Details are further ones, most important first.
	Summary string   `json:"summary"`
	Details []string `json:"details,omitempty"`
	// Fine is what `holdfast status` makes its exit code of; NotFine says why it is not. A held field, a trial, a suspension and being
	// offline are fine: that is Holdfast at work.
	Fine    bool     `json:"fine"`
	NotFine []string `json:"notFine,omitempty"`

	// Conditions are what a fleet's tools ask of every board; all types, in one order.
	Conditions []Condition `json:"conditions"`

	// Phase is idle, trial or returning; from the sidecar when the guard is dead.
	Phase      api.Phase `json:"phase"`
	Generation uint64    `json:"generation"` // of the ledger
	// LedgerKnown says that the ledger could be read, or that there is none. Without it slots, marks, last-known-good, phase and generation
	// are not known, and their being empty says nothing.
	LedgerKnown bool `json:"ledgerKnown"`
	// CloneKnown says that what the clone holds could be read and understood, or that there is no clone: without it an absent Declared says nothing.
	CloneKnown bool    `json:"cloneKnown"`
	Guard      Process `json:"guard"`
	Agent      Process `json:"agent"`
	// Driver is who writes to the device now: agent, guard or nobody; "" if that cannot be told.
	Driver string `json:"driver"`

	// Effective is what the device is to be now; its source is candidate, last-known-good or fallback.
	Effective Release `json:"effective"`
	// LastKnownGood is the active slot's release, else the fallback; its source is A, B or fallback.
	LastKnownGood Release `json:"lastKnownGood"`
	// Declared is the last valid desired state that the clone holds, absent if there never was one.
	Declared *Declared `json:"declared,omitempty"`
	// Decision is the guard's answer to what is declared, absent if nothing was asked. When the guard is dead the reader
	// works it out from the sidecar and Forecast is set: so would a guard decide.
	Decision *Decision `json:"decision,omitempty"`
	Device   Device    `json:"device"`

	Slots    map[bootslot.SlotName]bootslot.Slot `json:"slots"`
	Active   bootslot.SlotName                   `json:"active,omitempty"`
	Previous *bootslot.Slot                      `json:"previous,omitempty"`
	Marks    []bootslot.Mark                     `json:"marks"` // oldest first, retired ones included
	Spent    uint64                              `json:"spent"` // the highest retry number that was used up
	Grant    *bootslot.Grant                     `json:"grant,omitempty"`
	Trial    *Trial                              `json:"trial,omitempty"`
	// Returning names the failed trial that the device is being brought back from.
	Returning   *bootslot.Returning `json:"returning,omitempty"`
	LastVerdict *Verdict            `json:"lastVerdict,omitempty"`

	Checks    []api.Check `json:"checks,omitempty"`
	Unhealthy []Unhealthy `json:"unhealthy,omitempty"`
	Git       Git         `json:"git"`
	// Suspended is the suspension in force, absent if there is none.
	Suspended *api.SuspendedFor `json:"suspended,omitempty"`

	// DeviceCycles and GitCycles count the cycles of the two loops in this run of the agent, 0 if it is dead.
	DeviceCycles uint64 `json:"deviceCycles"`
	GitCycles    uint64 `json:"gitCycles"`
	// Problems are what is wrong with Holdfast's own means, each with the process that says so in front. One may have several lines: what it
	// is about, and what is wrong with that.
	Problems []string `json:"problems,omitempty"`
}

// Process is agent or guard.
type Process struct {
	Alive   bool         `json:"alive"` // it answers
	State   ProcessState `json:"state"`
	Why     string       `json:"why,omitempty"` // it does not answer
	PID     int          `json:"pid,omitempty"`
	Version string       `json:"version,omitempty"`
	// Instance names this run of the guard.
	Instance string `json:"instance,omitempty"`
}

// ProcessState is how it stands with a process.
type ProcessState string

const (
	ProcessAlive       ProcessState = "alive"
	ProcessDead        ProcessState = "dead"
	ProcessSilent      ProcessState = "silent"      // it runs, or is stopped, and does not answer
	ProcessUnreachable ProcessState = "unreachable" // it may run: this user has no right to ask it
)

// Words says the state in a sentence that begins with the process.
func (p Process) Words() string {
	state := map[ProcessState]string{ProcessAlive: "is alive", ProcessSilent: "is silent", ProcessUnreachable: "is not reachable"}[p.State]
	if p.Why == "" {
		return orElse(state, "is dead")
	}
	return orElse(state, "is dead") + " (" + p.Why + ")"
}

// Release is a release, and where it comes from.
type Release struct {
	Fields   device.Fields   `json:"fields"`
	Image    *bootslot.Image `json:"image,omitempty"`
	Digest   bootslot.Digest `json:"digest,omitempty"`
	Revision string          `json:"revision,omitempty"`
	Origin   bootslot.Origin `json:"origin,omitzero"` // who declared it
	Source   string          `json:"source,omitempty"`

	fallback bool // it is the fallback's content, whatever slot it is in
}

// values is the release as one flat set of fields; the image is one more, by its sha256.
func (r Release) values() device.Fields {
	f := maps.Clone(r.Fields)
	if r.Image != nil {
		if f == nil {
			f = device.Fields{}
		}
		f[bootslot.ImageField] = r.Image.SHA256
	}
	return f
}

// Sources of a Release. A slot's name is one, too.
const (
	FromCandidate     = "candidate"
	FromLastKnownGood = "last-known-good"
	FromFallback      = "fallback"
)

// Declared is the desired release as the clone holds it.
type Declared struct {
	Fields   device.Fields   `json:"fields"`
	Image    *bootslot.Image `json:"image,omitempty"`
	Digest   bootslot.Digest `json:"digest"`
	Revision string          `json:"revision"`
	Subject  string          `json:"subject,omitempty"` // the first line of the revision's message
	Author   string          `json:"author,omitempty"`
	When     time.Time       `json:"when,omitzero"` // the author's clock
	Retry    uint64          `json:"retry,omitempty"`
}

// NewDeclared is r, with its retry number, as what d declares.
func NewDeclared(d gitclone.Desired, r bootslot.Release, retry uint64) *Declared {
	return &Declared{Fields: r.Fields, Image: r.Image, Digest: r.Digest(), Revision: d.Revision, Subject: d.Subject, Author: d.Author, When: d.When, Retry: retry}
}

// Origin is who declares it, as the guard keeps it.
func (d Declared) Origin() bootslot.Origin {
	return bootslot.Origin{Author: d.Author, Subject: d.Subject}
}

// Release returns what is declared as the guard takes it.
func (d Declared) Release() bootslot.Release {
	return bootslot.Release{Fields: d.Fields, Image: d.Image}
}

// Decision is the answer to a wish.
type Decision struct {
	Kind   bootslot.DecisionKind `json:"kind"`
	Reason string                `json:"reason,omitempty"`
	Held   []bootslot.HeldField  `json:"held,omitempty"`
	Marks  []uint64              `json:"marks,omitempty"` // that hold something, by ID
	Mixed  bool                  `json:"mixed,omitempty"`
	// RetryNumber is what to write as `retry:` to try what is held once more.
	RetryNumber uint64          `json:"retryNumber,omitempty"`
	Digest      bootslot.Digest `json:"digest,omitempty"` // of the candidate
	WaitSeconds float64         `json:"waitSeconds,omitempty"`
	// Awaiting says what a baseline still needs.
	Awaiting *Awaiting `json:"awaiting,omitempty"`
	Forecast bool      `json:"forecast,omitempty"` // worked out by the reader: the guard is dead
}

// Awaiting is what has still to come about before a trial.
type Awaiting struct {
	Checks      []string `json:"checks"` // that have not held for SoakSeconds at rest yet
	SoakSeconds float64  `json:"soakSeconds"`
	// AheadInSeconds is when the trial goes ahead without them, 0 if it waits for them.
	AheadInSeconds float64 `json:"aheadInSeconds,omitempty"`
}

// Device is what the device shows, as whoever drives it saw it last.
type Device struct {
	Answers    bool               `json:"answers"`
	Error      string             `json:"error,omitempty"`
	SeenBy     string             `json:"seenBy,omitempty"` // agent or guard
	SecondsAgo float64            `json:"secondsAgo,omitempty"`
	Observed   map[string]string  `json:"observed,omitempty"` // actuators, as the device spells them
	Readings   map[string]float64 `json:"readings,omitempty"`
	// Drift is what differs from Effective after the newest cycle.
	Drift         []device.Drift    `json:"drift,omitempty"`
	Contended     []string          `json:"contended,omitempty"`
	NonConvergent []string          `json:"nonConvergent,omitempty"`
	Refused       map[string]string `json:"refused,omitempty"` // field to the device's message
	Unknown       []string          `json:"unknown,omitempty"` // actuators that the profile does not know
	// WriteError is what went wrong with the newest write, until one succeeds; WriteErrors counts the cycles in a row in which that was so.
	WriteError  string `json:"writeError,omitempty"`
	WriteErrors int    `json:"writeErrors,omitempty"`
}

// Trial is the open trial.
type Trial struct {
	Candidate     Release       `json:"candidate"` // its source is the slot
	Changed       []string      `json:"changed"`
	Set           device.Fields `json:"set,omitempty"`
	Attempt       int           `json:"attempt"`
	At            time.Time     `json:"at,omitzero"`   // when it was opened, wall clock
	EndsInSeconds float64       `json:"endsInSeconds"` // 0 when the guard is dead
	Convicting    []string      `json:"convicting"`
	Exempt        []string      `json:"exempt,omitempty"`
}

// Verdict is how a trial ended. Kind is passed, failed, environment, inconclusive or cancelled.
type Verdict struct {
	Kind     bootslot.Verdict `json:"kind"`
	Digest   bootslot.Digest  `json:"digest"` // of the candidate
	Revision string           `json:"revision,omitempty"`
	Check    string           `json:"check,omitempty"`
	Message  string           `json:"message,omitempty"`
	At       time.Time        `json:"at,omitzero"`
}

// Unhealthy is a required check that fails on the release in force: an alarm, not a rollback.
type Unhealthy struct {
	Name    string    `json:"name"`
	Since   time.Time `json:"since"`
	Message string    `json:"message,omitempty"`
}

// States of Git that the loop itself gives; every other is the kind of a fetch error (agent/gitclone).
const (
	GitUnknown = "unknown" // no fetch has ended yet, or the agent is dead
	GitOK      = "ok"
	GitOffline = "offline"
)

// Git is how it stands with the state repository.
type Git struct {
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`  // wall clock, since it has been so
	Times   int       `json:"times,omitempty"` // fetches in a row that ended so, if it is not ok
	Message string    `json:"message,omitempty"`
	Advice  string    `json:"advice,omitempty"`
	// Notices are what a person should read about the revision that was taken last, though nothing is wrong with it.
	Notices []string `json:"notices,omitempty"`
	// RemoteRevision is the branch's head as last seen; it differs from Declared's when that head could not be taken.
	RemoteRevision string    `json:"remoteRevision,omitempty"`
	LastFetch      time.Time `json:"lastFetch,omitzero"` // wall clock, the last that worked
	NextInSeconds  float64   `json:"nextInSeconds,omitempty"`
	Running        bool      `json:"running,omitempty"` // a fetch is under way
}

// Agent is the agent's own part, which it tells on agent.sock (GET /v1/status).
type Agent struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	Change  uint64 `json:"change"` // +1 for each change of this part that is not only time passing

	Declared *Declared `json:"declared,omitempty"`
	// CloneProblem is why the clone gives no desired release.
	CloneProblem string `json:"cloneProblem,omitempty"`
	Git          Git    `json:"git"`

	// Drives is what the device loop does: see agent.Action. Target is what it drives to, absent if it does not drive.
	Drives string        `json:"drives"`
	Why    string        `json:"why,omitempty"`
	Target device.Fields `json:"target,omitempty"`
	// GuardSilentSeconds is for how long the guard has not answered, 0 if it does.
	GuardSilentSeconds float64 `json:"guardSilentSeconds,omitempty"`
	// Report is that of the newest cycle that ended, ReportSecondsAgo its age.
	Report           *device.Report `json:"report,omitempty"`
	ReportSecondsAgo float64        `json:"reportSecondsAgo,omitempty"`
	// WriteError is what went wrong with the newest write, until one succeeds: a device that has come to what it is to be by then is
	// not written to again, and its answers were wrong all the same. WriteErrors counts the cycles in a row in which that was so.
	WriteError  string `json:"writeError,omitempty"`
	WriteErrors int    `json:"writeErrors,omitempty"`
	// HangsSeconds is for how long a cycle has been waiting for the device beyond an interval.
	HangsSeconds float64 `json:"hangsSeconds,omitempty"`

	DeviceCycles uint64   `json:"deviceCycles"`         // begun
	EndedCycle   uint64   `json:"endedCycle,omitempty"` // the number of the newest that ended
	GitCycles    uint64   `json:"gitCycles"`            // ended
	Problems     []string `json:"problems,omitempty"`
}

// What the agent's device loop does (Agent.Drives).
const (
	DrivesEffective = "effective" // to the guard's lease
	DrivesProven    = "proven"    // the guard is silent: to the last lease's proven release
	DrivesRecord    = "record"    // there never was a guard: to ledger.json's active release, else the fallback
	DrivesNot       = "waits"     // nobody drives: Why says what for
)
