package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/selftest"
	"holdfast/device"
)

// checkFolders are where the guard looks for executable checks if it is not told otherwise (holdfast-guard --check-dirs).
const checkFolders = "/etc/holdfast/check.d:/usr/lib/holdfast/check.d"

// tested is what `holdfast selftest --json` says.
type tested struct {
	// By is who has measured: guard, or this command when the guard does not answer.
	By      string      `json:"by"`
	Holds   bool        `json:"holds"` // every required check that could be measured does
	Checks  []api.Check `json:"checks"`
	Problem string      `json:"problem,omitempty"` // why it was not the guard
}

func newSelfTest(where *place) *cobra.Command {
	var asJSON bool
	var folders string
	c := &cobra.Command{
		Use:   "selftest",
		Short: "Run the checks now, and show each with what it measured and what would hold",
		Long: `Have the guard run its checks now, and show each: whether it holds, what it measured, its limit, and
for how long it has been so. It changes nothing: a failing check convicts a change only in a trial,
and one that runs is not hurried by it.

When the guard does not answer, the checks that are configured and those in the check.d folders are
run by this command and as this user; a check that only the guard can make (agent-alive) is left
out.

With --json: by, holds, checks (each with name, required, ok, known, found, value, limit,
sinceSeconds, ageSeconds), problem.

Exit code 0: all required checks hold. 1: one does not, or it cannot be told.`,
		Example: "  holdfast selftest",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := where.open()
			b.warn(newPrinter(cmd.ErrOrStderr()))
			t := tested{By: "guard"}
			checks, err := b.guardsSelfTest(cmd.Context())
			if err != nil {
				state, words := whether(err, b.config.GuardLock())
				if state == status.ProcessUnreachable {
					return fmt.Errorf("the guard is not reachable (%s); %s", words, access(b.config.GuardSocket()))
				}
				t.By, t.Problem = "this command", "the guard does not do it ("+words+")"
				checks, err = b.selfTest(cmd.Context(), filepath.SplitList(folders)), nil
			}
			t.Checks = checks
			t.Holds = true
			for _, c := range t.Checks {
				t.Holds = t.Holds && (!c.Required || c.OK)
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), t)
			} else {
				showTested(newPrinter(cmd.OutOrStdout()), t)
			}
			if err == nil && !t.Holds {
				err = errNotFine
			}
			return err
		},
	}
	jsonFlag(c, &asJSON)
	c.Flags().StringVar(&folders, "check-dirs", checkFolders, "`folders` of executable checks, used when the guard does not answer")
	return c
}

// guardsSelfTest has the guard run the checks. One that is stopped is not waited for as long as checks may take.
func (b *board) guardsSelfTest(ctx context.Context) ([]api.Check, error) {
	short, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if _, err := b.guard.State(short, nil); err != nil {
		return nil, err
	}
	return b.guard.SelfTest(ctx)
}

// selfTestTime bounds what the checks may take together when this command runs them.
const selfTestTime = 10 * time.Second

// selfTest runs the checks here, with what the device says to this command.
func (b *board) selfTest(ctx context.Context, folders []string) (out []api.Check) {
	ctx, cancel := context.WithTimeout(ctx, selfTestTime)
	defer cancel()
	started := b.clock.Uptime()
	st, why := b.lookAtDevice(ctx)
	add := func(name string, ok bool, found string) {
		c := api.Check{Name: name, Required: true, Known: true, OK: ok, Found: found}
		if !ok {
			c.Message = found
		}
		out = append(out, c)
	}
	r := selftest.New(selftest.Options{Checks: b.config.Guard.Checks, Folders: folders, Readings: b.profile.Readings, Log: slog.New(slog.DiscardHandler), Clock: b.clock})
	for _, s := range r.Once(ctx, st, started) {
		c := api.Check{Name: s.Name, Required: s.Required, Known: s.Ended != 0, OK: s.OK, Found: s.Message, Value: s.Value, Limit: s.Limit}
		if s.Fatal && s.Value == nil {
			c.Known = false
		}
		if !s.OK {
			c.Message = s.Message
		}
		out = append(out, c)
	}
	add(bootslot.DeviceAnswers, st != nil, why)
	if st == nil {
		return out
	}
	v := status.Build(b.sources(ctx, plainly))
	if v.Effective.Fields == nil {
		return out // what it is to be cannot be told
	}
	for _, a := range b.profile.Actuators {
		found := ""
		for _, d := range device.Diff(b.profile, v.Effective.Fields, st.Actuators) {
			if d.Field == a.Name {
				found = fmt.Sprintf("%s is to be %s and the device reports %q", d.Field, d.Want, d.Got)
			}
		}
		add(bootslot.ConvergedCheck(a.Name), found == "", found)
	}
	return out
}

// lookAtDevice asks the device itself, which only reads; why it did not answer.
func (b *board) lookAtDevice(ctx context.Context) (*device.State, string) {
	c, err := device.NewClient(device.ClientOptions{URL: b.config.Device.URL, Timeout: b.config.Device.Timeout, Clock: b.clock, Profile: b.profile})
	if err != nil {
		return nil, status.OneLine(err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	st, err := c.State(ctx)
	if err != nil {
		return nil, status.OneLine(err.Error())
	}
	return &st, ""
}

func showTested(p printer, t tested) {
	failing := 0
	rows := [][]cell{{{"", faint}, {"check", faint}, {"found", faint}, {"holds if", faint}, {"since", faint}}}
	for _, c := range t.Checks {
		word := cell{"holds", green}
		switch {
		case !c.Known:
			word = cell{"unknown", yellow}
		case !c.OK && c.Required:
			word = cell{"fails", red}
		case !c.OK:
			word = cell{"fails", yellow}
		}
		if c.Required && !c.OK {
			failing++
		}
		name := c.Name
		if !c.Required {
			name += " (wanted)"
		}
		if c.Role != "" {
			name += " (" + c.Role + ")"
		}
		found := c.Found
		if found == "" {
			found = c.Message
		}
		if found == "not measured yet" {
			found = "no result yet"
		}
		since := ""
		if c.SinceSeconds > 0 {
			since = status.Rough(time.Duration(c.SinceSeconds * float64(time.Second)))
		}
		rows = append(rows, []cell{word, {text: name}, {text: strings.ReplaceAll(found, "\n", "; ")}, {c.Limit, faint}, {text: since}})
	}
	switch {
	case t.Holds:
		p.line("%s", p.paint(green, "All required checks hold."))
	case failing == 1:
		p.line("%s", p.paint(red, "A required check does not hold."))
	default:
		p.line("%s", p.paint(red, fmt.Sprintf("%d required checks do not hold.", failing)))
	}
	p.table("  ", rows)
	if t.Problem != "" {
		p.line("%s %s: %s has run them, as this user.", p.paint(red, "!"), t.Problem, t.By)
	}
}
