package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
)

func newStatus(where *place) *cobra.Command {
	var asJSON, watch, oneLine bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Say how it stands: what is in force, what is tried or held and why, and whether all is well",
		Long: `Say how it stands. The first line is the summary.

It asks agent and guard, and reads the files of whoever is dead. With --watch it goes on and shows
it again when it has changed: on a terminal in place, elsewhere one view below the other. With
--oneline it is one short line for a shell's prompt, and takes a second at most whoever is dead: a
word (ok, trial, held, returning, waiting, suspended, new, nobody, unreadable), what that is about,
then offline, and !N for N things that somebody ought to look at.

Conditions are for a fleet's tools, and so are their reasons: Ready (the device is as declared),
Reconciling (something is under way), Stalled (nothing comes of it unless somebody does something),
Healthy, Fetched.

With --json: the whole view, of which summary, details, fine, notFine, conditions, phase, decision,
declared, effective, device, marks, slots, git and checks are the first to look at.

Exit code 0: all is well. A trial, a held field, a suspension and being offline are well: that is
Holdfast at work. Exit code 1: somebody ought to look. The guard or the agent is dead, the device
does not answer, does not take what is written or is not as it is to be, a required check fails on
the release in force, the repository cannot be used for another reason than the link, nothing can be
tried (the disk is below its floor, the ledger is a newer guard's), something is wrong with
Holdfast's own files, or this user may not ask. The lines that begin with ! say which.`,
		Example: `  holdfast status
  holdfast status --json | jq .decision
  holdfast status --watch
  PS1='[$(holdfast status --oneline)] \$ '`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := where.open()
			out := newPrinter(cmd.OutOrStdout())
			how := thoroughly
			show := func(w io.Writer, v status.View) error {
				p := out
				p.w = w
				return showStatus(p, &b, v)
			}
			switch {
			case asJSON:
				show = printJSON[status.View]
			case oneLine:
				b.patience, how = oneLineTime, quickly
				show = func(w io.Writer, v status.View) error {
					p := out
					p.w = w
					p.line("%s", v.Prompt())
					return nil
				}
			}
			if watch {
				return watchStatus(cmd.Context(), cmd.OutOrStdout(), &b, how, show, !asJSON && !oneLine)
			}
			v := status.Build(b.sources(cmd.Context(), how))
			if err := show(cmd.OutOrStdout(), v); err != nil {
				return err
			}
			if !v.Fine {
				return errNotFine
			}
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and print it again whenever it has changed")
	c.Flags().BoolVar(&oneLine, "oneline", false, "one short line, for a shell's prompt")
	c.MarkFlagsMutuallyExclusive("json", "oneline")
	return c
}

// oneLineTime is how long a prompt waits for agent and guard, both at once.
const oneLineTime = 700 * time.Millisecond

func showStatus(p printer, b *board, v status.View) error {
	headline := green
	switch {
	case !v.Fine:
		headline = red
	case v.Phase != api.PhaseIdle || v.Decision != nil && len(v.Decision.Held) > 0:
		headline = yellow
	}
	p.paragraph("", headline, v.Summary)
	for _, d := range v.Details {
		sign := painted("·")
		if slices.Contains(v.NotFine, d) {
			sign = p.paint(red, "!")
		}
		p.item("  "+sign, d)
	}
	p.line("")
	if v.Effective.Fields != nil { // else there is nothing to compare with
		left := namedRelease{Name: "declared"}
		if v.Declared != nil {
			left = declaredRelease(*v.Declared)
		}
		showFieldRows(p, left.Name, v, fieldRows(b.profile, v, left))
		p.line("")
	}

	row := func(name, format string, args ...any) []cell {
		return []cell{{name, faint}, {text: fmt.Sprintf(format, args...)}}
	}
	rows := [][]cell{row("conditions", "%s", conditionsText(v.Conditions))}
	if len(v.Device.Readings) > 0 {
		rows = append(rows, row("readings", "%s", status.ReadingsText(b.profile, v.Device.Readings)))
	}
	if d := v.Declared; d != nil {
		text := shortRevision(d.Revision)
		if d.Subject != "" {
			text += fmt.Sprintf(" %q", d.Subject)
		}
		text += ", content " + d.Digest.Short()
		if d.Retry > 0 {
			text += fmt.Sprintf(", retry: %d", d.Retry)
		}
		rows = append(rows, row("declared", "%s", text))
	}
	if d := v.Decision; d != nil {
		text := string(d.Kind)
		if d.Forecast {
			text = "would be " + text
		}
		if d.Mixed {
			text += ", mixed: no revision has it"
		}
		switch names := strings.Join(heldNames(d.Held), ", "); {
		case d.Kind == bootslot.Held:
			text += ": " + names
		case names != "":
			text += ", held: " + names
		}
		if reason := v.Reason(); len(d.Held) == 0 && !strings.Contains(v.Summary, reason) {
			text += ": " + reason // elsewhere it stands in the first line
		}
		rows = append(rows, row("decision", "%s", text))
	}
	inForce := v.LastKnownGood.Name()
	switch {
	case !v.LedgerKnown:
		inForce = "not known: the ledger cannot be read"
	case v.Active != "":
		inForce = fmt.Sprintf("slot %s, %s, content %s", v.Active, inForce, shortDigest(v.LastKnownGood.Digest))
	}
	rows = append(rows, row("in force", "%s", inForce))
	if v.Previous != nil {
		rows = append(rows, row("previous", "%s, content %s", shortRevision(v.Previous.Revision), v.Previous.Digest.Short()))
	}
	if l := v.LastVerdict; l != nil {
		text := fmt.Sprintf("%s, %s, content %s, %s", l.Kind, shortRevision(l.Revision), shortDigest(l.Digest), withAgo(v.At, l.At))
		if l.Check != "" {
			text += ", " + l.Check
		}
		rows = append(rows, row("last verdict", "%s", text))
	}
	active := 0
	for _, m := range v.Marks {
		if !m.Retired {
			active++
		}
	}
	if len(v.Marks) > 0 {
		rows = append(rows, row("marks", "%d, %d retired (holdfast marks)", len(v.Marks), len(v.Marks)-active))
	}
	if len(v.Checks) > 0 {
		rows = append(rows, row("checks", "%s", checksText(v.Checks)))
	}
	rows = append(rows, row("repository", "%s", gitText(v.Git)))
	driver := v.Driver
	if driver == "" {
		driver = "not known"
	}
	rows = append(rows, row("driven by", "%s", driver))
	rows = append(rows, row("agent", "%s", processText(v.Agent)), row("guard", "%s", processText(v.Guard)))
	p.table("  ", rows)
	return nil
}

// conditionsText is the conditions in one line: "Ready, not Stalled (Held)".
func conditionsText(conditions []status.Condition) string {
	var parts []string
	for _, c := range conditions {
		text := string(c.Type)
		switch c.Status {
		case status.False:
			text = "not " + text
		case status.Unknown:
			text += " unknown"
		}
		// What is as everybody hopes needs no reason.
		hoped := status.True
		if c.Type == status.Reconciling || c.Type == status.Stalled {
			hoped = status.False
		}
		if c.Status != hoped {
			text += " (" + c.Reason + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// withAgo is a time, and how long ago that was if it can be told.
func withAgo(now, t time.Time) string {
	if rough := status.Ago(now, t); rough != "" {
		return status.Wall(t) + " (" + rough + ")"
	}
	return status.Wall(t)
}

func checksText(checks []api.Check) string {
	hold, required := 0, 0
	var bad []string
	for _, c := range checks {
		if c.Required {
			required++
			if c.OK {
				hold++
			}
		}
		if c.Known && !c.OK {
			text := c.Name
			if !c.Required {
				text += " (wanted)"
			}
			if c.Message != "" {
				text += ": " + c.Message
			}
			bad = append(bad, text)
		}
	}
	text := fmt.Sprintf("%d of %d required ones hold", hold, required)
	if len(bad) > 0 {
		text += "; " + strings.Join(bad, "; ")
	}
	return text
}

func gitText(g status.Git) string {
	var parts []string
	if g.State == status.GitOK || g.State == status.GitUnknown { // a fault has a line of its own
		parts = append(parts, g.State)
		if !g.Since.IsZero() {
			parts[0] += " since " + status.Wall(g.Since)
		}
	}
	if g.RemoteRevision != "" {
		parts = append(parts, "head "+shortRevision(g.RemoteRevision))
	}
	if !g.LastFetch.IsZero() {
		parts = append(parts, "last good fetch "+status.Wall(g.LastFetch))
	}
	switch {
	case g.State == status.GitUnknown || g.State == status.GitOK:
	case g.Running:
		parts = append(parts, "fetching")
	default:
		parts = append(parts, "next try in "+span(g.NextInSeconds))
	}
	return strings.Join(parts, ", ")
}

func processText(p status.Process) string {
	if !p.Alive {
		return strings.TrimPrefix(p.Words(), "is ")
	}
	return fmt.Sprintf("alive, pid %d, %s", p.PID, p.Version)
}
