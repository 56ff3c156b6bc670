package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
)

// rolledBack is what `holdfast rollback --json` says.
type rolledBack struct {
	// Ended is what was going on and has been ended by it: trial, returning, or "" for neither.
	Ended   api.Phase      `json:"ended,omitempty"`
	InForce status.Release `json:"inForce"`
	// Mark is what keeps what was left behind from coming back, absent if it cannot be told any more.
	Mark *bootslot.Mark `json:"mark,omitempty"`
	// RetryNumber is what to write as `retry:` to try the same once more.
	RetryNumber  uint64 `json:"retryNumber"`
	AgentAnswers bool   `json:"agentAnswers"`
}

func newRollback(where *place) *cobra.Command {
	var to string
	var asJSON bool
	c := &cobra.Command{
		Use:   "rollback",
		Short: "Go back to the previous release, or to the fallback, and stay there",
		Long: `Make the previous release, the last one that passed its trial without an exemption before the one in
force, the release in force again. It needs no trial. What is left behind gets a mark, so that what git
declares does not bring it back.

While a trial runs it only ends that, with a mark. While the device is returning from a failed trial it
only says that the mark stands.

There is one previous release, and none after a rollback until something passes again; the fallback,
'--to fallback', is always there.

With --json: ended (trial or returning, if one was open), inForce, mark, retryNumber, agentAnswers.`,
		Example: `  holdfast rollback
  holdfast rollback --to fallback`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to != "previous" && to != "fallback" {
				return misuse{fmt.Errorf("--to %q: must be previous or fallback", to)}
			}
			ctx := cmd.Context()
			b := where.open()
			b.warn(newPrinter(cmd.ErrOrStderr()))
			before, err := b.guard.State(ctx, nil)
			if err != nil {
				return b.unasked(err)
			}
			lease, err := b.guard.Rollback(ctx, api.RollbackRequest{ToFallback: to == "fallback"})
			if err != nil {
				return b.told(err)
			}
			alive := b.poke(ctx)
			v := status.Build(b.sources(ctx, false))
			did := rolledBack{InForce: v.LastKnownGood, RetryNumber: max(v.Spent, retryOf(v)) + 1, AgentAnswers: alive}
			if before.Phase != api.PhaseIdle {
				did.Ended = before.Phase
			}
			if m, ok := rollbackMark(v.Marks, before, lease.Generation); ok {
				did.Mark = &m
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), did)
			}
			showRollback(newPrinter(cmd.OutOrStdout()), &b, before, did)
			return nil
		},
	}
	c.Flags().StringVar(&to, "to", "previous", "`where` to go: previous or fallback")
	c.Flags().BoolVar(&asJSON, "json", false, "say what was done as JSON")
	return c
}

func showRollback(p printer, b *board, before api.State, did rolledBack) {
	target := did.InForce.Name()
	if did.InForce.Revision != "" {
		target += ", content " + shortDigest(did.InForce.Digest)
	}
	target += " (" + status.FieldsText(b.profile, did.InForce.Fields) + ")"
	switch did.Ended {
	case api.PhaseTrial:
		p.line("The trial of %s was ended and its change marked; last-known-good stays in force: %s.", shortRevision(before.Ledger.Trial.Revision), target)
	case api.PhaseReturning:
		p.line("The device is not waited for any more; the mark of the failed trial stands. In force: %s.", target)
	default:
		p.line("Rolled back. In force: %s.", target)
	}
	if m := did.Mark; m != nil {
		p.line("Mark %d keeps what was left behind from coming back: %s.", m.ID, status.FieldsText(b.profile, m.Set))
	}
	p.line("Next: declare something else, or write 'retry: %d' into the declared file to try the same once more.", did.RetryNumber)
	if !did.AgentAnswers {
		p.line("The agent does not answer; the guard drives the device there.")
	}
}

// rollbackMark finds the mark that a rollback made, or that stands after it. The ledger's generation names a new one; one that was folded
// into another lives on in that, which then has its digests.
func rollbackMark(marks []bootslot.Mark, before api.State, generation uint64) (bootslot.Mark, bool) {
	id := generation
	if r := before.Ledger.Returning; r != nil {
		id = r.Mark
	}
	var left bootslot.Digest
	switch t := before.Ledger.Trial; {
	case t != nil:
		left = t.Digest
	case before.Ledger.Returning != nil:
		left = before.Ledger.Returning.Digest
	default:
		left = before.LastKnownGood.Digest()
	}
	is := func(f func(bootslot.Mark) bool) (bootslot.Mark, bool) {
		for _, m := range slices.Backward(marks) {
			if !m.Retired && f(m) {
				return m, true
			}
		}
		return bootslot.Mark{}, false
	}
	if m, ok := is(func(m bootslot.Mark) bool { return m.ID == id }); ok {
		return m, true
	}
	return is(func(m bootslot.Mark) bool { return slices.Contains(m.Candidates, left) })
}

// retryOf is the retry number that is declared.
func retryOf(v status.View) uint64 {
	if v.Declared == nil {
		return 0
	}
	return v.Declared.Retry
}
