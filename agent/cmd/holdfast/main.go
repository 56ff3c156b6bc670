// Command holdfast is the reconciler layer and the operator's tool: `holdfast run` is the daemon, every other verb asks or
// tells it, or the guard. One file per verb.
//
// Verbs that read work with the agent, the guard or both dead, and with a broken configuration: they look into the files then, and
// say so. Exit codes are 0 fine, 1 not fine, 2 misuse.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"holdfast/image/fallback"
)

// version is set by the build (-ldflags -X main.version=…).
var version = ""

// configEnv names the environment variable that --config defaults to.
const configEnv = "HOLDFAST_CONFIG"

func init() {
	cobra.EnableCommandSorting = false // the help has them in the order of their use
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	code := Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errNotFine ends a verb with exit code 1 after it has said everything.
var errNotFine = errors.New("not fine")

// exit is an error with an exit code of its own.
type exit struct {
	code int
	error
}

// misuse is an error in how the command was called.
type misuse struct{ error }

// Main runs one command line and returns its exit code.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root, began := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var m misuse
	var e exit
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNotFine):
		return 1
	case errors.As(err, &e):
		newPrinter(stderr).item("holdfast:", e.Error())
		return e.code
	case errors.As(err, &m), !*began: // cobra's own errors: an unknown verb or flag, too many arguments
		newPrinter(stderr).line("holdfast: %v\nTry '%s --help'.", err, cmd.CommandPath())
		return 2
	}
	newPrinter(stderr).item("holdfast:", err.Error())
	return 1
}

// newRoot returns the whole command; began becomes true when a verb has begun to work.
func newRoot() (root *cobra.Command, began *bool) {
	began = new(bool)
	var where place
	var showVersion bool
	root = &cobra.Command{
		Use:   "holdfast",
		Short: "Keep a device in the state that a git repository declares",
		Long: `Holdfast keeps a device in the state that a git repository declares, and undoes by itself a
change that the device does not survive.

Begin with 'holdfast status'. If something is held, 'holdfast why FIELD' tells which revision did it, which
check failed with which reading, and what to do; 'holdfast doctor' looks at Holdfast itself.

Exit codes: 0 fine, 1 not fine, 2 misuse. Each verb's help says what that means for it.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          aVerb,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return printVersion(cmd)
			}
			return cmd.Help()
		},
		PersistentPreRun: func(*cobra.Command, []string) {
			*began = true
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true // there is a verb for it
	root.SuggestionsMinimumDistance = 2
	// Not cobra's own flag: to set its text links text/template, and with that every method of every type, 3 MB in all.
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version")
	def := os.Getenv(configEnv)
	if def == "" {
		def = "/etc/holdfast/holdfast.yaml"
	}
	root.PersistentFlags().StringVar(&where.config, "config", def, "the configuration `file`; also from $"+configEnv)
	root.PersistentFlags().StringVar(&where.share, "share", fallback.Dir, "the `folder` whose profile.yaml and fallback.yaml override the baked-in ones")
	add := func(title string, verbs ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: title, Title: title})
		for _, c := range verbs {
			c.GroupID = title
			root.AddCommand(c)
		}
	}
	add("To find out what goes on (they change nothing):", newStatus(&where), newWhy(&where), newDiff(&where), newMarks(&where), newHistory(&where), newSlots(&where),
		newSelfTest(&where), newDoctor(&where))
	add("To set it right:", newReconcile(&where), newRetry(&where), newRollback(&where), newSuspend(&where), newResume(&where), newAccept(&where))
	add("The rest:", newRun(&where), without(newValidate(&where), "config"), without(newVersion(), "config", "share"),
		without(newCompletion(), "config", "share"), without(newMan(), "config", "share"))
	root.SetHelpCommandGroupID("The rest:")
	return root, began
}

// without leaves flags of the root out of a verb's help, which they mean nothing to. They are taken all the same, as every script may
// give them to every verb.
func without(c *cobra.Command, flags ...string) *cobra.Command {
	help := func(show func(*cobra.Command) error) func(*cobra.Command) error {
		return func(c *cobra.Command) error {
			for _, name := range flags {
				f := c.InheritedFlags().Lookup(name)
				f.Hidden = true
				defer func() { f.Hidden = false }()
			}
			return show(c)
		}
	}
	usage := c.UsageFunc()
	c.SetUsageFunc(help(usage))
	return c
}

// versionText is the version that the build was given, else what Go knows of it.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	v, rev, dirty := info.Main.Version, "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	if rev != "" && v == "devel" {
		v += " " + rev + dirty
	}
	return v
}
