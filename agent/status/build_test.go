package status

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

var (
	house = device.Profile{Name: "house", Actuators: []device.Actuator{
		{Name: "vent", Allowed: []string{"on", "off"}}, {Name: "lamp", Allowed: []string{"on", "off"}},
	}, Fallback: device.Fields{"vent": "on", "lamp": "off"}}
	good     = bootslot.Release{Fields: device.Fields{"vent": "off", "lamp": "off"}}
	bright   = bootslot.Release{Fields: device.Fields{"vent": "off", "lamp": "on"}}
	fallback = bootslot.Release{Fields: house.Fallback}
	rules    = bootslot.Board{Fallback: fallback, Attempts: 3}
	at       = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
)

const (
	goodRev   = "1111111aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	brightRev = "2222222bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// kept is a ledger with good in slot A.
func kept() bootslot.Ledger {
	l := bootslot.NewLedger("id")
	l.Generation, l.Active = 5, bootslot.SlotA
	l.Slots = map[bootslot.SlotName]bootslot.Slot{
		bootslot.SlotA: {Status: bootslot.SlotGood, Release: good, Digest: good.Digest(), Declared: good.Digest(), Revision: goodRev, Proven: true},
		bootslot.SlotB: {Status: bootslot.SlotEmpty},
	}
	return l
}

// marked is kept with lamp=on failed.
func marked(l bootslot.Ledger, cause bootslot.Cause) bootslot.Ledger {
	l.Generation++
	l.Slots[bootslot.SlotB] = bootslot.Slot{Status: bootslot.SlotFailed, Release: bright, Digest: bright.Digest(), Revision: brightRev}
	l.Marks = []bootslot.Mark{{ID: 6, Set: device.Fields{"lamp": "on"}, Candidates: []bootslot.Digest{bright.Digest()}, Declared: []bootslot.Digest{bright.Digest()},
		Revision: brightRev, Cause: cause, Check: "not-too-hot", Message: "temperature is 41.2 °C, more than 38", Who: "eva"}}
	return l
}

// trying is kept with a trial of bright.
func trying(l bootslot.Ledger) bootslot.Ledger {
	l.Generation++
	l.Slots[bootslot.SlotB] = bootslot.Slot{Status: bootslot.SlotTrying, Release: bright, Digest: bright.Digest(), Revision: brightRev}
	l.Trial = &bootslot.Trial{Generation: l.Generation, Slot: bootslot.SlotB, Candidate: bright, Digest: bright.Digest(), Declared: bright, Revision: brightRev,
		Set: device.Fields{"lamp": "on"}, Changed: []string{"lamp"}, Attempt: 2, Baseline: bootslot.Baseline{Convicting: []string{"device-answers"}, Exempt: []string{"battery"}}}
	return l
}

func guardOf(l bootslot.Ledger) *api.State {
	s := &api.State{Version: "v1", PID: 10, Instance: "i", Phase: api.PhaseIdle, Ledger: l, LastKnownGood: l.LastKnownGood(rules), Fallback: fallback, Driver: "agent", Answers: true,
		Lease: api.Lease{Generation: l.Generation, Fields: l.Effective(rules).Fields, Proven: l.LastKnownGood(rules).Fields}}
	switch {
	case l.Trial != nil:
		s.Phase, s.Lease.TrialEndsInSeconds = api.PhaseTrial, 42
	case l.Returning != nil:
		s.Phase = api.PhaseReturning
	}
	return s
}

func declared(r bootslot.Release, rev string) *Declared {
	return &Declared{Fields: r.Fields, Digest: r.Digest(), Revision: rev, Subject: "what it is about"}
}

func agentOf(d *Declared, target bootslot.Release) *Agent {
	return &Agent{Version: "v1", PID: 11, Declared: d, Git: Git{State: GitOK}, Drives: DrivesEffective, Target: target.Fields, DeviceCycles: 9, GitCycles: 3,
		Report: &device.Report{Answered: true, Observed: &device.State{Actuators: target.Fields, Readings: map[string]float64{"temperature": 21}}}}
}

// decided puts the guard's answer to what the agent declares into g.
func decided(g *api.State, d *Declared) *api.State {
	dec, _ := bootslot.Admit(g.Ledger, rules, bootslot.Wish{Release: d.Release(), Revision: d.Revision, Number: d.Retry},
		bootslot.Facts{Rest: bootslot.RestFacts{Required: []string{"not-too-hot"}, Why: "not-too-hot has held for 3 of 15 s"}})
	g.Decision = &dec
	return g
}

// waits puts the answer of a guard into g that has looked for a while, and two of whose checks have still to hold. The words are bootslot.Rest's own.
func waits(looked time.Duration) func(*api.State, *Declared) {
	return func(g *api.State, d *Declared) {
		rest := bootslot.NewRest(0, 15*time.Second, 10*time.Minute, []bootslot.Check{{Name: "device-answers", Required: true}, {Name: "not-too-hot", Required: true}, {Name: "battery", Required: true}})
		for at := time.Duration(0); at <= looked; at += time.Second {
			rest.See(bootslot.Look{At: at, Answered: true, ReadBack: true, Samples: []bootslot.Sample{{Check: "device-answers", OK: true, At: at}, {Check: "not-too-hot", At: at}, {Check: "battery", At: at}}})
		}
		g.Checks = []api.Check{{Name: "device-answers", Required: true, OK: true}, {Name: "not-too-hot", Required: true}, {Name: "battery", Required: true}, {Name: "modem"}}
		dec, _ := bootslot.Admit(g.Ledger, rules, bootslot.Wish{Release: d.Release(), Revision: d.Revision}, bootslot.Facts{Rest: rest.Facts(looked)})
		g.Decision = &dec
	}
}

// spent is l with that retry number used up.
func spent(l bootslot.Ledger, n uint64) bootslot.Ledger {
	l.Spent = n
	return l
}

// rolledBack is a ledger whose active slot holds the fallback, as after `holdfast rollback --to fallback`.
func rolledBack() bootslot.Ledger {
	l := kept()
	l.Slots[bootslot.SlotA] = bootslot.Slot{Status: bootslot.SlotGood, Release: fallback, Digest: fallback.Digest(), Declared: fallback.Digest(), Proven: true}
	return l
}

// newer is kept by a guard that writes another form.
func newer() bootslot.Ledger {
	l := kept()
	l.MinWriter = bootslot.Schema + 1
	return l
}

func TestBuild(t *testing.T) {
	t.Parallel()
	base := func() Sources { return Sources{Now: at, Profile: house, Board: rules} }
	both := func(l bootslot.Ledger, d *Declared, more ...func(*api.State, *Declared)) Sources {
		s := base()
		s.Guard = guardOf(l)
		if d != nil {
			decided(s.Guard, d)
		}
		for _, f := range more {
			f(s.Guard, d)
		}
		s.Agent = agentOf(d, l.Effective(rules))
		return s
	}
	with := func(s Sources, f func(*Sources)) Sources { f(&s); return s }
	held := marked(kept(), bootslot.CauseFailed)
	returning := marked(kept(), bootslot.CauseFailed)
	returning.Returning = &bootslot.Returning{Mark: 6, Check: "not-too-hot", Digest: bright.Digest()}
	noGuard := func(l bootslot.Ledger, a *Agent) Sources {
		s := base()
		s.GuardWhy, s.Ledger, s.Agent = "it does not run", &l, a
		return s
	}

	for _, tt := range []struct {
		name    string
		s       Sources
		summary string
		notFine string // parts of NotFine, one per line, in order
		more    func(*testing.T, View)
	}{
		{name: "as declared", s: both(kept(), declared(good, goodRev)), summary: `1111111 is in force, as declared ("what it is about")`},
		{name: "new device, nothing declared", s: both(bootslot.NewLedger("id"), nil), summary: "Nothing is declared yet; keeping the fallback", more: func(t *testing.T, v View) {
			if v.Effective.Source != FromFallback || v.LastKnownGood.Source != FromFallback || v.Active != "" {
				t.Errorf("effective %+v, last-known-good %+v, active %q", v.Effective, v.LastKnownGood, v.Active)
			}
		}},
		{name: "trial", s: both(trying(kept()), declared(bright, brightRev)), summary: "Trying 2222222 (lamp) in slot B, attempt 2; 42s left in its window", more: func(t *testing.T, v View) {
			if v.Effective.Source != FromCandidate || !v.Effective.Fields.Equal(bright.Fields) || v.LastKnownGood.Source != "A" || v.Trial.EndsInSeconds != 42 {
				t.Errorf("effective %+v, last-known-good %+v, trial %+v", v.Effective, v.LastKnownGood, v.Trial)
			}
			if !strings.Contains(strings.Join(v.Details, "\n"), "battery") {
				t.Errorf("the exempt check is not told: %q", v.Details)
			}
		}},
		{name: "held", s: both(held, declared(bright, brightRev)),
			summary: "Keeping last-known-good 1111111; lamp is held: 2222222 failed not-too-hot (temperature is 41.2 °C, more than 38); declare something else, or write 'retry: 1' to try again", more: func(t *testing.T, v View) {
				if v.Decision.Kind != bootslot.Held || len(v.Decision.Held) != 1 || v.Decision.Forecast {
					t.Errorf("decision %+v", v.Decision)
				}
			}},
		{name: "held, and the rest of the same revision is in force", s: both(held, declared(bright, goodRev)),
			summary: "1111111 is in force in part; lamp is held: 2222222 failed not-too-hot (temperature is 41.2 °C, more than 38); declare something else, or write 'retry: 1' to try again"},
		{name: "the rest is to be tried once more", s: both(kept(), declared(bright, goodRev)),
			summary: "1111111 is in force in part; the rest of it is not tried yet: not-too-hot has held for 3 of 15 s"},
		{name: "held by an operator", s: both(marked(kept(), bootslot.CauseOperator), declared(bright, brightRev)),
			summary: "Keeping last-known-good 1111111; lamp is held: 2222222 was rolled back by eva; declare something else, or write 'retry: 1' to try again"},
		{name: "mixed, waiting for the baseline", s: both(held, declared(bootslot.Release{Fields: device.Fields{"vent": "on", "lamp": "on"}}, "3333333c")),
			summary: "Keeping last-known-good 1111111; 3333333 is to be tried (not-too-hot has held for 3 of 15 s), except that lamp is held: 2222222 failed not-too-hot (temperature is 41.2 °C, more than 38); declare something else, or write 'retry: 1' to try again"},
		{name: "waiting for the baseline", s: both(kept(), declared(bright, brightRev)), summary: "Keeping last-known-good 1111111; 2222222 is not tried yet: not-too-hot has held for 3 of 15 s"},
		{name: "returning", s: both(returning, declared(bright, brightRev)), summary: "Returning to last-known-good 1111111: 2222222 failed not-too-hot (temperature is 41.2 °C, more than 38)"},
		{name: "offline is fine", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) {
			s.Agent.Git = Git{State: GitOffline, Since: at, Times: 7, Message: "no route to host", Advice: "check the link"}
		}), summary: `1111111 is in force, as declared ("what it is about")`, more: func(t *testing.T, v View) {
			want := "the repository: offline since 2026-05-01 12:00:00 (7 tries): no route to host; check the link"
			if !slices.Equal(v.Details, []string{want}) {
				t.Errorf("details %q, want %q alone", v.Details, want)
			}
		}},
		{name: "suspended is fine", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) {
			s.Guard.Suspended = &api.SuspendedFor{SecondsLeft: 3600, Repair: true, Who: "eva"}
			s.Guard.Driver = "nobody"
			s.Agent.Report.Left = []device.Drift{{Field: "lamp", Want: "off", Got: "on"}}
		}), summary: `1111111 is in force, as declared ("what it is about")`},
		{name: "bad file upstream", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) {
			s.Agent.Git = Git{State: "file-invalid", Since: at, Times: 1, Message: "house.yaml:3:1: lamp: found maybe", Advice: "mend it", RemoteRevision: brightRev}
		}), summary: `1111111 is in force, as declared ("what it is about")`,
			notFine: "the repository: file-invalid since 2026-05-01 12:00:00 (1 try): house.yaml:3:1: lamp: found maybe; mend it"},
		{name: "a file with much that is wrong", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) {
			s.Agent.Git = Git{State: "file-invalid", Since: at, Times: 2, Message: "house.yaml:3:1: bad\nhouse.yaml:4:1: bad", Advice: "mend it"}
		}), summary: `1111111 is in force, as declared ("what it is about")`,
			notFine: "the repository: file-invalid since 2026-05-01 12:00:00 (2 tries): mend it\x00house.yaml:3:1: bad\x00house.yaml:4:1: bad"},
		{name: "drift that stays", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) {
			s.Agent.Report.Left = []device.Drift{{Field: "lamp", Want: "off", Got: "on"}}
		}), summary: `1111111 is in force, as declared ("what it is about")`, notFine: "lamp is to be off and is on"},
		{name: "refused", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) {
			s.Agent.Report.Left = []device.Drift{{Field: "lamp", Want: "off", Got: "on"}}
			s.Agent.Report.Refused = map[string]string{"lamp": "stuck"}
		}), summary: `1111111 is in force, as declared ("what it is about")`, notFine: "lamp is to be off, and the device refuses it: stuck"},
		{name: "drift in a trial is the trial's business", s: with(both(trying(kept()), declared(bright, brightRev)), func(s *Sources) {
			s.Agent.Report.Left = []device.Drift{{Field: "lamp", Want: "on", Got: "off"}}
		}), summary: "Trying 2222222 (lamp) in slot B, attempt 2; 42s left in its window"},
		{name: "device away", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) {
			s.Agent.Report = &device.Report{Error: "connection refused"}
		}), summary: `1111111 is in force, as declared ("what it is about")`, notFine: "the device does not answer: connection refused"},
		{name: "device hangs", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) { s.Agent.HangsSeconds = 31 }),
			summary: `1111111 is in force, as declared ("what it is about")`, notFine: "the device does not answer: no answer for 31 s"},
		{name: "unhealthy", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) {
			s.Guard.Checks = []api.Check{{Name: "battery", Required: true, Known: true, UnhealthySince: at, Message: "11.1 V"}, {Name: "modem", UnhealthySince: at}}
		}), summary: `1111111 is in force, as declared ("what it is about")`, notFine: "unhealthy since 2026-05-01 12:00:00: battery: 11.1 V"},
		{name: "problems", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) { s.Guard.Problems = []string{"ledger.db was set aside"} }),
			summary: `1111111 is in force, as declared ("what it is about")`, notFine: "guard: ledger.db was set aside"},

		{name: "guard dead", s: noGuard(kept(), agentOf(declared(good, goodRev), good)), summary: `1111111 is in force, as declared ("what it is about")`,
			notFine: "the guard is dead (it does not run): nothing new is tried", more: func(t *testing.T, v View) {
				if v.Driver != "agent" || v.Generation != 5 {
					t.Errorf("driver %s, generation %d", v.Driver, v.Generation)
				}
			}},
		{name: "guard dead, something held", s: noGuard(held, agentOf(declared(bright, brightRev), good)),
			summary: "Keeping last-known-good 1111111; lamp is held: 2222222 failed not-too-hot (temperature is 41.2 °C, more than 38); declare something else, or write 'retry: 1' to try again",
			notFine: "the guard is dead (it does not run): nothing new is tried", more: func(t *testing.T, v View) {
				if v.Decision == nil || !v.Decision.Forecast {
					t.Errorf("decision %+v", v.Decision)
				}
			}},
		{name: "guard dead, an environment's mark does not count as lifted", s: noGuard(marked(kept(), bootslot.CauseEnvironment), agentOf(declared(bright, brightRev), good)),
			summary: "Keeping last-known-good 1111111; lamp is held: 2222222 failed not-too-hot (temperature is 41.2 °C, more than 38), as last-known-good then did; declare something else, or write 'retry: 1' to try again",
			notFine: "the guard is dead"},
		{name: "guard dead in a trial", s: noGuard(trying(kept()), agentOf(declared(bright, brightRev), good)),
			summary: "A trial of 2222222 is open and the guard does not answer; the device goes back to last-known-good 1111111", notFine: "the guard is dead", more: func(t *testing.T, v View) {
				if v.Phase != api.PhaseTrial || !v.Effective.Fields.Equal(good.Fields) || v.Effective.Source != FromLastKnownGood {
					t.Errorf("phase %s, effective %+v", v.Phase, v.Effective)
				}
			}},
		{name: "guard dead, sidecar older than the last lease", s: noGuard(kept(), agentOf(declared(bright, brightRev), bright)), summary: "Keeping last-known-good 1111111; 2222222 is not tried yet: the guard does not answer",
			notFine: "the guard is dead", more: func(t *testing.T, v View) {
				if !v.Effective.Fields.Equal(bright.Fields) {
					t.Errorf("effective %+v", v.Effective)
				}
			}},
		{name: "agent dead", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) {
			s.Agent, s.AgentWhy, s.Declared = nil, "it does not run", declared(good, goodRev)
			s.Guard.Driver, s.Guard.Device = "guard", &device.State{Actuators: good.Fields}
		}), summary: `1111111 is in force, as declared ("what it is about")`, notFine: "the agent is dead (it does not run): nothing is fetched", more: func(t *testing.T, v View) {
			if v.Device.SeenBy != "guard" || v.Device.Observed["lamp"] != "off" || v.Git.State != GitUnknown || v.DeviceCycles != 0 {
				t.Errorf("device %+v, git %+v, cycles %d", v.Device, v.Git, v.DeviceCycles)
			}
		}},
		{name: "both dead", s: with(base(), func(s *Sources) {
			l := held
			s.GuardWhy, s.AgentWhy, s.Ledger, s.Declared = "it does not run", "it does not run", &l, declared(bright, brightRev)
			s.Device = &device.State{Actuators: map[string]string{"vent": "on", "lamp": "off", "extra": "x"}}
		}), summary: "Nobody keeps the device: agent and guard are dead",
			notFine: "the guard is dead\nthe agent is dead\nvent is to be off and is on", more: func(t *testing.T, v View) {
				if want := "it is to be kept at last-known-good 1111111; lamp is held: 2222222 failed"; !strings.Contains(strings.Join(v.Details, "\n"), want) {
					t.Errorf("details %q, want %q", v.Details, want)
				}
				if v.Driver != "nobody" || len(v.Device.Unknown) != 1 {
					t.Errorf("driver %s, device %+v", v.Driver, v.Device)
				}
			}},
		{name: "nothing can be read", s: with(base(), func(s *Sources) {
			s.GuardWhy, s.AgentWhy, s.LedgerWhy, s.CloneWhy, s.DeviceWhy = "it does not run", "it does not run", "permission denied", "permission denied", "connection refused"
		}), summary: "Nobody keeps the device: agent and guard are dead",
			notFine: "the guard is dead\nthe agent is dead\nthe device does not answer: connection refused\nclone: permission denied\nledger: permission denied", more: func(t *testing.T, v View) {
				if v.LedgerKnown || v.CloneKnown || len(v.Slots) != 0 || v.Effective.Fields != nil || v.LastKnownGood.Source != "" {
					t.Errorf("guessed: %+v", v)
				}
			}},
		{name: "there is no ledger", s: with(base(), func(s *Sources) {
			s.GuardWhy, s.LedgerWhy, s.NoLedger, s.Agent = "it does not run", "there is none yet", true, agentOf(nil, fallback)
		}), summary: "Nothing is declared yet; keeping the fallback", notFine: "the guard is dead\nledger: there is none yet", more: func(t *testing.T, v View) {
			if !v.LedgerKnown || !v.CloneKnown || !v.Effective.Fields.Equal(fallback.Fields) {
				t.Errorf("view %+v", v)
			}
		}},
		{name: "no permission", s: with(base(), func(s *Sources) {
			s.GuardWhy, s.AgentWhy, s.LedgerWhy, s.CloneWhy = "this user may not ask it", "this user may not ask it", "permission denied", "permission denied"
			s.GuardState, s.AgentState, s.Access = ProcessUnreachable, ProcessUnreachable, "run as root or as a member of the group holdfast"
			s.Device = &device.State{Actuators: good.Fields}
		}), summary: "What is in force cannot be told: this user may neither ask the guard nor read its ledger",
			notFine: "the guard is not reachable (this user may not ask it); run as root or as a member of the group holdfast\n" +
				"the agent is not reachable (this user may not ask it); run as root or as a member of the group holdfast\nclone: permission denied\nledger: permission denied",
			more: func(t *testing.T, v View) {
				if v.LedgerKnown || v.CloneKnown || v.Driver != "" || v.Device.Drift != nil {
					t.Errorf("guessed: %+v", v)
				}
			}},
		{name: "the guard hangs, and there is no agent", s: with(base(), func(s *Sources) {
			l := kept()
			s.GuardState, s.GuardWhy, s.AgentWhy, s.Ledger = ProcessSilent, "it runs and does not answer", "it does not run", &l
		}), summary: "Nobody keeps the device: the agent is dead, the guard is silent", notFine: "the guard is silent (it runs and does not answer)\nthe agent is dead"},
		{name: "ledger unreadable, and the agent drives", s: with(base(), func(s *Sources) {
			s.GuardWhy, s.LedgerWhy, s.Agent = "it does not run", "its checksum is wrong", agentOf(declared(good, goodRev), good)
		}), summary: "The agent keeps what it knows to be last-known-good; the ledger cannot be read", notFine: "the guard is dead\nledger: its checksum is wrong"},
		{name: "the clone cannot be read", s: with(both(kept(), nil), func(s *Sources) { s.Agent.CloneProblem = "house.yaml:1:1: bad\nhouse.yaml:2:1: bad" }),
			summary: "Keeping 1111111; what is declared cannot be read", notFine: "clone: house.yaml:1:1: bad\x00house.yaml:2:1: bad"},

		{name: "a baseline is awaited", s: both(kept(), declared(bright, brightRev), waits(time.Minute)),
			summary: "Keeping last-known-good 1111111; 2222222 is not tried yet: its trial starts when all checks have held for 15s (2 of 3 still to go)", more: func(t *testing.T, v View) {
				if want := "to hold for 15s before the trial: not-too-hot, battery; the trial starts in 9m0s anyway"; !slices.Contains(v.Details, want) {
					t.Errorf("details %q, want %q", v.Details, want)
				}
			}},
		{name: "its number is used up", s: both(spent(held, 4), func() *Declared { d := declared(bright, brightRev); d.Retry = 4; return d }()),
			summary: "Keeping last-known-good 1111111; lamp is held: 2222222 failed not-too-hot (temperature is 41.2 °C, more than 38); declare something else, or raise retry: to 5 to try again"},
		{name: "the fallback in a slot", s: both(rolledBack(), nil), summary: "Nothing is declared yet; keeping the fallback"},
		{name: "a newer guard's ledger", s: both(newer(), declared(bright, brightRev)),
			summary: "Keeping last-known-good 1111111; 2222222 is not tried yet: the ledger needs a guard that writes schema 2; this one writes 1",
			notFine: "only a newer guard may write the ledger (schema 2, this one has 1): nothing new is tried until it is installed"},
		{name: "a full disk", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) { s.DiskWhy = "/var has 3 KiB free, the floor is 16384 KiB" }),
			summary: `1111111 is in force, as declared ("what it is about")`, notFine: "/var has 3 KiB free, the floor is 16384 KiB: nothing new is tried"},
		{name: "a write went wrong once", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) { s.Agent.WriteError, s.Agent.WriteErrors = "answered 204", 1 }),
			summary: `1111111 is in force, as declared ("what it is about")`, more: func(t *testing.T, v View) {
				if !slices.Contains(v.Details, "the newest write went wrong: answered 204") {
					t.Errorf("details %q", v.Details)
				}
			}},
		{name: "writes go wrong", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) { s.Agent.WriteError, s.Agent.WriteErrors = "answered 204", 2 }),
			summary: `1111111 is in force, as declared ("what it is about")`, notFine: "the device has not taken a write as it should, 2 times in a row: answered 204"},
		{name: "a value that the profile does not know", s: with(both(kept(), declared(good, goodRev)), func(s *Sources) {
			s.Agent.Report.Left = []device.Drift{{Field: "vent", Want: "off", Got: "true"}}
			s.Agent.Report.NonConvergent = []string{"vent"}
		}), summary: `1111111 is in force, as declared ("what it is about")`, notFine: "vent is to be off, and reads back true after each write; the profile knows: on, off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := Build(tt.s)
			if v.Summary != tt.summary {
				t.Errorf("summary\n got %s\nwant %s", v.Summary, tt.summary)
			}
			want := strings.Split(tt.notFine, "\n")
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "\x00", "\n") // one that has several lines
			}
			if tt.notFine == "" {
				want = nil
			}
			if v.Fine != (len(want) == 0) || len(v.NotFine) != len(want) {
				t.Fatalf("fine: %v, not fine: %q, want %q", v.Fine, v.NotFine, want)
			}
			for i, part := range want {
				if !strings.Contains(v.NotFine[i], part) {
					t.Errorf("not fine: %q, want %q", v.NotFine[i], part)
				}
			}
			if tt.more != nil {
				tt.more(t, v)
			}
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var back View
			if err := json.Unmarshal(b, &back); err != nil || back.Summary != v.Summary {
				t.Errorf("the JSON does not come back: %v", err)
			}
		})
	}
}

// TestBuildChangesNothing: what guard and agent said is theirs.
func TestBuildChangesNothing(t *testing.T) {
	t.Parallel()
	l := marked(trying(kept()), bootslot.CauseFailed)
	s := Sources{Now: at, Profile: house, Board: rules, Guard: guardOf(l), Agent: agentOf(declared(bright, brightRev), bright), Problems: []string{"x"}}
	before, _ := json.Marshal(s)
	Build(s)
	Build(s)
	if after, _ := json.Marshal(s); string(after) != string(before) {
		t.Errorf("sources before\n%s\nand after\n%s", before, after)
	}
}

func TestLastVerdict(t *testing.T) {
	t.Parallel()
	events := []bootslot.Event{
		{Kind: bootslot.EventTrial, Digest: "a"}, {Kind: bootslot.EventKind(bootslot.Inconclusive), Digest: "a"},
		{Kind: bootslot.EventKind(bootslot.Failed), Digest: "b", Check: "battery"}, {Kind: bootslot.EventStands, Digest: "b"}, {Kind: bootslot.EventTrial, Digest: "c"},
	}
	for _, tt := range []struct {
		name   string
		events []bootslot.Event
		want   bootslot.Verdict
	}{
		{"none yet", nil, ""},
		{"a trial is no verdict", events[:1], ""},
		{"the newest counts", events, bootslot.Failed},
		{"then it was the environment", append(events[:4:4], bootslot.Event{Kind: bootslot.EventEnvironment, Digest: "b"}), bootslot.Environment},
	} {
		v := lastVerdict(tt.events)
		if v == nil && tt.want != "" || v != nil && v.Kind != tt.want {
			t.Errorf("%s: %+v, want %q", tt.name, v, tt.want)
		}
	}
}
