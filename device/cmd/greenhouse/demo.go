package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const demoHelp = `Usage: greenhouse demo [flags]

Starts a whole Holdfast on loopback, in a folder of its own: a state repository behind git's own HTTP server, a simulated
greenhouse, the guard and the agent. It says what to do, and tells what happens, a line each. Commands on its
standard input cut the network or the power, open the door, and ask Holdfast; 'help' lists them. Ctrl-C ends all of it and removes the folder.

With --script it plays the story by itself, and exits 0 only if all of it came true.

`

// speedUp is simulated time per real time in the demo: the lamp's 20 minutes of overheating take ten seconds.
const speedUp = 120

// soakSeconds is how long a trial's checks must hold in the demo: a lamp in a closed house overheats it a little sooner.
const soakSeconds = 18

// The demo's limits: above the first a check does not hold, above the second a trial fails at once.
const maxCelsius, fatalCelsius = 31, 33

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
    - {name: not-too-hot, reading: temperature, max: %d, fatalMax: %d, soak: %ds}
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
	// A closed terminal or pipe ends it like Ctrl-C. In the background of a terminal there is nobody who types: reading fails, and does not stop it.
	if !signal.Ignored(syscall.SIGHUP) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGPIPE)
	defer stop()
	signal.Ignore(syscall.SIGTTIN)
	var in io.Reader
	if !*script {
		in = os.Stdin
	}
	err := playDemo(ctx, in, *keep, stdout)
	if err != nil && !(errors.Is(err, context.Canceled) && !*script) {
		fmt.Fprintf(stderr, "greenhouse demo: %v\n", err)
		return exitNotFine
	}
	return exitFine
}

// playDemo obeys in, or plays the story if that is nil.
func playDemo(ctx context.Context, in io.Reader, keep bool, out io.Writer) (err error) {
	// A Unix socket's path may be 107 bytes at most (unix(7)), so not below a long TMPDIR.
	root := os.TempDir()
	if len(root) > 60 {
		root = "/tmp"
	}
	dir, err := os.MkdirTemp(root, "holdfast-demo-")
	if err != nil {
		return err
	}
	b := &board{dir: dir, out: out, start: time.Now(), moved: map[string]time.Time{}}
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
	// The narrator only looks, and ends with the demo; without it nothing comes true.
	told, quiet := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		quiet(b.narrate(told))
	}()
	defer func() { quiet(nil); <-done }()
	if in == nil {
		return b.story(told)
	}
	b.print(b.intro())
	err = b.obey(told, in)
	b.print("\nstopping\n")
	switch {
	case errors.Is(err, errQuit):
		return nil
	case ctx.Err() == nil && context.Cause(told) != nil:
		return context.Cause(told)
	}
	return err
}
