package device

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"holdfast/device/strictyaml"
	"holdfast/image/fallback"
)

// FuzzProfile: a profile and its fallback are refused, each error with its place and fit for a terminal, or they are what the rest of Holdfast takes for granted:
// names that are words and there once, a value at least for each actuator, groups that share nothing, and a fallback that is valid under the profile, however it is
// spelled. And a board with such files has a profile.
func FuzzProfile(f *testing.F) {
	f.Add([]byte(goodProfile), []byte(goodFallback))
	for _, r := range [][2]string{ // each breaks one rule and no other
		{"fields: [c, a]", "fields: [c]"}, {"fields: [c, a]", "fields: [c, c]"}, {"fields: [c, a]", "fields: [c, d]"}, {"{name: b,", "{name: a,"}, {"{name: b,", "{name: image,"}, {"{name: b,", "{name: B,"},
		{"values: [low, high]", "values: [low, low]"}, {"values: [low, high]", "values: []"}, {"{min: low}", "{min: none}"}, {"{min: low}", "{low: low}"}, {"{min: low}", "{Min: low}"},
		{"groups: [{name: g, fields: [c, a]}]", "groups: [{name: g, fields: [c, a]}, {name: h, fields: [a, b]}]"}, {"http://10.0.0.1", "http://u:p@10.0.0.1"}, {"name: x", "name: X"},
	} {
		f.Add([]byte(strings.Replace(goodProfile, r[0], r[1], 1)), []byte(goodFallback))
	}
	f.Add([]byte(goodProfile), []byte("a: on\nb: none\nc: 2\n"))
	f.Add(fallback.Profile().Data, fallback.Values().Data)
	f.Add([]byte(goodProfile+"readings: [{name: t, unit: °C}]\n"), []byte("a: yes\nb: low\nc: '2'\n"))
	f.Add([]byte(goodProfile+"readings: [{name: t, unit: \"\u202eC\"}]\n"), []byte(goodFallback))
	f.Add([]byte("name: \"\\e[2J\"\naddress: \"http://\\e/\"\nactuators: [{name: retry, values: [\"\\e\", on]}]\nreadings: [{name: x, unit: \"\\u202e\"}]\n"), []byte(""))
	f.Add([]byte("name: x\naddress: http://%C2%9B/\nactuators: [{name: a, values: [x, x], synonyms: {\"\\e\": x, x: x, y: z}}]\ngroups: [{name: g, fields: [a, a]}]\n"), []byte("a: x"))
	f.Add([]byte("actuators: []"), []byte("{}"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, profile, values []byte) {
		p, err := ParseProfile("f", profile, "f", values)
		for name, data := range map[string][]byte{"profile.yaml": profile, "fallback.yaml": values} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		loaded, loadErr := LoadProfile(dir)
		if (err == nil) != (loadErr == nil) || err == nil && !reflect.DeepEqual(loaded, p) {
			t.Errorf("ParseProfile gives %+v, %v, and LoadProfile %+v, %v", p, err, loaded, loadErr)
		}
		wantProfile(t, loaded)
		if err == nil {
			wantProfile(t, p)
			return
		}
		var errs strictyaml.Errors
		if !errors.As(err, &errs) || len(errs) == 0 {
			t.Fatalf("the error %T has no places: %v", err, err)
		}
		for _, e := range errs {
			if e.Line < 1 || e.Column < 1 || strings.ContainsFunc(e.Msg, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q, %q: %d:%d: the message %q is not fit for a terminal, or has no place", profile, values, e.Line, e.Column, e.Msg)
			}
		}
		if loadErr == nil || len(loaded.Actuators) == 0 {
			t.Errorf("LoadProfile gives %+v, %v", loaded, loadErr)
		}
	})
}

// wantProfile checks what a valid profile promises.
func wantProfile(t *testing.T, p Profile) {
	t.Helper()
	if len(p.Actuators) == 0 || len(p.Fallback) != len(p.Actuators) || !IsURL(p.Address) || !isName(p.Name) {
		t.Errorf("accepted: %+v", p)
	}
	var names, grouped []string
	var file strings.Builder
	for _, a := range p.Actuators {
		if !isName(a.Name) || slices.Contains(names, a.Name) || slices.Contains(Reserved, a.Name) || len(a.Allowed) == 0 {
			t.Errorf("accepted: the actuator %+v among %q", a, names)
		}
		names = append(names, a.Name)
		for i, v := range a.Allowed {
			if !isValue(v) || slices.Contains(a.Allowed[:i], v) {
				t.Errorf("accepted: %s with the values %q", a.Name, a.Allowed)
			}
		}
		for word, v := range a.Synonyms {
			if got, ok := a.Canonical(word); !ok || got != v || !slices.Contains(a.Allowed, v) {
				t.Errorf("accepted: %s with the synonym %q for %q", a.Name, word, v)
			}
		}
		if !slices.Contains(a.Allowed, p.Fallback[a.Name]) {
			t.Errorf("accepted: a fallback with %s: %q, allowed are %q", a.Name, p.Fallback[a.Name], a.Allowed)
		}
		file.WriteString(a.Name + ": " + strconv.Quote(p.Fallback[a.Name]) + "\n")
	}
	for _, g := range p.Groups {
		for _, field := range g.Fields {
			if !slices.Contains(names, field) || slices.Contains(grouped, field) {
				t.Errorf("accepted: the groups %+v", p.Groups)
			}
			grouped = append(grouped, field)
		}
		if len(g.Fields) < 2 {
			t.Errorf("accepted: the group %+v", g)
		}
	}
	for i, r := range p.Readings {
		if !isName(r.Name) || r.Unit == "" || slices.ContainsFunc(p.Readings[:i], func(o Reading) bool { return o.Name == r.Name }) ||
			strings.ContainsFunc(r.Unit, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("accepted: the readings %+v", p.Readings)
		}
	}
	root := strictyaml.Parse("f", []byte(file.String()), fallback.Limit)
	if again := p.ParseFields(root); root.Err() != nil || !again.Equal(p.Fallback) {
		t.Errorf("the fallback %v, written out, gives %v, %v", p.Fallback, again, root.Err())
	}
}
