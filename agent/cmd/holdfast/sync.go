package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot/api"
)

func newSync(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "sync",
		Short: "Fetch now, and look at the device now",
		Long: `Make the agent fetch and look at the device at once, whatever its intervals are and however long it has
backed off. It does not wait for the end of that: 'holdfast status' shows it.

With --json: fetching (true).`,
		Example: "  holdfast sync",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := where.open()
			ctx, cancel := context.WithTimeout(cmd.Context(), askTime)
			defer cancel()
			if err := b.agent.Reconcile(ctx); err != nil {
				return b.agentError(err)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]bool{"fetching": true})
			}
			newPrinter(cmd.OutOrStdout()).line("The agent fetches now. 'holdfast status --watch' shows what comes of it.")
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "say what was done as JSON")
	return c
}

func newAccept(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "accept REVISION",
		Short: "Take a head that does not descend from the revision in force, once",
		Long: `Take REVISION, all 40 digits of it, although it does not descend from what is in force: somebody
has rewritten the branch on purpose. It counts once, for the agent that runs now, and as long as it is
the branch's head. What it declares goes through its trial like anything else.

With --json: accepted (the revision).`,
		Example: "  holdfast accept 0123456789abcdef0123456789abcdef01234567",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("say which revision to accept, all 40 digits of it, and nothing else")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			b := where.open()
			ctx, cancel := context.WithTimeout(cmd.Context(), askTime)
			defer cancel()
			if err := b.agent.Accept(ctx, args[0]); err != nil {
				return b.agentError(err)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]string{"accepted": args[0]})
			}
			newPrinter(cmd.OutOrStdout()).line("Accepted: %s is taken with the fetch that runs now, if it is the branch's head.", args[0])
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "say what was done as JSON")
	return c
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
