package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
	AgentAnswers bool   `json:"agentAnswers"` // else the guard drives the device there
	// DryRun says that nothing was done: inForce is what would be.
	DryRun bool `json:"dryRun,omitempty"`
	// Changes are the fields that the device is, or would be, changed in by it.
	Changes []change `json:"changes,omitempty"`
}

// change is one field that is changed.
type change struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

func newRollback(where *place) *cobra.Command {
	var to string
	var asJSON, yes, dryRun bool
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

It says first what it is about to do. On a terminal it then asks, unless --yes is given; a script is
not asked. With --dry-run that is all.

With --json: ended (trial or returning, if one was open), inForce, mark, retryNumber, agentAnswers,
changes, dryRun.

Exit code 0: it was done, or said. 1: nothing was changed.`,
		Example: `  holdfast rollback --dry-run
  holdfast rollback
  holdfast rollback --to fallback --yes`,
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
			plan, err := planRollback(before, to == "fallback")
			switch {
			case err != nil && dryRun:
				return err
			case err != nil: // the guard has the last word, and the same one
			case dryRun && asJSON:
				return printJSON(cmd.OutOrStdout(), plan)
			case !asJSON:
				showPlan(newPrinter(cmd.OutOrStdout()), before, plan)
				if dryRun || !yes && !confirmed(cmd) {
					return nil
				}
			}
			lease, err := b.guard.Rollback(ctx, api.RollbackRequest{ToFallback: to == "fallback"})
			if err != nil {
				return b.told(err)
			}
			alive := b.poke(ctx)
			v := status.Build(b.sources(ctx, plainly))
			did := rolledBack{Ended: plan.Ended, InForce: v.LastKnownGood, RetryNumber: max(v.Spent, retryOf(v)) + 1, AgentAnswers: alive, Changes: plan.Changes}
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
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what it would do, and do nothing")
	completeFlag(c, where, "to", func(known) []string { return []string{"previous", "fallback"} })
	jsonFlag(c, &asJSON)
	return c
}

// planRollback is what a rollback would do now, by the guard's own rules.
func planRollback(s api.State, toFallback bool) (rolledBack, error) {
	target, revision := s.LastKnownGood, s.Ledger.Slots[s.Ledger.Active].Revision
	plan := rolledBack{DryRun: true}
	switch l := s.Ledger; {
	case l.Trial != nil:
		plan.Ended = api.PhaseTrial
	case l.Returning != nil:
		plan.Ended = api.PhaseReturning
	case toFallback:
		target, revision = s.Fallback, ""
	case l.Previous == nil:
		return plan, bootslot.ErrNoPrevious
	default:
		target, revision = l.Previous.Release, l.Previous.Revision
	}
	if plan.Ended == "" && target.Equal(s.LastKnownGood) {
		return plan, bootslot.ErrAlreadyThere
	}
	plan.InForce = status.Release{Fields: target.Fields, Image: target.Image, Digest: target.Digest(), Revision: revision}
	for _, name := range slices.Sorted(maps.Keys(target.Fields)) {
		if from := s.Lease.Fields[name]; from != target.Fields[name] {
			plan.Changes = append(plan.Changes, change{name, from, target.Fields[name]})
		}
	}
	return plan, nil
}

// showPlan says what is about to be done.
func showPlan(p printer, before api.State, plan rolledBack) {
	switch plan.Ended {
	case api.PhaseTrial:
		p.line("This ends the trial of %s and marks its change; last-known-good stays in force.", shortRevision(before.Ledger.Trial.Revision))
	case api.PhaseReturning:
		p.line("This stops waiting for the device: the mark of the failed trial stands, and last-known-good stays in force.")
	default:
		from := shortRevision(before.Ledger.Slots[before.Ledger.Active].Revision)
		if from == "-" {
			from = "what is in force"
		}
		to := shortRevision(plan.InForce.Revision)
		if to == "-" {
			to = "the fallback"
		}
		p.line("This goes back from %s to %s, and marks what is left behind, so that it does not come back by itself.", from, to)
	}
	if len(plan.Changes) == 0 {
		p.line("The device is to be what it is to be now.")
		return
	}
	var parts []string
	for _, c := range plan.Changes {
		parts = append(parts, fmt.Sprintf("%s from %s to %s", c.Field, orDash(c.From), c.To))
	}
	p.line("The device is changed at once: %s.", strings.Join(parts, ", "))
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
