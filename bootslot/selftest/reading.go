package selftest

import (
	"fmt"
	"math"
	"strconv"

	"holdfast/bootslot/config"
	"holdfast/device"
)

const silent = "the device does not answer"

// value returns the reading that c names, or why there is none.
func value(c config.Check, st *device.State) (v float64, problem string) {
	if st == nil {
		return 0, silent
	}
	v, ok := st.Readings[c.Reading]
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) { // JSON has neither: neither could be stored
		return 0, "the device reports no " + c.Reading
	}
	return v, ""
}

// withinLimits measures a reading check's ordinary limits.
func withinLimits(c config.Check, st *device.State, unit string) outcome {
	v, problem := value(c, st)
	if problem != "" {
		return outcome{message: problem}
	}
	return compare(c.Reading, v, unit, "", c.Min, c.Max)
}

// fatalLimit measures a reading check's fatal limits. Only a reading beyond them is a failure: they convict at once, and a
// device or sensor that is silent must not. The ordinary check fails for that.
func fatalLimit(c config.Check, st *device.State, unit string) outcome {
	v, problem := value(c, st)
	if problem != "" {
		return outcome{ok: true, message: "not measured: " + problem}
	}
	return compare(c.Reading, v, unit, "the fatal limit ", c.FatalMin, c.FatalMax)
}

func compare(name string, v float64, unit, kind string, lowest, highest *float64) outcome {
	o := outcome{value: &v}
	switch {
	case highest != nil && v > *highest:
		o.message = fmt.Sprintf("%s %s is above %s%s", name, quantity(v, unit, highest), kind, number(*highest))
	case lowest != nil && v < *lowest:
		o.message = fmt.Sprintf("%s %s is below %s%s", name, quantity(v, unit, lowest), kind, number(*lowest))
	default:
		o.ok, o.message = true, name+" "+quantity(v, unit, nil)
	}
	return o
}

// quantity writes a reading for people: two decimals, unless that would make it look like the limit that it breaks.
func quantity(v float64, unit string, limit *float64) string {
	s := number(math.Round(v*100) / 100)
	if limit != nil && s == number(*limit) {
		s = number(v)
	}
	if unit != "" {
		s += " " + unit
	}
	return s
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
