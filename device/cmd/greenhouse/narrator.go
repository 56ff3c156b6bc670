package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// view is the part of `holdfast status --json` that the demo reads.
type view struct {
	Phase        string `json:"phase"`
	Summary      string `json:"summary"`
	Guard, Agent struct{ Alive bool }
	Declared     struct{ Revision, Digest string }
	Effective    struct {
		Fields map[string]string `json:"fields"`
		Source string            `json:"source"`
	} `json:"effective"`
	Decision struct {
		Kind, Reason string
		Held         []struct{ Field, Want, Keep string }
		RetryNumber  uint64
	} `json:"decision"`
	Device struct {
		Observed map[string]string                   `json:"observed"`
		Drift    []struct{ Field, Want, Got string } `json:"drift"`
	} `json:"device"`
	Marks []struct{ ID uint64 } `json:"marks"`
	Git   struct{ State, Message, Advice, RemoteRevision string }
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
	Who      string
}

const (
	// lookEvery is how often the device is asked for the writes that it got. Agent and guard are followed by one `holdfast status --watch`.
	lookEvery = 500 * time.Millisecond
	// settling is how long a decision must have stood before it is told: a new revision is seen before the guard is asked about it.
	settling = 1500 * time.Millisecond
	// patience is the same for a baseline: it takes the checks' soak, and is worth a word only if it takes longer.
	patience = 5 * time.Second
	// climateEvery is how often the temperature is told in a trial.
	climateEvery = 3 * time.Second
)

// seen is what the narrator has told of. The story waits for it and not for the board itself, so that its own lines come after those
// that they are about.
type seen struct {
	view
	putBack map[string]int // actuator to how often it had been moved and was put back
	decided string         // the revision of the newest decision that was told
	events  []event
}

// narrator tells what happens on a board, a line each. It only looks.
type narrator struct {
	b    *board
	seen seen
	// behind says that the history could not be read since the view changed.
	behind bool

	git     string // how the repository stood when it was told last
	alive   string // the same of guard and agent
	lines   decisions
	written map[string]string // what the device was told last, by actuator
	writes  int               // the number of the last write
	climate time.Time         // when the temperature was told last
}

// narrate tells what happens until ctx ends.
func (b *board) narrate(ctx context.Context) error {
	n := &narrator{b: b, written: maps.Clone(b.initial), seen: seen{putBack: map[string]int{}}}
	cmd := exec.CommandContext(ctx, b.holdfast, "status", "--watch", "--json", "--config", b.config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	views := make(chan view)
	go func() {
		defer close(views)
		for d := json.NewDecoder(out); ; {
			var v view
			if d.Decode(&v) != nil {
				return
			}
			select {
			case views <- v:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		_, _ = io.Copy(io.Discard, out) // until it is killed with ctx
		_ = cmd.Wait()
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case v, ok := <-views:
			if !ok {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("`holdfast status --watch` ended")
			}
			n.seen.view, n.behind = v, true
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		n.look(ctx)
	}
}

// look tells what is new.
func (n *narrator) look(ctx context.Context) {
	v := n.seen.view
	if v.Phase == "" {
		return // nothing was seen yet
	}
	n.tellProcesses(v)
	n.tellGit(v)
	n.readHistory(ctx)
	n.readWrites(ctx)
	if text := n.lines.next(v, time.Now()); text != "" {
		n.b.say("guard", "%s", text)
	}
	n.seen.decided = n.lines.told.revision
	n.tellClimate(ctx, v)
	if !n.behind {
		n.b.publish(n.seen)
	}
}

// readHistory tells the events that are new, if the view has changed since it was read.
func (n *narrator) readHistory(ctx context.Context) {
	if !n.behind {
		return
	}
	var events []event
	if n.b.ask(ctx, &events, "history") != nil {
		return // the next look tries again
	}
	n.behind = false
	last := uint64(0)
	if len(n.seen.events) > 0 {
		last = n.seen.events[len(n.seen.events)-1].Seq
	}
	for _, e := range events {
		if e.Seq > last {
			n.b.tell(ctx, e)
		}
	}
	n.seen.events = events
}

// tell says an event of the history in a sentence.
func (b *board) tell(ctx context.Context, e event) {
	what := strings.Join(e.Fields, ", ")
	rev := short(e.Revision)
	switch e.Kind {
	case "adopted":
		b.say("guard", "%s is the fallback, and is adopted without a trial", rev)
	case "trial":
		subject, err := b.git(ctx, "log", "-1", "--format=%s", e.Revision)
		if err != nil {
			subject = "?"
		}
		b.say("guard", "trial of %s (%s): it changes %s, and the checks must now hold for %d s", rev, subject, what, soakSeconds)
	case "passed":
		b.say("guard", "passed: %s is now last-known-good", rev)
	case "failed":
		b.say("guard", "failed: %s; rolled back and marked: %s", e.Message, what)
	case "mark-stands":
		b.say("guard", "the device is well on last-known-good, so the mark stands")
	case "environment":
		b.say("guard", "last-known-good fails alike: the environment is at fault")
	default:
		words := []string{strings.ReplaceAll(e.Kind, "-", " ")}
		for _, w := range []string{rev, what, e.Check, e.Message} {
			if w != "" {
				words = append(words, w)
			}
		}
		b.say("guard", "%s", strings.Join(words, ": "))
	}
}

// readWrites tells of actuators that somebody had moved. The agent puts one back within milliseconds, so that nobody would see it; but
// then the device is told again what it was told last.
func (n *narrator) readWrites(ctx context.Context) {
	var log struct {
		Writes []struct {
			Seq int
			At  time.Time
			Set map[string]string
		}
	}
	if n.b.get(ctx, fmt.Sprintf("/sim/writes?since=%d", n.writes), &log) != nil {
		return
	}
	for _, w := range log.Writes {
		n.writes = w.Seq
		for _, a := range slices.Sorted(maps.Keys(w.Set)) {
			if n.written[a] == w.Set[a] {
				n.seen.putBack[a]++
				n.b.say("device", "drift corrected: %s had been moved, and is back at %s%s", a, w.Set[a], n.b.since(a, w.At))
			}
			n.written[a] = w.Set[a]
		}
	}
}

// tellProcesses says who has died, and who is back.
func (n *narrator) tellProcesses(v view) {
	now := "agent and guard are there again"
	switch {
	case !v.Guard.Alive && !v.Agent.Alive:
		now = "agent and guard are dead: nobody keeps the device"
	case !v.Guard.Alive:
		now = "the guard is dead: nothing is tried; the agent keeps the device"
	case !v.Agent.Alive:
		now = "the agent is dead: nothing is fetched; the guard keeps the device"
	}
	switch {
	case n.alive == "" && !(v.Guard.Alive && v.Agent.Alive):
		return // they are still starting
	case n.alive != "" && now != n.alive:
		n.b.say("board", "%s", now)
	}
	n.alive = now
}

// tellGit says how it stands with the repository, if that has changed.
func (n *narrator) tellGit(v view) {
	g := v.Git
	now := g.State
	if g.State != "ok" && g.State != "offline" {
		now += g.Message + g.RemoteRevision // another mistake, or the same in another revision
	}
	if now == n.git || g.State == "unknown" || g.State == "" {
		return
	}
	switch g.State {
	case "ok":
		if n.git != "" {
			n.b.say("agent", "the repository can be read again")
		}
	case "offline":
		n.b.say("agent", "git is offline; what is declared stays, and the device is kept")
	default:
		n.b.say("agent", "git: %s: %s", g.State, indented(g.Message))
		if g.Advice != "" {
			n.b.say("agent", "%s", indented(g.Advice))
		}
	}
	n.git = now
}

// tellClimate says how warm it is, while a trial waits to see that.
func (n *narrator) tellClimate(ctx context.Context, v view) {
	if v.Phase != "trial" {
		n.climate = time.Now()
		return
	}
	if time.Since(n.climate) < climateEvery {
		return
	}
	n.climate = time.Now()
	if t, err := n.b.temperature(ctx); err == nil {
		warm := ""
		if t > maxCelsius {
			warm = fmt.Sprintf(": too warm, and at %d it is over at once", fatalCelsius)
		}
		n.b.say("device", "%.1f °C%s", t, warm)
	}
}

// decisions says what the guard has decided about what is declared.
type decisions struct {
	now   decision
	since time.Time
	told  decision
}

// decision is what must differ for a decision to be told anew.
type decision struct{ revision, digest, kind, held string }

// next returns the sentence that is due, "" if there is none.
func (d *decisions) next(v view, at time.Time) string {
	if !v.Guard.Alive || !v.Agent.Alive || v.Declared.Revision == "" || v.Decision.Kind == "" {
		return ""
	}
	var held []string
	for _, h := range v.Decision.Held {
		held = append(held, h.Field+"="+h.Keep)
	}
	now := decision{v.Declared.Revision, v.Declared.Digest, v.Decision.Kind, strings.Join(held, " ")}
	if now != d.now {
		d.now, d.since = now, at
	}
	before := d.told
	wait := settling
	if now.kind == "baseline" {
		wait = patience
	}
	if now == before || at.Sub(d.since) < wait {
		return ""
	}
	d.told = now
	rev, again := short(now.revision), now.digest == before.digest && now.revision != before.revision
	switch now.kind {
	case "held":
		if again {
			return fmt.Sprintf("%s declares the same content: held, not tried again", rev)
		}
		return fmt.Sprintf("held at last-known-good: %s; a line `retry: %d` in the file tries it once more", now.held, v.Decision.RetryNumber)
	case "same":
		switch {
		case again:
			return fmt.Sprintf("%s declares the same content, which is in force: nothing to do", rev)
		case before.held != "":
			return "nothing is held any more"
		case before.revision != "" && now.revision != before.revision:
			return fmt.Sprintf("%s is in force, as declared", rev)
		}
	case "refused", "waiting":
		return fmt.Sprintf("%s is not tried yet: %s", rev, v.Decision.Reason)
	case "baseline":
		return fmt.Sprintf("%s is tried as soon as the checks hold before it: %s", rev, v.Decision.Reason)
	}
	return ""
}

func short(revision string) string { return revision[:min(7, len(revision))] }

// indented is text of several lines, the further ones below the first.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", 16))
}

// get asks the device.
func (b *board) get(ctx context.Context, path string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.device+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the device answered %s", resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(v)
}

// temperature is that of the house in °C, as the device measures it.
func (b *board) temperature(ctx context.Context) (float64, error) {
	var s struct{ Readings map[string]float64 }
	err := b.get(ctx, "/state", &s)
	return s.Readings["temperature"], err
}
