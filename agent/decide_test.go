package agent

import (
	"testing"
	"time"

	"holdfast/agent/status"
	"holdfast/bootslot/api"
	"holdfast/device"
)

var house = device.Profile{Name: "house", Actuators: []device.Actuator{
	{Name: "vent", Allowed: []string{"on", "off"}}, {Name: "lamp", Allowed: []string{"on", "off"}},
}, Fallback: device.Fields{"vent": "on", "lamp": "off"}}

var (
	proven    = device.Fields{"vent": "off", "lamp": "off"}
	candidate = device.Fields{"vent": "off", "lamp": "on"}
	recorded  = device.Fields{"vent": "on", "lamp": "on"}
)

func TestDecide(t *testing.T) {
	t.Parallel()
	const s = time.Second
	idle := &api.Lease{Generation: 7, Fields: proven, Proven: proven, Instance: "i"}
	trial := func(ends float64) *api.Lease {
		return &api.Lease{Generation: 8, Fields: candidate, Proven: proven, TrialEndsInSeconds: ends, Instance: "i"}
	}
	had := func(l *api.Lease) Memory { return Memory{Started: 100 * s, Lease: l, LeaseAt: 1000 * s} }
	never := Memory{Started: 100 * s}
	settled := func(m Memory, since time.Duration) Memory {
		if m.Home = recorded; m.Lease != nil {
			m.Home = m.Lease.Proven
		}
		m.Settled, m.SettledSince = true, since
		return m
	}
	silent := func(m Memory, since time.Duration) Memory { m.Silent, m.SilentSince = true, since; return m }
	rested := func(m Memory) Memory { m.Rested = true; return m }

	for _, tt := range []struct {
		name   string
		m      Memory
		f      Facts
		drives string
		fields device.Fields
	}{
		{"guard answers", never, Facts{Now: 101 * s, Lease: idle}, status.DrivesEffective, proven},
		{"guard answers in a trial", had(idle), Facts{Now: 1001 * s, Lease: trial(30)}, status.DrivesEffective, candidate},
		{"guard back after silence", had(trial(30)), Facts{Now: 5000 * s, Lease: idle}, status.DrivesEffective, proven},

		{"guard silent, no trial", had(idle), Facts{Now: 1000*s + 1}, status.DrivesProven, proven},
		{"guard silent, trial runs", had(trial(30)), Facts{Now: 1029 * s}, status.DrivesNot, candidate},
		{"guard silent, trial over", had(trial(30)), Facts{Now: 1030 * s}, status.DrivesProven, proven},
		{"guard silent, long trial", had(trial(1200)), Facts{Now: 1059 * s}, status.DrivesNot, candidate},
		{"guard silent, long trial, a minute", had(trial(1200)), Facts{Now: 1060 * s}, status.DrivesProven, proven},
		{"guard silent, long trial, cycles of a minute", had(trial(1200)), Facts{Now: 1179 * s, Interval: time.Minute}, status.DrivesNot, candidate},
		{"guard silent, long trial, three such cycles", had(trial(1200)), Facts{Now: 1180 * s, Interval: time.Minute}, status.DrivesProven, proven},
		{"guard silent, what it once recorded does not count", had(idle), Facts{Now: 2000 * s, Record: &Record{6, recorded, false}}, status.DrivesProven, proven},
		{"guard silent, it has recorded the lease", had(idle), Facts{Now: 2000 * s, Record: &Record{7, proven, false}}, status.DrivesProven, proven},
		{"guard silent, its next run has recorded something else under a generation that was used up", had(idle), Facts{Now: 1001 * s, Record: &Record{7, recorded, false}}, status.DrivesProven, recorded},
		{"guard silent, it had used up a generation for what it could not record", had(idle), Facts{Now: 1001 * s, Record: &Record{6, recorded, false}}, status.DrivesProven, proven},
		{"guard silent, its last word was not heard", had(idle), Facts{Now: 1001 * s, Record: &Record{8, recorded, false}}, status.DrivesProven, recorded},
		{"guard silent, the trial has passed and that was not heard", had(trial(30)), Facts{Now: 1001 * s, Record: &Record{9, candidate, false}}, status.DrivesProven, candidate},

		{"guard silent, no slot of its newer record is good", had(idle), Facts{Now: 1001 * s, Record: &Record{8, nil, false}}, status.DrivesProven, house.Fallback},
		{"guard silent, it has opened a trial, which was not heard", silent(had(idle), 1001*s), Facts{Now: 1060 * s, Record: &Record{8, recorded, true}}, status.DrivesNot, recorded},
		{"guard silent, it has opened a trial, a minute ago", silent(had(idle), 1001*s), Facts{Now: 1061 * s, Record: &Record{8, recorded, true}}, status.DrivesProven, recorded},
		{"guard silent, the trial of its lease stands in the record", had(trial(30)), Facts{Now: 1029 * s, Record: &Record{8, proven, true}}, status.DrivesNot, candidate},

		{"just started, no guard", never, Facts{Now: 159 * s, Record: &Record{6, recorded, false}}, status.DrivesNot, recorded},
		{"started a minute ago, no guard", never, Facts{Now: 160 * s, Record: &Record{6, recorded, false}}, status.DrivesRecord, recorded},
		{"started a minute ago, no guard, no slot is good", never, Facts{Now: 160 * s, Record: &Record{6, nil, true}}, status.DrivesRecord, house.Fallback},
		{"started a minute ago, no guard, it has a trial open and cycles of a minute", never, Facts{Now: 279 * s, Record: &Record{6, recorded, true}, Interval: time.Minute}, status.DrivesNot, recorded},
		{"started three such cycles ago, no guard, it has a trial open", never, Facts{Now: 280 * s, Record: &Record{6, recorded, true}, Interval: time.Minute}, status.DrivesRecord, recorded},
		{"started a minute ago, no guard, no trial, cycles of a minute", never, Facts{Now: 160 * s, Record: &Record{6, recorded, false}, Interval: time.Minute}, status.DrivesRecord, recorded},
		{"started a minute ago, no guard, no record", never, Facts{Now: 160 * s}, status.DrivesRecord, house.Fallback},

		{"repair suspended, not back yet", had(idle), Facts{Now: 1001 * s, Lease: idle, RepairSuspended: true, Observed: candidate, ObservedAt: 1000 * s}, status.DrivesEffective, proven},
		{"repair suspended, just back", had(idle), Facts{Now: 1001 * s, Lease: idle, RepairSuspended: true, Observed: proven, ObservedAt: 1000 * s}, status.DrivesEffective, proven},
		{"repair suspended, back for 4 s", settled(had(idle), 1000*s), Facts{Now: 1006 * s, Lease: idle, RepairSuspended: true, Observed: proven, ObservedAt: 1004 * s}, status.DrivesEffective, proven},
		{"repair suspended, back for 5 s", settled(had(idle), 1000*s), Facts{Now: 1006 * s, Lease: idle, RepairSuspended: true, Observed: proven, ObservedAt: 1005 * s}, status.DrivesNot, proven},
		{"repair suspended and rested before this run", never, Facts{Now: 101 * s, Lease: idle, RepairSuspended: true, RepairRested: true, Observed: candidate, ObservedAt: 100 * s}, status.DrivesNot, proven},
		{"repair suspended, somebody turns a knob", rested(settled(had(idle), 1000*s)), Facts{Now: 1106 * s, Lease: idle, RepairSuspended: true, Observed: candidate, ObservedAt: 1105 * s}, status.DrivesNot, proven},
		{"repair suspended, then the guard dies", rested(settled(had(idle), 1000*s)), Facts{Now: 1106 * s, RepairSuspended: true, Observed: candidate, ObservedAt: 1105 * s}, status.DrivesNot, proven},
		{"repair goes on", rested(settled(had(idle), 1000*s)), Facts{Now: 1106 * s, Lease: idle, Observed: candidate, ObservedAt: 1105 * s}, status.DrivesEffective, proven},
		{"repair suspended in a trial: what reads back is the candidate", settled(had(idle), 900*s),
			Facts{Now: 1001 * s, Lease: &api.Lease{Generation: 9, Fields: proven, Proven: proven}, RepairSuspended: true, Observed: candidate, ObservedAt: 1000 * s}, status.DrivesEffective, proven},
		{"repair suspended, another last-known-good since", settled(had(&api.Lease{Proven: candidate, Fields: candidate}), 1*s),
			Facts{Now: 1001 * s, Lease: idle, RepairSuspended: true, Observed: proven, ObservedAt: 1000 * s}, status.DrivesEffective, proven},
		{"no guard ever, repair suspended", settled(never, 100*s), Facts{Now: 200 * s, Record: &Record{6, recorded, false}, RepairSuspended: true, Observed: recorded, ObservedAt: 190 * s}, status.DrivesNot, recorded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.f.Profile, tt.f.Fallback, tt.f.LeaseAt = house, house.Fallback, tt.f.Now-s
			m, a := Decide(tt.m, tt.f)
			if a.Drives != tt.drives || !a.Fields.Equal(tt.fields) {
				t.Errorf("Decide(%+v, %+v) = %s to %v, want %s to %v", tt.m, tt.f, a.Drives, a.Fields, tt.drives, tt.fields)
			}
			if at := map[bool]time.Duration{true: tt.f.LeaseAt, false: tt.f.Now}[tt.f.Lease != nil]; a.At != at {
				t.Errorf("it rests on what was true at %v, want %v", a.At, at)
			}
			if m.Silent != (tt.f.Lease == nil) {
				t.Errorf("silent: %v with lease %v", m.Silent, tt.f.Lease)
			}
			if (a.Why == "") != (a.Drives == status.DrivesEffective) {
				t.Errorf("why: %q when it drives to %s", a.Why, a.Drives)
			}
		})
	}
}

// TestDecideSilenceIsCountedFromTheLease: the trial's end was said when the lease was read, not when silence was noticed.
func TestDecideSilenceIsCountedFromTheLease(t *testing.T) {
	t.Parallel()
	m := Memory{Started: time.Second}
	step := func(now time.Duration, l *api.Lease) (a Action) {
		m, a = Decide(m, Facts{Now: now, Lease: l, LeaseAt: now, Profile: house, Fallback: house.Fallback})
		return a
	}
	step(100*time.Second, &api.Lease{Generation: 1, Fields: candidate, Proven: proven, TrialEndsInSeconds: 20})
	for now := 108 * time.Second; now < 120*time.Second; now += time.Second {
		if a := step(now, nil); a.Drives != status.DrivesNot {
			t.Errorf("at %v it drives to %s", now, a.Drives)
		}
	}
	if a := step(120*time.Second, nil); a.Drives != status.DrivesProven {
		t.Errorf("when the trial is over it drives to %s", a.Drives)
	}
	if m.SilentSince != 108*time.Second {
		t.Errorf("silent since %v", m.SilentSince)
	}
}
