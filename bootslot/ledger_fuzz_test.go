package bootslot

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/device"
)

// records are ledgers as they come to stand in the files, and some that never would.
func records(t testing.TB) (all [][]byte) {
	plays := []*play{
		newPlay(t), newPlay(t, ask), newPlay(t, passing("pump"), failing("lamp")), newPlay(t, push("lamp"), try), newPlay(t, passing("pump"), push("lamp"), try, fail("hot")),
		newPlay(t, ask, passing("pump"), failing("lamp"), failing("pump lamp fan"), push("fan"), try, cut, push("vent lamp"), raise(1), grant, try, cut, rollback),
		newPlay(t, ask, passing("fan"), toFallback), newPlay(t, imageReady("aa"), passing("image=aa")),
		newPlay(t, facts(overdue(without("hot"))), push("lamp"), try, fail("wet"), environment, push("lamp"), facts(well()), try, goodbye),
	}
	whole := eventful(t)
	whole.Trial = nil
	plays = append(plays, &play{l: whole})
	for _, p := range plays {
		b, err := json.Marshal(p.l)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	last := string(all[3])
	for _, r := range [][2]string{
		{`"set":{"lamp":"on"}`, `"set":{}`}, {`"slot":"A"`, `"slot":"B"`}, {`"generation":`, `"Generation":99,"generation":`}, {`"minWriter":1`, `"minWriter":9,"minwriter":0`},
		{`"schema":1`, `"schema":7,"news":{"a":[1e400]},"slotz":null`}, {`"trying"`, `"good"`}, {`"slots":{`, `"slots":{"C":{"status":"good"},`}, {`"id":"kit"`, `"id":"\ufffd\u0000"`},
	} {
		all = append(all, []byte(strings.Replace(last, r[0], r[1], 1)))
	}
	crowded := newPlay(t, passing("pump"))
	for i := range 300 {
		crowded.l.Marks = append(crowded.l.Marks, Mark{ID: uint64(1000 + i), Set: device.Fields{"lamp": "on", "x": string(rune('a' + i))}, Candidates: make([]Digest, 100)})
	}
	b, _ := json.Marshal(crowded.l)
	return append(all, b, []byte(`{}`), []byte(`{"slots":{"A":null},"active":"A","generation":18446744073709551615,"marks":[{}],"tries":[{"count":-9}],"streak":9223372036854775807}`), []byte(`null`))
}

// wellFormed checks what every record promises, and that it comes back as it was stored.
func wellFormed(t *testing.T, l Ledger) []byte {
	t.Helper()
	if err := l.Valid(); err != nil {
		t.Fatalf("not valid: %v: %+v", err, l)
	}
	if r := l.Effective(kitBoard()); len(r.Fields) == 0 {
		t.Errorf("effective is %+v", r)
	}
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var back Ledger
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatalf("%s cannot be read back: %v", b, err)
	}
	if again, err := json.Marshal(back); err != nil || !bytes.Equal(again, b) {
		t.Errorf("%s is read back as %s, %v", b, again, err)
	}
	return b
}

// FuzzLedger: of a record that can be read, with a script of what happens to it: it is refused, or each transition leaves one that is whole, of the next generation, and keeps
// what is in force, what is marked, and what a newer guard has put there.
func FuzzLedger(f *testing.F) {
	for _, r := range records(f) {
		f.Add(r, []byte("\x00\x01\x02\x03\x04\x05\x06\x07"))
		f.Add(r, []byte("\x08\x10\x1b\x20\x33\x40\x5f\x77\x80\x88"))
	}
	f.Fuzz(func(t *testing.T, record, script []byte) {
		var l Ledger
		if json.Unmarshal(record, &l) != nil {
			return
		}
		foreign(t, record)
		if !l.Writable() || l.Valid() != nil {
			return
		}
		news := unknownKeys(record)
		b := kitBoard()
		written := wellFormed(t, l)
		for i, step := range script[:min(len(script), 32)] {
			w := Wish{Release: content([]string{"", "lamp", "pump", "fan", "lamp pump", "vent lamp", "image=aa", "lamp image=bb"}[step>>5]), Revision: "r", Number: uint64(step >> 3 & 3)}
			facts := []Facts{well(), without("hot"), overdue(without("wet")), {Obstacle: "suspended", Waited: time.Hour}}[step>>2&3]
			facts.Waited = time.Duration(i) * time.Hour
			facts.ImageReady = "aa"
			var s *Step
			switch what := step % 8; {
			case l.Trial != nil && what < 4:
				s = new(Settle(l, b, []Verdict{Passed, Failed, Inconclusive, Cancelled}[what], Evidence{Check: "hot", Goodbye: step&8 != 0, Operator: step&16 != 0, ByGit: step&32 != 0}))
			case l.Trial != nil && what == 4:
				s = Boot(l, b, time.Time{})
			case l.Returning != nil && what < 4:
				s = new(CloseReturning(l, b, step&16 != 0, Evidence{}))
			case what == 5:
				if r, err := Rollback(l, b, step&16 != 0, &w, "kim", time.Time{}); err == nil {
					s = &r
				}
			case what == 6:
				if r, err := Retry(l, b, w, "kim", time.Time{}); err == nil {
					s = &r
				}
			default:
				var d Decision
				d, s = Admit(l, b, w, facts)
				if !slices.Contains([]DecisionKind{Same, Held, AwaitBaseline, Waiting, Trying, Refused}, d.Kind) || len(d.Candidate.Fields) == 0 {
					t.Fatalf("Admit = %+v", d)
				}
			}
			if s == nil {
				continue
			}
			next := s.Ledger
			if next.Generation != l.Generation+1 || next.Spent < l.Spent || next.ID != l.ID {
				t.Fatalf("step %d: %+v after %+v", i, next, l)
			}
			written = wellFormed(t, next)
			if len(next.Marks) > MaxMarks && len(next.Marks) >= len(l.Marks) && !reflect.DeepEqual(next.Marks, l.Marks) {
				t.Errorf("%d marks after %d", len(next.Marks), len(l.Marks))
			}
			if opened := next.Trial != nil && l.Trial == nil; opened {
				if !reflect.DeepEqual(next.LastKnownGood(b), l.LastKnownGood(b)) || next.Trial.Candidate.Equal(l.LastKnownGood(b)) {
					t.Errorf("a trial of %v opens on %v, then %v", next.Trial.Candidate, l.LastKnownGood(b), next.LastKnownGood(b))
				}
			}
			if failed := next.Returning != nil && l.Returning == nil; failed {
				its := func(m Mark) bool { return m.ID == next.Returning.Mark && m.Set.Equal(l.Trial.Set) }
				if !slices.ContainsFunc(next.Marks, its) || !next.LastKnownGood(b).Equal(l.LastKnownGood(b)) {
					t.Errorf("failed without its mark: %+v", next)
				}
			}
			l = next
		}
		var out map[string]json.RawMessage
		if err := json.Unmarshal(written, &out); err != nil {
			t.Fatal(err)
		}
		for k := range news {
			if _, ok := out[k]; !ok {
				t.Errorf("what a newer guard keeps under %q is gone: %s", k, written)
			}
		}
	})
}

// unknownKeys are the keys of a record that this code has no field for.
func unknownKeys(record []byte) map[string]bool {
	var m map[string]json.RawMessage
	_ = json.Unmarshal(record, &m)
	news := map[string]bool{}
	for k := range m {
		// The decoder takes a key for a field whatever its case.
		var l Ledger
		b, _ := json.Marshal(map[string]any{k: []int{}})
		if json.Unmarshal(b, &l) == nil && len(l.unknown) == 1 {
			news[k] = true
		}
	}
	return news
}

// foreign checks that an open trial in any record is settled by its fixed part, and that nothing else in it is touched.
func foreign(t *testing.T, record []byte) {
	out, open, err := SettleForeign(record)
	if err != nil {
		return
	}
	if !open {
		if !bytes.Equal(out, record) {
			t.Errorf("nothing is open in %s, and it becomes %s", record, out)
		}
		return
	}
	var before, after Ledger
	if err := json.Unmarshal(record, &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &after); err != nil {
		t.Fatalf("%s is settled to %s: %v", record, out, err)
	}
	b := kitBoard()
	if after.Trial != nil || after.Active != before.Active || !reflect.DeepEqual(after.LastKnownGood(b), before.LastKnownGood(b)) || after.Generation <= before.Generation {
		t.Errorf("%s is settled to %s", record, out)
	}
	if len(after.Marks) != len(before.Marks) {
		t.Errorf("%d marks, then %d", len(before.Marks), len(after.Marks))
	}
}
