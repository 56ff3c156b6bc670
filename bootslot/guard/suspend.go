package guard

import (
	"errors"
	"fmt"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"os"
	"time"
)

// loadSuspension reads what the run folder says.
func (g *Guard) loadSuspension() {
	s, left := api.LoadSuspension(g.cfg.SuspendFile(), g.clock)
	if left > 0 {
		g.suspension, g.suspended, g.quiet = s, g.clock.Uptime()+left, s.Repair && s.Rested
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
	g.resume("its time is over", "")
}

// quieten stops the repair once the device has read back last-known-good for a while.
func (g *Guard) quieten(now time.Duration) {
	if !g.suspension.Repair || g.quiet {
		return
	}
	if g.phase() == api.PhaseTrial || !g.lookNow(now).ReadBack {
		g.quietSince = 0
		return
	}
	if g.quietSince == 0 {
		g.quietSince = now
	}
	if now-g.quietSince >= quietAfter {
		g.quiet = true
		g.suspension.Rested = true
		// And if power fails now? The run folder is gone with it, and the suspension has ended. If only this process dies, the agent
		// has seen the same, and the next guard waits for it once more.
		if err := writeJSONFile(g.cfg.SuspendFile(), g.suspension); err != nil {
			g.log.Warn("the suspension's file cannot be written", "error", err)
		}
		g.log.Warn("repair is suspended: nobody drives the device")
		g.bump()
	}
}

// quietAfter is how long last-known-good must read back before suspend --repair stops the driving (docs/design.md, "Who drives").
const quietAfter = 5 * time.Second

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
	g.quiet, g.quietSince = false, 0
	what := "trials for " + d.String()
	if repair {
		what = "trials and repair for " + d.String()
	}
	g.record(bootslot.Event{Kind: bootslot.EventSuspended, Who: who, Message: what})
	g.bump()
	return s, nil
}

// resume ends a suspension. The file goes first: the agent obeys it, too.
func (g *Guard) resume(why, by string) {
	if err := os.Remove(g.cfg.SuspendFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		g.log.Warn("the suspension's file cannot be removed", "error", err)
	}
	if g.suspended == 0 {
		return
	}
	wasQuiet := g.quiet
	g.suspension, g.suspended, g.quiet, g.quietSince = api.Suspension{}, 0, false, 0
	g.record(bootslot.Event{Kind: bootslot.EventResumed, Message: why, Who: by})
	if wasQuiet {
		g.enter(g.clock.Uptime()) // what was measured while nobody drove is no baseline
	}
	g.wake()
	g.bump()
}
