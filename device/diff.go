package device

// Drift is one field in which the observed state differs from what the device is to be.
type Drift struct {
	Field string `json:"field"`
	// Want is the canonical value that is to be; Got what the device reports, as it spells it, "" if it reports none.
	Want string `json:"want"`
	Got  string `json:"got"`
}

// Diff compares what is to be with what the device reports, in the profile's order. A reported value is resolved
// through the profile's synonyms first; one that the profile does not know, and a missing actuator, are drift. Actuators that
// the profile does not know are no drift (see Unknown).
func Diff(p Profile, want Fields, observed map[string]string) []Drift { return nil }

// Unknown lists, sorted, the reported actuators that the profile does not know: shown and left alone.
func Unknown(p Profile, observed map[string]string) []string { return nil }
