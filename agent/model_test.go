package agent

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

var long = flag.Bool("long", false, "explore the model as deep as it was ever done")

const (
	missed = 3 // ticks without a heartbeat after which the agent is taken for dead

	// Ages beyond which nothing depends on them, in ticks.
	maxUnseen  = kitSoak + 1 // that a guard has not looked
	maxStarted = 12          // that an agent has waited for a lease
	maxQuiet   = 1           // that last-known-good has been read back
	stuck      = uint8(99)   // of a write that the device did not take when it came

	// What is claimed, in ticks.
	maxConflict = 1 // for which agent and guard drive to different contents
	maxAstray   = 2 // for which the device is something else than what it is driven to
)

// life is what a process is.
type life uint8

const (
	dead life = iota
	running
	stopped // SIGSTOP: it keeps what it knows, and time goes on
)

// What an operator has suspended.
const (
	suspendNothing = iota
	suspendTrials
	suspendRepair
	suspendRested // the guard has noted that last-known-good was read back for long enough
)

// pair is one state: agent and guard, what they know, the device, and what is on its way to it. Ages are in ticks; one that may be none is stored
// plus one, and 0 is none.
type pair struct {
	record   uint32
	declared uint8 // the content that the clone declares, or none
	number   uint8 // its retry number
	dev      uint8 // what the device holds
	heat     uint8 // ticks for which hot goes on failing
	weather  bool  // hot fails whatever is done
	away     bool  // the device does not answer
	mute     bool  // there is no socket between the two
	suspend  uint8

	a    agentMemory
	g    guardMemory
	air  [2]flight // what agent and guard have sent, and the device has not got yet
	turn uint8

	// The model's own book.
	failed   uint8 // contents that failed for good
	aims     [2]uint8
	conflict uint8 // ticks for which the two have driven to different contents
	idle     uint8 // ticks for which nobody has driven
	astray   uint8 // ticks for which the device was driven to what it is not
	well     uint8 // looks at a device that is what it is to be, as watches counts them
	cool     uint8 // looks at a device that is not too hot
	lives    uint8 // since the trial was opened: age of the agent's first heartbeat,
	lived    uint8 // ticks from that to the newest
	once     bool  // since then the guard has seen once that the device is what it is to be
	gap      bool  // the guard has not watched the whole of it
}

// agentMemory is what the agent's process knows.
type agentMemory struct {
	life           life
	started        uint8 // age of this run, as long as it has had no lease
	has            bool  // it has had a lease:
	current, ours  bool  // of the generation that the record has, of this run of the guard
	fields, proven uint8
	age, ends      uint8 // its own, and the ticks for which its trial ran then
	silent         uint8 // age of the guard's silence
	answered       bool  // the guard has answered in this cycle
	again          bool  // its answer to the wish is another lease, which is read next
	home           uint8 // what it calls last-known-good, where it matters, or none
	settled        bool
	settledSince   uint8
	rested         bool
	saw            uint8 // what the newest cycle saw of the device, or none
	sawAt          uint8
	hand           hand
}

// guardMemory is what the guard's process knows.
type guardMemory struct {
	life       life
	current    bool  // the newest heartbeat of this run was of the generation that the record has
	any, valid uint8 // ages of heartbeats
	since      uint8 // age of the generation
	unseen     uint8 // ticks since its last look
	wish       uint8 // the newest wish, or none
	wishNumber uint8
	quiet      bool
	quietSince uint8
	hand       hand
	tracker    uint32
}

var (
	noAgent = agentMemory{saw: none, home: none}
	noGuard = guardMemory{wish: none}
)

// hand is what a process is about to write.
type hand struct {
	stage   uint8 // 0: nothing
	content uint8
	mask    uint8 // what has drifted
	age     uint8
	leased  bool
}

const (
	decided = 1 // to what it drives
	taken   = 2 // the target is read, and the device looked at
)

// flight is a write on its way.
type flight struct {
	mask, content, age uint8
	late               bool
}

// The processes, as an index.
const (
	theAgent = 0
	theGuard = 1
)

// The turns of one tick.
const (
	turnGuard = iota
	turnLook
	turnAsk
	turnBeat
	turnDrive
	turnEnd
)

var (
	guardFirst = [turnEnd]uint8{turnGuard, turnLook, turnAsk, turnBeat, turnDrive}
	agentFirst = [turnEnd]uint8{turnLook, turnAsk, turnBeat, turnDrive, turnGuard}
)

// The model explores agent and guard as a pair, with the functions that decide in production: Decide with its Memory, Action and device.Target (what is written,
// and until when), bootslot's Heard, Quiet, Judge, Rest and Recovery (who drives, what is seen, how a trial ends), and Admit, Settle, CloseReturning, Boot,
// Rollback and Retry on the record. None of them is copied. What is the model's own is the world around them, the glue that feeds the one's answer
// to the other, and a book of its own against which it checks. The rules of the record alone are explored deeper, and with more contents, in bootslot's model.
//
// Time is counted in ticks of one device interval (5 s, or a minute). In each tick the guard has one round (it looks, decides, drives if it is to) and the agent another (lease,
// wish, lease again, heartbeat, target, write), one before the other or the other way round; a write lands in its tick or in the next. Between any two steps the
// adversary may do what he likes, a bounded number of times: kill, stop (SIGSTOP), continue, start, restart or upgrade either process, cut
// the power, take away the socket between the two, hold up a write, push one of some contents, lose the clone, raise `retry`, `holdfast retry`,
// `rollback` to previous or the fallback, `suspend` with and without --repair, resume, let the device drift, hang or answer again, let hot flap once, or fail
// whatever is done. Calm steps, of everything that he leaves alive, are not counted: from each state that he makes, the pair goes on until it repeats itself, and at
// each step on that way he may act again. So an exploration of three acts is not one of three ticks.
//
// Physics: a content with lamp and without fan overheats; hot goes on failing for two ticks after that is taken back.
//
// Claimed in each state or step, with the bounds of docs/design.md:
//   - what a process drives to is what the record says is effective; without the guard, last-known-good; and never, without leave, what has failed;
//   - nothing is sent with a target that is older than the lease time, so that a write lands at most one tick after its target was read (a device that hangs may carry
//     out later what it has got, and is brought back);
//   - a guard that was stopped for longer than the soak time judges nothing and drives to no candidate before it has looked, which settles the trial; a guard that starts has none open;
//   - after the newest fault agent and guard drive to different contents for no longer than one tick, nobody drives for no longer than 60 s, or three intervals, and the
//     device becomes, within two ticks, what it is driven to;
//   - a trial that passes has shown for the soak time that the device is the candidate, that hot holds, and that the agent lives, as far as they convict; a mark of hot stands only if
//     hot has held on last-known-good;
//   - nobody drives under `suspend --repair` once that is noted, and that is noted only of last-known-good;
//   - the wall clock: each question to the record's rules is asked in 1970 and in 2065, with one answer.
//
// "It becomes constant", under a fairness that is written down. First: from each state, if the adversary does nothing more, the pair comes, in a bounded number of steps (printed),
// into a cycle; in each such cycle the record does not change, no trial is open, the device is last-known-good, exactly one of those who live drives to it (nobody
// under --repair), and the agent's wish is answered with same or held (or waits for weather that held before). Second: if processes die, are stopped, restarted and upgraded and sockets
// lost for ever, while operator, git, weather and device are finite: in each strongly connected component of the graph of calm steps and such faults the record is
// one and the same; so it changes only finitely often. Both are shown of the graph that was explored.
//
// Not modelled, and why: the disk (a record is stored or is not; package ledger, the guard's tests and the tests that cut the power at every write have
// the rest); which fields a device refuses or does not converge (package device); a process that is stopped between the age's last check and the system call right
// after it (nothing but a device that knows leases could help); the network and git beyond what they bring, a content that is declared, old or new: a cut
// network is an adversary who does not push, a rewritten history one who pushes, or does not, and neither occurs in the questions' types; pauses and the breaker
// (bootslot's model); clocks that run at different speeds (all of it is one uptime).
type model struct {
	name     string
	board    bootslot.Board
	pace     pace
	order    [turnEnd]uint8
	pushes   []uint8
	suspends bool
	without  []kind // what the adversary does not do here
	acts     int    // how often he acts at most
	quick    int    // acts when there is little time
	long     int    // acts with -long
	roots    [][]act

	t testing.TB
	*book
	*trackers
	decisions   map[decisionKey]decisionMade
	states      set
	parent      []int32
	via         []act
	calmly      []int32 // what each state becomes if the adversary does nothing
	faults      []edge
	transitions int
	longest     int
	probes      map[string]int
	trace       func() string
	broken      bool
}

// edge is a process's fault.
type edge struct{ from, to int32 }

// set is states in the order in which they came, each once.
type set struct {
	n      int
	blocks [][]pair // of setBlock states each
	slots  []int32  // index + 1
	seed   maphash.Seed
}

const setBlock = 1 << 14

func (s *set) at(i int32) *pair { return &s.blocks[i/setBlock][i%setBlock] }

// add returns the index of p, and whether it is new.
func (s *set) add(p *pair) (int32, bool) {
	if s.n*3 >= len(s.slots)*2 {
		s.slots = make([]int32, max(setBlock, 2*len(s.slots)))
		for i := range int32(s.n) {
			*s.slot(s.at(i)) = i + 1
		}
	}
	slot := s.slot(p)
	if *slot != 0 {
		return *slot - 1, false
	}
	if s.n%setBlock == 0 {
		s.blocks = append(s.blocks, make([]pair, setBlock))
	}
	s.n++
	*slot = int32(s.n)
	*s.at(int32(s.n - 1)) = *p
	return int32(s.n - 1), true
}

func (s *set) slot(p *pair) *int32 {
	mask := uint64(len(s.slots) - 1)
	for h := maphash.Comparable(s.seed, *p); ; h++ {
		if at := &s.slots[h&mask]; *at == 0 || *s.at(*at - 1) == *p {
			return at
		}
	}
}

// fail reports a broken claim with the way that led to it.
func (m *model) fail(format string, args ...any) {
	if m.broken {
		return
	}
	m.broken = true
	m.t.Errorf("model %s: "+format+"\n%s", append(append([]any{m.name}, args...), m.trace())...)
}

func (m *model) reach(probe string) { m.probes[probe]++ }

func (m *model) page(p *pair) page { return m.pages[p.record] }

func (m *model) ask(p *pair, q question) reply {
	q.record = p.record
	r := m.book.ask(q, func() bootslot.RestFacts { return m.facts(q.rest, q.gap) })
	if r.depends != "" {
		m.fail("%s", r.depends)
	}
	return r
}

// turned takes the record that came of a transition: it has another generation.
func (m *model) turned(p *pair, r reply) {
	if !r.changed {
		return
	}
	was, before := m.page(p), *p
	p.record, p.a.current, p.g.current, p.g.valid, p.g.since = r.record, false, false, 0, 1
	m.enter(p)
	if is := m.page(p); was.cand != none && is.cand != none { // an operator's retry: the trial goes on
		p.g.tracker, p.g.unseen = before.g.tracker, before.g.unseen
		p.well, p.cool, p.lives, p.lived, p.once, p.gap = before.well, before.cool, before.lives, before.lived, before.once, before.gap
	}
}

// enter starts what the guard follows in its phase.
func (m *model) enter(p *pair) {
	g := m.page(p)
	p.g.unseen, p.well, p.cool, p.lives, p.lived, p.once, p.gap = 0, 0, 0, 0, 0, false, false
	switch {
	case g.cand != none:
		p.g.tracker = m.begin(trackTrial, g.convict)
	case g.returning:
		p.g.tracker = m.begin(trackBack, g.check)
	default:
		p.g.tracker = m.begin(trackRest, 0)
	}
}

// older lets an age grow by a tick.
func older(stored *uint8, limit uint8) {
	if *stored != 0 {
		*stored = min(*stored+1, limit+1)
	}
}

func generation(current bool) uint64 {
	if current {
		return kitGeneration
	}
	return kitGeneration - 1
}

func (m *model) heard(p *pair) bootslot.Heard {
	return bootslot.Heard{Any: m.pace.at(p.g.any), Valid: m.pace.at(p.g.valid), Generation: generation(p.g.current)}
}

func (m *model) hears(p *pair, h bootslot.Heard) {
	p.g.any, p.g.valid = m.pace.stored(h.Any, 255-1), m.pace.stored(h.Valid, missed)
	if p.g.current = h.Current(kitGeneration); !p.g.current {
		p.g.valid = 0
	}
}

// looks is what the guard sees now.
func (m *model) looks(p *pair, g page) (k look) {
	if !p.away {
		k |= lookAnswers
		if p.dev == g.eff {
			k |= lookReadBack
		}
		if p.heat > 0 || p.weather {
			k |= lookHot
		}
	}
	h := m.heard(p)
	if g.cand != none && h.Silent(m.pace.now(), m.pace.tick, m.pace.at(p.g.since)) {
		k |= lookSilent
	}
	if s, ok := h.Sample(m.pace.now(), m.pace.tick, kitGeneration, m.pace.at(p.g.since)); ok {
		if s.OK {
			k |= lookAlive * look(m.pace.age(s.At)+1)
		} else {
			k |= lookDead
		}
	}
	return k
}

// guardLooks is one tick of the guard's.
func (m *model) guardLooks(p *pair) {
	g, k := m.page(p), m.looks(p, m.page(p))
	switch {
	case p.suspend < suspendRepair:
		m.resumes(p)
	case !p.g.quiet:
		q := bootslot.Quiet{Since: m.pace.at(p.g.quietSince)}
		if q.See(m.pace.now(), g.cand == none && k&lookReadBack != 0) {
			p.suspend = suspendRested
			m.reach("the guard leaves the device alone")
			if p.dev != g.lkg {
				m.fail("the guard leaves the device alone as %s, last-known-good is %s", contentName(p.dev), contentName(g.lkg))
			}
		}
		p.g.quiet, p.g.quietSince = q.Over, m.pace.stored(q.Since, maxQuiet)
	}
	unseen := p.g.unseen
	o := m.see(p.g.tracker, unseen, k)
	p.g.tracker, p.g.unseen = o.to, 0
	if g.cand != none || g.returning {
		m.watches(p, k, unseen)
	}
	switch {
	case o.verdict > 0:
		m.judged(p, kitVerdicts[o.verdict-1], unseen)
		m.settle(p, kitVerdicts[o.verdict-1], o.check)
	case o.over:
		cand := kitContent[m.records[p.record].Returning.Digest]
		if g.check == checkHot && o.held && p.cool <= kitSoak {
			m.fail("the mark of %s stands, and hot has held on last-known-good for %d ticks", contentName(cand), max(p.cool, 1)-1)
		}
		m.turned(p, m.ask(p, question{kind: askClose, arg: bit(o.held)}))
		if !o.held && m.reopens(p, cand) {
			m.reach("environment")
		} else {
			p.failed |= 1 << cand
		}
	}
}

// resumes is what a guard does that has become aware that a suspension is over.
func (m *model) resumes(p *pair) {
	if p.g.quiet {
		m.enter(p) // what was measured while nobody drove is no baseline
	}
	p.g.quiet, p.g.quietSince = false, 0
}

// watches books what a guard that has something to find out has seen.
func (m *model) watches(p *pair, k look, unseen uint8) {
	gap, trial := unseen > kitSoak, m.page(p).cand != none
	count := func(n *uint8, ok bool) { // one more than the ticks from the first look to this one; 0 if it is not so
		switch {
		case !ok:
			*n = 0
		case *n == 0 || gap:
			*n = 1
		default:
			*n = min(*n+unseen, uint8(m.pace.hotSoak)+1)
		}
	}
	p.gap = p.gap || gap
	count(&p.well, k&lookReadBack != 0)
	p.once = p.once && trial || p.well > 0
	count(&p.cool, k&lookAnswers != 0 && k&lookHot == 0 && p.once)
}

// judged checks a verdict against the model's own book.
func (m *model) judged(p *pair, v bootslot.Verdict, unseen uint8) {
	g := m.page(p)
	convicts := func(check int) bool { return g.convict>>check&1 == 1 }
	switch {
	case p.gap != (v == bootslot.Inconclusive && unseen > kitSoak):
		m.fail("a trial that nobody has watched for a while ends as %s", v)
	case v != bootslot.Passed:
	case p.well <= kitSoak && convicts(checkConverged):
		m.fail("%s has passed, and the device was that for %d ticks", contentName(g.cand), max(p.well, 1)-1)
	case p.cool <= uint8(m.pace.hotSoak) && convicts(checkHot):
		m.fail("%s has passed, and hot has held for %d ticks", contentName(g.cand), max(p.cool, 1)-1)
	case p.lived < kitSoak && convicts(checkAlive):
		m.fail("%s has passed, and the agent has lived for %d ticks", contentName(g.cand), p.lived)
	}
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// reopens says that c is marked, and that the mark can reopen.
func (m *model) reopens(p *pair, c uint8) bool {
	return slices.ContainsFunc(m.records[p.record].Marks, func(k bootslot.Mark) bool {
		return k.Cause == bootslot.CauseEnvironment && slices.Contains(k.Candidates, kitRelease[c].Digest())
	})
}

// settle ends the open trial. how is the check, or by what it was cancelled.
func (m *model) settle(p *pair, v bootslot.Verdict, how uint8) {
	was := m.page(p)
	m.turned(p, m.ask(p, question{kind: askSettle, arg: uint8(slices.Index(kitVerdicts, v)), check: how}))
	m.ended(p, was, v)
}

// ended books what became of a trial.
func (m *model) ended(p *pair, was page, v bootslot.Verdict) {
	m.reach("a trial ends as " + string(v))
	is := m.page(p)
	switch {
	case v == bootslot.Passed:
		if is.lkg != was.cand {
			m.fail("%s has passed, and last-known-good is %s", contentName(was.cand), contentName(is.lkg))
		}
		p.failed &^= 1 << was.cand
		if was.convict>>checkHot&1 == 0 {
			m.reach("exempt pass")
		}
	case is.lkg != was.lkg:
		m.fail("a trial of %s over %s has ended as %s, and last-known-good is %s", contentName(was.cand), contentName(was.lkg), v, contentName(is.lkg))
	case v == bootslot.Inconclusive && !m.reopens(p, was.cand) && slices.ContainsFunc(m.records[p.record].Marks, func(k bootslot.Mark) bool {
		return slices.Contains(k.Candidates, kitRelease[was.cand].Digest())
	}):
		p.failed |= 1 << was.cand
		m.reach("attempts used up")
	}
}

// unwatched reports whether the open trial has not been looked at for too long.
func (m *model) unwatched(p *pair) bool {
	tr := &m.trackers.all[p.g.tracker]
	return tr.kind == trackTrial && tr.unwatched[p.g.unseen]
}

// catchUp looks before anything is answered or written in a trial that nobody has watched for too long.
func (m *model) catchUp(p *pair) {
	if m.unwatched(p) {
		m.reach("a guard that was stopped in its trial looks first")
		m.guardLooks(p)
	}
}

// guardTurn is the guard's round: it looks, and drives if it is to.
func (m *model) guardTurn(p *pair) {
	if p.g.life != running {
		return
	}
	m.guardLooks(p)
	m.catchUp(p)
	driver := m.heard(p).Driver(m.pace.now(), m.pace.tick, kitGeneration, m.pace.at(p.g.since), p.g.quiet)
	if driver != bootslot.GuardDrives {
		return
	}
	c := m.page(p).eff
	m.drives(p, theGuard, c, true)
	if mask := p.dev ^ c; mask != 0 && !p.away {
		p.g.hand = hand{stage: taken, content: c, mask: mask, leased: true}
	}
}

// drives checks what a process has just decided to drive to. leased says that it goes by the guard's word.
func (m *model) drives(p *pair, who int, c uint8, leased bool) {
	p.aims[who] = c + 1
	g, name := m.page(p), [...]string{"the agent", "the guard"}[who]
	switch {
	case p.suspend == suspendRested:
		m.fail("%s drives although the repair is suspended", name)
	case who == theAgent && leased && !p.a.current && p.a.hand.age == 0:
		m.reach("the guard decides while a lease is young")
	case leased && c != g.eff:
		m.fail("%s drives to %s, effective is %s", name, contentName(c), contentName(g.eff))
	case !leased && c != g.lkg:
		m.fail("%s drives to %s without the guard, last-known-good is %s", name, contentName(c), contentName(g.lkg))
	case c == g.cand && m.unwatched(p):
		m.fail("%s drives to %s in a trial that nobody watches", name, contentName(c))
	case c != g.cand && p.failed>>c&1 == 1:
		m.fail("%s drives to %s, which has failed", name, contentName(c))
	}
	if who == theGuard && c == g.cand {
		m.reach("the guard drives in a trial")
	}
}

// answers reports whether the guard answers the agent, and an operator.
func (p *pair) answers() bool { return p.g.life == running && !p.mute }

// decisionKey and decisionMade are Decide's question and answer, told in small.
type decisionKey struct {
	a        agentMemory
	answered bool
	eff, lkg uint8
	ends     uint8
	good     bool
	suspend  uint8
}

type decisionMade struct {
	a      agentMemory
	drives string
}

// agentLooks is what the agent does first in a cycle: the lease, and the decision.
func (m *model) agentLooks(p *pair) {
	k := decisionKey{a: p.a, answered: p.answers(), suspend: p.suspend}
	if k.answered {
		m.catchUp(p)
	}
	g := m.page(p)
	k.a.life, k.a.answered, k.a.hand = running, k.answered, hand{}
	k.a.again = false
	k.eff, k.lkg, k.good = g.eff, g.lkg, g.good
	if g.cand != none {
		k.ends = m.trackers.all[p.g.tracker].ends[p.g.unseen]
	}
	d, ok := m.decisions[k]
	if !ok {
		d = m.decide(k)
		m.decisions[k] = d
	}
	if d.a.rested && !p.a.rested && p.suspend == suspendRepair && p.a.saw != d.a.home {
		m.fail("the agent leaves the device alone, which was %s", contentName(p.a.saw))
	}
	switch waits := d.drives == status.DrivesNot; {
	case p.g.life == dead && d.drives == status.DrivesProven && !p.a.current:
		m.reach("the agent drives to a record that is newer than its lease")
	case d.drives == status.DrivesProven, d.drives == status.DrivesRecord:
		m.reach("the agent drives to " + d.drives)
	case waits && d.a.rested:
		m.reach("the agent leaves the device alone")
	case waits && d.a.has:
		m.reach("the agent waits for a silent guard's trial")
	}
	p.a = d.a
}

// decide asks Decide.
func (m *model) decide(k decisionKey) decisionMade {
	a := k.a
	f := Facts{Now: m.pace.now(), LeaseAt: m.pace.now(), Fallback: kitProfile.Fallback, Profile: kitProfile, Interval: m.pace.tick,
		RepairSuspended: k.suspend >= suspendRepair, RepairRested: k.suspend == suspendRested}
	if k.answered {
		f.Lease = &api.Lease{Generation: kitGeneration, Fields: kitRelease[k.eff].Fields, Proven: kitRelease[k.lkg].Fields, Instance: "this run",
			TrialEndsInSeconds: m.pace.ticks(int(k.ends)).Seconds()}
	} else {
		f.Record = &Record{Generation: kitGeneration, Trial: k.eff != k.lkg}
		if k.good {
			f.Record.Fields = kitRelease[k.lkg].Fields
		}
	}
	if a.saw != none {
		f.Observed, f.ObservedAt = kitRelease[a.saw].Fields, m.pace.at(a.sawAt)
	}
	mem := Memory{Started: m.pace.at(a.started), Silent: a.silent > 0, SilentSince: m.pace.at(a.silent), Settled: a.settled, SettledSince: m.pace.at(a.settledSince), Rested: a.rested}
	if a.home != none {
		mem.Home = kitRelease[a.home].Fields
	}
	if a.has {
		mem.LeaseAt = m.pace.ago(a.age)
		mem.Lease = &api.Lease{Generation: generation(a.current), Fields: kitRelease[a.fields].Fields, Proven: kitRelease[a.proven].Fields,
			Instance: "this run", TrialEndsInSeconds: m.pace.ticks(int(a.ends)).Seconds()}
		if !a.ours {
			mem.Lease.Instance = "another run"
		}
	}
	mem, act := Decide(mem, f)
	if l := mem.Lease; l != nil {
		a.has, a.started = true, 0
		a.current, a.ours = l.Generation == kitGeneration, l.Instance == "this run"
		a.fields, a.proven = contentOf(l.Fields), contentOf(l.Proven)
		a.age, a.ends = m.pace.age(mem.LeaseAt), uint8(time.Duration(l.TrialEndsInSeconds)*time.Second/m.pace.tick)
		a.forget()
	}
	a.silent = m.pace.stored(mem.SilentSince, maxStarted)
	if a.settled, a.rested = mem.Settled, mem.Rested; m.suspends {
		a.home = contentOf(mem.Home)
	}
	if a.settledSince = 0; a.settled {
		a.settledSince = m.pace.stored(mem.SettledSince, maxQuiet)
	}
	if act.Drives != status.DrivesNot {
		a.hand = hand{stage: decided, content: contentOf(act.Fields), age: m.pace.age(act.At), leased: act.Drives == status.DrivesEffective}
	}
	return decisionMade{a, act.Drives}
}

// forget lets go of what a lease said of a trial once that is over.
func (a *agentMemory) forget() {
	if a.age >= a.ends {
		a.fields, a.age, a.ends = a.proven, 0, 0
	}
}

// agentAsks is what comes next: the wish, if the guard has answered.
func (m *model) agentAsks(p *pair) {
	if p.a.life != running || !p.answers() || !p.a.answered || p.declared == none {
		return
	}
	m.catchUp(p)
	q := question{kind: askAdmit, wish: p.declared, number: p.number, obstacle: p.away || p.suspend != suspendNothing || p.g.quiet}
	if m.trackers.all[p.g.tracker].kind == trackRest {
		q.rest, q.gap = p.g.tracker, p.g.unseen
	}
	was, r := m.page(p), m.ask(p, q)
	p.g.wish, p.g.wishNumber = p.declared, p.number
	if !r.changed {
		return
	}
	m.turned(p, r)
	p.a.again = true
	switch is := m.page(p); {
	case was.cand != none:
		m.ended(p, was, bootslot.Cancelled)
	case is.cand != none:
		m.opened(p, is)
	}
}

// agentBeats reads the lease again if it is another one by the wish, and sends the heartbeat.
func (m *model) agentBeats(p *pair) {
	if p.a.life != running {
		return
	}
	if p.a.again {
		m.agentLooks(p)
	}
	if p.a.has && p.a.silent == 0 && p.answers() {
		h, current := m.heard(p), p.a.current && p.a.ours
		h.Beat(m.pace.now(), generation(p.a.current), current)
		m.hears(p, h)
		if current && m.page(p).cand != none {
			if p.lives == 0 {
				p.lives = 1
			}
			p.lived = p.lives - 1
		}
	}
}

// opened checks a trial that has just opened.
func (m *model) opened(p *pair, is page) {
	m.reach("a trial opens")
	switch {
	case p.suspend != suspendNothing || p.away:
		m.fail("a trial of %s opens although it is suspended, or the device is away", contentName(is.cand))
	case is.eff != is.cand:
		m.fail("a trial of %s opens, and effective is %s", contentName(is.cand), contentName(is.eff))
	case p.failed>>is.cand&1 == 0:
	case is.leave:
		p.failed &^= 1 << is.cand
		m.reach("what has failed is tried once more, with leave")
	default:
		m.fail("a trial of %s opens, which has failed", contentName(is.cand))
	}
}

// agentDrives takes the target and looks at the device.
func (m *model) agentDrives(p *pair) {
	if p.a.life != running {
		return
	}
	h := &p.a.hand
	if h.stage == decided && !(Action{At: m.pace.ago(h.age)}).fresh(m.pace.now()) {
		m.reach("a cycle that was stopped decides anew")
		m.agentLooks(p)
	}
	p.a.sees(m, p)
	if h.stage != decided {
		return
	}
	m.drives(p, theAgent, h.content, h.leased)
	t := Action{At: m.pace.ago(h.age)}.target()
	h.stage, h.mask, h.age = taken, p.dev^h.content, m.pace.age(t.ReadAt)
	if p.away || h.mask == 0 {
		*h = hand{}
	}
}

// sees notes what a cycle saw of the device. It matters only to a suspension.
func (a *agentMemory) sees(m *model, p *pair) {
	a.saw, a.sawAt = none, 0
	if m.suspends && !p.away {
		a.saw, a.sawAt = p.dev, 1
	}
}

// send puts on its way what a process has in hand.
func (m *model) send(p *pair, who int, h *hand) {
	if (device.Target{ReadAt: m.pace.ago(h.age)}).Expired(m.pace.now()) {
		m.reach("a target that has become too old is not sent")
	} else {
		p.air[who] = flight{mask: h.mask, content: h.content & h.mask, age: h.age}
	}
	*h = hand{}
}

// land is what the device does with a write that has come.
func (m *model) land(p *pair, who int) {
	f := p.air[who]
	switch {
	case f.age == stuck:
		m.reach("a write is carried out when the device no longer hangs")
	case f.age > 1:
		m.fail("a write arrives %d ticks after its target was read", f.age)
	case f.age == 1:
		m.reach("a write arrives late")
	}
	p.dev = p.dev&^f.mask | f.content
	p.air[who] = flight{}
	if who == theAgent && p.a.life == running {
		p.a.sees(m, p)
	}
}

// calm is what happens next if the adversary does nothing.
func (m *model) calm(p *pair) {
	for who := range p.air {
		if f := &p.air[who]; f.mask != 0 && !f.late && !p.away {
			m.land(p, who)
			return
		}
	}
	switch {
	case p.g.life == running && p.g.hand.stage == taken:
		m.send(p, theGuard, &p.g.hand)
		return
	case p.a.life == running && p.a.hand.stage == taken:
		m.send(p, theAgent, &p.a.hand)
		return
	}
	for before := *p; p.turn != turnEnd; {
		switch m.order[p.turn] {
		case turnGuard:
			m.guardTurn(p)
		case turnLook:
			if p.a.life == running && p.a.hand.stage == 0 { // else a cycle is in its middle
				m.agentLooks(p)
			}
		case turnAsk:
			m.agentAsks(p)
		case turnBeat:
			m.agentBeats(p)
		case turnDrive:
			m.agentDrives(p)
		}
		p.turn++
		if before.turn = p.turn; *p != before {
			return
		}
	}
	for who := range p.air {
		if f := &p.air[who]; f.mask != 0 && f.age > 0 && !p.away {
			m.land(p, who)
			return
		}
	}
	m.tick(p)
}

// tick lets one interval pass.
func (m *model) tick(p *pair) {
	p.turn = 0
	m.counts(p)
	p.aims = [2]uint8{}
	switch {
	case overheats(p.dev):
		p.heat = 3
	case p.heat > 0:
		p.heat--
	}
	for i := range p.air {
		switch f := &p.air[i]; {
		case f.mask == 0:
		case p.away, f.age == stuck:
			f.age = stuck
		default:
			f.age++
		}
	}
	if older(&p.g.any, m.pace.missed+1); p.g.any > m.pace.missed+1 {
		p.g.any = 0 // for so long that it is as good as none
	}
	if older(&p.g.valid, missed+1); p.g.valid > missed+1 {
		p.g.valid, p.g.current = 0, false
	}
	older(&p.g.since, m.pace.missed+1)
	older(&p.g.quietSince, maxQuiet)
	if p.g.life != dead {
		p.g.unseen = min(p.g.unseen+1, maxUnseen)
	}
	older(&p.lives, kitSoak)
	older(&p.a.started, maxStarted)
	older(&p.a.silent, maxStarted)
	older(&p.a.settledSince, maxQuiet)
	older(&p.a.sawAt, maxQuiet)
	if p.a.has {
		p.a.age++
		p.a.forget()
	}
	for _, h := range []*hand{&p.a.hand, &p.g.hand} {
		if h.stage != 0 {
			h.age = min(h.age+1, 2)
		}
	}
}

// counts checks, when a tick is over, what must not go on for long.
func (m *model) counts(p *pair) {
	count := func(n *uint8, goes bool, most uint8, what string) {
		if *n++; !goes {
			*n = 0
		}
		if *n > most {
			m.fail("for %d ticks %s", *n, what)
		}
	}
	alive := [2]bool{p.a.life == running, p.g.life == running}
	left := alive[theAgent] && p.a.rested || alive[theGuard] && p.g.quiet
	var aims []uint8 // of those who still live
	for who, aim := range p.aims {
		if aim != 0 && alive[who] {
			aims = append(aims, aim)
		}
	}
	count(&p.conflict, len(aims) == 2 && aims[0] != aims[1], maxConflict, "agent and guard have driven to different contents")
	count(&p.idle, p.aims == [2]uint8{} && !left && (alive[theAgent] || alive[theGuard]), m.pace.patience(), "nobody has driven")
	count(&p.astray, len(aims) > 0 && !p.away && !slices.Contains(aims, p.dev+1), maxAstray, "the device is something else than what it is driven to")
}

// kind is what the adversary does.
type kind uint8

const (
	letBe kind = iota
	killGuard
	stopGuard
	contGuard
	startGuard
	killAgent
	stopAgent
	contAgent
	startAgent
	cutPower
	goodbyeGuard
	goodbyeAgent
	restartGuard // the service manager does it; arg 1: an upgrade, which tells it to stop before
	restartAgent
	cutSocket
	delay // the newest write takes longer
	push
	loseClone
	raise
	retry
	rollback // arg 1: to the fallback
	suspend  // arg: what
	resume
	drift
	turnWeather
	flap
	hang
	kinds

	// On the way to a root, calm steps until …
	untilQuiet
	untilTrial
	untilVerdict
)

var kindNames = [...]string{"", "kill the guard", "stop the guard", "let the guard go on", "start the guard", "kill the agent", "stop the agent", "let the agent go on",
	"start the agent", "cut the power", "tell the guard to stop", "tell the agent to stop", "the guard is killed, and started again", "the agent is killed, and started again", "the socket is lost, or there again", "the write takes longer", "push", "lose the clone", "raise retry",
	"holdfast retry", "holdfast rollback", "holdfast suspend", "holdfast resume", "the device drifts to", "the weather turns", "a check flaps",
	"the device hangs, or answers again"}

// act is one of them.
type act struct {
	kind kind
	arg  uint8
}

func (a act) String() string {
	name := kindNames[a.kind]
	switch {
	case a.kind == push, a.kind == drift:
		name += " " + contentName(a.arg)
	case a.kind == rollback && a.arg == 1:
		name += " --to fallback"
	case a.kind == restartGuard && a.arg == 1:
		name = "the guard is upgraded"
	case a.kind == restartAgent && a.arg == 1:
		name = "the agent is upgraded"
	case a.kind == suspend && a.arg == suspendRepair:
		name += " --repair"
	}
	return name
}

// fault says that a is one of a process, or of the way to the device.
func (a act) fault() bool { return a.kind != letBe && a.kind <= delay }

// between reports whether something other than a fault is to be tried in p: between two rounds, or while something is about to be written. Anywhere
// else it comes to the same.
func (p *pair) between() bool {
	return p.turn == 0 || p.a.hand.stage == taken || p.g.hand.stage == taken || p.air != [2]flight{}
}

// do is what the adversary does in p; false if he cannot.
func (m *model) do(p *pair, a act) bool {
	if !a.fault() && !p.between() {
		return false
	}
	if a.fault() { // what is claimed for so many ticks is so after the newest one
		p.astray = 0
		if a.kind != delay {
			p.idle, p.conflict = 0, 0
		}
	}
	switch a.kind {
	case killGuard, goodbyeGuard:
		if p.g.life == dead || a.kind == goodbyeGuard && p.g.life != running {
			return false
		}
		m.reach("the guard dies " + m.phase(p))
		if a.kind == goodbyeGuard && m.page(p).cand != none {
			m.settle(p, bootslot.Cancelled, byGoodbye)
		}
		p.g, p.aims[theGuard] = noGuard, 0
	case killAgent, goodbyeAgent:
		if p.a.life == dead || a.kind == goodbyeAgent && p.a.life != running {
			return false
		}
		m.reach("the agent dies " + m.phase(p))
		if a.kind == goodbyeAgent && p.a.has && p.answers() {
			m.hears(p, bootslot.Heard{})
			if m.page(p).cand != none {
				m.settle(p, bootslot.Cancelled, byGoodbye)
			}
		}
		p.a, p.aims[theAgent] = noAgent, 0
	case stopGuard, contGuard:
		if p.g.life != running && a.kind == stopGuard || p.g.life != stopped && a.kind == contGuard {
			return false
		}
		p.g.life = map[kind]life{stopGuard: stopped, contGuard: running}[a.kind]
	case stopAgent, contAgent:
		if p.a.life != running && a.kind == stopAgent || p.a.life != stopped && a.kind == contAgent {
			return false
		}
		p.a.life = map[kind]life{stopAgent: stopped, contAgent: running}[a.kind]
	case startGuard:
		if p.g.life != dead {
			return false
		}
		if p.a.life == running && !p.a.has {
			m.reach("both dead and back, the agent first")
		}
		m.startGuard(p)
	case startAgent:
		if p.a.life != dead {
			return false
		}
		if p.g.life == running && p.g.any == 0 {
			m.reach("both dead and back, the guard first")
		}
		p.a = noAgent
		p.a.life, p.a.started = running, 1
	case restartGuard:
		return m.do(p, act{kind: []kind{killGuard, goodbyeGuard}[a.arg]}) && m.do(p, act{kind: startGuard})
	case restartAgent:
		return m.do(p, act{kind: []kind{killAgent, goodbyeAgent}[a.arg]}) && m.do(p, act{kind: startAgent})
	case cutPower:
		if p.a.life == dead && p.g.life == dead {
			return false
		}
		p.a, p.g, p.suspend = noAgent, noGuard, suspendNothing
	case delay:
		i := slices.IndexFunc(p.air[:], func(f flight) bool { return f.mask != 0 && !f.late && f.age == 0 })
		if i < 0 {
			return false
		}
		p.air[i].late = true
	case push:
		if p.declared == a.arg {
			return false
		}
		p.declared = a.arg
	case loseClone:
		if p.declared == none {
			return false
		}
		p.declared = none
	case raise:
		if p.number == 2 {
			return false
		}
		p.number++
	case retry, rollback:
		return p.answers() && m.operates(p, a)
	case suspend:
		if !p.answers() || p.suspend != suspendNothing {
			return false
		}
		if m.page(p).cand != none {
			m.settle(p, bootslot.Cancelled, bySuspend)
		}
		p.suspend, p.g.quiet, p.g.quietSince = a.arg, false, 0
	case resume: // or its time is over
		if p.suspend == suspendNothing {
			return false
		}
		p.suspend = suspendNothing
		if p.g.life == running {
			m.resumes(p)
		}
	case drift:
		if p.dev == a.arg || p.away {
			return false
		}
		p.dev, p.astray = a.arg, 0
	case turnWeather:
		p.weather = !p.weather
	case flap:
		if p.heat > 0 {
			return false
		}
		p.heat = 1
	case hang:
		p.away = !p.away
	case cutSocket:
		p.mute = !p.mute
	}
	return true
}

// operates is `holdfast retry` or `rollback`.
func (m *model) operates(p *pair, a act) bool {
	q := question{kind: askRetry, arg: a.arg, wish: p.g.wish, number: p.g.wishNumber}
	if a.kind == rollback {
		q.kind = askRollback
	} else if p.g.wish == none {
		return false
	}
	was, returning := m.page(p), m.records[p.record].Returning
	r := m.ask(p, q)
	if r.refused {
		return false
	}
	m.turned(p, r)
	switch {
	case a.kind == retry:
	case was.cand != none:
		m.ended(p, was, bootslot.Cancelled)
		p.failed |= 1 << was.cand
	case returning != nil:
		p.failed |= 1 << kitContent[returning.Digest]
	default:
		p.failed = p.failed&^(1<<m.page(p).lkg) | 1<<was.lkg
		m.reach("rollback")
	}
	return true
}

func (m *model) phase(p *pair) string {
	switch g := m.page(p); {
	case g.cand != none:
		return "in a trial"
	case g.returning:
		return "while returning"
	}
	return "at rest"
}

func (m *model) startGuard(p *pair) {
	p.g = noGuard
	p.g.life, p.g.since, p.g.quiet, p.a.ours = running, 1, p.suspend == suspendRested, false
	was, r := m.page(p), m.ask(p, question{kind: askBoot})
	if r.changed {
		m.turned(p, r)
		m.ended(p, was, bootslot.Inconclusive)
	}
	m.enter(p)
	if m.page(p).cand != none {
		m.fail("a guard starts, and a trial is open")
	}
}

// allActs are all that the adversary may do.
func (m *model) allActs() (all []act) {
	for k := letBe + 1; k < kinds; k++ {
		args := []uint8{0}
		switch k {
		case push:
			args = m.pushes
		case drift:
			args = []uint8{0, lampBit, fanBit}
		case rollback, restartGuard, restartAgent:
			args = []uint8{0, 1}
		case suspend:
			args = []uint8{suspendTrials, suspendRepair}
		}
		for _, arg := range args {
			if !slices.Contains(m.without, k) && (m.suspends || k != suspend && k != resume) {
				all = append(all, act{k, arg})
			}
		}
	}
	return all
}

func (m *model) add(p *pair, parent int32, via act) (int32, bool) {
	i, isNew := m.states.add(p)
	if isNew {
		m.parent, m.via, m.calmly = append(m.parent, parent), append(m.via, via), append(m.calmly, -1)
	}
	return i, isNew
}

// begin is a new board, and nothing declared.
func (m *model) first() pair {
	p := pair{declared: none, a: noAgent, g: noGuard}
	m.startGuard(&p)
	m.do(&p, act{kind: startAgent})
	return p
}

// root leads to a state from which the exploration begins, too.
func (m *model) root(way []act) int32 {
	p := m.first()
	i, _ := m.add(&p, -1, act{})
	step := func() bool {
		m.trace = func() string { return m.path(i) + "\n  next, on the way to a root" }
		m.calm(&p)
		j, isNew := m.add(&p, i, act{})
		i = j
		return isNew
	}
	for _, a := range way {
		switch a.kind {
		case untilQuiet:
			for step() || p.turn != 0 {
			}
		case untilTrial, untilVerdict:
			for n := 0; (m.page(&p).cand == none) == (a.kind == untilTrial); n++ {
				if step(); n > 10_000 {
					m.t.Fatalf("model %s: the way to its root: no %s", m.name, map[kind]string{untilTrial: "trial", untilVerdict: "verdict"}[a.kind])
				}
			}
		default:
			if !m.do(&p, a) {
				m.t.Fatalf("model %s: the way to its root: %s is not possible", m.name, a)
			}
			i, _ = m.add(&p, i, a)
		}
	}
	return i
}

// explore visits every state to which at most m.acts acts of the adversary lead, with as many calm steps between them as there are.
func (m *model) explore(t testing.TB) {
	began := time.Now()
	m.prepare(t)
	var level []int32
	for _, way := range append([][]act{nil}, m.roots...) {
		level = append(level, m.root(way))
	}
	all := m.allActs()
	var sizes []int
	for n := 0; n <= m.acts && !m.broken; n++ {
		var next []int32
		before := m.states.n
		for _, i := range level {
			m.follow(i, n < m.acts, all, &next)
		}
		sizes, level = append(sizes, m.states.n-before), next
	}
	m.cycles()
	m.components()
	t.Logf("%d states, %d transitions, %v; records %d, trackers %d, decisions %d; by acts %v; constant after at most %d steps; reached %v", m.states.n, m.transitions,
		time.Since(began).Round(time.Millisecond), len(m.records), len(m.trackers.all), len(m.decisions), sizes, m.longest, m.probes)
}

func (m *model) prepare(t testing.TB) {
	m.t, m.book, m.trackers = t, newBook(m.board), newTrackers(m.pace)
	m.decisions, m.probes, m.trace = map[decisionKey]decisionMade{}, map[string]int{}, func() string { return "" }
	m.states.seed = maphash.MakeSeed()
}

// follow visits state i and all that become of it calmly; on the way, if acts is true, the adversary does all that he can.
func (m *model) follow(i int32, acts bool, all []act, next *[]int32) {
	for m.calmly[i] < 0 && !m.broken {
		if acts {
			for _, a := range all {
				p := *m.states.at(i)
				m.trace = func() string { return m.path(i) + "\n  " + a.String() }
				if !m.do(&p, a) {
					continue
				}
				m.transitions++
				j, isNew := m.add(&p, i, a)
				if isNew {
					*next = append(*next, j)
				}
				if a.fault() {
					m.faults = append(m.faults, edge{i, j})
				}
			}
		}
		p := *m.states.at(i)
		m.trace = func() string { return m.path(i) + "\n  next" }
		m.calm(&p)
		m.transitions++
		j, _ := m.add(&p, i, act{})
		m.calmly[i] = j
		i = j
	}
}

// walk is one long life, chosen by chance: deeper than everything can be explored. Whatever has happened, it comes to rest.
func (m *model) walk(seed uint64, acts int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	all := m.allActs()
	p := m.first()
	var told []string
	m.trace = func() string { return fmt.Sprintf("  walk %d:\n%s\n  %s", seed, strings.Join(told, "\n"), m.tell(&p)) }
	for n := 0; n < acts && !m.broken; {
		for range rng.IntN(1 + rng.IntN(40)) {
			told = append(told, "  next")
			m.calm(&p)
			m.transitions++
		}
		a := all[rng.IntN(len(all))]
		if whole := p.a.life == running && p.g.life == running && !p.mute && !p.away; !whole && rng.IntN(3) > 0 {
			a = act{kind: []kind{contGuard, startGuard, contAgent, startAgent, cutSocket, hang}[rng.IntN(6)]}
			if a.kind == cutSocket && !p.mute || a.kind == hang && !p.away {
				continue
			}
		}
		told = append(told, "  "+a.String())
		if q := p; m.do(&q, a) {
			p = q
			m.transitions++
			n++
		} else {
			told = told[:len(told)-1]
		}
	}
	var way []pair
	for at := -1; at < 0 && !m.broken; at = slices.Index(way, p) {
		way = append(way, p)
		m.calm(&p)
		m.transitions++
	}
	if !m.broken {
		m.constant(way[slices.Index(way, p):])
	}
}

// cycles checks each cycle into which the pair comes when the adversary does nothing any more: nothing but time passes in it, and the device is what it is to be.
func (m *model) cycles() {
	steps := make([]int32, m.states.n) // to the cycle, 0 unknown, -1 on the way
	for i := range m.states.n {
		var way []int32
		j := int32(i)
		for ; steps[j] == 0 && m.calmly[j] >= 0; j = m.calmly[j] {
			steps[j] = -1
			way = append(way, j)
		}
		if m.calmly[j] < 0 {
			continue // broken off
		}
		n := int32(1)
		if at := slices.Index(way, j); at >= 0 {
			var cycle []pair
			for _, k := range way[at:] {
				cycle, steps[k] = append(cycle, *m.states.at(k)), 1
			}
			m.trace = func() string { return m.path(way[at]) + "\n  and so on for ever" }
			m.constant(cycle)
			way = way[:at]
		} else {
			n = steps[j]
		}
		for _, k := range slices.Backward(way) {
			n++
			steps[k] = n
		}
		m.longest = max(m.longest, int(n)-1)
	}
}

// constant checks a cycle.
func (m *model) constant(cycle []pair) {
	first := &cycle[0]
	g := m.page(first)
	aims := [2]bool{}
	for i := range cycle {
		p := &cycle[i]
		switch {
		case p.record != first.record:
			m.fail("the record changes for ever")
		case p.dev != first.dev:
			m.fail("the device changes for ever")
		case p.air != first.air || !p.away && p.air != [2]flight{}:
			m.fail("writes for ever")
		}
		aims[theAgent], aims[theGuard] = aims[theAgent] || p.aims[theAgent] != 0, aims[theGuard] || p.aims[theGuard] != 0
	}
	lives := first.a.life == running || first.g.life == running
	left := first.suspend >= suspendRepair
	switch {
	case !lives || left:
	case !aims[theAgent] && !aims[theGuard]:
		m.fail("nobody drives, for ever")
	case aims[theAgent] && aims[theGuard] && first.answers():
		m.fail("both drive, for ever")
	case first.away:
	case first.dev != g.lkg:
		m.fail("the device stays %s, last-known-good is %s", contentName(first.dev), contentName(g.lkg))
	case first.g.life == running && (g.cand != none || g.returning):
		m.fail("the guard does not come to an end")
	case first.g.life == running && first.a.life == running && !first.mute && first.declared != none && first.suspend == suspendNothing:
		r := m.ask(first, question{kind: askAdmit, wish: first.declared, number: first.number, rest: first.g.tracker, gap: 0})
		// What held before the first attempt must hold again.
		waits := r.kind == bootslot.AwaitBaseline && first.weather && slices.ContainsFunc(m.records[first.record].Tries, func(t bootslot.Try) bool {
			return t.Baseline != nil && slices.Contains(t.Baseline.Convicting, kitCheck[checkHot])
		})
		if r.changed || r.kind != bootslot.Same && r.kind != bootslot.Held && !waits {
			m.fail("it ends with %s", r.kind)
		}
	}
}

// components checks that however often processes die, are stopped and come back the record changes only finitely often: within a strongly connected component of
// the graph of calm steps and such faults there is one record only (Tarjan).
func (m *model) components() {
	n := m.states.n
	begin := make([]int32, n+1)
	for _, e := range m.faults {
		begin[e.from+1]++
	}
	for i := range n {
		begin[i+1] += begin[i]
	}
	to, fill := make([]int32, len(m.faults)), slices.Clone(begin)
	for _, e := range m.faults {
		to[fill[e.from]] = e.to
		fill[e.from]++
	}
	next := func(i, k int32) int32 { // the kth successor
		if k == 0 {
			return m.calmly[i]
		}
		if at := begin[i] + k - 1; at < begin[i+1] {
			return to[at]
		}
		return -1
	}
	index, low, order := make([]int32, n), make([]int32, n), int32(0)
	on := make([]bool, n)
	type frame struct{ i, k int32 }
	var stack []int32
	var frames []frame
	biggest, several := 0, 0
	for s := range n {
		if index[s] != 0 {
			continue
		}
		frames = append(frames, frame{int32(s), 0})
		for len(frames) > 0 {
			f := &frames[len(frames)-1]
			i := f.i
			if f.k == 0 {
				order++
				index[i], low[i], on[i] = order, order, true
				stack = append(stack, i)
			}
			j := next(i, f.k)
			f.k++
			switch {
			case j >= 0 && index[j] == 0:
				frames = append(frames, frame{j, 0})
				continue
			case j >= 0:
				if on[j] {
					low[i] = min(low[i], index[j])
				}
				continue
			}
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				up := frames[len(frames)-1].i
				low[up] = min(low[up], low[i])
			}
			if low[i] != index[i] {
				continue
			}
			size := 0
			for {
				j := stack[len(stack)-1]
				stack, on[j] = stack[:len(stack)-1], false
				size++
				if m.states.at(j).record != m.states.at(i).record {
					m.trace = func() string { return m.path(j) + "\n and back to\n" + m.path(i) }
					m.fail("faults of processes make the record change for ever")
				}
				if j == i {
					break
				}
			}
			if biggest = max(biggest, size); size > 1 {
				several++
			}
		}
	}
	m.t.Logf("%d components of more than one state, the biggest of %d", several, biggest)
}

// path tells how state i was reached.
func (m *model) path(i int32) string {
	var lines []string
	for ; i >= 0; i = m.parent[i] {
		lines = append(lines, fmt.Sprintf("  %-36s %s", m.via[i], m.tell(m.states.at(i))))
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

func (m *model) tell(p *pair) string {
	g := m.page(p)
	s := fmt.Sprintf("turn %d, device %s, last-known-good %s, %s", p.turn, contentName(p.dev), contentName(g.lkg), m.phase(p))
	if g.cand != none {
		s += " of " + contentName(g.cand)
	}
	return s + fmt.Sprintf(", guard %d %v, agent %d %v, air %v, aims %v", p.g.life, p.g.hand, p.a.life, p.a.hand, p.air, p.aims)
}

// slow says that the race detector is at work, which has nothing to find here.
func slow() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// The contents that are pushed: the fallback, one that overheats, one that does not.
var somePushes = []uint8{0, lampBit, lampBit | fanBit | ventBit}

var (
	quickly = pace{tick: 5 * time.Second, hotSoak: kitSoak, window: 7, recover: 4, missed: missed}
	// slowly is a trial that is longer than an agent waits for a silent guard.
	slowly = pace{tick: quickly.tick, hotSoak: 10, window: 7, recover: 4, missed: 12}
	// seldom is a device that is looked at once a minute.
	seldom = pace{tick: time.Minute, hotSoak: kitSoak, window: 7, recover: 4, missed: missed}
)

// Lives that lead to a root.
var (
	wasGood    = []act{{push, 7}, {kind: untilTrial}, {kind: untilVerdict}, {kind: untilQuiet}}
	goodTrial  = []act{{push, 7}, {kind: untilTrial}}
	badTrial   = []act{{push, lampBit}, {kind: untilTrial}}
	wasBad     = []act{{push, lampBit}, {kind: untilTrial}, {kind: untilVerdict}}
	upgraded   = []act{{push, 7}, {kind: untilTrial}, {restartAgent, 1}, {kind: untilTrial}, {restartAgent, 1}, {kind: untilTrial}}
	deaf       = []act{{push, 7}, {kind: untilTrial}, {kind: cutSocket}}
	rolledBack = []act{{push, 0}, {kind: untilQuiet}, {push, 7}, {kind: untilTrial}, {kind: untilVerdict}, {kind: untilQuiet}, {kind: rollback}}
)

func models() []*model {
	fields := bootslot.Board{Fallback: kitRelease[0], Groups: [][]string{{"fan", "vent"}}, Attempts: 2}
	releases := fields
	releases.HoldRelease = true
	return []*model{
		{name: "a new board", board: fields, pace: quickly, order: guardFirst, pushes: somePushes, acts: 3, quick: 2, long: 4},
		{name: "hold: release, agent first", board: releases, pace: quickly, order: agentFirst, pushes: somePushes, acts: 2, quick: 2, long: 3,
			roots: [][]act{wasGood, goodTrial, badTrial, wasBad, rolledBack, upgraded, deaf}},
		{name: "suspensions", board: fields, pace: quickly, order: guardFirst, pushes: somePushes, acts: 2, quick: 2, long: 3, suspends: true,
			roots: [][]act{wasGood, badTrial, wasBad}},
		{name: "an interval of a minute", board: fields, pace: seldom, order: agentFirst, pushes: somePushes, acts: 2, quick: 1, long: 2, suspends: true,
			roots: [][]act{wasGood, goodTrial, wasBad, deaf}},
		{name: "long trials", board: fields, pace: slowly, order: guardFirst, pushes: somePushes, acts: 2, quick: 1, long: 2,
			roots: [][]act{goodTrial, badTrial, deaf}, without: []kind{loseClone, raise, retry, rollback}},
	}
}

func TestModel(t *testing.T) {
	var mu sync.Mutex
	states, transitions, probes := 0, 0, map[string]int{}
	t.Run("explore", func(t *testing.T) {
		for _, m := range models() {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				switch {
				case *long:
					m.acts = m.long
				case slow():
					m.acts = 1
				case testing.Short():
					m.acts = m.quick
				}
				m.explore(t)
				mu.Lock()
				defer mu.Unlock()
				states, transitions = states+m.states.n, transitions+m.transitions
				for p, n := range m.probes {
					probes[p] += n
				}
			})
		}
	})
	t.Logf("in all: %d states, %d transitions; reached %v", states, transitions, probes)
	for _, p := range mustReach {
		if probes[p] == 0 && !testing.Short() && !slow() && !t.Failed() {
			t.Errorf("never reached: %s", p)
		}
	}
}

// mustReach are the situations without which an exploration has shown little.
var mustReach = []string{
	"a trial opens", "a trial ends as passed", "a trial ends as failed", "a trial ends as inconclusive", "a trial ends as cancelled",
	"environment", "exempt pass", "attempts used up", "rollback", "what has failed is tried once more, with leave",
	"the guard dies at rest", "the guard dies in a trial", "the guard dies while returning",
	"the agent dies at rest", "the agent dies in a trial", "the agent dies while returning",
	"both dead and back, the agent first", "both dead and back, the guard first",
	"the agent waits for a silent guard's trial", "the agent drives to " + status.DrivesProven, "the agent drives to " + status.DrivesRecord,
	"the agent drives to a record that is newer than its lease", "the guard drives in a trial",
	"a guard that was stopped in its trial looks first", "the guard decides while a lease is young", "a cycle that was stopped decides anew",
	"a target that has become too old is not sent", "a write arrives late", "a write is carried out when the device no longer hangs",
	"the agent leaves the device alone", "the guard leaves the device alone",
}

func TestModelWalks(t *testing.T) {
	for _, m := range models() {
		m.suspends = true
		m.prepare(t)
		began := time.Now()
		lives := 300
		switch {
		case *long:
			lives = 10_000
		case testing.Short() || slow():
			lives = 20
		}
		for seed := range uint64(lives) {
			m.walk(seed, 100)
		}
		t.Logf("model %s: %d transitions, %v; records %d, trackers %d; reached %v", m.name, m.transitions, time.Since(began).Round(time.Millisecond),
			len(m.records), len(m.trackers.all), m.probes)
	}
}

// What decisions are made of has no wall clock in it, and nothing of the network or of git: of all that they are asked with, only what is told to people has a
// time (bootslot.Facts.At, Evidence.At), and the model asks each of those questions twice.
func TestDecisionsKnowNeitherWallClockNorNetwork(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(way string, v reflect.Type)
	walk = func(way string, v reflect.Type) {
		if seen[v] {
			return
		}
		seen[v] = true
		switch pkg := v.PkgPath(); {
		case v == reflect.TypeFor[time.Time]():
			t.Errorf("%s is a time of the wall clock", way)
			return
		case !slices.Contains([]string{"", "time", "holdfast/agent", "holdfast/bootslot", "holdfast/bootslot/api", "holdfast/device"}, pkg):
			t.Errorf("%s is of package %s", way, pkg)
		}
		switch v.Kind() {
		case reflect.Struct:
			for f := range v.Fields() {
				walk(way+"."+f.Name, f.Type)
			}
		case reflect.Map:
			walk(way, v.Key())
			walk(way, v.Elem())
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(way, v.Elem())
		case reflect.Interface, reflect.Func, reflect.Chan:
			t.Errorf("%s is a %s: who knows what is behind it", way, v.Kind())
		}
	}
	for _, v := range []any{Memory{}, Facts{}, Action{}, device.Target{}, bootslot.Heard{}, bootslot.Quiet{}, bootslot.Look{}, bootslot.Judge{}, bootslot.Rest{},
		bootslot.Recovery{}, bootslot.RestFacts{}, bootslot.Wish{}, bootslot.Board{}} {
		walk(fmt.Sprintf("%T", v), reflect.TypeOf(v))
	}
}
