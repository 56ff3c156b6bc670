package device

import "slices"

// Drift is one field in which the observed state differs from what the device is to be.
type Drift struct {
	Field string `json:"field"`
	// Want is the canonical value that is to be; Got what the device reports, as it spells it, "" if it reports none.
	Want string `json:"want"`
	Got  string `json:"got"`
}

// Diff compares what is to be with what the device reports, in the profile's order. A reported value is resolved
// through the profile's synonyms first; one that the profile does not know, and a missing actuator, are drift. Actuators that
// the profile does not know are no drift (see Unknown), and a field that want does not name is not compared: no
// value is to be there, so none can be wrong.
func Diff(p Profile, want Fields, observed map[string]string) []Drift {
	var out []Drift
	for _, a := range p.Actuators {
		w, ok := want[a.Name]
		if !ok {
			continue
		}
		got, reported := observed[a.Name]
		if !reported || !same(a, w, got) {
			out = append(out, Drift{Field: a.Name, Want: w, Got: got})
		}
	}
	return out
}

// same reports whether got is a spelling of want. Two values that the profile does not know are the same
// only letter by letter: a release made for a newer profile then still converges on a device that understands it.
func same(a Actuator, want, got string) bool {
	if got == want {
		return true
	}
	g, known := a.Canonical(got)
	if !known {
		return false
	}
	w, known := a.Canonical(want)
	return known && g == w
}

// Unknown lists, sorted, the reported actuators that the profile does not know: shown and left alone.
func Unknown(p Profile, observed map[string]string) []string {
	var out []string
	for name := range observed {
		known := slices.ContainsFunc(p.Actuators, func(a Actuator) bool { return a.Name == name })
		if !known {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
