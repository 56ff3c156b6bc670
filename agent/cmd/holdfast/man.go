package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan writes the manual pages: one for holdfast and one for each verb, of the text that --help shows. It is for the build, and not shown.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write the manual pages",
		Long:    "Write the manual pages into FOLDER, one for each verb, of the text that --help shows.",
		Example: "  holdfast man dist/man",
		Hidden:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("say which folder")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.InitDefaultHelpCmd()
			pages := []*cobra.Command{root}
			for _, c := range root.Commands() {
				if c.Runnable() && !c.Hidden && c.Name() != "help" {
					pages = append(pages, c)
				}
			}
			for _, c := range pages {
				if err := os.WriteFile(filepath.Join(args[0], pageName(c)+".1"), []byte(manPage(c)), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is c's help in man's language (man(7), groff_man(7)).
func manPage(c *cobra.Command) string {
	var b strings.Builder
	section := func(name string) {
		if strings.Contains(name, " ") {
			name = `"` + name + `"`
		}
		fmt.Fprintf(&b, ".SH %s\n", name)
	}
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"holdfast %s\" \"Holdfast\"\n", strings.ToUpper(pageName(c)), roff(versionText()))
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(pageName(c)), roff(c.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".B %s\n%s\n", roff(c.CommandPath()), roff(strings.TrimSpace(strings.TrimPrefix(c.UseLine(), c.CommandPath()))))
	section("DESCRIPTION")
	long, exit, _ := strings.Cut(c.Long, "Exit code")
	paragraphs(&b, long)
	if c.HasFlags() || c.HasInheritedFlags() {
		section("OPTIONS")
		seen := map[string]bool{}
		for _, set := range []*pflag.FlagSet{c.NonInheritedFlags(), c.InheritedFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				if f.Hidden || seen[f.Name] {
					return
				}
				seen[f.Name] = true
				name, usage := pflag.UnquoteUsage(f)
				b.WriteString(".TP\n.B ")
				if f.Shorthand != "" {
					fmt.Fprintf(&b, "\\-%s, ", f.Shorthand)
				}
				fmt.Fprintf(&b, "%s", roff("--"+f.Name))
				if name != "" {
					fmt.Fprintf(&b, " \\fI%s\\fP", roff(name))
				}
				fmt.Fprintf(&b, "\n%s\n", roff(usage))
			})
		}
	}
	if exit != "" {
		section("EXIT STATUS")
		paragraphs(&b, "Exit code"+exit)
	}
	if c.Example != "" {
		section("EXAMPLES")
		b.WriteString(".nf\n")
		for l := range strings.Lines(c.Example) {
			b.WriteString(roff(strings.TrimRight(l, "\n")) + "\n")
		}
		b.WriteString(".fi\n")
	}
	section("SEE ALSO")
	var see []string
	if c.HasParent() {
		see = append(see, "holdfast(1)")
	} else {
		for _, sub := range c.Commands() {
			if sub.Runnable() && !sub.Hidden && sub.Name() != "help" {
				see = append(see, pageName(sub)+"(1)")
			}
		}
	}
	fmt.Fprintln(&b, roff(strings.Join(see, ", ")))
	return b.String()
}

// paragraphs writes text, whose paragraphs have empty lines between them. A line that is indented stands by itself.
func paragraphs(b *strings.Builder, text string) {
	for i, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		for l := range strings.Lines(p) {
			l = strings.TrimRight(l, "\n")
			if strings.HasPrefix(l, " ") {
				b.WriteString(".br\n")
			}
			b.WriteString(roff(strings.TrimSpace(l)) + "\n")
		}
	}
}

// roff escapes one line of text.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "°", `\(de`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
