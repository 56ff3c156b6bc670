package main

import (
	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
)

// retried is what `holdfast retry --json` says.
type retried struct {
	Grant        *bootslot.Grant  `json:"grant,omitempty"`    // as the ledger has it; absent once its trial has used it up
	Declared     *status.Declared `json:"declared,omitempty"` // what is granted a trial
	Decision     *status.Decision `json:"decision,omitempty"`
	AgentAnswers bool             `json:"agentAnswers"` // else nothing is tried until it runs
}

func newRetry(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "retry",
		Short: "Let what is declared now have one more trial, past all marks",
		Long: `Let what is declared now have one more trial, past all marks, pauses and attempts. It is the same
leave as a raised 'retry:' in the declared file, but for this board alone and for the content that
is declared at this moment. It is used up by a trial that comes to a conclusion; if it fails, the
content is marked again.

It does not wait for the trial: 'holdfast status --watch' shows it.

With --json: grant, declared, decision (as in 'holdfast status --json'), agentAnswers.

Exit code 0: it is granted. 1: nothing was changed.`,
		Example: "  holdfast retry",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			b := where.open()
			b.warn(newPrinter(cmd.ErrOrStderr()))
			if _, err := b.guard.Retry(ctx); err != nil {
				return b.told(err)
			}
			alive := b.poke(ctx)
			v := status.Build(b.sources(ctx, plainly))
			if asJSON {
				return printJSON(cmd.OutOrStdout(), retried{v.Grant, v.Declared, v.Decision, alive})
			}
			p := newPrinter(cmd.OutOrStdout())
			content := "what is declared"
			if d := v.Declared; d != nil {
				content = "content " + d.Digest.Short() + " of revision " + shortRevision(d.Revision)
				if d.Subject != "" {
					content += " (" + d.Subject + ")"
				}
			}
			p.line("Granted: %s gets one trial past all marks.", content)
			switch reason := v.Reason(); {
			case v.Trial != nil:
				p.line("Its trial runs.")
			case v.Decision != nil && v.Decision.Kind == bootslot.AwaitBaseline:
				p.line("Next: %s.", reason)
			case reason != "" && v.Decision.Kind == bootslot.Refused:
				p.line("Next: its trial starts when this is over: %s.", reason)
			default:
				p.line("Next: its trial starts as soon as the checks have held at rest.")
			}
			agentNote(p, alive)
			p.line("Follow it with 'holdfast status --watch'.")
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
