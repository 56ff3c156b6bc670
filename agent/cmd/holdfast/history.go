package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/ledger"
)

func newHistory(where *place) *cobra.Command {
	var asJSON bool
	var last int
	c := &cobra.Command{
		Use:   "history",
		Short: "Show what happened here: trials, verdicts, rollbacks, and who did what",
		Long: `Show the events of the ledger, oldest first. The order is that in which they happened; the times are this
board's wall clock, which may have been wrong.`,
		Example: `  holdfast history --last 50
  holdfast history --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("last") && !asJSON {
				last = 20
			}
			b := where.open()
			events, note, err := b.history(cmd.Context(), last)
			if err != nil {
				return err
			}
			if asJSON {
				if events == nil {
					events = []bootslot.Event{}
				}
				return printJSON(cmd.OutOrStdout(), events)
			}
			p := newPrinter(cmd.OutOrStdout())
			if len(events) == 0 {
				p.line("Nothing has happened yet.")
			}
			var rows [][]cell
			for _, e := range events {
				rows = append(rows, eventRow(e))
			}
			p.table("", rows)
			for _, s := range append(b.problems, note) {
				if s != "" {
					p.item(p.paint(red, "!"), s)
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print them as JSON; all of them, if --last does not say otherwise")
	c.Flags().Var((*count)(&last), "last", "print the `N` newest ones, 0 for all (default 20)")
	return c
}

// history asks the guard, or reads its file when it is dead. note says where it is from, if not from the guard.
func (b *board) history(ctx context.Context, last int) (events []bootslot.Event, note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	events, gerr := b.guard.History(ctx, last)
	if gerr == nil {
		return events, "", nil
	}
	state, words := status.Why(gerr)
	guard := status.Process{State: state, Why: words}
	if state == status.ProcessSilent { // it has its file locked as long as it runs: no use to wait for that
		return nil, "", errors.New("the guard runs and does not answer, and its history is locked as long as it runs")
	}
	_, events, err = ledger.ReadDB(b.config.LedgerDB(), last)
	switch {
	case errors.Is(err, ledger.ErrLocked):
		return nil, "", errors.New("the guard runs and does not answer, and its history is locked as long as it runs")
	case err != nil && state == status.ProcessUnreachable:
		return nil, "", fmt.Errorf("the history cannot be read: the guard %s, and of its file: %s; %s", guard.Words(), why(err), access(b.config.GuardSocket()))
	case err != nil:
		return nil, "", fmt.Errorf("the guard does not answer (%s), and its history cannot be read: %w", words, err)
	}
	return events, fmt.Sprintf("the guard %s; this was read from its files", guard.Words()), nil
}

var eventPaint = map[bootslot.EventKind]paint{
	bootslot.EventKind(bootslot.Passed): green, bootslot.EventAdopted: green, bootslot.EventHealthy: green,
	bootslot.EventKind(bootslot.Failed): red, bootslot.EventUnhealthy: red,
	bootslot.EventKind(bootslot.Environment): yellow, bootslot.EventKind(bootslot.Inconclusive): yellow, bootslot.EventKind(bootslot.Cancelled): yellow,
	bootslot.EventRollback: yellow,
}

func eventRow(e bootslot.Event) []cell {
	var about []string
	say := func(format string, args ...any) { about = append(about, fmt.Sprintf(format, args...)) }
	if len(e.Fields) > 0 {
		say("%s", strings.Join(e.Fields, ", "))
	}
	if e.Slot != "" {
		say("slot %s", e.Slot)
	}
	if e.Attempt > 0 {
		say("attempt %d", e.Attempt)
	}
	if e.Check != "" || e.Message != "" {
		say("%s", strings.Trim(e.Check+": "+e.Message, ": "))
	}
	if e.Mark != 0 {
		say("mark %d", e.Mark)
	}
	if e.Who != "" {
		say("by %s", e.Who)
	}
	if e.Count > 1 {
		say("%d times", e.Count)
	}
	digest := e.Digest
	if digest == "" {
		digest = e.Declared
	}
	return []cell{{text: status.Wall(e.At)}, {string(e.Kind), eventPaint[e.Kind]}, {text: shortRevision(e.Revision)}, {shortDigest(digest), faint}, {text: strings.Join(about, ", ")}}
}
