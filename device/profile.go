package device

import "errors"

// Profile names what a kind of device has: its actuators in the order in which it is safe to move them, their
// values, the groups of fields that only make sense together, and the fallback. It is baked into the image
// (image/fallback) and may be overridden by /usr/share/holdfast/profile.yaml.
type Profile struct {
	Name string
	// Address is the device's URL when no configuration was ever valid.
	Address string
	// Actuators, in safe order: writes go out in this order.
	Actuators []Actuator
	// Readings are the sensors that a check may name, with their unit.
	Readings []Reading
	Groups   []Group
	// Fallback is the configuration in force when no slot is good: one value for every actuator.
	Fallback Fields
}

// Actuator is one field of the declared state.
type Actuator struct {
	Name    string
	Allowed []string
	// Synonyms maps other spellings to an allowed value; resolved before digest and diff.
	Synonyms map[string]string
}

// Reading is a sensor's name and unit, such as temperature in °C.
type Reading struct{ Name, Unit string }

// Group is a set of actuators that are held together (docs/design.md, "Groups").
type Group struct {
	Name   string
	Fields []string
}

var errStub = errors.New("not written yet")

// ParseProfile reads a profile and its fallback, strictly: all errors come together, each with file, line and column.
func ParseProfile(profileName string, profile []byte, fallbackName string, fallback []byte) (Profile, error) {
	return Profile{}, errStub
}

// LoadProfile reads the profile and the fallback that are in force on this board (image/fallback, with its overrides).
func LoadProfile() (Profile, error) { return Profile{}, errStub }

// Actuator returns the actuator of that name.
func (p Profile) Actuator(name string) (Actuator, bool) { return Actuator{}, false }

// Canonical returns the allowed value that v stands for: itself or what its synonym says.
func (a Actuator) Canonical(v string) (string, bool) { return "", false }

// Group returns the fields that are held together with field, field included: just itself if it is in no group.
func (p Profile) Group(field string) []string { return []string{field} }
