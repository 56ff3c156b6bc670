package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"holdfast/device"
)

func greenhouse(t testing.TB) device.Profile {
	p, err := device.LoadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const fourLines = "device:\n  url: http://10.1.2.3\nrepository:\n  url: /srv/state.git\n"

func TestFourLinesAreEnough(t *testing.T) {
	p := greenhouse(t)
	got, err := Parse("f", []byte(fourLines), p)
	if err != nil {
		t.Fatal(err)
	}
	want := Default(p)
	want.Device.URL, want.Repository.URL = "http://10.1.2.3", "/srv/state.git"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Parse gives\n%+v\nwant\n%+v", got, want)
	}
	// The defaults of docs/design.md, "Configuration".
	if want.Device.Interval != 8*time.Second || want.Guard.Window != time.Minute || want.Guard.DiskFloor != 16777216 || want.Repository.Branch != "main" {
		t.Errorf("defaults are %+v", want)
	}
}

// The example shows every key, with its default; what it shows in comments is valid too.
func TestExampleFile(t *testing.T) {
	const path = "../../packaging/holdfast.yaml"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := greenhouse(t)
	got, err := Parse(path, data, p)
	if err != nil {
		t.Fatal(err)
	}
	want := Default(p)
	want.Repository.URL = "https://git.example.org/greenhouses/state.git"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Parse gives\n%+v\nwant the defaults,\n%+v", got, want)
	}

	all := regexp.MustCompile(`(?m)^(  )# (\w+: /)`).ReplaceAll(data, []byte("$1$2"))
	all = regexp.MustCompile(`(?m)^  #(  - )`).ReplaceAll(all, []byte("  $1"))
	all = []byte(strings.Replace(string(all), "checks: []", "checks:", 1))
	got, err = Parse(path+" uncommented", all, p)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is left at its zero value: so every key of these parts is in the example.
	for _, part := range []any{got, got.Device, got.Repository, got.Guard} {
		for i := range reflect.ValueOf(part).NumField() {
			if reflect.ValueOf(part).Field(i).IsZero() {
				t.Errorf("%T.%s is not in the example", part, reflect.TypeOf(part).Field(i).Name)
			}
		}
	}
	set := map[string]bool{}
	for _, c := range got.Guard.Checks {
		for i := range reflect.ValueOf(c).NumField() {
			if !reflect.ValueOf(c).Field(i).IsZero() {
				set[reflect.TypeOf(c).Field(i).Name] = true
			}
		}
	}
	if n := reflect.TypeFor[Check]().NumField(); len(set) != n {
		t.Errorf("the example's checks show %v, want all %d fields of Check", set, n)
	}
}

func TestEveryKeyArrives(t *testing.T) {
	got, err := Parse("f", []byte(`
device: {url: "https://gh.local/api", tokenFile: /t, interval: 1s, timeout: 500ms}
repository: {url: "git@git.example.org:a/b.git", path: devices/gh-1/greenhouse.yaml, branch: site/north, interval: 1m,
  history: follow, tokenFile: /a, sshKeyFile: /b, knownHostsFile: /c, caFile: /d}
guard:
  {window: 2m, soak: 10s, interval: 2s, attempts: 10, recover: 1h, pauses: [1s, 2s], hold: release, diskFloor: 1GiB,
  checks: [
    {name: r, reading: moisture, min: 10.5, max: 90, fatalMin: -1, fatalMax: 99, soak: 20m},
    {name: h, http: "http://gh.local:99/x?y=z", timeout: 1s},
    {name: h2, http: "https://status.example.org", wanted: true},
    {name: c, command: [/bin/check, "", -v]},
    {name: u, unit: "modem@1.service"},
    {name: f, freeDisk: /data, minFree: 5MiB}]}
state: /s
run: /r
`), greenhouse(t))
	if err != nil {
		t.Fatal(err)
	}
	f := func(v float64) *float64 { return &v }
	const s5 = 5 * time.Second
	want := Config{
		Device: Device{"https://gh.local/api", "/t", time.Second, 500 * time.Millisecond},
		Repository: Repository{"git@git.example.org:a/b.git", "devices/gh-1/greenhouse.yaml", "site/north", time.Minute,
			"follow", "/a", "/b", "/c", "/d"},
		Guard: Guard{2 * time.Minute, 10 * time.Second, 2 * time.Second, 10, time.Hour, []time.Duration{time.Second, 2 * time.Second}, "release", 1 << 30,
			[]Check{
				{Name: "r", Reading: "moisture", Min: f(10.5), Max: f(90), FatalMin: f(-1), FatalMax: f(99), Soak: 20 * time.Minute, Timeout: s5},
				{Name: "h", HTTP: "http://gh.local:99/x?y=z", Timeout: time.Second},
				{Name: "h2", HTTP: "https://status.example.org", Wanted: true, Timeout: s5},
				{Name: "c", Command: []string{"/bin/check", "", "-v"}, Timeout: s5},
				{Name: "u", Unit: "modem@1.service", Timeout: s5},
				{Name: "f", FreeDisk: "/data", MinFree: 5 << 20, Timeout: s5},
			}},
		State: "/s", Run: "/r",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Parse gives\n%+v\nwant\n%+v", got, want)
	}
	for got, want := range map[string]string{
		got.AgentSocket(): "/r/agent.sock", got.GuardSocket(): "/r/guard.sock", got.SuspendFile(): "/r/suspend",
		got.LedgerDB(): "/s/guard/ledger.db", got.LedgerJSON(): "/s/guard/ledger.json", got.CloneDB(): "/s/agent/clone.db", got.Spool(): "/s/agent/spool",
		got.GuardConfigCopy(): "/s/guard/config.yaml", got.AgentConfigCopy(): "/s/agent/config.yaml", got.GuardFolder(): "/s/guard", got.AgentFolder(): "/s/agent",
	} {
		if got != want {
			t.Errorf("path is %s, want %s", got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	const http = "http://127.0.0.1"
	guard := func(s string) string { return fourLines + "guard: {" + s + "}\n" }
	check := func(s string) string { return fourLines + "guard:\n  checks:\n  - {name: a, " + s + "}\n" }
	repo := func(s string) string {
		return strings.Replace(fourLines, "/srv/state.git", "/srv/state.git\n  "+s, 1)
	}
	for _, tt := range []struct {
		name, data, want string // want: all of the error
	}{
		{"nothing", "", "f:1:1: the file is empty or all comments, must be a mapping, such as key: value"},
		{"no device", "repository: {url: /a}", "f:1:1: device: missing, must be a mapping of keys to values"},
		{"no repository", "device: {url: http://a}", "f:1:1: repository: missing, must be a mapping of keys to values"},
		{"no URLs", "device: {}\nrepository: {}", "f:1:9: device.url: missing, must be the device's URL, such as http://127.0.0.1:8080\n" +
			"f:2:13: repository.url: missing, must be an http://, https://, ssh:// or file:// URL, user@host:path, or an absolute path"},
		{"unknown key at the root", fourLines + "guards: {}\n", `f:5:1: unknown key "guards" (did you mean "guard"?), must be one of device, repository, guard, state, run`},
		{"snake case", check("reading: light, max: 1, fatal_max: 2"), `f:7:39: guard.checks[0]: unknown key "fatal_max" (did you mean "fatalMax"?), must be one of name, wanted, soak, timeout, reading, http, command, unit, freeDisk, min, max, fatalMin, fatalMax, minFree`},
		{"no interval", strings.Replace(fourLines, "10.1.2.3", "a\n  interval: 0s", 1), `f:3:13: device.interval: found "0s", must be a duration from 1ms to 8760h, such as 500ms, 90s or 1h30m`},
		{"window too small", guard("window: 53s"), "f:5:17: guard.window: found 53s, must be at least 54s: 3 device intervals of 8s + 2 soaks of 15s"},
		{"window too small for another soak", guard("soak: 20s"), "f:5:8: guard.window: found 1m0s, must be at least 1m4s: 3 device intervals of 8s + 2 soaks of 20s"},
		{"window too small, and no guard", "device: {url: http://a, interval: 20s}\nrepository: {url: /a}", "f:1:1: guard.window: found 1m0s, must be at least 1m30s: 3 device intervals of 20s + 2 soaks of 15s"},
		{"window just right", guard("window: 54s"), ""},
		{"few samples", guard("interval: 8s"), "f:5:19: guard.interval: found 8s, must be at most half of the soak of 15s"},
		{"no attempts", guard("attempts: 0"), `f:5:19: guard.attempts: found "0", must be a whole number from 1 to 10`},
		{"many attempts", guard("attempts: 11"), `f:5:19: guard.attempts: found "11", must be a whole number from 1 to 10`},
		{"no pauses", guard("pauses: []"), "f:5:17: guard.pauses: found 0 pauses, must be 1 to 10"},
		{"too many pauses", guard("pauses: [1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s]"), "f:5:17: guard.pauses: found 11 pauses, must be 1 to 10"},
		{"a pause of nothing", guard("pauses: [1m, 0s]"), `f:5:22: guard.pauses[1]: found "0s", must be a duration from 1ms to 8760h, such as 500ms, 90s or 1h30m`},
		{"hold what", guard("hold: all"), `f:5:15: guard.hold: found "all", must be one of fields, release`},
		{"disk floor in MB", guard("diskFloor: 16MB"), `f:5:20: guard.diskFloor: found "16MB", must be a size, such as 16MiB, 2GiB or a number of bytes`},
		{"history", repo("history: force"), `f:5:12: repository.history: found "force", must be one of fast-forward, follow`},
		{"path outside", repo("path: ../x.yaml"), `f:5:9: repository.path: found "../x.yaml", must be a path inside the repository, such as devices/gh-0042/greenhouse.yaml`},
		{"absolute path", repo("path: /x.yaml"), `f:5:9: repository.path: found "/x.yaml", must be a path inside the repository, such as devices/gh-0042/greenhouse.yaml`},
		{"full ref", repo("branch: refs/heads/main"), `f:5:11: repository.branch: found "refs/heads/main", must be a branch's name, such as main, without refs/heads/`},
		{"relative file", repo("tokenFile: token"), `f:5:14: repository.tokenFile: found "token", must be an absolute path, without .. or //`},
		{"password in the URL", "device: {url: http://a}\nrepository: {url: 'https://me:secret@git.example.org/x'}",
			"f:2:19: repository.url: found a password in the URL, must be in a file that tokenFile names: URLs end up in logs"},
		{"state is run", fourLines + "state: /x\nrun: /x\n", "f:6:6: run: found the folder of state, must be another: what is in run is gone after a boot"},
		{"socket path too long", fourLines + "run: /" + strings.Repeat("x", 96) + "\n", "f:5:6: run: found a folder with which sockets have a path of 108 bytes, must be at most 107"},
		{"socket path just right", fourLines + "run: /" + strings.Repeat("x", 95) + "\n", ""},

		{"check of nothing", check("soak: 1m"), "f:7:5: guard.checks[0]: found no kind of check, must be one of reading, http, command, unit, freeDisk"},
		{"check of two things", check("unit: a.service, http: " + http), "f:7:21: guard.checks[0].unit: found http and unit in one check, must be one of them"},
		{"built-in name", fourLines + "guard: {checks: [{name: agent-alive, unit: a.service}]}", "f:5:25: guard.checks[0].name: found the name of a built-in check, must be another than device-answers, device-converged, agent-alive"},
		{"name twice", fourLines + "guard: {checks: [{name: a, unit: a.service}, {name: a, unit: b.service}]}", `f:5:53: guard.checks[1].name: duplicate check "a", must be there once`},
		{"odd name", fourLines + "guard: {checks: [{name: A b, unit: a.service}]}", `f:5:25: guard.checks[0].name: found "A b", must be a name of a-z, 0-9 and -`},
		{"short soak", check("unit: a.service, soak: 14s"), "f:7:38: guard.checks[0].soak: found 14s, must be at least guard.soak, 15s"},
		{"unknown reading", check("reading: humidity, max: 1"), `f:7:24: guard.checks[0].reading: found "humidity", must be one of temperature, moisture, light`},
		{"reading without limit", check("reading: light"), "f:7:24: guard.checks[0].reading: found no limit beside it, must be min, max or both"},
		{"limit without reading", check("unit: a.service, max: 3"), "f:7:37: guard.checks[0].max: found without reading, must go with it"},
		{"min over max", check("reading: light, min: 5, max: 5"), "f:7:44: guard.checks[0].max: found 5, must be more than min, 5"},
		{"fatal below max", check("reading: light, max: 45, fatalMax: 38"), "f:7:50: guard.checks[0].fatalMax: found 38, must be more than max, 45"},
		{"fatal above min", check("reading: light, min: 5, fatalMin: 5"), "f:7:36: guard.checks[0].min: found 5, must be more than fatalMin, 5"},
		{"fatal alone", check("reading: light, min: 5, fatalMax: 50"), "f:7:49: guard.checks[0].fatalMax: found without max, must go with it"},
		{"fatal and wanted", check("reading: light, max: 5, fatalMax: 50, wanted: true"), "f:7:49: guard.checks[0].fatalMax: found in a wanted check, must be in a required one: a wanted check only reports"},
		{"limit that is no number", check("reading: light, max: 5lux"), `f:7:36: guard.checks[0].max: found "5lux", must be a number, such as 38 or -2.5`},
		{"relative command", check("command: [modem-check]"), "f:7:24: guard.checks[0].command: found no absolute path at its start, must be a list such as [/usr/lib/holdfast/modem-check, --quick]"},
		{"empty command", check("command: []"), "f:7:24: guard.checks[0].command: found no absolute path at its start, must be a list such as [/usr/lib/holdfast/modem-check, --quick]"},
		{"command as text", check("command: /bin/true"), "f:7:24: guard.checks[0].command: found \"/bin/true\", must be a list of a program and its arguments"},
		{"unit without a kind", check("unit: modem"), `f:7:21: guard.checks[0].unit: found "modem", must be a systemd unit, such as modem.service`},
		{"disk without a floor", check("freeDisk: /data"), "f:7:25: guard.checks[0].freeDisk: found no minFree beside it, must be there: a size, such as 16MiB"},
		{"disk with a floor of 0", check("freeDisk: /data, minFree: 0"), "f:7:41: guard.checks[0].minFree: found 0, must be more: such a check never fails"},
		{"floor without a disk", check("unit: a.service, minFree: 1"), "f:7:41: guard.checks[0].minFree: found without freeDisk, must go with it"},
		{"HTTP with a password", check("http: 'http://a:b@127.0.0.1'"), `f:7:21: guard.checks[0].http: found "…@127.0.0.1", must be a URL of http or https without user and password, such as http://127.0.0.1:9090/ready`},
		{"required check of another host", check("http: 'https://Example.org/x'"),
			"f:7:21: guard.checks[0].http: found the host example.org in a required check, must be this board (localhost, 127.0.0.1, ::1) or its device (10.1.2.3): " +
				"losing the link may delay things, it may never convict; with wanted: true the check only reports"},
		{"wanted check of another host", check("http: 'https://example.org/x', wanted: true"), ""},
		{"all at once", "device: {url: x}\nguard: {hold: x, attempts: x}\n", `f:1:1: repository: missing, must be a mapping of keys to values
f:1:15: device.url: found "x", must be the device's URL, such as http://127.0.0.1:8080
f:2:15: guard.hold: found "x", must be one of fields, release
f:2:28: guard.attempts: found "x", must be a whole number from 1 to 10`},
	} {
		c, err := Parse("f", []byte(tt.data), greenhouse(t))
		got := ""
		if err != nil {
			got = err.Error()
			if !reflect.DeepEqual(c, Config{}) {
				t.Errorf("%s: with the error comes a configuration", tt.name)
			}
		}
		if got != tt.want {
			t.Errorf("%s: Parse gives\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// A required check may not depend on the link; the names of this board and of its device are fine, whatever the port.
func TestHostsOfRequiredChecks(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:80": true, "127.0.0.1": true, "127.9.9.9:1": true, "[::1]": true, "[::ffff:127.0.0.1]": true, "10.1.2.3:99": true,
		"10.1.2.4": false, "localhost.example.org": false, "127.0.0.1.example.org": false, "128.0.0.1": false, "[fe80::1]": false, "0.0.0.0": false, "2130706433": false,
	} {
		_, err := Parse("f", []byte(fourLines+"guard: {checks: [{name: a, http: 'http://"+host+"/'}]}"), greenhouse(t))
		if got := err == nil; got != want {
			t.Errorf("host %s: accepted is %v, want %v (%v)", host, got, want, err)
		}
	}
}

func TestRepositoryURL(t *testing.T) {
	for u, want := range map[string]bool{
		"https://git.example.org/a.git": true, "http://git:3000/a": true, "ssh://git@host:22/a.git": true, "https://me@host/a": true,
		"git@host:a/b.git": true, "git@host:/srv/a.git": true, "file:///srv/a.git": true, "/srv/a.git": true,
		"": false, "a.git": false, "./a": false, "../a": false, "host:a": false, "git://host/a": false, "https://host": false, "https:///a": false,
		"ssh://-oProxyCommand=x/a": false, "git@-oX:a": false, "-x@host:a": false, "git@host:-x": false, "git@host:": false, "file://host/a": false, "/srv/../a": false,
		"https://host/a?b": false, "https://host/a#b": false, "https://host/a b": false, "ext::sh -c x": false,
		"a:b@host:x": false, "https://a:b@host/x": false, "https://a:@host/x": false, "ssh://a:b@host/x": false,
	} {
		_, err := Parse("f", []byte("device: {url: http://a}\nrepository: {url: '"+u+"'}"), greenhouse(t))
		if got := err == nil; got != want {
			t.Errorf("repository.url %q: accepted is %v, want %v (%v)", u, got, want, err)
		}
		if err != nil && strings.Contains(err.Error(), "a:b") {
			t.Errorf("repository.url %q: the error shows the password: %v", u, err)
		}
	}
}

func TestBranch(t *testing.T) {
	for b, want := range map[string]bool{
		"main": true, "site/north-2": true, "v1.2": true, "a@b": true,
		"": false, "-x": false, "a..b": false, "a.lock": false, "a.": false, ".a": false, "a/": false, "/a": false, "a//b": false,
		"a b": false, "a~1": false, "a:b": false, "@": false, "refs/heads/main": false, "a/-b": true, "a/.b": false,
	} {
		if got := isBranch(b); got != want {
			t.Errorf("isBranch(%q) = %v, want %v", b, got, want)
		}
	}
}

func TestLoad(t *testing.T) {
	p := greenhouse(t)
	dir := t.TempDir()
	path, kept := filepath.Join(dir, "holdfast.yaml"), filepath.Join(dir, "guard", "config.yaml")
	write := func(path, data string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func(wantUsable bool, wantURL, wantError string) {
		t.Helper()
		c, usable, err := Load(path, kept, p)
		if usable != wantUsable || c.Device.URL != wantURL {
			t.Errorf("Load gives %q, usable %v, want %q, %v", c.Device.URL, usable, wantURL, wantUsable)
		}
		if (err == nil) != (wantError == "") || err != nil && !strings.Contains(err.Error(), wantError) {
			t.Errorf("Load gives the error %v, want %q", err, wantError)
		}
	}
	wantKept := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(kept); string(got) != string(seal([]byte(want))) {
			t.Errorf("the kept copy is %q (%v), want %q", got, err, want)
		}
		if files, _ := os.ReadDir(filepath.Dir(kept)); len(files) != 1 {
			t.Errorf("beside the kept copy lies %v", files)
		}
	}
	other := strings.Replace(fourLines, "10.1.2.3", "10.1.2.4", 1)

	load(false, "", "no such file")
	write(path, "device: [")
	load(false, "", path+":1:1: not valid YAML")
	write(path, fourLines)
	load(true, "http://10.1.2.3", "")
	wantKept(fourLines)

	// The same again writes nothing.
	before, _ := os.Stat(kept)
	load(true, "http://10.1.2.3", "")
	if after, _ := os.Stat(kept); !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Error("an equal copy is written again")
	}

	write(path, other)
	load(true, "http://10.1.2.4", "")
	wantKept(other)
	write(path, "garbage")
	load(true, "http://10.1.2.4", path+":1:1: found \"garbage\"")
	wantKept(other)
	os.Remove(path)
	load(true, "http://10.1.2.4", "no such file")

	// What a power cut in the middle of a copy leaves behind is never read, and is gone after the next copy.
	write(kept+".tmp", other+"# and some more that must not stay behind\n")
	load(true, "http://10.1.2.4", "no such file")
	write(path, fourLines)
	load(true, "http://10.1.2.3", "")
	wantKept(fourLines)

	// A copy that has become invalid is not used, and both files are complained about.
	write(path, "garbage")
	write(kept, string(seal([]byte(other+"x: 1\n"))))
	load(false, "", kept+":5:1: unknown key \"x\"")
	load(false, "", path+":1:1: found \"garbage\"")

	// A copy that cannot be written does not keep a good configuration from being used.
	write(path, fourLines)
	os.Remove(kept)
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	load(true, "http://10.1.2.3", "cannot keep a copy")
	kept = ""
	load(true, "http://10.1.2.3", "")
}
