package bootslot

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/device"
)

// unsoaked are facts with which nothing opens: what would be tried waits for its baseline.
func unsoaked(p *play) { p.f = without("wet") }

// imageReady says that an image is fetched and hashed.
func imageReady(sha string) act { return func(p *play) { p.f.ImageReady = sha } }

// mixedPast leaves a release in force that came of a declared one with a part held by a mark that has reopened since.
func mixedPast(p *play) {
	p.do(push("fan"), try, fail("hot"), environment)
	image := p.f.ImageReady
	p.do(facts(overdue(without("hot"))), imageReady(image), push("fan lamp"), try, pass)
	p.do(facts(well()), imageReady(image))
}

func TestHolding(t *testing.T) {
	releases := board(func(b *Board) { b.HoldRelease = true })
	tests := []struct {
		name      string
		acts      []act
		kind      DecisionKind
		held      string
		candidate string
	}{
		{"nothing is marked", []act{unsoaked, push("lamp pump")}, AwaitBaseline, "", "lamp pump"},
		{"last-known-good is desired", []act{ask, passing("pump"), failing("lamp"), push("pump")}, Same, "", "pump"},
		{"the marked content again", []act{failing("lamp"), push("lamp")}, Held, "lamp", ""},
		{"the marked set among others", []act{failing("lamp"), unsoaked, push("lamp pump")}, AwaitBaseline, "lamp", "pump"},
		{"a part of the marked set is a new experiment", []act{failing("lamp pump"), unsoaked, push("lamp")}, AwaitBaseline, "", "lamp"},
		{"another value of the set", []act{passing("pump"), failing("lamp"), unsoaked, push("lamp pump")}, AwaitBaseline, "", "lamp pump"},
		{"two marks hold two fields", []act{failing("lamp"), failing("pump"), push("lamp pump")}, Held, "lamp pump", ""},
		{"held only where it differs from what is desired", []act{failing("lamp pump"), passing("pump"), unsoaked, push("lamp pump")}, Held, "lamp", "pump"},

		{"a group's other member is in the set: the same again is held", []act{failing("fan"), push("fan")}, Held, "fan", ""},
		{"a change to any member of the group is a new experiment", []act{failing("fan"), unsoaked, push("fan vent")}, AwaitBaseline, "", "fan vent"},
		{"a group is held together", []act{board(func(b *Board) { b.Groups = nil }), failing("fan"),
			board(func(b *Board) { b.Groups = kitBoard().Groups }), unsoaked, push("fan vent pump")}, AwaitBaseline, "fan vent", "pump"},

		{"a set that last-known-good contains is retired for good", []act{failing("lamp pump"), push("lamp pump fan"), raise(1), try, pass, passing(""), unsoaked,
			push("lamp pump vent")}, AwaitBaseline, "", "lamp pump vent"},

		// From pump, lamp without pump failed: {lamp=on pump=off}. From "", pump with fan failed. Both wanted at once with lamp, the
		// second mark takes pump back to off, and so the first one holds lamp, although what is desired does not contain its set.
		{"holding one mark's set gives another its own: fixed point", []act{passing("pump"), failing("lamp"), passing(""), failing("pump fan"),
			push("lamp pump fan")}, Held, "fan lamp pump", ""},
		{"the same, to a mixture that never failed", []act{passing("pump"), failing("lamp"), passing("vent"), failing("pump vent"), push("lamp pump vent")},
			Held, "lamp pump", "vent"},
		{"the same, the marks in the other order", []act{failing("pump"), passing("vent"), func(p *play) {
			p.l.Marks = append(p.l.Marks, Mark{ID: 1, Set: device.Fields{"lamp": "on", "pump": "off"}, Cause: CauseFailed})
		}, push("lamp pump vent")}, Held, "lamp pump", "vent"},

		// lamp pump failed, then lamp pump fan passed a retry: the set is retired, the digest stays.
		{"the digest of a failed candidate, its set retired", []act{failing("lamp pump"), push("lamp pump fan"), raise(1), try, pass, push("lamp pump")},
			Held, "fan", "fan lamp pump"},
		{"the digest of a failed candidate, reached by holding", []act{failing("lamp pump"), push("lamp pump fan"), raise(1), try, pass,
			push("lamp pump vent"), try, fail("hot"), stands, push("lamp pump")}, Held, "fan", "fan lamp pump"},
		{"a digest that became last-known-good is free", []act{failing("lamp"), push("lamp"), raise(1), try, pass, passing("pump"), unsoaked, push("lamp")},
			AwaitBaseline, "", "lamp"},

		{"what an operator rolled back from", []act{passing("pump"), passing("pump lamp"), rollback, push("pump lamp")}, Held, "lamp", "pump"},
		{"what an operator rolled back from, among others", []act{passing("pump"), passing("pump lamp"), rollback, unsoaked, push("pump lamp fan")},
			AwaitBaseline, "lamp", "fan pump"},
		{"an operator's declared digest is held whole", []act{ask, mixedPast, rollback, push("fan lamp")}, Held, "fan lamp", ""},
		{"an operator's declared digest, by what was declared and not by the image it keeps", []act{imageReady("aa"), passing("image=aa"), mixedPast,
			rollback, push("fan lamp")}, Held, "fan lamp", "image=aa"},
		{"only that declared digest is held whole", []act{ask, mixedPast, rollback, unsoaked, push("fan lamp pump")}, AwaitBaseline, "lamp", "fan pump"},

		{"hold: release, a mark holds a part", []act{releases, failing("lamp"), push("lamp pump")}, Held, "lamp pump", ""},
		{"hold: release, nothing is marked", []act{releases, failing("lamp"), unsoaked, push("pump")}, AwaitBaseline, "", "pump"},
		{"hold: release, a mark that holds nothing that differs", []act{releases, failing("lamp pump"), push("pump"), raise(1), try, pass,
			unsoaked, push("pump fan")}, AwaitBaseline, "", "fan pump"},
		{"hold: release, an image that is not ready stops nothing", []act{releases, unsoaked, push("pump image=aa")}, AwaitBaseline, "image", "pump"},
		{"hold: release, a marked image that is not ready", []act{imageReady("aa"), failing("image=aa"), releases, imageReady(""), unsoaked,
			push("pump image=aa")}, Held, "image pump", ""},
		{"a marked image that is not ready", []act{imageReady("aa"), failing("image=aa"), facts(without("wet")), push("pump image=aa")}, AwaitBaseline, "image", "pump"},

		{"an image that is not ready", []act{push("image=aa")}, Held, "image", ""},
		{"an image that is ready", []act{unsoaked, imageReady("aa"), push("lamp image=aa")}, AwaitBaseline, "", "lamp image=aa"},
		{"no image is no opinion", []act{imageReady("aa"), passing("image=aa"), unsoaked, push("lamp")}, AwaitBaseline, "", "lamp image=aa"},
		{"no image while a mark's set has the one in force", []act{imageReady("aa"), failing("lamp image=aa"), passing("image=aa"), push("lamp")}, Held, "lamp", "image=aa"},

		{"environment, its check does not hold", []act{push("lamp"), try, fail("hot"), environment, facts(without("hot")), push("lamp pump")},
			AwaitBaseline, "lamp", "pump"},
		{"environment, its check holds again", []act{push("lamp"), try, fail("hot"), environment, unsoaked, push("lamp pump")}, AwaitBaseline, "", "lamp pump"},
		{"environment, not at rest", []act{push("lamp"), try, fail("hot"), environment, facts(Facts{Rest: RestFacts{Required: kitChecks, Holding: kitChecks}}),
			push("lamp")}, Held, "lamp", ""},
		{"environment, its check is no longer configured", []act{push("lamp"), try, fail("gone"), environment, unsoaked, push("lamp")}, AwaitBaseline, "", "lamp"},
		{"environment, its digest does not hold it either once it reopens", []act{push("lamp pump"), try, fail("hot"), environment,
			push("lamp pump fan"), raise(1), try, pass, unsoaked, push("lamp pump")}, AwaitBaseline, "", "lamp pump"},

		{"a field that the profile has no more, taken away and failed", []act{func(p *play) {
			p.do(push("pump"))
			p.w.Release.Fields["door"] = "open"
			p.do(try, pass)
		}, failing("pump lamp"), push("pump lamp")}, Held, "door lamp", "door=open pump"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			p.do(ask)
			check(t, "Admit: decision", p.d.Kind, tt.kind)
			check(t, "Admit: held", held(p.d), tt.held)
			got := on(p.d.Candidate)
			if v := p.d.Candidate.Fields["door"]; v != "" {
				got = "door=" + v + " " + got
			}
			check(t, "Admit: candidate", got, tt.candidate)
			check(t, "Admit: digest", p.d.Digest, p.d.Candidate.Digest())
			lkg := p.l.LastKnownGood(p.b)
			check(t, "Admit: mixed", p.d.Mixed, tt.held != "" && !p.d.Candidate.Equal(lkg))
			for _, h := range p.d.Held {
				if h.Keep != lkg.values()[h.Field] || h.Want == h.Keep {
					t.Errorf("held %+v, want it kept at %q", h, lkg.values()[h.Field])
				}
			}
			if p.d.Kind == Held && len(p.d.Marks) > 0 && !strings.Contains(p.d.Reason, RetryWords(p.w.Number, p.d.RetryNumber)+" to try again") {
				t.Errorf("Admit: reason = %q, want it to name the number to write", p.d.Reason)
			}
			if p.l.Trial != nil {
				t.Errorf("a trial of %q opened", on(p.l.Trial.Candidate))
			}
		})
	}
}

func TestWaiting(t *testing.T) {
	const runs, cancels = "runs", "cancels"
	trial := func(on string) act { return func(p *play) { p.do(push(on), try) } }
	pinned := func(p *play) { p.do(trial("fan"), push("pump"), ask, trial("lamp")) }
	tests := []struct {
		name string
		acts []act
		kind DecisionKind
		then string // what becomes of the open trial
	}{
		{"the same wish", []act{trial("lamp")}, Trying, runs},
		{"the same content of another revision", []act{trial("lamp"), func(p *play) { p.w.Revision = "r7" }}, Trying, runs},
		{"the same content with a higher number", []act{trial("lamp"), raise(1)}, Trying, runs},
		{"another wish of the same candidate", []act{failing("pump"), trial("lamp"), push("lamp pump")}, Trying, runs},
		{"a wish that contains the change", []act{trial("lamp"), push("lamp pump")}, Waiting, runs},
		{"a wish without the change", []act{trial("lamp"), push("pump")}, AwaitBaseline, cancels},
		{"a wish with half of the change", []act{trial("lamp pump"), push("lamp")}, AwaitBaseline, cancels},
		{"last-known-good", []act{trial("lamp"), push("")}, Same, cancels},
		{"a wish without the change, of which a mark holds all", []act{failing("pump"), trial("lamp"), push("pump")}, Held, cancels},
		{"the same change with another member of its group", []act{trial("fan"), push("fan vent")}, AwaitBaseline, cancels},
		{"a wish without the change, suspended meanwhile", []act{trial("lamp"), push("pump"), func(p *play) { p.f.Obstacle = "suspended" }}, AwaitBaseline, cancels},

		{"pinned: a wish without the change", []act{pinned, push("pump")}, Waiting, runs},
		{"pinned: last-known-good", []act{pinned, push("")}, Waiting, runs},
		{"the trial after a pinned one that ended is not pinned", []act{pinned, fail("hot"), stands, trial("pump"), push("")}, Same, cancels},
		{"the trial after a pinned one that was interrupted is not pinned", []act{pinned, cut, trial("pump"), push("")}, Same, cancels},
		{"the trial after a pinned one that a goodbye cancelled is pinned, too", []act{pinned, goodbye, trial("pump"), push("")}, Waiting, runs},
		{"the trial after a pinned one that a suspension cancelled is pinned, too", []act{pinned, suspend, trial("pump"), push("")}, Waiting, runs},
		{"the trial after an operator's cancelling is not pinned", []act{pinned, rollback, trial("pump"), push("")}, Same, cancels},
		{"a trial after a suspension is not pinned", []act{trial("lamp"), suspend, trial("lamp"), push("")}, Same, cancels},

		{"a ledger of a newer guard: nothing is cancelled", []act{trial("lamp"), push("pump"), func(p *play) { p.l.MinWriter = Schema + 1 }}, Refused, runs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			before := p.l
			p.do(ask)
			check(t, "Admit: decision", p.d.Kind, tt.kind)
			if tt.then == runs {
				check(t, "Admit: generation", p.l.Generation, before.Generation)
				return
			}
			if p.l.Trial != nil {
				t.Fatalf("Admit: the trial of %q runs on", on(p.l.Trial.Candidate))
			}
			want := before
			want.Slots = maps.Clone(before.Slots)
			want.Slots[before.Trial.Slot] = Slot{Status: SlotEmpty}
			check(t, "cancelled: slots", slotsOf(p.l), slotsOf(want))
			check(t, "cancelled: effective", on(p.l.Effective(p.b)), on(before.LastKnownGood(p.b)))
			checkList(t, "cancelled: marks", marks(p.l), marks(before))
			check(t, "cancelled: streak", p.l.Streak, before.Streak)
			check(t, "cancelled: spent", p.l.Spent, before.Spent)
			check(t, "cancelled: attempts", p.l.try(before.Trial.Digest, grantKey{}).Count, before.Trial.Attempt-1)
			check(t, "cancelled: the next is pinned", p.l.Pin, true)
		})
	}
}

// While a trial runs that a reopened mark let in, the answer does not call held what is being tried.
func TestHeldInATrial(t *testing.T) {
	p := newPlay(t, failing("pump"), push("lamp pump"), try, fail("hot"), environment, try)
	p.do(facts(Facts{Rest: RestFacts{Required: kitChecks}}), ask)
	check(t, "Admit: decision", p.d.Kind, Trying)
	check(t, "Admit: held", held(p.d), "pump")
	check(t, "Admit: candidate", on(p.d.Candidate), "lamp")
	checkList(t, "Admit: marks", p.d.Marks, []uint64{p.l.Marks[0].ID})
	check(t, "Admit: mixed", p.d.Mixed, true)
}

func TestRefusing(t *testing.T) {
	after := func(d time.Duration) act { return func(p *play) { p.f.Waited = d } }
	obstacle := func(p *play) { p.f.Obstacle = "the disk is full" }
	tests := []struct {
		name   string
		acts   []act
		kind   DecisionKind
		reason string
		wait   time.Duration
	}{
		{"a returning is open", []act{push("lamp"), try, fail("hot"), push("pump")}, Refused, "returning", 0},
		{"a returning is open, last-known-good is desired", []act{passing("fan"), push("lamp"), try, fail("hot"), push("fan")}, Same, "", 0},
		{"a returning is open, the fallback is desired", []act{push("lamp"), try, fail("hot"), push("")}, Same, "", 0},
		{"an obstacle", []act{obstacle, push("lamp")}, Refused, "the disk is full", 0},
		{"an obstacle, last-known-good is desired", []act{obstacle, push("")}, Same, "", 0},
		{"a newer guard's ledger", []act{func(p *play) { p.l.MinWriter = Schema + 1 }, push("lamp")}, Refused, "needs a guard", 0},
		{"a newer guard's ledger, the fallback is desired", []act{func(p *play) { p.l.MinWriter = Schema + 1 }, push("")}, Same, "", 0},

		{"right after the start", []act{after(0), push("lamp")}, Trying, "", 0},
		{"after the first attempt", []act{interrupted("lamp"), after(59 * time.Second)}, Refused, "a pause of 1s", time.Second},
		{"after the first attempt and its pause", []act{interrupted("lamp"), after(time.Minute)}, Trying, "", 0},
		{"after the second attempt", []act{interrupted("lamp"), interrupted("lamp"), after(time.Minute)}, Refused, "a pause of 4m", 4 * time.Minute},
		{"after the second attempt and its pause", []act{interrupted("lamp"), interrupted("lamp"), after(5 * time.Minute)}, Trying, "", 0},
		{"another content does not wait for the first one's pause", []act{interrupted("lamp"), after(0), push("pump")}, Trying, "", 0},
		{"a cancelled trial is followed by no pause", []act{push("lamp"), try, suspend, after(0)}, Trying, "", 0},
		{"an environment's attempt counts", []act{push("lamp"), try, fail("hot"), environment, after(time.Second)}, Refused, "a pause of 59s", 59 * time.Second},
		{"more attempts than pauses: the last pause again", []act{board(func(b *Board) { b.Attempts = 9 }), interrupted("lamp"), interrupted("lamp"),
			interrupted("lamp"), interrupted("lamp"), interrupted("lamp"), passing("pump"), push("lamp"), after(0)}, Refused, "", 15 * time.Minute},
		{"no pauses configured", []act{board(func(b *Board) { b.Pauses = nil }), interrupted("lamp"), after(0)}, Trying, "", 0},

		{"attempts were lowered below what was used", []act{interrupted("lamp"), interrupted("lamp"), board(func(b *Board) { b.Attempts = 2 })},
			Refused, "all 2 attempts ended without a conclusion; write 'retry: 1'", 0},
		{"attempts were used up", []act{interrupted("lamp"), interrupted("lamp"), interrupted("lamp")}, Held, "held: lamp; write 'retry: 1'", 0},
		{"attempts were used up under a number", []act{raise(4), interrupted("lamp"), interrupted("lamp"), interrupted("lamp")}, Held, "held: lamp; raise retry: to 5", 0},
		{"attempts of another content", []act{interrupted("lamp"), interrupted("lamp"), interrupted("lamp"), push("pump")}, Trying, "", 0},

		{"breaker: two trials without a pass", []act{failing("lamp"), failing("pump"), after(0), push("fan")}, Trying, "", 0},
		{"breaker: three", []act{failing("lamp"), failing("pump"), failing("fan"), after(0), push("vent")}, Refused, "a pause", 2 * time.Minute},
		{"breaker: three, and as long again", []act{failing("lamp"), failing("pump"), failing("fan"), after(2 * time.Minute), push("vent")}, Trying, "", 0},
		{"breaker: four", []act{failing("lamp"), failing("pump"), failing("fan"), failing("vent"), after(0), push("fan vent")}, Refused, "a pause", 4 * time.Minute},
		{"breaker: interrupted and environment count", []act{interrupted("lamp"), push("pump"), try, fail("hot"), environment, interrupted("fan"), after(0),
			push("vent")}, Refused, "a pause", 2 * time.Minute},
		{"breaker: a second attempt waits twice its own pause", []act{failing("lamp"), interrupted("fan"), interrupted("fan"), after(0)},
			Refused, "a pause", 10 * time.Minute},
		{"breaker: cancelled aside", []act{failing("lamp"), failing("pump"), push("fan"), try, suspend, after(0), push("vent")}, Trying, "", 0},
		{"breaker: a pass clears it", []act{failing("lamp"), failing("pump"), failing("fan"), passing("vent"), after(0), push("fan vent")}, Trying, "", 0},
		{"breaker: a retry goes past it", []act{failing("lamp"), failing("pump"), failing("fan"), after(0), push("vent"), raise(1)}, Trying, "", 0},
		{"breaker: a grant goes past it", []act{failing("lamp"), failing("pump"), failing("fan"), after(0), push("vent"), grant}, Trying, "", 0},
		{"breaker: a retry clears it", []act{failing("lamp"), failing("pump"), failing("fan"), push("vent"), raise(1), try, fail("hot"), stands,
			after(0), push("fan vent"), raise(1)}, Trying, "", 0},
		{"breaker: a retry's further attempts do not clear it", []act{failing("lamp"), failing("pump"), push("fan"), raise(1), try, cut, try, cut,
			push("vent"), raise(0), try, fail("hot"), stands, after(0), push("fan vent")}, Refused, "a pause", 2 * time.Minute},
		{"breaker: an hour at most", []act{func(p *play) { p.l.Streak = 1000 }, after(0), push("lamp")}, Refused, "a pause", time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			p.do(ask)
			check(t, "Admit: decision", p.d.Kind, tt.kind)
			if !strings.Contains(p.d.Reason, tt.reason) {
				t.Errorf("Admit: reason = %q, want %q in it", p.d.Reason, tt.reason)
			}
			check(t, "Admit: wait", p.d.Wait, tt.wait)
			if tt.kind == Trying != (p.l.Trial != nil) {
				t.Errorf("Admit: decision %s, trial %v", p.d.Kind, p.l.Trial)
			}
		})
	}
}

// The number, the grant, and what is spent: exactly one trial, more only where there was no conclusion.
func TestRetrying(t *testing.T) {
	bad := failing("lamp")
	tests := []struct {
		name  string
		acts  []act
		kind  DecisionKind
		spent uint64
	}{
		{"no number", []act{bad, push("lamp")}, Held, 0},
		{"a raised number", []act{bad, raise(1)}, Trying, 0},
		{"a raised number, failed again", []act{bad, raise(1), try, fail("hot"), stands}, Held, 1},
		{"a raised number, while it returns", []act{bad, raise(1), try, fail("hot")}, Refused, 0},
		{"a raised number, passed", []act{bad, raise(1), try, pass}, Same, 1},
		{"a raised number, given back on environment", []act{bad, raise(1), try, fail("hot"), environment}, Trying, 0},
		{"a raised number, environment until the attempts are gone", []act{bad, raise(1), try, fail("hot"), environment, try, fail("hot"), environment,
			try, fail("hot"), environment}, Held, 1},
		{"a raised number, interrupted", []act{bad, raise(1), try, cut}, Trying, 0},
		{"a raised number, interrupted until the attempts are gone", []act{bad, raise(1), try, cut, try, cut, try, cut}, Held, 1},
		{"a raised number, cancelled", []act{bad, raise(1), try, suspend}, Trying, 0},
		{"a raised number has attempts of its own", []act{interrupted("lamp"), interrupted("lamp"), raise(1), try, cut, try, cut}, Trying, 0},
		{"a number that was spent, taken out and put back", []act{bad, raise(3), try, fail("hot"), stands, raise(0), failing("pump"), push("lamp"), raise(3)}, Held, 3},
		{"a lower number than the spent one", []act{bad, raise(3), try, fail("hot"), stands, raise(2)}, Held, 3},
		{"a number that another content has spent", []act{bad, raise(1), passing("pump"), push("lamp pump")}, Held, 1},
		{"a retry across two marks", []act{bad, failing("pump"), push("lamp pump"), raise(1)}, Trying, 0},
		{"a retry across two marks, failed", []act{bad, failing("pump"), push("lamp pump"), raise(1), try, fail("hot"), stands}, Held, 1},
		{"a retry past an operator's declared digest", []act{ask, mixedPast, rollback, push("fan lamp"), raise(1)}, Trying, 0},
		{"a retry past a marked digest", []act{failing("lamp pump"), push("lamp pump fan"), raise(1), try, pass, push("lamp pump"), raise(2)}, Trying, 1},
		{"a retry past hold: release", []act{board(func(b *Board) { b.HoldRelease = true }), bad, push("lamp pump"), raise(1)}, Trying, 0},
		{"a retry, at first past pauses", []act{interrupted("lamp"), facts(Facts{Rest: well().Rest}), raise(1)}, Trying, 0},
		{"a retry, then with pauses", []act{interrupted("lamp"), raise(1), try, cut, facts(Facts{Rest: well().Rest})}, Refused, 0},
		{"a retry does not lift what is no mark", []act{bad, raise(1), func(p *play) { p.f.Obstacle = "suspended" }}, Refused, 0},
		{"a retry does not make an image ready", []act{raise(1), push("image=aa")}, Held, 0},

		{"a grant", []act{bad, grant}, Trying, 0},
		{"a grant, failed again", []act{bad, grant, try, fail("hot"), stands}, Held, 0},
		{"a grant, given back on environment", []act{bad, grant, try, fail("hot"), environment}, Trying, 0},
		{"a grant, environment until the attempts are gone", []act{bad, grant, try, fail("hot"), environment, try, fail("hot"), environment, try,
			fail("hot"), environment}, Held, 0},
		{"a grant, interrupted until the attempts are gone", []act{bad, grant, try, cut, try, cut, try, cut}, Held, 0},
		{"a grant is for that content alone", []act{bad, failing("pump"), push("lamp"), grant, push("pump")}, Held, 0},
		{"a grant stays while another content is declared", []act{bad, grant, passing("pump"), push("lamp")}, Trying, 0},
		{"a grant after a grant", []act{bad, grant, try, fail("hot"), stands, grant}, Trying, 0},
		{"a grant asked for in a trial gives one more", []act{bad, grant, try, grant, fail("hot"), stands}, Trying, 0},
		{"a grant asked for in a trial, and only one", []act{bad, grant, try, grant, fail("hot"), stands, try, fail("hot"), stands}, Held, 0},
		{"a grant asked for in a trial that passes has nothing left to lift", []act{push("lamp"), try, grant, pass, passing("pump"), rollback, push("lamp")}, Same, 0},
		{"a grant and a number at once are one trial", []act{bad, grant, raise(1), try, fail("hot"), stands}, Held, 1},

		{"a rollback uses the number up", []act{passing("pump"), passing("pump lamp"), raise(4), rollback}, Held, 4},
		{"a rollback uses the grant up", []act{passing("pump"), passing("pump lamp"), push("pump lamp fan"), grant, rollback, push("pump lamp")}, Held, 0},
		{"a rollback in a trial uses the number up", []act{push("lamp"), raise(4), try, rollback}, Held, 4},
		{"a rollback in a trial uses the grant up", []act{bad, grant, try, rollback}, Held, 0},
		{"a rollback while it returns uses the number up", []act{push("lamp"), raise(4), try, fail("hot"), rollback}, Held, 4},
		{"a rollback that knows no number uses up the next one", []act{passing("pump"), passing("pump lamp"), raise(4), back(false, false), ask}, Held, 4},
		{"a rollback that knows no number uses up one number only", []act{passing("pump"), passing("pump lamp"), raise(4), back(false, false), ask, raise(5)}, Trying, 4},
		{"a number raised after a rollback", []act{passing("pump"), passing("pump lamp"), raise(4), rollback, raise(5)}, Trying, 4},
		{"a new content right after a rollback that knew no number", []act{passing("pump"), passing("pump lamp"), back(false, false), push("fan"), ask}, Trying, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			p.do(ask)
			check(t, "Admit: decision", p.d.Kind, tt.kind)
			check(t, "spent", p.l.Spent, tt.spent)
			if p.l.Trial != nil && !p.l.Trial.Candidate.Equal(p.w.Release) {
				t.Errorf("tried = %q, want the whole declared content %q", on(p.l.Trial.Candidate), on(p.w.Release))
			}
			if p.d.Kind == Held && len(p.d.Marks) > 0 {
				check(t, "Admit: retry number", p.d.RetryNumber, max(p.l.Spent, p.w.Number)+1)
				p.do(raise(p.d.RetryNumber), try)
			}
		})
	}
}

// Asking for a retry deletes no mark, and neither does its trial.
func TestRetryDeletesNoMark(t *testing.T) {
	p := newPlay(t, failing("lamp"), push("lamp"))
	want := marks(p.l)
	p.do(grant)
	checkList(t, "after Retry: marks", marks(p.l), want)
	p.do(try)
	checkList(t, "in its trial: marks", marks(p.l), want)
	p.do(cut)
	checkList(t, "after its trial: marks", marks(p.l), want)
}

// A mark is of a content. Under whatever revision that comes again (a merge, a re-push, a restored backup) it is held.
func TestAMarkIsOfAContentNotOfARevision(t *testing.T) {
	revision := func(r string) act { return func(p *play) { p.w.Revision = r } }
	p := newPlay(t, revision("bad"), failing("lamp"), revision("another"), push("lamp"), ask)
	check(t, "decision under another revision", p.d.Kind, Held)
	p.do(unsoaked, revision("a third"), push("lamp pump"), ask)
	check(t, "candidate of the same among others", on(p.d.Candidate), "pump")
}

// A grant for what came into force of another declared content lifts nothing later.
func TestGrantGoesWithItsContent(t *testing.T) {
	p := newPlay(t, failing("lamp"), push("pump"), grant, push("lamp pump"), try)
	check(t, "candidate", on(p.l.Trial.Candidate), "pump")
	check(t, "in the trial: grant stays", p.l.Grant != nil, true)
	p.do(pass)
	check(t, "after the pass: grant is gone", p.l.Grant == nil, true)
	p = newPlay(t, imageReady("aa"), passing("image=aa"), push("lamp"), try, grant, pass)
	check(t, "after a pass that kept the image: grant is gone", p.l.Grant == nil, true)
}

func TestRetryRefused(t *testing.T) {
	p := newPlay(t, passing("lamp"))
	if _, err := Retry(p.l, p.b, p.w, "kim", time.Time{}); err != ErrNothingToTry {
		t.Errorf("Retry of last-known-good: %v, want %v", err, ErrNothingToTry)
	}
	p.do(push("pump"))
	p.l.MinWriter = Schema + 1
	if _, err := Retry(p.l, p.b, p.w, "kim", time.Time{}); err != ErrNewerLedger {
		t.Errorf("Retry in a newer ledger: %v, want %v", err, ErrNewerLedger)
	}
}

func TestBaseline(t *testing.T) {
	all := strings.Join(kitChecks, " ")
	nowhere := Facts{Waited: time.Hour, Rest: RestFacts{Required: kitChecks, Holding: kitChecks}}
	with := func(f Facts, check string, holds bool) Facts {
		f.Rest.Required = append(slices.Clone(f.Rest.Required), check)
		if holds {
			f.Rest.Holding = append(slices.Clone(f.Rest.Holding), check)
		}
		return f
	}
	weak := []act{facts(overdue(without("hot"))), interrupted("lamp")} // hot is exempt in the first baseline
	tests := []struct {
		name       string
		acts       []act
		facts      Facts
		convicting string // "" if no trial opens
		exempt     string
	}{
		{"all hold", nil, well(), all, ""},
		{"one does not", nil, without("hot"), "", ""},
		{"one does not, and recover is over", nil, overdue(without("hot")), "wet agent-alive", "hot"},
		{"none holds, and recover is over", nil, overdue(without(kitChecks...)), "", all},
		{"not at rest", nil, nowhere, "", ""},
		{"not at rest, and recover is over", nil, overdue(nowhere), "", all},
		{"all hold although recover is over", nil, overdue(well()), all, ""},

		{"second attempt: all hold", []act{interrupted("lamp")}, well(), all, ""},
		{"second attempt: what held before does not", []act{interrupted("lamp")}, without("hot"), "", ""},
		{"second attempt: what held before does not, and recover is over", []act{interrupted("lamp")}, overdue(without("hot")), "", ""},
		{"second attempt: not at rest, and recover is over", []act{interrupted("lamp")}, overdue(nowhere), "", ""},
		{"second attempt: what was exempt stays exempt", weak, well(), "wet agent-alive", "hot"},
		{"second attempt: what was exempt need not hold", weak, without("hot"), "wet agent-alive", "hot"},
		{"second attempt: what was exempt need not hold, not even at rest", append(weak[:1:1], facts(overdue(without(kitChecks...))), interrupted("lamp")),
			nowhere, "", ""},
		{"second attempt: a check that is no longer configured", []act{facts(with(well(), "old", true)), interrupted("lamp")}, well(), all, ""},
		{"second attempt: a check that was configured since", []act{interrupted("lamp")}, with(well(), "new", true), all + " new", ""},
		{"second attempt: a check that was configured since does not hold", []act{interrupted("lamp")}, with(well(), "new", false), "", ""},
		{"second attempt: a check that was configured since, and recover is over", []act{interrupted("lamp")}, overdue(with(well(), "new", false)), all, "new"},
		{"after a cancelled trial the first baseline counts", append(weak[:1:1], push("lamp"), try, suspend), well(), "wet agent-alive", "hot"},
		{"after an environment the first baseline counts", []act{push("lamp"), try, fail("hot"), environment}, overdue(without("wet")), "", ""},
		{"last-known-good has changed: what held before need not", []act{interrupted("lamp vent"), passing("vent"), push("lamp vent")}, overdue(without("hot")), "wet agent-alive", "hot"},
		{"last-known-good has changed: what was exempt convicts", []act{push("lamp vent"), facts(overdue(without("hot"))), interrupted("lamp vent"), facts(well()), passing("vent"), push("lamp vent")}, well(), all, ""},
		{"the fallback is adopted, which changes nothing", []act{interrupted("lamp"), push(""), ask, push("lamp")}, overdue(without("hot")), "", ""},
		{"another content has its own", append(weak[:2:2], push("pump")), well(), all, ""},
		{"a retry has its own", append(weak[:2:2], raise(1)), well(), all, ""},
		{"a retry has its own, and waits for recover like any other", append(weak[:2:2], raise(1)), without("hot"), "", ""},
		{"a grant has its own", append(weak[:2:2], grant), well(), all, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, push("lamp"))
			p.do(tt.acts...)
			p.do(facts(tt.facts), ask)
			if (p.l.Trial != nil) != (tt.convicting+tt.exempt != "") {
				t.Fatalf("Admit: decision %s (%s), trial %v", p.d.Kind, p.d.Reason, p.l.Trial)
			}
			if p.l.Trial == nil {
				check(t, "Admit: decision", p.d.Kind, AwaitBaseline)
				if p.d.Reason == "" {
					t.Error("Admit: reason is empty, want what is missing")
				}
				return
			}
			check(t, "convicting", strings.Join(p.l.Trial.Baseline.Convicting, " "), tt.convicting)
			check(t, "exempt", strings.Join(p.l.Trial.Baseline.Exempt, " "), tt.exempt)
		})
	}
}

// What a trial's record holds, all of it in the one step that opens it.
func TestOpening(t *testing.T) {
	p := newPlay(t, passing("pump"), failing("vent"), push("lamp fan vent pump"), raise(0), try, cut)
	p.w.Revision = "r9"
	p.f.Before = Readings{"temperature": 20}
	before := p.l
	p.do(try)
	tr := p.l.Trial
	check(t, "candidate", on(tr.Candidate), "fan lamp pump vent")
	check(t, "digest", tr.Digest, digestOf("fan lamp pump vent"))
	check(t, "slot", tr.Slot, before.Spare())
	check(t, "generation", tr.Generation, p.l.Generation)
	check(t, "revision", tr.Revision, "r9")
	check(t, "attempt", tr.Attempt, 2)
	check(t, "before", tr.Before["temperature"], 20)
	check(t, "changed", strings.Join(tr.Changed, " "), "fan lamp vent")
	check(t, "set", strings.Join(sortedKeys(tr.Set), " "), "fan lamp vent")
	spare := p.l.Slots[tr.Slot]
	check(t, "spare slot", spare.Status, SlotTrying)
	check(t, "spare slot: declared", spare.Declared, digestOf("lamp fan vent pump"))
	check(t, "active", p.l.Active, before.Active)
	check(t, "active slot", on(p.l.Slots[p.l.Active].Release), "pump")
	check(t, "effective", on(p.l.Effective(p.b)), "fan lamp pump vent")
	check(t, "last-known-good", on(p.l.LastKnownGood(p.b)), "pump")
	check(t, "attempts", p.l.try(tr.Digest, grantKey{}).Count, 2)
	check(t, "event", p.events[len(p.events)-1].Kind, EventTrial)
	// A set has the whole group of what changed, with the candidate's values.
	p = newPlay(t, push("fan"), try)
	check(t, "set of a group's member", strings.Join(sortedKeys(p.l.Trial.Set), " ")+" "+p.l.Trial.Set["vent"], "fan vent off")
	check(t, "changed of a group's member", strings.Join(p.l.Trial.Changed, " "), "fan")
}

func TestAdopting(t *testing.T) {
	tests := []struct {
		name  string
		acts  []act
		adopt bool
	}{
		{"the fallback, no slot good", nil, true},
		{"the fallback, a slot good", []act{passing("lamp"), unsoaked, push("")}, false},
		{"the fallback, adopted before", []act{ask}, false},
		{"another content that is held down to the fallback", []act{failing("lamp"), push("lamp")}, false},
		{"while it returns", []act{push("lamp"), try, fail("hot"), push("")}, false},
		{"after a failed trial", []act{failing("lamp"), push("")}, true},
		{"with an obstacle", []act{func(p *play) { p.f.Obstacle = "the disk is full" }}, false},
		{"a newer guard's ledger", []act{func(p *play) { p.l.MinWriter = Schema + 1 }}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, tt.acts...)
			before := p.l
			p.do(ask)
			check(t, "adopted", p.l.Generation != before.Generation, tt.adopt)
			if !tt.adopt {
				return
			}
			s := p.l.Slots[p.l.Active]
			check(t, "Admit: decision", p.d.Kind, Same)
			check(t, "slot", s.Status, SlotGood)
			check(t, "slot: proven", s.Proven, true)
			check(t, "last-known-good", on(p.l.LastKnownGood(p.b)), "")
			check(t, "trial", p.l.Trial == nil, true)
			p.do(passing("pump"))
			check(t, "previous, after the next pass", on(p.l.Previous.Release), "")
		})
	}
}

// What a baseline still needs is told in parts, too: the words are for people.
func TestAwaiting(t *testing.T) {
	soaked := func(f Facts) Facts {
		f.Rest.Soak, f.Rest.AheadIn, f.Rest.Why = 15*time.Second, time.Minute, "in words"
		return f
	}
	restless := soaked(without("hot"))
	restless.Rest.AtRest = false
	for _, tt := range []struct {
		name string
		acts []act
		want *Awaiting
	}{
		{"two checks do not hold", []act{facts(soaked(without("hot", "wet"))), push("lamp")},
			&Awaiting{Why: "in words", Checks: []string{"hot", "wet"}, Soak: 15 * time.Second, AheadIn: time.Minute}},
		{"the device is not at rest", []act{facts(restless), push("lamp")}, &Awaiting{Why: "in words", Soak: 15 * time.Second, AheadIn: time.Minute}},
		{"what held before does not", []act{interrupted("lamp"), facts(soaked(without("hot"))), push("lamp")},
			&Awaiting{Why: "hot held before the first attempt and must hold again"}},
		{"nothing is awaited", []act{push("lamp")}, nil},
		{"something else is", []act{facts(func() Facts { f := soaked(without("hot")); f.Obstacle = "suspended"; return f }()), push("lamp")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t, append(tt.acts, ask)...)
			if !reflect.DeepEqual(p.d.Awaiting, tt.want) {
				t.Errorf("awaiting %+v, want %+v", p.d.Awaiting, tt.want)
			}
			if a := p.d.Awaiting; a != nil && (p.d.Kind != AwaitBaseline || p.d.Reason != a.Why) {
				t.Errorf("decision %s (%s), awaiting %+v", p.d.Kind, p.d.Reason, a)
			}
		})
	}
}

// Who declared something is known wherever its revision is.
func TestOrigin(t *testing.T) {
	by := func(who string) act {
		return func(p *play) { p.w.Origin, p.w.Revision = Origin{Author: who, Subject: who + "'s"}, who }
	}
	p := newPlay(t, by("adopted"), ask)
	check(t, "origin of what was adopted", p.l.Slots[p.l.Active].Origin.Author, "adopted")
	p.do(by("ann"), push("pump"), try)
	check(t, "origin of the trial", p.l.Trial.Origin.Author, "ann")
	p.do(pass, by("bob"), push("pump lamp"), try, fail("hot"), stands)
	check(t, "origin of the mark", p.l.Marks[0].Origin, Origin{Author: "bob", Subject: "bob's"})
	check(t, "origin of what is in force", p.l.Slots[p.l.Active].Origin.Author, "ann")
	p.do(rollback)
	check(t, "origin of the rollback's mark", p.l.Marks[len(p.l.Marks)-1].Origin.Author, "ann")
	check(t, "origin of what was gone back to", p.l.Slots[p.l.Active].Origin.Author, "adopted")
}
