package bootslot

import (
	"errors"
	"time"
)

// Reasons for which a rollback is refused.
var (
	ErrNoPrevious   = errors.New("there is no previous release: none has passed before the one in force, or a rollback has used it; use --to fallback")
	ErrAlreadyThere = errors.New("the target is what is in force already")
	ErrNewerLedger  = errors.New("the ledger was written by a newer guard, and this one may not change it")
	ErrNothingToTry = errors.New("nothing is declared that differs from what is in force")
)

// Rollback is an operator's way back. During a trial it only settles that as cancelled, with a mark; an open returning it closes,
// mark standing. Otherwise it makes previous (or the fallback) the active slot's release, in one transaction with a mark of what the
// release left behind changed against it and of the declared digest whole: else the agent would undo it. declared is the agent's newest
// wish: its retry number is used up together with a grant for the same reason, as what was raised before a rollback must not outlive it. It
// is nil if no agent has spoken yet; then the number of the first that does is used up.
func Rollback(l Ledger, b Board, toFallback bool, declared *Wish, who string, at time.Time) (Step, error) {
	if !l.Writable() {
		return Step{}, ErrNewerLedger
	}
	ev := Evidence{Message: "an operator rolled back", Who: who, At: at, Operator: true}
	if l.Trial != nil {
		s := Settle(l, b, Cancelled, ev)
		s.Ledger.useUp(declared)
		return s, nil
	}
	if l.Returning != nil {
		s := CloseReturning(l, b, true, ev)
		s.Ledger.useUp(declared)
		return s, nil
	}
	left := l.LastKnownGood(b)
	target := Slot{Release: b.Fallback, Digest: b.Fallback.Digest(), Declared: b.Fallback.Digest()}
	if !toFallback {
		if l.Previous == nil {
			return Step{}, ErrNoPrevious
		}
		target = *l.Previous
	}
	if target.Release.Equal(left) {
		return Step{}, ErrAlreadyThere
	}
	target.Status, target.Proven = SlotGood, true

	n := l.next()
	slot := l.Active
	if slot == "" {
		slot = SlotA
	}
	old := l.Slots[l.Active]
	n.Active, n.Slots[slot], n.Previous = slot, target, nil
	n.useUp(declared)
	if old.Declared == "" {
		old.Declared = left.Digest()
	}
	mark := Mark{ID: n.Generation, Set: setOf(b, left, target.Release), Candidates: []Digest{left.Digest()}, OperatorDeclared: []Digest{old.Declared},
		Revision: old.Revision, Origin: old.Origin, Cause: CauseOperator, Message: ev.Message, At: at, Who: who}
	events := n.addMark(mark, left)
	n.lastKnownGoodChanged(b, left)
	n.fold(mark.ID)
	e := Event{Generation: n.Generation, At: at, Kind: EventRollback, Revision: target.Revision, Digest: target.Digest, Declared: target.Declared,
		Slot: slot, Fields: left.Changed(target.Release), Mark: mark.ID, Who: who, Message: "to previous"}
	if toFallback {
		e.Message = "to the fallback"
	}
	return Step{n, append([]Event{e}, events...)}, nil
}

// useUp takes away every leave to try past the marks.
func (l *Ledger) useUp(declared *Wish) {
	l.Grant = nil
	if declared == nil {
		l.NumberUnseen = true
		return
	}
	l.Spent = max(l.Spent, declared.Number)
}

// Retry grants the declared content w one more trial past all marks, as a raised `retry:` would. The grant stays until it is used.
func Retry(l Ledger, b Board, w Wish, who string, at time.Time) (Step, error) {
	if !l.Writable() {
		return Step{}, ErrNewerLedger
	}
	if len(w.Release.Changed(l.LastKnownGood(b))) == 0 {
		return Step{}, ErrNothingToTry
	}
	n := l.next()
	d := w.Release.Digest()
	n.Grant = &Grant{ID: n.Generation, Declared: d, Who: who}
	return Step{n, []Event{{Generation: n.Generation, At: at, Kind: EventRetry, Revision: w.Revision, Declared: d, Who: who}}}, nil
}
