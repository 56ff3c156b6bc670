package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// waitLimit is generous: a wait that is right ends long before it, and none is measured by it.
func waitLimit() time.Duration {
	if raceBuild {
		return 180 * time.Second
	}
	return 60 * time.Second
}

// verb does something to the world. An error fails the scenario.
type verb func(w *world, ts *testscript.TestScript, args []string) error

var verbs = map[string]verb{
	"push":          func(w *world, ts *testscript.TestScript, args []string) error { return w.push(ts, args, false, false) },
	"re-push":       func(w *world, ts *testscript.TestScript, args []string) error { return w.push(ts, args, true, false) },
	"force-push":    func(w *world, ts *testscript.TestScript, args []string) error { return w.push(ts, args, false, true) },
	"reset-branch":  plain(1, func(w *world, a []string) error { return w.upstream.reset(a[0]) }),
	"delete-branch": plain(0, func(w *world, _ []string) error { return w.upstream.deleteBranch() }),
	"rename-branch": plain(1, func(w *world, a []string) error { return w.upstream.rename(a[0]) }),

	"cut-network": plain(0, func(w *world, _ []string) error { w.upstream.cut(); return nil }),
	"restore-network": plain(0, func(w *world, _ []string) error {
		w.upstream.forge.answers("ok")
		return w.upstream.setWeather()
	}),
	"stall-network": weather(map[string]string{"after": "0"}, func(o map[string]string) []toxic { return []toxic{{"stall", "downstream", numbers(o)}} }),
	"corrupt-network": weather(map[string]string{"from": "350", "every": "61"}, func(o map[string]string) []toxic {
		return []toxic{{"corrupt", "downstream", numbers(o)}}
	}),
	"slow-network": weather(map[string]string{"rate": "4", "latency": "300ms"}, func(o map[string]string) []toxic {
		d, _ := time.ParseDuration(o["latency"])
		rate, _ := strconv.Atoi(o["rate"])
		return []toxic{
			{"latency", "downstream", map[string]any{"latency": d.Milliseconds(), "jitter": d.Milliseconds() / 3}},
			{"bandwidth", "downstream", map[string]any{"rate": rate}},
		}
	}),
	"upstream-answers": plain(1, func(w *world, a []string) error {
		if !answers.MatchString(a[0]) {
			return fmt.Errorf("%q is no answer", a[0])
		}
		w.upstream.forge.answers(a[0])
		return nil
	}),
	"upstream-token": plain(2, func(w *world, a []string) error {
		code, err := strconv.Atoi(a[1])
		w.upstream.forge.set(func() { w.upstream.forge.token, w.upstream.forge.refusal = a[0], code })
		return err
	}),
	"upstream-config":   plain(2, func(w *world, a []string) error { return w.upstream.configure(a[0], a[1]) }),
	"upstream-branches": plain(1, func(w *world, a []string) error { return w.upstream.branches(a[0]) }),
	"ssh-host-key":      plain(0, func(w *world, _ []string) error { return w.upstream.ssh.newHostKey() }),
	"make-known":        plain(0, func(w *world, _ []string) error { return w.upstream.ssh.makeKnown() }),

	"page": func(w *world, ts *testscript.TestScript, args []string) error {
		if len(args) != 2 {
			return fmt.Errorf("page FILE SECTION, got %q", args)
		}
		return w.page(args[0], args[1])
	},

	"big-file":      plain(2, func(w *world, a []string) error { return w.bigFile(a[0], a[1]) }),
	"other-devices": plain(3, func(w *world, a []string) error { return w.otherDevices(a[0], a[1], a[2]) }),

	"steady": func(w *world, ts *testscript.TestScript, args []string) error { return w.waitSteady(args) },
	"fault":  func(w *world, ts *testscript.TestScript, args []string) error { return w.fault(args) },
	"fetch":  plain(0, func(w *world, _ []string) error { _, err := w.fetch(); return err }),
	"bad-fetches": func(w *world, ts *testscript.TestScript, args []string) error {
		n := 0
		if len(args) == 2 {
			n, _ = strconv.Atoi(args[1])
		}
		if n == 0 || args[0] != "cut" && args[0] != "damaged" {
			return fmt.Errorf("bad-fetches cut|damaged N, got %q", args)
		}
		return w.badFetches(ts, args[0], n)
	},
	"cut-power-in-replacing": plain(1, func(w *world, a []string) error { return w.cutPowerWhile(a[0]) }),
	"count-traffic":          plain(0, func(w *world, _ []string) error { w.traffic = w.upstream.out.Load(); return nil }),
	"traffic": plain(1, func(w *world, a []string) error {
		return atMost(a[0], int(w.upstream.out.Load()-w.traffic), "came from upstream")
	}),
	"peak-memory": plain(2, func(w *world, a []string) error {
		if raceBuild {
			return nil // it takes several times as much
		}
		kB, err := w.procNumber(a[0], "status", "VmHWM")
		return errors.Join(err, atMost(a[1], kB<<10, "of memory was the largest size of "+a[0]))
	}),

	"boot":      plain(0, func(w *world, _ []string) error { return w.boot() }),
	"start":     plain(1, func(w *world, a []string) error { return w.start(a[0]) }),
	"crash":     plain(1, func(w *world, a []string) error { return w.end(a[0], syscall.SIGKILL) }),
	"terminate": plain(1, func(w *world, a []string) error { return w.end(a[0], syscall.SIGTERM) }),
	"restart": plain(1, func(w *world, a []string) error {
		if err := w.end(a[0], syscall.SIGTERM); err != nil {
			return err
		}
		return w.start(a[0])
	}),
	"reload":    plain(1, func(w *world, a []string) error { return w.signal(a[0], syscall.SIGHUP) }),
	"freeze":    func(w *world, ts *testscript.TestScript, args []string) error { return w.freeze(args) },
	"thaw":      plain(1, func(w *world, a []string) error { return w.thaw(a[0]) }),
	"power-cut": plain(0, func(w *world, _ []string) error { return w.powerCut() }),
	"clock":     func(w *world, ts *testscript.TestScript, args []string) error { return w.moveClock(args) },

	"small-disk": func(w *world, ts *testscript.TestScript, args []string) (err error) {
		size := "8M"
		if len(args) == 1 {
			size = strings.TrimSuffix(args[0], "iB")
		}
		w.disk, err = newDisk(w.stateDir(), size)
		return err
	},
	"disk-full":  onDisk(func(d *disk) error { return d.fill() }),
	"disk-free":  onDisk(func(d *disk) error { return d.free() }),
	"read-only":  onDisk(func(d *disk) error { return d.remount("ro") }),
	"read-write": onDisk(func(d *disk) error { return d.remount("rw") }),
	"corrupt":    plain(2, func(w *world, a []string) error { return w.corrupt(a[0], a[1]) }),
	"delete":     plain(1, func(w *world, a []string) error { return w.delete(a[0]) }),
	"configure":  func(w *world, ts *testscript.TestScript, args []string) error { return w.configure(args) },

	"device": plain(2, func(w *world, a []string) error {
		return w.sim("POST", "/sim/set", fmt.Sprintf(`{"actuators": {%q: %q}}`, a[0], a[1]))
	}),
	"device-fault":   plain(1, func(w *world, a []string) error { return w.sim("POST", "/sim/faults", a[0]) }),
	"device-heal":    plain(0, func(w *world, _ []string) error { return w.sim("DELETE", "/sim/faults", "") }),
	"device-weather": plain(1, func(w *world, a []string) error { return w.sim("POST", "/sim/set", a[0]) }),
	"battery":        func(w *world, ts *testscript.TestScript, args []string) error { return w.battery.set(args) },
	"device-speed":   plain(1, func(w *world, a []string) error { w.speed = a[0]; return nil }),

	"wait-for":     func(w *world, ts *testscript.TestScript, args []string) error { return w.waitFor(args, waitLimit()) },
	"expect":       func(w *world, ts *testscript.TestScript, args []string) error { return w.waitFor(args, 0) },
	"idle":         func(w *world, ts *testscript.TestScript, args []string) error { return w.idle(args) },
	"trials":       plain(2, func(w *world, a []string) error { return w.trials(a[0], a[1]) }),
	"count-writes": plain(0, func(w *world, _ []string) error { w.countWrites(); return nil }),
	"writes":       func(w *world, ts *testscript.TestScript, args []string) error { return w.writes(args) },
	"count-files": plain(0, func(w *world, _ []string) (err error) {
		w.stateFiles, err = w.filesNow()
		return err
	}),
	"files-untouched": plain(0, func(w *world, _ []string) error { return w.compareFiles(w.stateFiles, untouched) }),
	"files-no-larger": plain(0, func(w *world, _ []string) error { return w.compareFiles(w.stateFiles, noLarger) }),
	"guard-api":       func(w *world, ts *testscript.TestScript, args []string) error { return w.guardAPI(ts, args) },
}

// plain is a verb with a fixed number of words.
func plain(n int, f func(w *world, args []string) error) verb {
	return func(w *world, ts *testscript.TestScript, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%d words wanted, got %q", n, args)
		}
		return f(w, args)
	}
}

func onDisk(f func(*disk) error) verb {
	return plain(0, func(w *world, _ []string) error {
		if w.disk == nil {
			return fmt.Errorf("there is no small-disk")
		}
		return f(w.disk)
	})
}

// weather is a verb that sets toxics from KEY=VALUE words.
func weather(defaults map[string]string, f func(map[string]string) []toxic) verb {
	return func(w *world, ts *testscript.TestScript, args []string) error {
		o := map[string]string{}
		for k, v := range defaults {
			o[k] = v
		}
		for _, a := range args {
			k, v, ok := strings.Cut(a, "=")
			if _, known := o[k]; !ok || !known {
				return fmt.Errorf("%q is no option", a)
			}
			o[k] = v
		}
		return w.upstream.setWeather(f(o)...)
	}
}

func numbers(o map[string]string) map[string]any {
	m := map[string]any{}
	for k, v := range o {
		m[k], _ = strconv.Atoi(v)
	}
	return m
}

func (w *world) push(ts *testscript.TestScript, args []string, again, force bool) error {
	if len(args) == 0 {
		return fmt.Errorf("push what?")
	}
	name, message := args[0], strings.Join(args[1:], " ")
	if message == "" {
		message = name
	}
	folder := filepath.Join(w.archive, name)
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("the archive has no folder %s: %w", name, err)
	}
	if again {
		other := w.path(fmt.Sprintf("again%d", w.upstream.pushes))
		if err := os.CopyFS(other, os.DirFS(folder)); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(other, "README"), fmt.Appendf(nil, "Nothing new here, for the %d. time.\n", w.upstream.pushes), 0o666); err != nil {
			return err
		}
		folder = other
	}
	rev, err := w.upstream.commit(folder, message, force)
	if err != nil {
		return err
	}
	w.story.note("revision %.8s", rev)
	w.pushed = name
	ts.Setenv("REV", rev)
	ts.Setenv("REV_"+strings.ReplaceAll(name, "-", "_"), rev)
	return nil
}

func (w *world) signal(who string, sig syscall.Signal) error {
	p := w.procs[who]
	if p.state() == "dead" {
		return fmt.Errorf("%s is not running", who)
	}
	return p.signal(sig)
}

func (w *world) freeze(args []string) error {
	switch {
	case len(args) == 1:
		return w.signal(args[0], syscall.SIGSTOP)
	case len(args) == 2 && (args[1] == beforeWrite || args[1] == afterRead) && w.recorders[args[0]] != nil:
		w.recorders[args[0]].arm(args[1])
		return nil
	}
	return fmt.Errorf("freeze WHO [before-write|after-read], got %q", args)
}

func (w *world) thaw(who string) error {
	if r := w.recorders[who]; r != nil {
		r.deliver()
	}
	return w.signal(who, syscall.SIGCONT)
}

func (w *world) moveClock(args []string) error {
	wall, uptime := w.wall, w.uptime
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		d, err := time.ParseDuration(v)
		if err != nil {
			return err
		}
		switch k {
		case "wall":
			wall = d
		case "uptime":
			if d < 0 {
				return fmt.Errorf("uptime never goes back")
			}
			uptime += d
		default:
			return fmt.Errorf("%q is neither wall= nor uptime=", a)
		}
	}
	return w.setClock(wall, uptime)
}

// files are the durable ones that scenarios damage, by name.
var files = map[string]string{
	"ledger.db":   "guard/ledger.db",
	"ledger.json": "guard/ledger.json",
	"clone.db":    "agent/clone.db",
}

func (w *world) corrupt(name, how string) error {
	rel, ok := files[name]
	if !ok {
		return fmt.Errorf("%q is none of ledger.db, ledger.json, clone.db", name)
	}
	path := w.inState(rel)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	switch how {
	case "truncate":
		b = b[:len(b)/2]
	case "empty":
		b = nil
	case "zero":
		clear(b)
	case "flip": // one bit in each 512 bytes
		for i := 0; i < len(b); i += 512 {
			b[min(i+rand.IntN(512), len(b)-1)] ^= 1 << rand.IntN(8)
		}
	case "junk":
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
	default:
		return fmt.Errorf("%q is none of truncate, flip, zero, junk, empty", how)
	}
	return os.WriteFile(path, b, 0o600)
}

func (w *world) delete(name string) error {
	if name == "state" {
		for _, d := range []string{"agent", "guard"} {
			if err := os.RemoveAll(w.inState(d)); err != nil {
				return err
			}
		}
		return nil
	}
	rel, ok := files[name]
	if !ok {
		return fmt.Errorf("%q is none of ledger.db, ledger.json, clone.db, state", name)
	}
	return os.Remove(w.inState(rel))
}

// configure replaces the configuration file by one of the archive's, laid over the template. What is not even YAML is appended to
// the file that there is: a slip of somebody's editor.
func (w *world) configure(args []string) error {
	who := []string{"agent", "guard"}
	if len(args) == 2 {
		who, args = args[:1], args[1:]
	}
	if len(args) != 1 || w.recorders[who[0]] == nil {
		return fmt.Errorf("configure [agent|guard] FILE, got %q", args)
	}
	raw, err := os.ReadFile(filepath.Join(w.archive, args[0]))
	if err != nil {
		return err
	}
	for _, p := range who {
		b, err := w.config(p, raw)
		if err != nil {
			old, err := os.ReadFile(w.configFile(p))
			if err != nil {
				return err
			}
			b = append(old, raw...)
		}
		if err := os.WriteFile(w.configFile(p), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) sim(method, path, body string) error {
	_, err := w.device.send(method, path, []byte(body))
	return err
}

// waitFor polls until all conditions hold; a limit of 0 looks once.
func (w *world) waitFor(args []string, limit time.Duration) error {
	cs, err := parseConditions(args)
	if err != nil {
		return err
	}
	began, asked, news := time.Now(), time.Time{}, ""
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 200*time.Millisecond) {
		// The CLI is a process; it is asked when there is something new, and every other second whatever there is.
		last, now := time.Since(began) >= limit, w.news()
		if !last && now == news && time.Since(asked) < 2*time.Second && needStatus(cs) {
			time.Sleep(pause)
			continue
		}
		v := w.look(cs, last)
		if v.status != nil {
			asked, news = time.Now(), now
		}
		left := missing(cs, v)
		if len(left) == 0 {
			return nil
		}
		if err := w.check(); err != nil {
			return err
		}
		if time.Since(began) >= limit {
			return fmt.Errorf("after %v:\n  %s\n%v", time.Since(began).Round(time.Millisecond), strings.Join(left, "\n  "), v)
		}
		time.Sleep(pause)
	}
}

func (w *world) idle(args []string) error {
	if len(args) != 2 || args[1] != "cycles" {
		return fmt.Errorf("idle N cycles, got %q", args)
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	from, _ := w.recorders["agent"].counts()
	// The first one that is counted may have begun before.
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		now, _ := w.recorders["agent"].counts()
		if now-from > n {
			return nil
		}
		if err := w.check(); err != nil {
			return err
		}
		if time.Since(began) > waitLimit()+time.Duration(n)*5*time.Second {
			return fmt.Errorf("the agent has made %d cycles in %v", now-from, time.Since(began))
		}
	}
}

// trials asks the history, and the declared digest of what the folder declares.
func (w *world) trials(name, want string) error {
	digest, err := w.declaredDigest(name)
	if err != nil {
		return err
	}
	out, errOut, err := w.holdfast("history", "--json", "--config", w.configFile("agent"))
	if err != nil {
		return fmt.Errorf("holdfast history: %w: %s", err, errOut)
	}
	n, err := historyTrials(out, digest)
	if err != nil {
		return err
	}
	if strconv.Itoa(n) != want {
		return fmt.Errorf("%s had %d trials, want %s; history:\n%s", name, n, want, out)
	}
	return nil
}

func (w *world) countWrites() {
	for who, r := range w.recorders {
		_, w.countedFrom[who] = r.counts()
	}
}

func (w *world) writes(args []string) error {
	who := []string{"agent", "guard"}
	if len(args) == 2 {
		who, args = args[:1], args[1:]
	}
	if len(args) != 1 || w.recorders[who[0]] == nil {
		return fmt.Errorf("writes [agent|guard] N or <=N, got %q", args)
	}
	n, seen := 0, []string{}
	for _, p := range who {
		_, now := w.recorders[p].counts()
		n += now - w.countedFrom[p]
		seen = append(seen, fmt.Sprintf("%s %d", p, now-w.countedFrom[p]))
	}
	limit, atMost := strings.CutPrefix(args[0], "<=")
	want, err := strconv.Atoi(limit)
	if err != nil {
		return err
	}
	if n > want || n < want && !atMost {
		return fmt.Errorf("%s writes, want %s", strings.Join(seen, ", "), args[0])
	}
	return nil
}

// fileState is what a write to a file changes.
type fileState struct {
	inode, size      uint64
	written, changed syscall.Timespec
}

// filesNow is every file under the state folder.
func (w *world) filesNow() (map[string]fileState, error) {
	all := map[string]fileState{}
	err := filepath.WalkDir(w.inState(), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		st := i.Sys().(*syscall.Stat_t)
		all[path] = fileState{st.Ino, uint64(st.Size), st.Mtim, st.Ctim}
		return nil
	})
	return all, err
}

func untouched(was, is fileState) bool { return was == is }

func noLarger(was, is fileState) bool { return is.size <= was.size }

// compareFiles reports files that have changed too much, and new ones.
func (w *world) compareFiles(before map[string]fileState, same func(was, is fileState) bool) error {
	now, err := w.filesNow()
	if err != nil {
		return err
	}
	if len(before) < 3 {
		return fmt.Errorf("there were %d files", len(before))
	}
	var errs []error
	for path, was := range before {
		if is := now[path]; !same(was, is) {
			errs = append(errs, fmt.Errorf("%s was %+v, is %+v", path, was, is))
		}
	}
	for path := range now {
		if _, was := before[path]; !was {
			errs = append(errs, fmt.Errorf("%s is new", path))
		}
	}
	return errors.Join(errs...)
}

// bigFile makes a file of zeros in the archive; size is like 200MB.
func (w *world) bigFile(name, size string) error {
	n, err := bytesOf(size)
	if err != nil {
		return err
	}
	name = filepath.Join(w.archive, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, nil, 0o666)); err != nil {
		return err
	}
	return os.Truncate(name, int64(n))
}

// otherDevices adds the files of n other devices to a folder of the archive, of size bytes each.
func (w *world) otherDevices(folder, n, size string) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	length, err := bytesOf(size)
	if err != nil {
		return err
	}
	dir := filepath.Join(w.archive, folder)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for i := range count {
		name := fmt.Sprintf("greenhouse-%06d-of-the-growers-at-the-lower-river.yaml", i)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(randomText(length)), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// bytesOf reads a number of bytes such as 700, 64kB or 200MB.
func bytesOf(s string) (int, error) {
	unit := 1
	for suffix, n := range map[string]int{"kB": 1000, "MB": 1000_000} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = rest, n
		}
	}
	n, err := strconv.Atoi(s)
	return n * unit, err
}

// atMost reports that there are more bytes than a limit such as <=64MB.
func atMost(limit string, n int, what string) error {
	rest, ok := strings.CutPrefix(limit, "<=")
	most, err := bytesOf(rest)
	if !ok || err != nil {
		return fmt.Errorf("%q is not like <=64MB", limit)
	}
	if n > most {
		return fmt.Errorf("%d bytes %s, want %s", n, what, limit)
	}
	return nil
}

func (w *world) guardAPI(ts *testscript.TestScript, args []string) error {
	if len(args) != 2 && len(args) != 3 {
		return fmt.Errorf("guard-api METHOD PATH [JSON], got %q", args)
	}
	body := ""
	if len(args) == 3 {
		body = args[2]
	}
	answer, err := overSocket(filepath.Join(w.runDir(), "guard.sock"), 10*time.Second, args[0], args[1], body)
	ts.Stdout().Write(answer)
	return err
}

// overSocket asks a process directly. An error is one of the connection, or an answer that is not 2xx.
func overSocket(sock string, limit time.Duration, method, path, body string) ([]byte, error) {
	req, err := http.NewRequest(method, "http://socket"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	c := http.Client{Timeout: limit, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", sock)
		},
		DisableKeepAlives: true,
	}}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	return b, err
}

// holdfastVerb runs the CLI; with ! it must fail. --config stands right after the command, so that what follows -- stays alone.
func holdfastVerb(w *world, ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("holdfast what?")
	}
	out, errOut, err := w.holdfast(slices.Insert(slices.Clone(args), 1, "--config", w.configFile("agent"))...)
	ts.Stdout().Write(out)
	ts.Stderr().Write(errOut)
	for _, l := range bytes.Split(bytes.TrimSpace(append(out, errOut...)), []byte("\n")) {
		if len(l) > 0 {
			w.story.note("| %s", l)
		}
	}
	if (err != nil) != neg {
		ts.Fatalf("holdfast %s: %v\n%s", strings.Join(args, " "), err, errOut)
	}
}

// commands are the verbs as testscript takes them.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	cmds := map[string]func(*testscript.TestScript, bool, []string){
		"holdfast": func(ts *testscript.TestScript, neg bool, args []string) {
			w := worldOf(ts)
			w.story.verb("holdfast")
			holdfastVerb(w, ts, neg, args)
		},
	}
	for name, f := range verbs {
		cmds[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg {
				ts.Fatalf("! %s: a verb cannot be negated", name)
			}
			w := worldOf(ts)
			w.story.verb(name)
			if err := f(w, ts, args); err != nil {
				ts.Fatalf("%s: %v", name, err)
			}
		}
	}
	return cmds
}

type worldKey struct{}

func worldOf(ts *testscript.TestScript) *world { return ts.Value(worldKey{}).(*world) }
