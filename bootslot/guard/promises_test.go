package guard

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/ledger"
)

// witness sees each record that is to be stored, and the one before it: power may fail right after any of them.
type witness struct {
	record
	b    *bench
	last bootslot.Ledger
	ends []string // how the trials that it saw were ended
}

// watch puts a witness between the guard and its disk.
func (b *bench) watch() *witness {
	w := &witness{record: b.disk.record, b: b, last: b.g.ledger}
	b.disk.record = w
	return w
}

func (w *witness) Save(s bootslot.Step) error {
	was, is := w.last, s.Ledger
	switch {
	case was.Trial == nil && is.Trial != nil:
		t := is.Trial
		if !slices.ContainsFunc(is.Tries, func(y bootslot.Try) bool { return y.Digest == t.Digest && y.Count == t.Attempt && y.Count > 0 }) {
			w.b.Errorf("record %d opens a trial and does not count it as attempt %d: %+v", is.Generation, t.Attempt, is.Tries)
		}
		if is.Active != was.Active || is.Slots[t.Slot].Status != bootslot.SlotTrying {
			w.b.Errorf("record %d opens a trial, active is %q and was %q, its slot is %s", is.Generation, is.Active, was.Active, is.Slots[t.Slot].Status)
		}
	case was.Trial != nil && is.Trial == nil:
		t := was.Trial
		marked := slices.ContainsFunc(is.Marks, func(m bootslot.Mark) bool { return slices.Contains(m.Candidates, t.Digest) })
		status := is.Slots[t.Slot].Status
		if marked != (status == bootslot.SlotFailed) || (is.Active == t.Slot) != (status == bootslot.SlotGood) {
			w.b.Errorf("record %d ends a trial, its slot is %s, active %q, marked: %v", is.Generation, status, is.Active, marked)
		}
		w.ends = append(w.ends, string(status))
	}
	if len(is.Marks) < len(was.Marks) {
		w.b.Errorf("record %d has %d marks, the one before it %d", is.Generation, len(is.Marks), len(was.Marks))
	}
	if g := w.b.g.ledger.Generation; g != was.Generation {
		w.b.Errorf("record %d is in force before it is stored", g)
	}
	if err := w.record.Save(s); err != nil {
		return err
	}
	if side, err := ledger.ReadSidecar(filepath.Join(w.b.cfg.GuardFolder(), "ledger.json")); err != nil || side.Generation != is.Generation {
		w.b.Errorf("record %d is to be in force, and the sidecar holds %d (%v)", is.Generation, side.Generation, err)
	}
	w.last = is
	return nil
}

// A rollback is never stored without its mark, nor a trial without its attempt, not for one transaction; and none is in force before both
// files hold it.
func TestEachRecordIsWhole(t *testing.T) {
	b := newBench(t, "")
	w := b.watch()
	b.try(0, "lamp", "on")
	b.temp = 50
	b.pass(5 * time.Second)
	b.temp = 20
	b.pass(40 * time.Second) // the mark stands
	b.try(0, "fan", "on")
	b.wish(0) // not desired any more
	b.try(0, "fan", "on")
	b.pass(30 * time.Second)
	b.try(0, "fan", "on", "pump", "on")
	b.clock.up += time.Minute // stopped
	b.pass(time.Second)
	b.try(0, "fan", "on", "vent", "off")
	b.pass(time.Second)
	b.temp = 50
	b.pass(5 * time.Second)
	b.want("trials", len(w.ends), 5)
	b.want("of which failed", len(slices.DeleteFunc(w.ends, func(s string) bool { return s != string(bootslot.SlotFailed) })), 2)
}

// Power fails while the device is returning: the next guard goes on driving it back, and asks what became of the check.
func TestARestartWhileReturning(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.temp = 50
	b.pass(5 * time.Second)
	b.want("phase", b.g.phase(), api.PhaseReturning)
	b.crash()
	b.want("phase after the start", b.g.phase(), api.PhaseReturning)
	b.want("marks after the start", len(b.g.ledger.Marks), 1)
	b.state["lamp"] = "on" // it never got the word
	b.want("lamp", b.lease().Fields["lamp"], "off")
	if target, err := b.g.target(t.Context()); err != nil || target.Fields["lamp"] != "off" {
		t.Errorf("target of a guard with no agent = %v, %v; want lamp off", target.Fields, err)
	}
	b.pass(time.Minute)
	b.want("phase while the check fails", b.g.phase(), api.PhaseReturning)
	b.want("something else meanwhile", b.wish(0, "fan", "on").Kind, bootslot.Refused)
	b.temp = 20
	b.pass(20 * time.Second)
	b.want("phase when it holds", b.g.phase(), api.PhaseIdle)
	b.want("cause", b.g.ledger.Marks[0].Cause, bootslot.CauseFailed)
	b.crash()
	b.want("marks after another start", len(b.g.ledger.Marks), 1)
	b.want("asked again", b.wish(0, "lamp", "on").Kind, bootslot.Held)
}

// An agent that dies right after its first heartbeat has not lived for the time in which it is only missed.
func TestAnAgentIsNotAliveWhileItIsOnlyMissed(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.pass(2 * time.Second)
	b.mute = true
	b.pass(22 * time.Second) // missed, not yet dead; longer than a soak
	b.want("phase", b.g.phase(), api.PhaseTrial)
	b.want("last-known-good lamp", b.lease().Proven["lamp"], "off")
	b.pass(40 * time.Second)
	b.want("phase at the window's end", b.g.phase(), api.PhaseReturning)
	b.want("check", b.g.ledger.Marks[0].Check, bootslot.AgentAlive)
}

// The disk is well again and the verdict still waits for its next attempt: nothing is admitted past it.
func TestNothingIsAdmittedBeforeTheVerdictIsWritten(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.temp = 50
	b.disk.err = unix.ENOSPC
	b.pass(5 * time.Second)
	b.temp = 20
	b.pass(40 * time.Second) // the baseline would be there
	b.disk.err = nil
	b.clock.up = b.g.retryAt
	for _, fields := range [][]string{{"fan", "on"}, {"lamp", "on"}, {}} {
		b.wish(0, fields...)
		b.want("marks", len(b.g.ledger.Marks), 0)
		b.want("slot", b.g.ledger.Slots[bootslot.SlotA].Status, bootslot.SlotTrying)
		b.want("effective lamp", b.lease().Fields["lamp"], "off")
	}
	b.want("decision", b.wish(0, "fan", "on").Kind, bootslot.Refused)
	b.pass(time.Second)
	b.want("marks once it is written", len(b.g.ledger.Marks), 1)
	b.want("cause", b.g.ledger.Marks[0].Cause, bootslot.CauseFailed)
}

// The pause before the next attempt is counted from the end of the last one, however long the guard has run.
func TestPausesRunFromTheTrialsEnd(t *testing.T) {
	b := newBench(t, "")
	b.pass(10 * time.Minute)
	b.try(0, "lamp", "on")
	b.clock.up += 20 * time.Second // stopped
	b.pass(40 * time.Second)
	b.want("tries counted", b.g.ledger.Tries[0].Count, 1)
	d := b.wish(0, "lamp", "on")
	b.want("decision in the pause", d.Kind, bootslot.Refused)
	b.want("pause left", d.Wait > 0 && d.Wait < time.Minute, true)
	b.want("another content", b.wish(0, "fan", "on").Kind, bootslot.Trying)
	b.wish(0) // not desired any more: that is a trial's end, too
	b.pass(40 * time.Second)
	b.want("decision in the pause after that", b.wish(0, "lamp", "on").Kind, bootslot.Refused)
	b.pass(21 * time.Second)
	b.want("decision after the pause", b.wish(0, "lamp", "on").Kind, bootslot.Trying)
}

// A heartbeat that is about the lease of the guard's run before says nothing of this one's, though the generation is the same.
func TestAHeartbeatOfAnotherRunIsStale(t *testing.T) {
	b := newBench(t, "")
	b.pass(20 * time.Second)
	before := b.lease()
	b.mute = true
	b.crash()
	b.want("generation", b.lease().Generation, before.Generation)
	for range 30 {
		b.g.beaten(t.Context(), api.Heartbeat{Generation: before.Generation, Instance: before.Instance})
		b.pass(time.Second)
	}
	b.want("the agent lives", b.g.heard.Alive(b.clock.up, b.cfg.Device.Interval, b.g.ledger.Generation), false)
	b.want("driver", b.g.driverNow(b.clock.up), bootslot.GuardDrives)
}
