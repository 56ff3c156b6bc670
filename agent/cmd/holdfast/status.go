package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
)

func newStatus(where *place) *cobra.Command {
	var asJSON, watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Say how it stands: what is in force, what is tried or held and why, and whether all is well",
		Long: `Say how it stands. The first line is the summary.

It asks agent and guard, and reads the files of whoever is dead.

Exit code 0: all is well. A trial, a held field, a suspension and being offline are well: that is
Holdfast at work. Exit code 1: somebody ought to look. The guard or the agent is dead, the device does
not answer, does not take what is written or is not as it is to be, a required check fails on the release
in force, the repository cannot be used for another reason than the link, nothing can be tried (the disk is
below its floor, the ledger is a newer guard's), something is wrong with Holdfast's own files, or this user
may not ask.
The lines that begin with ! say which.`,
		Example: `  holdfast status
  holdfast status --json | jq .decision
  holdfast status --watch`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := where.open()
			out := newPrinter(cmd.OutOrStdout())
			show := func(w io.Writer, v status.View) error {
				p := out
				p.w = w
				return showStatus(p, &b, v)
			}
			if asJSON {
				show = printJSON[status.View]
			}
			if watch {
				return watchStatus(cmd.Context(), cmd.OutOrStdout(), &b, show, !asJSON)
			}
			v := status.Build(b.sources(cmd.Context(), true))
			if err := show(cmd.OutOrStdout(), v); err != nil {
				return err
			}
			if !v.Fine {
				return errNotFine
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the whole view as JSON")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and print it again whenever it has changed")
	return c
}

func printJSON[T any](w io.Writer, v T) error {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", spelledOut(out))
	return err
}

// spelledOut is JSON whose strings have an escape for what is not printable: encoding/json escapes only what is below a blank, and some terminals obey more.
func spelledOut(b []byte) []byte {
	var out []byte
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case unicode.IsPrint(r) || r == '\n':
			out = append(out, b[:n]...)
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
		b = b[n:]
	}
	return out
}

const (
	// watchEvery is how often a watcher looks for somebody who does not answer.
	watchEvery = time.Second
	// watchMost is how long it waits for news of those who do: one that is stopped says nothing any more, and that is news, too.
	watchMost = 5 * time.Second
	// watchLeast is the least time between two looks, whatever goes on.
	watchLeast = 200 * time.Millisecond
)

// watchStatus shows the view again whenever it differs in more than time passing; on a terminal it stays in place.
func watchStatus(ctx context.Context, w io.Writer, b *board, show func(io.Writer, status.View) error, text bool) error {
	screen := screen{w: w, inPlace: text && isTerminal(w), gap: text}
	for {
		s := b.sources(ctx, true)
		v := status.Build(s)
		if ctx.Err() != nil {
			return nil
		}
		if err := screen.show(v, show); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.clock.After(watchLeast):
		}
		b.awaitNews(ctx, s)
	}
}

// screen is what a watcher has shown.
type screen struct {
	w       io.Writer
	inPlace bool   // a terminal: one view over the other
	gap     bool   // an empty line between two views
	last    string // in place the text, else the fingerprint
}

// show writes the view if it is news: in place that is another text, seconds that run along included; else only more than time passing. In
// place it is written at once and over what is there, so that nothing flickers.
func (s *screen) show(v status.View, write func(io.Writer, status.View) error) error {
	var text bytes.Buffer
	if err := write(&text, v); err != nil {
		return err
	}
	now := fingerprint(v)
	if s.inPlace {
		now = text.String()
	}
	if now == s.last {
		return nil
	}
	first := s.last == ""
	s.last = now
	out := text.String()
	switch {
	case s.inPlace: // home, each line cleared to its end, and the rest of the screen
		out = "\x1b[H" + strings.ReplaceAll(out, "\n", "\x1b[K\n") + "\x1b[J"
	case !first && s.gap:
		out = "\n" + out
	}
	_, err := io.WriteString(s.w, out)
	return err
}

// awaitNews returns when agent or guard has news since s, or it is time to look again.
func (b *board) awaitNews(ctx context.Context, s status.Sources) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan struct{}, 2)
	wait := watchMost
	if s.Guard != nil {
		go func() {
			_, _ = b.guard.State(ctx, &s.Guard.Change) // an answer or none: it is time to look
			news <- struct{}{}
		}()
	} else {
		wait = watchEvery
	}
	if s.Agent != nil {
		go func() {
			_, _ = b.agent.Status(ctx, &s.Agent.Change)
			news <- struct{}{}
		}()
	} else {
		wait = watchEvery
	}
	select {
	case <-ctx.Done():
	case <-news:
	case <-b.clock.After(wait):
	}
}

// fingerprint is what of a view does not change by time passing alone.
func fingerprint(v status.View) string {
	v.At, v.Summary, v.Details, v.NotFine = time.Time{}, "", nil, nil
	v.DeviceCycles, v.GitCycles, v.Device.SecondsAgo, v.Device.Readings = 0, 0, 0, nil
	v.Git.LastFetch, v.Git.NextInSeconds, v.Git.Running, v.Git.Times = time.Time{}, 0, false, 0
	v.Conditions = slices.Clone(v.Conditions)
	for i := range v.Conditions {
		v.Conditions[i].Message, v.Conditions[i].Since = "", time.Time{}
	}
	v.Checks = slices.Clone(v.Checks)
	for i := range v.Checks {
		v.Checks[i].SinceSeconds, v.Checks[i].Message = 0, ""
	}
	if t := v.Trial; t != nil {
		c := *t
		c.EndsInSeconds = 0
		v.Trial = &c
	}
	if d := v.Decision; d != nil {
		c := *d
		c.Reason, c.WaitSeconds = "", 0
		if a := d.Awaiting; a != nil {
			left := *a
			left.AheadInSeconds = 0
			c.Awaiting = &left
		}
		v.Decision = &c
	}
	if s := v.Suspended; s != nil {
		c := *s
		c.SecondsLeft = 0
		v.Suspended = &c
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func showStatus(p printer, b *board, v status.View) error {
	headline := green
	switch {
	case !v.Fine:
		headline = red
	case v.Phase != api.PhaseIdle || v.Decision != nil && len(v.Decision.Held) > 0:
		headline = yellow
	}
	p.line("%s", p.paint(headline, v.Summary))
	for _, d := range v.Details {
		sign := painted("·")
		if slices.Contains(v.NotFine, d) {
			sign = p.paint(red, "!")
		}
		p.item("  "+sign, d)
	}
	p.line("")
	if v.Effective.Fields != nil { // else there is nothing to compare with
		showFields(p, b, v)
		p.line("")
	}

	row := func(name, format string, args ...any) []cell {
		return []cell{{name, faint}, {text: fmt.Sprintf(format, args...)}}
	}
	var rows [][]cell
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
		if len(d.Held) > 0 {
			text += ", held: " + strings.Join(heldNames(d.Held), ", ")
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
		text := fmt.Sprintf("%s, %s, content %s, %s", l.Kind, shortRevision(l.Revision), shortDigest(l.Digest), status.Wall(l.At))
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

// showFields writes one line per field: what is declared, what is to be, what is, and what is odd about it.
func showFields(p printer, b *board, v status.View) {
	head := []cell{{"", faint}, {"declared", faint}, {"effective", faint}, {"device", faint}}
	rows := [][]cell{head}
	names := status.FieldNames(b.profile, v.Effective.Fields)
	for _, name := range names {
		declared := "-"
		if v.Declared != nil {
			declared = v.Declared.Fields[name]
		}
		got, ok := v.Device.Observed[name]
		if !ok {
			got = "?"
		}
		var notes []string
		paintDeclared, paintGot := plain, plain
		if v.Decision != nil {
			for _, h := range v.Decision.Held {
				if h.Field == name {
					notes = append(notes, fmt.Sprintf("held by mark %d", h.Mark))
					paintDeclared = yellow
				}
			}
		}
		if v.Trial != nil && slices.Contains(v.Trial.Changed, name) {
			notes = append(notes, "on trial")
		}
		for _, d := range v.Device.Drift {
			if d.Field == name {
				paintGot = red
				notes = append(notes, "drifted")
			}
		}
		if msg, ok := v.Device.Refused[name]; ok {
			notes = append(notes, "refused: "+msg)
		}
		if slices.Contains(v.Device.NonConvergent, name) {
			notes = append(notes, "does not converge")
		}
		if slices.Contains(v.Device.Contended, name) {
			notes = append(notes, "contended")
		}
		rows = append(rows, []cell{{text: name}, {declared, paintDeclared}, {v.Effective.Fields[name], bold}, {got, paintGot}, {strings.Join(notes, "; "), yellow}})
	}
	if img := v.Effective.Image; img != nil || v.Declared != nil && v.Declared.Image != nil {
		rows = append(rows, []cell{{text: bootslot.ImageField}, {text: imageText(declaredImage(v))}, {imageText(img), bold}})
	}
	p.table("  ", rows)
}

func heldNames(held []bootslot.HeldField) []string {
	var names []string
	for _, h := range held {
		names = append(names, h.Field)
	}
	return names
}

func declaredImage(v status.View) *bootslot.Image {
	if v.Declared == nil {
		return nil
	}
	return v.Declared.Image
}

func imageText(i *bootslot.Image) string {
	if i == nil {
		return "-"
	}
	return i.Version
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
