package guard

import (
	"context"
	"fmt"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/journal"
	"holdfast/device"
	"slices"
	"time"
)

// observation is what the device said last.
type observation struct {
	known    bool // it has been asked
	answered bool
	state    device.State
	started  time.Duration // uptime at which the question went out
	err      string
}

// illness is a required check that fails on the release in force. Reported is what status shows, told what log and history were told.
type illness struct {
	since          time.Time // wall clock
	reported, told bool
}

// telling is when log and history may next be told of a check that fails: one that comes and goes for ever must neither wear the flash nor push every
// verdict out of the history. Status always has it.
type telling struct {
	next  time.Duration // uptime
	pause time.Duration
}

// The pause between two alarms of one check doubles up to maxTelling, and starts anew after as long without one.
const (
	minTelling = time.Minute
	maxTelling = 6 * time.Hour
)

// tells reports whether an alarm of check may be told at uptime now, and makes the next one wait.
func (g *Guard) tells(check string, now time.Duration) bool {
	t := g.telling[check]
	if now < t.next {
		return false
	}
	if now-t.next >= maxTelling {
		t.pause = 0
	}
	t.pause = min(max(2*t.pause, minTelling), maxTelling)
	t.next = now + t.pause
	g.telling[check] = t
	return true
}

// checkState is since when a check is as it is.
type checkState struct {
	ok    bool
	since time.Duration // uptime
}

// readings are what the device's sensors say now, of those that the profile knows: evidence is kept in the record, which stays small
// whatever the device tells. Nil if it does not answer.
func (g *Guard) readings() bootslot.Readings {
	if !g.seen.answered {
		return nil
	}
	out := bootslot.Readings{}
	for _, r := range g.profile.Readings {
		if v, ok := g.seen.state.Readings[r.Name]; ok {
			out[r.Name] = v
		}
	}
	return out
}

// observe reads the device's state, fast while there is something to find out. A device that hangs holds up only this.
func (g *Guard) observe(ctx context.Context) {
	for {
		g.mu.Lock()
		g.observing = g.clock.Uptime()
		client, pause := g.client, g.cfg.Device.Interval
		if g.fast() {
			pause = g.cfg.Guard.Interval
		}
		g.mu.Unlock()
		started := g.clock.Uptime()
		st, err := client.State(ctx)
		if ctx.Err() != nil {
			return
		}
		g.observed(st, err, started)
		select {
		case <-ctx.Done():
			return
		case <-g.look:
			// Not at once: a device that answers nothing would be asked without end.
			select {
			case <-ctx.Done():
				return
			case <-g.clock.After(min(pause, g.interval()) / 4):
			}
		case <-g.clock.After(pause):
		}
	}
}

func (g *Guard) observed(st device.State, err error, started time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.seen
	g.seen = observation{known: true, answered: err == nil, state: st, started: started}
	if err != nil {
		g.seen.err = err.Error()
		g.checks.Observe(nil, started)
	} else {
		g.checks.Observe(&st, started)
	}
	if was.known && was.answered != g.seen.answered || !was.known {
		if g.seen.answered {
			g.log.Info("device answers", "event", journal.DeviceBack)
		} else {
			g.log.Warn("device does not answer", "event", journal.DeviceAway, "error", g.seen.err)
		}
		g.bump()
	}
}

// lookNow gathers what the guard sees at this tick.
func (g *Guard) lookNow(now time.Duration) bootslot.Look {
	k := bootslot.Look{At: now, Answered: g.seen.answered, Refusal: g.found, Silent: g.heard.Silent(now, g.cfg.Device.Interval, g.genSince)}
	want := g.effective().Fields
	drifted := map[string]device.Drift{}
	if g.seen.answered {
		for _, d := range device.Diff(g.profile, want, g.seen.state.Actuators) {
			drifted[d.Field] = d
		}
		aside := g.aside()
		k.ReadBack = g.seen.started >= g.genSince
		for f := range drifted {
			k.ReadBack = k.ReadBack && aside[f]
		}
	}
	if g.seen.known {
		k.Samples = append(k.Samples, bootslot.Sample{Check: bootslot.DeviceAnswers, OK: g.seen.answered, Message: g.seen.err, At: g.seen.started})
		for _, a := range g.profile.Actuators {
			s := bootslot.Sample{Check: bootslot.ConvergedCheck(a.Name), OK: g.seen.answered, Message: "the device does not answer", At: g.seen.started}
			if d, ok := drifted[a.Name]; ok {
				s.OK, s.Message = false, fmt.Sprintf("%s is to be %s and the device reports %q", d.Field, d.Want, d.Got)
			}
			k.Samples = append(k.Samples, s)
		}
	}
	if s, ok := g.heard.Sample(now, g.cfg.Device.Interval, g.ledger.Generation, g.genSince); ok {
		k.Samples = append(k.Samples, s)
	}
	for _, m := range g.checks.Latest() {
		if m.Ended == 0 || m.Fatal && m.Value == nil {
			continue // not measured
		}
		at := m.Started
		if !m.OK {
			at = m.Ended // a check that is stuck fails again and again in one measurement
		}
		k.Samples = append(k.Samples, bootslot.Sample{Check: m.Name, OK: m.OK, Message: m.Message, At: at})
	}
	return k
}

// aside are the fields that do not count for reading back: those that the device refuses, that do not converge or that somebody else keeps moving; in a
// trial those that are exempt. Each has a check of its own, which does not hold; they are no reason to let the others off.
func (g *Guard) aside() map[string]bool {
	out := map[string]bool{}
	if g.phase() == api.PhaseTrial {
		for _, c := range g.ledger.Trial.Baseline.Exempt {
			for _, a := range g.profile.Actuators {
				if c == bootslot.ConvergedCheck(a.Name) {
					out[a.Name] = true
				}
			}
		}
		return out
	}
	set := func(refused map[string]string, lists ...[]string) {
		for f := range refused {
			out[f] = true
		}
		for _, f := range slices.Concat(lists...) {
			out[f] = true
		}
	}
	if g.heard.Current(g.ledger.Generation) {
		set(g.beat.Refused, g.beat.NonConvergent, g.beat.Contended)
	}
	if g.drove.Generation == g.ledger.Generation {
		set(g.drove.Refused, g.drove.NonConvergent, g.drove.Contended)
	}
	return out
}

// trackChecks keeps since when each check is as it is, and raises and ends the alarm for a required one that fails on the release in force.
func (g *Guard) trackChecks(now time.Duration, k bootslot.Look) {
	required := map[string]bool{}
	for _, c := range g.allChecks() {
		required[c.Name] = c.Required
	}
	var told []bootslot.Event
	for _, s := range k.Samples {
		st := g.states[s.Check]
		if st == nil || st.ok != s.OK {
			if st != nil {
				g.bump()
			}
			st = &checkState{s.OK, now}
			g.states[s.Check] = st
		}
		if !required[s.Check] || g.phase() != api.PhaseIdle {
			continue
		}
		ill := g.unhealthy[s.Check]
		stable := now-st.since >= g.cfg.Guard.Soak
		switch {
		case !s.OK && ill == nil:
			g.unhealthy[s.Check] = &illness{since: g.clock.Now()}
		case !s.OK && !ill.reported && stable:
			ill.reported, ill.told = true, g.tells(s.Check, now)
			if ill.told {
				g.log.Warn("unhealthy", "event", journal.Unhealthy, "check", s.Check, "message", s.Message)
				told = append(told, bootslot.Event{Kind: bootslot.EventUnhealthy, Check: s.Check, Message: s.Message})
			}
			g.bump()
		case s.OK && ill != nil && !ill.reported:
			delete(g.unhealthy, s.Check)
		case s.OK && ill != nil && stable:
			delete(g.unhealthy, s.Check)
			if ill.told {
				g.log.Info("healthy again", "event", journal.Healthy, "check", s.Check)
				told = append(told, bootslot.Event{Kind: bootslot.EventHealthy, Check: s.Check})
			}
			g.bump()
		}
	}
	for name := range g.unhealthy {
		if !required[name] {
			delete(g.unhealthy, name) // no longer configured
		}
	}
	g.alarm(told)
}

// alarm tells the history that required checks have begun, or ceased, to fail: in one write, since a device that goes away fails one check for each of its
// fields. It is never a verdict.
func (g *Guard) alarm(told []bootslot.Event) {
	if len(told) == 0 || !g.ledger.Writable() {
		return
	}
	for i := range told {
		told[i].Generation, told[i].At = g.ledger.Generation, g.clock.Now()
	}
	if err := g.store.Append(told...); err != nil {
		g.problem("history", "the history cannot be written: "+err.Error())
	} else {
		g.problem("history", "")
	}
}
