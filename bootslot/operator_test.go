package bootslot

import (
	"errors"
	"testing"
	"time"
)

func TestRollback(t *testing.T) {
	tests := []struct {
		name       string
		acts       []act
		toFallback bool
		err        error
		slots      string
		lkg        string
		marks      []string
		asked      string // what the agent's next ask leaves in force; it must not undo the rollback
		kind       DecisionKind
	}{
		{"to previous", []act{passing("pump"), passing("pump lamp")}, false, nil, "empty good, active B", "pump", []string{"lamp=on: operator"}, "pump", Held},
		{"to the fallback", []act{passing("pump"), passing("pump lamp")}, true, nil, "empty good, active B", "", []string{"lamp=on pump=on: operator"}, "", Held},
		{"to the fallback, of the first release", []act{passing("lamp")}, true, nil, "good empty, active A", "", []string{"lamp=on: operator"}, "", Held},
		{"to an adopted fallback", []act{ask, passing("lamp")}, false, nil, "empty good, active B", "", []string{"lamp=on: operator"}, "", Held},
		{"a group that was touched is in the set", []act{passing("pump"), passing("pump fan")}, false, nil, "empty good, active B", "pump", []string{"fan=on vent=off: operator"}, "pump", Held},
		{"a release that is mixed", []act{ask, mixedPast}, false, nil, "empty good, active B", "",
			[]string{"fan=on vent=off: environment", "lamp=on: operator"}, "", Held},
		{"a failed trial's slot stays as it is", []act{passing("pump"), passing("pump lamp"), failing("fan"), push("pump lamp")}, false, nil, "failed good, active B", "pump",
			[]string{"fan=on lamp=off pump=off vent=off: failed", "lamp=on: operator"}, "pump", Held},
		{"two in a row", []act{passing("pump"), passing("lamp"), rollback}, false, ErrNoPrevious, "", "", nil, "", ""},
		{"two in a row, the second to the fallback", []act{passing("pump"), passing("lamp"), rollback}, true, nil, "empty good, active B", "",
			[]string{"lamp=on pump=off: operator", "pump=on: operator"}, "", Held},
		{"no previous", []act{passing("lamp")}, false, ErrNoPrevious, "", "", nil, "", ""},
		{"nothing passed yet", nil, false, ErrNoPrevious, "", "", nil, "", ""},
		{"the fallback is in force", nil, true, ErrAlreadyThere, "", "", nil, "", ""},
		{"the fallback was adopted", []act{ask}, true, ErrAlreadyThere, "", "", nil, "", ""},
		{"previous is what is in force", []act{passing("lamp"), facts(overdue(without("hot"))), push("pump"), try, pass, push("lamp"), try, pass}, false,
			ErrAlreadyThere, "", "", nil, "", ""},
		{"a newer guard's ledger", []act{passing("pump"), passing("lamp"), func(p *play) { p.l.MinWriter = Schema + 1 }}, false, ErrNewerLedger, "", "", nil, "", ""},

		{"in a trial: only that is over", []act{passing("pump"), passing("fan"), push("lamp"), try}, false, nil, "failed good, active B, previous pump", "fan",
			[]string{"fan=off lamp=on vent=off: operator"}, "fan", Held},
		{"in a trial, to the fallback: only that is over", []act{passing("pump"), push("lamp"), try}, true, nil, "good failed, active A", "pump",
			[]string{"lamp=on pump=off: operator"}, "pump", Held},
		{"in a trial of a part: the declared digest is held whole", []act{failing("fan"), push("fan lamp"), try}, false, nil, "failed failed", "",
			[]string{"fan=on vent=off: failed", "lamp=on: operator"}, "", Held},
		{"while it returns: only that is over, the mark stands", []act{passing("pump"), passing("fan"), push("lamp"), try, fail("hot")}, false, nil,
			"failed good, active B, previous pump", "fan", []string{"fan=off lamp=on vent=off: failed"}, "fan", Held},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			before := p.l
			s, err := Rollback(p.l, p.b, tt.toFallback, &p.w, "kim", time.Time{})
			if !errors.Is(err, tt.err) {
				t.Fatalf("Rollback: %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			p.take(s)
			check(t, "slots", slotsOf(p.l), tt.slots)
			check(t, "last-known-good", on(p.l.LastKnownGood(p.b)), tt.lkg)
			check(t, "effective", on(p.l.Effective(p.b)), tt.lkg)
			checkList(t, "marks", marks(p.l), tt.marks)
			check(t, "nothing open", p.l.Trial == nil && p.l.Returning == nil, true)
			if before.Trial == nil && before.Returning == nil {
				check(t, "event", s.Events[0].Kind, EventRollback)
				check(t, "event: who", s.Events[0].Who, "kim")
				m := p.l.Marks[len(p.l.Marks)-1]
				check(t, "mark: candidate", m.Candidates[0], before.LastKnownGood(p.b).Digest())
				check(t, "mark: declared", m.OperatorDeclared[0], before.Slots[before.Active].Declared)
				check(t, "mark: who", m.Who, "kim")
			}
			p.do(ask)
			check(t, "then the agent asks: decision", p.d.Kind, tt.kind)
			check(t, "then the agent asks: effective", on(p.l.Effective(p.b)), tt.asked)
		})
	}
}

// A rollback goes to a release that needs no trial, and the next pass makes it previous.
func TestRollbackTargetIsProven(t *testing.T) {
	p := newPlay(t, passing("pump"), passing("lamp"), rollback)
	check(t, "proven", p.l.Slots[p.l.Active].Proven, true)
	check(t, "declared", p.l.Slots[p.l.Active].Declared, digestOf("pump"))
	p.do(failing("fan"), passing("vent"))
	check(t, "previous", on(p.l.Previous.Release), "pump")
}
