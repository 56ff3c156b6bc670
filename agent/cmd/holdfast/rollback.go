package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot/api"
)

func newRollback(where *place) *cobra.Command {
	var to string
	c := &cobra.Command{
		Use:   "rollback",
		Short: "Go back to the previous release, or to the fallback, and stay there",
		Long: `Make the previous release, the last one that passed its trial without an exemption before the one in
force, the release in force again. It needs no trial. What is left behind gets a mark, so that what git
declares does not bring it back.

While a trial runs it only ends that, with a mark. While the device is returning from a failed trial it
only says that the mark stands.

There is one previous release, and none after a rollback until something passes again; the fallback,
'--to fallback', is always there.`,
		Example: `  holdfast rollback
  holdfast rollback --to fallback`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to != "previous" && to != "fallback" {
				return misuse{fmt.Errorf("--to %q: must be previous or fallback", to)}
			}
			ctx := cmd.Context()
			b := where.open()
			b.warn(newPrinter(cmd.ErrOrStderr()))
			before, err := b.guard.State(ctx, nil)
			if err != nil {
				return told(err)
			}
			if _, err := b.guard.Rollback(ctx, api.RollbackRequest{ToFallback: to == "fallback"}); err != nil {
				return told(err)
			}
			alive := b.poke(ctx)
			v := status.Build(b.sources(ctx))
			p := newPrinter(cmd.OutOrStdout())
			target := "the fallback"
			if v.Active != "" {
				target = fmt.Sprintf("%s, content %s (%s)", shortRevision(v.LastKnownGood.Revision), v.LastKnownGood.Digest.Short(), fieldsText(b.profile, v.LastKnownGood.Fields))
			}
			switch before.Phase {
			case api.PhaseTrial:
				p.line("The trial of %s was ended and its change marked; last-known-good stays in force: %s.", shortRevision(before.Ledger.Trial.Revision), target)
			case api.PhaseReturning:
				p.line("The device is not waited for any more; the mark of the failed trial stands. In force: %s.", target)
			default:
				p.line("Rolled back. In force: %s.", target)
			}
			if n := len(v.Marks); n > 0 {
				m := v.Marks[n-1]
				p.line("Mark %d keeps what was left behind from coming back: %s.", m.ID, fieldsText(b.profile, m.Set))
			}
			p.line("Next: declare something else, or write 'retry: %d' into the declared file to try the same once more.", max(v.Spent, retryOf(v))+1)
			if !alive {
				p.line("The agent does not answer; the guard drives the device there.")
			}
			return nil
		},
	}
	c.Flags().StringVar(&to, "to", "previous", "`where` to go: previous or fallback")
	return c
}

// retryOf is the retry number that is declared.
func retryOf(v status.View) uint64 {
	if v.Declared == nil {
		return 0
	}
	return v.Declared.Retry
}
