// Command greenhouse is the simulated greenhouse: the device that Holdfast is tried on.
//
// One file per verb; main only dispatches. Exit codes: 0 fine, 1 not fine, 2 misuse.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// verb is one thing that the command can do. run returns the exit code; it ends when ctx does.
type verb struct {
	name, what string
	run        func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

// verbs are listed in the order of the help.
var verbs = []verb{
	{"serve", "simulate a greenhouse that speaks the device contract", serve},
	{"demo", "a whole Holdfast on this machine, to play with", demo},
}

const (
	exitFine    = 0
	exitNotFine = 1
	exitMisuse  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	for _, v := range verbs {
		if v.name == name {
			return v.run(ctx, args[1:], stdout, stderr)
		}
	}
	out, code := stderr, exitMisuse
	switch name {
	case "help", "-h", "-help", "--help":
		out, code = stdout, exitFine
	case "":
	default:
		fmt.Fprintf(stderr, "greenhouse: unknown verb %q\n\n", name)
	}
	fmt.Fprintln(out, "Usage: greenhouse VERB [flags]; greenhouse VERB --help says more.")
	for _, v := range verbs {
		fmt.Fprintf(out, "  %-8s %s\n", v.name, v.what)
	}
	return code
}
