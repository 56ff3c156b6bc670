package bootslot

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/device"
)

// The kit of this package's tests: a device with the fields lamp, pump, fan and vent, of which fan and vent are a group. A content is written
// as the fields that are on: "lamp fan". The fallback is "".

var kitFields = []string{"fan", "lamp", "pump", "vent"}

func content(on string) Release {
	r := Release{Fields: device.Fields{}}
	for _, f := range kitFields {
		r.Fields[f] = "off"
	}
	for f := range strings.FieldsSeq(on) {
		if sha, ok := strings.CutPrefix(f, "image="); ok {
			r.Image = &Image{SHA256: sha}
			continue
		}
		r.Fields[f] = "on"
	}
	return r
}

// on is the inverse of content.
func on(r Release) string {
	var out []string
	for _, f := range kitFields {
		switch r.Fields[f] {
		case "on":
			out = append(out, f)
		case "off":
		default:
			out = append(out, f+"="+r.Fields[f])
		}
	}
	if r.Image != nil {
		out = append(out, "image="+r.Image.SHA256)
	}
	return strings.Join(out, " ")
}

func digestOf(on string) Digest { return content(on).Digest() }

func kitBoard() Board {
	return Board{Fallback: content(""), Groups: [][]string{{"fan", "vent"}}, Attempts: 3,
		Pauses: []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}}
}

// The required checks of the kit.
var kitChecks = []string{"hot", "wet", AgentAlive}

// well are the facts of a board on which nothing stands in the way of a trial.
func well() Facts {
	return Facts{Waited: 24 * time.Hour, Rest: RestFacts{AtRest: true, Required: kitChecks, Holding: kitChecks}}
}

// without is well, but for checks that do not hold at rest.
func without(checks ...string) Facts {
	f := well()
	f.Rest.Holding = slices.DeleteFunc(slices.Clone(kitChecks), func(c string) bool { return slices.Contains(checks, c) })
	return f
}

func overdue(f Facts) Facts {
	f.Rest.Overdue = true
	return f
}

// play is a board's life, told step by step.
type play struct {
	t      testing.TB
	l      Ledger
	b      Board
	w      Wish
	f      Facts
	d      Decision // the last answer
	events []Event
}

// act is one step of a play.
type act func(p *play)

func newPlay(t testing.TB, acts ...act) *play {
	t.Helper()
	p := &play{t: t, l: NewLedger("kit"), b: kitBoard(), f: well(), w: Wish{Release: content(""), Revision: "r0"}}
	p.do(acts...)
	return p
}

func (p *play) do(acts ...act) *play {
	p.t.Helper()
	for _, a := range acts {
		a(p)
	}
	return p
}

// take makes a step the ledger, as the guard does once it is stored.
func (p *play) take(s Step) {
	p.t.Helper()
	if s.Ledger.Generation != p.l.Generation+1 {
		p.t.Fatalf("a step goes from generation %d to %d, want the next one", p.l.Generation, s.Ledger.Generation)
	}
	for _, e := range s.Events {
		if e.Generation != s.Ledger.Generation {
			p.t.Errorf("event %s has generation %d, want %d", e.Kind, e.Generation, s.Ledger.Generation)
		}
	}
	p.l, p.events = s.Ledger, append(p.events, s.Events...)
}

// push declares a content, under the retry number that is declared already.
func push(on string) act { return func(p *play) { p.w.Release = content(on) } }

// raise declares a retry number.
func raise(n uint64) act { return func(p *play) { p.w.Number = n } }

// facts are how the guard sees the board from now on.
func facts(f Facts) act { return func(p *play) { p.f = f } }

func board(set func(b *Board)) act { return func(p *play) { set(&p.b) } }

// ask has the wish decided.
func ask(p *play) {
	p.t.Helper()
	d, s := Admit(p.l, p.b, p.w, p.f)
	p.d = d
	if s != nil {
		p.take(*s)
	}
}

// try asks, and a trial must open.
func try(p *play) {
	p.t.Helper()
	before := p.l.Trial
	ask(p)
	if before != nil || p.l.Trial == nil {
		p.t.Fatalf("no trial of %q opened: %s, %s", on(p.w.Release), p.d.Kind, p.d.Reason)
	}
}

func settle(v Verdict, ev Evidence) act {
	return func(p *play) {
		p.t.Helper()
		if p.l.Trial == nil {
			p.t.Fatalf("%s: no trial is open", v)
		}
		p.take(Settle(p.l, p.b, v, ev))
	}
}

var (
	pass    = settle(Passed, Evidence{})
	cut     = settle(Inconclusive, Evidence{Message: "cut"})
	suspend = settle(Cancelled, Evidence{Message: "suspended"})
	goodbye = settle(Cancelled, Evidence{Goodbye: true})
)

func fail(check string) act {
	return settle(Failed, Evidence{Check: check, Message: check + " failed"})
}

func closing(held bool) act {
	return func(p *play) {
		p.t.Helper()
		if p.l.Returning == nil {
			p.t.Fatal("nothing is returning")
		}
		p.take(CloseReturning(p.l, p.b, held, Evidence{During: Readings{"temperature": 21}}))
	}
}

var (
	stands      = closing(true)
	environment = closing(false)
)

// failing is a whole trial that fails and stands, passing one that passes, interrupted one that is cut.
func failing(on string) act {
	return func(p *play) { p.t.Helper(); p.do(push(on), try, fail("hot"), stands) }
}
func passing(on string) act { return func(p *play) { p.t.Helper(); p.do(push(on), try, pass) } }
func interrupted(on string) act {
	return func(p *play) { p.t.Helper(); p.do(push(on), try, cut) }
}

func back(toFallback bool, known bool) act {
	return func(p *play) {
		p.t.Helper()
		var w *Wish
		if known {
			w = &p.w
		}
		s, err := Rollback(p.l, p.b, toFallback, w, "kim", time.Time{})
		if err != nil {
			p.t.Fatalf("Rollback: %v", err)
		}
		p.take(s)
	}
}

var (
	rollback   = back(false, true)
	toFallback = back(true, true)
)

// grant is `holdfast retry`.
func grant(p *play) {
	p.t.Helper()
	s, err := Retry(p.l, p.b, p.w, "kim", time.Time{})
	if err != nil {
		p.t.Fatalf("Retry: %v", err)
	}
	p.take(s)
}

// held lists the fields that a decision holds.
func held(d Decision) string {
	var out []string
	for _, h := range d.Held {
		out = append(out, h.Field)
	}
	return strings.Join(out, " ")
}

// marks tells a ledger's marks in one line each: set, cause, what else.
func marks(l Ledger) []string {
	var out []string
	for _, m := range l.Marks {
		var set []string
		for _, k := range sortedKeys(m.Set) {
			set = append(set, k+"="+m.Set[k])
		}
		s := strings.Join(set, " ") + ": " + string(m.Cause)
		if m.Retired {
			s += ", retired"
		}
		if m.Exhausted {
			s += ", exhausted"
		}
		out = append(out, s)
	}
	return out
}

func slotsOf(l Ledger) string {
	s := string(l.Slots[SlotA].Status) + " " + string(l.Slots[SlotB].Status)
	if l.Active != "" {
		s += ", active " + string(l.Active)
	}
	if l.Previous != nil {
		s += ", previous " + on(l.Previous.Release)
	}
	return s
}

func same[T any](t testing.TB, call string, got, want T, equal bool) {
	t.Helper()
	if !equal {
		t.Errorf("%s = %v, want %v", call, got, want)
	}
}

func check[T comparable](t testing.TB, call string, got, want T) {
	t.Helper()
	same(t, call, got, want, got == want)
}

func checkList[T comparable](t testing.TB, call string, got, want []T) {
	t.Helper()
	same(t, call, got, want, slices.Equal(got, want))
}
