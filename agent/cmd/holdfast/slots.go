package main

import (
	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
)

// shownSlots is what `holdfast slots --json` says.
type shownSlots struct {
	Slots    map[bootslot.SlotName]bootslot.Slot `json:"slots"`
	Active   bootslot.SlotName                   `json:"active,omitempty"` // the slot in force
	Previous *bootslot.Slot                      `json:"previous,omitempty"`
	Fallback bootslot.Release                    `json:"fallback"`
}

func newSlots(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "slots",
		Short: "Show the two slots, what is in force, and what it could go back to",
		Long: `Show slot A and slot B of the ledger, the previous release (for 'holdfast rollback') and the fallback
(for 'holdfast rollback --to fallback'). * marks what is in force.

With --json: slots (by name), active, previous, fallback.

Exit code 0: they are shown. 1: the ledger cannot be read.`,
		Example: "  holdfast slots",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := where.open()
			s := b.sources(cmd.Context(), plainly)
			v := status.Build(s)
			if err := needLedger("the slots", s, v); err != nil {
				return err
			}
			fallback := b.profile.Fallback
			if asJSON {
				return printJSON(cmd.OutOrStdout(), shownSlots{v.Slots, v.Active, v.Previous, bootslot.Release{Fields: fallback}})
			}
			p := newPrinter(cmd.OutOrStdout())
			rows := [][]cell{{{text: " "}, {"slot", faint}, {"status", faint}, {"revision", faint}, {"content", faint}, {"fields", faint}}}
			add := func(name, stat string, s bootslot.Slot, inForce bool) {
				mark := " "
				if inForce {
					mark = "*"
				}
				fields := status.FieldsText(b.profile, s.Release.Fields)
				if s.Declared != "" && s.Declared != s.Digest {
					fields += "  (mixed: declared was " + s.Declared.Short() + ")"
				}
				rows = append(rows, []cell{{mark, green}, {name, bold}, {stat, slotPaint[s.Status]}, {text: shortRevision(s.Revision)}, {text: shortDigest(s.Digest)}, {text: fields}})
			}
			for _, name := range []bootslot.SlotName{bootslot.SlotA, bootslot.SlotB} {
				add(string(name), string(v.Slots[name].Status), v.Slots[name], v.Active == name)
			}
			if v.Previous != nil {
				add("previous", "proven", *v.Previous, false)
			}
			f := bootslot.Release{Fields: fallback}
			add("fallback", "baked in", bootslot.Slot{Release: f, Digest: f.Digest()}, v.Active == "")
			p.table("", rows)
			showProblems(p, v)
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

var slotPaint = map[bootslot.SlotStatus]paint{bootslot.SlotGood: green, bootslot.SlotTrying: yellow, bootslot.SlotFailed: red, bootslot.SlotEmpty: faint}

// showProblems says what may make an answer that was read from files incomplete.
func showProblems(p printer, v status.View) {
	if !v.Guard.Alive {
		p.line("%s the guard %s; this was read from its files", p.paint(red, "!"), v.Guard.Words())
	}
	for _, s := range v.Problems {
		p.item(p.paint(red, "!"), s)
	}
}
