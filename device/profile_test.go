package device

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holdfast/image/fallback"
)

func TestShippedProfile(t *testing.T) {
	p, err := LoadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	onOff := []string{"on", "off"}
	want := Profile{
		Name:    "greenhouse",
		Address: "http://127.0.0.1:8080",
		Actuators: []Actuator{
			{Name: "vent", Allowed: onOff},
			{Name: "door", Allowed: []string{"open", "closed"}, Synonyms: map[string]string{"on": "open", "off": "closed"}},
			{Name: "fan", Allowed: onOff},
			{Name: "lamp", Allowed: onOff},
			{Name: "pump", Allowed: onOff},
		},
		Readings: []Reading{{"temperature", "°C"}, {"moisture", "%"}, {"light", "lux"}},
		Fallback: Fields{"vent": "on", "door": "closed", "fan": "off", "lamp": "off", "pump": "off"},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("LoadProfile gives\n%+v\nwant\n%+v", p, want)
	}
}

// Every value of the fallback says why it is safe: one more without a comment above it fails.
func TestShippedFallbackIsExplained(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(string(fallback.Values().Data)), "\n")
	for i, l := range lines {
		if l != "" && !strings.HasPrefix(l, "#") && !strings.HasPrefix(lines[i-1], "# ") {
			t.Errorf("%s:%d: %q has no comment above it", fallback.Values().Name, i+1, l)
		}
	}
}

const (
	goodProfile = `name: x
address: http://10.0.0.1
actuators:
- {name: a, values: [on, off]}
- {name: b, values: [low, high], synonyms: {min: low}}
- {name: c, values: ["1", "2"]}
groups: [{name: g, fields: [c, a]}]
`
	goodFallback = "a: on\nb: min\nc: 2\n"
)

func TestGroupsAndSynonyms(t *testing.T) {
	p, err := ParseProfile("p", []byte(goodProfile), "f", []byte(goodFallback))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Fields{"a": "on", "b": "low", "c": "2"}); !p.Fallback.Equal(want) {
		t.Errorf("Fallback = %v, want %v", p.Fallback, want)
	}
	for field, want := range map[string][]string{"a": {"c", "a"}, "c": {"c", "a"}, "b": {"b"}, "image": {"image"}} {
		if got := p.Group(field); !slices.Equal(got, want) {
			t.Errorf("Group(%s) = %v, want %v", field, got, want)
		}
	}
	b, _ := p.Actuator("b")
	for word, want := range map[string]string{"low": "low", "min": "low", "high": "high", "max": "", "": "", "Low": ""} {
		if got, ok := b.Canonical(word); got != want || ok != (want != "") {
			t.Errorf("Canonical(%q) = %q, %v, want %q", word, got, ok, want)
		}
	}
	if _, ok := p.Actuator("d"); ok {
		t.Error("Actuator(d) is there")
	}
}

func TestProfileErrors(t *testing.T) {
	for _, tt := range []struct {
		name, old, new string // what is replaced in the good files
		want           string // all of the error
	}{
		{"reserved name", "name: a,", "name: retry,", `p:4:10: actuators[0].name: found the reserved name "retry", must be another than image, retry
p:7:32: groups[0].fields[1]: found "a", must be actuators of this profile`},
		{"the image", "name: b,", "name: image,", `p:5:10: actuators[1].name: found the reserved name "image", must be another than image, retry`},
		{"name twice", "name: b,", "name: a,", `p:5:10: actuators[1].name: duplicate actuator "a", must be there once`},
		{"bad name", "name: b,", "name: B,", `p:5:10: actuators[1].name: found "B", must be a name of a-z, 0-9 and - that starts with a letter`},
		{"no values", "[on, off]", "[]", "p:4:21: actuators[0].values: no values, must be at least one"},
		{"value twice", "[on, off]", "[on, off, on]", "p:4:21: actuators[0].values: found on again, must be there once"},
		{"synonym of nothing", "min: low", "min: lo", `p:5:50: actuators[1].synonyms.min: found "lo", must be one of low, high`},
		{"synonym that is a value", "min: low", "high: low", `p:5:51: actuators[1].synonyms.high: found "high" as a synonym, must be another word than the values`},
		{"group of one", "[c, a]", "[c]", "p:7:28: groups[0].fields: found 1 actuators, must be at least two"},
		{"group with one twice", "[c, a]", "[c, c]", "p:7:28: groups[0].fields: found c again, must be in one group only, and there once"},
		{"two groups of one name", "[c, a]}", "[c, a]}, {name: g, fields: [b, a]}", `p:7:44: groups[1].name: duplicate group "g", must be there once
p:7:55: groups[1].fields: found a again, must be in one group only, and there once`},
		{"two bad names of groups", "g, fields: [c, a]}", "G, fields: [c, a]}, {name: H, fields: [c, b]}", `p:7:17: groups[0].name: found "G", must be a name of a-z, 0-9 and - that starts with a letter
p:7:44: groups[1].name: found "H", must be a name of a-z, 0-9 and - that starts with a letter
p:7:55: groups[1].fields: found c again, must be in one group only, and there once`},
		{"reading twice", "groups:", "readings: [{name: r, unit: V}, {name: r, unit: A}]\ngroups:", `p:7:39: readings[1].name: duplicate reading "r", must be there once`},
		{"reading without a unit", "groups:", "readings: [{name: r}]\ngroups:", "p:7:12: readings[0].unit: missing, must be a unit, such as lux"},
		{"two groups for one", "[c, a]}", "[c, a]}, {name: h, fields: [b, a]}", "p:7:55: groups[1].fields: found a again, must be in one group only, and there once"},
		{"no address", "address: http://10.0.0.1\n", "", "p:1:1: address: missing, must be the device's URL, such as http://127.0.0.1:8080"},
		{"address with a password", "http://10", "http://me:secret@10", `p:2:10: address: found "…@10.0.0.1", must be the device's URL, such as http://127.0.0.1:8080`},
		{"no actuators", goodProfile, "name: x\naddress: http://a\nactuators: []\n", "p:3:12: actuators: no actuators, must be at least one"},
		{"unknown key", "groups:", "group:", `p:7:1: unknown key "group" (did you mean "groups"?), must be one of name, address, actuators, readings, groups`},
		{"fallback without an actuator", "b: min\n", "", "f:1:1: b: missing, must be low or high (min means low)"},
		{"fallback with one too many", "a: on\n", "a: on\nd: on\n", `f:2:1: unknown key "d", must be one of a, b, c`},
		{"fallback with a wrong value", "c: 2", "c: 3", `f:3:4: c: found "3", must be 1 or 2`},
		{"empty fallback", goodFallback, "", "f:1:1: the file is empty or all comments, must be a mapping, such as key: value"},
	} {
		p := strings.Replace(goodProfile, tt.old, tt.new, 1)
		f := strings.Replace(goodFallback, tt.old, tt.new, 1)
		if p == goodProfile && f == goodFallback {
			t.Fatalf("%s: nothing is replaced", tt.name)
		}
		got, err := ParseProfile("p", []byte(p), "f", []byte(f))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: ParseProfile gives\n%v\nwant\n%s", tt.name, err, tt.want)
		}
		if !reflect.DeepEqual(got, Profile{}) {
			t.Errorf("%s: with the error comes a profile", tt.name)
		}
	}
}

func TestBoardsOwnProfile(t *testing.T) {
	const greenhouseValues = "{vent: off, door: off, fan: off, lamp: off, pump: off}"
	for _, tt := range []struct {
		name              string
		profile, fallback string // "" for no such file
		wantName          string
		wantFallback      Fields // nil: the embedded one
		wantError         string // part of it
	}{
		{"neither", "", "", "greenhouse", nil, ""},
		{"both", goodProfile, goodFallback, "x", Fields{"a": "on", "b": "low", "c": "2"}, ""},
		{"only values", "", greenhouseValues, "greenhouse", Fields{"vent": "off", "door": "closed", "fan": "off", "lamp": "off", "pump": "off"}, ""},
		{"broken profile", "name: [", "", "greenhouse", nil, "profile.yaml:1:1: not valid YAML"},
		{"broken values", "", "vent: maybe", "greenhouse", nil, `fallback.yaml:1:7: vent: found "maybe", must be on or off`},
		{"profile without its values", goodProfile, "", "greenhouse", nil, "a: missing"},
		{"broken profile, good values", "name: [", greenhouseValues, "greenhouse", Fields{"vent": "off", "door": "closed", "fan": "off", "lamp": "off", "pump": "off"}, "using the embedded profile"},
		{"broken profile, its values", "name: [", goodFallback, "greenhouse", nil, "using the embedded profile and fallback"},
		{"good profile, broken values", goodProfile, "a: [", "greenhouse", nil, "fallback.yaml:1:1"},
		{"huge", "#" + strings.Repeat("x", fallback.Limit), "", "greenhouse", nil, "profile.yaml:1:1: the file has more than the 65536 bytes"},
	} {
		dir := t.TempDir()
		for name, data := range map[string]string{"profile.yaml": tt.profile, "fallback.yaml": tt.fallback} {
			if data != "" {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		p, err := LoadProfile(dir)
		want := tt.wantFallback
		if want == nil {
			embedded, _ := LoadProfile("")
			want = embedded.Fallback
		}
		if p.Name != tt.wantName || !maps.Equal(p.Fallback, want) {
			t.Errorf("%s: LoadProfile gives %s with %v, want %s with %v", tt.name, p.Name, p.Fallback, tt.wantName, want)
		}
		if (err == nil) != (tt.wantError == "") || err != nil && !strings.Contains(err.Error(), tt.wantError) {
			t.Errorf("%s: LoadProfile gives the error %v, want %q", tt.name, err, tt.wantError)
		}
	}
}

// A file that is there and cannot be read is as bad as a broken one.
func TestUnreadableProfile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "profile.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if p, err := LoadProfile(dir); err == nil || p.Name != "greenhouse" {
		t.Errorf("LoadProfile gives %s and %v, want greenhouse and an error", p.Name, err)
	}
}

func TestIsURL(t *testing.T) {
	for s, want := range map[string]bool{
		"http://127.0.0.1:8080": true, "https://device.local/api": true, "http://[::1]:80": true,
		"": false, "127.0.0.1:8080": false, "ftp://x": false, "http://": false, "http://:80": false, "http:x": false,
		"http://me@x": false, "http://me:pw@x": false, "http://x?y": false, "http://x?": false, "http://x#y": false, "http://x#": false, "http://a b": false,
	} {
		if got := IsURL(s); got != want {
			t.Errorf("IsURL(%q) = %v, want %v", s, got, want)
		}
	}
}
