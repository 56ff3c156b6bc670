package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// versions is what `holdfast version --json` says.
type versions struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"` // operating system and architecture
}

func thisVersion() versions {
	return versions{versionText(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}

func (v versions) String() string {
	return fmt.Sprintf("holdfast %s (%s, %s)", v.Version, v.Go, v.Platform)
}

func printVersion(cmd *cobra.Command) error {
	_, err := fmt.Fprintln(cmd.OutOrStdout(), thisVersion())
	return err
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version, which 'holdfast --version' does, too.\n\nWith --json: version, go, platform.\n\nExit code 0.",
		Example: "  holdfast version",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return printJSON(cmd.OutOrStdout(), thisVersion())
			}
			return printVersion(cmd)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
