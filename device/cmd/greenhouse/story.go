package main

import (
	"context"
	"fmt"
	"time"
)

// await waits until met is true of what has been told, and says what it waited for if it is not in time.
func (b *board) await(ctx context.Context, what string, met func(seen) bool) (seen, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		b.mu.Lock()
		s := b.told
		b.mu.Unlock()
		if s.Phase != "" && met(s) {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("it did not come true that %s; the board says: %s", what, s.Summary)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// story is the demo by itself: every sentence of it must come true.
func (b *board) story(ctx context.Context) error {
	good := state{vent: "on", door: "closed", fan: "off", lamp: "off", pump: "on"}
	bad := state{vent: "off", door: "closed", fan: "off", lamp: "on", pump: "on"}
	fix := state{vent: "on", door: "closed", fan: "on", lamp: "on", pump: "on"}
	is := func(s state) func(seen) bool {
		return func(v seen) bool {
			o := v.Device.Observed
			return v.Phase == "idle" && o["vent"] == s.vent && o["fan"] == s.fan && o["lamp"] == s.lamp && o["door"] == s.door && o["pump"] == s.pump
		}
	}
	if _, err := b.await(ctx, "the first state is in force", func(v seen) bool {
		return v.Effective.Source == "last-known-good" && v.Git.State == "ok" && v.Decision.Kind == "same" && len(v.Device.Drift) == 0
	}); err != nil {
		return err
	}

	b.say("story", "somebody opens the door by hand")
	if err := b.set(ctx, "door", "open"); err != nil {
		return err
	}
	if _, err := b.await(ctx, "the door is closed again", func(v seen) bool {
		return v.putBack["door"] == 1 && v.Device.Observed["door"] == "closed"
	}); err != nil {
		return err
	}

	b.say("story", "the network is cut")
	b.cut.Store(true)
	if _, err := b.await(ctx, "the agent sees that it is offline", func(v seen) bool { return v.Git.State == "offline" }); err != nil {
		return err
	}
	b.say("story", "somebody switches the lamp on")
	if err := b.set(ctx, "lamp", "on"); err != nil {
		return err
	}
	v, err := b.await(ctx, "the device is kept offline", func(v seen) bool {
		return v.putBack["lamp"] == 1 && v.Device.Observed["lamp"] == "off" && len(v.Device.Drift) == 0
	})
	if err != nil {
		return err
	}
	if v.Declared.Revision == "" || v.Effective.Source != "last-known-good" {
		return fmt.Errorf("offline, the board lost what was declared: %s", v.Summary)
	}
	b.say("story", "offline, and nothing is lost; the network is restored")
	b.cut.Store(false)

	b.say("story", "a good change: pump on")
	if _, err := b.commit(ctx, "water the beds", good); err != nil {
		return err
	}
	if _, err := b.await(ctx, "the good change passed", func(v seen) bool { return is(good)(v) && v.Effective.Source == "last-known-good" }); err != nil {
		return err
	}

	b.say("story", "a bad change: lamp on, and the vent closed")
	worse, err := b.commit(ctx, "more light, less draught", bad)
	if err != nil {
		return err
	}
	v, err = b.await(ctx, "the bad change was undone, marked and held", func(v seen) bool {
		return is(good)(v) && len(v.Marks) == 1 && v.decided == worse && v.Decision.Kind == "held" && len(v.Decision.Held) == 2
	})
	if err != nil {
		return err
	}
	now, err := b.temperature(ctx)
	if err != nil {
		return err
	}
	b.say("story", "the house is at %.1f °C and cooling", now)
	digest := ""
	for _, e := range v.events {
		if e.Kind == "failed" {
			digest = e.Digest
		}
	}

	b.say("story", "the same content again, as a new revision")
	if _, err := b.git(ctx, "commit", "--quiet", "--allow-empty", "--message", "try that again"); err != nil {
		return err
	}
	again, err := b.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if _, err := b.await(ctx, "the same content is held without a trial", func(v seen) bool {
		return v.decided == again && v.Decision.Kind == "held" && is(good)(v)
	}); err != nil {
		return err
	}
	b.say("story", "ignored: it is the content that is marked, not the revision")

	b.say("story", "a fix: lamp on, vent open, fan on")
	fixed, err := b.commit(ctx, "light, and air with it", fix)
	if err != nil {
		return err
	}
	v, err = b.await(ctx, "the fix passed", func(v seen) bool {
		return is(fix)(v) && v.Effective.Fields["lamp"] == "on" && v.Effective.Source == "last-known-good" && v.Decision.Kind == "same" && v.decided == fixed
	})
	if err != nil {
		return err
	}
	n := 0
	for _, e := range v.events {
		if e.Kind == "trial" && e.Digest == digest {
			n++
		}
	}
	b.say("story", "all of it came true. Trials that the bad content got: %d", n)
	if n != 1 {
		return fmt.Errorf("the bad content got %d trials, not 1", n)
	}
	return nil
}
