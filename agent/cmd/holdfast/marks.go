package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
)

func newMarks(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "marks [NUMBER]",
		Short: "Show what failed here and is not tried again, why, and what lifts it",
		Long: `Show the marks, oldest first, or the one with that number. A mark says "failed, don't retry" of a
set of changed fields: while what is declared contains all of the set, those fields stay at
last-known-good. * is before the marks that hold something now. A retired mark's set is part of
last-known-good meanwhile, and holds nothing.

A mark is lifted by declaring another value for a field of its set, by raising 'retry:' in the declared
file, or by 'holdfast retry'. 'holdfast why NUMBER' tells how it came about.

With --json: a list, each with id, set, cause, and as they apply revision, origin (author, subject), check,
message, before, during, after (readings), candidates, declared, operatorDeclared (contents), retired,
exhausted, at, who.

Exit code 0: they are shown, be they none. 1: they cannot be read, or there is no such mark.`,
		Example: `  holdfast marks
  holdfast marks 6`,
		ValidArgsFunction: complete(where, func(k known) []string { return k.marks }),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("'holdfast marks' takes the number of one mark, or nothing")
			}
			if len(args) == 1 {
				if _, err := strconv.ParseUint(args[0], 10, 64); err != nil {
					return fmt.Errorf("%q is not the number of a mark", args[0])
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			b := where.open()
			s := b.sources(cmd.Context(), plainly)
			v := status.Build(s)
			if err := needLedger("the marks", s, v); err != nil {
				return err
			}
			marks := v.Marks
			if len(args) == 1 {
				id, _ := strconv.ParseUint(args[0], 10, 64) // Args has looked at it
				i := slices.IndexFunc(marks, func(m bootslot.Mark) bool { return m.ID == id })
				if i < 0 {
					return fmt.Errorf("there is no mark %d; 'holdfast marks' shows all, 'holdfast why %d' tells if it was joined with another", id, id)
				}
				marks = marks[i : i+1]
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), marks)
			}
			p := newPrinter(cmd.OutOrStdout())
			if len(marks) == 0 {
				p.line("There are no marks: nothing has failed here.")
			}
			for i, m := range marks {
				if i > 0 {
					p.line("")
				}
				showMark(p, &b, v, m)
			}
			if d := v.Decision; d != nil && len(d.Marks) > 0 {
				p.line("")
				p.line("To try what is held once more: write 'retry: %d' into the declared file, or run 'holdfast retry'.", d.RetryNumber)
			}
			showProblems(p, v)
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func showMark(p printer, b *board, v status.View, m bootslot.Mark) {
	star, state := " ", ""
	if d := v.Decision; d != nil && slices.Contains(d.Marks, m.ID) {
		star = "*"
	}
	if m.Retired {
		state = "  (retired)"
	}
	p.line("%s mark %d  %s%s", p.paint(yellow, star), m.ID, p.paint(bold, status.FieldsText(b.profile, m.Set)), p.paint(faint, state))
	row := func(name, text string) []cell { return []cell{{name, faint}, {text: text}} }
	cause := causeText[m.Cause]
	if m.Cause == bootslot.CauseOperator && m.Who != "" {
		cause += " (" + m.Who + ")"
	}
	rows := [][]cell{row("cause", cause)}
	switch {
	case m.Check != "":
		rows = append(rows, row("check", strings.Trim(m.Check+": "+m.Message, ": ")))
	case m.Cause != bootslot.CauseOperator && m.Message != "": // an operator's has nothing to add to the cause
		rows = append(rows, row("why", m.Message))
	}
	rows = append(rows, row("revision", status.RevisionBy(m.Revision, m.Origin)))
	for _, r := range []struct {
		name string
		r    bootslot.Readings
	}{{"before", m.Before}, {"during", m.During}, {"after", m.After}} {
		if len(r.r) > 0 {
			rows = append(rows, row(r.name, status.ReadingsText(b.profile, r.r)))
		}
	}
	var digests []string
	for _, d := range m.Candidates {
		digests = append(digests, d.Short())
	}
	if len(digests) > 0 {
		rows = append(rows, row("contents", strings.Join(digests, " ")))
	}
	if !m.At.IsZero() {
		rows = append(rows, row("when", withAgo(v.At, m.At)))
	}
	p.table("    ", rows)
}

var causeText = map[bootslot.Cause]string{
	bootslot.CauseFailed:      "failed: a check that held before did not hold with it, and holds without it",
	bootslot.CauseEnvironment: "environment: it failed, but so did last-known-good afterwards; it may be tried again once that is well",
	bootslot.CauseAttempts:    "attempts: none of its trials came to a conclusion",
	bootslot.CauseOperator:    "operator: somebody rolled back from it",
}
