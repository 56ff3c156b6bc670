package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// view is the part of `holdfast status --json` that the demo reads.
type view struct {
	Phase    string `json:"phase"`
	Summary  string `json:"summary"`
	Declared struct {
		Revision string `json:"revision"`
	} `json:"declared"`
	Effective struct {
		Fields map[string]string `json:"fields"`
		Source string            `json:"source"`
	} `json:"effective"`
	Decision struct {
		Kind string `json:"kind"`
		Held []struct{ Field, Want, Keep string }
	} `json:"decision"`
	Device struct {
		Observed map[string]string  `json:"observed"`
		Readings map[string]float64 `json:"readings"`
		Drift    []struct{ Field, Want, Got string }
	} `json:"device"`
	Marks []struct{ ID uint64 } `json:"marks"`
	Git   struct {
		State string `json:"state"`
	} `json:"git"`
}

// event is the part of `holdfast history --json` that the demo reads.
type event struct {
	Seq      uint64
	Kind     string
	Revision string
	Digest   string
	Fields   []string
	Check    string
	Message  string
	Attempt  int
}

const lookEvery = 200 * time.Millisecond

// narrate tells what happens, a line each, until ctx ends.
func (b *board) narrate(ctx context.Context) {
	var last uint64
	git, held := "", ""
	for {
		var events []event
		if b.ask(ctx, &events, "history", "--last", "50") == nil {
			for _, e := range events {
				if e.Seq > last {
					last = e.Seq
					b.tell(ctx, e)
				}
			}
		}
		var v view
		if b.ask(ctx, &v, "status") == nil {
			if v.Git.State != git && v.Git.State != "unknown" {
				if v.Git.State != "ok" {
					b.say("agent", "git is %s; what is declared stays, and the device is kept", v.Git.State)
				} else if git != "" {
					b.say("agent", "git is back")
				}
				git = v.Git.State
			}
			var fields []string
			if v.Decision.Kind == "held" || v.Decision.Kind == "same" {
				for _, h := range v.Decision.Held {
					fields = append(fields, fmt.Sprintf("%s=%s", h.Field, h.Keep))
				}
				if now := strings.Join(fields, " "); now != held {
					if now != "" {
						b.say("guard", "held at last-known-good: %s", now)
					} else {
						b.say("guard", "nothing is held any more")
					}
					held = now
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// tell says an event of the history in a sentence.
func (b *board) tell(ctx context.Context, e event) {
	what := strings.Join(e.Fields, ", ")
	rev := e.Revision[:min(7, len(e.Revision))]
	switch e.Kind {
	case "adopted":
		b.say("guard", "%s is the fallback, and is adopted without a trial", rev)
	case "trial":
		subject, err := b.git(ctx, "log", "-1", "--format=%s", e.Revision)
		if err != nil {
			subject = "?"
		}
		b.say("guard", "trial of %s (%s): it changes %s", rev, subject, what)
	case "passed":
		b.say("guard", "passed: %s is now last-known-good", rev)
	case "failed":
		b.say("guard", "failed: %s; rolled back and marked: %s", e.Message, what)
	case "mark-stands":
		b.say("guard", "the device is well on last-known-good, so the mark stands")
	case "environment":
		b.say("guard", "last-known-good fails alike: the environment is at fault")
	default:
		b.say("guard", "%s %s %s", strings.ReplaceAll(e.Kind, "-", " "), e.Check, e.Message)
	}
}

// await looks until met is true, and says what it waits for if it is not in time.
func (b *board) await(ctx context.Context, what string, met func(view) bool) (view, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var v view
	for {
		if err := b.ask(ctx, &v, "status"); err == nil && met(v) {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return v, fmt.Errorf("it did not come true that %s; the board says: %s", what, v.Summary)
		case <-time.After(lookEvery):
		}
		v = view{}
	}
}

// trials counts the trials of one content.
func (b *board) trials(ctx context.Context, digest string) (n int, err error) {
	var events []event
	if err := b.ask(ctx, &events, "history"); err != nil {
		return 0, err
	}
	for _, e := range events {
		if e.Kind == "trial" && e.Digest == digest {
			n++
		}
	}
	return n, nil
}

// story is the demo by itself: every sentence of it must come true.
func (b *board) story(ctx context.Context) error {
	good := state{vent: "on", door: "closed", fan: "off", lamp: "off", pump: "on"}
	bad := state{vent: "off", door: "closed", fan: "off", lamp: "on", pump: "on"}
	fix := state{vent: "on", door: "closed", fan: "on", lamp: "on", pump: "on"}
	is := func(s state) func(view) bool {
		return func(v view) bool {
			o := v.Device.Observed
			return v.Phase == "idle" && o["vent"] == s.vent && o["fan"] == s.fan && o["lamp"] == s.lamp && o["door"] == s.door && o["pump"] == s.pump
		}
	}
	if _, err := b.await(ctx, "the first state is in force", func(v view) bool {
		return v.Effective.Source == "last-known-good" && v.Git.State == "ok" && v.Decision.Kind == "same" && len(v.Device.Drift) == 0
	}); err != nil {
		return err
	}

	b.say("story", "somebody opens the door by hand")
	if err := b.set(ctx, "door", "open"); err != nil {
		return err
	}
	if _, err := b.await(ctx, "the door is closed again", func(v view) bool { return v.Device.Observed["door"] == "closed" }); err != nil {
		return err
	}
	b.say("story", "drift corrected: the door is closed again")

	b.say("story", "the network is cut")
	b.cut.Store(true)
	if _, err := b.await(ctx, "the agent sees that it is offline", func(v view) bool { return v.Git.State == "offline" }); err != nil {
		return err
	}
	if err := b.set(ctx, "lamp", "on"); err != nil {
		return err
	}
	v, err := b.await(ctx, "the device is kept offline", func(v view) bool { return v.Device.Observed["lamp"] == "off" && len(v.Device.Drift) == 0 })
	if err != nil {
		return err
	}
	if v.Declared.Revision == "" || v.Effective.Source != "last-known-good" {
		return fmt.Errorf("offline, the board lost what was declared: %s", v.Summary)
	}
	b.say("story", "offline, and nothing is lost: a lamp switched on by hand is off again")
	b.cut.Store(false)

	b.say("story", "a good change: pump on")
	if _, err := b.commit(ctx, "water the beds", good); err != nil {
		return err
	}
	if _, err := b.await(ctx, "the good change passed", func(v view) bool { return is(good)(v) && v.Effective.Source == "last-known-good" }); err != nil {
		return err
	}

	b.say("story", "a bad change: lamp on, and the vent closed")
	if _, err := b.commit(ctx, "more light, less draught", bad); err != nil {
		return err
	}
	v, err = b.await(ctx, "the bad change was undone, marked and held", func(v view) bool {
		return is(good)(v) && len(v.Marks) == 1 && v.Decision.Kind == "held" && len(v.Decision.Held) == 2
	})
	if err != nil {
		return err
	}
	b.say("story", "the house is at %.1f °C and cooling", math.Round(v.Device.Readings["temperature"]*10)/10)
	var events []event
	if err := b.ask(ctx, &events, "history"); err != nil {
		return err
	}
	digest := ""
	for _, e := range events {
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
	if _, err := b.await(ctx, "the same content is held without a trial", func(v view) bool {
		return v.Declared.Revision == again && v.Decision.Kind == "held" && is(good)(v)
	}); err != nil {
		return err
	}
	b.say("story", "ignored: it is the content that is marked, not the revision")

	b.say("story", "a fix: lamp on, vent open, fan on")
	if _, err := b.commit(ctx, "light, and air with it", fix); err != nil {
		return err
	}
	if _, err := b.await(ctx, "the fix passed", func(v view) bool {
		return is(fix)(v) && v.Effective.Fields["lamp"] == "on" && v.Decision.Kind == "same"
	}); err != nil {
		return err
	}
	n, err := b.trials(ctx, digest)
	if err != nil {
		return err
	}
	time.Sleep(2 * lookEvery) // the narrator tells the end
	b.say("story", "all of it came true. Trials that the bad content got: %d", n)
	if n != 1 {
		return fmt.Errorf("the bad content got %d trials, not 1", n)
	}
	return nil
}
