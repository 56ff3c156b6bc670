package config

import (
	"io/fs"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"holdfast/device"
	"holdfast/device/strictyaml"
)

// Limit is the size of the largest configuration that is read, in bytes.
const Limit = 64 << 10

// Parse reads a configuration for a device of profile p. All errors come together.
func Parse(name string, data []byte, p device.Profile) (Config, error) {
	root := strictyaml.Parse(name, data, Limit)
	c := Default(p)

	m := root.Required("device").Map()
	d := &c.Device
	d.URL = m.Required("url").Text("", "the device's URL, such as http://127.0.0.1:8080", device.IsURL)
	d.TokenFile = path(m.Optional("tokenFile"), "")
	d.Interval = m.Optional("interval").Duration(d.Interval)
	d.Timeout = m.Optional("timeout").Duration(d.Timeout)

	parseRepository(root.Required("repository").Map(), &c.Repository)
	parseGuard(root.Optional("guard").Map(), &c, p)

	c.State = path(root.Optional("state"), c.State)
	run := root.Optional("run")
	c.Run = path(run, c.Run)
	if c.Run == c.State {
		run.Errorf("found the folder of state, must be another: what is in run is gone after a boot")
	}
	// The kernel takes no more (sockaddr_un, unix(7)); bind would only say "invalid argument".
	if n := len(c.AgentSocket()); n > 107 {
		run.Errorf("found a folder with which sockets have a path of %d bytes, must be at most 107", n)
	}
	if err := root.Err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// path reads the path of a file or folder of this board.
func path(v strictyaml.Value, def string) string {
	return v.Text(def, "an absolute path, without .. or //", isPath)
}

func isPath(s string) bool { return filepath.IsAbs(s) && filepath.Clean(s) == s }

func parseRepository(m *strictyaml.Map, r *Repository) {
	u := m.Required("url")
	r.URL = u.Text("", "an http://, https://, ssh:// or file:// URL, user@host:path, or an absolute path", isRepository)
	if parsed, err := url.Parse(r.URL); err == nil && parsed.User != nil {
		if _, secret := parsed.User.Password(); secret {
			u.Errorf("found a password in the URL, must be in a file that tokenFile names: URLs end up in logs")
		}
	}
	r.Path = m.Optional("path").Text(r.Path, "a path inside the repository, such as devices/gh-0042/greenhouse.yaml",
		func(s string) bool { return fs.ValidPath(s) && s != "." })
	r.Branch = m.Optional("branch").Text(r.Branch, "a branch's name, such as main, without refs/heads/", isBranch)
	r.Interval = m.Optional("interval").Duration(r.Interval)
	r.History = m.Optional("history").OneOf(r.History, "fast-forward", "follow")
	r.TokenFile = path(m.Optional("tokenFile"), "")
	r.SSHKeyFile = path(m.Optional("sshKeyFile"), "")
	r.KnownHostsFile = path(m.Optional("knownHostsFile"), "")
	r.CAFile = path(m.Optional("caFile"), "")
}

var (
	scpLike = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*@([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-fA-F:.]+\]):[^\s:-]\S*$`)
	refPart = regexp.MustCompile(`^[A-Za-z0-9_@+#=-][A-Za-z0-9_@+#=.-]*$`)
)

// isRepository accepts what the clone can fetch from.
func isRepository(s string) bool {
	if isPath(s) || scpLike.MatchString(s) {
		return true
	}
	u, err := url.Parse(s)
	if err != nil || strings.ContainsAny(s, "?# ") || u.Opaque != "" {
		return false
	}
	switch u.Scheme {
	case "http", "https", "ssh":
		return u.Hostname() != "" && u.Hostname()[0] != '-' && strings.Trim(u.Path, "/") != ""
	case "file":
		return u.Host == "" && isPath(u.Path)
	}
	return false
}

// isBranch is a little stricter than git-check-ref-format(1).
func isBranch(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if !refPart.MatchString(part) || strings.Contains(part, "..") || strings.HasSuffix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return s != "@" && s[0] != '-' && !strings.HasPrefix(s, "refs/")
}

func parseGuard(m *strictyaml.Map, c *Config, p device.Profile) {
	g := &c.Guard
	window, soak, interval := m.Optional("window"), m.Optional("soak"), m.Optional("interval")
	g.Window, g.Soak, g.Interval = window.Duration(g.Window), soak.Duration(g.Soak), interval.Duration(g.Interval)
	g.Attempts = int(m.Optional("attempts").Int(int64(g.Attempts), 1, 10))
	g.Recover = m.Optional("recover").Duration(g.Recover)
	if v := m.Optional("pauses"); v.Present() {
		list := v.List("a list of durations, such as [1m, 5m, 15m]")
		if n := len(list); n == 0 || n > 10 {
			v.Errorf("found %d pauses, must be 1 to 10", n)
		}
		g.Pauses = nil
		for _, e := range list {
			g.Pauses = append(g.Pauses, e.Duration(time.Minute))
		}
	}
	g.Hold = m.Optional("hold").OneOf(g.Hold, "fields", "release")
	g.DiskFloor = m.Optional("diskFloor").Size(g.DiskFloor)

	// Why three and two: a heartbeat may be lost, the device must be written and read back, the soak starts
	// only then, and one bad sample restarts it.
	if least := 3*c.Device.Interval + 2*g.Soak; g.Window < least {
		window.Errorf("found %v, must be at least %v: 3 device intervals of %v + 2 soaks of %v", g.Window, least, c.Device.Interval, g.Soak)
	}
	// A gap between samples that is longer than the soak makes a trial inconclusive: then each would be.
	if g.Interval > g.Soak/2 {
		interval.Errorf("found %v, must be at most half of the soak of %v", g.Interval, g.Soak)
	}
	for _, v := range m.Optional("checks").List("a list of checks, such as {name: not-too-hot, reading: temperature, max: 38}") {
		g.Checks = append(g.Checks, parseCheck(v.Map(), c, p))
	}
}

var (
	checkName = regexp.MustCompile(`^[a-z0-9-]+$`)
	unitName  = regexp.MustCompile(`^[A-Za-z0-9:_.@\\-]+\.(service|socket|target|timer|mount|path|device|swap)$`)
)

func parseCheck(m *strictyaml.Map, c *Config, p device.Profile) Check {
	var k Check
	name := m.Required("name")
	k.Name = name.Text("", "a name of a-z, 0-9 and -", checkName.MatchString)
	switch {
	case slices.Contains(BuiltIn, k.Name):
		name.Errorf("found the name of a built-in check, must be another than %s", strings.Join(BuiltIn, ", "))
	case k.Name != "" && slices.ContainsFunc(c.Guard.Checks, func(o Check) bool { return o.Name == k.Name }):
		name.Errorf("duplicate check %q, must be there once", k.Name)
	}
	k.Wanted = m.Optional("wanted").Bool(false)
	soak := m.Optional("soak")
	if k.Soak = soak.Duration(0); k.Soak != 0 && k.Soak < c.Guard.Soak {
		soak.Errorf("found %v, must be at least guard.soak, %v", k.Soak, c.Guard.Soak)
	}
	k.Timeout = m.Optional("timeout").Duration(5 * time.Second)

	kinds := map[string]strictyaml.Value{}
	var found []string
	for _, kind := range []string{"reading", "http", "command", "unit", "freeDisk"} {
		if kinds[kind] = m.Optional(kind); kinds[kind].Present() {
			found = append(found, kind)
		}
	}
	switch len(found) {
	case 0:
		m.Errorf("found no kind of check, must be one of reading, http, command, unit, freeDisk")
	case 1:
	default:
		kinds[found[1]].Errorf("found %s in one check, must be one of them", strings.Join(found, " and "))
	}
	parseReading(m, kinds["reading"], &k, p)
	parseHTTP(kinds["http"], &k, c.Device)
	command := kinds["command"]
	words := command.List("a list of a program and its arguments")
	for _, v := range words {
		k.Command = append(k.Command, v.Text("", "text", func(string) bool { return true }))
	}
	if words != nil && (len(words) == 0 || !isPath(k.Command[0])) {
		command.Errorf("found no absolute path at its start, must be a list such as [/usr/lib/holdfast/modem-check, --quick]")
	}
	k.Unit = kinds["unit"].Text("", "a systemd unit, such as modem.service", unitName.MatchString)
	k.FreeDisk = path(kinds["freeDisk"], "")
	minFree := m.Optional("minFree")
	k.MinFree = minFree.Size(0)
	switch {
	case kinds["freeDisk"].Present() && !minFree.Present():
		kinds["freeDisk"].Errorf("found no minFree beside it, must be there: a size, such as 16MiB")
	case minFree.Present() && !kinds["freeDisk"].Present():
		minFree.Errorf("found without freeDisk, must go with it")
	case minFree.Present() && k.MinFree == 0:
		minFree.Errorf("found 0, must be more: such a check never fails")
	}
	return k
}

// parseReading reads the limits of a check of a reading. A fatal limit lies beyond the ordinary one: it convicts at once
// what would be convicted anyway.
func parseReading(m *strictyaml.Map, reading strictyaml.Value, k *Check, p device.Profile) {
	var names []string
	for _, r := range p.Readings {
		names = append(names, r.Name)
	}
	k.Reading = reading.OneOf("", names...)
	limit := map[string]strictyaml.Value{}
	for _, l := range []string{"min", "max", "fatalMin", "fatalMax"} {
		if limit[l] = m.Optional(l); limit[l].Present() && !reading.Present() {
			limit[l].Errorf("found without reading, must go with it")
		}
	}
	k.Min, k.Max, k.FatalMin, k.FatalMax = limit["min"].Float(), limit["max"].Float(), limit["fatalMin"].Float(), limit["fatalMax"].Float()
	if reading.Present() && !limit["min"].Present() && !limit["max"].Present() {
		reading.Errorf("found no limit beside it, must be min, max or both")
	}
	inOrder := func(low, high string, a, b *float64) {
		if a != nil && b != nil && *a >= *b {
			limit[high].Errorf("found %v, must be more than %s, %v", *b, low, *a)
		}
	}
	inOrder("min", "max", k.Min, k.Max)
	inOrder("max", "fatalMax", k.Max, k.FatalMax)
	inOrder("fatalMin", "min", k.FatalMin, k.Min)
	for fatal, plain := range map[string]string{"fatalMin": "min", "fatalMax": "max"} {
		switch {
		case !limit[fatal].Present():
		case k.Wanted:
			limit[fatal].Errorf("found in a wanted check, must be in a required one: a wanted check only reports")
		case !limit[plain].Present():
			limit[fatal].Errorf("found without %s, must go with it", plain)
		}
	}
}

// parseHTTP reads the URL of a check. One that can convict may not depend on the link: the loss of it would look like
// a bad change (docs/design.md, "Time and checks").
func parseHTTP(v strictyaml.Value, k *Check, d Device) {
	k.HTTP = v.Text("", "a URL of http or https without user and password, such as http://127.0.0.1:9090/ready", func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && u.Fragment == ""
	})
	if k.HTTP == "" || k.Wanted {
		return
	}
	host := hostname(k.HTTP)
	if own := hostname(d.URL); !isLoopback(host) && host != own {
		v.Errorf("found the host %s in a required check, must be this board (localhost, 127.0.0.1, ::1) or its device (%s): "+
			"losing the link may delay things, it may never convict; with wanted: true the check only reports", host, own)
	}
}

func hostname(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// isLoopback knows this board by the names that need neither a network nor a name server.
func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}
