package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// outage is how long the demo's power cut lasts.
const outage = 4 * time.Second

// errQuit ends the demo at somebody's wish.
var errQuit = errors.New("quit")

// verbsOfHoldfast are handed on to the operator's CLI as they are typed.
var verbsOfHoldfast = []string{"status", "marks", "history", "slots", "retry", "rollback", "suspend", "resume", "sync"}

// intro says what there is to do.
func (b *board) intro() string {
	work := b.work()
	return fmt.Sprintf(`
  Edit   %s
  then   git -C %s commit -am "my change"
         and watch this window. The board fetches from this very folder: nothing has to be pushed.

  Try    pump: on                    a good change: tried, passed, kept
         vent: off  and  lamp: on    a bad one: the house overheats; undone, marked and held
         the same content again      git -C %s commit --allow-empty -m again
         retry: 1  as a line more    the marked content gets one more trial
         vent: on, fan: on, lamp: on a fix
         pump: perhaps               a mistake: it is told, and nothing changes

%s
  Or from another terminal
         %s --config %s status

`, filepath.Join(work, "greenhouse.yaml"), work, work, typed, b.holdfast, b.config)
}

const typed = `  Type   door       somebody opens the door by hand
         cut        the network fails; restore mends it
         power      kill -9 for agent and guard, and a start of both 4 s later
         status     what the board does and why; also marks, history, slots
         rollback   back to the release that passed before (or: rollback --to fallback); also retry, suspend --for 1m, resume, sync
         help       this; quit or Ctrl-C ends the demo and removes its folder
`

// obey reads commands, a line each, until ctx ends. That the input has ended is no reason to stop.
func (b *board) obey(ctx context.Context, in io.Reader) error {
	lines := make(chan string)
	go func() {
		for s := bufio.NewScanner(in); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line := <-lines:
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			if err := b.command(ctx, words); err != nil {
				return err
			}
		}
	}
}

// command does what was typed. An error ends the demo.
func (b *board) command(ctx context.Context, words []string) error {
	var err error
	switch verb := words[0]; {
	case slices.Contains(verbsOfHoldfast, verb):
		cmd := exec.CommandContext(ctx, b.holdfast, append(words, "--config", b.config)...)
		out, err := cmd.CombinedOutput()
		if len(out) == 0 && err != nil {
			b.say("demo", "holdfast %s: %v", verb, err)
		}
		b.print(string(out))
	case verb == "door":
		b.say("you", "the door is opened by hand")
		err = b.set(ctx, "door", "open")
	case verb == "cut":
		b.cut.Store(true)
		b.say("you", "the network is cut; commit what you like, and restore it")
	case verb == "restore":
		b.cut.Store(false)
		b.say("you", "the network is back; the agent's next try finds it (sync does not wait)")
	case verb == "power":
		return b.powerCut(ctx)
	case verb == "help":
		b.print(b.intro())
	case verb == "quit" || verb == "exit":
		return errQuit
	default:
		b.say("demo", "%q is not known: help lists what is", verb)
	}
	if err != nil {
		b.say("demo", "%s: %v", words[0], err)
	}
	return nil
}

// powerCut kills agent and guard, as a power cut does, and starts them again. The device keeps its power.
func (b *board) powerCut(ctx context.Context) error {
	b.say("you", "kill -9 for agent and guard")
	for _, p := range []*process{b.guard, b.agent} {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	select {
	case <-time.After(outage):
	case <-ctx.Done():
		return ctx.Err()
	}
	b.say("you", "power is back: both start again")
	return b.startHoldfast()
}
