package bootslot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/device"
)

// Wish is what somebody wants the device to be: a whole desired release and where it came from.
type Wish struct {
	Release  Release
	Revision string
	Origin   Origin
	Number   uint64 // `retry:` in the declared file
}

// DecisionKind is the answer to a wish.
type DecisionKind string

const (
	Same          DecisionKind = "same"     // last-known-good is what is wished, or was made so without a trial
	Held          DecisionKind = "held"     // nothing is left to try: marks (or a pending image) hold what differs
	AwaitBaseline DecisionKind = "baseline" // a trial waits until the checks have held at rest
	Waiting       DecisionKind = "waiting"  // a trial of the same change runs; this waits for its verdict
	Trying        DecisionKind = "trial"    // its trial runs
	Refused       DecisionKind = "refused"  // not now; Reason says what will change it
)

// HeldField is a field that is kept at last-known-good although something else is declared.
type HeldField struct {
	Field string `json:"field"`
	Want  string `json:"want"` // declared
	Keep  string `json:"keep"` // last-known-good's
	// Mark is the mark that holds it, 0 for an image that is not ready.
	Mark uint64 `json:"mark,omitempty"`
}

// Decision is the whole answer to a wish.
type Decision struct {
	Kind      DecisionKind `json:"decision"`
	Reason    string       `json:"reason,omitempty"`
	Candidate Release      `json:"candidate"`
	Digest    Digest       `json:"digest"` // of the candidate
	Held      []HeldField  `json:"held,omitempty"`
	Marks     []uint64     `json:"marks,omitempty"` // the marks that hold something, by ID
	// Mixed says that the candidate is of held and new fields: no revision has it.
	Mixed bool `json:"mixed,omitempty"`
	// RetryNumber is the number to write as `retry:` to try what is held once more.
	RetryNumber uint64 `json:"retryNumber,omitempty"`
	// Wait is how long pauses still refuse the trial.
	Wait time.Duration `json:"waitNanoseconds,omitempty"`
	// Awaiting says what a baseline still needs.
	Awaiting *Awaiting `json:"awaiting,omitempty"`
}

// Awaiting is what has still to come about at rest before a trial.
type Awaiting struct {
	Why string `json:"-"` // the decision's reason
	// Checks have not held for Soak yet. None: the device is not at rest, or what held before the first attempt does not hold.
	Checks []string      `json:"checks,omitempty"`
	Soak   time.Duration `json:"soakNanoseconds,omitempty"`
	// AheadIn is when the trial goes ahead without them, 0 if it waits for them.
	AheadIn time.Duration `json:"aheadInNanoseconds,omitempty"`
}

// Facts are what a decision depends on besides the ledger, as the guard sees them now.
type Facts struct {
	// Obstacle is why nothing may be tried now whatever the ledger says: suspended, the device does not answer, the
	// disk is below its floor, the ledger cannot be written. "" for none.
	Obstacle string
	// Waited is the guard uptime since the last trial ended, or since the guard started.
	Waited time.Duration
	// Rest is what the self-test says of last-known-good.
	Rest RestFacts
	// ImageReady is the sha256 of the image that is fetched and hashed; "" for none.
	ImageReady string
	Before     Readings
	At         time.Time // wall clock, for people
}

// RestFacts are the self-test of last-known-good at rest.
type RestFacts struct {
	// AtRest says that the device reads back last-known-good and nothing is returning.
	AtRest bool
	// Required are the configured required checks; Holding those of them that have held for soak.
	Required []string
	Holding  []string
	// Overdue says that the whole baseline has not come about within `recover`.
	Overdue bool
	// Why names what is missing, for people.
	Why string
	// Soak is how long a check must hold, AheadIn when a trial goes ahead without those that do not: 0 for not at all.
	Soak, AheadIn time.Duration
}

// holds reports whether check has held at rest; one that is no longer configured counts as held.
func (r RestFacts) holds(check string) bool {
	return !slices.Contains(r.Required, check) || r.AtRest && slices.Contains(r.Holding, check)
}

// Admit decides what of a wish may be tried, and is the only way to a trial. The step is nil if nothing changes.
//
// A decision never applies anything: the device is driven to what the stored ledger's Effective says.
func Admit(l Ledger, b Board, w Wish, f Facts) (Decision, *Step) {
	if l.NumberUnseen && l.Trial == nil && l.Writable() {
		return seeNumber(l, b, w, f)
	}
	d, lkg := decide(l, b, w, f)
	changed := d.Candidate.Changed(lkg)

	if t := l.Trial; t != nil {
		switch {
		case w.Release.Equal(t.Declared) && w.Number == t.Number, d.Candidate.Equal(t.Candidate):
			d.tries(*t, w)
			return d, nil
		case w.Release.Contains(t.Set):
			d.Kind, d.Reason = Waiting, "a trial of the same change runs; the newest wish is looked at after its verdict"
			return d, nil
		case t.Pinned:
			d.Kind, d.Reason = Waiting, "the trial before this one was cancelled from git, so this one runs to its verdict"
			return d, nil
		case !l.Writable():
			d.Kind, d.Reason = Refused, newerLedger(l)
			return d, nil
		}
		// Not desired any more. The cancelled trial and its empty slot are one transaction; whatever is wished instead is
		// decided again once that is stored and the device is back at rest.
		s := Settle(l, b, Cancelled, Evidence{Message: "not desired any more", ByGit: true, At: f.At})
		after, _ := decide(s.Ledger, b, w, f)
		after.Kind, after.Reason = AwaitBaseline, "the running trial is not desired any more and was cancelled"
		if len(after.Candidate.Changed(lkg)) == 0 {
			after.Kind = settledKind(after)
		}
		return after, &s
	}

	if len(changed) == 0 {
		d.Kind = settledKind(d)
		if !l.HasGood() && w.Release.Equal(b.Fallback) && l.Returning == nil && l.Writable() && f.Obstacle == "" {
			s := adopt(l, b, w, f)
			d.Held, d.Marks, d.Kind, d.Reason = nil, nil, Same, "the fallback was adopted into a slot"
			return d, &s
		}
		return d, nil
	}

	refuse := func(reason string) (Decision, *Step) {
		d.Kind, d.Reason = Refused, reason
		return d, nil
	}
	switch {
	case !l.Writable():
		return refuse(newerLedger(l))
	case l.Returning != nil:
		return refuse("the device is returning from a failed trial")
	case f.Obstacle != "":
		return refuse(f.Obstacle)
	}

	try := l.try(d.Digest, l.grantFor(w))
	if try.Count >= b.Attempts {
		return refuse(fmt.Sprintf("all %d attempts ended without a conclusion; %s to try again", b.Attempts, RetryWords(w.Number, d.RetryNumber)))
	}
	if wait := l.pause(b, try) - f.Waited; wait > 0 {
		d.Wait = wait
		return refuse(fmt.Sprintf("a pause of %v is left", wait.Round(time.Second)))
	}
	base, missing := baselineFor(try, f.Rest)
	if missing != nil {
		d.Kind, d.Reason, d.Awaiting = AwaitBaseline, missing.Why, missing
		return d, nil
	}
	s := open(l, b, w, f, d, try, base)
	d.Kind, d.Reason = Trying, "its trial runs"
	return d, &s
}

// seeNumber uses up the retry number of the first wish after a rollback that did not know it, and has the wish decided anew once that is
// stored. Nothing is tried before: a number that was raised before the rollback would lift what the operator has just put down.
func seeNumber(l Ledger, b Board, w Wish, f Facts) (Decision, *Step) {
	n := l.next()
	n.NumberUnseen = false
	n.Spent = max(n.Spent, w.Number)
	d, lkg := decide(n, b, w, f)
	d.Kind = settledKind(d)
	if len(d.Candidate.Changed(lkg)) > 0 {
		d.Kind, d.Reason = AwaitBaseline, "the declared retry number was used up by a rollback"
	}
	return d, &Step{Ledger: n}
}

// tries makes d the answer to a wish whose trial is t: held is only what t does not try. (Marks that had reopened at its opening do not count
// as reopened while it runs.)
func (d *Decision) tries(t Trial, w Wish) {
	d.Kind, d.Reason, d.Candidate, d.Digest = Trying, "its trial runs", t.Candidate, t.Digest
	v := t.Candidate.values()
	d.Held = slices.DeleteFunc(d.Held, func(h HeldField) bool { return v[h.Field] == h.Want })
	d.Marks = marksOf(d.Held)
	d.Mixed = len(d.Held) > 0
}

// marksOf lists, in order, the marks that hold something.
func marksOf(held []HeldField) []uint64 {
	var ids []uint64
	for _, h := range held {
		if h.Mark != 0 && !slices.Contains(ids, h.Mark) {
			ids = append(ids, h.Mark)
		}
	}
	slices.Sort(ids)
	return ids
}

func newerLedger(l Ledger) string {
	return fmt.Sprintf("the ledger needs a guard that writes schema %d; this one writes %d", l.MinWriter, Schema)
}

// settledKind is the decision where the candidate is last-known-good.
func settledKind(d Decision) DecisionKind {
	if len(d.Held) > 0 {
		return Held
	}
	return Same
}

// grantKey says under which leave a wish is tried: a retry number that is not spent, or a grant. Zero is none.
type grantKey struct{ number, grant uint64 }

func (k grantKey) isZero() bool { return k == grantKey{} }

// grantFor returns the leave under which w may be tried past all marks.
func (l Ledger) grantFor(w Wish) grantKey {
	switch {
	case l.Grant != nil && l.Grant.Declared == w.Release.Digest():
		return grantKey{grant: l.Grant.ID}
	case w.Number > l.Spent:
		return grantKey{number: w.Number}
	}
	return grantKey{}
}

// decide computes the candidate for w: w with the held fields at last-known-good.
func decide(l Ledger, b Board, w Wish, f Facts) (Decision, Release) {
	lkg := l.LastKnownGood(b)
	h := holding{ledger: l, board: b, facts: f, desired: w.Release, lkg: lkg, held: map[string]uint64{}}
	h.pendingImage()
	if l.grantFor(w).isZero() {
		h.toFixedPoint(w.Release.Digest())
	}
	held := h.shown()
	if ids := marksOf(held); b.HoldRelease && len(ids) > 0 {
		h.holdDifference(h.desired, ids[0])
		held = h.shown()
	}
	cand := h.candidate()
	d := Decision{Candidate: cand, Digest: cand.Digest(), Held: held, Marks: marksOf(held), RetryNumber: max(l.Spent, w.Number) + 1}
	if len(d.Held) > 0 {
		var names []string
		for _, f := range d.Held {
			names = append(names, f.Field)
		}
		d.Mixed = !cand.Equal(lkg)
		d.Reason = fmt.Sprintf("held: %s; %s to try again", strings.Join(names, ", "), RetryWords(w.Number, d.RetryNumber))
		switch {
		case len(d.Marks) == 0:
			d.Reason = "the image is not ready, or this board has no boot slots"
		case b.HoldRelease:
			d.Reason += " (hold: release is configured: what a mark holds a part of is held whole)"
		}
	}
	return d, lkg
}

// holding finds what of a desired release is held.
type holding struct {
	ledger  Ledger
	board   Board
	facts   Facts
	desired Release
	lkg     Release
	held    map[string]uint64 // field to the mark that holds it
}

// pendingImage holds an image that is not ready, and fills in last-known-good's where none is named: no `image:` means no opinion.
func (h *holding) pendingImage() {
	switch {
	case h.desired.Image == nil:
		h.desired.Image = h.lkg.Image
	case h.lkg.Image != nil && h.desired.Image.SHA256 == h.lkg.Image.SHA256:
	case h.desired.Image.SHA256 != h.facts.ImageReady:
		h.held[ImageField] = 0
	}
}

// candidate is the desired release with the held fields at last-known-good.
func (h *holding) candidate() Release {
	c := Release{Fields: h.desired.Fields.Clone(), Image: h.desired.Image}
	for field := range h.held {
		if field == ImageField {
			c.Image = h.lkg.Image
			continue
		}
		if v, ok := h.lkg.Fields[field]; ok {
			c.Fields[field] = v
		} else {
			delete(c.Fields, field)
		}
	}
	return c
}

// hold keeps field and its whole group for mark id. A mark is a better reason than an image that is not ready.
func (h *holding) hold(field string, id uint64) {
	for _, g := range h.board.group(field) {
		if h.held[g] == 0 {
			h.held[g] = id
		}
	}
}

// shown lists, in order, the held fields whose value is not the desired one.
func (h *holding) shown() []HeldField {
	want, keep, got := h.desired.values(), h.lkg.values(), h.candidate().values()
	var out []HeldField
	for _, field := range slices.Sorted(maps.Keys(h.held)) {
		if want[field] != got[field] {
			out = append(out, HeldField{Field: field, Want: want[field], Keep: keep[field], Mark: h.held[field]})
		}
	}
	return out
}

// toFixedPoint applies the marks until nothing more is held. Holding a field gives the candidate a value of
// last-known-good, by which it may come to contain another mark's set: so the candidate is looked at as well as what is
// desired, again and again. It ends because held only grows. declared is the digest of what git declares, without the image that it does not
// name: by that an operator's mark knows it.
func (h *holding) toFixedPoint(declared Digest) {
	for _, m := range h.ledger.Marks {
		if slices.Contains(m.OperatorDeclared, declared) {
			h.holdDifference(h.desired, m.ID)
		}
	}
	for n := -1; n != len(h.held); {
		n = len(h.held)
		for _, m := range h.ledger.Marks {
			if m.Retired || h.reopened(m) || len(m.Set) == 0 {
				continue
			}
			if h.desired.Contains(m.Set) || h.candidate().Contains(m.Set) {
				for field := range m.Set {
					h.hold(field, m.ID)
				}
			}
		}
	}
	c := h.candidate()
	digest := c.Digest()
	for _, m := range h.ledger.Marks {
		if slices.Contains(m.Candidates, digest) && !h.reopened(m) {
			h.holdDifference(c, m.ID)
		}
	}
}

// holdDifference holds every field in which r differs from last-known-good.
func (h *holding) holdDifference(r Release, id uint64) {
	for _, field := range r.Changed(h.lkg) {
		h.hold(field, id)
	}
}

// reopened reports whether m is of cause environment and its check has held on last-known-good since, with attempts left.
func (h *holding) reopened(m Mark) bool {
	return m.Cause == CauseEnvironment && !m.Exhausted && h.facts.Rest.holds(m.Check)
}

// try returns the count for a candidate under a leave, the zero count if there is none yet.
func (l Ledger) try(d Digest, k grantKey) Try {
	for _, t := range l.Tries {
		if t.Digest == d && t.Number == k.number && t.Grant == k.grant {
			return t
		}
	}
	return Try{Digest: d, Number: k.number, Grant: k.grant}
}

// breakerAt is how many trials in a row without a pass make the next one wait longer.
const breakerAt = 3

// pause is the guard uptime that must have passed since the last trial before try may be tried again. The first trial under a
// retry number or a grant is past pauses and breaker.
func (l Ledger) pause(b Board, try Try) time.Duration {
	if try.Count == 0 && (try.Number != 0 || try.Grant != 0) || len(b.Pauses) == 0 {
		return 0
	}
	var p time.Duration
	if try.Count > 0 {
		p = b.Pauses[min(try.Count, len(b.Pauses))-1]
	}
	if l.Streak < breakerAt {
		return p
	}
	// The breaker: at least the first pause, as long again for each trial from the third on, an hour at most.
	p = max(p, b.Pauses[0])
	for i := breakerAt; i <= l.Streak && p < breakerMax; i++ {
		p *= 2
	}
	return min(p, max(breakerMax, b.Pauses[len(b.Pauses)-1]))
}

// breakerMax bounds the breaker's pause: a board may be slow to try again, never deaf.
const breakerMax = time.Hour

// RetryWords says what to do to the declared file, in which declared stands as `retry:` (0: there is no such line), so that it has number.
func RetryWords(declared, number uint64) string {
	if declared == 0 {
		return fmt.Sprintf("write 'retry: %d'", number)
	}
	return fmt.Sprintf("raise retry: to %d", number)
}

// baselineFor returns which checks may convict in a trial of try, or what is missing for it to start.
func baselineFor(try Try, r RestFacts) (Baseline, *Awaiting) {
	if try.Baseline != nil {
		// The first baseline of a content counts for all its attempts over one last-known-good.
		var base Baseline
		for _, c := range try.Baseline.Convicting {
			if !r.holds(c) {
				return base, &Awaiting{Why: c + " held before the first attempt and must hold again"}
			}
		}
		if !r.AtRest && !r.Overdue {
			return base, r.awaiting()
		}
		for _, c := range r.Required {
			// A check that was configured since has no first baseline: it waits for its own like any other.
			known := slices.Contains(try.Baseline.Convicting, c) || slices.Contains(try.Baseline.Exempt, c)
			if !known && !r.Overdue && !slices.Contains(r.Holding, c) {
				return base, r.awaiting()
			}
			if slices.Contains(try.Baseline.Exempt, c) || !slices.Contains(r.Holding, c) {
				base.Exempt = append(base.Exempt, c)
			} else {
				base.Convicting = append(base.Convicting, c)
			}
		}
		return base, nil
	}
	var base Baseline
	for _, c := range r.Required {
		if r.AtRest && slices.Contains(r.Holding, c) {
			base.Convicting = append(base.Convicting, c)
		} else {
			base.Exempt = append(base.Exempt, c)
		}
	}
	if (r.AtRest && len(base.Exempt) == 0) || r.Overdue {
		return base, nil
	}
	return base, r.awaiting()
}

func (r RestFacts) awaiting() *Awaiting {
	a := &Awaiting{Why: cmp.Or(r.Why, "the checks have not held at rest for the soak time yet"), Soak: r.Soak, AheadIn: r.AheadIn}
	for _, c := range r.Required {
		if r.AtRest && !slices.Contains(r.Holding, c) {
			a.Checks = append(a.Checks, c)
		}
	}
	return a
}

// setOf is what candidate changes against lkg, with the whole group of each changed field.
func setOf(b Board, candidate, lkg Release) device.Fields {
	set := device.Fields{}
	v := candidate.values()
	for _, field := range candidate.Changed(lkg) {
		for _, g := range b.group(field) {
			set[g] = v[g]
		}
	}
	return set
}

// open stages a candidate in the spare slot as trying, with its change, its baseline and its attempt counted, as one value: one
// transaction stores it, so that a power cut at any moment leaves either no trial or one that is counted.
func open(l Ledger, b Board, w Wish, f Facts, d Decision, try Try, base Baseline) Step {
	n := l.next()
	lkg := l.LastKnownGood(b)
	k := l.grantFor(w)
	try.Count++
	if try.Baseline == nil {
		try.Baseline = &base
	}
	n.putTry(try)
	if !k.isZero() && try.Count == 1 {
		n.Streak = 0 // a retry clears the breaker, and its further attempts do not
	}
	slot := l.Spare()
	n.Slots[slot] = Slot{Status: SlotTrying, Release: d.Candidate, Digest: d.Digest, Declared: w.Release.Digest(), Revision: w.Revision, Origin: w.Origin}
	n.Trial = &Trial{Generation: n.Generation, Slot: slot, Candidate: d.Candidate, Digest: d.Digest, Declared: w.Release,
		Revision: w.Revision, Origin: w.Origin, Set: setOf(b, d.Candidate, lkg), Changed: d.Candidate.Changed(lkg), Baseline: base, Attempt: try.Count,
		Number: w.Number, Granted: k.grant, Pinned: l.Pin, Before: f.Before, At: f.At}
	n.Pin = false
	return Step{n, []Event{{Generation: n.Generation, At: f.At, Kind: EventTrial, Revision: w.Revision, Digest: d.Digest,
		Declared: w.Release.Digest(), Slot: slot, Fields: n.Trial.Changed, Attempt: try.Count}}}
}

// adopt puts the fallback into a slot without a trial: it is what the device is driven to already.
func adopt(l Ledger, b Board, w Wish, f Facts) Step {
	n := l.next()
	slot := l.Spare()
	n.Active = slot
	d := w.Release.Digest()
	n.Slots[slot] = Slot{Status: SlotGood, Release: w.Release, Digest: d, Declared: d, Revision: w.Revision, Origin: w.Origin, Proven: true}
	n.lastKnownGoodChanged(b, l.LastKnownGood(b))
	return Step{n, []Event{{Generation: n.Generation, At: f.At, Kind: EventAdopted, Revision: w.Revision, Digest: d, Declared: d, Slot: slot}}}
}

// putTry stores t as the most recently used count, and forgets the oldest beyond the bound.
func (l *Ledger) putTry(t Try) {
	l.Tries = slices.DeleteFunc(l.Tries, func(o Try) bool {
		return o.Digest == t.Digest && o.Number == t.Number && o.Grant == t.Grant
	})
	l.Tries = append(l.Tries, t)
	if len(l.Tries) > maxTries {
		l.Tries = slices.Delete(l.Tries, 0, len(l.Tries)-maxTries)
	}
}
