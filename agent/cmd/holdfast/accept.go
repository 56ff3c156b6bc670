package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

func newAccept(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "accept REVISION",
		Short: "Take a head that does not descend from the revision in force, once",
		Long: `Take REVISION although it does not descend from what is in force: somebody has rewritten the branch
on purpose. All 40 digits of it, or as many of the first ones as are needed to know the branch's
head by, 7 at least; 'holdfast status' shows it. It counts once, for the agent that runs now, and as
long as it is the branch's head. What it declares goes through its trial like anything else.

With --json: accepted (the revision).

Exit code 0: it is taken with the fetch that runs now. 1: nothing was changed.`,
		Example: "  holdfast accept 0123456789abcdef0123456789abcdef01234567",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("say which revision to accept, and nothing else")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			b := where.open()
			ctx, cancel := context.WithTimeout(cmd.Context(), askTime)
			defer cancel()
			revision := args[0]
			if n := len(revision); n >= 7 && n < 40 {
				// The rest of it is known if it is the head that is refused now.
				if a, err := b.agent.Status(ctx, nil); err == nil && strings.HasPrefix(a.Git.RemoteRevision, revision) {
					revision = a.Git.RemoteRevision
				}
			}
			if err := b.agent.Accept(ctx, revision); err != nil {
				return b.agentError(err)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), accepted{revision})
			}
			newPrinter(cmd.OutOrStdout()).line("Accepted: %s is taken with the fetch that runs now, if it is the branch's head.", revision)
			return nil
		},
		ValidArgsFunction: complete(where, func(k known) []string { return k.head }),
	}
	jsonFlag(c, &asJSON)
	return c
}

// accepted is what `holdfast accept --json` says.
type accepted struct {
	Accepted string `json:"accepted"` // the revision
}
