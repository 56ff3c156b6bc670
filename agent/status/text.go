package status

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/device"
	"holdfast/device/clock"
)

// Wall is a wall-clock time as people read it on this board. The date is always there, for the board's clock may be wrong; where it certainly was,
// that is said.
func Wall(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case !clock.Believable(t):
		return t.Local().Format(time.DateTime) + " (the clock was not set)"
	}
	return t.Local().Format(time.DateTime)
}

// Ago is how long before now t was, roughly: "3h ago". "" if one of the two cannot be believed (a now that cannot is before a t that can): then nothing is
// known of what lies between them.
func Ago(now, t time.Time) string {
	if t.IsZero() || !clock.Believable(t) || now.Before(t) {
		return ""
	}
	return Rough(now.Sub(t)) + " ago"
}

// Rough is a length of time in its largest unit, or two of them if the first is small.
func Rough(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 10*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 2*day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d/day))
}

// FieldsText is a set of fields in one line, in the profile's order.
func FieldsText(p device.Profile, f device.Fields) string {
	var parts []string
	for _, name := range FieldNames(p, f) {
		parts = append(parts, name+"="+f[name])
	}
	return strings.Join(parts, " ")
}

// FieldNames are f's keys, the profile's actuators first and in their order.
func FieldNames(p device.Profile, f device.Fields) []string {
	var names []string
	for _, a := range p.Actuators {
		if _, ok := f[a.Name]; ok {
			names = append(names, a.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ReadingsText is the readings in one line with their units.
func ReadingsText(p device.Profile, r map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		unit := ""
		for _, k := range p.Readings {
			if k.Name == name {
				unit = " " + k.Unit
			}
		}
		v := strconv.FormatFloat(math.Round(r[name]*100)/100, 'f', -1, 64)
		parts = append(parts, name+" "+v+unit)
	}
	return strings.Join(parts, ", ")
}
