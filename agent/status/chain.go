package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

// Chain is why one field is as it is, or one mark stands: who declared what, what was tried, which check failed with which readings, and what
// to do about it.
type Chain struct {
	About string `json:"about"` // the field, or "mark 6"
	// Sentences tell all of it to people, in the order in which it came about.
	Sentences []string `json:"sentences"`
	// Next is what can be done, each by itself; empty if nothing needs to be.
	Next []string `json:"next,omitempty"`

	Field *FieldCause `json:"field,omitempty"` // of a field
	// Mark is the mark itself, or the one that holds the field.
	Mark *bootslot.Mark `json:"mark,omitempty"`
	// Trials are what the history says of the trials of the marked content, oldest first: each trial and how it ended.
	Trials []bootslot.Event `json:"trials,omitempty"`
	// RetryNumber is what to write as `retry:` to try what is held once more, 0 if nothing is held.
	RetryNumber uint64 `json:"retryNumber,omitempty"`
}

// FieldCause is how it stands with one field.
type FieldCause struct {
	Name      string `json:"name"`
	Declared  string `json:"declared,omitempty"`
	Effective string `json:"effective,omitempty"`
	Observed  string `json:"observed,omitempty"`
	Held      bool   `json:"held"`
	// Revision is the one that brought the effective value, as far as the history goes back, else the one in force.
	Revision string `json:"revision,omitempty"`
	Driver   string `json:"driver,omitempty"`
}

// FieldChain tells why field is as it is. events are the history, oldest first, nil if it cannot be had. False if there is no such field.
func (v *View) FieldChain(p device.Profile, field string, events []bootslot.Event) (Chain, bool) {
	effective, known := v.Effective.values()[field]
	if !known {
		if _, ok := p.Actuator(field); !ok && v.Device.Observed[field] == "" {
			return Chain{}, false
		}
	}
	c := Chain{About: field, Field: &FieldCause{Name: field, Effective: effective, Observed: v.Device.Observed[field], Driver: v.Driver}}
	if v.Declared != nil {
		c.Field.Declared = Release{Fields: v.Declared.Fields, Image: v.Declared.Image}.values()[field]
	}
	if v.Decision != nil {
		for _, h := range v.Decision.Held {
			if h.Field == field {
				v.heldChain(&c, p, h, events)
				v.deviceSentences(&c, p, field)
				return c, true
			}
		}
	}
	v.freeChain(&c, p, field, events)
	v.deviceSentences(&c, p, field)
	return c, true
}

// MarkChain tells why a mark stands, or the one that it went into. False if there is none with that number.
func (v *View) MarkChain(p device.Profile, id uint64, events []bootslot.Event) (Chain, bool) {
	m, ok := v.mark(id)
	if !ok {
		if m, ok = v.wentInto(id, events); !ok {
			return Chain{}, false
		}
		c, _ := v.MarkChain(p, m.ID, events)
		c.Sentences = slices.Insert(c.Sentences, 0, fmt.Sprintf("Mark %d was joined with mark %d, whose set its own contained.", id, m.ID))
		return c, true
	}
	c := Chain{About: fmt.Sprintf("mark %d", id)}
	v.markChain(&c, p, bootslot.Mark(m), events)
	holds := v.Decision != nil && slices.Contains(v.Decision.Marks, id)
	switch {
	case m.Retired:
		c.say("It is retired: last-known-good has come to contain what it marked, so it holds nothing any more. Its contents are not tried again as they were.")
	case holds:
		c.RetryNumber = v.Decision.RetryNumber
		c.say("It holds %s now.", strings.Join(v.heldBy(id), ", "))
		v.lifts(&c, bootslot.Mark(m))
	case v.Declared == nil:
		c.say("It holds nothing now: nothing is declared.")
	default:
		c.say("It holds nothing now: what is declared does not contain all of it.")
	}
	return c, true
}

// wentInto finds the mark that has the content for which the one with that number was made, going by the history.
func (v *View) wentInto(id uint64, events []bootslot.Event) (mark, bool) {
	for _, e := range slices.Backward(events) {
		if e.Mark != id || e.Digest == "" || id == 0 {
			continue
		}
		if i := slices.IndexFunc(v.Marks, func(m bootslot.Mark) bool { return slices.Contains(m.Candidates, e.Digest) }); i >= 0 {
			return mark(v.Marks[i]), true
		}
	}
	return mark{}, false
}

func (c *Chain) say(format string, args ...any) {
	c.Sentences = append(c.Sentences, fmt.Sprintf(format, args...))
}

func (c *Chain) next(format string, args ...any) {
	c.Next = append(c.Next, fmt.Sprintf(format, args...))
}

// heldChain tells of a field that is kept at last-known-good.
func (v *View) heldChain(c *Chain, p device.Profile, h bootslot.HeldField, events []bootslot.Event) {
	c.Field.Held, c.Field.Revision = true, v.LastKnownGood.Revision
	if v.partly() {
		c.say("%s is held at %s, as before %s, which declares %s and is in force but for what is held.", h.Field, orElse(h.Keep, "nothing"), v.declaredWords(), orElse(h.Want, "nothing"))
	} else {
		c.say("%s is held at %s, the value of last-known-good %s; %s declares %s.", h.Field, orElse(h.Keep, "nothing"), v.LastKnownGood.Name(),
			v.declaredWords(), orElse(h.Want, "nothing"))
	}
	m, ok := v.mark(h.Mark)
	if !ok {
		c.say("No mark holds it: its image is not fetched and hashed yet, or this board has no boot slots.")
		return
	}
	c.RetryNumber = v.Decision.RetryNumber
	v.markChain(c, p, bootslot.Mark(m), events)
	if _, of := m.Set[h.Field]; !of {
		c.say("%s is not of that set: what the mark leaves has failed as a whole, was rolled back as a whole, or 'hold: release' is configured.", h.Field)
	}
	if d := v.Declared; d != nil && d.Revision != m.Revision {
		c.say("%s is another revision, and declares all of that again: the content is marked, not the revision.", revision(d.Revision))
	}
	v.lifts(c, bootslot.Mark(m))
}

// markChain tells how a mark came about.
func (v *View) markChain(c *Chain, p device.Profile, m bootslot.Mark, events []bootslot.Event) {
	c.Mark, c.Trials = &m, trialsOf(m, events)
	set := FieldsText(p, m.Set)
	if m.Cause == bootslot.CauseOperator {
		c.say("Mark %d: %s rolled back from %s %s. Against the release that was gone back to, that had set %s.", m.ID, orElse(m.Who, "an operator"),
			RevisionBy(m.Revision, m.Origin), v.when(m.At), set)
		return
	}
	end := "failed"
	if m.Cause == bootslot.CauseAttempts {
		end = "ended without a conclusion, like all before it,"
	}
	c.say("Mark %d: %s set %s, and its trial %s %s.", m.ID, RevisionBy(m.Revision, m.Origin), set, end, v.when(m.At))
	switch {
	case m.Cause == bootslot.CauseAttempts:
		c.say("Of the last one: %s.", orElse(m.Message, "nothing more is known"))
	case m.Check != "":
		c.say("The check %s failed%s.", m.Check, colonBefore(m.Message))
	}
	for _, r := range []struct {
		when string
		bootslot.Readings
	}{{"before the trial", m.Before}, {"when it failed", m.During}, {"once back on last-known-good", m.After}} {
		if len(r.Readings) > 0 {
			c.say("Readings %s: %s.", r.when, ReadingsText(p, r.Readings))
		}
	}
	switch returning := v.Returning != nil && v.Returning.Mark == m.ID; {
	case m.Cause == bootslot.CauseFailed && returning:
		c.say("The device is being brought back now; whether the failure was the change's shows when %s has held on last-known-good.", m.Check)
	case m.Cause == bootslot.CauseFailed && m.Check != "":
		c.say("Without the change the check held again, so it was the change.")
	case m.Cause == bootslot.CauseEnvironment && m.Exhausted:
		c.say("Without the change it failed as well, so it may not have been the change; but its attempts are used up.")
	case m.Cause == bootslot.CauseEnvironment:
		c.say("Without the change it failed as well, so it may not have been the change: once %s holds, it is tried again by itself.", m.Check)
	}
	if n := len(c.Trials); n > 0 {
		var ends []string
		attempts := 0
		for _, e := range c.Trials {
			switch e.Kind {
			case bootslot.EventTrial:
				attempts += max(e.Count, 1)
			case bootslot.EventStands, bootslot.EventEnvironment: // what became of a failed one
			default:
				ends = append(ends, string(e.Kind))
			}
		}
		if attempts > 1 {
			c.say("It had %d trials: %s.", attempts, strings.Join(ends, ", "))
		}
	}
}

// lifts says what lifts a mark that holds something.
func (v *View) lifts(c *Chain, m bootslot.Mark) {
	if v.Decision.Forecast {
		c.say("The guard does not answer: this is what its ledger says, and how a guard would decide.")
	}
	fields := slices.Sorted(maps.Keys(m.Set))
	other := "another value for "
	if len(fields) > 1 {
		other += "one of "
	}
	other += strings.Join(fields, ", ")
	if v.Declared != nil && slices.Contains(m.OperatorDeclared, v.Declared.Digest) {
		other = "anything else"
	}
	c.next("commit a fix: declare %s. That is a new experiment and needs no leave.", other)
	c.next("or try the same once more, when its cause is gone: %s in the declared file, or run 'holdfast retry' for this board alone.", v.retryWords())
	if m.Cause == bootslot.CauseEnvironment && !m.Exhausted {
		c.next("or wait: it is tried again once %s has held.", m.Check)
	}
}

// freeChain tells of a field that nothing holds.
func (v *View) freeChain(c *Chain, p device.Profile, field string, events []bootslot.Event) {
	if v.Trial != nil && v.Phase == api.PhaseTrial && slices.Contains(v.Trial.Changed, field) {
		t := v.Trial
		c.Field.Revision = t.Candidate.Revision
		c.say("%s is on trial: %s changes it from %s to %s, in attempt %d, which began %s.", field, RevisionBy(t.Candidate.Revision, t.Candidate.Origin),
			orElse(v.LastKnownGood.values()[field], "nothing"), orElse(c.Field.Effective, "nothing"), t.Attempt, v.when(t.At))
		if len(t.Convicting) > 0 {
			c.say("These checks must hold, or it is undone: %s.", strings.Join(t.Convicting, ", "))
		}
		if t.EndsInSeconds > 0 {
			c.say("The trial ends in %s at the latest.", seconds(t.EndsInSeconds))
		}
		return
	}
	if _, ok := p.Actuator(field); !ok && field != bootslot.ImageField {
		c.say("%s is an actuator that the device has and its profile does not know. It is shown and left alone.", field)
		return
	}
	if c.Field.Effective == "" {
		c.say("What %s is to be cannot be told: %s.", field, v.Summary)
		return
	}
	c.Field.Revision = v.LastKnownGood.Revision
	since := ""
	if e, ok := broughtBy(field, v.LastKnownGood.Digest, events); ok {
		c.Field.Revision = e.Revision
		since = fmt.Sprintf(", since %s %s %s", revision(e.Revision), verb[e.Kind], v.when(e.At))
	}
	c.say("%s is to be %s: that is the value of last-known-good %s%s%s.", field, c.Field.Effective, v.LastKnownGood.Name(), originWords(v.LastKnownGood.Origin), since)
	switch {
	case v.Declared == nil:
	case c.Field.Declared == c.Field.Effective || c.Field.Declared == "":
		c.say("Nothing holds it: %s declares the same.", v.declaredWords())
	default:
		c.say("%s declares %s, which is not tried yet: %s.", v.declaredWords(), c.Field.Declared, orElse(v.Reason(), "the guard was not asked yet"))
	}
}

// deviceSentences tells what the device makes of it.
func (v *View) deviceSentences(c *Chain, p device.Profile, field string) {
	d := v.Device
	if !d.Answers {
		c.say("The device does not answer, so what it is now is not known.")
		c.next("check the device and its link: 'holdfast doctor' says what can be seen from here.")
		return
	}
	driver := map[string]string{"agent": "The agent drives it", "guard": "The guard drives it, as the agent does not", "nobody": "Nobody drives it"}[v.Driver]
	if _, ok := p.Actuator(field); !ok {
		if c.Field.Observed != "" {
			c.say("The device reports %s.", c.Field.Observed)
		}
		return
	}
	c.say("%s; the device reports %s.", orElse(driver, "Who drives it cannot be told"), orElse(c.Field.Observed, "nothing of it"))
	drift := slices.IndexFunc(d.Drift, func(x device.Drift) bool { return x.Field == field })
	switch msg := d.Refused[field]; {
	case msg != "":
		c.say("The device refuses it: %s. It is tried again with growing pauses.", msg)
		c.next("mend the device, or declare a value that it takes.")
	case slices.Contains(d.NonConvergent, field):
		c.say("It does not converge: each write succeeds, and it reads back otherwise%s. Writes to it get growing pauses; nothing is marked.", knownAs(p, d.Drift, drift))
		c.next("look at the actuator: it may be stuck, or the device translates the value.")
	case slices.Contains(d.Contended, field):
		c.say("It is contended: it is put back each time, and drifts again soon after. Somebody or something else keeps changing it.")
		c.next("find who else writes to it: a timer, a wall switch, a second controller. To work on it by hand: 'holdfast suspend --for 1h --repair'.")
	case drift >= 0 && v.repairStopped():
		c.say("It has drifted, and is left alone: the repair is suspended for another %s%s.", seconds(v.Suspended.SecondsLeft), by(v.Suspended.Who))
		c.next("'holdfast resume' ends the suspension.")
	case drift >= 0:
		c.say("It has drifted, and is put back.")
	}
}

func knownAs(p device.Profile, drift []device.Drift, i int) string {
	if i < 0 {
		return ""
	}
	return fmt.Sprintf(" (%s)%s", orElse(drift[i].Got, "nothing"), knownValues(p, drift[i]))
}

// heldBy lists what a mark holds now.
func (v *View) heldBy(id uint64) (fields []string) {
	for _, h := range v.Decision.Held {
		if h.Mark == id {
			fields = append(fields, h.Field)
		}
	}
	return fields
}

// trialsOf finds the trials of a marked content, and how each ended.
func trialsOf(m bootslot.Mark, events []bootslot.Event) (out []bootslot.Event) {
	for _, e := range events {
		switch e.Kind {
		case bootslot.EventTrial, bootslot.EventKind(bootslot.Failed), bootslot.EventKind(bootslot.Inconclusive), bootslot.EventEnvironment,
			bootslot.EventKind(bootslot.Cancelled), bootslot.EventStands:
			if e.Mark == m.ID || slices.Contains(m.Candidates, e.Digest) {
				out = append(out, e)
			}
		}
	}
	return out
}

// verb says what an event that put something into force did.
var verb = map[bootslot.EventKind]string{bootslot.EventKind(bootslot.Passed): "passed its trial", bootslot.EventAdopted: "was adopted", bootslot.EventRollback: "was gone back to"}

// broughtBy finds the event that brought a field's value into force: the newest that changed it, of those since which last-known-good is known.
func broughtBy(field string, lkg bootslot.Digest, events []bootslot.Event) (bootslot.Event, bool) {
	first := true
	for _, e := range slices.Backward(events) {
		if verb[e.Kind] == "" {
			continue
		}
		if first && e.Digest != lkg {
			break // the history does not end where the ledger is
		}
		first = false
		if e.Kind == bootslot.EventAdopted || slices.Contains(e.Fields, field) {
			return e, true
		}
	}
	return bootslot.Event{}, false
}

func (v *View) declaredWords() string {
	if v.Declared == nil {
		return "nothing"
	}
	return RevisionBy(v.Declared.Revision, v.Declared.Origin())
}

// RevisionBy is a revision with what is known of who declared it.
func RevisionBy(r string, o bootslot.Origin) string {
	return revision(r) + originWords(o)
}

func originWords(o bootslot.Origin) string {
	switch {
	case o.Subject != "" && o.Author != "":
		return fmt.Sprintf(" (%q, by %s)", o.Subject, o.Author)
	case o.Subject != "":
		return fmt.Sprintf(" (%q)", o.Subject)
	case o.Author != "":
		return fmt.Sprintf(" (by %s)", o.Author)
	}
	return ""
}

// when is a time in a sentence.
func (v *View) when(t time.Time) string {
	if t.IsZero() {
		return "at a time that is not known"
	}
	out := "at " + Wall(t)
	if rough := Ago(v.At, t); rough != "" {
		out += ", " + rough
	}
	return out
}

func colonBefore(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}
