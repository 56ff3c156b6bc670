package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"holdfast/agent"
)

func newSync(where *place) *cobra.Command {
	return &cobra.Command{
		Use:   "sync",
		Short: "Fetch now, and look at the device now",
		Long: `Make the agent fetch and look at the device at once, whatever its intervals are and however long it has
backed off. It does not wait for the end of that: 'holdfast status' shows it.`,
		Example: "  holdfast sync",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := where.open()
			ctx, cancel := context.WithTimeout(cmd.Context(), askTime)
			defer cancel()
			if err := b.agent.Reconcile(ctx); err != nil {
				return fmt.Errorf("the agent does not answer: %s", why(err))
			}
			newPrinter(cmd.OutOrStdout()).line("The agent fetches now. 'holdfast status --watch' shows what comes of it.")
			return nil
		},
	}
}

func newAccept(where *place) *cobra.Command {
	return &cobra.Command{
		Use:   "accept REVISION",
		Short: "Take a head that does not descend from the revision in force, once",
		Long: `Take REVISION, all 40 digits of it, although it does not descend from what is in force: somebody
has rewritten the branch on purpose. It counts once, for the agent that runs now, and as long as it is
the branch's head. What it declares goes through its trial like anything else.`,
		Example: "  holdfast accept 0123456789abcdef0123456789abcdef01234567",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b := where.open()
			ctx, cancel := context.WithTimeout(cmd.Context(), askTime)
			defer cancel()
			if err := b.agent.do(ctx, http.MethodPost, "/v1/accept", agent.AcceptRequest{Revision: args[0]}, nil); err != nil {
				return fmt.Errorf("nothing was changed: %s", why(err))
			}
			newPrinter(cmd.OutOrStdout()).line("Accepted: %s is taken with the fetch that runs now, if it is the branch's head.", args[0])
			return nil
		},
	}
}
