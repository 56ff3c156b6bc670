package bootslot

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/device"
)

// The model explores, breadth first and up to a stated depth, everything that an adversary can do to a board, with the functions that
// run in production (Admit, Settle, CloseReturning, Boot, Rollback, Retry): no part of them is copied. Beside the ledger there is a small world,
// and beside both a shadow that keeps its own book of what was promised; the claims of docs/design.md are checked in every step.
//
// The world: three fields, of which fan and vent are a group (in one exploration they are not); a content with lamp and without fan overheats ("hot" fails), and goes on doing so for a
// while after it was taken back; weather in which hot fails whatever is done; an agent that lives or does not; a retry number. A content
// that overheats cannot pass while hot convicts: physics. Everything else the adversary is free to do: checks that hold may fail
// (flap), a failure may look like the environment's, power may be cut. Passing time is his, too: pauses and soaks are over
// when he says so, recover only while hot cannot hold. A guard that is down, or is stopped, decides nothing meanwhile, and so is one that starts later: what the
// device holds until then, and who drives it, is the model of both processes in package agent. So are time, leases, and what is on its way to the device.
//
// Fairness, for "it becomes constant": the agent lives, the guard lives, nobody pushes or operates, and trials end in one of three ways for ever:
// as physics says, always cut, or always failing like the environment. From each explored state that must lead, in at most
// maxQuiet steps, to one in which Admit opens nothing more: what follows silently is explored, too, beyond the depth, and there must be no cycle in it.

var long = flag.Bool("long", false, "explore the model as deep as it was ever done")

// The fields as bits of a content.
const (
	lampBit, fanBit, ventBit = 1, 2, 4
	groupBits                = fanBit | ventBit
	contents                 = 8
)

var (
	modelFields   = []string{"lamp", "fan", "vent"}
	modelReleases [contents]Release
	modelDigests  [contents]Digest
	modelIndex    = map[Digest]uint8{}
	modelSets     [contents][contents]device.Fields // by mask and values
	modelChecks   = []string{"hot", AgentAlive}
	hotConvicts   = Baseline{Convicting: modelChecks}
	hotExempt     = Baseline{Convicting: modelChecks[1:], Exempt: modelChecks[:1]}
)

func init() {
	onoff := map[bool]string{true: "on", false: "off"}
	for c := range uint8(contents) {
		f := device.Fields{}
		for i, name := range modelFields {
			f[name] = onoff[c>>i&1 == 1]
		}
		modelReleases[c] = Release{Fields: f}
		modelDigests[c] = modelReleases[c].Digest()
		modelIndex[modelDigests[c]] = c
		for v := range uint8(contents) {
			set := device.Fields{}
			for i, name := range modelFields {
				if c>>i&1 == 1 {
					set[name] = onoff[v>>i&1 == 1]
				}
			}
			modelSets[c][v&c] = set
		}
	}
}

func contentName(c uint8) string {
	var s []string
	for i, f := range modelFields {
		if c>>i&1 == 1 {
			s = append(s, f)
		}
	}
	if len(s) == 0 {
		return "nothing"
	}
	return strings.Join(s, "+")
}

// overheats says which contents are bad.
func overheats(c uint8) bool { return c&lampBit != 0 && c&fanBit == 0 }

// wholeGroups adds to a set of fields the rest of its groups.
func (m *model) wholeGroups(mask uint8) uint8 {
	if len(m.board.Groups) > 0 && mask&groupBits != 0 {
		mask |= groupBits
	}
	return mask
}

// bitset of a mark's or a slot's digests.
func bitset(ds []Digest) (b uint8) {
	for _, d := range ds {
		b |= 1 << modelIndex[d]
	}
	return b
}

// indexOf is the content of a release; it has no other fields than the model's.
func indexOf(r Release) uint8 { return valsOf(r.Fields) }

// setBits is a set as mask and values.
func setBits(set device.Fields) (mask, vals uint8) {
	for i, f := range modelFields {
		if v, ok := set[f]; ok {
			mask |= 1 << i
			if v == "on" {
				vals |= 1 << i
			}
		}
	}
	return mask, vals
}

// world is one state of the model.
type world struct {
	l       Ledger
	wish    uint8
	number  uint64
	weather bool // hot fails whatever is done
	heat    bool // hot still fails of what was applied
	agent   bool // lives

	shadow
}

// shadow is the model's own book, kept from the actions alone.
type shadow struct {
	good             bool  // a slot is good
	lkg, lkgDeclared uint8 // its content, and what was declared for it
	proven           bool
	rolled           bool // last-known-good is an operator's choice
	hasPrev          bool
	prev, prevFor    uint8

	fresh    bool  // the declared number may be used
	under    bool  // the open trial, or its returning, was opened under that number
	grant    uint8 // the content that was granted + 1, 0 for none
	byGrant  bool  // the open trial, or its returning, was opened under that grant
	current  bool  // the open trial, or its returning, was opened since the last push, number or grant
	concl    uint8 // contents that had a conclusive trial since the last push, number or grant
	other    [contents]uint8
	dead     uint8 // contents that failed, and may not be tried again without leave
	deadDecl uint8 // declared contents that an operator rolled back from
}

// action is what happens next.
type action struct{ kind, arg uint8 }

const (
	aPush = iota // arg: the content
	aRaise
	aLower
	aAsk // arg: 1 if recover is over
	aPass
	aFailHot
	aFailAlive
	aCut
	aGoodbye
	aSuspend
	aStands
	aEnvironment
	aRollback // arg: 1 to the fallback, 2 the number is not known
	aRetry
	aWeather
	aAgent
	aCool
)

func (a action) String() string {
	name := [...]string{"push", "raise retry", "take retry out", "ask", "pass", "fail hot", "fail agent-alive", "cut", "goodbye", "suspend", "returning: stands",
		"returning: environment", "rollback", "holdfast retry", "weather turns", "agent dies or starts", "cools down"}[a.kind]
	switch {
	case a.kind == aPush:
		return name + " " + contentName(a.arg)
	case a.kind == aAsk && a.arg == 1:
		return name + ", recover is over"
	case a.kind == aRollback:
		return name + [...]string{"", " to the fallback", ", number unknown", " to the fallback, number unknown"}[a.arg]
	}
	return name
}

// model is one exploration.
type model struct {
	t      testing.TB
	name   string
	board  Board
	pushes []uint8
	depth  int
	root   []action

	revision int
	longest  uint8 // silence, in states

	seed        maphash.Seed
	seen        map[uint64]int32
	arena       []byte // the states' encodings, one after the other
	ends        []int
	parent      []int32
	via         []action
	transitions int
	probes      map[string]int
	silence     [][allWays]int32 // what each state becomes if nobody does anything any more: -1 for nothing else, unexplored
	failed      bool

	did   []doing       // in the state that is looked at
	trace func() string // of it
	buf   []byte
}

func newModel(name string, b Board, depth int, pushes ...uint8) *model {
	return &model{name: name, board: b, pushes: pushes, depth: depth, seed: maphash.MakeSeed(), seen: map[uint64]int32{},
		probes: map[string]int{}}
}

func modelBoard() Board {
	return Board{Fallback: modelReleases[0], Groups: [][]string{{"fan", "vent"}}, Attempts: 2, Pauses: []time.Duration{time.Minute, 5 * time.Minute}}
}

// fail reports a broken claim with the way that led to it.
func (m *model) fail(format string, args ...any) {
	if m.failed {
		return
	}
	m.failed = true
	m.t.Errorf("model %s: "+format+"\n%s", append(append([]any{m.name}, args...), m.trace())...)
}

func (m *model) reach(probe string) { m.probes[probe]++ }

// facts are what the guard sees of this world. Whoever asks is alive.
func (w *world) facts(over bool) Facts {
	f := Facts{Waited: 24 * time.Hour, Rest: RestFacts{AtRest: true, Required: modelChecks, Holding: modelChecks, Overdue: over}}
	if w.heat || w.hotFor(w.lkg) {
		f.Rest.Holding = modelChecks[1:]
	}
	return f
}

// hotFor says that hot cannot hold with content c, however long one waits.
func (w *world) hotFor(c uint8) bool { return w.weather || overheats(c) }

// applied is the content that the device is driven to.
func (w *world) applied() uint8 {
	if w.l.Trial != nil {
		return modelIndex[w.l.Trial.Digest]
	}
	return w.lkg
}

func convicts(b Baseline, check string) bool { return slices.Contains(b.Convicting, check) }

// do is one step; false if it cannot happen in s. The claims about that step are checked in it.
func (m *model) do(s world, a action) (world, bool) {
	w := s // the ledger is a value, and so is the rest
	switch a.kind {
	case aPush:
		if a.arg == s.wish {
			return w, false
		}
		w.wish = a.arg
		w.anew()
	case aRaise:
		top, above := max(s.l.Spent, s.number), map[uint64]bool{}
		note := func(n uint64) {
			if n > s.l.Spent {
				above[n] = true
			}
			top = max(top, n)
		}
		note(s.number)
		for _, t := range s.l.Tries {
			note(t.Number)
		}
		if t := s.l.Trial; t != nil {
			note(t.Number)
		}
		if r := s.l.Returning; r != nil {
			note(r.Number)
		}
		if len(above) >= 2 {
			return w, false // the operator's patience: the model is to stay finite
		}
		w.number, w.fresh, w.under = top+1, true, false
		w.anew()
	case aLower:
		if s.number == 0 {
			return w, false
		}
		w.number, w.fresh, w.under = 0, false, false
		w.anew()
	case aAsk:
		if !s.agent || a.arg == 1 && (!s.hotFor(s.lkg) || s.l.Trial != nil || s.l.Returning != nil) {
			return w, false
		}
		return m.ask(s, a.arg == 1)
	case aPass, aFailHot, aFailAlive, aCut, aGoodbye, aSuspend:
		if s.l.Trial == nil {
			return w, false
		}
		return m.settle(s, a)
	case aStands, aEnvironment:
		r := s.l.Returning
		if r == nil {
			return w, false
		}
		switch {
		case a.kind == aStands && r.Check == "hot" && s.hotFor(s.lkg),
			r.Check == AgentAlive && s.agent != (a.kind == aStands):
			return w, false // physics
		}
		return m.closeReturning(s, a.kind == aStands)
	case aRollback:
		return m.rollback(s, a)
	case aRetry:
		step, err := Retry(s.l, m.board, m.wishOf(s), "op", time.Time{})
		if err != nil {
			if err != ErrNothingToTry || s.wish != s.lkg {
				m.fail("Retry: %v", err)
			}
			return w, false
		}
		w.l = step.Ledger
		w.grant, w.byGrant = s.wish+1, false
		w.anew()
		m.common(s, w)
	case aWeather:
		w.weather = !s.weather
	case aAgent:
		w.agent = !s.agent
	case aCool:
		if !s.heat || overheats(s.applied()) {
			return w, false
		}
		w.heat = false
	}
	return w, true
}

// wishOf is what the agent asks for, each time of another revision than the last.
func (m *model) wishOf(w world) Wish {
	m.revision++
	return Wish{Release: modelReleases[w.wish], Number: w.number, Revision: strconv.Itoa(m.revision)}
}

// anew begins a new count of trials: something else is declared, or asked for.
func (w *world) anew() { w.concl, w.other, w.current = 0, [contents]uint8{}, false }

// leave says whether the shadow's book has leave to try the wish past all marks.
func (w *world) leave() bool { return w.fresh || w.grant == w.wish+1 }

func (m *model) ask(s world, over bool) (world, bool) {
	w := s
	f := s.facts(over)
	wish := m.wishOf(s)
	if s.l.NumberUnseen && s.number > s.l.Spent {
		m.reach("a rollback uses up a number that nobody had told")
	}
	d, step := Admit(s.l, m.board, wish, f)
	cand := indexOf(d.Candidate)
	if s.l.Trial == nil && s.l.Returning == nil && !s.l.NumberUnseen {
		if got, want := !s.l.grantFor(wish).isZero(), s.leave(); got != want {
			m.fail("leave to try %s past marks is %v, want %v", contentName(s.wish), got, want)
		}
		if want := m.specCandidate(s, f); cand != want {
			m.fail("the candidate of %s is %s, want %s", contentName(s.wish), contentName(cand), contentName(want))
		}
	}
	for _, h := range d.Held {
		bit := uint8(1 << slices.Index(modelFields, h.Field))
		if cand&bit == s.wish&bit || s.l.Trial == nil && cand&bit != s.lkg&bit {
			m.fail("%s is called held in %s, wished %s, last-known-good %s", h.Field, contentName(cand), contentName(s.wish), contentName(s.lkg))
		}
	}
	if step == nil {
		if d.Kind == Trying != (s.l.Trial != nil && d.Candidate.Equal(s.l.Trial.Candidate)) {
			m.fail("decision %s of %s, trial %v", d.Kind, contentName(s.wish), s.l.Trial)
		}
		return w, false
	}
	w.l = step.Ledger
	m.common(s, w)
	switch {
	case s.l.Trial != nil: // cancelled
		if s.l.Trial.Pinned {
			m.fail("a pinned trial was cancelled from git")
		}
		if s.wish&maskOf(s.l.Trial.Set) == valsOf(s.l.Trial.Set) {
			m.fail("a trial was cancelled although its change is desired")
		}
		if w.l.Trial != nil || !w.l.Pin {
			m.fail("a trial that is not desired any more was not cancelled with a pin")
		}
		m.cancelled(s, w)
	case s.l.NumberUnseen:
		if w.l.Trial != nil || w.l.NumberUnseen || w.l.Spent < s.number {
			m.fail("the first wish after a rollback that did not know the number did not use it up")
		}
		w.fresh = false
	case w.l.Trial == nil: // adopted
		if s.good || s.wish != 0 || d.Kind != Same {
			m.fail("adopted %s while a slot is good or it is not the fallback", contentName(s.wish))
		}
		m.becomes(&w, 0, 0, true)
		w.rolled = false
	default:
		m.opened(s, &w, cand, over)
	}
	return w, true
}

func maskOf(set device.Fields) uint8 { mask, _ := setBits(set); return mask }
func valsOf(set device.Fields) uint8 { _, vals := setBits(set); return vals }

// opened checks a trial that has just opened.
func (m *model) opened(s world, w *world, cand uint8, over bool) {
	t := w.l.Trial
	if s.l.Returning != nil {
		m.fail("a trial of %s opened while another one's end was not known", contentName(cand))
	}
	if modelIndex[t.Digest] != cand || indexOf(t.Candidate) != cand || cand == s.lkg || indexOf(t.Declared) != s.wish {
		m.fail("the trial of %s for %s over %s is one of %s for %s", contentName(cand), contentName(s.wish), contentName(s.lkg),
			contentName(indexOf(t.Candidate)), contentName(indexOf(t.Declared)))
	}
	if mask, vals := setBits(t.Set); mask != m.wholeGroups(cand^s.lkg) || vals != cand&mask || mask == 0 {
		m.fail("the set of a trial of %s over %s is %v", contentName(cand), contentName(s.lkg), t.Set)
	}
	if !s.leave() {
		if s.dead>>cand&1 == 1 {
			m.fail("%s failed, and was tried again with no new number or grant", contentName(cand))
		}
		if s.deadDecl>>s.wish&1 == 1 {
			m.fail("%s was rolled back by an operator, and %s tried for it with no new number or grant", contentName(s.wish), contentName(cand))
		}
	} else {
		n := 0
		for _, k := range s.l.Marks {
			if mask, vals := setBits(k.Set); !k.Retired && cand&mask == vals {
				n++
			}
		}
		if n > 1 {
			m.reach("retry across two marks")
		}
	}
	if s.concl>>cand&1 == 1 {
		m.fail("%s is tried again after a conclusive trial, with no push, number or grant between", contentName(cand))
	}
	if t.Attempt > m.board.Attempts || t.Attempt < 1 {
		m.fail("attempt %d of %d", t.Attempt, m.board.Attempts)
	}
	if t.Pinned != s.l.Pin || w.l.Pin {
		m.fail("pinned %v after a pin of %v", t.Pinned, s.l.Pin)
	}
	hot := !s.heat && !s.hotFor(s.lkg)
	first := s.l.try(t.Digest, s.l.grantFor(m.wishOf(s))).Baseline
	switch exempt := !convicts(t.Baseline, "hot"); {
	case exempt && first == nil && !over:
		m.fail("hot is exempt although recover is not over")
	case exempt && first == nil && hot:
		m.fail("hot is exempt although it holds")
	case exempt && first != nil && convicts(*first, "hot"):
		m.fail("hot is exempt although it held before the first attempt")
	case !exempt && !hot:
		m.fail("hot convicts although it does not hold at rest")
	case !convicts(t.Baseline, AgentAlive):
		m.fail("agent-alive is exempt although it holds")
	}
	if t.Slot == w.l.Active || w.l.Slots[t.Slot].Status != SlotTrying || indexOf(w.l.Slots[t.Slot].Release) != cand {
		m.fail("the trial's slot %s is %+v, active is %s", t.Slot, w.l.Slots[t.Slot], w.l.Active)
	}
	for _, k := range s.l.Marks {
		if k.Cause == CauseEnvironment && !k.Retired && cand&maskOf(k.Set) == valsOf(k.Set) && !s.leave() {
			m.reach("a reopened environment is tried")
		}
	}
	if t.Pinned {
		m.reach("a pinned trial")
	}
	w.under, w.byGrant, w.current = s.fresh, s.grant == s.wish+1, true
	w.heat = s.heat || overheats(cand)
}

func (m *model) settle(s world, a action) (world, bool) {
	w, t := s, s.l.Trial
	cand := modelIndex[t.Digest]
	v, ev := Inconclusive, Evidence{}
	switch a.kind {
	case aPass:
		if !s.agent || convicts(t.Baseline, "hot") && s.hotFor(cand) {
			return w, false // physics
		}
		v = Passed
	case aFailHot:
		if !convicts(t.Baseline, "hot") {
			return w, false // an exempt check convicts nobody
		}
		v, ev.Check = Failed, "hot"
	case aFailAlive:
		if s.agent {
			return w, false
		}
		v, ev.Check = Failed, AgentAlive
	case aGoodbye:
		v, ev.Goodbye = Cancelled, true
	case aSuspend:
		v = Cancelled
	}
	if a.kind == aCut {
		w.l = Boot(s.l, m.board, time.Time{}).Ledger
	} else {
		w.l = Settle(s.l, m.board, v, ev).Ledger
	}
	m.common(s, w)
	if w.l.Trial != nil {
		m.fail("%s left the trial open", a)
	}
	last := t.Attempt >= m.board.Attempts
	goodbyes := s.l.try(t.Digest, s.l.leaveOf(t.Number, t.Granted)).Goodbyes
	switch {
	case v == Passed:
		m.conclusive(&w, cand)
		wasBad := overheats(s.lkg)
		m.becomes(&w, cand, indexOf(t.Declared), len(t.Baseline.Exempt) == 0)
		w.rolled = false
		if len(t.Baseline.Exempt) > 0 {
			m.reach("exempt pass")
		}
		if overheats(cand) {
			m.reach("a content that overheats passes, hot exempt")
		}
		if wasBad && !overheats(cand) {
			m.reach("a fix while last-known-good is unhealthy")
		}
		w.heat = w.heat || overheats(cand)
	case v == Failed:
		k := w.l.Marks[len(w.l.Marks)-1]
		if r := w.l.Returning; r == nil || r.Mark != k.ID || r.Check != ev.Check || r.Digest != t.Digest {
			m.fail("after a failure returning is %+v, the newest mark %d", w.l.Returning, k.ID)
		}
		m.marked(w, t)
		return w, true // conclusive or not: that is known when returning closes
	case v == Cancelled && (a.kind == aSuspend || goodbyes == 0):
		m.cancelled(s, w)
	default:
		m.unconcluded(&w, cand)
		if w.l.Streak != s.l.Streak+1 || !last && w.l.try(t.Digest, s.l.leaveOf(t.Number, t.Granted)).Count != t.Attempt {
			m.fail("an inconclusive trial is not counted")
		}
		if last {
			m.marked(w, t)
			m.spent(&w)
			w.dead |= 1 << cand
			m.reach("attempts used up")
		} else if w.l.Slots[t.Slot].Status != SlotEmpty || len(w.l.Marks) != len(s.l.Marks) {
			m.fail("an interrupted trial left a mark, or a slot %s", w.l.Slots[t.Slot].Status)
		}
		if a.kind == aGoodbye {
			m.reach("one goodbye too many")
		}
	}
	w.under, w.byGrant, w.current = false, false, false
	if w.l.Slots[t.Slot].Status != SlotEmpty {
		m.lastKnownGoodIsCandidate(w, t)
	}
	return w, true
}

// marked checks that the newest verdict left a mark with what the trial changed, and its slot failed.
func (m *model) marked(w world, t *Trial) {
	cand := modelIndex[t.Digest]
	found := false
	for _, k := range w.l.Marks {
		if len(k.Set) == 0 {
			m.fail("a mark with an empty set")
		}
		mask, vals := setBits(k.Set)
		tmask, tvals := setBits(t.Set)
		found = found || !k.Retired && mask&^tmask == 0 && tvals&mask == vals && bitset(k.Candidates)>>cand&1 == 1
	}
	if !found {
		m.fail("no mark for the trial of %s", contentName(cand))
	}
	if w.l.Slots[t.Slot].Status != SlotFailed {
		m.fail("the slot of a marked trial is %s", w.l.Slots[t.Slot].Status)
	}
}

// lastKnownGoodIsCandidate checks that what was just settled is not tried again: with no leave, the candidate of its wish is last-known-good, or, where a
// smaller set than what failed was marked before, something that did not fail yet.
func (m *model) lastKnownGoodIsCandidate(w world, t *Trial) {
	l := w.l
	l.Grant = nil
	for _, holding := range [][]string{nil, modelChecks} {
		d, _ := Admit(l, m.board, Wish{Release: t.Declared}, Facts{Rest: RestFacts{Required: modelChecks, Holding: holding, AtRest: true}})
		c := indexOf(d.Candidate)
		if c != w.lkg && w.dead>>c&1 == 0 && slices.ContainsFunc(l.Marks, func(k Mark) bool { return len(k.Set) < len(t.Set) && t.Declared.Contains(k.Set) }) {
			m.reach("a smaller set than what failed is held")
			continue
		}
		if c != w.lkg && !m.reopens(w.l, c, holding) {
			m.fail("after a verdict on %s the candidate of %s is %s, last-known-good is %s", contentName(modelIndex[t.Digest]),
				contentName(indexOf(t.Declared)), contentName(c), contentName(w.lkg))
		}
	}
}

// reopens says that c is what marks of cause environment let in again.
func (m *model) reopens(l Ledger, c uint8, holding []string) bool {
	return slices.ContainsFunc(l.Marks, func(k Mark) bool { return k.Cause == CauseEnvironment && slices.Contains(holding, k.Check) })
}

func (m *model) closeReturning(s world, held bool) (world, bool) {
	w, r := s, s.l.Returning
	cand := modelIndex[r.Digest]
	try := s.l.try(r.Digest, s.l.leaveOf(r.Number, r.Granted))
	w.l = CloseReturning(s.l, m.board, held, Evidence{}).Ledger
	m.common(s, w)
	if w.l.Returning != nil {
		m.fail("returning did not close")
	}
	if held {
		m.conclusive(&w, cand)
		w.dead |= 1 << cand
		if r.Check == "hot" {
			w.heat = overheats(w.lkg)
		}
	} else {
		m.unconcluded(&w, cand)
		if try.Count >= m.board.Attempts {
			w.dead |= 1 << cand
			m.spent(&w)
			m.reach("environment until the attempts are gone")
		} else {
			m.reach("environment")
		}
		if !slices.ContainsFunc(w.l.Marks, func(k Mark) bool { return bitset(k.Candidates)>>cand&1 == 1 }) {
			m.fail("environment: the mark is gone")
		}
	}
	w.under, w.byGrant, w.current = false, false, false
	return w, true
}

func (m *model) rollback(s world, a action) (world, bool) {
	w := s
	wish := m.wishOf(s)
	declared := &wish
	if a.arg&2 != 0 {
		declared = nil
		if s.l.Trial != nil {
			return w, false // whoever opened it has spoken
		}
	}
	toFallback := a.arg&1 != 0
	step, err := Rollback(s.l, m.board, toFallback, declared, "op", time.Time{})
	open := s.l.Trial != nil || s.l.Returning != nil
	switch {
	case open && err != nil:
		m.fail("Rollback in a trial: %v", err)
	case !open && !toFallback && !s.hasPrev && err != ErrNoPrevious:
		m.fail("Rollback without previous: %v", err)
	case !open && toFallback && s.lkg == 0 && err != ErrAlreadyThere:
		m.fail("Rollback to the fallback, which is in force: %v", err)
	}
	if err != nil {
		return w, false
	}
	w.l = step.Ledger
	m.common(s, w)
	w.fresh, w.grant = false, 0
	switch {
	case s.l.Trial != nil:
		t := s.l.Trial
		m.marked(w, t)
		w.dead |= 1 << modelIndex[t.Digest]
		w.deadDecl |= 1 << indexOf(t.Declared)
		m.reach("rollback in a trial")
		m.lastKnownGoodIsCandidate(w, t)
	case s.l.Returning != nil:
		m.conclusive(&w, modelIndex[s.l.Returning.Digest])
		w.dead |= 1 << modelIndex[s.l.Returning.Digest]
		m.reach("rollback while returning")
	default:
		w.dead |= 1 << s.lkg
		left := s.lkg
		if s.good {
			w.deadDecl |= 1 << s.lkgDeclared
		} else {
			w.deadDecl |= 1 << s.lkg
		}
		if s.rolled {
			m.reach("two operator rollbacks in a row")
		}
		if k := w.l.Marks[len(w.l.Marks)-1]; s.good && targetIsNot(toFallback, s, s.lkgDeclared) &&
			!slices.ContainsFunc(w.l.Marks, func(k Mark) bool { return bitset(k.OperatorDeclared)>>s.lkgDeclared&1 == 1 }) {
			m.fail("after a rollback from what %s was declared for, the newest mark is %+v", contentName(s.lkgDeclared), k)
		}
		target, targetFor := s.prev, s.prevFor
		if toFallback {
			target, targetFor = 0, 0
		}
		m.becomes(&w, target, targetFor, true)
		w.hasPrev, w.rolled = false, true
		w.heat = s.heat || overheats(left) // still warm
		// The agent, which wishes what it wished before, does not undo it.
		d, next := Admit(w.l, m.board, Wish{Release: modelReleases[s.lkgDeclared], Number: s.number}, w.facts(true))
		if c := indexOf(d.Candidate); s.good && c != target {
			m.fail("after a rollback to %s the candidate of %s is %s", contentName(target), contentName(s.lkgDeclared), contentName(c))
		}
		if next != nil && next.Ledger.Trial != nil {
			m.fail("after a rollback a trial opens of what was rolled back from")
		}
	}
	w.under, w.byGrant, w.current = false, false, false
	return w, true
}

// targetIsNot says that a rollback goes to another content than c.
func targetIsNot(toFallback bool, s world, c uint8) bool {
	if toFallback {
		return c != 0
	}
	return c != s.prev
}

// becomes takes a new last-known-good into the shadow's book.
func (m *model) becomes(w *world, c, declared uint8, proven bool) {
	if w.good && w.proven {
		w.hasPrev, w.prev, w.prevFor = true, w.lkg, w.lkgDeclared
	}
	w.good, w.lkg, w.lkgDeclared, w.proven = true, c, declared, proven
	w.dead &^= 1 << c
	w.deadDecl &^= 1 << c
	if w.grant == c+1 {
		w.grant = 0
	}
}

// conclusive books a verdict that stands.
func (m *model) conclusive(w *world, cand uint8) {
	if w.current {
		w.concl |= 1 << cand
	}
	if slices.ContainsFunc(w.l.Tries, func(t Try) bool { return t.Digest == modelDigests[cand] }) {
		m.fail("after a conclusion %s has attempts counted", contentName(cand))
	}
	m.spent(w)
}

// spent books that what the trial was opened under is used up.
func (m *model) spent(w *world) {
	if w.under {
		w.fresh = false
	}
	if w.byGrant {
		w.grant = 0
	}
}

// unconcluded books a trial without a conclusion. From one push to the next they are few: the attempts of the content itself, and those under a
// number or a grant that another one used up meanwhile.
func (m *model) unconcluded(w *world, cand uint8) {
	if w.current {
		w.other[cand]++
	}
	if n := int(w.other[cand]); n > 2*m.board.Attempts {
		m.fail("%d inconclusive trials of %s with no push between", n, contentName(cand))
	}
}

// cancelled checks that a cancelled trial counts for nothing.
func (m *model) cancelled(s, w world) {
	t := s.l.Trial
	k := s.l.leaveOf(t.Number, t.Granted)
	if got := w.l.try(t.Digest, k).Count; got != t.Attempt-1 {
		m.fail("after a cancelled trial %d attempts are counted, want %d", got, t.Attempt-1)
	}
	if len(w.l.Marks) != len(s.l.Marks) || w.l.Streak != s.l.Streak || w.l.Spent != s.l.Spent || (w.l.Grant == nil) != (s.l.Grant == nil) {
		m.fail("a cancelled trial left a trace")
	}
	if w.l.Slots[t.Slot].Status != SlotEmpty {
		m.fail("a cancelled trial left its slot %s", w.l.Slots[t.Slot].Status)
	}
}

// common are the claims about every step.
func (m *model) common(s, w world) {
	if w.l.Generation != s.l.Generation+1 {
		m.fail("generation %d after %d", w.l.Generation, s.l.Generation)
	}
	if w.l.Spent < s.l.Spent {
		m.fail("spent %d after %d", w.l.Spent, s.l.Spent)
	}
	if len(w.l.Marks) > MaxMarks || len(w.l.Tries) > maxTries {
		m.fail("%d marks, %d tries", len(w.l.Marks), len(w.l.Tries))
	}
	if w.l.Trial != nil && w.l.Returning != nil {
		m.fail("a trial is open while another one's end is not known")
	}
	if err := w.l.Valid(); err != nil {
		m.fail("%v", err)
	}
	// What is in force changes only by a pass, an adoption or an operator, never with a trial's opening or its failure.
	if w.l.Trial != nil || s.l.Returning != nil || s.l.Trial != nil && w.l.Active == s.l.Active {
		if w.l.Active != s.l.Active || w.l.Slots[w.l.Active].Digest != s.l.Slots[s.l.Active].Digest || w.l.Slots[w.l.Active].Status != s.l.Slots[s.l.Active].Status {
			m.fail("the active slot was touched")
		}
	}
	// No mark is lost: its digests, and its set or a smaller one, are there until last-known-good contains them.
	lkg := indexOf(w.l.LastKnownGood(m.board))
	var digests, declared uint8
	for _, k := range w.l.Marks {
		digests |= bitset(k.Candidates)
		declared |= bitset(k.OperatorDeclared)
	}
	for _, k := range s.l.Marks {
		if lost := bitset(k.Candidates) &^ digests &^ (1 << lkg); lost != 0 {
			m.fail("the digest of %s is no longer marked", contentName(uint8(bits.TrailingZeros8(lost))))
		}
		if lost := bitset(k.OperatorDeclared) &^ declared &^ (1 << lkg); lost != 0 {
			m.fail("the declared digest of %s is no longer marked", contentName(uint8(bits.TrailingZeros8(lost))))
		}
		mask, vals := setBits(k.Set)
		if k.Retired || lkg&mask == vals {
			continue
		}
		// While it returns it is not known yet whether a mark can reopen: a failed one may become an environment's.
		settling := s.l.Returning != nil && s.l.Returning.Mark == k.ID
		if !slices.ContainsFunc(w.l.Marks, func(o Mark) bool {
			omask, ovals := setBits(o.Set)
			return !o.Retired && omask&^mask == 0 && vals&omask == ovals && (!o.reopens() || k.reopens() || settling)
		}) {
			m.fail("the set %v is no longer marked", k.Set)
		}
	}
}

// specCandidate is the rule for what is held (docs/design.md, "What is held"), written down a second time, on bits.
func (m *model) specCandidate(s world, f Facts) uint8 {
	if s.leave() {
		return s.wish
	}
	open := func(k Mark) bool {
		return k.Cause == CauseEnvironment && !k.Exhausted && slices.Contains(f.Rest.Holding, k.Check)
	}
	held := uint8(0)
	cand := func() uint8 { return s.wish&^held | s.lkg&held }
	for _, k := range s.l.Marks {
		if bitset(k.OperatorDeclared)>>s.wish&1 == 1 {
			held |= m.wholeGroups(s.wish ^ s.lkg)
			m.reach("an operator's declared digest is held")
		}
	}
	for before := uint8(255); before != held; {
		before = held
		for _, k := range s.l.Marks {
			mask, vals := setBits(k.Set)
			if k.Retired || open(k) {
				continue
			}
			if s.wish&mask == vals {
				held |= m.wholeGroups(mask)
			} else if c := cand(); c&mask == vals && c&held != s.wish&held && c != s.lkg {
				held |= m.wholeGroups(mask)
				m.reach("holding one mark gives another its set")
			} else if c&mask == vals {
				held |= m.wholeGroups(mask)
			}
		}
	}
	for _, k := range s.l.Marks {
		if c := cand(); !open(k) && bitset(k.Candidates)>>c&1 == 1 {
			held |= m.wholeGroups(c ^ s.lkg)
			m.reach("a marked digest is held")
			if c != s.wish {
				m.reach("a mixture equal to an earlier failure")
			}
		}
	}
	if m.board.HoldRelease && held&(s.wish^s.lkg) != 0 {
		return s.lkg
	}
	return cand()
}

// agrees checks the whole of a state against the shadow's book.
func (m *model) agrees(w world) {
	slot := w.l.Slots[w.l.Active]
	if w.l.HasGood() != w.good || indexOf(w.l.LastKnownGood(m.board)) != w.lkg {
		m.fail("last-known-good is %s, want %s", contentName(indexOf(w.l.LastKnownGood(m.board))), contentName(w.lkg))
	}
	if w.good && (slot.Proven != w.proven || slot.Declared != modelDigests[w.lkgDeclared] || slot.Digest != modelDigests[w.lkg]) {
		m.fail("the active slot is %+v, want %s of %s, proven %v", slot, contentName(w.lkg), contentName(w.lkgDeclared), w.proven)
	}
	if p := w.l.Previous; (p != nil) != w.hasPrev || p != nil && (indexOf(p.Release) != w.prev || p.Declared != modelDigests[w.prevFor] || !p.Proven) {
		m.fail("previous is %+v, want %v %s", p, w.hasPrev, contentName(w.prev))
	}
	for name, slot := range w.l.Slots {
		open := w.l.Trial != nil && w.l.Trial.Slot == name
		if (slot.Status == SlotTrying) != open || (slot.Status == SlotGood) != (w.good && name == w.l.Active) {
			m.fail("slot %s is %s, active is %s, trial %v", name, slot.Status, w.l.Active, w.l.Trial)
		}
		if slot.Status == SlotFailed && w.l.Slots[SlotA].Status == SlotFailed && name == SlotB {
			m.reach("both slots failed")
		}
	}
	for _, k := range w.l.Marks {
		if mask, vals := setBits(k.Set); w.good && !k.Retired && w.lkg&mask == vals {
			m.fail("the set %v is not retired, and last-known-good %s contains it", k.Set, contentName(w.lkg))
		}
		if w.good && (bitset(k.Candidates)|bitset(k.OperatorDeclared))>>w.lkg&1 == 1 {
			m.fail("last-known-good %s is marked", contentName(w.lkg))
		}
	}
	if w.l.Trial == nil && Boot(w.l, m.board, time.Time{}) != nil {
		m.fail("a start changes something although no trial is open")
	}
	want := w.lkg
	if w.l.Trial != nil {
		want = modelIndex[w.l.Trial.Digest]
	}
	if got := indexOf(w.l.Effective(m.board)); got != want {
		m.fail("effective is %s, want %s", contentName(got), contentName(want))
	}
}

// refuses checks that no trial opens against an obstacle, away from rest, or within a pause.
func (m *model) refuses(w world) {
	if w.l.Trial == nil {
		f := w.facts(w.hotFor(w.lkg))
		refused := func(why string, f Facts) {
			if _, s := Admit(w.l, m.board, m.wishOf(w), f); s != nil && s.Ledger.Trial != nil {
				m.fail("a trial of %s opens: %s", contentName(modelIndex[s.Ledger.Trial.Digest]), why)
			}
		}
		g := f
		g.Obstacle = "x"
		refused("an obstacle", g)
		g = f
		g.Rest = RestFacts{Required: modelChecks}
		refused("not at rest", g)
		g = f
		g.Waited = 0
		if _, s := Admit(w.l, m.board, m.wishOf(w), g); s != nil && s.Ledger.Trial != nil && (s.Ledger.Trial.Attempt > 1 || w.l.Streak >= breakerAt && !w.leave()) {
			m.fail("a trial opens within its pause")
		}
	}
}

// maxQuiet bounds how many steps a board is from being constant.
const maxQuiet = 64

// The ways in which trials end in silence, for ever.
const (
	byPhysics = iota
	byCuts
	byWeather
	allWays
)

// silent is what happens next when nobody does anything any more.
func (w *world) silent(way int) action {
	hot := w.hotFor(w.applied())
	switch t, r := w.l.Trial, w.l.Returning; {
	case !w.agent:
		return action{kind: aAgent}
	case w.heat && !overheats(w.applied()):
		return action{kind: aCool}
	case t != nil && way == byCuts:
		return action{kind: aCut}
	case t != nil && convicts(t.Baseline, "hot") && (hot || way == byWeather):
		return action{kind: aFailHot}
	case t != nil:
		return action{kind: aPass}
	case r != nil && r.Check == "hot" && (hot || way == byWeather):
		return action{kind: aEnvironment}
	case r != nil:
		return action{kind: aStands}
	case w.hotFor(w.lkg):
		return action{aAsk, 1}
	}
	return action{kind: aAsk}
}

// rests checks that a state is at an end in silence: a is what would come next, and cannot.
func (m *model) rests(w world, a action) {
	if a.kind != aAsk {
		m.fail("in silence %s is not possible", a)
	} else if d, _ := Admit(w.l, m.board, m.wishOf(w), w.facts(a.arg == 1)); d.Kind != Same && d.Kind != Held && (d.Kind != AwaitBaseline || a.arg == 0) {
		m.fail("silence ends with %s (%s)", d.Kind, d.Reason)
	}
}

// becomesConstant follows one state in silence until nothing opens any more.
func (m *model) becomesConstant(w world) {
	for way := range allWays {
		for n, v := 0, w; !m.failed; n++ {
			a := v.silent(way)
			next, ok := m.do(v, a)
			if !ok {
				m.rests(v, a)
				break
			}
			if v = next; n > maxQuiet {
				m.fail("not constant after %d silent steps", maxQuiet)
			}
		}
	}
}

// constant checks of all explored states at once that silence ends, in each way: that there is no cycle in what follows what.
func (m *model) constant() {
	for way := range allWays {
		steps := make([]uint8, len(m.ends)) // to the end, and one more; 0: not known
		var path []int32
		for i := range int32(len(m.ends)) {
			j := i
			for path = path[:0]; j >= 0 && steps[j] == 0; j = m.silence[j][way] {
				if path = append(path, j); len(path) > maxQuiet {
					m.trace = func() string { return m.path(i) }
					m.fail("not constant after %d silent steps", maxQuiet)
					return
				}
			}
			n := uint8(0)
			if j >= 0 {
				n = steps[j]
			}
			for _, k := range slices.Backward(path) {
				n++
				steps[k] = n
			}
			m.longest = max(m.longest, n)
		}
	}
}

// encode is the canonical form of a state: numbers, grants and marks by their order, nothing that no decision depends on (wall times, evidence,
// generations, counts that no leave leads to any more, a streak beyond the breaker's three).
func (m *model) encode(w world) []byte {
	b := m.buf[:0]
	flag := func(fs ...bool) {
		x := uint8(0)
		for i, f := range fs {
			if f {
				x |= 1 << i
			}
		}
		b = append(b, x)
	}
	l := w.l
	numbers := []uint64{}
	note := func(n uint64) {
		if n > l.Spent && !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	note(w.number)
	if l.Trial != nil {
		note(l.Trial.Number)
	}
	if l.Returning != nil {
		note(l.Returning.Number)
	}
	for _, t := range l.Tries {
		note(t.Number)
	}
	slices.Sort(numbers)
	number := func(n uint64) uint8 {
		switch {
		case n < l.Spent || n == 0:
			return 0
		case n == l.Spent:
			return 1
		}
		return uint8(2 + slices.Index(numbers, n))
	}
	grant := func(id uint64) uint8 {
		switch {
		case id == 0:
			return 0
		case l.Grant != nil && id == l.Grant.ID:
			return 1
		}
		return 2
	}
	slot := func(s Slot) {
		status := uint8(slices.Index([]SlotStatus{SlotEmpty, SlotGood, SlotTrying, SlotFailed}, s.Status))
		switch s.Status {
		case SlotEmpty, SlotFailed:
			b = append(b, status) // nothing depends on what was in it
		default:
			b = append(b, status|modelIndex[s.Digest]<<2|modelIndex[s.Declared]<<5)
			flag(s.Proven)
		}
	}
	check := func(c string) uint8 { return uint8(slices.Index(modelChecks, c) + 1) }

	flag(l.Active == SlotA, l.Active == SlotB, l.Previous != nil, l.Trial != nil, l.Returning != nil, l.Grant != nil, l.Pin, l.NumberUnseen)
	flag(w.weather, w.heat, w.agent, w.good, w.proven, w.rolled, w.hasPrev, w.fresh)
	flag(w.under, w.byGrant, l.Spent > 0, w.current)
	slot(l.Slots[SlotA])
	slot(l.Slots[SlotB])
	if l.Previous != nil {
		b = append(b, modelIndex[l.Previous.Digest]|modelIndex[l.Previous.Declared]<<3)
	}
	if t := l.Trial; t != nil {
		mask, vals := setBits(t.Set)
		b = append(b, modelIndex[t.Digest]|indexOf(t.Declared)<<3, mask|vals<<3, number(t.Number)<<4|grant(t.Granted), uint8(t.Attempt))
		flag(convicts(t.Baseline, "hot"), t.Pinned)
	}
	if r := l.Returning; r != nil {
		i := slices.IndexFunc(l.Marks, func(k Mark) bool { return k.ID == r.Mark })
		b = append(b, uint8(i), modelIndex[r.Digest]|check(r.Check)<<3, number(r.Number)<<4|grant(r.Granted))
	}
	if l.Grant != nil {
		b = append(b, modelIndex[l.Grant.Declared])
	}
	b = append(b, uint8(min(l.Streak, breakerAt)), number(w.number), w.wish, uint8(len(l.Marks)))
	for _, k := range l.Marks {
		mask, vals := setBits(k.Set)
		c := uint8(0)
		if k.Cause == CauseEnvironment || l.Returning != nil && l.Returning.Mark == k.ID {
			c = check(k.Check)
		}
		b = append(b, mask|vals<<3, bitset(k.Candidates), bitset(k.OperatorDeclared), c)
		flag(k.Retired, k.Cause == CauseEnvironment, k.Exhausted)
	}
	n := len(b)
	b = append(b, 0)
	tries := make([][4]byte, 0, len(l.Tries))
	for _, t := range l.Tries {
		live := t.Number == 0 && t.Grant == 0 || t.Number > l.Spent || t.Grant != 0 && (grant(t.Grant) == 1 ||
			l.Trial != nil && l.Trial.Granted == t.Grant || l.Returning != nil && l.Returning.Granted == t.Grant)
		if !live {
			continue
		}
		base := uint8(0)
		if t.Baseline != nil {
			base = 1
			if convicts(*t.Baseline, "hot") {
				base = 2
			}
		}
		tries = append(tries, [4]byte{modelIndex[t.Digest], number(t.Number)<<4 | grant(t.Grant), uint8(t.Count)<<4 | uint8(min(t.Goodbyes, 2)), base})
	}
	slices.SortFunc(tries, func(a, b [4]byte) int { return slices.Compare(a[:], b[:]) })
	for _, t := range tries {
		b = append(b, t[:]...)
	}
	b[n] = uint8(len(tries))
	b = append(b, w.lkg|w.lkgDeclared<<3, w.prev|w.prevFor<<3, w.grant, w.concl, w.dead, w.deadDecl)
	for i := 0; i < contents; i += 2 {
		b = append(b, w.other[i]|w.other[i+1]<<4)
	}
	m.buf = b
	return b
}

// decode is encode's inverse. Its ledgers have other numbers than the ones that were encoded, in the same order.
func (m *model) decode(b []byte) world {
	at := 0
	next := func() uint8 { at++; return b[at-1] }
	bit := func(x uint8, i int) bool { return x>>i&1 == 1 }
	const base, spent, grantID, oldGrant = 1000, 10, 900, 901
	number := func(n uint8) uint64 {
		switch n {
		case 0:
			return 0
		case 1:
			return spent
		}
		return spent + uint64(n) - 1
	}
	grant := func(g uint8) uint64 { return [...]uint64{0, grantID, oldGrant}[g] }
	check := func(c uint8) string {
		if c == 0 {
			return ""
		}
		return modelChecks[c-1]
	}
	x, y, z := next(), next(), next()
	w := world{weather: bit(y, 0), heat: bit(y, 1), agent: bit(y, 2),
		shadow: shadow{good: bit(y, 3), proven: bit(y, 4), rolled: bit(y, 5), hasPrev: bit(y, 6), fresh: bit(y, 7), under: bit(z, 0), byGrant: bit(z, 1), current: bit(z, 3)}}
	l := Ledger{Schema: Schema, MinWriter: MinWriter, ID: "m", Generation: base, Slots: map[SlotName]Slot{}, Pin: bit(x, 6), NumberUnseen: bit(x, 7)}
	switch {
	case bit(x, 0):
		l.Active = SlotA
	case bit(x, 1):
		l.Active = SlotB
	}
	if bit(z, 2) {
		l.Spent = spent
	}
	var trying SlotName
	for _, name := range []SlotName{SlotA, SlotB} {
		v := next()
		s := Slot{Status: [...]SlotStatus{SlotEmpty, SlotGood, SlotTrying, SlotFailed}[v&3]}
		if s.Status == SlotTrying {
			trying = name
		}
		if s.Status == SlotGood || s.Status == SlotTrying {
			c := v >> 2 & 7
			s.Release, s.Digest, s.Declared, s.Proven = modelReleases[c], modelDigests[c], modelDigests[v>>5], next() == 1
		}
		l.Slots[name] = s
	}
	if bit(x, 2) {
		v := next()
		c := v & 7
		l.Previous = &Slot{Status: SlotGood, Release: modelReleases[c], Digest: modelDigests[c], Declared: modelDigests[v>>3], Proven: true}
	}
	if bit(x, 3) {
		c, set, under, attempt, f := next(), next(), next(), next(), next()
		t := &Trial{Generation: base, Slot: trying, Candidate: modelReleases[c&7], Digest: modelDigests[c&7], Declared: modelReleases[c>>3],
			Set: modelSets[set&7][set>>3], Number: number(under >> 4), Granted: grant(under & 15), Attempt: int(attempt), Pinned: bit(f, 1), Baseline: hotExempt}
		if bit(f, 0) {
			t.Baseline = hotConvicts
		}
		l.Trial = t
	}
	if bit(x, 4) {
		i, c, under := next(), next(), next()
		l.Returning = &Returning{Mark: uint64(i) + 1, Digest: modelDigests[c&7], Check: check(c >> 3), Number: number(under >> 4), Granted: grant(under & 15)}
	}
	if bit(x, 5) {
		l.Grant = &Grant{ID: grantID, Declared: modelDigests[next()]}
	}
	l.Streak = int(next())
	w.number, w.wish = number(next()), next()
	digests := func(set uint8) (ds []Digest) {
		for c := range uint8(contents) {
			if set>>c&1 == 1 {
				ds = append(ds, modelDigests[c])
			}
		}
		return ds
	}
	for i := range next() {
		set, cands, decl, c, f := next(), next(), next(), next(), next()
		k := Mark{ID: uint64(i) + 1, Set: modelSets[set&7][set>>3], Candidates: digests(cands), OperatorDeclared: digests(decl), Check: check(c),
			Cause: CauseFailed, Retired: bit(f, 0), Exhausted: bit(f, 2)}
		if bit(f, 1) {
			k.Cause = CauseEnvironment
		}
		l.Marks = append(l.Marks, k)
	}
	for range next() {
		d, under, counts, base := next(), next(), next(), next()
		t := Try{Digest: modelDigests[d], Number: number(under >> 4), Grant: grant(under & 15), Count: int(counts >> 4), Goodbyes: int(counts & 15)}
		if base > 0 {
			t.Baseline = [...]*Baseline{nil, &hotExempt, &hotConvicts}[base]
		}
		l.Tries = append(l.Tries, t)
	}
	v := next()
	w.lkg, w.lkgDeclared = v&7, v>>3
	v = next()
	w.prev, w.prevFor = v&7, v>>3
	w.grant, w.concl, w.dead, w.deadDecl = next(), next(), next(), next()
	for i := 0; i < contents; i += 2 {
		v := next()
		w.other[i], w.other[i+1] = v&15, v>>4
	}
	w.l = l
	return w
}

func (m *model) hash(w world) uint64 { return maphash.Bytes(m.seed, m.encode(w)) }

// add takes a state in, if it is new, and returns its number.
func (m *model) add(w world, parent int32, via action) int32 {
	b := m.encode(w)
	h := maphash.Bytes(m.seed, b)
	if i, ok := m.seen[h]; ok {
		return i
	}
	i := int32(len(m.ends))
	m.seen[h] = i
	m.arena = append(m.arena, b...)
	m.ends, m.silence = append(m.ends, len(m.arena)), append(m.silence, [allWays]int32{unexplored, unexplored, unexplored})
	m.parent, m.via = append(m.parent, parent), append(m.via, via)
	return i
}

// unexplored stands for what a state becomes before it is visited; those on the way to a root stay so.
const unexplored = -2

func (m *model) encoded(i int) []byte {
	begin := 0
	if i > 0 {
		begin = m.ends[i-1]
	}
	return m.arena[begin:m.ends[i]]
}

// path tells how state i was reached.
func (m *model) path(i int32) string {
	var steps []string
	for ; i > 0; i = m.parent[i] {
		steps = append(steps, "  "+m.via[i].String())
	}
	slices.Reverse(steps)
	return strings.Join(steps, "\n")
}

// everything that may happen next.
func (m *model) actions() []action {
	var as []action
	for _, c := range m.pushes {
		as = append(as, action{aPush, c})
	}
	for k := uint8(aRaise); k <= aCool; k++ {
		switch k {
		case aAsk:
			as = append(as, action{k, 0}, action{k, 1})
		case aRollback:
			as = append(as, action{k, 0}, action{k, 1}, action{k, 2}, action{k, 3})
		default:
			as = append(as, action{kind: k})
		}
	}
	return as
}

// from sets what happened before the exploration.
func (m *model) from(root []action) *model {
	m.root = root
	return m
}

// explore visits every state up to the depth, and checks what is claimed of it.
func (m *model) explore(t testing.TB) {
	began := time.Now()
	m.t = t
	m.trace = func() string { return "" }
	m.add(world{l: NewLedger("m"), agent: true}, -1, action{})
	actions := m.actions()
	level, depth := 0, 0
	var sizes []int
	w := m.decode(m.encoded(0))
	for _, a := range m.root {
		next, ok := m.do(w, a)
		if !ok {
			m.t.Fatalf("model %s: the way to its root: %s is not possible", m.name, a)
		}
		parent := m.seen[m.hash(w)]
		m.add(next, parent, a)
		w = next
	}
	if m.root != nil {
		level = len(m.ends) - 1 // the way there is explored elsewhere
	}
	for ; depth < m.depth && level < len(m.ends) && !m.failed; depth++ {
		end := len(m.ends)
		sizes = append(sizes, end-level)
		for i := level; i < end && !m.failed; i++ {
			m.visit(i, actions)
		}
		level = end
	}
	sizes = append(sizes, len(m.ends)-level)
	for i := level; i < len(m.ends) && !m.failed; i++ { // those at the depth are left in silence only, and so is what becomes of them
		m.visit(i, nil)
	}
	sizes = append(sizes, len(m.ends)-level-sizes[len(sizes)-1])
	m.constant()
	m.t.Logf("%d states, %d transitions, depth %d, %v; by depth, and in the silence after it: %v; constant after at most %d silent steps; reached: %v",
		len(m.ends), m.transitions, depth, time.Since(began).Round(time.Millisecond), sizes, m.longest-1, m.probes)
}

func (m *model) visit(i int, actions []action) {
	w := m.decode(m.encoded(i))
	if i%1024 == 0 && !slices.Equal(m.encode(w), m.encoded(i)) {
		m.fail("state %d reads back different", i)
	}
	m.trace = func() string { return m.path(int32(i)) }
	m.agrees(w)
	if actions != nil && (i < 1000 || i%4 == 0) {
		m.refuses(w)
	}
	m.did = m.did[:0]
	for _, a := range actions {
		m.step(w, int32(i), a)
	}
	for way := range allWays {
		a := w.silent(way)
		at := slices.IndexFunc(m.did, func(d doing) bool { return d.action == a })
		if at < 0 {
			at = len(m.did)
			m.step(w, int32(i), a)
		}
		d := &m.did[at]
		if d.to < 0 && !d.rested {
			m.rests(w, a)
			d.rested = true
		}
		m.silence[i][way] = d.to
	}
}

// doing is an action and the state that it leads to, -1 if it is not possible.
type doing struct {
	action action
	to     int32
	rested bool // it was checked that silence may end with it
}

// step does a in state i, which is w.
func (m *model) step(w world, i int32, a action) {
	m.trace = func() string { return m.path(i) + "\n  " + a.String() }
	d := doing{action: a, to: -1}
	if next, ok := m.do(w, a); ok {
		m.transitions++
		d.to = m.add(next, i, a)
	}
	m.did = append(m.did, d)
}

// slow says that the race detector is at work, which has nothing to find here.
func slow() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// walk is one long life, chosen by chance, of which every state is checked: deeper than everything can be explored.
func (m *model) walk(seed uint64, steps int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := world{l: NewLedger("m"), agent: true}
	var told []action
	m.trace = func() string {
		var b strings.Builder
		fmt.Fprintf(&b, "  walk %d:\n", seed)
		for _, a := range told {
			fmt.Fprintf(&b, "  %s\n", a)
		}
		return b.String()
	}
	actions := m.actions()
	for len(told) < steps && !m.failed {
		a := actions[rng.IntN(len(actions))]
		if rng.IntN(3) == 0 {
			a = action{aAsk, uint8(rng.IntN(2))}
		}
		told = append(told, a)
		next, ok := m.do(w, a)
		if !ok {
			told = told[:len(told)-1]
			continue
		}
		m.transitions++
		w = next
		m.agrees(w)
		m.refuses(w)
		if len(told)%8 == 0 {
			m.becomesConstant(w)
		}
	}
}

// Lives from which an exploration begins, besides that of a new board: what it takes long to come to.
var (
	// A release passed, the fallback that was adopted before it is previous, and fan failed.
	settledBoard = []action{{kind: aAsk}, {aPush, lampBit | fanBit}, {kind: aAsk}, {kind: aPass}, {aPush, lampBit}, {kind: aAsk}, {kind: aFailHot}, {kind: aStands}}
	// lamp failed, and fan did.
	twoMarks = []action{{aPush, lampBit}, {kind: aAsk}, {kind: aFailHot}, {kind: aStands}, {aPush, fanBit}, {kind: aAsk}, {kind: aFailHot}, {kind: aStands}}
	// With no groups: fan without vent failed, then vent. Whoever wishes all three is held at vent off, and so at fan off.
	chainedMarks = []action{{aPush, ventBit}, {kind: aAsk}, {kind: aPass}, {aPush, fanBit}, {kind: aAsk}, {kind: aFailHot}, {kind: aStands},
		{aPush, 0}, {kind: aAsk}, {kind: aPass}, {aPush, ventBit}, {kind: aAsk}, {kind: aFailHot}, {kind: aStands}}
	// lamp and fan failed, then fan alone, which later passed under a new number: its set is retired, and the fallback in force again.
	retiredMark = []action{{aPush, lampBit | fanBit}, {kind: aAsk}, {kind: aFailHot}, {kind: aStands}, {aPush, fanBit}, {kind: aAsk}, {kind: aFailHot}, {kind: aStands},
		{kind: aRaise}, {kind: aAsk}, {kind: aPass}, {aPush, 0}, {kind: aAsk}, {kind: aPass}}
	// Three trials in a row did not pass: the breaker holds up the next one.
	threeFailures = append(slices.Clone(twoMarks), []action{{aPush, ventBit}, {kind: aAsk}, {kind: aFailHot}, {kind: aStands}}...)
)

func TestModel(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(200)) // most of what is kept is some arrays and a map
	fields, releases, single := modelBoard(), modelBoard(), modelBoard()
	releases.HoldRelease, single.Groups = true, nil
	all := []uint8{0, 1, 2, 3, 4, 5, 6, 7}
	some := []uint8{0, lampBit, lampBit | fanBit, lampBit | groupBits}
	deeper := 0 // even deeper, with -long
	if *long {
		deeper = 1
	}
	var mu sync.Mutex
	states, transitions, probes := 0, 0, map[string]int{}
	t.Run("explore", func(t *testing.T) {
		for _, m := range []*model{
			newModel("hold: fields", fields, 8+deeper, some...),
			newModel("hold: release", releases, 8, some...),
			newModel("hold: fields, from a settled board", fields, 6, all...).from(settledBoard),
			newModel("hold: fields, from two marks", fields, 6+deeper, all...).from(twoMarks),
			newModel("no groups, from two marks", single, 6, all...).from(twoMarks),
			newModel("no groups, from two marks of which one gives the other its set", single, 5, all...).from(chainedMarks),
			newModel("hold: fields, from a retired mark", fields, 5, all...).from(retiredMark),
			newModel("hold: fields, from three failures in a row", fields, 5, all...).from(threeFailures),
		} {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				switch {
				case *long:
					m.depth++
				case slow(), testing.Short():
					m.depth -= 3
				}
				m.explore(t)
				mu.Lock()
				defer mu.Unlock()
				states, transitions = states+len(m.ends), transitions+m.transitions
				for p, n := range m.probes {
					probes[p] += n
				}
			})
		}
	})
	t.Logf("in all: %d states, %d transitions; reached: %v", states, transitions, probes)
	for _, p := range mustReach {
		if probes[p] == 0 && !testing.Short() && !slow() && !t.Failed() {
			t.Errorf("never reached: %s", p)
		}
	}
}

// mustReach are the situations without which an exploration has shown little.
var mustReach = []string{"exempt pass", "a content that overheats passes, hot exempt", "a fix while last-known-good is unhealthy", "a marked digest is held",
	"a mixture equal to an earlier failure", "holding one mark gives another its set", "a smaller set than what failed is held",
	"an operator's declared digest is held", "retry across two marks", "a reopened environment is tried", "environment",
	"environment until the attempts are gone", "attempts used up", "one goodbye too many", "a pinned trial", "rollback in a trial",
	"rollback while returning", "two operator rollbacks in a row", "both slots failed", "a rollback uses up a number that nobody had told"}

func TestModelWalks(t *testing.T) {
	fields, releases := modelBoard(), modelBoard()
	releases.HoldRelease = true
	fields.Attempts = 3
	single := modelBoard()
	single.Groups = nil
	lives, steps := 1500, 60
	switch {
	case *long:
		lives, steps = 20_000, 200
	case testing.Short() || slow():
		lives = 100
	}
	for name, b := range map[string]Board{"hold: fields": fields, "hold: release": releases, "no groups": single} {
		began := time.Now()
		m := newModel("walks, "+name, b, 0, 0, 1, 2, 3, 4, 5, 6, 7)
		m.t = t
		for seed := range uint64(lives) {
			m.walk(seed, steps)
		}
		t.Logf("model %s: %d lives, %d transitions, %v; reached: %v", m.name, lives, m.transitions, time.Since(began).Round(time.Millisecond), m.probes)
	}
}

// A board with more failures than there is room for: what is forgotten is told, it is none that the declared state contains as long as there are others,
// and nothing else that failed is tried again.
func TestModelBeyondTheBoundOfMarks(t *testing.T) {
	release := func(dial int, lamp string) Release {
		return Release{Fields: device.Fields{"dial": strconv.Itoa(dial), "lamp": lamp}}
	}
	b := Board{Fallback: release(0, "off"), Attempts: 2}
	facts := Facts{Waited: 24 * time.Hour, Rest: RestFacts{AtRest: true, Required: modelChecks, Holding: modelChecks}}
	dropped, most := 0, 0
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 2))
		l := NewLedger("crowd")
		failed := map[Digest]bool{}
		declared := release(0, "off")
		take := func(s Step) {
			for _, e := range s.Events {
				if e.Kind != EventMarkDropped {
					continue
				}
				dropped++
				at := slices.IndexFunc(l.Marks, func(m Mark) bool { return m.ID == e.Mark })
				if others := slices.ContainsFunc(l.Marks, func(m Mark) bool { return !m.concerns(declared) }); others && l.Marks[at].concerns(declared) {
					t.Fatalf("life %d: the mark %d of %v was dropped, which concerns %v", seed, e.Mark, l.Marks[at].Set, declared.Fields)
				}
				for _, d := range l.Marks[at].Candidates {
					delete(failed, d)
				}
			}
			if l = s.Ledger; len(l.Marks) > MaxMarks {
				t.Fatalf("life %d: %d marks", seed, len(l.Marks))
			}
			most = max(most, len(l.Marks))
			delete(failed, l.LastKnownGood(b).Digest())
		}
		for range 1500 {
			if rng.IntN(3) > 0 {
				declared = release(rng.IntN(600), []string{"off", "on"}[rng.IntN(2)])
			}
			d, s := Admit(l, b, Wish{Release: declared}, facts)
			if s == nil {
				continue
			}
			take(*s)
			if l.Trial == nil {
				continue
			}
			if failed[d.Digest] {
				t.Fatalf("life %d: %v has failed, and is tried again", seed, d.Candidate.Fields)
			}
			switch n := rng.IntN(20); {
			case n == 0:
				take(Settle(l, b, Passed, Evidence{}))
			case n == 1:
				take(Settle(l, b, Inconclusive, Evidence{}))
				if slices.ContainsFunc(l.Marks, func(m Mark) bool { return slices.Contains(m.Candidates, d.Digest) }) {
					failed[d.Digest] = true
				}
			case n == 2:
				if s, err := Rollback(l, b, true, &Wish{Release: declared}, "op", time.Time{}); err == nil {
					failed[d.Digest] = true
					take(s)
				}
			default:
				failed[d.Digest] = true
				take(Settle(l, b, Failed, Evidence{Check: "hot"}))
				take(CloseReturning(l, b, true, Evidence{}))
			}
		}
	}
	if most != MaxMarks || dropped == 0 {
		t.Errorf("at most %d marks, %d dropped: the bound of %d was not come to", most, dropped, MaxMarks)
	}
	t.Logf("%d marks dropped", dropped)
}
