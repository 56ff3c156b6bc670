package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// noArguments is for a verb that takes flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("'%s' takes no arguments, found %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// aVerb says what is there instead of a verb that is not.
func aVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("there is no verb %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(text)
}

// count is a flag that is a number from 0 on.
type count int

func (c *count) String() string { return strconv.Itoa(int(*c)) }
func (c *count) Type() string   { return "N" }
func (c *count) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return errors.New("must be a number, 0 or more")
	}
	*c = count(n)
	return nil
}

// length is a flag that is a length of time.
type length time.Duration

func (l *length) String() string {
	if *l == 0 {
		return "" // no default to show
	}
	return time.Duration(*l).String()
}
func (l *length) Type() string { return "DURATION" }
func (l *length) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return errors.New("must be a length of time with its unit, such as 30m or 2h")
	}
	*l = length(d)
	return nil
}

// kinds is a flag that may be given often, each time with the kind of an event.
type kinds []string

func (k *kinds) String() string { return strings.Join(*k, ",") }
func (k *kinds) Type() string   { return "KIND" }
func (k *kinds) Set(s string) error {
	if !slices.Contains(kindNames(), s) {
		return fmt.Errorf("must be one of %s", strings.Join(kindNames(), ", "))
	}
	*k = append(*k, s)
	return nil
}

// since is a flag that is a time, or a length of time before now.
type since struct {
	given  bool
	at     time.Time
	before time.Duration
}

func (s *since) String() string { return "" }
func (s *since) Type() string   { return "TIME" }
func (s *since) Set(text string) error {
	*s = since{given: true}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil && n > 0 {
			s.before = time.Duration(n) * 24 * time.Hour
			return nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		s.before = d
		return nil
	}
	for _, form := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			s.at = t
			return nil
		}
	}
	return errors.New(`must be a length of time before now, such as 90m, 36h or 7d, or a time, such as 2026-05-01 or "2026-05-01 06:00"`)
}
