package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
)

// sentences says in words how it stands: what the board is doing first, then what of that is not as somebody might expect.
func (v *View) sentences(s Sources) (summary string, details []string) {
	lkg := v.LastKnownGood.name()
	switch {
	case v.Phase == api.PhaseTrial && v.Guard.Alive && v.Trial != nil:
		summary = fmt.Sprintf("Trying %s (%s) in slot %s, attempt %d; %s left in its window", v.Trial.Candidate.name(),
			strings.Join(v.Trial.Changed, ", "), v.Trial.Candidate.Source, v.Trial.Attempt, seconds(v.Trial.EndsInSeconds))
	case v.Phase == api.PhaseReturning:
		summary = fmt.Sprintf("Returning to last-known-good %s", lkg)
		if m, ok := v.mark(v.Returning.Mark); ok {
			summary += fmt.Sprintf(": %s %s", revision(m.Revision), m.because())
		}
	case !v.Guard.Alive && v.Phase == api.PhaseTrial:
		summary = fmt.Sprintf("A trial of %s is open and the guard does not answer; the device goes back to last-known-good %s", v.Trial.Candidate.name(), lkg)
	case v.Decision != nil && len(v.Decision.Held) > 0 && v.Decision.Mixed:
		summary = fmt.Sprintf("%s, except that %s", v.mixedVerb(), v.heldWords())
	case v.Decision != nil && len(v.Decision.Held) > 0:
		summary = fmt.Sprintf("Keeping last-known-good %s; %s", lkg, v.heldWords())
	case v.Declared == nil:
		summary = fmt.Sprintf("Nothing is declared yet; keeping %s", lkg)
	case v.Declared.Digest == v.LastKnownGood.Digest || v.Decision != nil && v.Decision.Kind == bootslot.Same:
		summary = fmt.Sprintf("%s is in force, as declared", capital(lkg))
		if sub := v.Declared.Subject; sub != "" && v.Declared.Revision == v.LastKnownGood.Revision {
			summary += fmt.Sprintf(" (%q)", sub)
		}
	case v.Decision != nil:
		summary = fmt.Sprintf("Keeping last-known-good %s; %s is not tried yet: %s", lkg, revision(v.Declared.Revision), v.Decision.Reason)
	default:
		summary = fmt.Sprintf("Keeping last-known-good %s; %s is declared and was not decided on yet", lkg, revision(v.Declared.Revision))
	}

	say := func(format string, args ...any) { details = append(details, fmt.Sprintf(format, args...)) }
	details = append(details, v.NotFine...)
	if s := v.Suspended; s != nil {
		what := "no trials"
		if s.Repair {
			what = "no trials and no repair"
		}
		say("suspended for another %s (%s)%s", seconds(s.SecondsLeft), what, by(s.Who))
	}
	if v.Git.State == GitOffline {
		say("offline since %s (%d tries): %s", v.Git.Since.Format(time.DateTime), v.Git.Times, v.Git.Message)
	}
	if v.Git.Advice != "" {
		say("repository: %s", v.Git.Advice)
	}
	if d := v.Declared; d != nil && v.Git.RemoteRevision != "" && v.Git.RemoteRevision != d.Revision {
		say("upstream is at %s; the last valid desired state is that of %s", revision(v.Git.RemoteRevision), revision(d.Revision))
	}
	if v.Trial != nil && len(v.Trial.Exempt) > 0 {
		say("exempt in this trial, because they did not hold before it: %s", strings.Join(v.Trial.Exempt, ", "))
	}
	if len(v.Device.Unknown) > 0 {
		say("the device has actuators that its profile does not know, left alone: %s", strings.Join(v.Device.Unknown, ", "))
	}
	if !v.Guard.Alive && s.Agent != nil && s.Agent.Why != "" {
		say("the agent: %s", s.Agent.Why)
	}
	return summary, details
}

func (v *View) mixedVerb() string {
	switch v.Decision.Kind {
	case bootslot.Refused, bootslot.AwaitBaseline, bootslot.Waiting:
		return fmt.Sprintf("Keeping last-known-good %s; %s is to be tried (%s)", v.LastKnownGood.name(), revision(v.Declared.Revision), v.Decision.Reason)
	}
	return fmt.Sprintf("%s is in force, mixed", capital(v.LastKnownGood.name()))
}

// heldWords says what is held, why, and what lifts it.
func (v *View) heldWords() string {
	d := v.Decision
	var names, whys []string
	for _, h := range d.Held {
		names = append(names, h.Field)
		why := "its file is not ready"
		if m, ok := v.mark(h.Mark); ok {
			why = m.because()
		}
		if !slices.Contains(whys, why) {
			whys = append(whys, why)
		}
	}
	verb := "is"
	if len(names) > 1 {
		verb = "are"
	}
	out := fmt.Sprintf("%s %s held: %s", strings.Join(names, ", "), verb, strings.Join(whys, "; "))
	if len(d.Marks) > 0 && d.RetryNumber > 0 {
		out += fmt.Sprintf("; raise retry: to %d to try again", d.RetryNumber)
	}
	return out
}

type mark bootslot.Mark

func (v *View) mark(id uint64) (mark, bool) {
	for _, m := range v.Marks {
		if m.ID == id && id != 0 {
			return mark(m), true
		}
	}
	return mark{}, false
}

// because says why a mark stands: the check and what it saw, or who wanted it so.
func (m mark) because() string {
	switch m.Cause {
	case bootslot.CauseOperator:
		return "rolled back by an operator" + by(m.Who)
	case bootslot.CauseAttempts:
		return "all its attempts ended without a conclusion"
	case bootslot.CauseEnvironment:
		return "failed " + colonParen(m.Check, m.Message) + ", as last-known-good then did"
	}
	return "failed " + colonParen(m.Check, m.Message)
}

func colonParen(check, message string) string {
	if message == "" {
		return check
	}
	return check + " (" + message + ")"
}

// name is a release as people know it: its revision, else that it is the fallback, else its digest.
func (r Release) name() string {
	switch {
	case r.Revision != "":
		return revision(r.Revision)
	case r.Source == FromFallback:
		return "the fallback"
	case r.Digest != "":
		return "content " + r.Digest.Short()
	}
	return "nothing"
}

// revision is a git revision as people know it.
func revision(r string) string {
	if r == "" {
		return "a release without revision"
	}
	return r[:min(7, len(r))]
}

func seconds(s float64) string {
	return (time.Duration(s * float64(time.Second))).Round(time.Second).String()
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return ", by " + who
}

// capital begins a sentence; a revision stays as git spells it.
func capital(s string) string {
	if rest, ok := strings.CutPrefix(s, "the "); ok {
		return "The " + rest
	}
	return s
}
