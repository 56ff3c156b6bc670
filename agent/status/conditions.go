package status

import (
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

// Condition is one question that a fleet's tools ask of every board, answered. The words are those that users of GitOps know.
//
// They are an interface: types and reasons are added, never changed or taken away, and all types are always there, in this order. They are derived
// from the rest of the view each time it is built, and stored nowhere.
//
//	type         what True means
//	Ready        the device is what git declares, as far as this board knows
//	Reconciling  something is under way to that, and needs nobody
//	Stalled      it does not come to that unless somebody does something
//	Healthy      agent and guard are at work, the device answers and keeps what it is to be, the checks hold
//	Fetched      the newest fetch has worked
//
// Reasons are below, with what they mean. Offline is no fault: Ready stays True of what was fetched last, and Fetched says since when.
type Condition struct {
	Type   ConditionType   `json:"type"`
	Status ConditionStatus `json:"status"`
	Reason string          `json:"reason"` // one word
	// Since is when it came to be so, by this board's wall clock; absent if that is not known.
	Since time.Time `json:"since,omitzero"`
	// Revision is what it is about: what is declared, on trial or in force, or the branch's head.
	Revision string `json:"revision,omitempty"`
	Message  string `json:"message"` // for people
}

// ConditionType is the question.
type ConditionType string

const (
	Ready       ConditionType = "Ready"
	Reconciling ConditionType = "Reconciling"
	Stalled     ConditionType = "Stalled"
	Healthy     ConditionType = "Healthy"
	Fetched     ConditionType = "Fetched"
)

// ConditionStatus is the answer.
type ConditionStatus string

const (
	True    ConditionStatus = "True"
	False   ConditionStatus = "False"
	Unknown ConditionStatus = "Unknown"
)

// Reasons. A fault of the repository has its kind (package gitclone) as a reason, in this form: FileInvalid, HistoryRewritten, AuthOrNotFound.
const (
	// of more than one
	ReasonNotReadable  = "NotReadable" // this user may not ask, or ledger or clone cannot be read
	ReasonOnTrial      = "OnTrial"
	ReasonReturning    = "Returning" // from a failed trial to last-known-good
	ReasonHeld         = "Held"      // marks keep fields at last-known-good
	ReasonDrifted      = "Drifted"   // the device is not as it is to be
	ReasonDeviceSilent = "DeviceSilent"
	ReasonGuardSilent  = "GuardSilent"
	ReasonAgentSilent  = "AgentSilent"

	// of Ready
	ReasonAsDeclared      = "AsDeclared"
	ReasonNothingDeclared = "NothingDeclared"
	ReasonNotTriedYet     = "NotTriedYet"
	ReasonNobodyKeeps     = "NobodyKeeps" // agent and guard are dead or silent
	ReasonStale           = "Stale"       // the branch has something newer that cannot be taken

	// of Reconciling
	ReasonAwaitingBaseline = "AwaitingBaseline" // the checks must hold at rest before the trial
	ReasonPausing          = "Pausing"          // between attempts, or after failures
	ReasonCorrecting       = "Correcting"       // drift
	ReasonDeciding         = "Deciding"         // the guard has not been asked yet
	ReasonSuspended        = "Suspended"
	ReasonSettled          = "Settled" // nothing is under way

	// of Stalled
	ReasonNewerLedger   = "NewerLedger"
	ReasonDiskFull      = "DiskFull"
	ReasonRefused       = "Refused"       // by the device, what is in force
	ReasonNotConverging = "NotConverging" // a field reads back different after each write
	ReasonNotAdmitted   = "NotAdmitted"   // by the guard; the message says why
	ReasonNotStalled    = "NotStalled"

	// of Healthy
	ReasonWell         = "Well"
	ReasonCheckFailing = "CheckFailing" // a required one, on the release in force
	ReasonProblem      = "Problem"      // something else that status shows with !

	// of Fetched
	ReasonUpToDate   = "UpToDate"
	ReasonOffline    = "Offline"
	ReasonNotFetched = "NotFetched" // none has ended yet, or there is no agent that could say
)

// conditions answers all of them.
func (v *View) conditions(s Sources) []Condition {
	return []Condition{v.ready(s), v.reconciling(s), v.stalled(s), v.healthy(s), v.fetched()}
}

// declaredRevision is the revision that is declared, "" if nothing is.
func (v *View) declaredRevision() string {
	if v.Declared == nil {
		return ""
	}
	return v.Declared.Revision
}

// readable reports whether enough is known for an answer. What the reader may not ask says nothing.
func (v *View) readable() bool {
	return v.LedgerKnown && v.CloneKnown
}

func (v *View) notReadable(t ConditionType) Condition {
	return Condition{Type: t, Status: Unknown, Reason: ReasonNotReadable, Message: v.Summary}
}

func (v *View) ready(s Sources) Condition {
	if !v.readable() {
		return v.notReadable(Ready)
	}
	c := Condition{Type: Ready, Status: False, Revision: v.declaredRevision(), Message: v.situation()}
	no := func(reason string, since time.Time) Condition {
		c.Reason, c.Since = reason, since
		return c
	}
	switch d := v.Decision; {
	case v.NobodyKeeps():
		c.Message = v.nobodyWords()
		return no(ReasonNobodyKeeps, time.Time{})
	case v.Phase == api.PhaseTrial && v.Trial != nil:
		c.Revision = v.Trial.Candidate.Revision
		return no(ReasonOnTrial, v.Trial.At)
	case v.Phase == api.PhaseReturning:
		return no(ReasonReturning, v.markedAt(v.Returning.Mark))
	case v.Declared == nil:
		return no(ReasonNothingDeclared, time.Time{})
	case d != nil && len(d.Held) > 0:
		return no(ReasonHeld, v.markedAt(d.Marks...))
	case !v.asDeclared():
		return no(ReasonNotTriedYet, time.Time{})
	case !v.Device.Answers:
		c.Message = "the device does not answer"
		return no(ReasonDeviceSilent, checkSince(s, bootslot.DeviceAnswers))
	case len(v.Device.Drift) > 0:
		c.Message = "the device is not as it is to be: " + strings.Join(driftNames(v.Device.Drift), ", ")
		return no(ReasonDrifted, time.Time{})
	case v.Git.faulty():
		c.Revision, c.Message = v.Git.RemoteRevision, v.Git.Fault()
		return no(ReasonStale, v.Git.Since)
	}
	c.Status, c.Reason, c.Since = True, ReasonAsDeclared, v.inForceSince(s.History)
	return c
}

// asDeclared reports whether what is in force is what is declared.
func (v *View) asDeclared() bool {
	return v.Declared.Digest == v.LastKnownGood.Digest || v.Decision != nil && v.Decision.Kind == bootslot.Same
}

func (v *View) reconciling(s Sources) Condition {
	if !v.LedgerKnown {
		return v.notReadable(Reconciling)
	}
	c := Condition{Type: Reconciling, Status: True, Revision: v.declaredRevision(), Message: v.situation()}
	stop := func(reason, message string) Condition {
		c.Status, c.Reason, c.Message = False, reason, message
		return c
	}
	switch d := v.Decision; {
	case !v.Guard.Alive:
		c.Since = v.guardSilentSince(s)
		return stop(ReasonGuardSilent, "the guard "+v.Guard.Words()+": nothing new is tried")
	case v.Suspended != nil:
		c.Since = newest(s.History, bootslot.EventSuspended)
		return stop(ReasonSuspended, "suspended for another "+seconds(v.Suspended.SecondsLeft)+by(v.Suspended.Who))
	case v.Phase == api.PhaseTrial && v.Trial != nil:
		c.Reason, c.Since, c.Revision = ReasonOnTrial, v.Trial.At, v.Trial.Candidate.Revision
	case v.Phase == api.PhaseReturning:
		c.Reason, c.Since = ReasonReturning, v.markedAt(v.Returning.Mark)
	case !v.Agent.Alive:
		c.Since = checkSince(s, bootslot.AgentAlive)
		return stop(ReasonAgentSilent, "the agent "+v.Agent.Words()+": nothing is fetched, and nothing new is asked for")
	case d != nil && d.Kind == bootslot.AwaitBaseline:
		c.Reason, c.Message = ReasonAwaitingBaseline, v.Reason()
	case d != nil && d.WaitSeconds > 0:
		c.Reason, c.Message = ReasonPausing, v.Reason()
	case v.Declared != nil && d == nil && !v.asDeclared():
		c.Reason = ReasonDeciding
	case len(v.Device.Drift) > 0 && v.stuck() == "" && v.Device.Answers && v.Driver != "nobody":
		c.Reason, c.Message = ReasonCorrecting, "drift is being corrected: "+strings.Join(driftNames(v.Device.Drift), ", ")
	default:
		return stop(ReasonSettled, "nothing is under way")
	}
	return c
}

func (v *View) stalled(s Sources) Condition {
	if !v.LedgerKnown {
		return v.notReadable(Stalled)
	}
	c := Condition{Type: Stalled, Status: True, Revision: v.declaredRevision()}
	yes := func(reason, message string, since time.Time) Condition {
		c.Reason, c.Message, c.Since = reason, message, since
		return c
	}
	l, d := s.ledger(), v.Decision
	switch {
	case !v.Guard.Alive && v.Guard.State != ProcessUnreachable:
		return yes(ReasonGuardSilent, "the guard "+v.Guard.Words()+": start it; until then nothing new is tried", v.guardSilentSince(s))
	case !v.Agent.Alive && v.Agent.State != ProcessUnreachable:
		return yes(ReasonAgentSilent, "the agent "+v.Agent.Words()+": start it; until then nothing is fetched", checkSince(s, bootslot.AgentAlive))
	case l != nil && !l.Writable():
		return yes(ReasonNewerLedger, "only a newer guard may write the ledger: install it", time.Time{})
	case s.DiskWhy != "":
		return yes(ReasonDiskFull, s.DiskWhy, time.Time{})
	case d != nil && len(d.Marks) > 0:
		return yes(ReasonHeld, v.heldWords(), v.markedAt(d.Marks...))
	case v.stuck() == ReasonRefused:
		return yes(ReasonRefused, "the device refuses what is in force: "+strings.Join(slices.Sorted(maps.Keys(v.Device.Refused)), ", "), time.Time{})
	case v.stuck() == ReasonNotConverging:
		return yes(ReasonNotConverging, "does not read back what is written: "+strings.Join(v.Device.NonConvergent, ", "), time.Time{})
	case d != nil && d.Kind == bootslot.Refused && d.WaitSeconds == 0 && v.Suspended == nil && s.Guard != nil && s.Guard.Answers && v.Phase == api.PhaseIdle:
		return yes(ReasonNotAdmitted, v.Reason(), time.Time{})
	case v.Git.faulty():
		c.Revision = v.Git.RemoteRevision
		return yes(camel(v.Git.State), v.Git.Fault(), v.Git.Since)
	}
	c.Status, c.Reason, c.Message = False, ReasonNotStalled, "nobody needs to do anything"
	return c
}

// stuck says which way drift cannot be corrected: refused, or not converging; "" for neither.
func (v *View) stuck() string {
	if v.Phase == api.PhaseTrial {
		return "" // that is the trial's business
	}
	out := ""
	for _, d := range v.Device.Drift {
		if v.Device.Refused[d.Field] != "" {
			return ReasonRefused
		}
		if slices.Contains(v.Device.NonConvergent, d.Field) {
			out = ReasonNotConverging
		}
	}
	return out
}

func (v *View) healthy(s Sources) Condition {
	c := Condition{Type: Healthy, Status: False, Revision: v.LastKnownGood.Revision, Message: "all is well"}
	if len(v.NotFine) > 0 {
		c.Message = v.NotFine[0]
	}
	no := func(reason string, since time.Time) Condition {
		c.Reason, c.Since = reason, since
		return c
	}
	switch {
	case v.Guard.State == ProcessUnreachable || v.Agent.State == ProcessUnreachable:
		return v.notReadable(Healthy)
	case !v.Guard.Alive:
		return no(ReasonGuardSilent, v.guardSilentSince(s))
	case !v.Agent.Alive:
		return no(ReasonAgentSilent, checkSince(s, bootslot.AgentAlive))
	case !v.Device.Answers:
		return no(ReasonDeviceSilent, checkSince(s, bootslot.DeviceAnswers))
	case len(v.Unhealthy) > 0:
		first := slices.MinFunc(v.Unhealthy, func(a, b Unhealthy) int { return a.Since.Compare(b.Since) })
		c.Message = colon(first.Name, first.Message)
		return no(ReasonCheckFailing, first.Since)
	case len(v.Device.Drift) > 0 && v.Phase != api.PhaseTrial && !v.repairStopped():
		c.Message = "the device is not as it is to be: " + strings.Join(driftNames(v.Device.Drift), ", ")
		return no(ReasonDrifted, time.Time{})
	case len(v.NotFine) > 0 && !(v.Git.faulty() && len(v.NotFine) == 1):
		return no(ReasonProblem, time.Time{})
	}
	c.Status, c.Reason, c.Message = True, ReasonWell, "all is well"
	return c
}

func (v *View) fetched() Condition {
	c := Condition{Type: Fetched, Status: False, Revision: v.Git.RemoteRevision, Since: v.Git.Since}
	switch {
	case v.Git.State == GitUnknown:
		c.Status, c.Reason, c.Message = Unknown, ReasonNotFetched, "no fetch has ended yet"
		if !v.Agent.Alive {
			c.Message = "the agent " + v.Agent.Words()
		}
	case v.Git.State == GitOK:
		c.Status, c.Reason, c.Message = True, ReasonUpToDate, "the newest fetch has worked"
	default:
		c.Reason, c.Message = camel(v.Git.State), v.Git.Fault()
	}
	return c
}

// faulty reports whether the repository cannot be used for another reason than the link.
func (g Git) faulty() bool {
	return g.State != GitOK && g.State != GitOffline && g.State != GitUnknown
}

// markedAt is when the newest of the marks was made.
func (v *View) markedAt(ids ...uint64) (at time.Time) {
	for _, id := range ids {
		if m, ok := v.mark(id); ok && m.At.After(at) {
			at = m.At
		}
	}
	return at
}

// inForceSince is when last-known-good became that.
func (v *View) inForceSince(events []bootslot.Event) time.Time {
	for _, e := range slices.Backward(events) {
		switch e.Kind {
		case bootslot.EventKind(bootslot.Passed), bootslot.EventAdopted, bootslot.EventRollback:
			if e.Digest == v.LastKnownGood.Digest {
				return e.At
			}
			return time.Time{}
		}
	}
	return time.Time{}
}

// newest is when the newest event of a kind was.
func newest(events []bootslot.Event, kind bootslot.EventKind) time.Time {
	for _, e := range slices.Backward(events) {
		if e.Kind == kind {
			return e.At
		}
	}
	return time.Time{}
}

// checkSince is since when the guard has seen a check fail.
func checkSince(s Sources, name string) time.Time {
	if s.Guard == nil {
		return time.Time{}
	}
	for _, c := range s.Guard.Checks {
		if c.Name == name && c.Known && !c.OK {
			return ago(s.Now, c.SinceSeconds)
		}
	}
	return time.Time{}
}

func (v *View) guardSilentSince(s Sources) time.Time {
	if s.Agent == nil || s.Agent.GuardSilentSeconds == 0 {
		return time.Time{}
	}
	return ago(s.Now, s.Agent.GuardSilentSeconds)
}

func ago(now time.Time, s float64) time.Time {
	return now.Add(-time.Duration(s * float64(time.Second))).Round(time.Second)
}

// camel makes a reason of a word of the repository's vocabulary: file-invalid is FileInvalid.
func camel(kind string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(kind, "-") {
		b.WriteString(strings.ToUpper(part[:min(1, len(part))]) + part[min(1, len(part)):])
	}
	return b.String()
}

func driftNames(drift []device.Drift) []string {
	var names []string
	for _, d := range drift {
		names = append(names, d.Field)
	}
	return names
}
