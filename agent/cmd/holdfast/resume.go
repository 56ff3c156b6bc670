package main

import (
	"time"

	"github.com/spf13/cobra"
)

// resumed is what `holdfast resume --json` says.
type resumed struct {
	WasSuspended bool    `json:"wasSuspended"`
	SecondsLeft  float64 `json:"secondsLeft"` // that were left of it
	AgentAnswers bool    `json:"agentAnswers"`
}

func newResume(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "resume",
		Short: "End a suspension",
		Long: `End a suspension now. Without one it does nothing.

With --json: wasSuspended, secondsLeft (that were left of it), agentAnswers.

Exit code 0: nothing is suspended any more. 1: nothing was changed.`,
		Example: "  holdfast resume",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			b := where.open()
			b.warn(newPrinter(cmd.ErrOrStderr()))
			before, err := b.guard.State(ctx, nil)
			if err != nil {
				return b.unasked(err)
			}
			if _, err := b.guard.Resume(ctx); err != nil {
				return b.told(err)
			}
			alive := b.poke(ctx)
			if asJSON {
				did := resumed{AgentAnswers: alive}
				if s := before.Suspended; s != nil {
					did.WasSuspended, did.SecondsLeft = true, s.SecondsLeft
				}
				return printJSON(cmd.OutOrStdout(), did)
			}
			p := newPrinter(cmd.OutOrStdout())
			if before.Suspended == nil {
				p.line("Nothing was suspended.")
				return nil
			}
			left := time.Duration(before.Suspended.SecondsLeft * float64(time.Second)).Round(time.Second)
			p.line("Resumed; %s were left. Drift is repaired at once, and what is declared is tried as soon as the checks have held at rest.", left)
			agentNote(p, alive)
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
