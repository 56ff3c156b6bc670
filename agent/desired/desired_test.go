package desired

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"holdfast/bootslot"
	"holdfast/device"
	"holdfast/device/strictyaml"
)

func greenhouse(t testing.TB) device.Profile {
	p, err := device.LoadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const good = `pump: on
fan: off
vent: off
lamp: on
door: closed
`

const sha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestGood(t *testing.T) {
	p := greenhouse(t)
	fields := device.Fields{"pump": "on", "fan": "off", "vent": "off", "lamp": "on", "door": "closed"}
	image := &bootslot.Image{Version: "1.4.2", URL: "https://images.example.org/a.raucb?x=1", SHA256: sha}
	for _, tt := range []struct {
		name, data string
		want       Declared
	}{
		{"plain", good, Declared{bootslot.Release{Fields: fields}, 0}},
		{"with a retry", good + "retry: 3\n", Declared{bootslot.Release{Fields: fields}, 3}},
		{"with a retry of 0", good + "retry: 0\n", Declared{bootslot.Release{Fields: fields}, 0}},
		{"with the largest retry", good + "retry: 9007199254740991\n", Declared{bootslot.Release{Fields: fields}, 9007199254740991}},
		{"with an image", good + "image: {version: 1.4.2, url: 'https://images.example.org/a.raucb?x=1', sha256: " + sha + "}\n",
			Declared{bootslot.Release{Fields: fields, Image: image}, 0}},
		{"as JSON", `{"pump":"on","fan":"off","vent":"off","lamp":"on","door":"closed","retry":1}`, Declared{bootslot.Release{Fields: fields}, 1}},
	} {
		got, err := Parse("f", []byte(tt.data), p)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: Parse gives %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

// What people write for an actuator, and what it means; "" for what is refused.
func TestSpellings(t *testing.T) {
	p := greenhouse(t)
	const onOff, door = "on or off", "open or closed (on means open, off means closed)"
	for _, tt := range []struct{ key, spelling, want string }{
		{"pump", "on", "on"}, {"pump", "On", "on"}, {"pump", "ON", "on"}, {"pump", "oN", "on"},
		{"pump", "off", "off"}, {"pump", "Off", "off"}, {"pump", "OFF", "off"},
		{"pump", "true", "on"}, {"pump", "True", "on"}, {"pump", "TRUE", "on"},
		{"pump", "false", "off"}, {"pump", "False", "off"}, {"pump", "FALSE", "off"},
		{"pump", "yes", "on"}, {"pump", "Yes", "on"}, {"pump", "YES", "on"},
		{"pump", "no", "off"}, {"pump", "No", "off"}, {"pump", "NO", "off"},
		{"pump", `"on"`, "on"}, {"pump", "'on'", "on"}, {"pump", `"off"`, "off"}, {"pump", "on # at night", "on"}, {"pump", `"o\u006e"`, "on"},
		// Quotes say: this very word.
		{"pump", `"ON"`, ""}, {"pump", `"true"`, ""}, {"pump", `"yes"`, ""}, {"pump", `"no"`, ""}, {"pump", "'false'", ""},
		{"pump", "1", ""}, {"pump", "0", ""}, {"pump", `"1"`, ""}, {"pump", "1.0", ""}, {"pump", "0x1", ""}, {"pump", "y", ""}, {"pump", "n", ""}, {"pump", "Y", ""}, {"pump", "N", ""},
		{"pump", "t", ""}, {"pump", "enabled", ""}, {"pump", "open", ""}, {"pump", "onn", ""}, {"pump", "öff", ""}, {"pump", "оn", ""}, // the last one starts in Cyrillic
		{"pump", "", ""}, {"pump", "~", ""}, {"pump", "null", ""}, {"pump", "Null", ""}, {"pump", "NULL", ""}, {"pump", `""`, ""}, {"pump", `" on"`, ""}, {"pump", `"on "`, ""},
		{"pump", "[on]", ""}, {"pump", "{on: on}", ""}, {"pump", "|\n  on", ""}, {"pump", "on off", ""}, {"pump", "on\n  off", ""}, {"pump", `"on\n"`, ""},
		{"pump", "!!bool on", ""}, {"pump", "!!str on", ""}, {"pump", "! on", ""}, {"pump", "&a on", ""}, {"pump", "2026-10-15", ""},
		{"door", "open", "open"}, {"door", "closed", "closed"}, {"door", `"open"`, "open"}, {"door", "on", "open"}, {"door", "off", "closed"},
		{"door", "On", "open"}, {"door", "OFF", "closed"}, {"door", `"on"`, "open"}, {"door", "'off'", "closed"},
		{"door", "Open", ""}, {"door", "OPEN", ""}, {"door", "close", ""}, {"door", "shut", ""}, {"door", "yes", ""}, {"door", "no", ""}, {"door", "true", ""},
		{"door", "False", ""}, {"door", `"On"`, ""}, {"door", "1", ""}, {"door", "", ""}, {"door", "~", ""}, {"door", "ajar", ""},
	} {
		lines := strings.Split(strings.TrimSpace(good), "\n")
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, tt.key+":") })
		lines[at] = tt.key + ": " + tt.spelling
		d, err := Parse("f.yaml", []byte(strings.Join(lines, "\n")), p)
		if tt.want != "" {
			if err != nil || d.Release.Fields[tt.key] != tt.want {
				t.Errorf("%s: %s gives %q, %v, want %q", tt.key, tt.spelling, d.Release.Fields[tt.key], err, tt.want)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: %s gives %q, want an error", tt.key, tt.spelling, d.Release.Fields[tt.key])
			continue
		}
		if !d.Release.IsZero() {
			t.Errorf("%s: %s gives an error and a release", tt.key, tt.spelling)
		}
		allowed := map[string]string{"pump": onOff, "door": door}[tt.key]
		if strings.HasPrefix(tt.spelling, "!") || strings.HasPrefix(tt.spelling, "&") {
			allowed = "not allowed"
		}
		var errs strictyaml.Errors
		if !errors.As(err, &errs) || len(errs) != 1 || errs[0].Line != at+1 || errs[0].Column <= len(tt.key) ||
			!strings.HasPrefix(errs[0].Msg, tt.key+": found ") || !strings.HasSuffix(errs[0].Msg, allowed) {
			t.Errorf("%s: %s gives the error %v, want one in line %d that ends in %q", tt.key, tt.spelling, err, at+1, allowed)
		}
	}
}

func TestErrors(t *testing.T) {
	image := func(s string) string { return good + "image: {" + s + "}\n" }
	const (
		noVersion = "a version of at most 64 letters, digits and .+~_-, such as 1.4.2"
		noURL     = "an https:// or http:// URL without user and password"
		noSHA     = "the sha256 of the file, 64 hex digits in lower case"
		noRetry   = "must be a whole number from 0 to 9007199254740991"
	)
	for _, tt := range []struct{ name, data, want string }{
		{"empty", "", "gh.yaml:1:1: the file is empty or all comments, must be a mapping, such as key: value"},
		{"too big", good + strings.Repeat("#", Limit), "gh.yaml:1:1: the file has more than the 65536 bytes that are allowed"},
		{"misspelt", strings.Replace(good, "pump", "pmup", 1), "gh.yaml:1:1: pump: missing, must be on or off\n" +
			`gh.yaml:1:1: unknown key "pmup" (did you mean "pump"?), must be one of vent, door, fan, lamp, pump, retry, image`},
		{"upper case", strings.Replace(good, "fan", "Fan", 1), "gh.yaml:1:1: fan: missing, must be on or off\n" +
			`gh.yaml:2:1: unknown key "Fan" (did you mean "fan"?), must be one of vent, door, fan, lamp, pump, retry, image`},
		{"missing", strings.Replace(good, "vent: off\n", "", 1), "gh.yaml:1:1: vent: missing, must be on or off"},
		{"missing door", strings.Replace(good, "door: closed\n", "", 1), "gh.yaml:1:1: door: missing, must be open or closed (on means open, off means closed)"},
		{"duplicate", good + "pump: off\n", `gh.yaml:6:1: duplicate key "pump", first in line 1; must be there once`},
		{"duplicate with the same value", good + "\"pump\": on\n", `gh.yaml:6:1: duplicate key "pump", first in line 1; must be there once`},
		{"second document", good + "---\n" + good, "gh.yaml:6:1: a second document or trailing text starts here, must be one document"},
		{"merge key", good + "<<: {pump: off}\n", "gh.yaml:6:1: found a merge key <<, merging is not allowed: write the values out"},
		{"shared value", strings.NewReplacer("fan: off", "fan: &x off", "vent: off", "vent: *x").Replace(good),
			"gh.yaml:2:6: fan: found the anchor &x, anchors are not allowed\ngh.yaml:3:7: vent: found the alias *x, aliases are not allowed: write the value out"},
		{"merge conflict", "<<<<<<< ours\n" + good + "=======\n>>>>>>> theirs\n", "gh.yaml:2:1: not valid YAML here or just below: mapping values are not allowed in this context"},

		{"retry in octal", good + "retry: 010\n", `gh.yaml:6:8: retry: found "010", ` + noRetry},
		{"retry with a point", good + "retry: 1.0\n", `gh.yaml:6:8: retry: found "1.0", ` + noRetry},
		{"retry with an exponent", good + "retry: 1e3\n", `gh.yaml:6:8: retry: found "1e3", ` + noRetry},
		{"retry in hex", good + "retry: 0x1\n", `gh.yaml:6:8: retry: found "0x1", ` + noRetry},
		{"retry with a sign", good + "retry: +1\n", `gh.yaml:6:8: retry: found "+1", ` + noRetry},
		{"negative retry", good + "retry: -1\n", `gh.yaml:6:8: retry: found "-1", ` + noRetry},
		{"retry -0", good + "retry: -0\n", `gh.yaml:6:8: retry: found "-0", ` + noRetry},
		{"retry with underscores", good + "retry: 1_000\n", `gh.yaml:6:8: retry: found "1_000", ` + noRetry},
		{"retry in quotes", good + "retry: \"1\"\n", `gh.yaml:6:8: retry: found "1", ` + noRetry},
		{"retry too large", good + "retry: 9007199254740992\n", `gh.yaml:6:8: retry: found "9007199254740992", ` + noRetry},
		{"retry far too large", good + "retry: 99999999999999999999\n", `gh.yaml:6:8: retry: found "99999999999999999999", ` + noRetry},
		{"retry yes", good + "retry: yes\n", `gh.yaml:6:8: retry: found "yes", ` + noRetry},
		{"retry nothing", good + "retry:\n", `gh.yaml:6:7: retry: found nothing (null), ` + noRetry},

		{"image of nothing", good + "image:\n", "gh.yaml:6:7: image: found nothing (null), must be a mapping of keys to values"},
		{"empty image", image(""), "gh.yaml:6:8: image.version: missing, must be " + noVersion + "\ngh.yaml:6:8: image.url: missing, must be " + noURL + "\ngh.yaml:6:8: image.sha256: missing, must be " + noSHA},
		{"image as text", good + "image: v2\n", `gh.yaml:6:8: image: found "v2", must be a mapping of keys to values`},
		{"all of the image wrong", image("version: a b, url: ftp://x/y, sha256: abc, size: 3"), `gh.yaml:6:18: image.version: found "a b", must be ` + noVersion +
			"\n" + `gh.yaml:6:28: image.url: found "ftp://x/y", must be ` + noURL + "\n" + `gh.yaml:6:47: image.sha256: found "abc", must be ` + noSHA +
			"\n" + `gh.yaml:6:52: image: unknown key "size", must be one of version, url, sha256`},
		{"sha256 in upper case", image("version: 1, url: http://x/y, sha256: " + strings.ToUpper(sha)), `gh.yaml:6:46: image.sha256: found "` + strings.ToUpper(sha) + `", must be ` + noSHA},
		{"sha256 too long", image("version: 1, url: http://x/y, sha256: " + sha + "0"), `gh.yaml:6:46: image.sha256: found "` + sha + `0", must be ` + noSHA},
		{"URL with a password", image("version: 1, url: 'https://a:b@x/y', sha256: " + sha), `gh.yaml:6:26: image.url: found "…@x/y", must be ` + noURL},

		{"all at once", "pump: 1\npump: 2\nfan: ~\nlamp: &l on\nextra: on\nretry: x\n", `gh.yaml:1:1: door: missing, must be open or closed (on means open, off means closed)
gh.yaml:1:1: vent: missing, must be on or off
gh.yaml:1:7: pump: found "1", must be on or off
gh.yaml:2:1: duplicate key "pump", first in line 1; must be there once
gh.yaml:3:6: fan: found ~ (null), must be on or off
gh.yaml:4:7: lamp: found the anchor &l, anchors are not allowed
gh.yaml:5:1: unknown key "extra", must be one of vent, door, fan, lamp, pump, retry, image
gh.yaml:6:8: retry: found "x", ` + noRetry},
	} {
		d, err := Parse("gh.yaml", []byte(tt.data), greenhouse(t))
		if err == nil {
			t.Errorf("%s: Parse gives %+v, want an error", tt.name, d)
			continue
		}
		got := strings.Split(err.Error(), "\n")
		if want := strings.Split(tt.want, "\n"); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: Parse gives\n%v\nwant\n%s", tt.name, err, tt.want)
		}
		if !d.Release.IsZero() || d.Retry != 0 {
			t.Errorf("%s: with the error comes %+v", tt.name, d)
		}
	}
}

func TestAliasBomb(t *testing.T) {
	bomb := good + "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'z'; c++ {
		bomb += fmt.Sprintf("%c: &%[1]c [%s*%[3]c]\n", c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 8), c-1)
	}
	_, err := Parse("f", []byte(bomb), greenhouse(t))
	if err == nil || !strings.Contains(err.Error(), "f:7:4: b: found the anchor &b") {
		t.Errorf("Parse gives %v, want errors of anchors and aliases", err)
	}
}

// A profile with numbers as values, groups of its own, and a word of YAML as a value.
func TestOtherProfiles(t *testing.T) {
	p, err := device.ParseProfile("p", []byte(`{name: x, address: "http://a", actuators: [{name: speed, values: ["0", "1"]}, {name: auto, values: [yes, no]}]}`),
		"f", []byte("{speed: 0, auto: no}"))
	if err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]device.Fields{
		"{speed: 1, auto: yes}":      {"speed": "1", "auto": "yes"},
		"{speed: \"1\", auto: 'no'}": {"speed": "1", "auto": "no"},
		"{speed: 01, auto: yes}":     nil,
		"{speed: on, auto: yes}":     nil,
		"{speed: 1, auto: on}":       nil,
		"{speed: 1, auto: true}":     nil,
	} {
		d, err := Parse("f", []byte(data), p)
		if (err == nil) != (want != nil) || !maps.Equal(d.Release.Fields, want) {
			t.Errorf("%s gives %v, %v, want %v", data, d.Release.Fields, err, want)
		}
	}
}

// canonical writes d as a file.
func canonical(d Declared) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(d.Release.Fields)) {
		fmt.Fprintf(&b, "%s: %s\n", k, d.Release.Fields[k])
	}
	if d.Retry != 0 {
		fmt.Fprintf(&b, "retry: %d\n", d.Retry)
	}
	if i := d.Release.Image; i != nil {
		fmt.Fprintf(&b, "image: {version: %q, url: %q, sha256: %q}\n", i.Version, i.URL, i.SHA256)
	}
	return b.String()
}

// The digest does not depend on how a state is written: the order of keys, synonyms, quotes, comments, white space,
// flow or block, CRLF, a byte order mark. And it does depend on each field, and on the image's sha256 alone.
func TestDigestIsStable(t *testing.T) {
	p := greenhouse(t)
	spellings := map[string][]string{
		"on": {"on", "On", "ON", "yes", "True", `"on"`, "'on'"}, "off": {"off", "OFF", "no", "false", `"off"`},
		"open": {"open", `"open"`, "on", "'on'"}, "closed": {"closed", "'closed'", "off", "Off"},
	}
	write := func(rt *rapid.T, d Declared, label string) string {
		var entries []string
		for k, v := range d.Release.Fields {
			entries = append(entries, fmt.Sprintf("%s: %s", k, rapid.SampledFrom(spellings[v]).Draw(rt, label+k)))
		}
		slices.Sort(entries)
		if i := d.Release.Image; i != nil {
			entries = append(entries, fmt.Sprintf("image: {sha256: %s, version: v%d, url: 'http://h/%d'}",
				i.SHA256, rapid.IntRange(0, 9).Draw(rt, label+"version"), rapid.IntRange(0, 9).Draw(rt, label+"url")))
		}
		if n := rapid.IntRange(0, 3).Draw(rt, label+"retry"); n > 0 {
			entries = append(entries, fmt.Sprint("retry: ", n))
		}
		entries = rapid.Permutation(entries).Draw(rt, label+"order")
		if rapid.Bool().Draw(rt, label+"flow") {
			return "{" + strings.Join(entries, ", ") + "} # all of it"
		}
		var b strings.Builder
		if rapid.Bool().Draw(rt, label+"BOM") {
			b.WriteString("\ufeff")
		}
		end := rapid.SampledFrom([]string{"\n", "\r\n", " # why\n", "\n\n# next\n"}).Draw(rt, label+"end")
		for _, e := range entries {
			b.WriteString(e + end)
		}
		return b.String()
	}
	draw := func(rt *rapid.T, label string) Declared {
		d := Declared{Release: bootslot.Release{Fields: device.Fields{}}}
		for _, a := range p.Actuators {
			d.Release.Fields[a.Name] = rapid.SampledFrom(a.Allowed).Draw(rt, label+a.Name)
		}
		if rapid.Bool().Draw(rt, label+"image") {
			d.Release.Image = &bootslot.Image{Version: "1", URL: "http://h/i", SHA256: strings.Repeat(rapid.SampledFrom([]string{"0", "a"}).Draw(rt, label+"sha"), 64)}
		}
		return d
	}
	parse := func(rt *rapid.T, data string) Declared {
		d, err := Parse("f", []byte(data), p)
		if err != nil {
			rt.Fatalf("%s\ngives %v", data, err)
		}
		return d
	}
	rapid.Check(t, func(rt *rapid.T) {
		a, b := draw(rt, "a "), draw(rt, "b ")
		one, two, other := parse(rt, write(rt, a, "one ")), parse(rt, write(rt, a, "two ")), parse(rt, write(rt, b, "other "))
		if one.Release.Digest() != two.Release.Digest() || one.Release.Digest() != a.Release.Digest() {
			rt.Fatalf("one state, written in two ways, gives %v and %v", one.Release, two.Release)
		}
		if same := a.Release.Equal(b.Release); same != (one.Release.Digest() == other.Release.Digest()) {
			rt.Fatalf("%v and %v are the same: %v, their digests say otherwise", a.Release, b.Release, same)
		}
	})
}
