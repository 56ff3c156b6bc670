package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"holdfast/bootslot/api"
)

func newSuspend(where *place) *cobra.Command {
	var forTime length
	var repair, asJSON, yes bool
	c := &cobra.Command{
		Use:   "suspend --for DURATION",
		Short: "Try nothing new for a while; with --repair, leave the device alone altogether",
		Long: `Refuse new trials for a while, and cancel a running one. Drift is repaired all the same, unless --repair
stops that, too: then nobody writes to the device once it has read back last-known-good for 5 seconds.

It ends when the time is over, with 'holdfast resume', or with a reboot.

With --repair on a terminal it asks first, unless --yes is given: whatever moves the device then,
nobody puts it back.

With --json: secondsLeft, until (wall clock), repair (true if that is stopped, too).

Exit code 0: it is suspended. 1: nothing was changed.`,
		Example: `  holdfast suspend --for 2h
  holdfast suspend --for 30m --repair   # somebody works on the greenhouse`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := time.Duration(forTime)
			if d <= 0 {
				return misuse{errors.New("say for how long: --for 2h")}
			}
			ctx := cmd.Context()
			b := where.open()
			b.warn(newPrinter(cmd.ErrOrStderr()))
			if repair && !asJSON && !yes {
				newPrinter(cmd.OutOrStdout()).line("For %s nobody will write to the device: no change is tried, and whatever moves it, nobody puts it back.", d)
				if !confirmed(cmd) {
					return nil
				}
			}
			s, err := b.guard.Suspend(ctx, api.SuspendRequest{ForSeconds: d.Seconds(), Repair: repair})
			if err != nil {
				return b.told(err)
			}
			b.poke(ctx)
			left := time.Duration(s.UntilUptimeSeconds*float64(time.Second)) - b.clock.Uptime()
			end := b.clock.Now().Add(left)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), suspended{left.Seconds(), end, repair})
			}
			p := newPrinter(cmd.OutOrStdout())
			until := end.Local().Format(time.DateTime)
			if repair {
				p.line("Suspended for %s, until %s: no trials, and no repair once the device has read back last-known-good for 5 s.", left.Round(time.Second), until)
			} else {
				p.line("Suspended for %s, until %s: no trials. Drift is still repaired; --repair would stop that, too.", left.Round(time.Second), until)
			}
			p.line("It ends then, with 'holdfast resume', or with a reboot.")
			return nil
		},
	}
	c.Flags().Var(&forTime, "for", "for how long, a `DURATION` such as 2h or 30m (required)")
	c.Flags().BoolVar(&repair, "repair", false, "stop the repair of drift, too")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	jsonFlag(c, &asJSON)
	return c
}

// suspended is what `holdfast suspend --json` says.
type suspended struct {
	SecondsLeft float64   `json:"secondsLeft"`
	Until       time.Time `json:"until"` // wall clock
	Repair      bool      `json:"repair"`
}
