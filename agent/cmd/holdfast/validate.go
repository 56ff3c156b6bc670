package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"holdfast/agent/desired"
	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/device"
	"holdfast/device/strictyaml"
)

// checked is what `holdfast validate --json` says of one file.
type checked struct {
	File    string            `json:"file"`
	Valid   bool              `json:"valid"`
	Release *bootslot.Release `json:"release,omitempty"`
	Digest  bootslot.Digest   `json:"digest,omitempty"`
	Retry   uint64            `json:"retry,omitempty"`
	Errors  []problem         `json:"errors,omitempty"`
}

// problem is one error at its place.
type problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

func (p problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

func newValidate(where *place) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check declared files as the device would, for a repository's own CI",
		Long: `Check declared files by the rules of the device, and print every problem as FILE:LINE:COLUMN: what
is wrong. It asks nobody and needs no configuration: only the profile matters, the baked-in one or
that of --share. FILE - is standard input.

With --json: a list, each with file, valid, and as they apply release, digest, retry, errors (each with
file, line, column, message).

Exit code 0: all files are valid. 1: one is not.`,
		Example: `  holdfast validate greenhouse.yaml
  holdfast validate devices/*/greenhouse.yaml`,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return errors.New("say which files to check; - is standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			profile, err := device.LoadProfile(where.share)
			if err != nil {
				// What would be said of the files would be by other rules than the board's.
				return errors.New(status.Explain("the profile in "+where.share+" cannot be used", err))
			}
			all := []checked{}
			bad := false
			for _, f := range files {
				c := validate(f, cmd.InOrStdin(), profile)
				bad = bad || !c.Valid
				all = append(all, c)
			}
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), all); err != nil {
					return err
				}
			} else {
				p, e := newPrinter(cmd.OutOrStdout()), newPrinter(cmd.ErrOrStderr())
				p.ascii, e.ascii, p.width, e.width = false, false, 0, 0 // a file's name is to be found again as it is
				for _, c := range all {
					for _, err := range c.Errors {
						e.line("%s", err)
					}
					if c.Valid {
						text := status.FieldsText(profile, c.Release.Fields)
						if c.Release.Image != nil {
							text += " image=" + c.Release.Image.Version
						}
						if c.Retry > 0 {
							text += fmt.Sprintf(" (retry: %d)", c.Retry)
						}
						p.line("%s: valid, content %s: %s", c.File, c.Digest.Short(), text)
					}
				}
			}
			if bad {
				return errNotFine
			}
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func validate(file string, stdin io.Reader, p device.Profile) checked {
	var data []byte
	var err error
	if file == "-" {
		file = "standard input"
		data, err = io.ReadAll(io.LimitReader(stdin, desired.Limit+1))
	} else {
		data, err = strictyaml.ReadFile(file, desired.Limit)
	}
	if err != nil {
		text := err.Error()
		var pe *fs.PathError
		if errors.As(err, &pe) {
			text = fmt.Sprintf("cannot read it: %v", pe.Err)
		}
		return checked{File: file, Errors: []problem{{file, 1, 1, text}}}
	}
	d, err := desired.Parse(file, data, p)
	if err != nil {
		var es strictyaml.Errors
		if !errors.As(err, &es) {
			return checked{File: file, Errors: []problem{{file, 1, 1, err.Error()}}}
		}
		c := checked{File: file}
		for _, e := range es {
			c.Errors = append(c.Errors, problem{e.File, e.Line, e.Column, e.Msg})
		}
		return c
	}
	return checked{File: file, Valid: true, Release: &d.Release, Digest: d.Release.Digest(), Retry: d.Retry}
}
