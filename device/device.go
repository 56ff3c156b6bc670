// Package device is the contract with the hardware: what it reports, what may be written to it, and the
// one function that brings it from the one to the other.
//
// Declared and observed state have one shape, Fields, so that drift is a comparison key by key. A
// Profile (profile.go) says which actuators a kind of device has and in what order it is safe to move them. Client
// speaks HTTP/JSON (docs/design.md, "The device contract"). Driver (drive.go) is used by the agent
// and by the guard alike: both write only what has drifted, in the same order, and so cannot fight.
package device

import (
	"maps"
	"time"
)

// Fields maps an actuator's name to its canonical value, such as "door": "closed".
type Fields map[string]string

// Clone returns a copy that shares nothing with f.
func (f Fields) Clone() Fields { return maps.Clone(f) }

// Equal reports whether f and g have the same keys and values.
func (f Fields) Equal(g Fields) bool { return maps.Equal(f, g) }

// Contains reports whether f has every key of set with the same value. Every f contains an empty set.
func (f Fields) Contains(set Fields) bool {
	for k, v := range set {
		if w, ok := f[k]; !ok || w != v {
			return false
		}
	}
	return true
}

// State is what a device reports: the answer to GET /state.
type State struct {
	// ObservedAt is the device's own wall clock, RFC 3339; shown, never compared.
	ObservedAt time.Time `json:"observedAt"`
	// Readings are the sensors' values by name; units are the profile's (temperature °C, moisture %, light lux).
	Readings map[string]float64 `json:"readings"`
	// Actuators are all actuators, always, with the values as the device spells them.
	Actuators map[string]string `json:"actuators"`
}
