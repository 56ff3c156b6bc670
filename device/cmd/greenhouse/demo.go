package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const demoHelp = `Usage: greenhouse demo [flags]

Starts a whole Holdfast on loopback, in a folder of its own: a state repository behind git's own HTTP server, a simulated
greenhouse, the guard and the agent. It says what to do, and tells what happens, a line each. Ctrl-C ends all of it and removes the folder.

With --script it plays the story by itself, and exits 0 only if all of it came true.

`

// speedUp is simulated time per real time in the demo: the lamp's 20 minutes of overheating take ten seconds.
const speedUp = 120

// configuration is what a board would have in /etc/holdfast/holdfast.yaml, but with everything short.
const configuration = `# The demo's configuration: short intervals, and a check that takes a lamp's time.
device:
  url: %s
  interval: 1s
  timeout: 1s
repository:
  url: %s
  interval: 1s
guard:
  window: 12s
  soak: 2s
  interval: 200ms
  recover: 1m
  pauses: [2s, 5s, 10s]
  diskFloor: 1MiB
  checks:
    # A lamp in a closed house overheats it in 20 minutes; here a minute takes half a second.
    - {name: not-too-hot, reading: temperature, max: 31, fatalMax: 33, soak: 18s}
state: %s
run: %s
`

// demo plays Holdfast on one machine until ctx ends.
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("greenhouse demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	script := fs.Bool("script", false, "play the story, and exit 0 only if it came true")
	keep := fs.Bool("keep", false, "leave the folder, with the logs, when it ends")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), demoHelp)
		fs.PrintDefaults()
	}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitFine
	case err != nil:
		return exitMisuse
	case fs.NArg() > 0:
		fmt.Fprintf(stderr, "greenhouse demo: unexpected argument %q\n", fs.Arg(0))
		return exitMisuse
	}
	err := playDemo(ctx, *script, *keep, stdout)
	if err != nil && !(errors.Is(err, context.Canceled) && !*script) {
		fmt.Fprintf(stderr, "greenhouse demo: %v\n", err)
		return exitNotFine
	}
	return exitFine
}

func playDemo(ctx context.Context, script, keep bool, out io.Writer) (err error) {
	// A Unix socket's path may be 107 bytes at most (unix(7)), so not below a long TMPDIR.
	root := os.TempDir()
	if len(root) > 60 {
		root = "/tmp"
	}
	dir, err := os.MkdirTemp(root, "holdfast-demo-")
	if err != nil {
		return err
	}
	b := &board{dir: dir, out: out, start: time.Now()}
	defer func() {
		b.stop()
		switch {
		case keep || err != nil && !errors.Is(err, context.Canceled):
			fmt.Fprintf(out, "The folder is left for you: %s (logs/ says what each process did)\n", dir)
		default:
			if rerr := os.RemoveAll(dir); rerr != nil {
				err = errors.Join(err, rerr)
			}
		}
	}()
	if err := b.up(ctx); err != nil {
		return err
	}
	b.say("demo", "up: a greenhouse at %s, %d times faster than the sun; folder %s", b.device, speedUp, dir)
	// The narrator ends with the demo; it only looks.
	told, quiet := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); b.narrate(told) }()
	defer func() { quiet(); <-done }()
	if script {
		return b.story(ctx)
	}
	cli := fmt.Sprintf("%s --config %s", b.holdfast, b.config)
	fmt.Fprintf(out, `
  Edit    %s
  then    git -C %s commit -am "my change"     and watch this window.

  Try     pump: on                   a good change: tried, passed, kept
          vent: off  and  lamp: on   a bad one: the house overheats, it is undone, marked and held
          the same again, or a fix (vent: on, fan: on, lamp: on)
          curl -d '{"actuators":{"door":"open"}}' %s/sim/set      somebody opens the door
  Look    %s status
          %s marks
  End     Ctrl-C

`, filepath.Join(b.work(), "greenhouse.yaml"), b.work(), b.device, cli, cli)
	<-ctx.Done()
	fmt.Fprintln(out, "\nstopping")
	return ctx.Err()
}
