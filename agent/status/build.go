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

// Sources are what a view is built of. A nil part is one that could not be had, and its Why says why.
type Sources struct {
	Now      time.Time // wall clock
	Guard    *api.State
	GuardWhy string
	// GuardState and AgentState say how it stands with one that did not answer; "" is dead.
	GuardState ProcessState
	Agent      *Agent
	AgentWhy   string
	AgentState ProcessState
	// Access says who may ask and read what this user may not.
	Access string

	// Ledger is the sidecar; it is looked at only when Guard is nil. NoLedger says that there is none, which is not the same as one that
	// cannot be read.
	Ledger    *bootslot.Ledger
	NoLedger  bool
	LedgerWhy string
	// History is the end of the history, oldest first; nil if it cannot be had.
	History []bootslot.Event
	// Declared is what the clone holds, nil without a CloneWhy if that is nothing; it is looked at only when Agent is nil.
	Declared *Declared
	CloneWhy string
	// Suspended is what the suspension file says; it is looked at only when Guard is nil.
	Suspended *api.SuspendedFor
	// Device is what the reader saw of the device himself; it is looked at only when nobody else tells.
	Device    *device.State
	DeviceWhy string
	// DiskWhy is why the guard starts no trial for the disk's sake, "" if it is well.
	DiskWhy string

	Profile  device.Profile
	Board    bootslot.Board // as the configuration has it
	Problems []string       // of the reader's own
}

// Build makes the view of what s tells.
func Build(s Sources) View {
	v := View{
		At:        s.Now,
		Phase:     api.PhaseIdle,
		Driver:    "nobody",
		Guard:     process(s.Guard != nil, s.GuardState, s.GuardWhy),
		Agent:     process(s.Agent != nil, s.AgentState, s.AgentWhy),
		Git:       Git{State: GitUnknown},
		Slots:     map[bootslot.SlotName]bootslot.Slot{},
		Marks:     []bootslot.Mark{},
		Device:    Device{Error: s.DeviceWhy},
		Effective: Release{Source: FromFallback},
	}
	v.problems("", s.Problems)
	v.takeAgent(s)
	v.takeLedger(s)
	if s.Guard != nil {
		v.takeGuard(*s.Guard)
	} else {
		v.withoutGuard(s)
	}
	v.takeDevice(s)
	v.LastVerdict = lastVerdict(s.History)
	v.judge(s)
	v.Summary, v.Details = v.sentences(s)
	v.Conditions = v.conditions(s)
	return v
}

// ledger is the newest record that is known, nil if none is.
func (s Sources) ledger() *bootslot.Ledger {
	if s.Guard != nil {
		return &s.Guard.Ledger
	}
	return s.Ledger
}

// repairStopped reports whether nobody is to correct drift.
func (v *View) repairStopped() bool { return v.Suspended != nil && v.Suspended.Repair }

func process(alive bool, state ProcessState, why string) Process {
	if alive {
		return Process{Alive: true, State: ProcessAlive}
	}
	if state == "" {
		state = ProcessDead
	}
	return Process{State: state, Why: orElse(why, "it does not answer")}
}

func (v *View) problems(who string, ps []string) {
	for _, p := range ps {
		p = strings.TrimSpace(p)
		if who != "" {
			p = who + ": " + p
		}
		if !slices.Contains(v.Problems, p) {
			v.Problems = append(v.Problems, p)
		}
	}
}

func (v *View) takeAgent(s Sources) {
	a := s.Agent
	if a == nil {
		v.Declared = s.Declared
		v.CloneKnown = s.Declared != nil || s.CloneWhy == ""
		if s.Declared == nil {
			v.problems("clone", nonEmpty(s.CloneWhy))
		}
		return
	}
	v.CloneKnown = a.Declared != nil || a.CloneProblem == ""
	v.Agent.PID, v.Agent.Version = a.PID, a.Version
	v.Declared, v.Git = a.Declared, a.Git
	if v.Git.State == "" {
		v.Git.State = GitUnknown
	}
	v.DeviceCycles, v.GitCycles = a.DeviceCycles, a.GitCycles
	v.problems("agent", a.Problems)
	if a.Declared == nil {
		v.problems("clone", nonEmpty(a.CloneProblem))
	}
}

// takeLedger fills in what the ledger says, whoever it comes from.
func (v *View) takeLedger(s Sources) {
	fallback := s.Board.Fallback
	if s.Guard != nil {
		fallback = s.Guard.Fallback
	}
	l := s.ledger()
	v.LedgerKnown = l != nil || s.NoLedger
	if v.LedgerKnown {
		v.LastKnownGood = releaseOf(fallback, "", FromFallback)
		v.LastKnownGood.fallback = true
	}
	if l == nil {
		v.problems("ledger", nonEmpty(s.LedgerWhy))
		if !v.LedgerKnown {
			return
		}
		v.Slots[bootslot.SlotA], v.Slots[bootslot.SlotB] = bootslot.Slot{Status: bootslot.SlotEmpty}, bootslot.Slot{Status: bootslot.SlotEmpty}
		return
	}
	v.Generation = l.Generation
	v.Slots = maps.Clone(l.Slots)
	v.Active, v.Previous, v.Spent, v.Grant = l.Active, l.Previous, l.Spent, l.Grant
	if l.Marks != nil {
		v.Marks = l.Marks
	}
	v.Returning = l.Returning
	if l.HasGood() {
		a := l.Slots[l.Active]
		v.LastKnownGood = releaseOf(a.Release, a.Revision, string(l.Active))
		v.LastKnownGood.Origin = a.Origin
		v.LastKnownGood.fallback = v.LastKnownGood.Digest == fallback.Digest()
	}
	switch t := l.Trial; {
	case t != nil:
		v.Phase = api.PhaseTrial
		v.Trial = &Trial{Candidate: releaseOf(t.Candidate, t.Revision, string(t.Slot)), Changed: t.Changed, Set: t.Set, Attempt: t.Attempt, At: t.At,
			Convicting: t.Baseline.Convicting, Exempt: t.Baseline.Exempt}
		v.Trial.Candidate.Origin = t.Origin
	case l.Returning != nil:
		v.Phase = api.PhaseReturning
	}
}

func (v *View) takeGuard(g api.State) {
	v.Guard.PID, v.Guard.Version, v.Guard.Instance = g.PID, g.Version, g.Instance
	v.Driver, v.Checks, v.Suspended = g.Driver, g.Checks, g.Suspended
	// A verdict that is not written yet is over for the guard, and open in its ledger; the other way round there is nothing to tell of.
	if (g.Phase != api.PhaseTrial || v.Trial != nil) && (g.Phase != api.PhaseReturning || v.Returning != nil) {
		v.Phase = g.Phase
	}
	v.problems("guard", g.Problems)
	if v.Trial != nil {
		v.Trial.EndsInSeconds = g.Lease.TrialEndsInSeconds
		v.Effective = v.Trial.Candidate
		v.Effective.Source = FromCandidate
	} else {
		v.Effective = v.LastKnownGood
		if v.Effective.Source != FromFallback {
			v.Effective.Source = FromLastKnownGood
		}
	}
	v.Effective.Fields = g.Lease.Fields
	if d := g.Decision; d != nil {
		v.Decision = decisionOf(*d)
	}
	for _, c := range g.Checks {
		if c.Required && !c.UnhealthySince.IsZero() {
			v.Unhealthy = append(v.Unhealthy, Unhealthy{c.Name, c.UnhealthySince, c.Message})
		}
	}
}

// withoutGuard says what can be said when the guard is dead: the agent drives or waits, nobody judges.
func (v *View) withoutGuard(s Sources) {
	v.Suspended = s.Suspended
	v.Effective = v.LastKnownGood
	if v.LedgerKnown && v.Effective.Source != FromFallback {
		v.Effective.Source = FromLastKnownGood
	}
	if v.Guard.State == ProcessUnreachable || v.Agent.State == ProcessUnreachable {
		v.Driver = "" // one that cannot be asked may well drive
	}
	if a := s.Agent; a != nil {
		if a.Drives != DrivesNot && a.Drives != "" {
			v.Driver = "agent"
		}
		if a.Drives != DrivesNot && a.Target != nil && !a.Target.Equal(v.Effective.Fields) {
			// The agent knows of a release that the sidecar does not have: its last lease is the newer word.
			v.Effective = releaseOf(bootslot.Release{Fields: a.Target, Image: v.Effective.Image}, "", orElse(v.Effective.Source, FromLastKnownGood))
		}
	}
	if v.Declared != nil && s.Ledger != nil {
		f := bootslot.Facts{Obstacle: "the guard does not answer"}
		for _, m := range s.Ledger.Marks { // as if no check had held since: a mark of cause environment holds
			f.Rest.Required = append(f.Rest.Required, m.Check)
		}
		d, _ := bootslot.Admit(*s.Ledger, s.Board, bootslot.Wish{Release: v.Declared.Release(), Revision: v.Declared.Revision, Number: v.Declared.Retry}, f)
		v.Decision = decisionOf(d)
		v.Decision.Forecast = true
	}
}

// takeDevice shows what the driver saw: it is the one that reads back what it wrote.
func (v *View) takeDevice(s Sources) {
	a, g := s.Agent, s.Guard
	fromAgent := a != nil && a.Report != nil && v.Driver != "guard"
	switch {
	case fromAgent:
		r := a.Report
		v.Device = Device{Answers: r.Answered && a.HangsSeconds == 0, Error: r.Error, SeenBy: "agent", SecondsAgo: a.ReportSecondsAgo,
			Drift: r.Left, Contended: r.Contended, NonConvergent: r.NonConvergent, Refused: r.Refused, Unknown: r.Unknown,
			WriteError: a.WriteError, WriteErrors: a.WriteErrors}
		if a.HangsSeconds > 0 {
			v.Device.Error = fmt.Sprintf("no answer for %.0f s", a.HangsSeconds)
		}
		v.observed(r.Observed)
		if r.Observed == nil && g != nil {
			v.observed(g.Device)
		}
	case g != nil:
		v.Device = Device{Answers: g.Answers, SeenBy: "guard", Drift: g.Drift}
		v.observed(g.Device)
		if !g.Answers {
			v.Device.Error = "it does not answer the guard"
		}
	case s.Device != nil:
		v.Device.Answers = true
		v.observed(s.Device)
		if v.Effective.Fields != nil {
			v.Device.Drift = device.Diff(s.Profile, v.Effective.Fields, s.Device.Actuators)
		}
	}
	if v.Device.Observed != nil && v.Device.Unknown == nil {
		v.Device.Unknown = device.Unknown(s.Profile, v.Device.Observed)
	}
}

func (v *View) observed(st *device.State) {
	if st != nil {
		v.Device.Observed, v.Device.Readings = st.Actuators, st.Readings
	}
}

// judge fills in NotFine: what somebody ought to look at.
func (v *View) judge(s Sources) {
	no := func(format string, args ...any) { v.NotFine = append(v.NotFine, fmt.Sprintf(format, args...)) }
	for _, p := range []struct {
		who, means string
		Process
	}{{"the guard", "nothing new is tried", v.Guard}, {"the agent", "nothing is fetched", v.Agent}} {
		switch p.State {
		case ProcessAlive:
		case ProcessUnreachable:
			no("%s %s; %s", p.who, p.Words(), orElse(s.Access, "run as root"))
		default:
			no("%s %s: %s", p.who, p.Words(), p.means)
		}
	}
	if l := s.ledger(); l != nil && !l.Writable() {
		no("only a newer guard may write the ledger (schema %d, this one has %d): nothing new is tried until it is installed", l.MinWriter, bootslot.Schema)
	}
	if s.DiskWhy != "" {
		no("%s: nothing new is tried", s.DiskWhy)
	}
	for _, u := range v.Unhealthy {
		no("unhealthy since %s: %s", u.Since.Format(time.DateTime), colon(u.Name, u.Message))
	}
	switch {
	case !v.Device.Answers && v.Device.Error != "":
		no("the device does not answer: %s", v.Device.Error)
	case !v.Device.Answers && v.Device.SeenBy != "":
		no("the device does not answer")
	case v.Phase == api.PhaseTrial || v.repairStopped() || v.Driver == "":
	default:
		for _, d := range v.Device.Drift {
			switch msg := v.Device.Refused[d.Field]; {
			case msg != "":
				no("%s is to be %s, and the device refuses it: %s", d.Field, d.Want, msg)
			case slices.Contains(v.Device.NonConvergent, d.Field):
				no("%s is to be %s, and reads back %s after each write%s", d.Field, d.Want, orElse(d.Got, "nothing"), knownValues(s.Profile, d))
			default:
				no("%s is to be %s and is %s%s", d.Field, d.Want, orElse(d.Got, "missing"), knownValues(s.Profile, d))
			}
		}
	}
	if v.Device.WriteErrors > 1 {
		no("the device has not taken a write as it should, %d times in a row: %s", v.Device.WriteErrors, v.Device.WriteError)
	}
	for _, f := range v.Device.Contended {
		no("%s is contended: somebody else keeps changing it", f)
	}
	if st := v.Git.State; st != GitOK && st != GitOffline && st != GitUnknown {
		no("%s", v.Git.Fault())
	}
	v.NotFine = append(v.NotFine, v.Problems...)
	v.Fine = len(v.NotFine) == 0
}

// knownValues says what the profile knows, if the device shows something else.
func knownValues(p device.Profile, d device.Drift) string {
	a, ok := p.Actuator(d.Field)
	if !ok || d.Got == "" {
		return ""
	}
	if _, known := a.Canonical(d.Got); known {
		return ""
	}
	return "; the profile knows: " + strings.Join(a.Allowed, ", ")
}

func releaseOf(r bootslot.Release, revision, source string) Release {
	out := Release{Fields: r.Fields, Image: r.Image, Revision: revision, Source: source}
	if !r.IsZero() {
		out.Digest = r.Digest()
	}
	return out
}

func decisionOf(d bootslot.Decision) *Decision {
	out := &Decision{Kind: d.Kind, Reason: d.Reason, Held: d.Held, Marks: d.Marks, Mixed: d.Mixed, RetryNumber: d.RetryNumber, Digest: d.Digest, WaitSeconds: d.Wait.Seconds()}
	if len(d.Held) == 0 {
		out.Marks = nil // they hold something, or there is nothing to say of them
	}
	if a := d.Awaiting; a != nil && len(a.Checks) > 0 {
		out.Awaiting = &Awaiting{Checks: a.Checks, SoakSeconds: a.Soak.Seconds(), AheadInSeconds: a.AheadIn.Seconds()}
	}
	return out
}

// lastVerdict finds the newest verdict in the history.
func lastVerdict(events []bootslot.Event) *Verdict {
	for _, e := range slices.Backward(events) {
		switch k := bootslot.Verdict(e.Kind); k {
		case bootslot.Passed, bootslot.Failed, bootslot.Environment, bootslot.Inconclusive, bootslot.Cancelled:
			return &Verdict{Kind: k, Digest: e.Digest, Revision: e.Revision, Check: e.Check, Message: e.Message, At: e.At}
		}
	}
	return nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func colon(a, b string) string {
	if b == "" {
		return a
	}
	return a + ": " + b
}
