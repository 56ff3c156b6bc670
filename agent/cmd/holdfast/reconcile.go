package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/agent"
	"holdfast/agent/status"
	"holdfast/bootslot/api"
	"holdfast/device"
)

// reconciled is what `holdfast reconcile --json` says.
type reconciled struct {
	Fetching bool `json:"fetching"` // a fetch was asked for
	// Waited says that it was waited for the end: what follows is of the fetch and of the look at the device that were asked for.
	Waited    bool             `json:"waited"`
	Git       status.Git       `json:"git"`
	Declared  *status.Declared `json:"declared,omitempty"`
	Corrected []device.Drift   `json:"corrected,omitempty"` // what had drifted and was put right
	Left      []device.Drift   `json:"left,omitempty"`      // what is not as it is to be
	Answers   bool             `json:"answers"`             // the device
	Decision  *status.Decision `json:"decision,omitempty"`
	Summary   string           `json:"summary"`
}

// reconcilePoll is how often it is looked whether the agent is done.
const reconcilePoll = 100 * time.Millisecond

func newReconcile(where *place) *cobra.Command {
	var noFetch, noWait, asJSON bool
	most := length(2 * time.Minute)
	c := &cobra.Command{
		Use:     "reconcile",
		Aliases: []string{"sync"},
		Short:   "Fetch now, look at the device now, and say what came of it",
		Long: `Make the agent fetch and look at the device at once, whatever its intervals are and however long it
has backed off, and wait until it has done both. What it waits for is said on stderr. With
--no-fetch it only looks at the device; with --no-wait it does not wait. 'sync' is the same verb.

It does not wait for a trial of what was fetched: the last line says what that needs, and
'holdfast status --watch' shows it.

With --json: fetching, waited, git, declared, corrected, left, answers, decision, summary.

Exit code 0: the fetch has worked and the device is as it is to be. 1: one of the two did not come
about, or the agent does not answer.`,
		Example: `  holdfast reconcile
  holdfast reconcile --no-fetch`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			b := where.open()
			b.warn(newPrinter(cmd.ErrOrStderr()))
			before, err := b.agent.Status(ctx, nil)
			if err != nil {
				return b.agentError(err)
			}
			asked, err := b.agent.Reconcile(ctx, agent.ReconcileRequest{NoFetch: noFetch})
			if err != nil {
				return b.agentError(err)
			}
			did := reconciled{Fetching: !noFetch, Waited: !noWait}
			p := newPrinter(cmd.OutOrStdout())
			if noWait {
				if asJSON {
					return printJSON(cmd.OutOrStdout(), did)
				}
				p.line("%s 'holdfast status --watch' shows what comes of it.", map[bool]string{true: "The agent looks at the device now.", false: "The agent fetches now, and looks at the device."}[noFetch])
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, time.Duration(most))
			defer cancel()
			after, err := b.awaitReconciled(ctx, newPrinter(cmd.ErrOrStderr()), asked)
			if err != nil {
				return err
			}
			v := status.Build(b.sources(cmd.Context(), plainly))
			did.Git, did.Declared, did.Decision, did.Summary = after.Git, after.Declared, v.Decision, v.Summary
			if r := after.Report; r != nil {
				did.Answers, did.Left = r.Answered, r.Left
				for _, d := range r.Drift {
					if slices.Contains(r.Written, d.Field) && !slices.ContainsFunc(r.Left, func(l device.Drift) bool { return l.Field == d.Field }) {
						did.Corrected = append(did.Corrected, d)
					}
				}
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), did)
			} else {
				showReconciled(p, before, after, did)
			}
			if err == nil && (did.Fetching && did.Git.State != status.GitOK || !did.Answers || len(did.Left) > 0) {
				err = errNotFine
			}
			return err
		},
	}
	c.Flags().BoolVar(&noFetch, "no-fetch", false, "look at the device only")
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it is done")
	c.Flags().Var(&most, "timeout", "wait for a `DURATION` at most")
	jsonFlag(c, &asJSON)
	return c
}

// awaitReconciled waits until the agent has fetched, and has looked at the device after that. It says what it waits for when that takes a while.
func (b *board) awaitReconciled(ctx context.Context, p printer, asked agent.Reconciling) (status.Agent, error) {
	fetched := asked.Fetch == 0
	said, what := "", ""
	soon := b.clock.After(time.Second) // what is over by then needs no words
	for {
		a, err := b.agent.Status(ctx, nil)
		switch {
		case err != nil && ctx.Err() != nil && what != "":
			return a, notYet(what)
		case err != nil:
			return a, b.agentError(err)
		}
		if !fetched && a.GitCycles >= asked.Fetch {
			// What was fetched is asked for in a cycle that begins now.
			fetched = true
			if asked, err = b.agent.Reconcile(ctx, agent.ReconcileRequest{NoFetch: true}); err != nil {
				return a, b.agentError(err)
			}
			continue
		}
		if fetched && a.EndedCycle >= asked.Cycle {
			return a, nil
		}
		what = "the fetch: " + b.config.Repository.URL
		if fetched {
			what = "the device: " + b.config.Device.URL
		}
		select {
		case <-ctx.Done():
			return a, notYet(what)
		case <-soon:
			soon = nil
		case <-b.clock.After(reconcilePoll):
		}
		if soon == nil && what != said {
			p.line("Waiting for %s", what)
			said = what
		}
	}
}

func notYet(what string) error {
	return fmt.Errorf("it is not done yet: still waiting for %s. The agent goes on with it; 'holdfast status' shows what comes of it", what)
}

func showReconciled(p printer, before, after status.Agent, did reconciled) {
	old := ""
	if before.Declared != nil {
		old = before.Declared.Revision
	}
	switch d := did.Declared; {
	case !did.Fetching:
	case did.Git.State != status.GitOK:
		p.item(p.paint(red, "!"), "The fetch has not worked: "+strings.TrimPrefix(did.Git.Fault(), "the repository: "))
	case d == nil:
		p.line("Fetched: nothing is declared yet.")
	case d.Revision == old:
		p.line("Fetched: nothing new, the head is %s still.", shortRevision(d.Revision))
	default:
		text := fmt.Sprintf("Fetched: the head is %s now", shortRevision(d.Revision))
		if d.Subject != "" {
			text += fmt.Sprintf(" (%q)", d.Subject)
		}
		if before.Declared != nil && before.Declared.Digest == d.Digest {
			text += ", with the same content as before"
		}
		p.line("%s.", text)
	}
	for _, d := range did.Corrected {
		p.line("Corrected: %s had been %s, and is %s again.", d.Field, d.Got, d.Want)
	}
	switch {
	case after.Report == nil: // an agent that says it has looked, and not what it saw
		p.line("%s The agent does not say what the device shows.", p.paint(red, "!"))
	case !did.Answers:
		p.line("%s The device does not answer: %s", p.paint(red, "!"), after.Report.Error)
	case len(did.Left) == 0:
		p.line("The device is as it is to be.")
	}
	for _, d := range did.Left {
		text := fmt.Sprintf("%s is to be %s and is %s", d.Field, d.Want, d.Got)
		if msg := after.Report.Refused[d.Field]; msg != "" {
			text += ": the device refuses it: " + msg
		}
		p.line("%s %s", p.paint(red, "!"), text)
	}
	p.line("%s.", did.Summary)
}

// agentError makes an error of a request to the agent one for people. One that has not answered may do it when it comes back: what it was
// asked for, to look, does no harm later.
func (b *board) agentError(err error) error {
	var refused *api.StatusError
	state, words := status.Why(err)
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("nothing was changed: %s", refused)
	case state == status.ProcessUnreachable:
		return fmt.Errorf("nothing was changed: the agent is not reachable (%s); %s", words, access(b.config.AgentSocket()))
	case state == status.ProcessSilent:
		return fmt.Errorf("no answer: the agent was asked and did not say that it does it (%s); it may when it comes back", words)
	}
	return fmt.Errorf("nothing was changed: the agent does not answer: %s", words)
}
