package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/agent/status"
)

func newStatus(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Say how it stands",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := where.open()
			v := status.Build(b.sources(cmd.Context()))
			if asJSON {
				out, err := json.MarshalIndent(v, "", "  ")
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s\n", out)
			} else {
				fmt.Fprintln(cmd.OutOrStdout(), v.Summary)
			}
			if !v.Fine {
				return errNotFine
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the whole view as JSON")
	return c
}
