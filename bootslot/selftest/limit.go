package selftest

import (
	"fmt"
	"strings"

	"holdfast/bootslot/config"
)

// limitOf says to people what makes c hold.
func limitOf(c config.Check, units map[string]string) string {
	switch {
	case c.Reading != "":
		return between(c.Min, c.Max, units[c.Reading])
	case c.HTTP != "":
		return "2xx from " + c.HTTP
	case len(c.Command) > 0:
		return "exit status 0 of " + strings.Join(c.Command, " ")
	case c.Unit != "":
		return c.Unit + " is active"
	case c.FreeDisk != "":
		return fmt.Sprintf("%s free on %s", mebibytes(c.MinFree), c.FreeDisk)
	}
	return ""
}

// between is the limits of a reading; "" if it has none.
func between(lowest, highest *float64, unit string) string {
	text := ""
	switch {
	case lowest != nil && highest != nil:
		text = number(*lowest) + " to " + number(*highest)
	case lowest != nil:
		text = "at least " + number(*lowest)
	case highest != nil:
		text = "at most " + number(*highest)
	default:
		return ""
	}
	if unit != "" {
		text += " " + unit
	}
	return text
}
