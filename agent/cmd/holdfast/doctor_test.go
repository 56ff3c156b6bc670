package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/ledger"
	"holdfast/device"
)

// TestDoctor: each situation, and what is found of it and nothing else that is a problem.
func TestDoctor(t *testing.T) {
	t.Parallel()
	put := func(t *testing.T, path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	configure := func(more string) func(*testing.T, boardDir, *life) {
		return func(t *testing.T, b boardDir, _ *life) {
			text, err := os.ReadFile(b.config)
			if err != nil {
				t.Fatal(err)
			}
			b.write("holdfast.yaml", string(text)+strings.ReplaceAll(more, "DIR", b.dir))
		}
	}
	for _, tt := range []struct {
		name  string
		live  func(*testing.T, boardDir, *life) // before guard and agent are there; nil: they are not
		files func(*testing.T, boardDir)        // once they are
		want  []string                          // "state check: part"
		fine  bool                              // no problem is found
	}{
		{name: "a board as it should be", live: func(*testing.T, boardDir, *life) {}, fine: true, want: []string{"ok guard: alive, pid 77", "ok agent: alive, pid 78", "ok record: both copies",
			"ok way back: 'holdfast rollback' to 0000000", "ok baseline: all 3", "ok repository: the last good fetch", "ok hardware watchdog: Dog, it bites after 60 s", "ok log: kept",
			"unknown boot gate", "ok device: it answers"}},
		{name: "nobody is there", want: []string{"problem guard: dead", "problem agent: dead", "problem state folder: no such file", "unknown checks"}},
		{name: "there was never a guard", files: func(t *testing.T, b boardDir) { os.MkdirAll(b.path("state", "guard"), 0o755) },
			want: []string{"problem guard", "warning ledger: there is none yet", "warning way back: no slot is good"}},
		{name: "the sidecar is damaged, the guard dead", files: func(t *testing.T, b boardDir) {
			b.keepLedger()
			put(t, b.path("state", "guard", "ledger.json"), "junk", 0o644)
		}, want: []string{"problem record: its second copy"}},
		{name: "the ledger is damaged, the guard dead", files: func(t *testing.T, b boardDir) {
			b.keepLedger()
			put(t, b.path("state", "guard", "ledger.db"), "junk", 0o644)
		}, want: []string{"problem record: ledger.db cannot be read"}},
		{name: "both are damaged", files: func(t *testing.T, b boardDir) {
			put(t, b.path("state", "guard", "ledger.json"), "junk", 0o644)
			put(t, b.path("state", "guard", "ledger.db"), "junk", 0o644)
		}, want: []string{"problem record: neither copy can be read", "unknown way back"}},
		{name: "the two copies differ", files: func(t *testing.T, b boardDir) {
			b.keepLedger()
			old, err := os.ReadFile(b.path("state", "guard", "ledger.json"))
			if err != nil {
				t.Fatal(err)
			}
			b.keepLedger()
			put(t, b.path("state", "guard", "ledger.json"), string(old), 0o644)
		}, want: []string{"warning record: the two copies differ"}},
		{name: "the sidecar is older than the guard's record", live: func(t *testing.T, _ boardDir, lf *life) {}, files: func(t *testing.T, b boardDir) {
			s, l, _, err := ledger.Open(b.path("state", "guard"))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			l.Generation = 2
			s.Save(bootslot.Step{Ledger: l})
		}, want: []string{"problem record: is of generation 2 and the guard's of 5"}},
		{name: "something was set aside", live: func(*testing.T, boardDir, *life) {}, files: func(t *testing.T, b boardDir) { put(t, b.path("state", "agent", "clone.db.bad"), "", 0o644) },
			fine: true, want: []string{"warning state folder: clone.db.bad was damaged once"}},
		{name: "a newer guard's ledger", live: func(_ *testing.T, _ boardDir, lf *life) { lf.state.Ledger.MinWriter = 9 }, want: []string{"problem record: only a newer guard"}},
		{name: "no previous, many marks, three failures", live: func(_ *testing.T, _ boardDir, lf *life) {
			l := &lf.state.Ledger
			l.Previous, l.Streak = nil, 3
			for i := range uint64(200) {
				l.Marks = append(l.Marks, bootslot.Mark{ID: i + 1, Set: device.Fields{"lamp": "on"}, Cause: bootslot.CauseFailed})
			}
		}, fine: true, want: []string{"warning way back: there is no previous", "warning marks: 200 of 256", "warning breaker: 3 trials"}},
		{name: "held", live: func(t *testing.T, _ boardDir, lf *life) { lf.fail(t) }, fine: true, want: []string{"warning held: lamp"}},
		{name: "held under a number", live: func(t *testing.T, _ boardDir, lf *life) {
			lf.fail(t)
			lf.agent.Declared.Retry, lf.state.Decision.RetryNumber = 3, 4
		}, fine: true, want: []string{"warning held: raise retry: to 4"}},
		{name: "suspended", live: func(_ *testing.T, _ boardDir, lf *life) {
			lf.state.Suspended = &api.SuspendedFor{SecondsLeft: 60, Repair: true, Who: "eva"}
		}, fine: true,
			want: []string{"warning suspended: for another 1m0s, by eva: nothing new is tried, and nobody"}},
		{name: "a check that does not hold, and only built-in ones", live: func(_ *testing.T, _ boardDir, lf *life) {
			lf.state.Checks = []api.Check{{Name: bootslot.DeviceAnswers, Required: true, Known: true}, {Name: "x:fatal"}}
		}, want: []string{"problem baseline: device-answers", "warning checks: only the built-in ones"}},
		{name: "a check that is not executable", live: func(t *testing.T, b boardDir, lf *life) {
			put(t, b.path("check.d", "required", "modem"), "#!/bin/sh\n", 0o644)
			lf.state.CheckFolders = []string{b.path("check.d")}
		}, want: []string{"problem check.d: required/modem is no check: not executable", "chmod +x"}},
		{name: "the device does not answer", live: func(_ *testing.T, _ boardDir, lf *life) {
			lf.agent.Report.Answered, lf.agent.Report.Error = false, "no route"
		},
			want: []string{"problem device: it does not answer: no route"}},
		{name: "the device does not do as it is told", live: func(_ *testing.T, _ boardDir, lf *life) {
			r := lf.agent.Report
			r.Refused, r.NonConvergent, r.Contended, r.Unknown = map[string]string{"fan": "stuck"}, []string{"lamp"}, []string{"door"}, []string{"siren"}
		}, want: []string{"problem device: it refuses the value of fan: stuck", "problem device: lamp reads back otherwise", "warning device: door is contended", "warning device: siren"}},
		{name: "offline", live: func(_ *testing.T, _ boardDir, lf *life) { lf.agent.Git.State = "offline" }, fine: true, want: []string{"warning repository: offline since 2026-05-01"}},
		{name: "a bad token", live: func(_ *testing.T, _ boardDir, lf *life) {
			lf.agent.Git.State, lf.agent.Git.Advice = "auth-or-not-found", "check the token"
		},
			want: []string{"problem repository: auth-or-not-found since", "check the token"}},
		{name: "two versions", live: func(_ *testing.T, _ boardDir, lf *life) { lf.agent.Version = "v8" }, fine: true, want: []string{"warning versions: the guard is v9, the agent v8"}},
		{name: "own problems", live: func(_ *testing.T, _ boardDir, lf *life) {
			lf.state.Problems = []string{"going on with the last valid copy, /x, because of: y"}
			lf.agent.Problems = []string{"the guard does not take the agent's wish: no"}
		}, want: []string{"problem guard: going on with the last valid copy", "SIGHUP", "problem agent: the guard does not take", "--agent-user"}},
		{name: "a token that anybody may read", live: func(t *testing.T, b boardDir, lf *life) {
			put(t, b.path("token"), "x", 0o644)
			os.Chmod(b.dir, 0o755)
			b.write("holdfast.yaml", "device: {url: 'http://127.0.0.1:9', tokenFile: "+b.path("token")+"}\nrepository: {url: '/nonexistent', tokenFile: "+b.path("gone")+"}\nstate: "+b.dir+"/state\nrun: "+b.dir+"/run\n")
		}, want: []string{"problem credentials: anybody may read " + "DIR/token (device.tokenFile)", "problem credentials: repository.tokenFile"}},
		{name: "a token that the group may read", live: func(t *testing.T, b boardDir, lf *life) {
			put(t, b.path("token"), "x", 0o640)
			b.write("holdfast.yaml", "device: {url: 'http://127.0.0.1:9', tokenFile: "+b.path("token")+"}\nrepository: {url: '/nonexistent'}\nstate: "+b.dir+"/state\nrun: "+b.dir+"/run\n")
		}, fine: true, want: []string{"warning credentials: others than its owner may read DIR/token (device.tokenFile): the group", "chmod go-r"}},
		{name: "a token as it should be, and one in a closed folder", live: func(t *testing.T, b boardDir, lf *life) {
			put(t, b.path("token"), "x", 0o600)
			put(t, b.path("closed", "token"), "x", 0o644)
			os.Chmod(b.dir, 0o755)
			os.Chmod(b.path("closed"), 0o700)
			b.write("holdfast.yaml", "device: {url: 'http://127.0.0.1:9', tokenFile: "+b.path("token")+"}\nrepository: {url: '/nonexistent', tokenFile: "+b.path("closed", "token")+"}\nstate: "+b.dir+"/state\nrun: "+b.dir+"/run\n")
		}, fine: true, want: []string{"ok credentials: 1 files", "warning credentials: (repository.tokenFile)"}},
		{name: "a full disk", live: configure("guard: {diskFloor: 1000000GiB}\n"), want: []string{"problem state folder: below 1000000 GiB nothing new is tried"}},
		{name: "open folders", live: func(*testing.T, boardDir, *life) {}, files: func(t *testing.T, b boardDir) {
			os.Chmod(b.path("run"), 0o777)
			os.Chmod(b.path("state", "guard"), 0o777)
		}, want: []string{"problem run folder: anybody may write", "problem state folder: anybody may write"}},
		{name: "no watchdog, no journal", live: func(*testing.T, boardDir, *life) {}, files: func(t *testing.T, b boardDir) { os.RemoveAll(b.path("system")) }, fine: true,
			want: []string{"warning hardware watchdog: there is none", "unknown log", "unknown service manager"}},
		{name: "a watchdog that nobody feeds, and a log that is gone", live: func(*testing.T, boardDir, *life) {}, files: func(t *testing.T, b boardDir) {
			put(t, b.path("system/sys/class/watchdog/watchdog0/state"), "inactive\n", 0o644)
			os.RemoveAll(b.path("system/var"))
			put(t, b.path("system/run/log/journal/0123/x"), "", 0o644)
		}, fine: true, want: []string{"warning hardware watchdog: nobody has started it", "warning log: gone with each boot"}},
		{name: "started by hand under systemd", live: func(*testing.T, boardDir, *life) {}, files: func(t *testing.T, b boardDir) {
			put(t, b.path("system/run/systemd/system/x"), "", 0o644)
			put(t, b.path("system/proc/77/cgroup"), "0::/system.slice/holdfast-guard.service\n", 0o644)
			put(t, b.path("system/proc/78/cgroup"), "0::/user.slice/session-1.scope\n", 0o644)
		}, fine: true, want: []string{"ok service manager: the guard is a service", "warning service manager: the agent was started by hand"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBoard(t)
			put(t, b.path("system/sys/class/watchdog/watchdog0/state"), "active\n", 0o644)
			put(t, b.path("system/sys/class/watchdog/watchdog0/identity"), "Dog\n", 0o644)
			put(t, b.path("system/sys/class/watchdog/watchdog0/timeout"), "60\n", 0o644)
			put(t, b.path("system/var/log/journal/0123/system.journal"), "", 0o644)
			if tt.live != nil {
				lf := newLife(t)
				tt.live(t, b, lf)
				lf.serve(b)
			}
			if tt.files != nil {
				tt.files(t, b)
			}
			found := b.examine()
			for _, w := range tt.want {
				w = strings.ReplaceAll(w, "DIR", b.dir)
				head, part, _ := strings.Cut(w, ": ")
				state, check, isFinding := strings.Cut(head, " ")
				if !slices.ContainsFunc(found, func(f finding) bool {
					text := strings.ReplaceAll(f.Says+" > "+f.Fix, b.dir+"/state/guard/", "")
					if !isFinding || !slices.Contains([]string{"ok", "problem", "warning", "unknown"}, state) {
						return strings.Contains(text, w)
					}
					return string(f.State) == state && f.Check == check && strings.Contains(text, part)
				}) {
					t.Errorf("not found: %s\n%s", w, tellFindings(found))
				}
			}
			if tt.live != nil {
				if fine := !slices.ContainsFunc(found, func(f finding) bool { return f.State == foundProblem }); fine != tt.fine {
					t.Errorf("fine: %v, want %v\n%s", fine, tt.fine, tellFindings(found))
				}
			}
			for _, f := range found {
				if f.Says == "" || (f.State == foundProblem || f.State == foundWarning) && f.Fix == "" {
					t.Errorf("%+v says nothing, or not what to do", f)
				}
			}
		})
	}
}

func (b boardDir) examine() []finding {
	board := place{config: b.config}.open()
	d := examination{b: &board, system: b.path("system"), folders: []string{b.path("check.d")}, systemctl: func(context.Context, ...string) (string, error) {
		return "", errors.New("no bus")
	}}
	return d.examine(b.t.Context())
}

func tellFindings(found []finding) string {
	var out bytes.Buffer
	showExamined(printer{w: &out}, examined{Findings: found})
	return out.String()
}

// unitsOf is what `systemctl show` says of the units of a board that is well, with changes such as "holdfast-guard.service NRestarts=3".
func unitsOf(changes ...string) string {
	var blocks []string
	for _, name := range []string{"holdfast-guard.service", "holdfast-agent.service", "holdfast-guard.socket", "holdfast-agent.socket"} {
		block := "Id=" + name + "\nLoadState=loaded\nUnitFileState=enabled\nActiveState=active\nSubState=running\nResult=success\nConditionResult=yes\nNeedDaemonReload=no\nDropInPaths=\n"
		if strings.HasSuffix(name, ".service") {
			block += "NRestarts=0\nWatchdogUSec=30s\n"
		}
		for _, c := range changes {
			if of, change, _ := strings.Cut(c, " "); of == name {
				key, _, _ := strings.Cut(change, "=")
				block = regexp.MustCompile("(?m)^"+key+"=.*$").ReplaceAllLiteralString(block, change)
			}
		}
		blocks = append(blocks, block)
	}
	return strings.Join(blocks, "\n")
}

// TestDoctorsUnits: what systemd says of the services, and what is found of it.
func TestDoctorsUnits(t *testing.T) {
	t.Parallel()
	const guard, agent = "holdfast-guard.service", "holdfast-agent.service"
	well := []string{"ok " + guard + ": enabled and active", "ok " + agent + ": enabled and active"}
	for _, tt := range []struct {
		name    string
		changes []string
		want    []string // "state check: part > part of the fix"; ok ones are left out but for a board that is well
	}{
		{"well", nil, well},
		{"disabled", []string{guard + " UnitFileState=disabled"}, []string{"problem " + guard + ": it is disabled: after the next boot there is no guard > systemctl enable holdfast-guard.service"}},
		{"masked", []string{agent + " LoadState=masked"}, []string{"problem " + agent + ": it is masked: nobody starts the agent > systemctl unmask"}},
		{"broken", []string{agent + " LoadState=bad-setting"}, []string{"problem " + agent + ": it cannot be loaded > --reinstall"}},
		{"one is gone", []string{agent + " LoadState=not-found"}, []string{"problem " + agent + ": it cannot be loaded > --reinstall"}},
		{"given up", []string{guard + " ActiveState=failed", guard + " Result=start-limit-hit"}, []string{"problem " + guard + ": systemd has given it up: start-limit-hit > reset-failed"}},
		{"crash loop", []string{agent + " ActiveState=activating", agent + " SubState=auto-restart", agent + " NRestarts=17"}, []string{"problem " + agent + ": it ends again and again, and waits to be started anew; so far 17 times > holdfast-previous@agent"}},
		{"not configured", []string{agent + " ActiveState=inactive", agent + " ConditionResult=no"}, []string{"problem " + agent + ": there is no configuration > /etc/holdfast/holdfast.yaml"}},
		{"stopped", []string{agent + " ActiveState=inactive"}, []string{"problem " + agent + ": somebody has stopped it > systemctl start holdfast-agent.service"}},
		{"starting", []string{agent + " ActiveState=activating", agent + " SubState=start"}, []string{"warning " + agent + ": it is still starting"}},
		{"restarted", []string{guard + " NRestarts=2"}, []string{"warning " + guard + ": it has ended by itself, and was started anew, 2 times > journalctl -u holdfast-guard.service"}},
		{"previous", []string{guard + " DropInPaths=/run/systemd/system/holdfast-guard.service.d/previous.conf"},
			[]string{"warning " + guard + ": the guard runs the binary from before the last upgrade > upgrade to a version that starts"}},
		{"a drop-in of the operator's", []string{guard + " DropInPaths=/etc/systemd/system/holdfast-guard.service.d/override.conf"}, well},
		{"no watchdog", []string{guard + " WatchdogUSec=0", agent + " WatchdogUSec=infinity"}, []string{"warning " + guard + ": a hung guard is not started anew > WatchdogSec=", "warning " + agent + ": a hung agent"}},
		{"changed", []string{agent + " NeedDaemonReload=yes"}, []string{"warning " + agent + ": its files were changed > daemon-reload"}},
		{"socket", []string{"holdfast-agent.socket ActiveState=failed", "holdfast-guard.socket UnitFileState=disabled"}, append([]string{"warning holdfast-agent.socket: it is not active > restart holdfast-agent.socket holdfast-agent.service", "warning holdfast-guard.socket: it is not enabled"}, well...)},
		{"none", []string{guard + " LoadState=not-found", agent + " LoadState=not-found", "holdfast-guard.socket LoadState=not-found", "holdfast-agent.socket LoadState=not-found"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := examination{system: t.TempDir(), systemctl: func(_ context.Context, args ...string) (string, error) {
				if slices.Contains(args, "--value") {
					return "30s\n", nil
				}
				return unitsOf(tt.changes...), nil
			}}
			if err := os.MkdirAll(filepath.Join(d.system, "run/systemd/system"), 0o755); err != nil {
				t.Fatal(err)
			}
			units, runtime := d.askSystemd(t.Context())
			d.units(units)
			if runtime != "30s" {
				t.Errorf("RuntimeWatchdogSec is %q", runtime)
			}
			for _, w := range tt.want {
				says, fix, _ := strings.Cut(w, " > ")
				head, part, _ := strings.Cut(says, ": ")
				i := slices.IndexFunc(d.found, func(f finding) bool {
					return string(f.State)+" "+f.Check == head && strings.Contains(f.Says, part) && strings.Contains(f.Fix, fix)
				})
				if i < 0 {
					t.Errorf("not found: %s\n%s", w, tellFindings(d.found))
					continue
				}
				d.found = slices.Delete(d.found, i, i+1)
			}
			for _, f := range d.found {
				if f.State != foundFine {
					t.Errorf("nobody asked for %+v", f)
				}
			}
		})
	}
}

// TestDoctorsHardwareWatchdog: what the kernel and systemd say together.
func TestDoctorsHardwareWatchdog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state, runtime string
		want           findingState
		says           string
	}{
		{"active", "30s", foundFine, "systemd feeds it"}, {"active", "0", foundFine, "it bites"}, {"active", "", foundFine, "it bites"},
		{"inactive", "0", foundWarning, "nobody has started it"}, {"", "30s", foundFine, "RuntimeWatchdogSec=30s"},
		{"", "0", foundWarning, "systemd does not feed it"}, {"", "infinity", foundWarning, "systemd does not feed it"}, {"", "", foundUnknown, "cannot be told"},
	} {
		d := examination{system: t.TempDir(), runtimeWatchdog: tt.runtime}
		dog := filepath.Join(d.system, "sys/class/watchdog/watchdog0")
		if err := os.MkdirAll(dog, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dog, "state"), []byte(tt.state+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		d.watchdog()
		if len(d.found) != 1 || d.found[0].State != tt.want || !strings.Contains(d.found[0].Says, tt.says) {
			t.Errorf("state %q, RuntimeWatchdogSec %q: %+v, want %s, %s", tt.state, tt.runtime, d.found, tt.want, tt.says)
		}
	}
}

// TestDoctorOnMemory: a state folder that forgets with the power is a problem.
func TestDoctorOnMemory(t *testing.T) {
	t.Parallel()
	const memory = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(memory, &st); err != nil || int64(st.Type) != unix.TMPFS_MAGIC {
		t.Skipf("%s is no tmpfs here: mount one there", memory)
	}
	dir, err := os.MkdirTemp(memory, "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := newBoard(t)
	b.write("holdfast.yaml", "device: {url: 'http://127.0.0.1:9'}\nrepository: {url: '/nonexistent'}\nstate: "+dir+"\nrun: "+b.dir+"/run\n")
	if !slices.ContainsFunc(b.examine(), func(f finding) bool { return f.State == foundProblem && strings.Contains(f.Says, "is on tmpfs") }) {
		t.Error(tellFindings(b.examine()))
	}
}

// TestDoctorsClock: a clock that cannot be right, and one that has gone back.
func TestDoctorsClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		now, event time.Time
		want       findingState
	}{
		{then, then, foundFine}, {time.Unix(300, 0), time.Time{}, foundWarning}, {then, then.Add(time.Hour), foundWarning},
	} {
		d := examination{}
		d.s.Now, d.s.History = tt.now, []bootslot.Event{{At: tt.event}}
		d.wallClock()
		if len(d.found) != 1 || d.found[0].State != tt.want {
			t.Errorf("now %v, newest event %v: %+v, want %s", tt.now, tt.event, d.found, tt.want)
		}
	}
}

// TestExaminedText: the worst first, in words that say how many.
func TestExaminedText(t *testing.T) {
	t.Parallel()
	got := tellFindings([]finding{{"guard", foundProblem, "dead", "start it"}, {"clock", foundWarning, "1970", "set it"}, {"log", foundWarning, "gone", "keep it"}, {"boot gate", foundUnknown, "no", ""}, {"agent", foundFine, "alive", ""}})
	want := `The safety net may fail: 1 problem, 2 warnings, 1 unknown.
  problem  guard      dead
                      > start it
  warning  clock      1970
                      > set it
  warning  log        gone
                      > keep it
  unknown  boot gate  no
  ok       agent      alive
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
