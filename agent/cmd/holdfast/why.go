package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
)

func newWhy(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "why FIELD|MARK",
		Short: "Tell why a field is as it is, or why a mark stands, and what lifts it",
		Long: `Tell the chain of cause of a field, or of the mark with that number: which revision by whom declared
what, what was tried and how often, which check failed with which readings before, during and after,
and what lifts it, with the number to write as 'retry:'. Of a field that nothing holds it tells
where its value comes from, since when, who drives it, and whether the device refuses it, does not
converge or somebody else keeps moving it.

It works with agent and guard dead, as long as the ledger can be read; the trials are told only if
the history can.

With --json: about, sentences, next, field, mark, trials, retryNumber.

Exit code 0: it was told. 1: it cannot be told. 2: there is no such field, or misuse.`,
		Example: `  holdfast why lamp
  holdfast why 6`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("say which field or which mark, one of them; 'holdfast marks' shows the marks")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			b := where.open()
			s := b.sources(cmd.Context(), thoroughly)
			v := status.Build(s)
			if err := needLedger("the ledger", s, v); err != nil {
				return err
			}
			// Without the history the trials and the revision that brought a value are not known, and the rest is.
			var events []bootslot.Event
			if v.Guard.State != status.ProcessSilent {
				events, _, _ = b.history(cmd.Context(), 0)
			}
			chain, ok := status.Chain{}, false
			if id, err := strconv.ParseUint(args[0], 10, 64); err == nil {
				if chain, ok = v.MarkChain(b.profile, id, events); !ok {
					return fmt.Errorf("there is no mark %d; 'holdfast marks' shows all", id)
				}
			} else if chain, ok = v.FieldChain(b.profile, args[0], events); !ok {
				return misuse{fmt.Errorf("there is no field %q; the fields are %s", args[0], strings.Join(status.FieldNames(b.profile, b.profile.Fallback), ", "))}
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), chain)
			}
			showChain(newPrinter(cmd.OutOrStdout()), chain)
			return nil
		},
		ValidArgsFunction: complete(where, func(k known) []string { return append(k.fields, k.marks...) }),
	}
	jsonFlag(c, &asJSON)
	return c
}

func showChain(p printer, c status.Chain) {
	for i, s := range c.Sentences {
		if i == 0 {
			p.paragraph("", bold, s)
			continue
		}
		p.paragraph("  ", plain, s)
	}
	if len(c.Next) == 0 {
		return
	}
	p.line("")
	p.line("What to do:")
	for _, s := range c.Next {
		p.paragraph("  - ", plain, s)
	}
}
