package config

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"holdfast/device"
	"holdfast/device/strictyaml"
)

// FuzzParse: a configuration is refused, each error with its place and fit for a terminal, or it is complete and keeps the rules on which guard and agent rely. A valid
// one is kept, and what is kept gives the same when the file is broken; where its state is can be found out without understanding it.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../packaging/holdfast.yaml")
	if err != nil {
		f.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^(\s*)# ?(\s*(- \{|\w+: [/\[]))`).ReplaceAll(example, []byte("$1$2"))
	for _, s := range []string{
		fourLines, string(example), string(all), "device: [", "", `{"device": {"url": "http://a"}, "repository": {"url": "/r"}, "state": "/s"}`,
		fourLines + "\"state\": /s\n", fourLines + "state: '/s t'\n", fourLines + "state:\n  /s\nrun: \"/r\\u0041\"\n", fourLines + "state: /s#t\nrun: /r # s\n",
		fourLines + "guard:\n  checks:\n  - {name: r, reading: light, min: -1e9, max: 0.5, fatalMax: 1, soak: 15s}\n  - {name: h, http: 'http://%C2%9B/'}\n  - {name: c, command: [/c, \"\\e\"], wanted: true}\n",
		fourLines + "guard: {window: 8760h, soak: 8760h, interval: 1ms, attempts: 10, pauses: [1ms], hold: release, diskFloor: 999999999999999B, recover: 1ms}\n",
		fourLines + "guard:\n  checks:\n  - {name: u, unit: a.service}\n  - {name: f, freeDisk: /, minFree: 1B}\n  - {name: u, http: 'http://10.1.2.3:1/?a'}\n",
		"device: {url: 'http://[::1%25\\e]'}\nrepository: {url: 'git@h:a b', path: \"a\\u202e\", branch: 'a\u202eb'}\n\"\\e\": 1\n",
	} {
		f.Add([]byte(s))
	}
	p := greenhouse(f)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path, kept := filepath.Join(dir, "holdfast.yaml"), filepath.Join(dir, "kept.yaml")
		write := func(data []byte) {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := Parse("f", data, p)
		_ = os.Remove(kept)
		write(data)
		loaded, usable, loadErr := Load(path, kept, p)
		if usable != (err == nil) || (loadErr == nil) != usable || !reflect.DeepEqual(loaded, c) {
			t.Errorf("%q: Parse gives %+v, %v, and Load %+v, %v, %v", data, c, err, loaded, usable, loadErr)
		}
		if err != nil {
			wantErrors(t, data, err)
			if _, err := os.Stat(kept); err == nil {
				t.Errorf("%q: refused, and kept all the same", data)
			}
			return
		}
		wantConfig(t, c, p)
		if got := StateFolder(path); got != c.State {
			t.Errorf("%q: the state is in %q, and is looked for in %q", data, c.State, got)
		}
		write([]byte("garbage"))
		again, usable, err := Load(path, kept, p)
		if !usable || err == nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%q gives %+v, and what is kept of it %+v, %v, %v", data, c, again, usable, err)
		}
	})
}

// wantErrors checks the form of errors that any data may cause.
func wantErrors(t *testing.T, data []byte, err error) {
	t.Helper()
	var errs strictyaml.Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("%q: the error %T has no places: %v", data, err, err)
	}
	for _, e := range errs {
		if e.Line < 1 || e.Column < 1 || e.Msg == "" || strings.ContainsFunc(e.Msg, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: %d:%d: the message %q is not fit for a terminal, or has no place", data, e.Line, e.Column, e.Msg)
		}
	}
}

// wantConfig checks what a valid configuration promises.
func wantConfig(t *testing.T, c Config, p device.Profile) {
	t.Helper()
	promise := func(what string, kept bool) {
		t.Helper()
		if !kept {
			t.Errorf("accepted without this: %s: %+v", what, c)
		}
	}
	lasts := func(d time.Duration) bool { return d >= strictyaml.MinDuration && d <= strictyaml.MaxDuration }
	g, d, r := c.Guard, c.Device, c.Repository
	promise("a device's URL", device.IsURL(d.URL))
	promise("intervals, all of them", lasts(d.Interval) && lasts(d.Timeout) && lasts(r.Interval) && lasts(g.Window) && lasts(g.Soak) && lasts(g.Interval) && lasts(g.Recover))
	promise("a repository with a file and a branch", r.URL != "" && r.Path != "" && r.Branch != "" && (r.History == "fast-forward" || r.History == "follow"))
	promise("a window for three device intervals and two soaks", g.Window >= 3*d.Interval+2*g.Soak)
	promise("a soak of two samples", g.Interval <= g.Soak/2)
	promise("attempts", g.Attempts >= 1 && g.Attempts <= 10)
	promise("pauses", len(g.Pauses) >= 1 && len(g.Pauses) <= 10 && !slices.ContainsFunc(g.Pauses, func(d time.Duration) bool { return !lasts(d) }))
	promise("what is held", g.Hold == "fields" || g.Hold == "release")
	promise("a floor", g.DiskFloor >= 0)
	promise("folders, two of them", filepath.IsAbs(c.State) && filepath.IsAbs(c.Run) && c.State != c.Run && len(c.AgentSocket()) <= 107 && len(c.GuardSocket()) <= 107)
	for _, path := range []string{d.TokenFile, r.TokenFile, r.SSHKeyFile, r.KnownHostsFile, r.CAFile} {
		promise("files with absolute paths", path == "" || filepath.IsAbs(path))
	}
	for i, k := range g.Checks {
		kinds := 0
		for _, is := range []bool{k.Reading != "", k.HTTP != "", k.Command != nil, k.Unit != "", k.FreeDisk != ""} {
			if is {
				kinds++
			}
		}
		promise("checks of one kind", kinds == 1)
		promise("checks with a name of their own", checkName.MatchString(k.Name) && !slices.Contains(BuiltIn, k.Name) &&
			!slices.ContainsFunc(g.Checks[:i], func(o Check) bool { return o.Name == k.Name }))
		promise("checks that end", lasts(k.Timeout) && (k.Soak == 0 || k.Soak >= g.Soak))
		promise("readings that the profile knows, with a limit", k.Reading == "" || p.HasReading(k.Reading) && (k.Min != nil || k.Max != nil))
		inOrder := func(a, b *float64) bool { return a == nil || b == nil || *a < *b }
		promise("limits in their order", inOrder(k.FatalMin, k.Min) && inOrder(k.Min, k.Max) && inOrder(k.Max, k.FatalMax))
		promise("fatal limits of required readings only", k.FatalMin == nil && k.FatalMax == nil || k.Reading != "" && !k.Wanted)
		for _, limit := range []*float64{k.Min, k.Max, k.FatalMin, k.FatalMax} {
			promise("limits that are numbers", limit == nil || !math.IsNaN(*limit) && !math.IsInf(*limit, 0))
		}
		host := hostname(k.HTTP)
		promise("no required check that needs the link", k.HTTP == "" || k.Wanted || isLoopback(host) || host == hostname(d.URL))
		promise("commands with an absolute path", k.Command == nil || filepath.IsAbs(k.Command[0]))
		promise("a disk with what must be free", (k.FreeDisk == "") == (k.MinFree == 0) && k.MinFree >= 0)
	}
}
