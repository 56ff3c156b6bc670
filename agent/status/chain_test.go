package status

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

// TestMain sets the time zone in which the golden files are.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestChain: what people are told of every kind of field and mark stands in testdata/chain.txt, to be read as they would.
func TestChain(t *testing.T) {
	eva := bootslot.Origin{Author: "Eva", Subject: "more light"}
	readable := func(l bootslot.Ledger) bootslot.Ledger {
		m := &l.Marks[0]
		m.At, m.Origin = at.Add(-90*time.Minute), eva
		m.Before, m.During, m.After = bootslot.Readings{"temperature": 21}, bootslot.Readings{"temperature": 41.2}, bootslot.Readings{"temperature": 30.126}
		return l
	}
	wanted := declared(bright, brightRev)
	wanted.Author, wanted.Subject = "Eva", "more light"
	failed := []bootslot.Event{
		{Kind: bootslot.EventAdopted, Digest: "0", Revision: "0000000", At: at.Add(-72 * time.Hour)},
		{Kind: bootslot.EventKind(bootslot.Passed), Digest: good.Digest(), Revision: goodRev, Fields: []string{"vent"}, At: at.Add(-48 * time.Hour)},
		{Kind: bootslot.EventTrial, Digest: bright.Digest(), Attempt: 1}, {Kind: bootslot.EventKind(bootslot.Inconclusive), Digest: bright.Digest(), Attempt: 1},
		{Kind: bootslot.EventTrial, Digest: bright.Digest(), Attempt: 2}, {Kind: bootslot.EventKind(bootslot.Failed), Digest: bright.Digest(), Mark: 6, Attempt: 2},
		{Kind: bootslot.EventStands, Digest: bright.Digest(), Mark: 6},
	}
	held := readable(marked(kept(), bootslot.CauseFailed))
	drift := func(got string) func(*Sources) {
		return func(s *Sources) { s.Agent.Report.Left = []device.Drift{{Field: "lamp", Want: "off", Got: got}} }
	}
	retired := readable(marked(kept(), bootslot.CauseFailed))
	retired.Marks[0].Retired = true
	var b strings.Builder
	for _, tt := range []struct {
		name   string
		s      Sources
		ask    any // a field's name or a mark's number
		events []bootslot.Event
	}{
		{"held by a mark", running(held, wanted), "lamp", failed},
		{"held by a mark, another revision declared, with the guard dead and no history", guardless(held, agentOf(declared(bright, "3333333c"), good)), "lamp", nil},
		{"held by a mark, and the rest of the same revision is in force", running(held, declared(bright, goodRev)), "lamp", nil},
		{"the mark itself", running(held, wanted), 6, failed},
		{"a mark that went into it", running(held, wanted), 9, append(failed, bootslot.Event{Kind: bootslot.EventStands, Digest: bright.Digest(), Mark: 9})},
		{"the environment's", running(readable(marked(kept(), bootslot.CauseEnvironment)), wanted), "lamp", nil},
		{"an operator's", running(readable(marked(kept(), bootslot.CauseOperator)), wanted), "lamp", nil},
		{"attempts used up", running(readable(marked(kept(), bootslot.CauseAttempts)), wanted), 6, nil},
		{"a mark that holds nothing", running(held, declared(good, goodRev)), 6, nil},
		{"a retired mark", running(retired, wanted), 6, nil},
		{"still returning", running(readable(returning()), wanted), "lamp", nil},
		{"an image that is not ready", running(kept(), wanted, func(s *Sources) {
			s.Guard.Decision = &bootslot.Decision{Kind: bootslot.Held, Held: []bootslot.HeldField{{Field: "lamp", Want: "on", Keep: "off"}}}
		}), "lamp", nil},

		{"nothing holds it", running(kept(), declared(good, goodRev)), "vent", failed},
		{"brought by the first release", running(kept(), declared(good, goodRev)), "lamp", []bootslot.Event{{Kind: bootslot.EventAdopted, Digest: good.Digest(), Revision: goodRev, At: at}}},
		{"the history is of something else", running(kept(), declared(good, goodRev)), "vent", append(failed[:2:2], bootslot.Event{Kind: bootslot.EventRollback, Digest: "another", Fields: []string{"vent"}, At: at})},
		{"on trial", running(trying(kept()), wanted, func(s *Sources) { s.Guard.Ledger.Trial.Origin = eva }), "lamp", nil},
		{"not tried yet", running(kept(), wanted), "lamp", nil},
		{"drifted", running(kept(), declared(good, goodRev), drift("on")), "lamp", nil},
		{"drifted, and nobody is to put it back", running(kept(), declared(good, goodRev), drift("on"), func(s *Sources) {
			s.Guard.Suspended, s.Guard.Driver = &api.SuspendedFor{SecondsLeft: 60, Repair: true, Who: "eva"}, "nobody"
		}), "lamp", nil},
		{"refused", running(kept(), declared(good, goodRev), drift("on"), func(s *Sources) { s.Agent.Report.Refused = map[string]string{"lamp": "stuck"} }), "lamp", nil},
		{"not converging", running(kept(), declared(good, goodRev), drift("true"), func(s *Sources) { s.Agent.Report.NonConvergent = []string{"lamp"} }), "lamp", nil},
		{"contended", running(kept(), declared(good, goodRev), func(s *Sources) { s.Agent.Report.Contended = []string{"lamp"} }), "lamp", nil},
		{"the device is away", running(kept(), declared(good, goodRev), func(s *Sources) { s.Agent.Report = &device.Report{Error: "refused"} }), "lamp", nil},
		{"not of the profile", running(kept(), declared(good, goodRev), func(s *Sources) {
			s.Agent.Report.Observed = &device.State{Actuators: map[string]string{"siren": "on"}}
		}), "siren", nil},
		{"nothing can be read", Sources{Now: at, Profile: house, Board: rules, GuardWhy: "it does not run", LedgerWhy: "permission denied", CloneWhy: "permission denied"}, "lamp", nil},
	} {
		v := Build(tt.s)
		var c Chain
		var ok bool
		switch ask := tt.ask.(type) {
		case string:
			c, ok = v.FieldChain(house, ask, tt.events)
		case int:
			c, ok = v.MarkChain(house, uint64(ask), tt.events)
		}
		if !ok {
			t.Errorf("%s: nothing is known of %v", tt.name, tt.ask)
		}
		fmt.Fprintf(&b, "# %s: %s\n", tt.name, c.About)
		for _, s := range c.Sentences {
			fmt.Fprintln(&b, s)
		}
		for _, s := range c.Next {
			fmt.Fprintln(&b, " >", s)
		}
		fmt.Fprintln(&b)
	}
	v := Build(running(held, wanted))
	if c, ok := v.MarkChain(house, 99, failed); ok {
		t.Errorf("of a mark that never was is told: %q", c.Sentences)
	}
	const golden = "testdata/chain.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got, lines := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(lines)) {
		if g, w := line(got, i), line(lines, i); g != w {
			t.Fatalf("%s:%d (-update writes it anew)\n got %s\nwant %s", golden, i+1, g, w)
		}
	}
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// TestChainData: the same as data, for whoever does not read sentences.
func TestChainData(t *testing.T) {
	t.Parallel()
	held := marked(kept(), bootslot.CauseFailed)
	v := Build(running(held, declared(bright, brightRev)))
	events := []bootslot.Event{{Kind: bootslot.EventTrial, Digest: "another"}, {Kind: bootslot.EventTrial, Digest: bright.Digest()}, {Kind: bootslot.EventRetry, Digest: bright.Digest()}}
	c, _ := v.FieldChain(house, "lamp", events)
	if !c.Field.Held || c.Field.Declared != "on" || c.Field.Effective != "off" || c.Field.Observed != "off" || c.Field.Driver != "agent" || c.Mark.ID != 6 || c.RetryNumber != 1 ||
		!slices.EqualFunc(c.Trials, events[1:2], func(a, b bootslot.Event) bool { return a.Kind == b.Kind && a.Digest == b.Digest }) {
		t.Errorf("%+v, %+v", c, c.Field)
	}
	if _, ok := v.FieldChain(house, "siren", nil); ok {
		t.Error("there is no siren")
	}
	if _, ok := v.MarkChain(house, 7, nil); ok {
		t.Error("there is no mark 7")
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		now, then time.Time
		want      string
	}{
		{at, at.Add(-59 * time.Second), "59s ago"}, {at, at.Add(-61 * time.Second), "1m1s ago"}, {at, at.Add(-59 * time.Minute), "59m ago"},
		{at, at.Add(-90 * time.Minute), "1h30m ago"}, {at, at.Add(-47 * time.Hour), "47h ago"}, {at, at.Add(-49 * time.Hour), "2d ago"},
		{at, at.Add(time.Second), ""}, {at, time.Unix(200, 0), ""}, {time.Unix(300, 0), time.Unix(200, 0), ""}, {at, time.Time{}, ""},
	} {
		if got := Ago(tt.now, tt.then); got != tt.want {
			t.Errorf("Ago(%v, %v) = %q, want %q", tt.now, tt.then, got, tt.want)
		}
	}
	if got := Wall(time.Unix(200, 0)); !strings.HasSuffix(got, "(the clock was not set)") {
		t.Errorf("Wall of 1970 is %q", got)
	}
}
