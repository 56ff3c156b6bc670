package bootslot

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/device"
)

// What each verdict does to slots, marks, attempts, the breaker and the number, of a trial of lamp over pump.
func TestSettle(t *testing.T) {
	third := []act{interrupted("lamp"), interrupted("lamp")}
	tests := []struct {
		name    string
		before  []act // after pump has passed
		number  uint64
		acts    []act // from the trial of lamp on
		slots   string
		lkg     string
		marks   []string
		count   int // attempts counted under the trial's number
		streak  int
		spent   uint64
		returns bool
	}{
		{"passed", nil, 0, []act{pass}, "good empty, active A, previous pump", "lamp", nil, 0, 0, 0, false},
		{"passed under a number", nil, 7, []act{pass}, "good empty, active A, previous pump", "lamp", nil, 0, 0, 7, false},
		{"passed after an attempt", []act{interrupted("lamp")}, 0, []act{pass}, "good empty, active A, previous pump", "lamp", nil, 0, 0, 0, false},

		{"failed", nil, 0, []act{fail("hot")}, "failed good, active B", "pump", []string{"lamp=on pump=off: failed"}, 1, 1, 0, true},
		{"failed, and it stands", nil, 0, []act{fail("hot"), stands}, "failed good, active B", "pump", []string{"lamp=on pump=off: failed"}, 0, 1, 0, false},
		{"failed under a number", nil, 7, []act{fail("hot")}, "failed good, active B", "pump", []string{"lamp=on pump=off: failed"}, 1, 1, 0, true},
		{"failed under a number, and it stands", nil, 7, []act{fail("hot"), stands}, "failed good, active B", "pump", []string{"lamp=on pump=off: failed"}, 0, 1, 7, false},
		{"failed by agent-alive: it returns like any other", nil, 0, []act{fail(AgentAlive)}, "failed good, active B", "pump", []string{"lamp=on pump=off: failed"}, 1, 1, 0, true},
		{"failed, third in a row", []act{failing("vent"), failing("fan"), push("lamp")}, 0, []act{fail("hot"), stands}, "failed good, active B", "pump",
			[]string{"fan=off pump=off vent=on: failed", "fan=on pump=off vent=off: failed", "lamp=on pump=off: failed"}, 0, 3, 0, false},

		{"environment", nil, 0, []act{fail("hot"), environment}, "failed good, active B", "pump", []string{"lamp=on pump=off: environment"}, 1, 1, 0, false},
		{"environment under a number", nil, 7, []act{fail("hot"), environment}, "failed good, active B", "pump", []string{"lamp=on pump=off: environment"}, 1, 1, 0, false},
		{"environment, last attempt", third, 0, []act{fail("hot"), environment}, "failed good, active B", "pump",
			[]string{"lamp=on pump=off: environment, exhausted"}, 0, 3, 0, false},
		{"environment under a number, last attempt", []act{raise(7), third[0], third[1]}, 7, []act{fail("hot"), environment}, "failed good, active B", "pump",
			[]string{"lamp=on pump=off: environment, exhausted"}, 0, 3, 7, false},

		{"inconclusive", nil, 0, []act{cut}, "empty good, active B", "pump", nil, 1, 1, 0, false},
		{"inconclusive under a number", nil, 7, []act{cut}, "empty good, active B", "pump", nil, 1, 1, 0, false},
		{"inconclusive, last attempt", third, 0, []act{cut}, "failed good, active B", "pump", []string{"lamp=on pump=off: attempts"}, 0, 3, 0, false},
		{"inconclusive under a number, last attempt", []act{raise(7), third[0], third[1]}, 7, []act{cut}, "failed good, active B", "pump",
			[]string{"lamp=on pump=off: attempts"}, 0, 3, 7, false},

		{"cancelled by a suspension", nil, 7, []act{suspend}, "empty good, active B", "pump", nil, 0, 0, 0, false},
		{"cancelled by a suspension, second attempt", []act{interrupted("lamp")}, 0, []act{suspend}, "empty good, active B", "pump", nil, 1, 1, 0, false},
		{"cancelled by a goodbye", nil, 0, []act{goodbye}, "empty good, active B", "pump", nil, 0, 0, 0, false},
		{"a second goodbye is inconclusive", []act{push("lamp"), try, goodbye}, 0, []act{goodbye}, "empty good, active B", "pump", nil, 1, 1, 0, false},
		{"goodbyes until the attempts are gone", []act{push("lamp"), try, goodbye, try, goodbye, try, goodbye}, 0, []act{goodbye}, "failed good, active B", "pump",
			[]string{"lamp=on pump=off: attempts"}, 0, 3, 0, false},
		{"a goodbye of another content is its first", []act{push("fan"), try, goodbye}, 0, []act{goodbye}, "empty good, active B", "pump", nil, 0, 0, 0, false},
		{"cancelled by a rollback", nil, 7, []act{rollback}, "failed good, active B", "pump", []string{"lamp=on pump=off: operator"}, 0, 0, 7, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, passing("lamp"), passing("pump"))
			p.l.Previous = nil
			p.do(tt.before...).do(push("lamp"), raise(tt.number), try)
			gen := p.l.Trial.Generation
			trial := *p.l.Trial
			p.do(tt.acts...)
			check(t, "slots", slotsOf(p.l), tt.slots)
			check(t, "last-known-good", on(p.l.LastKnownGood(p.b)), tt.lkg)
			check(t, "effective", on(p.l.Effective(p.b)), tt.lkg)
			checkList(t, "marks", marks(p.l), tt.marks)
			check(t, "attempts", p.l.try(trial.Digest, p.l.leaveOf(trial.Number, trial.Granted)).Count, tt.count)
			check(t, "streak", p.l.Streak, tt.streak)
			check(t, "spent", p.l.Spent, tt.spent)
			check(t, "returning", p.l.Returning != nil, tt.returns)
			check(t, "trial is over", p.l.Trial == nil, true)
			check(t, "generations", p.l.Generation, gen+uint64(len(tt.acts)))
		})
	}
}

// The evidence is in the mark, and the history has the verdict.
func TestSettleEvidence(t *testing.T) {
	p := newPlay(t)
	p.f.Before = Readings{"temperature": 20}
	p.w.Revision = "r5"
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p.do(push("lamp"), try, settle(Failed, Evidence{Check: "hot", Message: "45 °C", During: Readings{"temperature": 45}, At: at}))
	gen := p.l.Generation
	p.do(stands)
	m := p.l.Marks[0]
	check(t, "id", m.ID, gen)
	check(t, "revision", m.Revision, "r5")
	check(t, "check", m.Check, "hot")
	check(t, "message", m.Message, "45 °C")
	check(t, "at", m.At, at)
	check(t, "readings", fmt.Sprint(m.Before, m.During, m.After), "map[temperature:20] map[temperature:45] map[temperature:21]")
	checkList(t, "candidates", m.Candidates, []Digest{digestOf("lamp")})
	checkList(t, "declared", m.Declared, []Digest{digestOf("lamp")})
	var kinds []EventKind
	for _, e := range p.events {
		kinds = append(kinds, e.Kind)
		if e.Digest != digestOf("lamp") || e.Declared != digestOf("lamp") || e.Revision != "r5" || !slices.Equal(e.Fields, []string{"lamp"}) {
			t.Errorf("event %+v, want it to name the content, its revision and its fields", e)
		}
	}
	checkList(t, "history", kinds, []EventKind{EventTrial, EventKind(Failed), EventStands})
	p = newPlay(t, push("lamp"), try, fail("hot"), environment)
	check(t, "history of an environment", p.events[len(p.events)-1].Kind, EventEnvironment)
	check(t, "mark of an environment", p.l.Marks[0].Check, "hot")
}

func TestMisuse(t *testing.T) {
	idle, open := newPlay(t), newPlay(t, push("lamp"), try)
	tests := []struct {
		name string
		f    func()
	}{
		{"Settle without a trial", func() { Settle(idle.l, idle.b, Passed, Evidence{}) }},
		{"Settle with environment, which only returning finds", func() { Settle(open.l, open.b, Environment, Evidence{}) }},
		{"CloseReturning without returning", func() { CloseReturning(idle.l, idle.b, true, Evidence{}) }},
		{"a mark with an empty set", func() { l := open.l.next(); l.addMark(Mark{}, content("")) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			tt.f()
		})
	}
}

// Previous is the last active release before the one in force that passed with no exemption.
func TestPrevious(t *testing.T) {
	exempt := func(on string) act {
		return func(p *play) { p.do(facts(overdue(without("hot"))), push(on), try, pass, facts(well())) }
	}
	tests := []struct {
		name string
		acts []act
		want string
	}{
		{"the first pass", []act{passing("lamp")}, "none"},
		{"the first pass after the fallback was adopted", []act{ask, passing("lamp")}, ""},
		{"the second pass", []act{passing("lamp"), passing("pump")}, "lamp"},
		{"a pass after one with an exemption", []act{passing("lamp"), exempt("fan"), passing("pump")}, "lamp"},
		{"a pass after the first one, which had an exemption", []act{exempt("fan"), passing("pump")}, "none"},
		{"a pass with an exemption", []act{passing("lamp"), exempt("fan")}, "lamp"},
		{"staging does not touch it", []act{passing("lamp"), passing("pump"), push("fan"), try}, "lamp"},
		{"nor does a failure", []act{passing("lamp"), passing("pump"), failing("fan")}, "lamp"},
		{"nor an interruption", []act{passing("lamp"), passing("pump"), interrupted("fan")}, "lamp"},
		{"a rollback: none", []act{passing("lamp"), passing("pump"), rollback}, "none"},
		{"a pass after a rollback: what it went to", []act{passing("lamp"), passing("pump"), rollback, passing("fan")}, "lamp"},
		{"a pass after a rollback to the fallback", []act{passing("lamp"), passing("pump"), toFallback, passing("fan")}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			got := "none"
			if p.l.Previous != nil {
				got = on(p.l.Previous.Release)
			}
			check(t, "previous", got, tt.want)
		})
	}
}

// What becomes of the marks when last-known-good changes, and how they fold.
func TestMarks(t *testing.T) {
	env := func(on, check string) act { return func(p *play) { p.do(push(on), try, fail(check), environment) } }
	retried := func(n uint64, on string, end ...act) act {
		return func(p *play) { p.do(push(on), raise(n), try).do(end...) }
	}
	tests := []struct {
		name    string
		acts    []act
		marks   []string
		digests []string // of all marks' candidates
	}{
		{"a pass retires the sets that it contains, and other digests stay", []act{failing("lamp"), retried(1, "lamp pump", pass)}, []string{"lamp=on: failed, retired"}, []string{"lamp"}},
		{"a pass frees its own digest, and the mark of which nothing is left goes", []act{failing("lamp"), retried(1, "lamp", pass)}, nil, nil},
		{"a pass of something else leaves marks alone", []act{failing("lamp"), passing("pump")}, []string{"lamp=on: failed"}, []string{"lamp"}},
		{"a rollback retires, too", []act{passing("lamp"), passing("pump"), failing("lamp fan"), rollback},
			[]string{"fan=on lamp=on pump=off vent=off: failed", "lamp=off pump=on: operator"}, []string{"fan lamp", "pump"}},
		{"a rollback retires what it goes to", []act{passing("lamp"), func(p *play) {
			p.do(passing("pump"), failing("lamp fan"))
			p.l.Marks[0].Set = device.Fields{"lamp": "on"}
		}, rollback}, []string{"lamp=on: failed, retired", "lamp=off pump=on: operator"}, []string{"fan lamp", "pump"}},
		{"an adoption retires what the fallback contains", []act{failing("lamp"), func(p *play) { p.l.Marks[0].Set = device.Fields{"pump": "off"} }, push(""), ask},
			[]string{"pump=off: failed, retired"}, []string{"lamp"}},

		{"the same set again: the older mark has all digests", []act{failing("lamp"), retried(1, "lamp", fail("hot"), stands)}, []string{"lamp=on: failed"}, []string{"lamp"}},
		{"a larger set is folded into a smaller one", []act{failing("lamp"), retried(1, "lamp pump", fail("hot"), stands)}, []string{"lamp=on: failed"}, []string{"lamp", "lamp pump"}},
		{"a smaller set takes a larger one in", []act{failing("lamp pump"), failing("lamp")}, []string{"lamp=on: failed"}, []string{"lamp", "lamp pump"}},
		{"a smaller set takes several in", []act{failing("lamp pump"), failing("lamp fan"), failing("lamp")}, []string{"lamp=on: failed"}, []string{"lamp", "lamp pump", "fan lamp"}},
		{"sets of which none contains another", []act{failing("lamp pump"), failing("lamp fan")}, []string{"lamp=on pump=on: failed", "fan=on lamp=on vent=off: failed"},
			[]string{"lamp pump", "fan lamp"}},
		{"a failed mark that still returns is not folded yet", []act{failing("lamp"), retried(1, "lamp", fail("hot"))}, []string{"lamp=on: failed", "lamp=on: failed"}, []string{"lamp", "lamp"}},
		{"attempts used up fold into a failure", []act{failing("lamp"), retried(1, "lamp", cut, try, cut, try, cut)}, []string{"lamp=on: failed"}, []string{"lamp"}},
		{"a rollback in a trial folds", []act{failing("lamp"), retried(1, "lamp pump", rollback)}, []string{"lamp=on: failed"}, []string{"lamp", "lamp pump"}},
		{"retired marks do not fold", []act{failing("lamp pump"), retried(1, "lamp pump fan", pass), failing(""), retried(2, "lamp", fail("hot"), stands)},
			[]string{"lamp=on pump=on: failed, retired", "fan=off pump=off vent=off: failed"}, []string{"lamp pump", "lamp", ""}},

		{"an environment and a failure of one set: the failure stays", []act{env("lamp", "hot"), push("lamp"), try, fail("hot"), stands}, []string{"lamp=on: failed"}, []string{"lamp"}},
		{"a failure and an environment of one set: the failure stays", []act{failing("lamp"), retried(1, "lamp", fail("hot"), environment)}, []string{"lamp=on: failed"}, []string{"lamp"}},
		{"an environment keeps apart from a failure of a smaller set", []act{env("lamp pump", "hot"), failing("lamp")}, []string{"lamp=on pump=on: environment", "lamp=on: failed"},
			[]string{"lamp pump", "lamp"}},
		{"an environment keeps apart from a failure of a larger set", []act{env("lamp", "hot"), push("lamp pump"), try, fail("hot"), stands},
			[]string{"lamp=on: environment", "lamp=on pump=on: failed"}, []string{"lamp", "lamp pump"}},
		{"two environments of one check fold", []act{env("lamp pump", "hot"), env("lamp", "hot")}, []string{"lamp=on: environment"}, []string{"lamp", "lamp pump"}},
		{"two environments of two checks do not", []act{env("lamp pump", "hot"), env("lamp", "wet")}, []string{"lamp=on pump=on: environment", "lamp=on: environment"},
			[]string{"lamp pump", "lamp"}},
		{"an environment without attempts folds into a failure", []act{failing("lamp"), retried(1, "lamp pump", fail("hot"), environment, try, fail("hot"), environment,
			try, fail("hot"), environment)}, []string{"lamp=on: failed"}, []string{"lamp", "lamp pump"}},
		{"an environment without attempts takes the one that could reopen in", []act{env("lamp", "hot"), try, fail("hot"), environment, try, fail("hot"), environment},
			[]string{"lamp=on: environment, exhausted"}, []string{"lamp"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			checkList(t, "marks", marks(p.l), tt.marks)
			var got []string
			for _, m := range p.l.Marks {
				for _, d := range m.Candidates {
					got = append(got, nameOf(d))
				}
			}
			checkList(t, "digests", got, tt.digests)
		})
	}
}

// Folding keeps every digest of both marks, the operator's declared ones too.
func TestFoldingKeepsDigests(t *testing.T) {
	for _, ids := range [][2]uint64{{1, 2}, {2, 1}} {
		l := NewLedger("x")
		l.Marks = []Mark{{ID: ids[0], Set: device.Fields{"lamp": "on"}, Cause: CauseFailed, Candidates: []Digest{"a"}, Declared: []Digest{"b"}, OperatorDeclared: []Digest{"c", "d"}},
			{ID: ids[1], Set: device.Fields{"lamp": "on", "pump": "on"}, Cause: CauseOperator, Candidates: []Digest{"e", "a"}, Declared: []Digest{"f"}, OperatorDeclared: []Digest{"g"}}}
		n := l.next()
		n.fold(2)
		check(t, "marks", len(n.Marks), 1)
		checkList(t, "candidates", n.Marks[0].Candidates, []Digest{"a", "e"})
		checkList(t, "declared", n.Marks[0].Declared, []Digest{"b", "f"})
		checkList(t, "operator declared", n.Marks[0].OperatorDeclared, []Digest{"c", "d", "g"})
	}
}

// nameOf finds the content of a digest.
func nameOf(d Digest) string {
	for n := range 1 << len(kitFields) {
		var fields []string
		for i, f := range kitFields {
			if n>>i&1 == 1 {
				fields = append(fields, f)
			}
		}
		if c := strings.Join(fields, " "); digestOf(c) == d {
			return c
		}
	}
	return d.Short()
}

// An environment's mark reopens for its check alone, and never once the attempts are gone; a folded one by its own check.
func TestReopening(t *testing.T) {
	twoChecks := []act{push("lamp pump"), try, fail("hot"), environment, push("lamp"), try, fail("wet"), environment}
	gone := []act{push("lamp"), try, fail("hot"), environment, try, fail("hot"), environment, try, fail("hot"), environment}
	tests := []struct {
		name string
		acts []act
		f    Facts
		want string // held of "lamp pump"
	}{
		{"both checks hold", twoChecks, well(), ""},
		{"one check does not hold", twoChecks, overdue(without("hot")), "lamp pump"},
		{"the other check does not hold", twoChecks, overdue(without("wet")), "lamp"},
		{"no attempts left", gone, well(), "lamp"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			p.do(push("lamp pump"), facts(tt.f), ask)
			check(t, "Admit: held", held(p.d), tt.want)
		})
	}
}

func fieldSet(n int) device.Fields { return device.Fields{fmt.Sprintf("f%03d", n): "on"} }

// crowd fills the ledger with marks 1 to n, of sets that nothing of the kit contains.
func crowd(n int) act {
	return func(p *play) {
		for i := 1; i <= n; i++ {
			p.l.Marks = append(p.l.Marks, Mark{ID: uint64(i), Set: fieldSet(i), Candidates: []Digest{Digest(fmt.Sprint("d", i))}, Cause: CauseFailed})
		}
		p.l.Generation += 1000
	}
}

func TestMarkLimit(t *testing.T) {
	tests := []struct {
		name string
		acts []act
		n    int
		gone []uint64
	}{
		{"one below", []act{crowd(MaxMarks - 1), failing("lamp")}, MaxMarks, nil},
		{"the oldest goes", []act{crowd(MaxMarks), failing("lamp")}, MaxMarks, []uint64{1}},
		{"the oldest two go", []act{crowd(MaxMarks), failing("lamp"), failing("pump")}, MaxMarks, []uint64{1, 2}},
		{"the oldest that is not declared goes", []act{crowd(MaxMarks), func(p *play) { p.l.Marks[0].Set = device.Fields{"lamp": "on"} }, failing("lamp pump")},
			MaxMarks, []uint64{2}},
		{"one that holds the declared digest stays", []act{crowd(MaxMarks), func(p *play) { p.l.Marks[0].OperatorDeclared = []Digest{digestOf("lamp")} },
			raise(1), failing("lamp")}, MaxMarks, []uint64{2}},
		{"a retired one whose digest is the declared one stays", []act{crowd(MaxMarks), func(p *play) {
			p.l.Marks[0].Retired, p.l.Marks[0].Candidates = true, []Digest{digestOf("lamp")}
		}, raise(1), failing("lamp")}, MaxMarks, []uint64{2}},
		{"all declared: a retired one goes", []act{crowd(MaxMarks), func(p *play) {
			for i := range p.l.Marks {
				p.l.Marks[i].Set = device.Fields{"lamp": "on"}
			}
			p.l.Marks[7].Retired = true
		}, raise(1), push("lamp"), try, fail("hot")}, MaxMarks, []uint64{8}},
		{"all declared, none retired: the oldest goes", []act{crowd(MaxMarks), func(p *play) {
			for i := range p.l.Marks {
				p.l.Marks[i].Set = device.Fields{"lamp": "on"}
			}
		}, raise(1), push("lamp"), try, fail("hot")}, MaxMarks, []uint64{1}},
		{"attempts", []act{crowd(MaxMarks), interrupted("lamp"), interrupted("lamp"), interrupted("lamp")}, MaxMarks, []uint64{1}},
		{"a rollback", []act{ask, passing("lamp"), crowd(MaxMarks), rollback}, MaxMarks, []uint64{1}},
		{"a rollback in a trial", []act{crowd(MaxMarks), push("lamp"), try, rollback}, MaxMarks, []uint64{1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			check(t, "number of marks", len(p.l.Marks), tt.n)
			var gone []uint64
			for _, e := range p.events {
				if e.Kind == EventMarkDropped {
					gone = append(gone, e.Mark)
				}
			}
			checkList(t, "history: dropped", gone, tt.gone)
			for _, m := range p.l.Marks {
				if slices.Contains(tt.gone, m.ID) {
					t.Errorf("mark %d is still there", m.ID)
				}
			}
			p.do(facts(without("wet")), raise(0), ask)
			check(t, "Admit: candidate of what was just marked", on(p.d.Candidate), on(p.l.LastKnownGood(p.b)))
		})
	}
}

func TestBounds(t *testing.T) {
	p := newPlay(t)
	first := 0
	for i := range maxTries + 5 {
		p.w.Release = content("")
		p.w.Release.Fields["lamp"] = fmt.Sprint(i)
		p.do(try, cut)
	}
	check(t, "tries", len(p.l.Tries), maxTries)
	p.w.Release.Fields["lamp"] = fmt.Sprint(first)
	check(t, "attempts of the first content", p.l.try(p.w.Release.Digest(), grantKey{}).Count, 0)
	p.w.Release.Fields["lamp"] = "5"
	check(t, "attempts of a kept content", p.l.try(p.w.Release.Digest(), grantKey{}).Count, 1)
	// A kept content that is tried again is no longer the oldest.
	p.do(try, cut)
	check(t, "tries", len(p.l.Tries), maxTries)
	check(t, "newest", p.l.Tries[maxTries-1].Digest, p.w.Release.Digest())
	check(t, "newest: attempts", p.l.Tries[maxTries-1].Count, 2)

	var a []Digest
	for i := range maxMarkDigests + 1 {
		a = join(a, []Digest{Digest(fmt.Sprint(i))})
	}
	check(t, "digests of a mark", len(a), maxMarkDigests)
	check(t, "the newest digest of a mark", a[maxMarkDigests-1], Digest(fmt.Sprint(maxMarkDigests)))
}

func TestBoot(t *testing.T) {
	tests := []struct {
		name string
		acts []act
		want string
	}{
		{"nothing open", nil, "nothing"},
		{"a trial", []act{push("lamp"), try}, "inconclusive"},
		{"a trial, last attempt", []act{interrupted("lamp"), interrupted("lamp"), try}, "inconclusive, 1 mark"},
		{"returning", []act{push("lamp"), try, fail("hot")}, "nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			s := Boot(p.l, p.b, time.Time{})
			got := "nothing"
			if s != nil {
				got = string(s.Events[0].Kind)
				if n := len(s.Ledger.Marks); n > 0 {
					got += fmt.Sprintf(", %d mark", n)
				}
				p.take(*s)
			}
			check(t, "Boot", got, tt.want)
			check(t, "effective", on(p.l.Effective(p.b)), on(p.l.LastKnownGood(p.b)))
			check(t, "trial", p.l.Trial == nil, true)
		})
	}
	p := newPlay(t, failing("lamp"), push("pump"), try)
	checkList(t, "Boot: marks", marks(Boot(p.l, p.b, time.Time{}).Ledger), marks(p.l))
	p = newPlay(t, push("lamp"), try, fail("hot"))
	if Boot(p.l, p.b, time.Time{}) != nil || p.l.Returning == nil {
		t.Error("a start ends returning; the device is to be driven back whatever restarts")
	}
}

// Both slots can fail, and tell of it, before anything has passed.
func TestBothSlotsFailed(t *testing.T) {
	p := newPlay(t, failing("lamp"), failing("pump"))
	check(t, "slots", slotsOf(p.l), "failed failed")
	check(t, "effective", on(p.l.Effective(p.b)), "")
	p.do(failing("fan"))
	check(t, "slots after a third failure", slotsOf(p.l), "failed failed")
	p.do(passing("vent"))
	check(t, "slots after a pass", slotsOf(p.l), "good failed, active A")
	p = newPlay(t, failing("lamp"), push(""), ask)
	check(t, "slots after a failure and an adoption", slotsOf(p.l), "failed good, active B")
}

// No slot is good, whatever both say: the fallback.
func TestLastKnownGood(t *testing.T) {
	slot := func(s SlotStatus, on string) Slot { return Slot{Status: s, Release: content(on)} }
	tests := []struct {
		name   string
		active SlotName
		a, b   Slot
		want   string
	}{
		{"new", "", slot(SlotEmpty, ""), slot(SlotEmpty, ""), ""},
		{"both failed", "", slot(SlotFailed, "lamp"), slot(SlotFailed, "pump"), ""},
		{"one good and active", SlotB, slot(SlotFailed, "lamp"), slot(SlotGood, "pump"), "pump"},
		{"one good, and none active", "", slot(SlotGood, "lamp"), slot(SlotGood, "pump"), ""},
		{"the active one is not good", SlotA, slot(SlotTrying, "lamp"), slot(SlotGood, "pump"), ""},
		{"a slot that there is not", "C", slot(SlotGood, "lamp"), slot(SlotGood, "pump"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := NewLedger("x")
			l.Active, l.Slots[SlotA], l.Slots[SlotB] = tt.active, tt.a, tt.b
			b := kitBoard()
			check(t, "LastKnownGood", on(l.LastKnownGood(b)), tt.want)
			check(t, "Effective", on(l.Effective(b)), tt.want)
			if l.Active != "" && l.Spare() == l.Active {
				t.Errorf("Spare() = %s, the active slot", l.Spare())
			}
			var none Ledger
			check(t, "LastKnownGood of an empty record", on(none.LastKnownGood(b)), "")
		})
	}
}

func TestSettleForeign(t *testing.T) {
	tests := []struct {
		name   string
		record string
		open   bool
		want   string
	}{
		{"an open trial", `{"schema":9,"minWriter":9,"generation":41,"active":"A","slots":{"A":{"status":"good","glow":1},"B":{"status":"trying"}},"trial":{"slot":"B","x":[1]},"news":{"k":"v"}}`,
			true, `{"active":"A","generation":42,"minWriter":9,"news":{"k":"v"},"schema":9,"slots":{"A":{"status":"good","glow":1},"B":{"status":"empty"}}}`},
		{"none open", `{"schema":9,"generation":41}`, false, `{"schema":9,"generation":41}`},
		{"null", `{"generation":41,"trial":null}`, false, `{"generation":41,"trial":null}`},
		{"no slots", `{"generation":41,"trial":{"slot":"B"}}`, true, `{"generation":42}`},
		{"a slot that there is not", `{"generation":41,"slots":{"A":{"status":"good"}},"trial":{"slot":"Q"}}`, true, `{"generation":42,"slots":{"A":{"status":"good"}}}`},
		{"a trial that says nothing of its slot", `{"generation":41,"slots":{"A":{"status":"good"}},"trial":{}}`, true, `{"generation":42,"slots":{"A":{"status":"good"}}}`},
		{"a trial that names the slot in force", `{"active":"A","generation":41,"slots":{"A":{"status":"good"}},"trial":{"slot":"A"}}`, true,
			`{"active":"A","generation":42,"slots":{"A":{"status":"good"}}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, open, err := SettleForeign([]byte(tt.record))
			if err != nil {
				t.Fatal(err)
			}
			check(t, "open", open, tt.open)
			check(t, "SettleForeign", string(got), tt.want)
		})
	}
	for _, broken := range []string{``, `[]`, `{"generation":"x"}`, `{"trial":{"slot":7}}`, `{"slots":[]}`} {
		if out, open, err := SettleForeign([]byte(broken)); err == nil {
			t.Errorf("SettleForeign(%s) = %s, %v, want an error", broken, out, open)
		}
	}
	// The fixed part is what this code writes, too.
	p := newPlay(t, passing("pump"), push("lamp"), try)
	b, err := json.Marshal(p.l)
	if err != nil {
		t.Fatal(err)
	}
	out, open, err := SettleForeign(b)
	if err != nil || !open {
		t.Fatalf("SettleForeign of our own = %v, %v", open, err)
	}
	var l Ledger
	if err := json.Unmarshal(out, &l); err != nil {
		t.Fatal(err)
	}
	check(t, "slots", slotsOf(l), "good empty, active A")
	check(t, "effective", on(l.Effective(p.b)), "pump")
	check(t, "generation", l.Generation, p.l.Generation+1)
}
