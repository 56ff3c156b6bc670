package agent

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"holdfast/bootslot"
	"holdfast/device"
)

// The kit of the model: contents, records and trackers as small numbers, behind which the production functions stand. Each of them is asked once for
// each question; what it answered is remembered.

// A content is three fields as bits, of which fan and vent are a group.
const (
	lampBit, fanBit, ventBit = 1, 2, 4
	contents                 = 8
	none                     = contents // no content
)

var (
	kitProfile = device.Profile{Name: "kit", Groups: []device.Group{{Name: "air", Fields: []string{"fan", "vent"}}}}
	kitRelease [contents]bootslot.Release
	kitContent = map[bootslot.Digest]uint8{}
)

func init() {
	names := []string{"lamp", "fan", "vent"}
	for _, n := range names {
		kitProfile.Actuators = append(kitProfile.Actuators, device.Actuator{Name: n, Allowed: []string{"off", "on"}})
	}
	for c := range uint8(contents) {
		f := device.Fields{}
		for i, n := range names {
			f[n] = []string{"off", "on"}[c>>i&1]
		}
		kitRelease[c] = bootslot.Release{Fields: f}
		kitContent[kitRelease[c].Digest()] = c
	}
	kitProfile.Fallback = kitRelease[0].Fields
}

// contentOf is the inverse of kitRelease.
func contentOf(f device.Fields) (c uint8) {
	if f == nil {
		return none
	}
	for i, a := range kitProfile.Actuators {
		if f[a.Name] == "on" {
			c |= 1 << i
		}
	}
	return c
}

func contentName(c uint8) string {
	switch c {
	case none:
		return "nothing"
	case 0:
		return "all off"
	}
	s := ""
	for i, a := range kitProfile.Actuators {
		if c>>i&1 == 1 {
			s += "+" + a.Name
		}
	}
	return s[1:]
}

// overheats says which contents are bad.
func overheats(c uint8) bool { return c&lampBit != 0 && c&fanBit == 0 }

// The checks. There is one for all fields: no claim depends on which of them does not converge.
const (
	checkHot = iota
	checkConverged
	checkAnswers
	checkAlive
	kitChecks
)

var kitCheck = [kitChecks]string{"hot", bootslot.ConvergedCheck("all"), bootslot.DeviceAnswers, bootslot.AgentAlive}

// kitSoak is the guard's soak time, in ticks.
const kitSoak = 2

// pace is the rest of a configuration. A tick is the model's unit of time, and its device interval; no shorter than device.TargetTTL and a time-out of 2 s
// together, so that a write that a lease allows is over within it. In ticks: hot's own soak time, the window, recover. Missed is the age beyond which
// nothing depends on that of a heartbeat, or of a generation.
type pace struct {
	tick                     time.Duration
	hotSoak, window, recover int
	missed                   uint8
}

func (p pace) ticks(n int) time.Duration { return time.Duration(n) * p.tick }

// patience is for how many ticks nobody may drive after a fault: as long as the two wait for each other, or three intervals without a heartbeat, and the
// rounds at both ends.
func (p pace) patience() uint8 { return max(uint8(bootslot.SilenceMax(p.tick)/p.tick)+1, missed+2) }

// now is the uptime in every state.
func (p pace) now() time.Duration { return p.ticks(1000) }

// age is how many ticks ago at was, ago its inverse.
func (p pace) age(at time.Duration) uint8  { return uint8((p.now() - at) / p.tick) }
func (p pace) ago(age uint8) time.Duration { return p.now() - p.ticks(int(age)) }

// stored is an age that may be none, plus one; at its inverse: the uptime, 0 for none.
func (p pace) stored(at time.Duration, limit uint8) uint8 {
	if at == 0 {
		return 0
	}
	return min(p.age(at), limit) + 1
}

func (p pace) at(stored uint8) time.Duration {
	if stored == 0 {
		return 0
	}
	return p.ago(stored - 1)
}

func (p pace) checks() (out []bootslot.Check) {
	for i, name := range kitCheck {
		c := bootslot.Check{Name: name, Required: true, Soak: p.ticks(kitSoak)}
		if i == checkHot {
			c.Soak = p.ticks(p.hotSoak)
		}
		out = append(out, c)
	}
	return out
}

// book is all records that one exploration has come to, each in its canonical form.
type book struct {
	board   bootslot.Board
	records []bootslot.Ledger
	pages   []page
	known   map[string]uint32
	steps   map[question]reply
}

// page is what is often asked of a record.
type page struct {
	lkg, eff  uint8
	cand      uint8 // of the open trial, or none
	good      bool
	returning bool
	check     uint8 // that returning waits for
	convict   uint8 // the trial's convicting checks, as bits
	leave     bool  // the trial was opened past the marks
}

func newBook(b bootslot.Board) *book {
	k := &book{board: b, known: map[string]uint32{}, steps: map[question]reply{}}
	k.number(bootslot.NewLedger("kit"))
	return k
}

// The numbers of a canonical record. Order is all that anything depends on.
const (
	kitGeneration = 1000
	kitGrant      = 900
	otherGrant    = 901
)

// number returns a record's number. What no decision depends on goes: texts, times, readings, generations, counts that no leave leads to any more, and, since no
// pauses are configured, the breaker's streak.
func (k *book) number(l bootslot.Ledger) uint32 {
	slot := func(s bootslot.Slot) bootslot.Slot {
		if s.Status != bootslot.SlotGood && s.Status != bootslot.SlotTrying {
			return bootslot.Slot{Status: s.Status}
		}
		s.Revision, s.Origin = "", bootslot.Origin{}
		return s
	}
	grantID := uint64(0)
	grant := func(id uint64) uint64 {
		switch id {
		case 0:
			return 0
		case grantID:
			return kitGrant
		}
		return otherGrant
	}
	if l.Grant != nil {
		grantID = l.Grant.ID
		l.Grant = &bootslot.Grant{ID: kitGrant, Declared: l.Grant.Declared}
	}
	l.Generation, l.Streak = kitGeneration, 0
	l.Slots = map[bootslot.SlotName]bootslot.Slot{bootslot.SlotA: slot(l.Slots[bootslot.SlotA]), bootslot.SlotB: slot(l.Slots[bootslot.SlotB])}
	if l.Previous != nil {
		p := slot(*l.Previous)
		l.Previous = &p
	}
	var open [2]uint64 // grants under which something is open
	if t := l.Trial; t != nil {
		open[0] = t.Granted
		n := *t
		n.Generation, n.Revision, n.Origin, n.Before, n.At, n.Granted = kitGeneration, "", bootslot.Origin{}, nil, time.Time{}, grant(t.Granted)
		l.Trial = &n
	}
	marks := make([]bootslot.Mark, len(l.Marks))
	at := map[uint64]int{}
	for i, m := range l.Marks {
		at[m.ID] = i + 1
		n := bootslot.Mark{ID: uint64(i + 1), Set: m.Set, Candidates: slices.Sorted(slices.Values(m.Candidates)),
			OperatorDeclared: slices.Sorted(slices.Values(m.OperatorDeclared)), Cause: bootslot.CauseFailed, Retired: m.Retired}
		switch {
		case m.Cause == bootslot.CauseEnvironment && !m.Exhausted:
			n.Cause, n.Check = m.Cause, m.Check
		case l.Returning != nil && l.Returning.Mark == m.ID:
			n.Check = m.Check
		}
		marks[i] = n
	}
	l.Marks = marks
	if r := l.Returning; r != nil {
		open[1] = r.Granted
		l.Returning = &bootslot.Returning{Mark: uint64(at[r.Mark]), Check: r.Check, Digest: r.Digest, Number: r.Number, Granted: grant(r.Granted)}
	}
	var tries []bootslot.Try
	for _, t := range l.Tries {
		if t.Number == 0 && t.Grant == 0 || t.Number > l.Spent || t.Grant != 0 && (t.Grant == grantID || slices.Contains(open[:], t.Grant)) {
			t.Grant, t.Goodbyes = grant(t.Grant), min(t.Goodbyes, 2)
			tries = append(tries, t)
		}
	}
	slices.SortFunc(tries, func(a, b bootslot.Try) int {
		return slices.Compare([]string{string(a.Digest), fmt.Sprint(a.Number, a.Grant)}, []string{string(b.Digest), fmt.Sprint(b.Number, b.Grant)})
	})
	l.Tries = tries
	key, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	n, ok := k.known[string(key)]
	if !ok {
		n = uint32(len(k.records))
		k.known[string(key)] = n
		k.records = append(k.records, l)
		k.pages = append(k.pages, k.page(l))
	}
	return n
}

func (k *book) page(l bootslot.Ledger) page {
	g := page{lkg: contentOf(l.LastKnownGood(k.board).Fields), eff: contentOf(l.Effective(k.board).Fields), cand: none, good: l.HasGood()}
	if t := l.Trial; t != nil {
		g.cand, g.leave = contentOf(t.Candidate.Fields), t.Granted != 0 || t.Number > l.Spent
		for i, c := range kitCheck {
			if slices.Contains(t.Baseline.Convicting, c) {
				g.convict |= 1 << i
			}
		}
	}
	if r := l.Returning; r != nil {
		g.returning, g.check = true, uint8(slices.Index(kitCheck[:], r.Check))
	}
	return g
}

// What may be asked of a record.
const (
	askBoot uint8 = iota
	askAdmit
	askSettle // arg: verdict, check: the check or how
	askClose  // arg: 1 if it held
	askRollback
	askRetry
)

// How a trial is cancelled, in place of a check.
const (
	bySuspend uint8 = iota
	byGoodbye
)

var kitVerdicts = []bootslot.Verdict{bootslot.Passed, bootslot.Failed, bootslot.Inconclusive, bootslot.Cancelled}

// question is one of them.
type question struct {
	record, rest      uint32 // rest: the tracker of last-known-good at rest
	kind, arg, check  uint8
	wish, number, gap uint8
	obstacle          bool
}

// answer is what became of it: another record if changed.
type reply struct {
	record  uint32
	changed bool
	kind    bootslot.DecisionKind
	refused bool
	depends string // what a decision was found to depend on, though it must not
}

// ask puts a question, in 1970 and once more in 2065: the wall clock jumps.
func (k *book) ask(q question, facts func() bootslot.RestFacts) reply {
	a, ok := k.steps[q]
	if !ok {
		a = k.answer(q, facts, time.Unix(0, 0))
		if b := k.answer(q, facts, time.Unix(3e9, 0)); a != b {
			a.depends = fmt.Sprintf("by the wall clock %+v is answered %+v or %+v", q, a, b)
		}
		k.steps[q] = a
	}
	return a
}

func (k *book) answer(q question, facts func() bootslot.RestFacts, at time.Time) reply {
	l := k.records[q.record]
	wish := func() *bootslot.Wish {
		if q.wish == none {
			return nil
		}
		return &bootslot.Wish{Release: kitRelease[q.wish], Number: uint64(q.number), Revision: strconv.Itoa(len(k.steps))}
	}
	a := reply{record: q.record}
	var s *bootslot.Step
	switch q.kind {
	case askBoot:
		s = bootslot.Boot(l, k.board, at)
	case askAdmit:
		f := bootslot.Facts{Waited: time.Hour, Rest: facts(), At: at}
		if q.obstacle {
			f.Obstacle = "an obstacle"
		}
		var d bootslot.Decision
		d, s = bootslot.Admit(l, k.board, *wish(), f)
		a.kind = d.Kind
	case askSettle:
		v, ev := kitVerdicts[q.arg], bootslot.Evidence{At: at}
		if v == bootslot.Failed {
			ev.Check = kitCheck[q.check]
		}
		ev.Goodbye = v == bootslot.Cancelled && q.check == byGoodbye
		st := bootslot.Settle(l, k.board, v, ev)
		s = &st
	case askClose:
		st := bootslot.CloseReturning(l, k.board, q.arg == 1, bootslot.Evidence{At: at})
		s = &st
	case askRollback:
		st, err := bootslot.Rollback(l, k.board, q.arg == 1, wish(), "op", at)
		if a.refused = err != nil; err == nil {
			s = &st
		}
	case askRetry:
		st, err := bootslot.Retry(l, k.board, *wish(), "op", at)
		if a.refused = err != nil; err == nil {
			s = &st
		}
	}
	if s != nil {
		a.record, a.changed = k.number(s.Ledger), true
	}
	return a
}

// A tracker is what a guard follows: last-known-good at rest, an open trial, or the way back.
const (
	trackRest uint8 = iota
	trackTrial
	trackBack
)

// look is what a guard sees at one tick, as bits: the device answers, it reads back, hot does not hold, and what is known of the agent.
type look uint8

const (
	lookAnswers  look = 1
	lookReadBack look = 2
	lookHot      look = 4
	lookAlive    look = 8 // times 0: unknown, 1 to 4: a heartbeat of that many ticks less one ago, 5: none for too long
	lookDead          = 5 * lookAlive
	lookSilent   look = 64
)

// sight is one look, gap ticks after the one before.
type sight struct {
	gap uint8
	k   look
}

// tracker is one production object at one moment: how it began, and what it has seen.
type tracker struct {
	kind, arg uint8
	path      []sight
	ends      [maxUnseen + 1]uint8 // of a trial: ticks left, by ticks since the last look
	unwatched [maxUnseen + 1]bool
}

// outcome is what a look led to.
type outcome struct {
	to      uint32
	verdict uint8 // index of kitVerdicts + 1, 0 for none
	check   uint8
	held    bool // the way back is over, and the check held
	over    bool
}

// trackers are all that one exploration has come to. Two objects in all of whose fields the same stands are one.
type trackers struct {
	pace  pace
	all   []tracker
	known map[string]uint32
	steps map[trackStep]outcome
}

type trackStep struct {
	id uint32
	s  sight
}

func newTrackers(p pace) *trackers {
	return &trackers{pace: p, known: map[string]uint32{}, steps: map[trackStep]outcome{}}
}

// object plays a tracker's life, and returns it with the uptime of its newest look.
type object struct {
	rest  *bootslot.Rest
	judge *bootslot.Judge
	back  *bootslot.Recovery
	now   time.Duration
}

func (t *trackers) object(kind, arg uint8, path []sight) (o object, last outcome) {
	p, checks := t.pace, t.pace.checks()
	o.now = p.now()
	switch kind {
	case trackRest:
		o.rest = bootslot.NewRest(o.now, p.ticks(kitSoak), p.ticks(p.recover), checks)
	case trackTrial:
		var base bootslot.Baseline
		for i, c := range kitCheck {
			if arg>>i&1 == 1 {
				base.Convicting = append(base.Convicting, c)
			}
		}
		o.judge = bootslot.NewJudge(bootslot.Trial{Baseline: base}, o.now, p.ticks(p.window), p.ticks(kitSoak), checks)
	case trackBack:
		o.back = bootslot.NewRecovery(kitCheck[arg], o.now, p.ticks(kitSoak), p.ticks(p.recover), checks)
	}
	for _, s := range path {
		o.now += p.ticks(int(s.gap))
		k := s.k.sees(p, o.now)
		switch kind {
		case trackRest:
			o.rest.See(k)
		case trackTrial:
			v, ev := o.judge.See(k)
			last = outcome{verdict: uint8(slices.Index(kitVerdicts, v) + 1), check: uint8(max(0, slices.Index(kitCheck[:], ev.Check)))}
		case trackBack:
			last = outcome{}
			last.over, last.held = o.back.See(k)
		}
	}
	return o, last
}

// sees is k as the guard sees it at uptime now.
func (k look) sees(p pace, now time.Duration) bootslot.Look {
	answers, readBack := k&lookAnswers != 0, k&lookReadBack != 0
	l := bootslot.Look{At: now, Answered: answers, ReadBack: readBack, Silent: k&lookSilent != 0}
	sample := func(c int, ok bool, at time.Duration) {
		s := bootslot.Sample{Check: kitCheck[c], OK: ok, At: at}
		if !ok {
			s.Message = "bad"
		}
		l.Samples = append(l.Samples, s)
	}
	sample(checkHot, answers && k&lookHot == 0, now)
	sample(checkConverged, answers && readBack, now)
	sample(checkAnswers, answers, now)
	switch age := k &^ lookSilent / lookAlive; age {
	case 0:
	case 5:
		sample(checkAlive, false, now)
	default:
		sample(checkAlive, true, now-p.ticks(int(age)-1))
	}
	return l
}

// begin returns a tracker that has seen nothing yet.
func (t *trackers) begin(kind, arg uint8) uint32 { return t.number(kind, arg, nil) }

// number returns the number of the tracker that has seen path.
func (t *trackers) number(kind, arg uint8, path []sight) uint32 {
	o, _ := t.object(kind, arg, path)
	key := t.fingerprint(kind, arg, o)
	n, ok := t.known[key]
	if ok {
		return n
	}
	n = uint32(len(t.all))
	t.known[key] = n
	tr := tracker{kind: kind, arg: arg, path: path}
	if o.judge != nil {
		for gap := range tr.ends {
			tr.ends[gap] = uint8(o.judge.EndsIn(o.now+t.pace.ticks(gap)) / t.pace.tick)
			tr.unwatched[gap] = o.judge.Unwatched(o.now + t.pace.ticks(gap))
		}
	}
	t.all = append(t.all, tr)
	return n
}

// see takes one look.
func (t *trackers) see(id uint32, gap uint8, k look) outcome {
	step := trackStep{id, sight{gap, k}}
	if o, ok := t.steps[step]; ok {
		return o
	}
	tr := t.all[id]
	path := append(slices.Clone(tr.path), step.s)
	_, o := t.object(tr.kind, tr.arg, path)
	o.to = t.number(tr.kind, tr.arg, path)
	t.steps[step] = o
	return o
}

// facts is what a guard knows of last-known-good gap ticks after its last look.
func (t *trackers) facts(id uint32, gap uint8) bootslot.RestFacts {
	tr := t.all[id]
	if tr.kind != trackRest {
		return bootslot.RestFacts{Required: kitCheck[:]}
	}
	o, _ := t.object(tr.kind, tr.arg, tr.path)
	return o.rest.Facts(o.now + t.pace.ticks(int(gap)))
}

// fingerprint tells a tracker's state apart from others. Uptimes are told as ages; what is beyond every limit that is compared with is one and the same.
func (t *trackers) fingerprint(kind, arg uint8, o object) string {
	b := []byte{kind, arg}
	age := func(v reflect.Value, limit int) {
		b = append(b, uint8(min(int((o.now-time.Duration(v.Int()))/t.pace.tick), limit)))
	}
	flag := func(v bool) {
		if v {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	soak := func(v reflect.Value) {
		known(v, "runs")
		runs := v.FieldByName("runs")
		for _, c := range kitCheck {
			r := runs.MapIndex(reflect.ValueOf(c))
			if !r.IsValid() {
				b = append(b, 255)
				continue
			}
			r = r.Elem()
			known(r, "holding", "since", "last", "bad", "message")
			flag(r.FieldByName("holding").Bool())
			if r.FieldByName("holding").Bool() {
				held := time.Duration(r.FieldByName("last").Int()-r.FieldByName("since").Int()) / t.pace.tick
				b = append(b, uint8(min(int(held), max(kitSoak, t.pace.hotSoak))))
			}
			age(r.FieldByName("last"), missed+1)
			b = append(b, uint8(min(r.FieldByName("bad").Int(), 3)))
			flag(r.FieldByName("message").Len() > 0)
		}
	}
	length := func(v reflect.Value) {
		b = append(b, uint8(min(time.Duration(v.Int())/t.pace.tick, time.Duration(2*max(t.pace.recover, t.pace.hotSoak)))))
	}
	switch {
	case o.judge != nil:
		v := reflect.ValueOf(o.judge).Elem()
		known(v, "Opened", "Window", "Soak", "Checks", "last", "readBack", "readBackAt", "soak")
		age(v.FieldByName("Opened"), 255)
		flag(v.FieldByName("readBack").Bool())
		if v.FieldByName("readBack").Bool() {
			age(v.FieldByName("readBackAt"), max(missed+1, kitSoak))
		}
		soak(v.FieldByName("soak"))
	case o.rest != nil:
		v := reflect.ValueOf(o.rest).Elem()
		known(v, "Checks", "Soak", "Recover", "began", "last", "missing", "restless", "at", "why", "soak")
		flag(v.FieldByName("at").Bool())
		if v.FieldByName("at").Bool() {
			age(v.FieldByName("began"), missed+1)
		}
		length(v.FieldByName("missing"))
		length(v.FieldByName("restless"))
		soak(v.FieldByName("soak"))
	case o.back != nil:
		v := reflect.ValueOf(o.back).Elem()
		known(v, "Check", "Soak", "Recover", "Gone", "began", "at", "answering", "last", "soak")
		flag(v.FieldByName("at").Bool())
		if v.FieldByName("at").Bool() {
			age(v.FieldByName("began"), missed+1)
		}
		length(v.FieldByName("answering"))
		soak(v.FieldByName("soak"))
	}
	return string(b)
}

// known panics if a production type has other fields than the model knows of.
func known(v reflect.Value, names ...string) {
	for i := range v.NumField() {
		if n := v.Type().Field(i).Name; !slices.Contains(names, n) {
			panic(fmt.Sprintf("%s has a field %s, and the model does not know whether states differ by it: say so in fingerprint", v.Type(), n))
		}
	}
	if v.NumField() != len(names) {
		panic(fmt.Sprintf("%s has %d fields, the model knows %d", v.Type(), v.NumField(), len(names)))
	}
}
