package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/ledger"
	"holdfast/device/clock"
)

func newHistory(where *place) *cobra.Command {
	var asJSON bool
	var last int
	var f filter
	c := &cobra.Command{
		Use:   "history",
		Short: "Show what happened here: trials, verdicts, rollbacks, and who did what",
		Long: `Show the events of the ledger, oldest first. The order is that in which they happened; the times are
this board's wall clock, which may have been wrong. The ledger keeps the last 10,000 events.

--kind, --field and --revision may be given more than once, and then one of each is enough. A
revision is known by its first digits, 4 at least; a content's digest will do as well. --since is a
length of time before now (90m, 36h, 7d) or a day or time (2026-05-01, "2026-05-01 06:00"). An event
from a time when the clock was not set counts as of the time of the one before it.

With --json: a list of events, each with seq, generation, at, kind, and as they apply revision,
digest, declared, slot, fields, check, mark, attempt, message, who, count.

Exit code 0: they are shown, be they none. 1: the history cannot be read.`,
		Example: `  holdfast history --last 50
  holdfast history --kind failed --field lamp
  holdfast history --since 7d --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := where.open()
			if err := f.resolve(b.clock.Now()); err != nil {
				return err
			}
			wanted := last
			if !cmd.Flags().Changed("last") && !asJSON && f.empty() {
				wanted = 20
			}
			ask := wanted
			if !f.empty() {
				ask = 0
			}
			events, note, err := b.history(cmd.Context(), ask)
			if err != nil {
				return err
			}
			events = f.apply(events, wanted)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), events)
			}
			p := newPrinter(cmd.OutOrStdout())
			switch {
			case len(events) > 0:
			case f.empty():
				p.line("Nothing has happened yet.")
			default:
				p.line("No event is like that.")
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
	jsonFlag(c, &asJSON)
	c.Flags().Var((*count)(&last), "last", "print the `N` newest ones, 0 for all (default 20, all with --json or when others are left out)")
	c.Flags().Var((*kinds)(&f.kinds), "kind", "only events of this `KIND`: "+strings.Join(kindNames(), ", "))
	c.Flags().StringArrayVar(&f.fields, "field", nil, "only events about this `FIELD`")
	c.Flags().StringArrayVar(&f.revisions, "revision", nil, "only events about this `REVISION`, or content")
	c.Flags().Var(&f.since, "since", "only events since this `TIME`")
	completeFlag(c, where, "kind", func(known) []string { return kindNames() })
	completeFlag(c, where, "field", func(k known) []string { return k.fields })
	completeFlag(c, where, "revision", func(k known) []string { return k.revisions })
	return c
}

// filter says which events are wanted. Its zero value wants all.
type filter struct {
	kinds             []string
	fields, revisions []string
	since             since
}

func (f filter) empty() bool {
	return len(f.kinds) == 0 && len(f.fields) == 0 && len(f.revisions) == 0 && !f.since.given
}

// resolve makes a time of a length of time before now.
func (f *filter) resolve(now time.Time) error {
	for _, r := range f.revisions {
		if len(r) < 4 {
			return misuse{fmt.Errorf("--revision %q: give 4 digits at least", r)}
		}
	}
	if f.since.before > 0 {
		if !clock.Believable(now) {
			return fmt.Errorf("this board's clock was not set (it says %s), so nothing is known of how long ago anything was; give a time, or use --last", now.Local().Format(time.DateTime))
		}
		f.since.at = now.Add(-f.since.before)
	}
	return nil
}

// apply returns the events that are wanted, the last n of them; all with 0.
func (f filter) apply(events []bootslot.Event, n int) []bootslot.Event {
	out := []bootslot.Event{}
	recent := !f.since.given
	for _, e := range events {
		if f.since.given && clock.Believable(e.At) {
			recent = !e.At.Before(f.since.at)
		}
		if recent && f.wants(e) {
			out = append(out, e)
		}
	}
	if n > 0 && len(out) > n {
		out = out[len(out)-n:]
	}
	return out
}

func (f filter) wants(e bootslot.Event) bool {
	one := func(wanted []string, is func(string) bool) bool {
		return len(wanted) == 0 || slices.ContainsFunc(wanted, is)
	}
	return one(f.kinds, func(k string) bool { return k == string(e.Kind) }) &&
		one(f.fields, func(name string) bool {
			return slices.Contains(e.Fields, name) || e.Check == bootslot.ConvergedCheck(name)
		}) &&
		one(f.revisions, func(r string) bool {
			return strings.HasPrefix(e.Revision, r) || strings.HasPrefix(string(e.Digest), r) || strings.HasPrefix(string(e.Declared), r)
		})
}

func kindNames() []string {
	var names []string
	for _, k := range eventKinds {
		names = append(names, string(k))
	}
	return names
}

// historyTime is how long ten thousand events may take a small board.
const historyTime = 20 * time.Second

// history asks the guard, or reads its file when it is dead. note says where it is from, if not from the guard.
func (b *board) history(ctx context.Context, last int) (events []bootslot.Event, note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, historyTime) // of all pages; each has a limit of its own
	defer cancel()
	events, gerr := b.guard.History(ctx, last)
	if gerr == nil {
		return events, "", nil
	}
	state, words := whether(gerr, b.config.GuardLock())
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
	switch {
	case e.Check == "" && e.Message == "":
	case e.Check != "" && strings.HasPrefix(e.Message, e.Check+" "): // it names the check itself: "battery holds on last-known-good"
		say("%s", e.Message)
	default:
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
