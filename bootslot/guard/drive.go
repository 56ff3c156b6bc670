package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/journal"
	"holdfast/device"
)

// driverNow names who drives.
func (g *Guard) driverNow(now time.Duration) bootslot.Driver {
	return g.heard.Driver(now, g.cfg.Device.Interval, g.ledger.Generation, g.genSince, g.quiet.Over)
}

// noteDriver logs a change of driver and wakes this process's driving.
func (g *Guard) noteDriver(now time.Duration) {
	d := g.driverNow(now)
	if d == g.driverSaid {
		return
	}
	if g.driverSaid != "" || d != bootslot.GuardDrives {
		g.log.Info("driver", "event", journal.Driver, "driver", d)
	}
	g.driverSaid = d
	g.wake()
	g.bump()
}

// errNotOurs reports that the agent drives, or nobody is to.
var errNotOurs = errors.New("the guard does not drive now")

// target is what this process writes, as long as it is the one to drive.
func (g *Guard) target(context.Context) (device.Target, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.catchUp()
	now := g.clock.Uptime()
	g.driving = now
	if g.driverNow(now) != bootslot.GuardDrives {
		return device.Target{}, errNotOurs
	}
	return device.Target{Generation: g.ledger.Generation, Fields: g.effective().Fields, ReadAt: now}, nil
}

// drive keeps the device while the agent does not: once per device interval, and at once when what it is to be has changed.
func (g *Guard) drive(ctx context.Context) {
	for {
		if _, err := g.target(ctx); err == nil {
			g.mu.Lock()
			driver := g.driver
			g.mu.Unlock()
			g.driven(ctx, driver.Drive(ctx, g.target))
		}
		if ctx.Err() != nil {
			return
		}
		g.mu.Lock()
		pause := g.cfg.Device.Interval
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-g.kick:
		case <-g.clock.After(pause):
		}
	}
}

// driven takes this process's own report.
func (g *Guard) driven(ctx context.Context, r device.Report) {
	g.mu.Lock()
	if len(r.Written) > 0 {
		g.log.Info("drift corrected by the guard", "event", journal.Corrected, "fields", r.Written)
		select {
		case g.look <- struct{}{}:
		default:
		}
	}
	g.drove = r
	g.mu.Unlock()
	g.refused(ctx, r.Generation, r.Refused)
}

// beaten takes the agent's heartbeat.
func (g *Guard) beaten(ctx context.Context, h api.Heartbeat) {
	g.mu.Lock()
	now := g.clock.Uptime()
	current := h.Generation == g.ledger.Generation && h.Instance == g.instance
	if current && !g.heard.Current(h.Generation) {
		g.bump()
		select {
		case g.look <- struct{}{}:
		default:
		}
	}
	g.heard.Beat(now, h.Generation, current)
	g.beat = h
	if h.Goodbye {
		g.heard, g.beat = bootslot.Heard{}, api.Heartbeat{}
		g.log.Info("the agent says goodbye", "event", journal.Goodbye)
	}
	g.mu.Unlock()
	if h.Goodbye {
		g.goodbye("the agent was told to stop")
		g.wake()
		return
	}
	if current {
		g.refused(ctx, h.Generation, h.Refused)
	}
}

// refused looks into a candidate's value that the device does not take: if the device, asked by the guard, takes last-known-good's, the
// candidate is at fault, and the trial has failed at once. Nothing convicts if it refuses that as well.
func (g *Guard) refused(ctx context.Context, generation uint64, refused map[string]string) {
	for _, a := range g.profile.Actuators {
		message, ok := refused[a.Name]
		if !ok {
			continue
		}
		g.mu.Lock()
		if g.phase() != api.PhaseTrial || generation != g.ledger.Generation || g.found != nil {
			g.mu.Unlock()
			return
		}
		tried, good := g.ledger.Trial.Candidate.Fields[a.Name], g.ledger.LastKnownGood(g.board).Fields[a.Name]
		key := fmt.Sprint(generation, " ", a.Name)
		if tried == good || g.asked == key {
			g.mu.Unlock()
			continue
		}
		g.asked = key
		client := g.client
		g.mu.Unlock()
		go func() {
			// The window bounds the trial; one question is bounded by the client's own time-outs. The answer counts only for this trial.
			_, err := client.Apply(ctx, device.Fields{a.Name: good}, func() error {
				g.mu.Lock()
				defer g.mu.Unlock()
				if g.phase() != api.PhaseTrial || g.ledger.Generation != generation {
					return device.ErrStale
				}
				return nil
			})
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.phase() != api.PhaseTrial || g.ledger.Generation != generation {
				return
			}
			if err == nil {
				g.found = &bootslot.Refusal{Check: bootslot.ConvergedCheck(a.Name),
					Message: fmt.Sprintf("the device refuses %s: %s (%s) and accepts %s", a.Name, tried, message, good)}
			} else if !errors.As(err, new(*device.RefusedError)) {
				g.asked = "" // it did not answer: ask again
			}
		}()
		return
	}
}
