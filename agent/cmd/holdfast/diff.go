package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/device"
)

// compared is what `holdfast diff --json` says.
type compared struct {
	Same bool `json:"same"`
	// Against is what is compared with effective: what is declared, or what was named.
	Against namedRelease `json:"against"`
	// Effective is what the device is to be now.
	Effective status.Release `json:"effective"`
	// Mixed says that effective, or what is to be tried, is of held and new fields: no revision has it.
	Mixed  bool       `json:"mixed,omitempty"`
	Fields []fieldRow `json:"fields"`
	// RetryNumber is what to write as `retry:` to try what is held once more.
	RetryNumber uint64 `json:"retryNumber,omitempty"`
}

// namedRelease is one that can be named.
type namedRelease struct {
	Name     string          `json:"name"` // declared, last-known-good, previous, fallback, trial, A or B
	Revision string          `json:"revision,omitempty"`
	Digest   bootslot.Digest `json:"digest,omitempty"`
	Fields   device.Fields   `json:"fields,omitempty"`
	Image    *bootslot.Image `json:"image,omitempty"`
	Origin   bootslot.Origin `json:"origin,omitzero"`
	whole    bool            // it is all that its revision declares
}

func newDiff(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "diff [REVISION]",
		Short: "Compare what is declared, what is in force and what the device reports, field by field",
		Long: `Show what is declared, what is effective (what the device is to be now) and what the device reports,
side by side, with what is odd about a field: the mark that holds it, a trial, drift, a value that
the device refuses.

With REVISION, that is compared with what is effective, in place of what is declared. It is a
revision's first digits (4 at least), a content's, or one of declared, last-known-good, previous,
fallback, trial, A, B. Only what this board still holds can be had: what is declared now, the two
slots, the previous release and the fallback. The clone keeps the newest revision only.

With --json: same, against, effective, mixed, fields (each with declared, effective, observed, same,
notes), retryNumber.

Exit code 0: all three are the same. 1: they differ. 2: they cannot be compared: something cannot be
read, or there is no such revision here.`,
		Example: `  holdfast diff
  holdfast diff previous
  holdfast diff 1762e00`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("'holdfast diff' takes one revision, or nothing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			b := where.open()
			s := b.sources(cmd.Context(), thoroughly)
			v := status.Build(s)
			if err := needLedger("what is in force", s, v); err != nil {
				return exit{2, err}
			}
			against := namedRelease{Name: "declared"}
			switch {
			case len(args) == 1:
				var err error
				if against, err = findRelease(v, b.profile, args[0]); err != nil {
					return exit{2, err}
				}
			case v.Declared != nil:
				against = declaredRelease(*v.Declared)
			case !v.CloneKnown:
				return exit{2, errors.New("what is declared cannot be read: " + strings.Join(v.Problems, "; "))}
			}
			d := compared{Same: true, Against: against, Effective: v.Effective}
			for _, r := range fieldRows(b.profile, v, against) {
				d.Same = d.Same && r.Same
				d.Fields = append(d.Fields, r)
			}
			if dec := v.Decision; dec != nil && len(dec.Held) > 0 {
				d.Mixed = dec.Mixed
				if len(dec.Marks) > 0 {
					d.RetryNumber = dec.RetryNumber
				}
			}
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), d); err != nil {
					return err
				}
			} else {
				showDiff(newPrinter(cmd.OutOrStdout()), &b, v, d)
			}
			switch {
			case !v.Device.Answers:
				return exit{2, errors.New("the device does not answer: what it is cannot be compared")}
			case !d.Same:
				return errNotFine
			}
			return nil
		},
		ValidArgsFunction: complete(where, func(k known) []string {
			return append([]string{"previous", "last-known-good", "fallback"}, k.revisions...)
		}),
	}
	jsonFlag(c, &asJSON)
	return c
}

func showDiff(p printer, b *board, v status.View, d compared) {
	name := d.Against.Name
	if d.Against.Revision != "" {
		name += " " + shortRevision(d.Against.Revision)
	}
	showFieldRows(p, name, v, d.Fields)
	if d.Against.Name != "declared" && !d.Against.whole && d.Against.Revision != "" {
		p.line("%s", p.paint(yellow, fmt.Sprintf("This is what came of %s with held fields left out, and not all that it declares.", shortRevision(d.Against.Revision))))
	}
	switch {
	case d.Against.Name != "declared":
	case v.Declared == nil:
		p.line("Nothing is declared yet.")
	case d.Mixed:
		p.line("%s", p.paint(yellow, "Mixed: no revision has what comes of this, as marks hold a part of it."))
	}
	if d.RetryNumber > 0 && d.Against.Name == "declared" {
		p.line("Why, and what lifts it: 'holdfast why %s'.", heldNames(v.Decision.Held)[0])
	} else if dec := v.Decision; dec != nil && d.Against.Name == "declared" && !d.Same && v.Reason() != "" {
		p.line("Not tried yet: %s.", v.Reason())
	}
	showProblems(p, v)
}

func declaredRelease(d status.Declared) namedRelease {
	return namedRelease{"declared", d.Revision, d.Digest, d.Fields, d.Image, d.Origin(), true}
}

// releases are all that this board holds, by name.
func releases(v status.View, p device.Profile) (all []namedRelease) {
	slot := func(name string, s bootslot.Slot) {
		if !s.Release.IsZero() {
			all = append(all, namedRelease{name, s.Revision, s.Digest, s.Release.Fields, s.Release.Image, s.Origin, s.Declared == "" || s.Declared == s.Digest})
		}
	}
	if v.Declared != nil {
		all = append(all, declaredRelease(*v.Declared))
	}
	lkg := v.LastKnownGood
	all = append(all, namedRelease{"last-known-good", lkg.Revision, lkg.Digest, lkg.Fields, lkg.Image, lkg.Origin, v.Slots[v.Active].Declared == lkg.Digest})
	slot("A", v.Slots[bootslot.SlotA])
	slot("B", v.Slots[bootslot.SlotB])
	if v.Previous != nil {
		slot("previous", *v.Previous)
	}
	if t := v.Trial; t != nil {
		all = append(all, namedRelease{"trial", t.Candidate.Revision, t.Candidate.Digest, t.Candidate.Fields, t.Candidate.Image, t.Candidate.Origin, false})
	}
	f := bootslot.Release{Fields: p.Fallback}
	return append(all, namedRelease{"fallback", "", f.Digest(), f.Fields, nil, bootslot.Origin{}, true})
}

// findRelease finds what was named.
func findRelease(v status.View, p device.Profile, name string) (namedRelease, error) {
	all := releases(v, p)
	var found []namedRelease
	var have []string
	for _, r := range all {
		if r.Name == name {
			return r, nil
		}
		if len(name) >= 4 && (strings.HasPrefix(r.Revision, name) || strings.HasPrefix(string(r.Digest), name)) {
			found = append(found, r)
		}
		text := r.Name
		if r.Revision != "" {
			text += " (" + shortRevision(r.Revision) + ")"
		}
		have = append(have, text)
	}
	for _, r := range found {
		// The same revision in two places: what is declared has all of it, a slot may have a part.
		if r.Digest != found[0].Digest && r.Revision != found[0].Revision {
			return namedRelease{}, fmt.Errorf("%q is the beginning of more than one: %s and %s", name, found[0].Revision, r.Revision)
		}
	}
	if len(found) == 0 {
		return namedRelease{}, fmt.Errorf("%q is not on this board, which holds only the newest revision of its branch and what its slots have: %s. "+
			"In a copy of the repository: git show %s:FILE", name, strings.Join(have, ", "), name)
	}
	return found[0], nil
}
