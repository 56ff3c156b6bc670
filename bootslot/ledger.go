package bootslot

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/device"
)

// Schema is the form of the ledger that this code writes; MinWriter the oldest that may write it. A guard whose Schema
// is below a ledger's MinWriter reads it, drives by it and settles an open trial; it starts nothing.
const (
	Schema    = 1
	MinWriter = 1
)

// Bounds of the record: a ledger stays small for ever.
const (
	MaxMarks       = 256
	maxTries       = 64
	maxMarkDigests = 64
)

// SlotName is A or B; "" where there is none.
type SlotName string

const (
	SlotA SlotName = "A"
	SlotB SlotName = "B"
)

// SlotStatus is what is known of a slot's release.
type SlotStatus string

const (
	SlotEmpty  SlotStatus = "empty"
	SlotGood   SlotStatus = "good"
	SlotTrying SlotStatus = "trying"
	SlotFailed SlotStatus = "failed"
)

// Origin says who declared a release and what about it. It is for people: nothing is decided by it.
type Origin struct {
	Author  string `json:"author,omitempty"`
	Subject string `json:"subject,omitempty"` // the first line of the revision's message
}

// Slot holds one release. Declared is the digest of the whole release that git declared when this one came of it: they differ if
// a mark held something. Proven says that it passed with no exemption, was adopted, or was rolled back to.
type Slot struct {
	Status   SlotStatus `json:"status"`
	Release  Release    `json:"release,omitzero"`
	Digest   Digest     `json:"digest,omitempty"`
	Declared Digest     `json:"declared,omitempty"`
	Revision string     `json:"revision,omitempty"`
	Origin   Origin     `json:"origin,omitzero"`
	Proven   bool       `json:"proven,omitempty"`

	unknown unknown
}

// Verdict is how a trial ended. Environment comes only of a Failed whose last-known-good fails alike.
type Verdict string

const (
	Passed       Verdict = "passed"
	Failed       Verdict = "failed"
	Environment  Verdict = "environment"
	Inconclusive Verdict = "inconclusive"
	Cancelled    Verdict = "cancelled"
)

// Cause is why a mark stands.
type Cause string

const (
	CauseFailed      Cause = "failed"
	CauseEnvironment Cause = "environment"
	CauseAttempts    Cause = "attempts"
	CauseOperator    Cause = "operator"
)

// Readings are the device's sensors at one moment, by name.
type Readings map[string]float64

// Mark says "failed, don't retry". Set is what the failed candidate changed, with whole groups; Candidates are the
// digests of what was tried, Declared of what git declared. A retired mark's set holds nothing any more (last-known-good contains
// it), its digests still do.
type Mark struct {
	ID         uint64        `json:"id"` // the generation that made it
	Set        device.Fields `json:"set"`
	Candidates []Digest      `json:"candidates,omitempty"`
	Declared   []Digest      `json:"declared,omitempty"`
	// OperatorDeclared are the declared digests that an operator rolled back from: held whole.
	OperatorDeclared []Digest `json:"operatorDeclared,omitempty"`
	Revision         string   `json:"revision,omitempty"`
	Origin           Origin   `json:"origin,omitzero"`
	Cause            Cause    `json:"cause"`
	Check            string   `json:"check,omitempty"`
	Message          string   `json:"message,omitempty"`
	Before           Readings `json:"before,omitempty"`
	During           Readings `json:"during,omitempty"`
	After            Readings `json:"after,omitempty"`
	Retired          bool     `json:"retired,omitempty"`
	// Exhausted says that a mark of cause environment has no attempts left: it no longer reopens.
	Exhausted bool      `json:"exhausted,omitempty"`
	At        time.Time `json:"at,omitzero"` // wall clock, for people
	Who       string    `json:"who,omitempty"`

	unknown unknown
}

// Baseline is what held at rest before a content's first trial: Convicting checks did, Exempt ones did not.
type Baseline struct {
	Convicting []string `json:"convicting"`
	Exempt     []string `json:"exempt,omitempty"`
}

// Try counts the trials of one candidate under one retry number (or grant) that ended without a conclusion.
type Try struct {
	Digest   Digest    `json:"digest"`
	Number   uint64    `json:"number,omitempty"`
	Grant    uint64    `json:"grant,omitempty"`
	Count    int       `json:"count"`
	Goodbyes int       `json:"goodbyes,omitempty"` // times that a stopping process cancelled it
	Baseline *Baseline `json:"baseline,omitempty"`

	unknown unknown
}

// Grant is one `holdfast retry`: leave to try the declared content past all marks, until that is used.
type Grant struct {
	ID       uint64 `json:"id"` // the generation that made it
	Declared Digest `json:"declared"`
	Who      string `json:"who,omitempty"`

	unknown unknown
}

// Trial is the open trial: a bounded attempt at a candidate.
type Trial struct {
	Generation uint64        `json:"generation"` // that opened it
	Slot       SlotName      `json:"slot"`
	Candidate  Release       `json:"candidate"`
	Digest     Digest        `json:"digest"`
	Declared   Release       `json:"declared"`
	Revision   string        `json:"revision,omitempty"`
	Origin     Origin        `json:"origin,omitzero"`
	Set        device.Fields `json:"set"` // what it changes against last-known-good, with whole groups
	Changed    []string      `json:"changed"`
	Baseline   Baseline      `json:"baseline"`
	Attempt    int           `json:"attempt"`
	Number     uint64        `json:"number,omitempty"` // the file's retry number
	Granted    uint64        `json:"granted,omitempty"`
	Pinned     bool          `json:"pinned,omitempty"` // git cannot cancel it
	Before     Readings      `json:"before,omitempty"`
	At         time.Time     `json:"at,omitzero"`

	unknown unknown
}

// Returning is the phase after a failed trial: back to last-known-good, until it is known whether that is well.
type Returning struct {
	Mark    uint64 `json:"mark"` // the mark's ID
	Check   string `json:"check"`
	Digest  Digest `json:"digest"`
	Number  uint64 `json:"number,omitempty"`
	Granted uint64 `json:"granted,omitempty"`

	unknown unknown
}

// Ledger is the only durable truth on the device. It is a value: every transition returns a new one, with the next
// generation, and shares nothing with the old that it changes.
type Ledger struct {
	Schema     int               `json:"schema"`
	MinWriter  int               `json:"minWriter"`
	ID         string            `json:"id"` // from the ledger's creation
	Generation uint64            `json:"generation"`
	Slots      map[SlotName]Slot `json:"slots"`
	Active     SlotName          `json:"active,omitempty"`
	Previous   *Slot             `json:"previous,omitempty"`
	Trial      *Trial            `json:"trial,omitempty"`
	Returning  *Returning        `json:"returning,omitempty"`
	Marks      []Mark            `json:"marks,omitempty"` // oldest first
	Tries      []Try             `json:"tries,omitempty"` // least recently used first
	Spent      uint64            `json:"spent,omitempty"` // the highest retry number that was used up
	Grant      *Grant            `json:"grant,omitempty"`
	// Streak counts trials in a row without a pass (the breaker).
	Streak int `json:"streak,omitempty"`
	// Pin says that the next trial cannot be cancelled by git: the last one was.
	Pin bool `json:"pin,omitempty"`
	// NumberUnseen says that an operator rolled back while no agent had said what is declared: the retry number of the next wish
	// was raised before that, as far as anybody can know, and is used up by it.
	NumberUnseen bool `json:"numberUnseen,omitempty"`

	unknown unknown
}

// NewLedger returns an empty ledger: no slot is good, the fallback is in force.
func NewLedger(id string) Ledger {
	return Ledger{Schema: Schema, MinWriter: MinWriter, ID: id, Generation: 1,
		Slots: map[SlotName]Slot{SlotA: {Status: SlotEmpty}, SlotB: {Status: SlotEmpty}}}
}

// Board is what is fixed while a guard runs: the device's kind and the rules it was configured with.
type Board struct {
	Fallback Release
	// Groups are the fields that are held together.
	Groups [][]string
	// HoldRelease is `hold: release`: a mark that holds anything stops the whole release.
	HoldRelease bool
	Attempts    int             // trials of one content that may end without a conclusion
	Pauses      []time.Duration // of guard uptime, after the first, second, … of them
}

// group returns the fields that are held together with field, field included.
func (b Board) group(field string) []string {
	for _, g := range b.Groups {
		if slices.Contains(g, field) {
			return g
		}
	}
	return []string{field}
}

// LastKnownGood is the active slot's release; with no good slot, the fallback.
func (l Ledger) LastKnownGood(b Board) Release {
	if s, ok := l.Slots[l.Active]; ok && s.Status == SlotGood {
		return s.Release
	}
	return b.Fallback
}

// HasGood reports whether a slot is good, so that the fallback is not in force.
func (l Ledger) HasGood() bool { return l.Slots[l.Active].Status == SlotGood }

// Effective is what the device is to be now: the candidate while its trial runs, else last-known-good.
func (l Ledger) Effective(b Board) Release {
	if l.Trial != nil {
		return l.Trial.Candidate
	}
	return l.LastKnownGood(b)
}

// Spare is the slot that is not in force, where the next candidate goes. While none is, it is A, or B if A still tells of a failure and B of nothing.
func (l Ledger) Spare() SlotName {
	if l.Active == SlotA || l.Active == "" && l.Slots[SlotA].Status == SlotFailed && l.Slots[SlotB].Status == SlotEmpty {
		return SlotB
	}
	return SlotA
}

// Writable reports whether this code may start anything on l.
func (l Ledger) Writable() bool { return l.MinWriter <= Schema }

// Valid says what of a record no transition can have made, and none could go on from: a slot in force without content, a trial in the slot in force or of no change,
// a mark of nothing. It asks no more than that, because a record that is refused takes its marks with it.
func (l Ledger) Valid() error {
	if l.Generation == 0 || l.Generation > 1<<63 {
		return fmt.Errorf("generation %d", l.Generation)
	}
	for name := range l.Slots {
		if name != SlotA && name != SlotB {
			return fmt.Errorf("slot %q", name)
		}
	}
	if a := l.Slots[l.Active]; l.Active != "" && (a.Status != SlotGood || len(a.Release.Fields) == 0) {
		return fmt.Errorf("slot %q is active and %s", l.Active, a.Status)
	}
	if p := l.Previous; p != nil && len(p.Release.Fields) == 0 {
		return errors.New("a previous release without content")
	}
	if t := l.Trial; t != nil {
		switch {
		case t.Slot != SlotA && t.Slot != SlotB, t.Slot == l.Active, l.Slots[t.Slot].Status != SlotTrying:
			return fmt.Errorf("a trial in slot %q, which is %s", t.Slot, l.Slots[t.Slot].Status)
		case len(t.Set) == 0 || len(t.Candidate.Fields) == 0 || !l.Slots[t.Slot].Release.Equal(t.Candidate):
			return errors.New("a trial of nothing, or of something else than what its slot holds")
		case l.Returning != nil:
			return errors.New("a trial while another one's end is not known")
		}
	}
	for _, m := range l.Marks {
		if len(m.Set) == 0 {
			return fmt.Errorf("mark %d of nothing", m.ID)
		}
	}
	return nil
}

// next returns a copy of l with the next generation, which shares nothing that a transition changes.
func (l Ledger) next() Ledger {
	n := l
	n.Generation++
	n.Slots = map[SlotName]Slot{SlotA: l.Slots[SlotA], SlotB: l.Slots[SlotB]}
	for k, s := range n.Slots {
		if s.Status == "" {
			n.Slots[k] = Slot{Status: SlotEmpty}
		}
	}
	n.Marks = slices.Clone(l.Marks)
	for i := range n.Marks {
		m := &n.Marks[i]
		m.Candidates, m.Declared = slices.Clone(m.Candidates), slices.Clone(m.Declared)
		m.OperatorDeclared = slices.Clone(m.OperatorDeclared)
	}
	n.Tries = slices.Clone(l.Tries)
	// What this code writes may need a guard that can write it; the demands of a newer one stay.
	n.Schema, n.MinWriter = max(n.Schema, Schema), max(n.MinWriter, MinWriter)
	return n
}

// Event is one line of the history: what happened, to which content, and who did it.
type Event struct {
	Seq        uint64    `json:"seq,omitempty"` // its place in the history, set when stored
	Generation uint64    `json:"generation"`
	At         time.Time `json:"at,omitzero"` // wall clock, for people; order is by Seq
	Kind       EventKind `json:"kind"`
	Revision   string    `json:"revision,omitempty"`
	Digest     Digest    `json:"digest,omitempty"`
	Declared   Digest    `json:"declared,omitempty"`
	Slot       SlotName  `json:"slot,omitempty"`
	Fields     []string  `json:"fields,omitempty"`
	Check      string    `json:"check,omitempty"`
	Mark       uint64    `json:"mark,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	Message    string    `json:"message,omitempty"`
	Who        string    `json:"who,omitempty"`
	Count      int       `json:"count,omitempty"` // how often the same came in a row, if more than once
}

// EventKind names what happened. A verdict's event has the verdict's name.
type EventKind string

const (
	EventAdopted     EventKind = "adopted"
	EventTrial       EventKind = "trial"
	EventStands      EventKind = "mark-stands" // returning closed: the failure was the candidate's
	EventEnvironment EventKind = "environment" // returning closed: last-known-good fails alike
	EventMarkDropped EventKind = "mark-dropped"
	EventRollback    EventKind = "rollback"
	EventRetry       EventKind = "retry"
	EventSuspended   EventKind = "suspended"
	EventResumed     EventKind = "resumed"
	EventUnhealthy   EventKind = "unhealthy"
	EventHealthy     EventKind = "healthy"
	EventConfigured  EventKind = "configured" // a configuration was read anew and taken over
	EventRepaired    EventKind = "storage"    // a file of ours was set aside, rewritten or could not be written
)

// Step is the outcome of a transition: the ledger to store and what the history says of it, in one transaction.
type Step struct {
	Ledger Ledger
	Events []Event
}
