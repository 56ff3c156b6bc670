package main

import (
	"errors"
	"os"
	"testing"
	"time"

	"holdfast/agent"
	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/ledger"
	"holdfast/device"
)

// life is what guard and agent of a board say, to be changed by a test before it is served.
type life struct {
	state api.State
	agent status.Agent
	past  []bootslot.Event
}

var then = time.Date(2026, 5, 1, 10, 30, 0, 0, time.UTC)

const (
	goodRev = "1111111aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	badRev  = "2222222bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// newLife is a board with fan=on in force, as declared.
func newLife(t *testing.T) *life {
	t.Helper()
	p, err := device.LoadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	good, old := release(t, device.Fields{"fan": "on"}), release(t, nil)
	by := bootslot.Origin{Author: "Ann", Subject: "air"}
	l := bootslot.NewLedger("id")
	l.Generation, l.Active = 5, bootslot.SlotA
	l.Slots[bootslot.SlotA] = bootslot.Slot{Status: bootslot.SlotGood, Release: good, Digest: good.Digest(), Declared: good.Digest(), Revision: goodRev, Origin: by, Proven: true}
	l.Previous = &bootslot.Slot{Status: bootslot.SlotGood, Release: old, Digest: old.Digest(), Declared: old.Digest(), Revision: "0000000c", Proven: true}
	readings := map[string]float64{"temperature": 21.5}
	lf := &life{}
	value := 21.5
	lf.state = api.State{Version: "v9", PID: 77, Instance: "i", Change: 3, Phase: api.PhaseIdle, Ledger: l, LastKnownGood: good, Fallback: bootslot.Release{Fields: p.Fallback},
		Lease: api.Lease{Generation: 5, Fields: good.Fields, Proven: good.Fields, Instance: "i"}, Driver: "agent", Answers: true, HeartbeatSecondsAgo: 1,
		Device: &device.State{Actuators: good.Fields, Readings: readings},
		Checks: []api.Check{{Name: "not-too-hot", Required: true, OK: true, Known: true, Found: "temperature 21.5 °C", Value: &value, Limit: "at most 38 °C", SinceSeconds: 4000},
			{Name: "modem", Known: true, Found: "exit status 1", Message: "exit status 1", Limit: "exit status 0 of /bin/modem", SinceSeconds: 30},
			{Name: bootslot.DeviceAnswers, Required: true, OK: true, Known: true, SinceSeconds: 4000}, {Name: bootslot.AgentAlive, Required: true, OK: true, Known: true, SinceSeconds: 4000}}}
	lf.agent = status.Agent{Version: "v9", PID: 78, Change: 4, Git: status.Git{State: status.GitOK, Since: then, RemoteRevision: goodRev, LastFetch: then}, Drives: status.DrivesEffective,
		Target: good.Fields, Report: &device.Report{Answered: true, Observed: &device.State{Actuators: good.Fields, Readings: readings}}, DeviceCycles: 9, EndedCycle: 9, GitCycles: 3}
	lf.past = []bootslot.Event{{Seq: 1, Generation: 2, At: then.Add(-48 * time.Hour), Kind: bootslot.EventAdopted, Revision: "0000000c", Digest: old.Digest(), Slot: bootslot.SlotB},
		{Seq: 2, Generation: 4, At: then.Add(-25 * time.Hour), Kind: bootslot.EventTrial, Revision: goodRev, Digest: good.Digest(), Declared: good.Digest(), Slot: bootslot.SlotA, Fields: []string{"fan"}, Attempt: 1},
		{Seq: 3, Generation: 5, At: then.Add(-24 * time.Hour), Kind: bootslot.EventKind(bootslot.Passed), Revision: goodRev, Digest: good.Digest(), Slot: bootslot.SlotA, Fields: []string{"fan"}, Attempt: 1}}
	lf.declare(good, goodRev, by)
	return lf
}

// declare makes git declare r, and has the guard asked for it.
func (lf *life) declare(r bootslot.Release, revision string, by bootslot.Origin) {
	lf.agent.Declared = &status.Declared{Fields: r.Fields, Digest: r.Digest(), Revision: revision, Subject: by.Subject, Author: by.Author, When: then}
	lf.agent.Git.RemoteRevision = revision
	wish := api.TrialRequest{Release: r, Revision: revision, Origin: by}
	d, _ := bootslot.Admit(lf.state.Ledger, bootslot.Board{Fallback: lf.state.Fallback, Attempts: 3}, wish.Wish(), bootslot.Facts{At: then,
		Rest: bootslot.RestFacts{AtRest: true, Required: []string{"not-too-hot", "device-answers"}, Holding: []string{"device-answers"}, Soak: 15 * time.Second, AheadIn: time.Minute}})
	lf.state.Wish, lf.state.Decision = &wish, &d
}

// fail makes lamp=on have failed, and be declared.
func (lf *life) fail(t *testing.T) bootslot.Release {
	bad, by := release(t, device.Fields{"fan": "on", "lamp": "on"}), bootslot.Origin{Author: "Eva", Subject: "more light"}
	l := &lf.state.Ledger
	l.Generation = 8
	l.Slots[bootslot.SlotB] = bootslot.Slot{Status: bootslot.SlotFailed, Release: bad, Digest: bad.Digest(), Declared: bad.Digest(), Revision: badRev, Origin: by}
	l.Marks = []bootslot.Mark{{ID: 7, Set: device.Fields{"lamp": "on"}, Candidates: []bootslot.Digest{bad.Digest()}, Declared: []bootslot.Digest{bad.Digest()}, Revision: badRev, Origin: by,
		Cause: bootslot.CauseFailed, Check: "not-too-hot", Message: "temperature 41.2 °C is above 38", Before: bootslot.Readings{"temperature": 21}, During: bootslot.Readings{"temperature": 41.2},
		After: bootslot.Readings{"temperature": 30.12}, At: then}}
	lf.past = append(lf.past, bootslot.Event{Seq: 4, Generation: 6, At: then.Add(-time.Minute), Kind: bootslot.EventTrial, Revision: badRev, Digest: bad.Digest(), Slot: bootslot.SlotB, Fields: []string{"lamp"}, Attempt: 1},
		bootslot.Event{Seq: 5, Generation: 7, At: then, Kind: bootslot.EventKind(bootslot.Failed), Revision: badRev, Digest: bad.Digest(), Slot: bootslot.SlotB, Fields: []string{"lamp"}, Check: "not-too-hot",
			Message: "temperature 41.2 °C is above 38", Mark: 7, Attempt: 1},
		bootslot.Event{Seq: 6, Generation: 8, At: then.Add(time.Minute), Kind: bootslot.EventStands, Revision: badRev, Digest: bad.Digest(), Fields: []string{"lamp"}, Check: "not-too-hot", Message: "not-too-hot holds on last-known-good", Mark: 7})
	lf.declare(bad, badRev, by)
	return bad
}

// try opens a trial of lamp=on.
func (lf *life) try(t *testing.T) {
	bad, by := release(t, device.Fields{"fan": "on", "lamp": "on"}), bootslot.Origin{Author: "Eva", Subject: "more light"}
	l := &lf.state.Ledger
	l.Generation = 6
	l.Slots[bootslot.SlotB] = bootslot.Slot{Status: bootslot.SlotTrying, Release: bad, Digest: bad.Digest(), Declared: bad.Digest(), Revision: badRev, Origin: by}
	l.Trial = &bootslot.Trial{Generation: 6, Slot: bootslot.SlotB, Candidate: bad, Digest: bad.Digest(), Declared: bad, Revision: badRev, Origin: by, Set: device.Fields{"lamp": "on"}, Changed: []string{"lamp"},
		Attempt: 1, Baseline: bootslot.Baseline{Convicting: []string{"not-too-hot"}, Exempt: []string{"battery"}}, At: then}
	lf.state.Phase = api.PhaseTrial
	lf.state.Lease = api.Lease{Generation: 6, Fields: bad.Fields, Proven: lf.state.LastKnownGood.Fields, TrialEndsInSeconds: 42, Instance: "i"}
	lf.state.Checks[0].Role = "convicting"
	lf.agent.Target = bad.Fields
	lf.agent.Report.Observed = &device.State{Actuators: bad.Fields, Readings: map[string]float64{"temperature": 30}}
	lf.state.Device = lf.agent.Report.Observed
	lf.declare(bad, badRev, by)
}

// serve lets the two answer.
func (lf *life) serve(b boardDir) {
	b.t.Helper()
	for _, dir := range []string{b.path("state", "guard"), b.path("state", "agent")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	s, _, _, err := ledger.Open(b.path("state", "guard"))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(s.Save(bootslot.Step{Ledger: lf.state.Ledger, Events: lf.past}), s.Close()); err != nil {
		b.t.Fatal(err)
	}
	b.serve("guard.sock", map[string]any{"GET /v1/state": lf.state, "GET /v1/history": lf.past, "GET /v1/selftest": lf.state.Checks, "POST /v1/retry": lf.state.Lease,
		"POST /v1/rollback": lf.state.Lease, "POST /v1/suspend": api.Suspension{UntilUptimeSeconds: 1e9}, "POST /v1/resume": lf.state.Lease})
	b.serve("agent.sock", map[string]any{"GET /v1/status": lf.agent, "POST /v1/reconcile": agent.Reconciling{Fetch: lf.agent.GitCycles, Cycle: lf.agent.EndedCycle}, "POST /v1/accept": struct{}{}})
}

// liveBoards are boards with both processes alive, by what goes on there.
func liveBoards(t *testing.T) map[string]boardDir {
	t.Helper()
	boards := map[string]boardDir{}
	for name, f := range map[string]func(*life){
		"as declared": func(*life) {},
		"held":        func(lf *life) { lf.fail(t) },
		"in trial":    func(lf *life) { lf.try(t) },
		"returning": func(lf *life) {
			bad := lf.fail(t)
			lf.state.Ledger.Returning = &bootslot.Returning{Mark: 7, Check: "not-too-hot", Digest: bad.Digest()}
			lf.state.Phase = api.PhaseReturning
		},
		"a baseline awaited": func(lf *life) {
			lf.declare(release(t, device.Fields{"pump": "on"}), badRev, bootslot.Origin{Author: "Eva"})
		},
		"sick": func(lf *life) {
			lf.fail(t)
			lf.state.Ledger.Grant = &bootslot.Grant{ID: 8, Declared: "x", Who: "eva"}
			lf.state.Suspended = &api.SuspendedFor{SecondsLeft: 60, Repair: true, Who: "eva"}
			lf.state.Problems, lf.agent.Problems = []string{"ledger.db was set aside"}, []string{"no socket"}
			lf.state.Checks[0].OK, lf.state.Checks[0].Message, lf.state.Checks[0].UnhealthySince = false, "temperature 41.2 °C is above 38", then
			lf.agent.Git = status.Git{State: "file-invalid", Since: then, Times: 2, Message: "greenhouse.yaml:1:1: bad", Advice: "mend it", RemoteRevision: badRev, NextInSeconds: 9,
				Notices: []string{"folder /devices has more than 64 KiB of names"}}
			r := lf.agent.Report
			r.Observed = &device.State{Actuators: device.Fields{"fan": "off", "siren": "on"}}
			r.Drift = []device.Drift{{Field: "fan", Want: "on", Got: "off"}, {Field: "pump", Want: "off", Got: "on"}}
			r.Left, r.Written = r.Drift[:1], []string{"pump"}
			r.Refused, r.NonConvergent, r.Contended, r.Unknown = map[string]string{"fan": "stuck"}, []string{"pump"}, []string{"door"}, []string{"siren"}
			lf.agent.WriteError, lf.agent.WriteErrors = "answered 204", 3
		},
	} {
		b := newBoard(t)
		lf := newLife(t)
		f(lf)
		lf.serve(b)
		boards[name] = b
	}
	return boards
}
