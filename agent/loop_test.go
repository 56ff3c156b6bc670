package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/agent/gitclone"
	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

func TestDriftIsCorrected(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(100 * time.Millisecond)
		w.device.turn("lamp", "on")
		w.pass(time.Second) // the device says that it has changed
		if got := w.device.get("lamp"); got != "off" {
			t.Fatalf("a second after the drift, lamp is %s", got)
		}
		if n := len(w.device.written()); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
	})
}

func TestDriftIsCorrectedWithoutHint(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(time.Second)
		w.device.mu.Lock()
		w.device.actuators["lamp"] = "on" // nobody is told
		w.device.mu.Unlock()
		w.pass(every)
		if got := w.device.get("lamp"); got != "off" {
			t.Errorf("an interval after the drift, lamp is %s", got)
		}
	})
}

func TestOnlyDriftedKeysAreWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		w.device.actuators = map[string]string{"vent": "off", "lamp": "on"}
		w.start()
		w.pass(20 * every)
		want := device.Fields{"lamp": "off"}
		if got := w.device.written(); len(got) != 1 || !got[0].set.Equal(want) {
			t.Errorf("written: %v, want once %v", got, want)
		}
	})
}

// TestGitHangsForEver: a server that keeps a fetch open for ever, and heeds no context, delays no repair, and does not keep the agent from ending.
func TestGitHangsForEver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.clone.hangs = true
		w.start()
		w.pass(10 * time.Minute)
		w.device.turn("lamp", "on")
		w.pass(time.Second)
		if got := w.device.get("lamp"); got != "off" {
			t.Errorf("lamp is %s", got)
		}
		if n := w.agent.Status().DeviceCycles; n < 75 {
			t.Errorf("%d device cycles in 10 minutes", n)
		}
		w.stop()
		if n := len(w.clone.fetches); n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

// TestHeartbeats: one per interval, on the beat, whatever the device does.
func TestHeartbeats(t *testing.T) {
	for name, set := range map[string]func(*fakeDevice){
		"well":   func(*fakeDevice) {},
		"hangs":  func(d *fakeDevice) { d.hangs = true },
		"away":   func(d *fakeDevice) { d.away = true },
		"slow":   func(d *fakeDevice) { d.slow = 5 * time.Second },
		"slower": func(d *fakeDevice) { d.slow = 19 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				set(w.device)
				w.start()
				w.pass(100*every - time.Second)
				w.guard.mu.Lock()
				defer w.guard.mu.Unlock()
				if n := len(w.guard.beatAt); n != 100 {
					t.Fatalf("%d heartbeats in 100 intervals", n)
				}
				for i := 1; i < 100; i++ {
					if gap := w.guard.beatAt[i] - w.guard.beatAt[i-1]; gap != every {
						t.Fatalf("heartbeats %d and %d are %v apart", i-1, i, gap)
					}
				}
				if b := w.guard.beats[99]; b.Generation != 1 || b.Instance != "one" {
					t.Errorf("heartbeat %+v", b)
				}
			})
		})
	}
}

// TestNoHeartbeatWithoutAWord: an agent that decides without the guard does not tell it that it lives. The guard would count on it, drive to the candidate, and
// the agent to last-known-good.
func TestNoHeartbeatWithoutAWord(t *testing.T) {
	inWorld(t, func(w *world) {
		beats := func() (n int) {
			w.guard.do(func(g *fakeGuard) { n, g.beats = len(g.beats), nil })
			return n
		}
		w.start()
		w.pass(4*every - time.Second)
		if n := beats(); n != 4 {
			t.Errorf("%d heartbeats in 4 intervals", n)
		}
		w.guard.do(func(g *fakeGuard) { g.mean = true })
		w.pass(4 * every)
		if n := beats(); n != 0 {
			t.Errorf("%d heartbeats without a lease", n)
		}
		w.guard.do(func(g *fakeGuard) { g.mean = false })
		w.pass(4 * every)
		if n := beats(); n < 3 {
			t.Errorf("%d heartbeats in 4 intervals once the guard answers", n)
		}
		w.guard.do(func(g *fakeGuard) { g.mean = true })
		w.pass(2 * every)
		w.agent.Goodbye(context.Background())
		w.guard.do(func(g *fakeGuard) {
			if len(g.beats) != 1 || !g.beats[0].Goodbye {
				t.Errorf("heartbeats at the end: %+v, want a goodbye", g.beats)
			}
		})
	})
}

// TestHeartbeatTellsNews: what the guard must judge by does not wait for the next interval.
func TestHeartbeatTellsNews(t *testing.T) {
	inWorld(t, func(w *world) {
		w.device.refuses = map[string]string{"lamp": "no lamp here"}
		w.device.slow = 100 * time.Millisecond // the heartbeat with the new generation is long out when the refusal comes
		w.start()
		w.pass(3 * time.Second)
		w.guard.set(api.Lease{Generation: 2, Fields: candidate, Proven: proven, TrialEndsInSeconds: 60, Instance: "one"})
		w.pass(2 * time.Second)
		w.guard.do(func(g *fakeGuard) {
			last := g.beats[len(g.beats)-1]
			if last.Generation != 2 || last.Refused["lamp"] != "no lamp here" {
				t.Errorf("2 s after the new lease the last heartbeat is %+v", last)
			}
		})
		w.guard.set(api.Lease{Generation: 3, Fields: proven, Proven: proven, Instance: "one"})
		w.pass(2 * time.Second)
		w.guard.do(func(g *fakeGuard) {
			n := 0
			for _, b := range g.beats {
				if b.Generation == 3 {
					n++
					if len(b.Refused) > 0 {
						t.Errorf("what generation 2 was refused is told of generation 3: %+v", b)
					}
				}
			}
			if n != 1 {
				t.Errorf("%d heartbeats of generation 3 within 2 s", n)
			}
		})
	})
}

// TestCutOffCycleSaysNothingOfTheDevice: a look that was ended for the sake of a new lease is no sign of a device that is away.
func TestCutOffCycleSaysNothingOfTheDevice(t *testing.T) {
	inWorld(t, func(w *world) {
		w.device.slow = 3 * time.Second
		w.start()
		w.pass(9 * time.Second) // in the middle of the second cycle
		w.guard.set(api.Lease{Generation: 2, Fields: candidate, Proven: proven, TrialEndsInSeconds: 60, Instance: "one"})
		w.pass(10 * time.Second)
		if n := w.log.count("device does not answer"); n != 0 {
			t.Errorf("said:\n%s", strings.Join(w.log.all(), "\n"))
		}
		if got := w.device.get("lamp"); got != "on" {
			t.Errorf("lamp is %s", got)
		}
	})
}

// TestNewLeaseIsTakenAtOnce: a rollback does not wait for the interval, not even behind a device that takes its time.
func TestNewLeaseIsTakenAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(3 * time.Second)
		w.guard.set(api.Lease{Generation: 2, Fields: candidate, Proven: proven, TrialEndsInSeconds: 60, Instance: "one"})
		w.pass(time.Second)
		if got := w.device.get("lamp"); got != "on" {
			t.Errorf("a second after the trial began, lamp is %s", got)
		}
		w.guard.set(api.Lease{Generation: 3, Fields: proven, Proven: proven, Instance: "one"})
		w.pass(time.Second)
		if got := w.device.get("lamp"); got != "off" {
			t.Errorf("a second after the rollback, lamp is %s", got)
		}
	})
}

// TestAskOpensTrial: the wish is asked for in every cycle, and the trial that it opens is driven to in the same one.
func TestAskOpensTrial(t *testing.T) {
	inWorld(t, func(w *world) {
		w.guard.decide = func(g *fakeGuard, r api.TrialRequest) bootslot.Decision {
			if r.Release.Fields.Equal(g.lease.Proven) {
				return bootslot.Decision{Kind: bootslot.Same}
			}
			if g.lease.TrialEndsInSeconds == 0 {
				g.lastTrialAt = g.clock.Uptime()
				g.setLocked(api.Lease{Generation: 2, Fields: r.Release.Fields, Proven: proven, TrialEndsInSeconds: 60, Instance: "one"})
			}
			return bootslot.Decision{Kind: bootslot.Trying, Candidate: r.Release}
		}
		w.clone.push("r1", "vent=off lamp=on")
		w.start()
		w.pass(time.Second)
		if got := w.device.written(); len(got) != 1 || got[0].at-w.guard.lastTrialAt > time.Millisecond {
			t.Errorf("written %v; the trial was opened at %v", got, w.guard.lastTrialAt)
		}
		w.guard.mu.Lock()
		defer w.guard.mu.Unlock()
		if len(w.guard.wishes) == 0 || w.guard.wishes[0].Revision != "r1" || w.guard.wishes[0].Origin != (bootslot.Origin{Author: "ann", Subject: "about r1"}) {
			t.Fatalf("wishes %+v", w.guard.wishes)
		}
		if b := w.guard.beats[len(w.guard.beats)-1]; b.Generation != 2 {
			t.Errorf("the guard was last told of generation %d", b.Generation)
		}
	})
}

func TestAsksEveryCycle(t *testing.T) {
	inWorld(t, func(w *world) {
		w.clone.push("r1", "vent=off lamp=on")
		w.guard.decide = func(*fakeGuard, api.TrialRequest) bootslot.Decision {
			return bootslot.Decision{Kind: bootslot.Refused, Reason: "a pause"}
		}
		w.start()
		w.pass(50 * every)
		w.guard.mu.Lock()
		defer w.guard.mu.Unlock()
		if n := len(w.guard.wishes); n < 49 {
			t.Errorf("%d wishes in 50 intervals", n)
		}
		if n := len(w.device.writes); n != 0 {
			t.Errorf("%d writes of what was refused", n)
		}
	})
}

// TestGuardSilent: nobody while its trial runs, then proven; never the candidate, and never what the clone holds.
func TestGuardSilent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.clone.push("r1", "vent=on lamp=on")
		w.guard.set(api.Lease{Generation: 2, Fields: candidate, Proven: proven, TrialEndsInSeconds: 40, Instance: "one"})
		w.start()
		w.pass(time.Second)
		if got := w.device.get("lamp"); got != "on" {
			t.Fatalf("in the trial, lamp is %s", got)
		}
		w.guard.setSilent(true)
		w.pass(30 * time.Second)
		if got := w.device.get("lamp"); got != "on" {
			t.Errorf("while the silent guard's trial runs, lamp is %s", got)
		}
		if d := w.agent.Status().Drives; d != status.DrivesNot {
			t.Errorf("while the silent guard's trial runs, the agent drives to %s", d)
		}
		w.device.turn("vent", "on") // whatever happens to the device now is left alone
		w.pass(3 * time.Second)
		if got := w.device.get("vent"); got != "on" {
			t.Errorf("while nobody drives, vent is %s", got)
		}
		w.pass(20 * time.Second)
		if l, v := w.device.get("lamp"), w.device.get("vent"); l != "off" || v != "off" {
			t.Errorf("when the trial is over, lamp is %s and vent %s", l, v)
		}
		w.device.turn("lamp", "on")
		w.pass(2 * every)
		if got := w.device.get("lamp"); got != "off" {
			t.Errorf("drift without a guard: lamp is %s", got)
		}
		w.guard.do(func(g *fakeGuard) { g.silent = false })
		w.pass(2 * every)
		if got := w.device.get("lamp"); got != "on" {
			t.Errorf("the guard is back and its lease says on: lamp is %s", got)
		}
		if n := w.log.count("guard silent"); n != 1 {
			t.Errorf("guard silent was said %d times:\n%s", n, strings.Join(w.log.all(), "\n"))
		}
	})
}

// TestNoGuardEver: a minute after the start, last-known-good from the record; never the clone's.
func TestNoGuardEver(t *testing.T) {
	for name, tt := range map[string]struct {
		record *Record
		want   string
	}{"record": {&Record{1, device.Fields{"vent": "off", "lamp": "on"}, false}, "on"}, "fallback": {nil, "off"}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.record = tt.record
				w.clone.push("r1", "vent=on lamp=on")
				w.guard.silent = true
				w.device.actuators = map[string]string{"vent": "broken", "lamp": "broken"}
				w.start()
				w.pass(58 * time.Second)
				if n := len(w.device.written()); n != 0 {
					t.Errorf("%d writes in the first minute", n)
				}
				w.pass(14 * time.Second)
				if got := w.device.get("lamp"); got != tt.want {
					t.Errorf("lamp is %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// TestNoWriteWithStaleLease: a lease counts from before it was asked for, and no write goes out 3 s later.
func TestNoWriteWithStaleLease(t *testing.T) {
	for name, set := range map[string]func(*world){
		"slow guard and slow way to the device": func(w *world) { w.guard.slow, w.device.slowWrite = 1900*time.Millisecond, 1200*time.Millisecond },
		"very slow way to the device":           func(w *world) { w.device.slowWrite = 3100 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.device.actuators["lamp"] = "on"
				set(w)
				w.start()
				w.pass(10 * every)
				if got := w.device.written(); len(got) != 0 {
					t.Errorf("written: %v", got)
				}
			})
		})
	}
	t.Run("slow device, quick writes", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.device.actuators["lamp"] = "on"
			w.device.slow = 4 * time.Second
			w.start()
			w.pass(2 * every)
			got := w.device.written()
			if len(got) == 0 {
				t.Fatal("nothing was written")
			}
			for _, wr := range got {
				fresh := false
				for at := range maps.Keys(w.guard.reads) {
					fresh = fresh || wr.at >= at && wr.at-at <= device.TargetTTL
				}
				if !fresh {
					t.Errorf("write at %v without a lease of the 3 s before", wr.at)
				}
			}
		})
	})
}

// TestAnOldDecisionIsNotWritten: what was decided without a guard is not written after a disk, or a SIGSTOP, has held up the cycle: the guard may be back,
// and last-known-good another one.
func TestAnOldDecisionIsNotWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(every)
		w.guard.setSilent(true)
		w.pass(2 * every)
		held := false
		w.clone.mu.Lock()
		w.clone.slow = func() {
			if !held {
				held = true
				w.device.turn("vent", "on") // drift from both
				w.device.turn("lamp", "on")
				time.Sleep(time.Minute)
			}
		}
		w.clone.mu.Unlock()
		w.pass(2 * every)
		w.guard.set(api.Lease{Generation: 9, Fields: candidate, Proven: candidate, Instance: "one"})
		w.guard.setSilent(false)
		w.pass(2 * time.Minute)
		for _, wr := range w.device.written() {
			if wr.set["lamp"] == "off" {
				t.Errorf("at %v it writes %v, last-known-good is %v", wr.at, wr.set, candidate)
			}
		}
		if got := w.device.get("vent"); !held || got != "off" {
			t.Errorf("held up: %v; vent is %s, want off", held, got)
		}
	})
}

// TestGuardChangesItsMindInASequence: each write of a sequence is of what the guard says then, even if it cannot count its generation
// on (its disk is full).
func TestGuardChangesItsMindInASequence(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(time.Second)
		w.device.set(func(d *fakeDevice) {
			d.refuses = map[string]string{"vent": "stuck"} // so that keys go one at a time: vent, lamp
			d.slowWrite = 2 * time.Second
		})
		both := device.Fields{"vent": "on", "lamp": "on"}
		w.guard.set(api.Lease{Generation: 2, Fields: both, Proven: proven, TrialEndsInSeconds: 60, Instance: "one"})
		w.pass(3500 * time.Millisecond) // both together were refused, vent alone is on its way
		w.guard.set(api.Lease{Generation: 2, Fields: proven, Proven: proven, Instance: "one"})
		w.pass(10 * every)
		if got := w.device.written(); len(got) != 0 {
			t.Errorf("written after the rollback: %v", got)
		}
		if got := w.device.get("lamp"); got != "off" {
			t.Errorf("lamp is %s", got)
		}
	})
}

// TestKillAnywhere: an agent that is started anew remembers nothing, and does the right thing from what it sees.
func TestKillAnywhere(t *testing.T) {
	inWorld(t, func(w *world) {
		w.clone.push("r1", "vent=off lamp=off")
		w.start()
		for i := range 20 {
			w.pass(time.Duration(i) * 777 * time.Millisecond)
			w.stop()
			w.device.turn("lamp", "on")
			w.pass(time.Minute)
			w.start()
			w.pass(100 * time.Millisecond)
			if got := w.device.get("lamp"); got != "off" {
				t.Fatalf("start %d: lamp is %s", i, got)
			}
			if s := w.agent.Status(); s.Declared == nil || s.Declared.Revision != "r1" {
				t.Fatalf("start %d: declared %+v", i, s.Declared)
			}
		}
	})
}

// TestLogOnce: a state is said once, however long it lasts.
func TestLogOnce(t *testing.T) {
	offline := &gitclone.Error{Kind: gitclone.ErrOffline, Err: errors.New("no route to host")}
	for name, tt := range map[string]struct {
		begin func(*world)
		lines map[string]int
	}{
		"all is well":  {func(*world) {}, nil},
		"offline":      {func(w *world) { w.clone.fail(offline) }, map[string]int{"msg=offline": 1}},
		"device away":  {func(w *world) { w.device.set(func(d *fakeDevice) { d.away = true }) }, map[string]int{"device does not answer": 1}},
		"device hangs": {func(w *world) { w.device.set(func(d *fakeDevice) { d.hangs = true }) }, map[string]int{"device does not answer": 1}},
		"guard silent": {func(w *world) { w.guard.setSilent(true) }, map[string]int{"guard silent": 1, "msg=driving": 1}},
		"value refused": {func(w *world) {
			w.device.set(func(d *fakeDevice) { d.refuses = map[string]string{"lamp": "no"} })
			w.device.turn("lamp", "on")
		},
			map[string]int{"device drifted": 1, "value refused": 1}},
		"does not converge": {func(w *world) {
			w.device.set(func(d *fakeDevice) { d.forgets = []string{"lamp"} })
			w.device.turn("lamp", "on")
		},
			map[string]int{"device drifted": 1, "field does not converge": 1}},
		"held": {func(w *world) {
			w.guard.do(func(g *fakeGuard) {
				g.decide = func(g *fakeGuard, _ api.TrialRequest) bootslot.Decision {
					return bootslot.Decision{Kind: bootslot.Refused, Reason: fmt.Sprintf("a pause of %d s is left", 1000-len(g.wishes))}
				}
			})
			w.clone.push("r1", "vent=off lamp=on")
		}, map[string]int{"desired release changed": 1, "decision changed": 1}},
		"not the agent's user": {func(w *world) {
			w.guard.refuse = &api.StatusError{Status: 403, Message: "not you"}
			w.clone.push("r1", "vent=off lamp=off")
		},
			map[string]int{"desired release changed": 1, "guard refuses the agent": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				w.pass(3 * every)
				before := len(w.log.all())
				tt.begin(w)
				w.pass(2 * time.Hour)
				lines := w.log.all()[before:]
				want := 0
				for part, n := range tt.lines {
					want += n
					if got := w.log.count(part); got != n {
						t.Errorf("%q was said %d times, want %d", part, got, n)
					}
				}
				if len(lines) != want || before != 0 {
					t.Errorf("%d lines before and %d in two hours, want 0 and %d:\n%s", before, len(lines), want, strings.Join(lines, "\n"))
				}
			})
		})
	}
}

func TestContendedIsSaidOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(time.Second)
		for range 40 {
			w.device.turn("lamp", "on")
			w.pass(every / 2)
		}
		if n := w.log.count("field contended"); n != 1 {
			t.Errorf("said %d times", n)
		}
		if n := w.log.count("device drifted"); n > 3 {
			t.Errorf("drift was said %d times", n)
		}
		if n := len(w.device.written()); n != 40 {
			t.Errorf("%d corrections of 40", n)
		}
		for range 20 { // now and then
			w.pass(4 * time.Minute)
			for range 5 {
				w.device.turn("lamp", "on")
				w.pass(every / 2)
			}
		}
		if n := w.log.count("contended"); n != 1 {
			t.Errorf("said %d times:\n%s", n, strings.Join(w.log.all(), "\n"))
		}
		w.pass(8 * time.Minute)
		if n := w.log.count("no longer contended"); n != 1 {
			t.Errorf("its end was said %d times", n)
		}
	})
}

// TestFlippingDeviceDoesNotSpin: at most eight cycles more per interval, however often the device cries.
func TestFlippingDeviceDoesNotSpin(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(time.Second)
		before := w.agent.Status().DeviceCycles
		for range 10 * 80 {
			w.device.turn("other", time.Now().String())
			w.pass(every / 80)
		}
		if n := w.agent.Status().DeviceCycles - before; n > 10*9 {
			t.Errorf("%d cycles in 10 intervals", n)
		}
		w.guard.mu.Lock()
		defer w.guard.mu.Unlock()
		if n := len(w.guard.beats); n != 11 {
			t.Errorf("%d heartbeats in 10 intervals", n)
		}
	})
}

func TestSuspendRepair(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(3 * every)
		w.suspendFor(time.Hour, true)
		w.pass(2 * every)
		w.device.turn("lamp", "on")
		w.pass(30 * time.Minute)
		if got := w.device.get("lamp"); got != "on" {
			t.Errorf("repair is suspended: lamp is %s", got)
		}
		if s := w.agent.Status(); s.Drives != status.DrivesNot || len(s.Report.Left) != 1 {
			t.Errorf("it drives to %s; drift %v", s.Drives, s.Report.Left)
		}
		w.pass(31 * time.Minute)
		if got := w.device.get("lamp"); got != "off" {
			t.Errorf("the suspension is over: lamp is %s", got)
		}
	})
}

func TestSuspendAloneDoesNotStopTheRepair(t *testing.T) {
	inWorld(t, func(w *world) {
		w.suspendFor(time.Hour, false)
		w.start()
		w.pass(3 * every)
		w.device.turn("lamp", "on")
		w.pass(every)
		if got := w.device.get("lamp"); got != "off" {
			t.Errorf("lamp is %s", got)
		}
	})
}

// TestTakeOver: another configuration is no news of the world, and the silence of a guard is counted on.
func TestTakeOver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.clone.push("r1", "vent=off lamp=on")
		w.guard.set(api.Lease{Generation: 2, Fields: candidate, Proven: proven, TrialEndsInSeconds: 40, Instance: "one"})
		w.start()
		w.pass(3 * every)
		said := len(w.log.all())
		for range 5 {
			w.stop()
			w.startFrom(w.agent)
			w.pass(every)
		}
		if now := w.log.all(); len(now) != said {
			t.Errorf("said again:\n%s", strings.Join(now[said:], "\n"))
		}
		if s := w.agent.Status(); s.DeviceCycles < 8 || s.Declared == nil {
			t.Errorf("status %+v", s)
		}
		w.guard.setSilent(true)
		w.pass(every)
		w.stop()
		w.startFrom(w.agent)
		w.pass(41 * time.Second)
		if got := w.device.get("lamp"); got != "off" {
			t.Errorf("when the silent guard's trial is over, lamp is %s", got)
		}
	})
}

func TestGoodbye(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(time.Second)
		w.stop()
		w.agent.Goodbye(context.Background())
		if last := w.guard.beats[len(w.guard.beats)-1]; !last.Goodbye || last.Generation != 1 {
			t.Errorf("the last heartbeat is %+v", last)
		}
	})
}

// The service manager does not wait for a device that hangs, and gives a start 90 s, whatever the interval is.
func TestReadyWithALongInterval(t *testing.T) {
	inWorld(t, func(w *world) {
		w.device.hangs, w.clone.hangs, w.every = true, true, time.Hour
		w.start()
		w.pass(readyTime - time.Second)
		if n := w.notes.count("READY=1"); n != 0 {
			t.Errorf("READY=1 %d times before anything has come round", n)
		}
		w.pass(2 * time.Second)
		if n := w.notes.count("READY=1"); n != 1 {
			t.Errorf("READY=1 %d times: %v", n, w.notes.all())
		}
	})
}

func TestReadyAndWatchdog(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprintf("device hangs %v", hangs), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.device.hangs = hangs
				w.clone.hangs = true
				w.dog = 5 * time.Second
				w.start()
				w.pass(time.Minute)
				w.stop()
				ready, dogs := w.notes.count("READY=1"), w.notes.count("WATCHDOG=1")
				if n := w.notes.count("STATUS="); n != 1 {
					t.Errorf("%d STATUS= lines, want 1: %v", n, w.notes.all())
				}
				if ready != 1 || dogs < 12 {
					t.Errorf("READY=1 %d times, WATCHDOG=1 %d times in a minute: %v", ready, dogs, w.notes.all())
				}
			})
		})
	}
}

// A cycle that does not end, though all that it waits for has a time-out, is no life: neither the guard nor the service manager counts on it.
func TestACycleThatDoesNotEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.dog = 5 * time.Second
		w.start()
		w.pass(time.Minute)
		count := func() (beats, dogs int) {
			w.guard.mu.Lock()
			defer w.guard.mu.Unlock()
			return len(w.guard.beats), w.notes.count("WATCHDOG=1")
		}
		w.clone.mu.Lock()
		w.clone.slow = func() { <-w.clone.hang }
		w.clone.mu.Unlock()
		b0, d0 := count()
		w.pass(time.Minute) // no longer than a cycle may take
		b1, d1 := count()
		if b1-b0 < 6 || d1-d0 < 11 {
			t.Errorf("%d heartbeats and %d pings in the first minute of it, want them to go on", b1-b0, d1-d0)
		}
		w.pass(20 * time.Second)
		b2, d2 := count()
		w.pass(10 * time.Minute)
		if b3, d3 := count(); b3 != b2 || d3 != d2 {
			t.Errorf("%d heartbeats and %d pings after that, want none", b3-b2, d3-d2)
		}
	})
}

// One that takes its time goes on being alive when it has ended.
func TestACycleThatTakesLong(t *testing.T) {
	inWorld(t, func(w *world) {
		w.dog = 5 * time.Second
		w.clone.slow = func() { time.Sleep(50 * time.Second) } // a disk
		w.start()
		w.pass(10 * time.Minute)
		if beats, dogs := len(w.guard.beats), w.notes.count("WATCHDOG=1"); beats < 70 || dogs < 118 {
			t.Errorf("%d heartbeats and %d pings in ten minutes", beats, dogs)
		}
	})
}

// What the clone reports of its own file is told once for as long as it lasts, and again when it comes again.
func TestTheClonesOwnFile(t *testing.T) {
	inWorld(t, func(w *world) {
		report := func(n ...gitclone.Notice) {
			w.clone.mu.Lock()
			w.clone.own = n
			w.clone.mu.Unlock()
			w.pass(time.Minute)
		}
		w.start()
		report(gitclone.Notice{What: "set-aside", Text: "clone.db was damaged"})
		report(gitclone.Notice{What: "set-aside", Text: "clone.db was damaged"}, gitclone.Notice{What: "read-only", Text: "it cannot be written"})
		report()
		report(gitclone.Notice{What: "read-only", Text: "it cannot be written"})
		for text, want := range map[string]int{"clone.db was damaged": 1, "it cannot be written": 2} {
			if n := w.log.count(`level=WARN msg=storage message="` + text + `"`); n != want {
				t.Errorf("%q is told %d times, want %d: %q", text, n, want, w.log.all())
			}
		}
		if (gitclone.Notice{What: "set-aside"}).Unwritten() || !(gitclone.Notice{What: "read-only"}).Unwritten() || !(gitclone.Notice{What: "in-memory"}).Unwritten() {
			t.Error("a disk that cannot be written is not told from a file that was set aside")
		}
	})
}

func TestNextFetch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		kind  gitclone.Kind
		times int
		want  time.Duration
	}{
		{"well", "", 0, 30 * time.Second},
		{"offline once", gitclone.ErrOffline, 1, 30 * time.Second},
		{"offline three times", gitclone.ErrOffline, 3, 2 * time.Minute},
		{"offline for a month", gitclone.ErrOffline, 5000, 10 * time.Minute},
		{"no right", gitclone.ErrAuthOrNotFound, 3, 2 * time.Minute},
		{"bad file: the next push may mend it", gitclone.ErrFileInvalid, 50, 30 * time.Second},
		{"branch gone: it may come back", gitclone.ErrBranchGone, 50, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []struct{ random, factor float64 }{{0, 0.8}, {0.5, 1}, {1, 1.2}} {
				want := time.Duration(float64(tt.want) * r.factor)
				if got := nextFetch(30*time.Second, tt.kind, tt.times, r.random); (got - want).Abs() > time.Millisecond {
					t.Errorf("nextFetch(30s, %q, %d, %v) = %v, want %v", tt.kind, tt.times, r.random, got, want)
				}
			}
		})
	}
	if got := nextFetch(time.Hour, gitclone.ErrOffline, 9, 0.5); got != time.Hour {
		t.Errorf("an interval above the limit: %v", got)
	}
}

func TestFetchIntervals(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(time.Hour)
		var gaps []time.Duration
		for i := 1; i < len(w.clone.fetches); i++ {
			gaps = append(gaps, w.clone.fetches[i].Sub(w.clone.fetches[i-1]))
		}
		if len(gaps) < 90 || slices.Min(gaps) < 24*time.Second || slices.Max(gaps) > 36*time.Second || slices.Min(gaps) == slices.Max(gaps) {
			t.Errorf("%d fetches, %v to %v apart", len(gaps)+1, slices.Min(gaps), slices.Max(gaps))
		}
		n := len(w.clone.fetches)
		w.agent.FetchNow()
		w.pass(time.Millisecond)
		if len(w.clone.fetches) != n+1 {
			t.Error("FetchNow did not fetch")
		}
	})
}

// TestNoticesOfTheRepository: each is told in the log once, and in status as long as it lasts, offline, too.
func TestNoticesOfTheRepository(t *testing.T) {
	inWorld(t, func(w *world) {
		w.clone.push("r1", "vent=off lamp=off")
		w.clone.notices = []string{"a twin", "a crowd"}
		w.start()
		w.pass(time.Hour)
		w.clone.fail(&gitclone.Error{Kind: gitclone.ErrOffline, Err: errors.New("no route")})
		w.pass(time.Hour)
		if s := w.agent.Status(); s.Git.State != status.GitOffline || !slices.Equal(s.Git.Notices, w.clone.notices) || len(s.Problems) > 0 {
			t.Errorf("git %+v, problems %q", s.Git, s.Problems)
		}
		w.clone.fail(nil)
		w.clone.notices = []string{"a crowd"}
		w.agent.FetchNow()
		w.pass(time.Second)
		if s := w.agent.Status(); !slices.Equal(s.Git.Notices, w.clone.notices) {
			t.Errorf("notices %q", s.Git.Notices)
		}
		for _, n := range []string{"a twin", "a crowd"} {
			if got := w.log.count(n); got != 1 {
				t.Errorf("%q was logged %d times", n, got)
			}
		}
	})
}

// TestOfflineForAMonth: nothing is desired anew, and all goes on.
func TestOfflineForAMonth(t *testing.T) {
	inWorld(t, func(w *world) {
		w.clone.push("r1", "vent=off lamp=off")
		w.start()
		w.pass(time.Second)
		w.clone.fail(&gitclone.Error{Kind: gitclone.ErrOffline, Err: errors.New("no route")})
		w.pass(24 * time.Hour)
		s := w.agent.Status()
		if s.Git.State != status.GitOffline || s.Git.Times < 100 || s.Declared == nil || s.Git.LastFetch.IsZero() {
			t.Errorf("git %+v, declared %+v", s.Git, s.Declared)
		}
		w.device.turn("lamp", "on")
		w.pass(time.Second)
		if got := w.device.get("lamp"); got != "off" {
			t.Errorf("lamp is %s", got)
		}
		w.clone.fail(nil)
		w.agent.FetchNow()
		w.pass(time.Second)
		if n := w.log.count("repository answers"); n != 1 {
			t.Errorf("said %d times", n)
		}
	})
}
