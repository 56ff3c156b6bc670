package guard

import (
	"errors"
	"fmt"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/journal"
	"os"
	"time"
)

// loadSuspension reads what the run folder says.
func (g *Guard) loadSuspension() {
	s, left := api.LoadSuspension(g.cfg.SuspendFile(), g.clock)
	if left > 0 {
		g.suspension, g.suspended, g.quiet.Over = s, g.clock.Uptime()+left, s.Repair && s.Rested
	}
}

func (g *Guard) expireSuspension(now time.Duration) {
	if g.suspended == 0 {
		return
	}
	if now < g.suspended {
		g.quieten(now)
		return
	}
	_ = g.resume("its time is over", "") // which no file can change
}

// quieten stops the repair once the device has read back last-known-good for a while.
func (g *Guard) quieten(now time.Duration) {
	if !g.suspension.Repair || g.quiet.Over {
		return
	}
	if g.quiet.See(now, g.phase() != api.PhaseTrial && g.lookNow(now).ReadBack) {
		g.suspension.Rested = true
		// And if power fails now? The run folder is gone with it, and the suspension has ended. If only this process dies, the agent
		// has seen the same, and the next guard waits for it once more.
		if err := writeJSONFile(g.cfg.SuspendFile(), g.suspension); err != nil {
			g.log.Warn("the suspension's file cannot be written", "event", journal.CannotWrite, "error", err)
		}
		g.log.Warn("repair is suspended: nobody drives the device", "event", journal.RepairStopped)
		g.bump()
	}
}

// suspend stops trials, and with repair the driving; it cancels a running trial.
func (g *Guard) suspend(d time.Duration, repair bool, who string) (api.Suspension, error) {
	s := api.Suspension{UntilUptimeSeconds: (g.clock.Uptime() + d).Seconds(), BootID: api.BootID(), Repair: repair, Who: who}
	if err := writeJSONFile(g.cfg.SuspendFile(), s); err != nil {
		return s, fmt.Errorf("cannot write the suspension: %w", err)
	}
	if g.ledger.Trial != nil && g.unwritten == nil {
		g.settle(bootslot.Cancelled, bootslot.Evidence{Message: "suspended", Who: who})
	}
	g.suspension, g.suspended = s, g.clock.Uptime()+d
	g.quiet = bootslot.Quiet{}
	what := "trials for " + d.String()
	if repair {
		what = "trials and repair for " + d.String()
	}
	g.record(bootslot.Event{Kind: bootslot.EventSuspended, Who: who, Message: what})
	g.bump()
	return s, nil
}

// resume ends a suspension. The file goes first: the agent obeys it, too, so the suspension stays for as long as the file does, unless its time is over. A
// guard that ran as another user, in a folder where only his own files are a user's to remove, may have left one that this one cannot.
func (g *Guard) resume(why, by string) error {
	if err := os.Remove(g.cfg.SuspendFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		g.log.Warn("the suspension's file cannot be removed", "event", journal.CannotWrite, "error", err)
		if g.clock.Uptime() < g.suspended {
			return fmt.Errorf("the suspension stays: %w. As root: rm %s; then resume again", err, g.cfg.SuspendFile())
		}
	}
	if g.suspended == 0 {
		return nil
	}
	wasQuiet := g.quiet.Over
	g.suspension, g.suspended, g.quiet = api.Suspension{}, 0, bootslot.Quiet{}
	g.record(bootslot.Event{Kind: bootslot.EventResumed, Message: why, Who: by})
	if wasQuiet {
		g.enter(g.clock.Uptime()) // what was measured while nobody drove is no baseline
	}
	g.wake()
	g.bump()
	return nil
}
