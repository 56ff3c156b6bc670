package scenario

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/bootslot/api"
	"holdfast/device"
)

// bad says which contents the battery cannot take.
func bad(f device.Fields) bool { return f["lamp"] == "on" && f["pump"] == "on" }

// push declares fields.
func (s *soak) push(message string, f device.Fields, number uint64) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&b, "%s: %s\n", name, f[name])
	}
	if number > 0 {
		fmt.Fprintf(&b, "retry: %d\n", number)
		s.number = max(s.number, number)
	}
	if err := s.write("greenhouse.yaml", b.String()); err != nil {
		return err
	}
	s.broken = false
	rev, err := s.commit(message, false)
	if err != nil {
		return err
	}
	s.tell("%.8s declares %v retry %d", rev, f, number)
	s.contents = append(s.contents, f)
	s.book.numbers[rev] = number
	return nil
}

func (s *soak) write(name, text string) error {
	path := filepath.Join(s.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// commit makes the folder a revision that declares what the newest one did, unless the caller says otherwise.
func (s *soak) commit(message string, orphan bool) (string, error) {
	rev, err := s.w.upstream.commit(s.folder, message, orphan)
	if !s.broken {
		s.book.numbers[rev] = s.book.numbers[s.declared]
		s.declared = rev
	}
	return rev, err
}

// content is a random one.
func (s *soak) content(wanted func(device.Fields) bool) device.Fields {
	for {
		f := device.Fields{}
		for _, name := range []string{"pump", "fan", "vent", "lamp"} {
			f[name] = []string{"off", "on"}[s.r.IntN(2)]
		}
		f["door"] = []string{"closed", "open"}[s.r.IntN(2)]
		if wanted(f) {
			return f
		}
	}
}

func good(f device.Fields) bool { return !bad(f) }

func (s *soak) wellBattery() error {
	return s.w.battery.set([]string{"sags-with", "lamp=on", "pump=on"})
}

// operator runs a command as somebody on the board would. That it is refused, or nobody answers, is part of the weather.
func (s *soak) operator(args ...string) error {
	if _, msg, err := s.w.holdfast(append(args, "--config", s.w.configFile("agent"))...); err != nil {
		s.tell("holdfast %s: %v: %s", strings.Join(args, " "), err, strings.TrimSpace(string(msg)))
		s.counts["commands that were refused"]++
	}
	return nil
}

// minutes is a random time.
func (s *soak) minutes(lo, hi float64) time.Duration {
	return time.Duration((lo + s.r.Float64()*(hi-lo)) * float64(time.Minute))
}

// weatherKind is something that can happen.
type weatherKind struct {
	name   string
	weight float64
	harsh  bool
	do     func(*soak) error
}

var kinds = []weatherKind{
	{"another device's commit", 30, false, func(s *soak) error {
		s.nextOther++
		if err := s.write(fmt.Sprintf("devices/gh-%02d/greenhouse.yaml", s.r.IntN(40)), fmt.Sprintf("pump: off # %d\n", s.nextOther)); err != nil {
			return err
		}
		_, err := s.commit("another device", false)
		return err
	}},
	{"a good change", 8, false, func(s *soak) error { return s.push("good", s.content(good), 0) }},
	{"a good change past the marks", 4, false, func(s *soak) error { return s.push("good", s.content(good), s.number+1) }},
	{"a bad change", 5, false, func(s *soak) error { return s.push("bad", s.content(bad), 0) }},
	{"a bad change, soon mended", 4, false, func(s *soak) error {
		if err := s.push("bad", s.content(bad), 0); err != nil {
			return err
		}
		return s.later(s.minutes(0.1, 30), "a bad change, soon mended", func() error { return s.push("the fix", s.content(good), 0) })
	}},
	{"an old content again", 4, false, func(s *soak) error { return s.push("again", s.contents[s.r.IntN(len(s.contents))], 0) }},
	{"a raised retry", 3, false, func(s *soak) error {
		return s.push("retry", s.contents[max(0, len(s.contents)-1-s.r.IntN(3))], s.number+1)
	}},
	{"an old retry put back", 1, false, func(s *soak) error {
		return s.push("retry again", s.contents[s.r.IntN(len(s.contents))], s.r.Uint64N(s.number+1))
	}},
	{"a broken file", 1.5, false, func(s *soak) error {
		if err := s.write("greenhouse.yaml", "pump: perhaps\n"); err != nil {
			return err
		}
		s.broken = true
		_, err := s.commit("broken", false)
		return err
	}},
	{"holdfast retry", 1.5, false, func(s *soak) error { return s.operator("retry") }},
	{"holdfast rollback", 1.5, false, func(s *soak) error { return s.operator("rollback") }},
	{"holdfast rollback --to fallback", 0.5, false, func(s *soak) error { return s.operator("rollback", "--to", "fallback") }},
	{"suspend", 1, false, func(s *soak) error {
		args := []string{"suspend", "--for", "2h"}
		if s.r.IntN(3) == 0 {
			args = append(args, "--repair")
		}
		if err := s.operator(args...); err != nil {
			return err
		}
		return s.later(s.minutes(5, 130), "suspend", func() error { return s.operator("resume") })
	}},
	{"a rewritten history", 0.7, false, func(s *soak) error {
		_, err := s.commit("rewritten", true)
		return err
	}},
	{"no branch", 0.5, false, func(s *soak) error {
		head := s.w.upstream.head()
		if head == "" {
			return nil
		}
		if err := s.w.upstream.deleteBranch(); err != nil {
			return err
		}
		return s.later(s.minutes(5, 60), "no branch", func() error {
			if s.w.upstream.head() != "" {
				return nil // somebody has pushed meanwhile
			}
			return s.w.upstream.reset(head)
		})
	}},

	{"a cut network", 4, false, func(s *soak) error { return s.network(s.minutes(2, 180), "a cut network", true) }},
	{"a long cut network", 0.4, false, func(s *soak) error {
		return s.network(s.minutes(600, 2880), "a long cut network", true)
	}},
	{"a slow network", 2, false, func(s *soak) error {
		return s.network(s.minutes(60, 240), "a slow network", false, toxic{"latency", "downstream", map[string]any{"latency": 200}},
			toxic{"bandwidth", "downstream", map[string]any{"rate": 4}})
	}},
	{"a corrupting network", 2, false, func(s *soak) error {
		return s.network(s.minutes(30, 240), "a corrupting network", false, toxic{"corrupt", "downstream", map[string]any{"from": 350, "every": 61}})
	}},
	{"a stalling network", 1, false, func(s *soak) error {
		return s.network(s.minutes(30, 240), "a stalling network", false, toxic{"stall", "downstream", map[string]any{"after": s.r.IntN(700)}})
	}},
	{"a broken forge", 2, false, func(s *soak) error {
		s.w.upstream.forge.answers([]string{"portal", "500", "401", "404"}[s.r.IntN(4)])
		return s.later(s.minutes(15, 120), "a broken forge", func() error { s.w.upstream.forge.answers("ok"); return nil })
	}},

	{"drift", 10, false, func(s *soak) error {
		f := s.content(func(device.Fields) bool { return true })
		name := slices.Sorted(maps.Keys(f))[s.r.IntN(len(f))]
		return s.bench("POST", "/sim/set", fmt.Sprintf(`{"actuators": {%q: %q}}`, name, f[name]))
	}},
	{"a device that errs", 2, false, func(s *soak) error {
		faults := []string{`{"kind": "hang"}`, `{"kind": "hang", "on": "write", "applied": true}`, `{"kind": "drop"}`, `{"kind": "status", "status": 500}`,
			`{"kind": "status", "status": 503, "on": "write"}`, `{"kind": "delay", "delay": "200ms"}`, `{"kind": "malformed"}`, `{"kind": "refuse", "actuator": "lamp", "value": "on"}`,
			`{"kind": "refuse", "actuator": "fan"}`, `{"kind": "ignore", "actuator": "vent"}`, `{"kind": "echo", "actuator": "door", "value": "ajar"}`}
		if err := s.bench("POST", "/sim/faults", faults[s.r.IntN(len(faults))]); err != nil {
			return err
		}
		return s.later(s.minutes(1, 6), "a device that errs", func() error { return s.bench("DELETE", "/sim/faults", "") })
	}},
	{"a device that restarts", 2, false, func(s *soak) error {
		if err := s.kill("greenhouse"); err != nil {
			return err
		}
		return s.later(s.minutes(0.1, 5), "a device that restarts", func() error { return s.start("greenhouse") })
	}},
	{"a sick battery", 1, false, func(s *soak) error {
		if err := s.w.battery.set([]string{[]string{"sags", "gone"}[s.r.IntN(2)]}); err != nil {
			return err
		}
		return s.later(s.minutes(1, 90), "a sick battery", s.wellBattery)
	}},
	{"a battery that sickens in a trial", 1, false, func(s *soak) error {
		if s.lasts("a sick battery") {
			return nil
		}
		if in, err := s.inTrial(); err != nil || !in {
			return err
		}
		if err := s.w.battery.set([]string{"sags"}); err != nil {
			return err
		}
		return s.later(s.minutes(15, 90), "a sick battery", s.wellBattery)
	}},
	{"another wall clock", 2, false, func(s *soak) error {
		wall := []time.Duration{0, -30 * time.Minute, 26 * time.Hour, -450_000 * time.Hour, 90_000 * time.Hour}[s.r.IntN(5)]
		return s.w.setClock(wall, s.w.uptime)
	}},
	{"SIGHUP", 1, false, func(s *soak) error {
		for _, who := range []string{"agent", "guard"} {
			if s.w.procs[who].state() == "running" {
				if err := s.w.signal(who, syscall.SIGHUP); err != nil {
					return err
				}
			}
		}
		return nil
	}},

	{"a killed process", 4, true, func(s *soak) error {
		who := s.either()
		if err := s.kill(who); err != nil {
			return err
		}
		return s.later(s.minutes(0.1, 60), "a killed process", func() error { return s.start(who) })
	}},
	{"an upgrade", 2, true, func(s *soak) error {
		who := s.either()
		if s.w.procs[who].state() != "running" {
			return nil
		}
		s.account(who)
		if err := s.w.end(who, syscall.SIGTERM); err != nil {
			return err
		}
		return s.start(who)
	}},
	{"a stopped process", 1, true, func(s *soak) error {
		who := s.either()
		if s.w.procs[who].state() != "running" {
			return nil
		}
		how := []string{who}
		if moment := []string{"", beforeWrite, afterRead}[s.r.IntN(3)]; moment != "" {
			how = append(how, moment)
		}
		if err := s.w.freeze(how); err != nil {
			return err
		}
		return s.later(s.minutes(1, 8), "a stopped process", func() error {
			if s.w.procs[who].state() == "dead" {
				s.w.recorders[who].arm("")
				return nil
			}
			return s.w.thaw(who)
		})
	}},
	{"an interrupted trial", 3, true, func(s *soak) error {
		if in, err := s.inTrial(); err != nil || !in {
			return err
		}
		who := []string{"guard", "agent", "greenhouse", "everything"}[s.r.IntN(4)]
		s.tell("%s dies in the trial", who)
		if who == "everything" {
			if err := s.cutPower(); err != nil {
				return err
			}
		} else if err := s.kill(who); err != nil {
			return err
		}
		return s.later(s.minutes(0.1, 12), "an interrupted trial", func() error { return s.start(processNames...) })
	}},
	{"a power cut", 2, true, func(s *soak) error {
		if err := s.cutPower(); err != nil {
			return err
		}
		return s.later(s.minutes(0.1, 30), "a power cut", func() error { return s.start(processNames...) })
	}},
	{"a lost clone", 1, true, func(s *soak) error { return s.damage("agent", "clone.db") }},
	{"a damaged ledger.db", 0.5, true, func(s *soak) error { return s.damage("guard", "ledger.db") }},
	{"a damaged ledger.json", 0.5, true, func(s *soak) error { return s.damage("guard", "ledger.json") }},
	{"a full disk", 1, true, func(s *soak) error { return s.fullDisk() }},
}

// bench does something to the device, if it runs. One that does not forgets all of it anyway.
func (s *soak) bench(method, path, body string) error {
	if s.w.procs["greenhouse"].state() == "dead" {
		return nil
	}
	return s.w.sim(method, path, body)
}

// inTrial declares something new and waits for its trial, for half an hour at most.
func (s *soak) inTrial() (bool, error) {
	if s.offline > 0 {
		return false, nil
	}
	if err := s.push("to be tried", s.content(func(f device.Fields) bool { return !f.Equal(s.contents[len(s.contents)-1]) }), s.number+1); err != nil {
		return false, err
	}
	for began := s.p.now(); s.p.now()-began < 30*time.Minute; {
		if err := s.live(s.p.now() + time.Minute); err != nil {
			return false, err
		}
		if s.w.procs["guard"].state() != "running" {
			continue
		}
		if g, err := ask[api.State](s, "guard", "/v1/state"); err == nil && g.Phase == api.PhaseTrial {
			return true, nil
		}
	}
	return false, nil
}

func (s *soak) either() string { return []string{"agent", "guard"}[s.r.IntN(2)] }

// network sets the weather of the link.
func (s *soak) network(long time.Duration, what string, cut bool, toxics ...toxic) error {
	for _, other := range []string{"a cut network", "a long cut network", "a slow network", "a corrupting network", "a stalling network"} {
		if s.lasts(other) {
			return nil
		}
	}
	if what == "a long cut network" {
		s.offline = s.p.now() + long
	}
	if cut {
		s.w.upstream.cut()
	} else if err := s.w.upstream.setWeather(toxics...); err != nil {
		return err
	}
	return s.later(long, what, func() error { s.offline = 0; return s.w.upstream.setWeather() })
}

// start starts those that are not running.
func (s *soak) start(names ...string) error {
	for _, who := range names {
		if s.w.procs[who].state() != "dead" {
			continue
		}
		if err := s.p.forget(); err != nil {
			return err
		}
		if err := s.w.start(who); err != nil {
			return err
		}
		s.births[who]++
	}
	return nil
}

// kill is kill -9.
func (s *soak) kill(who string) error {
	if s.w.procs[who].state() == "dead" {
		return nil
	}
	s.account(who)
	return s.w.end(who, syscall.SIGKILL)
}

func (s *soak) cutPower() error {
	for _, who := range processNames {
		if s.w.procs[who].state() != "dead" {
			s.account(who)
		}
	}
	return s.w.powerCut()
}

// damage kills a process, does something to its file and starts it.
func (s *soak) damage(who, file string) error {
	if err := s.kill(who); err != nil {
		return err
	}
	how := []string{"truncate", "flip", "zero", "junk", "empty", "delete"}[s.r.IntN(6)]
	s.tell("%s: %s", file, how)
	var err error
	if how == "delete" {
		err = s.w.delete(file)
	} else {
		err = s.w.corrupt(file, how)
	}
	if err != nil {
		return err
	}
	if file == "ledger.db" {
		s.book.seq = 0 // the history begins anew
	}
	return s.start(who)
}

// fullDisk moves the board's files to a disk that is full for a while, and back. Power is off meanwhile; what is written there is memory and does not count.
func (s *soak) fullDisk() error {
	move := func(from, to string) error {
		out, err := exec.Command("cp", "-a", from+"/agent", from+"/guard", to).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	d, err := newDisk(s.w.stateDir(), "16M")
	if errors.Is(err, errNoNamespaces) && os.Getenv("CI") != "true" {
		s.counts["left out: "+err.Error()]++
		return nil
	} else if err != nil {
		return err
	}
	if err := s.cutPower(); err != nil {
		return err
	}
	if err := move(s.w.stateDir(), d.root()); err != nil {
		return err
	}
	s.w.disk = d
	if err := s.start(processNames...); err != nil {
		return err
	}
	s.full = true
	if err := d.fill(); err != nil {
		return err
	}
	return s.later(s.minutes(5, 60), "a full disk", func() error {
		if err := d.free(); err != nil {
			return err
		}
		if err := s.live(s.p.now() + s.minutes(5, 20)); err != nil {
			return err
		}
		if err := s.cutPower(); err != nil {
			return err
		}
		for _, part := range []string{"agent", "guard"} {
			if err := os.RemoveAll(filepath.Join(s.w.stateDir(), part)); err != nil {
				return err
			}
		}
		if err := move(d.root(), s.w.stateDir()); err != nil {
			return err
		}
		s.w.disk = nil
		d.close()
		return s.start(processNames...)
	})
}
