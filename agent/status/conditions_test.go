package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

// running are the sources of a board with both processes alive.
func running(l bootslot.Ledger, d *Declared, more ...func(*Sources)) Sources {
	s := Sources{Now: at, Profile: house, Board: rules, Guard: guardOf(l), Agent: agentOf(d, l.Effective(rules))}
	if d != nil {
		decided(s.Guard, d)
	}
	for _, f := range more {
		f(&s)
	}
	return s
}

// guardless are the same when the guard does not answer.
func guardless(l bootslot.Ledger, a *Agent, more ...func(*Sources)) Sources {
	s := Sources{Now: at, Profile: house, Board: rules, GuardWhy: "it does not run", Ledger: &l, Agent: a}
	for _, f := range more {
		f(&s)
	}
	return s
}

// returning is a ledger whose trial has just failed.
func returning() bootslot.Ledger {
	l := marked(kept(), bootslot.CauseFailed)
	l.Returning = &bootslot.Returning{Mark: 6, Check: "not-too-hot", Digest: bright.Digest()}
	return l
}

// TestConditions: one line per situation, the answers in their order.
func TestConditions(t *testing.T) {
	t.Parallel()
	asDeclared, wanted := declared(good, goodRev), declared(bright, brightRev)
	held := marked(kept(), bootslot.CauseFailed)
	well := "Ready=True/AsDeclared Reconciling=False/Settled Stalled=False/NotStalled Healthy=True/Well Fetched=True/UpToDate"
	but := func(answers ...string) string {
		parts := strings.Fields(well)
		for _, a := range answers {
			name, _, _ := strings.Cut(a, "=")
			i := slices.IndexFunc(parts, func(p string) bool { return strings.HasPrefix(p, name+"=") })
			parts[i] = a
		}
		return strings.Join(parts, " ")
	}
	git := func(state string) func(*Sources) {
		return func(s *Sources) { s.Agent.Git = Git{State: state, Since: at, RemoteRevision: brightRev} }
	}
	drift := func(s *Sources) { s.Agent.Report.Left = []device.Drift{{Field: "lamp", Want: "off", Got: "on"}} }
	for _, tt := range []struct {
		name string
		s    Sources
		want string
	}{
		{"all is well", running(kept(), asDeclared), well},
		{"a new board", running(bootslot.NewLedger("id"), nil), but("Ready=False/NothingDeclared")},
		{"a trial", running(trying(kept()), wanted), but("Ready=False/OnTrial", "Reconciling=True/OnTrial")},
		{"returning", running(returning(), wanted), but("Ready=False/Returning", "Reconciling=True/Returning", "Stalled=True/Held")},
		{"a baseline is awaited", running(kept(), wanted), but("Ready=False/NotTriedYet", "Reconciling=True/AwaitingBaseline")},
		{"a pause", running(kept(), wanted, func(s *Sources) {
			s.Guard.Decision = &bootslot.Decision{Kind: bootslot.Refused, Reason: "a pause of 1m0s is left", Wait: time.Minute}
		}), but("Ready=False/NotTriedYet", "Reconciling=True/Pausing")},
		{"the guard was not asked yet", running(kept(), wanted, func(s *Sources) { s.Guard.Decision = nil }), but("Ready=False/NotTriedYet", "Reconciling=True/Deciding")},
		{"held", running(held, wanted), but("Ready=False/Held", "Stalled=True/Held")},
		{"mixed, its baseline awaited", running(held, declared(bootslot.Release{Fields: device.Fields{"vent": "on", "lamp": "on"}}, "3333333c")),
			but("Ready=False/Held", "Reconciling=True/AwaitingBaseline", "Stalled=True/Held")},
		{"an image that is not ready", running(kept(), wanted, func(s *Sources) {
			s.Guard.Decision = &bootslot.Decision{Kind: bootslot.Held, Held: []bootslot.HeldField{{Field: "image"}}}
		}), but("Ready=False/Held")},
		{"suspended", running(kept(), wanted, func(s *Sources) {
			s.Guard.Suspended = &api.SuspendedFor{SecondsLeft: 60}
			s.Guard.Decision = &bootslot.Decision{Kind: bootslot.Refused, Reason: "suspended for another 1m0s"}
		}), but("Ready=False/NotTriedYet", "Reconciling=False/Suspended")},
		{"the guard does not admit it", running(kept(), wanted, func(s *Sources) {
			s.Guard.Decision = &bootslot.Decision{Kind: bootslot.Refused, Reason: "the ledger cannot be written: read-only"}
		}), but("Ready=False/NotTriedYet", "Stalled=True/NotAdmitted")},
		{"the guard has not looked yet", running(kept(), wanted, func(s *Sources) {
			s.Guard.Answers, s.Guard.Decision = false, &bootslot.Decision{Kind: bootslot.Refused, Reason: "the device has not been looked at yet"}
		}), but("Ready=False/NotTriedYet")},

		{"offline", running(kept(), asDeclared, git(GitOffline)), but("Fetched=False/Offline")},
		{"no fetch yet", running(kept(), asDeclared, git(GitUnknown)), but("Fetched=Unknown/NotFetched")},
		{"a bad file", running(kept(), asDeclared, git("file-invalid")), but("Ready=False/Stale", "Stalled=True/FileInvalid", "Fetched=False/FileInvalid")},
		{"a rewritten branch", running(kept(), asDeclared, git("history-rewritten")), but("Ready=False/Stale", "Stalled=True/HistoryRewritten", "Fetched=False/HistoryRewritten")},

		{"the device does not answer", running(kept(), asDeclared, func(s *Sources) { s.Agent.Report = &device.Report{Error: "connection refused"} }),
			but("Ready=False/DeviceSilent", "Healthy=False/DeviceSilent")},
		{"drift that is being corrected", running(kept(), asDeclared, drift), but("Ready=False/Drifted", "Reconciling=True/Correcting", "Healthy=False/Drifted")},
		{"the device refuses what is in force", running(kept(), asDeclared, drift, func(s *Sources) { s.Agent.Report.Refused = map[string]string{"lamp": "stuck"} }),
			but("Ready=False/Drifted", "Stalled=True/Refused", "Healthy=False/Drifted")},
		{"a field does not converge", running(kept(), asDeclared, drift, func(s *Sources) { s.Agent.Report.NonConvergent = []string{"lamp"} }),
			but("Ready=False/Drifted", "Stalled=True/NotConverging", "Healthy=False/Drifted")},
		{"drift under suspend --repair", running(kept(), asDeclared, drift, func(s *Sources) { s.Guard.Suspended = &api.SuspendedFor{SecondsLeft: 9, Repair: true} }),
			but("Ready=False/Drifted", "Reconciling=False/Suspended")},
		{"drift in a trial", running(trying(kept()), wanted, drift, func(s *Sources) { s.Agent.Report.Refused = map[string]string{"lamp": "stuck"} }),
			but("Ready=False/OnTrial", "Reconciling=True/OnTrial")},
		{"a check fails on what is in force", running(kept(), asDeclared, func(s *Sources) {
			s.Guard.Checks = []api.Check{{Name: "battery", Required: true, Known: true, UnhealthySince: at}}
		}), but("Healthy=False/CheckFailing")},
		{"somebody else moves a knob", running(kept(), asDeclared, func(s *Sources) { s.Agent.Report.Contended = []string{"lamp"} }), but("Healthy=False/Problem")},
		{"a file was set aside", running(kept(), asDeclared, func(s *Sources) { s.Guard.Problems = []string{"ledger.db was set aside"} }), but("Healthy=False/Problem")},
		{"a newer guard's ledger", running(newer(), wanted), but("Ready=False/NotTriedYet", "Stalled=True/NewerLedger", "Healthy=False/Problem")},
		{"a full disk", running(kept(), asDeclared, func(s *Sources) { s.DiskWhy = "3 KiB free" }), but("Stalled=True/DiskFull", "Healthy=False/Problem")},

		{"the guard is dead", guardless(kept(), agentOf(asDeclared, good)), but("Reconciling=False/GuardSilent", "Stalled=True/GuardSilent", "Healthy=False/GuardSilent")},
		{"the guard died in a trial", guardless(trying(kept()), agentOf(wanted, good)),
			but("Ready=False/OnTrial", "Reconciling=False/GuardSilent", "Stalled=True/GuardSilent", "Healthy=False/GuardSilent")},
		{"the agent is dead", running(kept(), asDeclared, func(s *Sources) {
			s.Agent, s.AgentWhy, s.Declared = nil, "it does not run", asDeclared
			s.Guard.Driver, s.Guard.Device = "guard", &device.State{Actuators: good.Fields}
		}), but("Reconciling=False/AgentSilent", "Stalled=True/AgentSilent", "Healthy=False/AgentSilent", "Fetched=Unknown/NotFetched")},
		{"both are dead", guardless(kept(), nil, func(s *Sources) { s.AgentWhy, s.Declared = "it does not run", asDeclared }),
			but("Ready=False/NobodyKeeps", "Reconciling=False/GuardSilent", "Stalled=True/GuardSilent", "Healthy=False/GuardSilent", "Fetched=Unknown/NotFetched")},
		{"this user may not ask", Sources{Now: at, Profile: house, Board: rules, GuardState: ProcessUnreachable, AgentState: ProcessUnreachable,
			LedgerWhy: "permission denied", CloneWhy: "permission denied"},
			"Ready=Unknown/NotReadable Reconciling=Unknown/NotReadable Stalled=Unknown/NotReadable Healthy=Unknown/NotReadable Fetched=Unknown/NotFetched"},
		{"the clone cannot be read", running(kept(), nil, func(s *Sources) { s.Agent.CloneProblem = "bad" }), but("Ready=Unknown/NotReadable", "Healthy=False/Problem")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := Build(tt.s)
			var got []string
			for _, c := range v.Conditions {
				got = append(got, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
				if c.Message == "" {
					t.Errorf("%s has no message", c.Type)
				}
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestConditionsSay: since when, about which revision, and what.
func TestConditionsSay(t *testing.T) {
	t.Parallel()
	of := func(v View, ct ConditionType) Condition {
		return v.Conditions[slices.IndexFunc(v.Conditions, func(c Condition) bool { return c.Type == ct })]
	}
	check := func(c Condition, since time.Time, revision, message string) {
		t.Helper()
		if !c.Since.Equal(since) || c.Revision != revision || !strings.Contains(c.Message, message) {
			t.Errorf("%+v, want since %v, revision %s, message %q", c, since, revision, message)
		}
	}
	then := at.Add(-time.Hour)

	v := Build(running(kept(), declared(good, goodRev), func(s *Sources) {
		s.History = []bootslot.Event{{Kind: bootslot.EventKind(bootslot.Passed), Digest: good.Digest(), At: then}, {Kind: bootslot.EventUnhealthy, At: at}}
	}))
	check(of(v, Ready), then, goodRev, "is in force, as declared")

	v = Build(running(kept(), declared(good, goodRev), func(s *Sources) {
		s.History = []bootslot.Event{{Kind: bootslot.EventKind(bootslot.Passed), Digest: good.Digest(), At: then}, {Kind: bootslot.EventRollback, Digest: "another", At: at}}
	}))
	check(of(v, Ready), time.Time{}, goodRev, "") // the history is not about what is in force

	l := marked(kept(), bootslot.CauseFailed)
	l.Marks[0].At = then
	v = Build(running(l, declared(bright, brightRev)))
	check(of(v, Ready), then, brightRev, "lamp is held")
	check(of(v, Stalled), then, brightRev, "write 'retry: 1' to try again")

	l = trying(kept())
	l.Trial.At = then
	v = Build(running(l, declared(bright, brightRev)))
	check(of(v, Reconciling), then, brightRev, "Trying 2222222")

	v = Build(running(kept(), declared(good, goodRev), func(s *Sources) {
		s.Agent.Git = Git{State: GitOffline, Since: then, RemoteRevision: goodRev, Message: "no route to host"}
		s.Guard.Checks = []api.Check{{Name: bootslot.DeviceAnswers, Required: true, Known: true, SinceSeconds: 3600}}
		s.Agent.Report = &device.Report{Error: "connection refused"}
	}))
	check(of(v, Fetched), then, goodRev, "no route to host")
	check(of(v, Healthy), then, goodRev, "connection refused")

	v = Build(guardless(kept(), agentOf(declared(good, goodRev), good), func(s *Sources) { s.Agent.GuardSilentSeconds = 3600 }))
	check(of(v, Stalled), then, goodRev, "start it")
}

// TestCamel: reasons are one word each, and the vocabulary of the repository becomes part of them.
func TestCamel(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{"offline": ReasonOffline, "auth-or-not-found": "AuthOrNotFound", "": ""} {
		if got := camel(kind); got != want {
			t.Errorf("camel(%q) = %q, want %q", kind, got, want)
		}
	}
}
