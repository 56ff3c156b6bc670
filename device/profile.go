package device

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"holdfast/device/strictyaml"
	"holdfast/image/fallback"
)

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

// Reserved are the keys of the declared file that are no actuators, and so cannot be the name of one.
var Reserved = []string{"image", "retry"}

// LoadProfile reads the profile and the fallback that are in force on this board: the embedded ones, or the files
// profile.yaml and fallback.yaml in dir (fallback.Dir on a board; "" for none) in their place, each on its own. The
// profile can always be used: with an override that is broken, or does not fit the other file, comes the
// best that is valid, the error for the log, and never a board that does not start.
func LoadProfile(dir string) (Profile, error) {
	var ownProfile, ownValues *fallback.File
	var err error
	if dir != "" {
		ownProfile, ownValues, err = fallback.Override(dir)
	}
	try := func(p, v *fallback.File) (Profile, error) {
		if p == nil {
			p = new(fallback.Profile())
		}
		if v == nil {
			v = new(fallback.Values())
		}
		return ParseProfile(p.Name, p.Data, v.Name, v.Data)
	}
	p, perr := try(ownProfile, ownValues)
	if perr == nil {
		return p, err
	}
	err = errors.Join(err, perr)
	// Two own files: one of them may be good, and each was put there for a reason.
	if ownProfile != nil && ownValues != nil {
		if p, perr = try(ownProfile, nil); perr == nil {
			return p, fmt.Errorf("using the embedded fallback, because of:\n%w", err)
		}
		if p, perr = try(nil, ownValues); perr == nil {
			return p, fmt.Errorf("using the embedded profile, because of:\n%w", err)
		}
	}
	if p, perr = try(nil, nil); perr != nil {
		panic("device: the embedded profile is broken: " + perr.Error()) // a test reads the same bytes
	}
	return p, fmt.Errorf("using the embedded profile and fallback, because of:\n%w", err)
}

var (
	namePattern  = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	valuePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)
)

const nameAllowed = "a name of a-z, 0-9 and - that starts with a letter"

func isName(s string) bool  { return namePattern.MatchString(s) }
func isValue(s string) bool { return valuePattern.MatchString(s) && s != "null" }

// IsURL reports whether s is a URL of http or https with a host, and without user, password, query or fragment.
func IsURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.Opaque == "" &&
		u.User == nil && u.RawQuery == "" && !u.ForceQuery && !strings.Contains(s, "#")
}

// ParseProfile reads a profile and its fallback, strictly: all errors come together, each with file, line and column.
func ParseProfile(profileName string, profile []byte, fallbackName string, fallbackData []byte) (Profile, error) {
	root := strictyaml.Parse(profileName, profile, fallback.Limit)
	p := Profile{
		Name:    root.Required("name").Text("", nameAllowed, isName),
		Address: root.Required("address").Text("", "the device's URL, such as http://127.0.0.1:8080", IsURL),
	}
	actuators := root.Required("actuators")
	list := actuators.List("a list of actuators, such as {name: pump, values: [on, off]}")
	for _, v := range list {
		p.Actuators = append(p.Actuators, parseActuator(v.Map(), p))
	}
	if actuators.Present() && len(list) == 0 {
		actuators.Errorf("no actuators, must be at least one")
	}
	for _, v := range root.Optional("readings").List("a list of readings, such as {name: temperature, unit: °C}") {
		m := v.Map()
		name := m.Required("name")
		r := Reading{
			Name: name.Text("", nameAllowed, isName),
			Unit: m.Required("unit").Text("", "a unit, such as lux", func(s string) bool { return s != "" && s == printable(s) }),
		}
		if r.Name != "" && p.HasReading(r.Name) {
			name.Errorf("duplicate reading %q, must be there once", r.Name)
		}
		p.Readings = append(p.Readings, r)
	}
	for _, v := range root.Optional("groups").List("a list of groups, such as {name: air, fields: [vent, fan]}") {
		p.Groups = append(p.Groups, parseGroup(v.Map(), p))
	}
	if err := root.Err(); err != nil {
		return Profile{}, err // without it the fallback cannot be judged
	}

	root = strictyaml.Parse(fallbackName, fallbackData, fallback.Limit)
	p.Fallback = p.ParseFields(root)
	if err := root.Err(); err != nil {
		return Profile{}, err
	}
	return p, nil
}

func parseActuator(m *strictyaml.Map, p Profile) Actuator {
	name, values := m.Required("name"), m.Required("values")
	a := Actuator{
		Name:    name.Text("", nameAllowed, isName),
		Allowed: values.Texts("values of a-z, 0-9, . and -", isValue),
	}
	switch _, there := p.Actuator(a.Name); {
	case a.Name == "": // complained about by now
	case there:
		name.Errorf("duplicate actuator %q, must be there once", a.Name)
	case slices.Contains(Reserved, a.Name):
		name.Errorf("found the reserved name %q, must be another than %s", a.Name, strings.Join(Reserved, ", "))
	}
	if values.Present() && len(a.Allowed) == 0 {
		values.Errorf("no values, must be at least one")
	}
	for i, v := range a.Allowed {
		if v != "" && slices.Contains(a.Allowed[:i], v) {
			values.Errorf("found %s again, must be there once", v)
		}
	}
	synonyms := m.Optional("synonyms")
	if !synonyms.Present() {
		return a
	}
	sm := synonyms.Map()
	a.Synonyms = map[string]string{}
	for _, word := range sm.Keys() {
		to := sm.Optional(word)
		a.Synonyms[word] = to.OneOf("", a.Allowed...)
		if !isValue(word) {
			to.Errorf("found the synonym %q, must be of a-z, 0-9, . and -", word)
		} else if slices.Contains(a.Allowed, word) {
			to.Errorf("found %q as a synonym, must be another word than the values", word)
		}
	}
	return a
}

func parseGroup(m *strictyaml.Map, p Profile) Group {
	name, fields := m.Required("name"), m.Required("fields")
	g := Group{
		Name: name.Text("", nameAllowed, isName),
		Fields: fields.Texts("actuators of this profile", func(s string) bool {
			_, ok := p.Actuator(s)
			return ok
		}),
	}
	if fields.Present() && len(g.Fields) < 2 {
		fields.Errorf("found %d actuators, must be at least two", len(g.Fields))
	}
	for _, other := range p.Groups {
		if other.Name == g.Name && g.Name != "" {
			name.Errorf("duplicate group %q, must be there once", g.Name)
		}
	}
	for i, f := range g.Fields {
		if f != "" && (slices.Contains(g.Fields[:i], f) || len(p.Group(f)) > 1) {
			fields.Errorf("found %s again, must be in one group only, and there once", f)
		}
	}
	return g
}

// ParseFields reads one value for every actuator from a mapping: the fallback's, or that of a declared state. It
// asks for nothing else, so that other keys are unknown unless the caller asks for them.
func (p Profile) ParseFields(m *strictyaml.Map) Fields {
	f := Fields{}
	for _, a := range p.Actuators {
		f[a.Name] = strictyaml.Read(m.Required(a.Name), "", a.Describe(), a.fromYAML)
	}
	return f
}

// Describe says what a may be set to, such as "open or closed (on means open, off means closed)".
func (a Actuator) Describe() string {
	text := strings.Join(a.Allowed, " or ")
	var also []string
	for _, v := range a.Allowed {
		for _, s := range a.synonymsOf(v) {
			also = append(also, s+" means "+v)
		}
	}
	if also != nil {
		text += " (" + strings.Join(also, ", ") + ")"
	}
	return text
}

func (a Actuator) synonymsOf(value string) []string {
	var out []string
	for s, v := range a.Synonyms {
		if v == value {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// fromYAML returns the allowed value for what a person wrote: the value or a synonym as it is spelled, quoted or
// not; and without quotes the words that YAML takes for booleans, in any case, as far as they mean something here.
func (a Actuator) fromYAML(s strictyaml.Scalar) (string, bool) {
	if v, ok := a.Canonical(s.Text); ok || !s.Plain {
		return v, ok
	}
	switch word := strings.ToLower(s.Text); word {
	case "on", "off":
		return a.Canonical(word)
	case "yes", "true":
		return "on", slices.Contains(a.Allowed, "on") && slices.Contains(a.Allowed, "off")
	case "no", "false":
		return "off", slices.Contains(a.Allowed, "on") && slices.Contains(a.Allowed, "off")
	}
	return "", false
}

// Actuator returns the actuator of that name.
func (p Profile) Actuator(name string) (Actuator, bool) {
	for _, a := range p.Actuators {
		if a.Name == name {
			return a, true
		}
	}
	return Actuator{}, false
}

// Canonical returns the allowed value that v stands for: itself or what its synonym says.
func (a Actuator) Canonical(v string) (string, bool) {
	if slices.Contains(a.Allowed, v) {
		return v, true
	}
	w, ok := a.Synonyms[v]
	return w, ok
}

// Group returns the fields that are held together with field, field included: just itself if it is in no group.
func (p Profile) Group(field string) []string {
	for _, g := range p.Groups {
		if slices.Contains(g.Fields, field) {
			return slices.Clone(g.Fields)
		}
	}
	return []string{field}
}

// HasReading reports whether the device has a sensor of that name.
func (p Profile) HasReading(name string) bool {
	return slices.ContainsFunc(p.Readings, func(r Reading) bool { return r.Name == name })
}
