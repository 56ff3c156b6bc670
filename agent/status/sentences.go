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
	summary = v.situation()
	details = append(details, v.NotFine...)
	if v.NobodyKeeps() {
		if v.LedgerKnown {
			details = append(details, v.unkept(summary))
		}
		summary = v.nobodyWords()
	}
	say := func(format string, args ...any) { details = append(details, fmt.Sprintf(format, args...)) }
	if d := v.Decision; d != nil && d.Awaiting != nil {
		ahead := ""
		if s := d.Awaiting.AheadInSeconds; s > 0 {
			ahead = "; the trial starts in " + seconds(s) + " anyway"
		}
		say("to hold for %s before the trial: %s%s", length(d.Awaiting.SoakSeconds), strings.Join(d.Awaiting.Checks, ", "), ahead)
	}
	if d := v.Decision; d != nil && len(d.Marks) > 0 {
		say("'holdfast why %s' tells all about it, 'holdfast diff' shows what differs", d.Held[0].Field)
	}
	if v.Device.WriteErrors == 1 {
		say("the newest write went wrong: %s", v.Device.WriteError)
	}
	if s := v.Suspended; s != nil {
		what := "no trials"
		if s.Repair {
			what = "no trials and no repair"
		}
		say("suspended for another %s (%s)%s", seconds(s.SecondsLeft), what, by(s.Who))
	}
	if v.Git.State == GitOffline {
		say("%s", v.Git.Fault())
	}
	for _, n := range v.Git.Notices {
		say("the declared revision: %s", n)
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

// Fault is all that there is to say about a repository that cannot be used, in one line: which kind of fault, since when, how often, what
// happened, and what to do. What a file has wrong in many lines follows in as many.
func (g Git) Fault() string {
	times := "1 try"
	if g.Times != 1 {
		times = fmt.Sprintf("%d tries", g.Times)
	}
	out := fmt.Sprintf("the repository: %s since %s (%s)", g.State, g.Since.Format(time.DateTime), times)
	if strings.Contains(g.Message, "\n") {
		return colon(out, g.Advice) + "\n" + g.Message
	}
	out = colon(out, g.Message)
	if g.Advice != "" {
		out += "; " + g.Advice
	}
	return out
}

// situation is what the board does, in one sentence.
func (v *View) situation() string {
	lkg := v.LastKnownGood.Name()
	d := v.Decision
	switch {
	case !v.LedgerKnown && v.Guard.State == ProcessUnreachable:
		return "What is in force cannot be told: this user may neither ask the guard nor read its ledger"
	case !v.LedgerKnown && v.Effective.Fields != nil:
		return "The agent keeps what it knows to be last-known-good; the ledger cannot be read"
	case !v.LedgerKnown:
		return "What is in force cannot be told: the guard does not answer, and its ledger cannot be read"
	case v.Phase == api.PhaseTrial && v.Guard.Alive && v.Trial != nil:
		return fmt.Sprintf("Trying %s (%s) in slot %s, attempt %d; %s left in its window", v.Trial.Candidate.Name(),
			strings.Join(v.Trial.Changed, ", "), v.Trial.Candidate.Source, v.Trial.Attempt, seconds(v.Trial.EndsInSeconds))
	case v.Phase == api.PhaseReturning:
		out := fmt.Sprintf("Returning to last-known-good %s", lkg)
		if m, ok := v.mark(v.Returning.Mark); ok {
			out += ": " + m.because()
		}
		return out
	case !v.Guard.Alive && v.Phase == api.PhaseTrial:
		return fmt.Sprintf("A trial of %s is open and the guard does not answer; the device goes back to last-known-good %s", v.Trial.Candidate.Name(), lkg)
	case d != nil && len(d.Held) > 0 && d.Mixed && v.Declared != nil:
		return fmt.Sprintf("%s, except that %s", v.mixedVerb(), v.heldWords())
	case d != nil && len(d.Held) > 0:
		return fmt.Sprintf("%s; %s", v.keeping(), v.heldWords())
	case v.Declared == nil && !v.CloneKnown:
		return fmt.Sprintf("Keeping %s; what is declared cannot be read", lkg)
	case v.Declared == nil:
		return fmt.Sprintf("Nothing is declared yet; keeping %s", lkg)
	case v.Declared.Digest == v.LastKnownGood.Digest || d != nil && d.Kind == bootslot.Same:
		out := fmt.Sprintf("%s is in force, as declared", capital(lkg))
		if sub := v.Declared.Subject; sub != "" && v.Declared.Revision == v.LastKnownGood.Revision {
			out += fmt.Sprintf(" (%q)", sub)
		}
		return out
	case d != nil && v.partly():
		return fmt.Sprintf("%s; the rest of it is not tried yet: %s", v.keeping(), v.Reason())
	case d != nil:
		return fmt.Sprintf("%s; %s is not tried yet: %s", v.keeping(), revision(v.Declared.Revision), v.Reason())
	}
	return fmt.Sprintf("Keeping last-known-good %s; %s is declared and was not decided on yet", lkg, revision(v.Declared.Revision))
}

// partly reports whether what is in force came of the declared revision. Where it is asked that is not all of it.
func (v *View) partly() bool {
	return v.Declared != nil && v.Declared.Revision != "" && v.Declared.Revision == v.LastKnownGood.Revision
}

func (v *View) keeping() string {
	if v.partly() {
		return v.LastKnownGood.Name() + " is in force in part"
	}
	return "Keeping last-known-good " + v.LastKnownGood.Name()
}

// NobodyKeeps reports whether neither process can be at work on the device.
func (v *View) NobodyKeeps() bool {
	gone := func(p Process) bool { return p.State == ProcessDead || p.State == ProcessSilent }
	return gone(v.Guard) && gone(v.Agent)
}

// unkept is the situation as it is to be when somebody keeps the device again.
func (v *View) unkept(situation string) string {
	if rest, ok := strings.CutPrefix(situation, "Keeping "); ok {
		return "it is to be kept at " + rest
	}
	if rest, ok := strings.CutPrefix(situation, "Returning to "); ok {
		return "it is to go back to " + rest
	}
	if v.Phase == api.PhaseTrial {
		return fmt.Sprintf("it is to go back to last-known-good %s: a trial of %s is open", v.LastKnownGood.Name(), v.Trial.Candidate.Name())
	}
	return strings.ReplaceAll(situation, "; keeping ", "; it is to be kept at ")
}

func (v *View) nobodyWords() string {
	word := map[ProcessState]string{ProcessDead: "dead", ProcessSilent: "silent"}
	if a, g := word[v.Agent.State], word[v.Guard.State]; a != g {
		return fmt.Sprintf("Nobody keeps the device: the agent is %s, the guard is %s", a, g)
	}
	return fmt.Sprintf("Nobody keeps the device: agent and guard are %s", word[v.Guard.State])
}

// Reason is the decision's reason for people: a baseline in short.
func (v *View) Reason() string {
	d := v.Decision
	switch {
	case d == nil:
		return ""
	case d.Awaiting == nil:
		return d.Reason
	}
	count, required := "", 0
	for _, c := range v.Checks {
		if c.Required {
			required++
		}
	}
	if n := len(d.Awaiting.Checks); n <= required {
		count = fmt.Sprintf(" (%d of %d still to go)", n, required)
	}
	return fmt.Sprintf("its trial starts when all checks have held for %s%s", length(d.Awaiting.SoakSeconds), count)
}

// retryWords says what to do to the declared file for another try.
func (v *View) retryWords() string {
	declared := uint64(0)
	if v.Declared != nil {
		declared = v.Declared.Retry
	}
	return bootslot.RetryWords(declared, v.Decision.RetryNumber)
}

func (v *View) mixedVerb() string {
	switch v.Decision.Kind {
	case bootslot.Refused, bootslot.AwaitBaseline, bootslot.Waiting:
		return fmt.Sprintf("Keeping last-known-good %s; %s is to be tried (%s)", v.LastKnownGood.Name(), revision(v.Declared.Revision), v.Reason())
	}
	return fmt.Sprintf("%s is in force, mixed", capital(v.LastKnownGood.Name()))
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
		out += fmt.Sprintf("; declare something else, or %s to try again", v.retryWords())
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

// because says why a mark stands: which revision did it, the check and what that saw, or who wanted it so.
func (m mark) because() string {
	what := revision(m.Revision)
	if m.Origin.Author != "" {
		what += " by " + m.Origin.Author
	}
	switch m.Cause {
	case bootslot.CauseOperator:
		return what + " was rolled back by " + orElse(m.Who, "an operator")
	case bootslot.CauseAttempts:
		return "all attempts of " + what + " ended without a conclusion"
	case bootslot.CauseEnvironment:
		return what + " failed " + colonParen(m.Check, m.Message) + ", as last-known-good then did"
	}
	return what + " failed " + colonParen(m.Check, m.Message)
}

func colonParen(check, message string) string {
	if message == "" {
		return check
	}
	return check + " (" + message + ")"
}

// Name is a release as people know it: its revision, else that it is the fallback, else its digest.
func (r Release) Name() string {
	switch {
	case r.Revision != "":
		return revision(r.Revision)
	case r.fallback || r.Source == FromFallback:
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

// length is a time that is fixed, and so is not rounded to whole seconds as one that runs is.
func length(s float64) string {
	return (time.Duration(s * float64(time.Second))).Round(time.Millisecond).String()
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

// Prompt is the view in a few words, for a shell's prompt: a word, what that is about, what else there is.
func (v *View) Prompt() string {
	word, about := "ok", v.LastKnownGood.Name()
	switch d := v.Decision; {
	case !v.LedgerKnown:
		word, about = "unreadable", ""
	case v.NobodyKeeps():
		word = "nobody"
	case v.Phase == api.PhaseTrial && v.Trial != nil:
		word, about = "trial", v.Trial.Candidate.Name()+" "+strings.Join(v.Trial.Changed, ",")
		if s := v.Trial.EndsInSeconds; s > 0 {
			about += " " + seconds(s)
		}
	case v.Phase == api.PhaseReturning:
		word = "returning"
	case v.Suspended != nil:
		word = "suspended"
	case d != nil && len(d.Held) > 0:
		word = "held"
		for i, h := range d.Held {
			about += map[bool]string{true: " ", false: ","}[i == 0] + h.Field
		}
	case v.Declared == nil:
		word = "new"
	case !v.asDeclared():
		word, about = "waiting", revision(v.Declared.Revision)
	}
	out := strings.TrimSpace(word + " " + about)
	if v.Git.State == GitOffline {
		out += " offline"
	}
	if n := len(v.NotFine); n > 0 {
		out += fmt.Sprintf(" !%d", n)
	}
	return out
}
