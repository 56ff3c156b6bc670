package bootslot

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/device"
)

// eventful is a ledger in which everything is in use.
func eventful(t testing.TB) Ledger {
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	p := newPlay(t, ask, imageReady("aa"), passing("image=aa"), mixedPast, raise(2), rollback, passing("pump"), interrupted("vent"),
		push("vent lamp"), raise(3), grant)
	p.f.Before, p.f.At = Readings{"temperature": 21.5}, at
	p.do(try, settle(Failed, Evidence{Check: "hot", Message: "m", During: Readings{"light": 3}, At: at, Who: "w"}))
	l := p.l
	// Trial and returning are never open together; the form of the record does not know that.
	l.Trial = newPlay(t, push("lamp"), try).l.Trial
	l.Pin, l.NumberUnseen = true, true
	return l
}

func TestLedgerJSON(t *testing.T) {
	l := eventful(t)
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && v.Field(i).IsZero() {
			t.Errorf("the ledger of this test does not use %s", f.Name)
		}
	}
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var back Ledger
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, l) {
		t.Errorf("read back = %+v, want %+v", back, l)
	}
	for _, broken := range []string{``, `7`, `{"slots":7}`, `{"marks":[{"id":"x"}]}`, `{"trial":[]}`} {
		if err := json.Unmarshal([]byte(broken), &back); err == nil {
			t.Errorf("Unmarshal(%s): no error", broken)
		}
	}
}

// A newer guard's fields, wherever they are in the record, outlive what an older one does with it.
func TestUnknownFieldsStay(t *testing.T) {
	b, err := json.Marshal(eventful(t))
	if err != nil {
		t.Fatal(err)
	}
	var m any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	// Objects that are no part of the ledger's own: content, readings, baselines.
	closed := []string{"release", "candidate", "declared", "set", "fields", "image", "baseline", "before", "during", "after", "slots"}
	n := 0
	var sow func(v any, key string)
	sow = func(v any, key string) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				sow(e, key)
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				sow(v[k], k)
			}
			if !slices.Contains(closed, key) {
				n++
				v["news"] = map[string]any{"n": n}
			}
		}
	}
	sow(m, "")
	if b, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	var l Ledger
	if err := json.Unmarshal(b, &l); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "news after a round trip", strings.Count(string(out), `"news"`), n)
	if n < 12 {
		t.Errorf("only %d objects were given news", n)
	}

	// Transitions carry them, too: whatever part of the record is still there.
	l.Trial = nil
	p := &play{t: t, l: l, b: kitBoard(), f: well(), w: Wish{Release: content("pump"), Number: 4}}
	p.l.NumberUnseen = false
	p.do(stands, push("vent"), raise(0), try, cut)
	parts := map[string]unknown{"ledger": p.l.unknown, "slot": p.l.Slots[p.l.Active].unknown, "previous": p.l.Previous.unknown}
	for _, m := range p.l.Marks {
		parts["mark "+fmt.Sprint(m.ID)] = m.unknown
	}
	for _, t := range p.l.Tries {
		parts["try of "+nameOf(t.Digest)] = t.unknown
	}
	for part, u := range parts {
		if len(u) != 1 {
			t.Errorf("%s: unknown fields after transitions = %v, want its news", part, u)
		}
	}
	if len(parts) < 6 {
		t.Errorf("only %d parts", len(parts))
	}
}

// A ledger keeps the demands of the newest guard that wrote it, and makes this one's.
func TestSchema(t *testing.T) {
	tests := []struct {
		name              string
		schema, minWriter int
		wantSchema        int
		wantMinWriter     int
	}{
		{"older", 0, 0, Schema, MinWriter},
		{"ours", Schema, MinWriter, Schema, MinWriter},
		{"newer, and we may write", Schema + 3, Schema, Schema + 3, Schema},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlay(t)
			p.l.Schema, p.l.MinWriter = tt.schema, tt.minWriter
			check(t, "Writable", p.l.Writable(), true)
			p.do(ask)
			check(t, "schema", p.l.Schema, tt.wantSchema)
			check(t, "minWriter", p.l.MinWriter, tt.wantMinWriter)
		})
	}
	check(t, "Writable by a newer guard only", Ledger{MinWriter: Schema + 1}.Writable(), false)
}

// Steps are values: the ledger that one came of is as it was, however often it is used.
func TestStepsShareNothing(t *testing.T) {
	p := newPlay(t, ask, passing("pump"), failing("lamp"), failing("pump lamp fan"), push("fan"), try, cut, push("vent lamp"), raise(1))
	var all []Ledger
	var texts []string
	keep := func(p *play) {
		b, err := json.Marshal(p.l)
		if err != nil {
			t.Fatal(err)
		}
		all, texts = append(all, p.l), append(texts, string(b))
	}
	p.do(keep, try, keep, fail("hot"), keep, stands, keep, push("fan"), try, keep, cut, keep, try, keep, cut, keep, toFallback, keep)
	for i, l := range all {
		b, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if string(b) != texts[i] {
			t.Errorf("ledger %d = %s, was %s", i, b, texts[i])
		}
	}
}

// A record that no transition can have made is refused, rather than gone on from.
func TestValid(t *testing.T) {
	trying := func(t *testing.T) Ledger { return newPlay(t, passing("pump"), failing("fan"), push("lamp"), try).l }
	for _, tt := range []struct {
		name  string
		spoil func(l *Ledger)
		valid bool
	}{
		{"as it was made", func(*Ledger) {}, true},
		{"new", func(l *Ledger) { *l = NewLedger("id") }, true},
		{"more marks than this one makes", func(l *Ledger) { l.Marks = slices.Repeat(l.Marks, 300) }, true},
		{"a cause that is not known", func(l *Ledger) { l.Marks[0].Cause = "news" }, true},
		{"generation 0", func(l *Ledger) { l.Generation = 0 }, false},
		{"no generation after it", func(l *Ledger) { l.Generation = 1<<64 - 1 }, false},
		{"a third slot", func(l *Ledger) { l.Slots["C"] = Slot{Status: SlotEmpty} }, false},
		{"an active slot that is empty", func(l *Ledger) { l.Slots[l.Active] = Slot{Status: SlotEmpty} }, false},
		{"an active slot without content", func(l *Ledger) { l.Slots[l.Active] = Slot{Status: SlotGood} }, false},
		{"no such active slot", func(l *Ledger) { l.Active = "C" }, false},
		{"previous without content", func(l *Ledger) { l.Previous = &Slot{Status: SlotGood} }, false},
		{"a trial in the active slot", func(l *Ledger) { l.Trial.Slot = l.Active }, false},
		{"a trial in no slot", func(l *Ledger) { l.Trial.Slot = "" }, false},
		{"a trial of no change", func(l *Ledger) { l.Trial.Set = nil }, false},
		{"a trial of nothing", func(l *Ledger) { l.Trial.Candidate = Release{} }, false},
		{"a trial of another content", func(l *Ledger) { l.Trial.Candidate = content("vent fan") }, false},
		{"a trial while returning", func(l *Ledger) { l.Returning = &Returning{Mark: 1} }, false},
		{"a mark of nothing", func(l *Ledger) { l.Marks[0].Set = device.Fields{} }, false},
	} {
		l := trying(t)
		tt.spoil(&l)
		if err := l.Valid(); (err == nil) != tt.valid {
			t.Errorf("%s: Valid() = %v", tt.name, err)
		}
	}
}
