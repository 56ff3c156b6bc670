package bootslot

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Check is one configured or built-in check, as far as judging needs to know it.
type Check struct {
	Name     string
	Required bool
	Soak     time.Duration // how long it must hold; the guard's soak, or a longer one of its own
	// Fatal says that three bad samples in a row convict at once.
	Fatal bool
}

// Sample is one measurement of a check.
type Sample struct {
	Check   string
	OK      bool
	Message string
	// At is the uptime at which the measurement began: what it saw is not older.
	At time.Duration
}

// fatalSamples in a row beyond a fatal limit convict at once.
const fatalSamples = 3

// run is an unbroken row of good samples of one check.
type run struct {
	holding bool
	since   time.Duration // of the first good sample
	last    time.Duration // of the newest sample
	bad     int           // bad samples in a row
	message string        // of the newest bad sample
}

// Soak follows how long each check has held without a break. The zero value is ready.
type Soak struct{ runs map[string]*run }

// See takes a sample. One that is not newer than the last of its check is the same measurement seen again.
func (k *Soak) See(s Sample) { k.see(s, false) }

// see takes a sample. A good one that is early interrupts a row of bad ones and begins no soak.
func (k *Soak) see(s Sample, early bool) {
	if k.runs == nil {
		k.runs = map[string]*run{}
	}
	r := k.runs[s.Check]
	if r == nil {
		r = &run{last: -1}
		k.runs[s.Check] = r
	}
	if s.At <= r.last {
		return
	}
	r.last = s.At
	if !s.OK {
		r.holding, r.message = false, s.Message
		r.bad++
		return
	}
	r.bad = 0
	if early {
		return
	}
	if !r.holding {
		r.holding, r.since = true, s.At
	}
}

// Held returns how long check has held, from its first good sample to its newest; false if it does not hold. A check that hangs gives
// no new samples and so does not come to hold for longer.
func (k *Soak) Held(check string) (time.Duration, bool) {
	r := k.runs[check]
	if r == nil || !r.holding {
		return 0, false
	}
	return r.last - r.since, true
}

// Message is what the newest bad sample of check said.
func (k *Soak) Message(check string) string {
	if r := k.runs[check]; r != nil {
		return r.message
	}
	return ""
}

// Bad is the number of bad samples of check in a row.
func (k *Soak) Bad(check string) int {
	if r := k.runs[check]; r != nil {
		return r.bad
	}
	return 0
}

// clear forgets that anything holds, and keeps what was said last.
func (k *Soak) clear() {
	for _, r := range k.runs {
		r.holding, r.bad = false, 0
	}
}

// Look is what the guard sees at one tick.
type Look struct {
	At       time.Duration // uptime
	Answered bool          // the device answers
	// ReadBack says that the device reads back all fields of what it is to be, those set aside excepted.
	ReadBack bool
	Samples  []Sample
	// Silent says that nothing has been heard of the agent for SilenceMax: it may be driving to last-known-good by itself.
	Silent bool
	// Refusal is set when the device refused a candidate's value and, asked by the guard, accepted last-known-good's.
	Refusal *Refusal
}

// Refusal is a candidate's value that the device does not take although it takes last-known-good's.
type Refusal struct{ Check, Message string }

// Judge decides on an open trial from what the guard sees tick by tick. It is a value in memory: a guard that starts anew has none, and
// settles the trial as inconclusive.
type Judge struct {
	Opened time.Duration // uptime
	Window time.Duration // the whole of it, grown by the longest soak of a check
	Soak   time.Duration // the guard's: the longest gap between two ticks
	Checks []Check       // the convicting ones

	last       time.Duration
	readBack   bool
	readBackAt time.Duration // uptime
	soak       Soak
}

// NewJudge returns a judge for t, opened at uptime at, with the checks of the configuration that it was opened with.
func NewJudge(t Trial, at, window, soak time.Duration, checks []Check) *Judge {
	j := &Judge{Opened: at, Window: window, Soak: soak, last: at}
	longest := soak
	for _, c := range checks {
		c.Soak = max(c.Soak, soak) // a check's own can only be longer
		if slices.Contains(t.Baseline.Convicting, c.Name) {
			j.Checks = append(j.Checks, c)
			longest = max(longest, c.Soak)
		}
	}
	j.Window += longest - soak
	return j
}

// EndsIn is what is left of the window.
func (j *Judge) EndsIn(now time.Duration) time.Duration { return max(0, j.Opened+j.Window-now) }

// Unwatched reports whether nobody has looked for longer than the soak time: the next look settles the trial.
func (j *Judge) Unwatched(now time.Duration) bool { return now-j.last > j.Soak }

// See takes one tick and returns a verdict, or "" while there is none.
//
// Where nothing may convict, because nothing held at rest, a candidate still has to be read back and to last for the soak time; and if it is
// never read back, nobody is left whom that could convict, and the verdict is inconclusive.
func (j *Judge) See(k Look) (Verdict, Evidence) {
	gap, unwatched := k.At-j.last, j.Unwatched(k.At)
	j.last = k.At
	if unwatched {
		return Inconclusive, Evidence{Message: fmt.Sprintf("the guard could not look for %v, longer than the soak time of %v", gap.Round(time.Millisecond), j.Soak)}
	}
	if k.Refusal != nil && j.convicts(k.Refusal.Check) {
		return Failed, Evidence{Check: k.Refusal.Check, Message: k.Refusal.Message}
	}
	for _, s := range k.Samples {
		if s.At < j.Opened {
			continue // measured before the trial
		}
		// Soak counts from the read-back of the candidate; that a check fails counts before it, too.
		j.soak.see(s, !j.readBack || s.At < j.readBackAt)
	}
	for _, c := range j.Checks {
		if c.Fatal && j.soak.Bad(c.Name) >= fatalSamples {
			return Failed, Evidence{Check: c.Name, Message: j.soak.Message(c.Name)}
		}
	}
	if k.ReadBack && !j.readBack {
		j.readBack, j.readBackAt = true, k.At
	}
	if j.readBack && j.allHeld() && k.At-j.readBackAt >= j.Soak {
		return Passed, Evidence{}
	}
	if k.At-j.Opened < j.Window {
		if !k.Silent {
			return "", Evidence{}
		}
		// A window may be much longer than the agent waits. Were the trial to go on, the two would drive the device to and fro until it ends.
		ev := Evidence{Check: AgentAlive, Message: "nothing is heard of the agent, which may be driving to last-known-good by itself"}
		if !j.convicts(AgentAlive) {
			return Inconclusive, ev
		}
		return Failed, ev
	}
	if !k.Answered && !j.readBack {
		return Inconclusive, Evidence{Message: "the device does not answer and never read back the candidate"}
	}
	if j.allHeld() {
		return Inconclusive, Evidence{Message: "no check that may convict failed, but the candidate was not read back for the soak time"}
	}
	return Failed, j.worst()
}

func (j *Judge) convicts(check string) bool {
	return slices.ContainsFunc(j.Checks, func(c Check) bool { return c.Name == check })
}

func (j *Judge) allHeld() bool {
	for _, c := range j.Checks {
		if held, ok := j.soak.Held(c.Name); !ok || held < c.Soak {
			return false
		}
	}
	return true
}

// worst names the check that a failed trial is remembered by, and that must hold again on last-known-good: one that fails, before one that did
// and has not held long enough since, before one against which nothing is known but that its time was too short; a configured one before
// a built-in one, which often only follows from it; the order of the configuration otherwise.
func (j *Judge) worst() Evidence {
	best, rank := Check{}, 99
	for _, c := range j.Checks {
		held, ok := j.soak.Held(c.Name)
		r := 4
		switch {
		case ok && held >= c.Soak:
			continue
		case j.soak.Bad(c.Name) > 0:
			r = 0
		case j.soak.Message(c.Name) != "":
			r = 2
		}
		if BuiltIn(c.Name) {
			r++
		}
		if r < rank {
			best, rank = c, r
		}
	}
	msg := j.soak.Message(best.Name)
	if held, ok := j.soak.Held(best.Name); ok {
		msg = fmt.Sprintf("held for only %v of %v when the window ended; before that: %s", held.Round(time.Millisecond), best.Soak, msg)
	} else if msg == "" {
		msg = "had no result when the window ended"
	}
	return Evidence{Check: best.Name, Message: msg}
}

// The built-in checks; ConvergedCheck is one per field.
const (
	DeviceAnswers = "device-answers"
	AgentAlive    = "agent-alive"
	converged     = "device-converged:"
)

// ConvergedCheck names the check that a field reads back what it is to be.
func ConvergedCheck(field string) string { return converged + field }

// BuiltIn reports whether a check is one of the guard's own.
func BuiltIn(check string) bool {
	return check == DeviceAnswers || check == AgentAlive || strings.HasPrefix(check, converged)
}

// Rest follows the self-test of last-known-good between trials: the baseline, and whether a marked environment is well again.
type Rest struct {
	Checks  []Check // configured and built-in, wanted ones included
	Soak    time.Duration
	Recover time.Duration // at least the longest soak of a check

	began    time.Duration // uptime since when the device is at rest: nothing measured before counts
	last     time.Duration // uptime of the newest tick
	missing  time.Duration // watched without the whole baseline, while the device answered
	restless time.Duration // of that: since it was last at rest
	at       bool
	why      string
	soak     Soak
}

// NewRest starts anew, at uptime at: after a start, a trial, a returning, a suspension with --repair.
func NewRest(at, soak, recover time.Duration, checks []Check) *Rest {
	r := &Rest{Checks: checks, Soak: soak, Recover: recover, last: at}
	for _, c := range checks {
		r.Recover = max(r.Recover, c.Soak)
	}
	return r
}

// See takes one tick.
func (r *Rest) See(k Look) {
	gap := k.At - r.last
	r.last = k.At
	if k.Answered && gap <= r.Soak {
		// Time with a device that is away, or that nobody watched, is not time in which it did not recover.
		r.missing += gap
		r.restless += gap
	}
	if !k.Answered || !k.ReadBack {
		r.at, r.why = false, "the device does not read back last-known-good"
		if !k.Answered {
			r.why = "the device does not answer"
		}
		return
	}
	r.restless = 0
	if !r.at || gap > r.Soak {
		// Anew after drift, an absence, or a gap: what was measured meanwhile says nothing of last-known-good.
		r.at, r.began = true, k.At
		r.soak.clear()
	}
	for _, s := range k.Samples {
		if s.At >= r.began {
			r.soak.See(s)
		}
	}
	var missing []string
	for _, c := range r.Checks {
		if c.Required && !r.held(c.Name) {
			missing = append(missing, c.Name)
		}
	}
	if len(missing) == 0 {
		r.missing, r.why = 0, ""
		return
	}
	r.why = fmt.Sprintf("not held at rest for %v yet: %s", r.Soak, strings.Join(missing, ", "))
}

func (r *Rest) held(check string) bool {
	held, ok := r.soak.Held(check)
	return ok && held >= r.Soak
}

// overdue reports whether a trial goes ahead without what does not hold. That the time is over is not enough, or one check that is sick would let all the
// others off that drift, an absence or a gap has just made begin anew: what neither failed nor held for the soak time yet is waited for, for as
// long again at most, and a device that has just left its rest for it, too.
func (r *Rest) overdue() bool {
	switch {
	case r.missing < r.Recover:
		return false
	case !r.at:
		return r.restless >= r.Recover
	case r.missing >= 2*r.Recover:
		return true
	}
	for _, c := range r.Checks {
		if c.Required && !r.held(c.Name) && r.soak.Bad(c.Name) == 0 {
			return false
		}
	}
	return true
}

// Facts is what Admit needs to know, at uptime now. What was seen before a gap is not known any more: a guard that was stopped has to look first.
func (r *Rest) Facts(now time.Duration) RestFacts {
	looks := now-r.last <= r.Soak
	f := RestFacts{AtRest: r.at && looks, Overdue: looks && r.overdue(), Why: r.why, Soak: r.Soak}
	for _, c := range r.Checks {
		if c.Required {
			f.Required = append(f.Required, c.Name)
			if f.AtRest && r.held(c.Name) {
				f.Holding = append(f.Holding, c.Name)
			}
		}
	}
	switch {
	case !looks:
		f.Why = fmt.Sprintf("the guard has not looked for %v", (now - r.last).Round(time.Second))
	case f.Why != "" && !f.Overdue:
		f.AheadIn = max(r.Recover-r.missing, 0)
		f.Why += fmt.Sprintf("; the trial starts in %v anyway", f.AheadIn.Round(time.Second))
	}
	return f
}

// Recovery follows the phase returning: does the check that convicted hold on last-known-good?
type Recovery struct {
	Check   string
	Soak    time.Duration
	Recover time.Duration
	// Gone says that the check is no longer configured: it counts as held.
	Gone bool

	began     time.Duration // uptime since when the device is at rest: nothing measured before counts
	at        bool
	answering time.Duration // uptime spent with a device that answers
	last      time.Duration // uptime of the newest tick
	soak      Soak
}

// NewRecovery starts at uptime at.
func NewRecovery(check string, at, soak, recover time.Duration, checks []Check) *Recovery {
	r := &Recovery{Check: check, Soak: soak, Recover: recover, last: at,
		Gone: !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == check })}
	for _, c := range checks {
		r.Recover = max(r.Recover, c.Soak)
	}
	return r
}

// See takes one tick and says whether the phase is over, and whether the check held. A device that does not answer leaves it open.
func (r *Recovery) See(k Look) (over, held bool) {
	gap := k.At - r.last
	if k.Answered && gap <= r.Soak { // a guard that was stopped has not watched
		r.answering += gap
	}
	r.last = k.At
	if rest := k.Answered && k.ReadBack; !rest || !r.at || gap > r.Soak {
		// What holds has to be seen at rest, and without a gap.
		r.at, r.began = rest, k.At
		r.soak.clear()
	}
	for _, s := range k.Samples {
		if s.Check == r.Check {
			r.soak.see(s, !r.at || s.At < r.began)
		}
	}
	if r.at && r.Gone {
		return true, true
	}
	h, holds := r.soak.Held(r.Check)
	if holds && h >= r.Soak {
		return true, true
	}
	// What has neither failed nor held for the soak time since the rest began is waited for, for as long again at most.
	fails := !r.at || r.soak.Bad(r.Check) > 0 || r.answering >= 2*r.Recover
	return k.Answered && !holds && fails && r.answering >= r.Recover, false
}

// Message is what the check said when it last failed.
func (r *Recovery) Message() string { return r.soak.Message(r.Check) }
