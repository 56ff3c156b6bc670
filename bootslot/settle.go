package bootslot

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/device"
)

// Evidence is what a verdict rests on.
type Evidence struct {
	Check   string // that convicted, or that was still open
	Message string
	During  Readings
	At      time.Time // wall clock, for people
	Who     string    // an operator
	// ByGit says that a cancelled trial is not desired any more; Goodbye that a process was told to stop;
	// Operator that a rollback cancelled it, which marks.
	ByGit, Goodbye, Operator bool
}

// Settle ends the open trial. The verdict, the new slot states and the mark are one value, so that one transaction stores them: a
// rollback without its mark would be tried again. It panics if no trial is open: that is a fault of the caller's, not of the board's.
//
// A Failed opens the phase Returning, and CloseReturning says later whether it stands or was the Environment's.
func Settle(l Ledger, b Board, v Verdict, ev Evidence) Step {
	t := l.Trial
	if t == nil {
		panic("bootslot: Settle without an open trial")
	}
	n := l.next()
	n.Trial = nil
	key := l.leaveOf(t.Number, t.Granted)
	try := l.try(t.Digest, key)
	if v == Cancelled && ev.Goodbye {
		if try.Goodbyes++; try.Goodbyes > 1 {
			v = Inconclusive // stopping a process at every trial must end, too
		}
	}
	var events []Event
	event := Event{Generation: n.Generation, At: ev.At, Kind: EventKind(v), Revision: t.Revision, Digest: t.Digest,
		Declared: t.Declared.Digest(), Slot: t.Slot, Fields: t.Changed, Check: ev.Check, Attempt: t.Attempt, Message: ev.Message, Who: ev.Who}
	mark := Mark{ID: n.Generation, Set: t.Set, Candidates: []Digest{t.Digest}, Declared: []Digest{t.Declared.Digest()}, Revision: t.Revision, Origin: t.Origin,
		Check: ev.Check, Message: ev.Message, Before: t.Before, During: ev.During, At: ev.At, Who: ev.Who}
	spare := Slot{Status: SlotEmpty}

	switch v {
	case Passed:
		if old := l.Slots[l.Active]; old.Status == SlotGood {
			if old.Proven {
				n.Previous = &old
			}
			n.Slots[l.Active] = Slot{Status: SlotEmpty} // the spare slot now; what it held is in previous
		}
		passed := l.Slots[t.Slot]
		passed.Status, passed.Proven = SlotGood, len(t.Baseline.Exempt) == 0
		spare = passed
		n.Active, n.Slots[t.Slot] = t.Slot, passed // before anything asks for last-known-good
		n.Streak = 0
		n.forget(t.Digest)
		n.spend(t.Number, t.Granted)
		n.lastKnownGoodChanged(b, l.LastKnownGood(b))
		whole := t.Declared
		if whole.Image == nil {
			whole.Image = t.Candidate.Image
		}
		if n.Grant != nil && n.Grant.Declared == t.Declared.Digest() && whole.Equal(t.Candidate) {
			n.Grant = nil // asked for while this trial ran: there is nothing left to try
		}

	case Failed:
		spare = l.Slots[t.Slot]
		spare.Status = SlotFailed
		n.Streak++
		mark.Cause = CauseFailed
		events = n.addMark(mark, t.Declared)
		event.Mark = mark.ID
		n.Returning = &Returning{Mark: mark.ID, Check: ev.Check, Digest: t.Digest, Number: t.Number, Granted: t.Granted}
		n.putTry(try)

	case Inconclusive:
		n.Streak++
		n.putTry(try)
		if try.Count >= b.Attempts {
			spare = l.Slots[t.Slot]
			spare.Status = SlotFailed
			mark.Cause = CauseAttempts
			events = n.addMark(mark, t.Declared)
			n.fold(mark.ID)
			event.Mark = mark.ID
			n.forgetTry(try)
			n.spend(t.Number, t.Granted)
		}

	case Cancelled:
		try.Count = max(0, try.Count-1) // a cancelled trial is no attempt
		n.putTry(try)
		// A pin lasts until a trial that git could not cancel has ended by itself.
		n.Pin = ev.ByGit || t.Pinned && !ev.Operator
		if ev.Operator {
			spare = l.Slots[t.Slot]
			spare.Status = SlotFailed
			mark.Cause = CauseOperator
			mark.OperatorDeclared, mark.Declared = mark.Declared, nil
			events = n.addMark(mark, t.Declared)
			n.fold(mark.ID)
			event.Mark = mark.ID
			n.useUp(&Wish{Number: t.Number})
		}

	default:
		panic(fmt.Sprintf("bootslot: %q is no verdict of a trial", v))
	}
	n.Slots[t.Slot] = spare
	return Step{n, append([]Event{event}, events...)}
}

// CloseReturning ends the phase after a failed trial. held says that the check that convicted has held on last-known-good for the
// soak time: then the failure was the candidate's and the mark stands; else it was the environment's, and the mark can reopen.
func CloseReturning(l Ledger, b Board, held bool, ev Evidence) Step {
	r := l.Returning
	if r == nil {
		panic("bootslot: CloseReturning without the phase")
	}
	n := l.next()
	n.Returning = nil
	event := Event{Generation: n.Generation, At: ev.At, Kind: EventStands, Digest: r.Digest, Check: r.Check, Mark: r.Mark, Message: ev.Message, Who: ev.Who}
	try := l.try(r.Digest, l.leaveOf(r.Number, r.Granted))
	exhausted := try.Count >= b.Attempts
	if held {
		n.forget(r.Digest)
		n.spend(r.Number, r.Granted)
	} else {
		event.Kind = EventEnvironment
		if exhausted {
			n.forgetTry(try)
			n.spend(r.Number, r.Granted)
		}
	}
	for i := range n.Marks {
		m := &n.Marks[i]
		if m.ID != r.Mark {
			continue
		}
		m.After = ev.During
		event.Revision, event.Fields = m.Revision, sortedKeys(m.Set)
		if len(m.Declared) > 0 {
			event.Declared = m.Declared[0]
		}
		if !held {
			m.Cause, m.Exhausted = CauseEnvironment, exhausted
		}
	}
	n.fold(r.Mark)
	return Step{n, []Event{event}}
}

// Boot is the first transition of a guard that starts: a configuration trial that is open was interrupted and is inconclusive. The
// agent will ask again. Nil if there is nothing to do.
func Boot(l Ledger, b Board, at time.Time) *Step {
	if l.Trial == nil {
		return nil
	}
	s := Settle(l, b, Inconclusive, Evidence{Message: "the guard or the board was interrupted in the trial", At: at})
	return &s
}

// SettleForeign ends an open trial in a record that only a newer guard may write: by the fixed part of the record, which every
// schema has (generation, active, slots.*.status, trial.slot, trial), and nothing else in it is touched. It reports false if no trial is open.
// The slot in force stays whatever the trial says of itself.
func SettleForeign(record []byte) ([]byte, bool, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(record, &m); err != nil {
		return nil, false, err
	}
	var fixed struct {
		Generation uint64
		Active     SlotName
		Trial      *struct{ Slot SlotName }
		Slots      map[SlotName]json.RawMessage
	}
	if err := json.Unmarshal(record, &fixed); err != nil {
		return nil, false, err
	}
	if fixed.Trial == nil {
		return record, false, nil
	}
	without := func(key string) { // in whatever case, as it was read
		maps.DeleteFunc(m, func(k string, _ json.RawMessage) bool { return strings.EqualFold(k, key) })
	}
	without("trial")
	var err error
	if _, ok := fixed.Slots[fixed.Trial.Slot]; ok && fixed.Trial.Slot != fixed.Active {
		fixed.Slots[fixed.Trial.Slot] = json.RawMessage(`{"status":"empty"}`)
		without("slots")
		if m["slots"], err = json.Marshal(fixed.Slots); err != nil {
			return nil, false, err
		}
	}
	without("generation")
	if m["generation"], err = json.Marshal(fixed.Generation + 1); err != nil {
		return nil, false, err
	}
	out, err := json.Marshal(m)
	return out, true, err
}

// leaveOf is the key under which a trial that was opened with number and granted is counted. The spent number does not change while it
// or its returning is open, so the answer is the one at its opening.
func (l Ledger) leaveOf(number, granted uint64) grantKey {
	switch {
	case granted != 0:
		return grantKey{grant: granted}
	case number > l.Spent:
		return grantKey{number: number}
	}
	return grantKey{}
}

// spend uses up what a trial was opened under: its number and its grant both, if there were both, so that one content gets no trial for
// each. The number only grows: a `retry:` line that is taken out and put back later lifts nothing that it has lifted before.
func (l *Ledger) spend(number, granted uint64) {
	l.Spent = max(l.Spent, number)
	l.dropGrant(granted)
}

func (l *Ledger) dropGrant(granted uint64) {
	if l.Grant != nil && granted == l.Grant.ID {
		l.Grant = nil
	}
}

// forget gives a content its attempts anew.
func (l *Ledger) forget(d Digest) {
	l.Tries = slices.DeleteFunc(l.Tries, func(t Try) bool { return t.Digest == d })
}

func (l *Ledger) forgetTry(t Try) {
	l.Tries = slices.DeleteFunc(l.Tries, func(o Try) bool { return o.Digest == t.Digest && o.Number == t.Number && o.Grant == t.Grant })
}

// lastKnownGoodChanged retires the sets that last-known-good now contains and takes its own digest from the marks. A mark of which
// nothing is left goes, and so does a grant for what is in force now: there is nothing that it could be used for, and what it lifts
// is not to be lifted some day later. What held at rest held on the release from before: the first baselines go with it, or a content that was
// once tried beside a well release would wait for ever for what a sick one does not let hold, and be the very one that mends it.
func (l *Ledger) lastKnownGoodChanged(b Board, from Release) {
	lkg := l.LastKnownGood(b)
	if !lkg.Equal(from) {
		for i := range l.Tries {
			l.Tries[i].Baseline = nil
		}
	}
	own := lkg.Digest()
	isOwn := func(d Digest) bool { return d == own }
	if l.Grant != nil && isOwn(l.Grant.Declared) {
		l.Grant = nil
	}
	for i := range l.Marks {
		m := &l.Marks[i]
		m.Retired = m.Retired || lkg.Contains(m.Set)
		m.Candidates = slices.DeleteFunc(m.Candidates, isOwn)
		m.Declared = slices.DeleteFunc(m.Declared, isOwn)
		m.OperatorDeclared = slices.DeleteFunc(m.OperatorDeclared, isOwn)
	}
	l.Marks = slices.DeleteFunc(l.Marks, func(m Mark) bool {
		return m.Retired && len(m.Candidates) == 0 && len(m.OperatorDeclared) == 0
	})
}

// addMark appends m. At the bound the oldest mark that the declared state does not contain goes, and an event says so.
func (l *Ledger) addMark(m Mark, declared Release) []Event {
	if len(m.Set) == 0 {
		panic("bootslot: a mark with an empty set would hold everything and nothing")
	}
	var events []Event
	for len(l.Marks) >= MaxMarks {
		out := slices.IndexFunc(l.Marks, func(o Mark) bool { return !o.concerns(declared) })
		if out < 0 { // all of them hold it, so most hold nothing that another does not
			out = max(0, slices.IndexFunc(l.Marks, func(o Mark) bool { return o.Retired }))
		}
		gone := l.Marks[out]
		l.Marks = slices.Delete(l.Marks, out, out+1)
		events = append(events, Event{Generation: l.Generation, At: m.At, Kind: EventMarkDropped, Mark: gone.ID, Revision: gone.Revision,
			Fields: sortedKeys(gone.Set), Message: fmt.Sprintf("more than %d marks", MaxMarks)})
	}
	l.Marks = append(l.Marks, m)
	return events
}

// fold joins the mark with that id with those whose set contains, or is contained in, its own: whatever contains the larger set contains the smaller
// one, which then stands for both, and all digests are kept. Of the larger one's fields those that the smaller one does not have are free
// again, in contents that did not fail yet. Retired marks keep to themselves: their sets hold nothing.
func (l *Ledger) fold(id uint64) {
	i := slices.IndexFunc(l.Marks, func(m Mark) bool { return m.ID == id })
	if i < 0 || l.Marks[i].Retired {
		return
	}
	// The same set first: a mark that has no attempts left takes the one that could reopen in before it goes into a smaller one.
	for _, same := range []bool{true, false} {
		for j, o := range l.Marks {
			if j == i || o.Retired || l.Marks[i].Set.Equal(o.Set) != same {
				continue
			}
			into, gone, ok := folds(l.Marks[i], o)
			if !ok {
				continue
			}
			into.Candidates = join(into.Candidates, gone.Candidates)
			into.Declared = join(into.Declared, gone.Declared)
			into.OperatorDeclared = join(into.OperatorDeclared, gone.OperatorDeclared)
			keep, drop := i, j
			if into.ID == o.ID {
				keep, drop = j, i
			}
			l.Marks[keep] = into
			l.Marks = slices.Delete(l.Marks, drop, drop+1)
			l.fold(into.ID)
			return
		}
	}
}

// folds says which of two marks goes into which. One that can reopen and one that cannot are not joined, unless they are the same set: then the
// stricter one stays. Two that can reopen are joined if they wait for the same check.
func folds(a, b Mark) (into, gone Mark, ok bool) {
	small, large := a, b
	if !contains(large.Set, small.Set) {
		small, large = b, a
	}
	same := len(small.Set) == len(large.Set)
	switch {
	case !contains(large.Set, small.Set):
		return Mark{}, Mark{}, false
	case small.reopens() != large.reopens():
		if same && small.reopens() {
			small, large = large, small
		}
		return small, large, same
	case same && small.ID > large.ID: // the older mark keeps its place
		small, large = large, small
	}
	return small, large, !small.reopens() || small.Check == large.Check
}

// concerns reports whether m has anything to do with what is declared.
func (m Mark) concerns(declared Release) bool {
	d := declared.Digest()
	return declared.Contains(m.Set) || slices.Contains(m.Candidates, d) || slices.Contains(m.Declared, d) || slices.Contains(m.OperatorDeclared, d)
}

func (m Mark) reopens() bool { return m.Cause == CauseEnvironment && !m.Exhausted }

func contains(f, set device.Fields) bool { return f.Contains(set) }

// join appends the digests of b that a lacks; the oldest go beyond the bound.
func join(a, b []Digest) []Digest {
	for _, d := range b {
		if !slices.Contains(a, d) {
			a = append(a, d)
		}
	}
	if len(a) > maxMarkDigests {
		a = slices.Delete(a, 0, len(a)-maxMarkDigests)
	}
	return a
}

func sortedKeys(f device.Fields) []string {
	var keys []string
	for k := range f {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
