package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/config"
	"holdfast/bootslot/ledger"
	"holdfast/bootslot/sock"
	"holdfast/device"
)

// TestMain gives the tests a locale: it decides whether there is a °.
func TestMain(m *testing.M) {
	if os.Getenv(asHoldfast) != "" {
		os.Exit(mainAsSomebody())
	}
	os.Setenv("LC_ALL", "C.UTF-8")
	time.Local = time.UTC
	os.Exit(m.Run())
}

// board files in a folder of its own, with nobody running.
type boardDir struct {
	t      *testing.T
	dir    string
	config string
}

func newBoard(t *testing.T) boardDir {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf") // a socket's path must stay short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := boardDir{t, dir, filepath.Join(dir, "holdfast.yaml")}
	// Port 9 of this board: nobody listens.
	b.write("holdfast.yaml", "device: {url: 'http://127.0.0.1:9', timeout: 200ms}\nrepository: {url: '/nonexistent'}\nstate: "+dir+"/state\nrun: "+dir+"/run\n")
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b boardDir) path(elem ...string) string {
	return filepath.Join(append([]string{b.dir}, elem...)...)
}

func (b boardDir) write(name, text string) string {
	b.t.Helper()
	p := b.path(name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// do runs one command line.
func (b boardDir) do(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	var out, errOut bytes.Buffer
	code = Main(context.Background(), append(args, "--config", b.config, "--share", ""), &out, &errOut)
	return code, out.String(), errOut.String()
}

func (b boardDir) want(code int, parts []string, args ...string) string {
	b.t.Helper()
	got, out, errOut := b.do(args...)
	if got != code {
		b.t.Errorf("holdfast %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errOut)
	}
	for _, p := range parts {
		if !strings.Contains(out+errOut, p) {
			b.t.Errorf("holdfast %s does not say %q:\n%s%s", strings.Join(args, " "), p, out, errOut)
		}
	}
	return out
}

// release is the greenhouse's fallback with some fields changed.
func release(t *testing.T, changes device.Fields) bootslot.Release {
	t.Helper()
	p, err := device.LoadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	r := bootslot.Release{Fields: p.Fallback.Clone()}
	for k, v := range changes {
		r.Fields[k] = v
	}
	return r
}

// keepLedger leaves a ledger as a dead guard does: fan=on in slot A, lamp=on failed and marked.
func (b boardDir) keepLedger(more ...func(*bootslot.Ledger)) {
	b.t.Helper()
	if err := os.MkdirAll(b.path("state", "guard"), 0o755); err != nil {
		b.t.Fatal(err)
	}
	s, l, _, err := ledger.Open(b.path("state", "guard"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer s.Close()
	good, bad := release(b.t, device.Fields{"fan": "on"}), release(b.t, device.Fields{"fan": "on", "lamp": "on"})
	l.Generation, l.Active = l.Generation+1, bootslot.SlotA
	l.Slots = map[bootslot.SlotName]bootslot.Slot{
		bootslot.SlotA: {Status: bootslot.SlotGood, Release: good, Digest: good.Digest(), Declared: good.Digest(), Revision: "1111111aaaa", Proven: true},
		bootslot.SlotB: {Status: bootslot.SlotFailed, Release: bad, Digest: bad.Digest(), Declared: bad.Digest(), Revision: "2222222bbbb"},
	}
	l.Marks = []bootslot.Mark{{ID: l.Generation, Set: device.Fields{"lamp": "on"}, Candidates: []bootslot.Digest{bad.Digest()}, Declared: []bootslot.Digest{bad.Digest()},
		Revision: "2222222bbbb", Cause: bootslot.CauseFailed, Check: "not-too-hot", Message: "41.2 °C", During: bootslot.Readings{"temperature": 41.234}}}
	for _, f := range more {
		f(&l)
	}
	ev := []bootslot.Event{
		{Generation: 2, Kind: bootslot.EventTrial, Digest: bad.Digest(), Revision: "2222222bbbb", Attempt: 1, Fields: []string{"lamp"}},
		{Generation: 3, Kind: bootslot.EventKind(bootslot.Failed), Digest: bad.Digest(), Revision: "2222222bbbb", Check: "not-too-hot", Message: "41.2 °C", Mark: l.Generation},
	}
	if err := s.Save(bootslot.Step{Ledger: l, Events: ev}); err != nil {
		b.t.Fatal(err)
	}
}

// serve answers on a socket of the run folder.
func (b boardDir) serve(name string, answers map[string]any) {
	b.t.Helper()
	l, err := net.Listen("unix", b.path("run", name))
	if err != nil {
		b.t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[r.Method+" "+r.URL.Path]
		if e, bad := a.(*api.StatusError); bad {
			w.WriteHeader(e.Status)
			a = api.Error{Message: e.Message}
		} else if !ok {
			w.WriteHeader(http.StatusNotFound)
			a = api.Error{Message: "what is " + r.URL.Path + "?"}
		}
		json.NewEncoder(w).Encode(a)
	})}
	go srv.Serve(l)
	b.t.Cleanup(func() { srv.Close() })
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	for _, args := range [][]string{
		{"frobnicate"}, {"status", "now"}, {"status", "--yaml"}, {"validate"}, {"history", "--last", "-3"}, {"history", "--last", "x"},
		{"rollback", "--to", "yesterday"}, {"suspend"}, {"suspend", "--for", "-2h"}, {"accept"},
	} {
		if code, out, errOut := b.do(args...); code != 2 || !strings.Contains(errOut, "--help") {
			t.Errorf("holdfast %s: exit code %d, want 2\n%s%s", strings.Join(args, " "), code, out, errOut)
		}
	}
}

// TestMisuseIsExplained: in the words of whoever uses it, and not in those of a library.
func TestMisuseIsExplained(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	for want, args := range map[string][]string{
		`there is no verb "statsu"; did you mean status?`:      {"statsu"},
		`"x" is not the number of a mark`:                      {"marks", "x"},
		`takes the number of one mark`:                         {"marks", "1", "2"},
		`'holdfast status' takes no arguments, found "now"`:    {"status", "now"},
		`"--last" flag: must be a number, 0 or more`:           {"history", "--last", "x"},
		`"--for" flag: must be a length of time with its unit`: {"suspend", "--for", "2"},
		`say which files to check`:                             {"validate"},
		`say which revision to accept`:                         {"accept"},
	} {
		_, _, errOut := b.do(args...)
		if !strings.Contains(errOut, want) || strings.Contains(errOut, "strconv") {
			t.Errorf("holdfast %v says %q, want %q", args, errOut, want)
		}
	}
	b.want(0, []string{"holdfast ", "go1"}, "--version")
	if out := b.want(0, []string{"--for DURATION"}, "suspend", "--help"); strings.Contains(out, "for long") {
		t.Error(out)
	}
	for verb, hidden := range map[string]string{"validate": "--config", "version": "--share"} {
		if out := b.want(0, nil, verb, "--help"); strings.Contains(out, hidden+" ") {
			t.Errorf("the help of %s shows %s, which does nothing there:\n%s", verb, hidden, out)
		}
	}
	b.want(0, []string{"--config file"}, "status", "--help")
}

// TestEveryVerbExplainsItself: with an example, in the first column of the house style.
func TestEveryVerbExplainsItself(t *testing.T) {
	t.Parallel()
	root, _ := newRoot()
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		if c.Runnable() && c != root && c.Name() != "help" {
			if !strings.Contains(c.Example, "holdfast "+c.Name()) || c.Short == "" {
				t.Errorf("%s has no example or no short text", c.CommandPath())
			}
			for l := range strings.Lines(c.Long) {
				if len([]rune(l)) > 110 {
					t.Errorf("%s: a line of its help is too long for a terminal: %s", c.CommandPath(), l)
				}
			}
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(root)
}

func TestEverybodyDead(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.want(1, []string{"Nobody keeps the device: agent and guard are dead\n", "Nothing is declared yet; it is to be kept at the fallback", "the guard is dead (it does not run)", "the agent is dead (it does not run)", "ledger: there is none yet"}, "status")

	b.keepLedger()
	b.want(1, []string{"Nothing is declared yet; it is to be kept at 1111111", "connection refused", "failed, 2222222"}, "status")
	b.want(0, []string{"*  A", "good", "fan=on", "failed", "fallback", "the guard is dead (it does not run); this was read from its files"}, "slots")
	b.want(0, []string{"lamp=on", "not-too-hot", "41.2 °C", "temperature 41.23 °C"}, "marks")
	b.want(0, []string{"trial", "failed", "mark 2", "attempt 1"}, "history")
	b.want(0, []string{"failed"}, "history", "--last", "1")
	if out := b.want(0, nil, "history", "--last", "1"); strings.Contains(out, "attempt 1") {
		t.Errorf("--last 1 shows more:\n%s", out)
	}

	var v status.View
	if err := json.Unmarshal([]byte(b.want(1, nil, "status", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Active != bootslot.SlotA || v.LastKnownGood.Fields["fan"] != "on" || len(v.Marks) != 1 || v.LastVerdict == nil || v.LastVerdict.Kind != bootslot.Failed || v.Guard.Alive || v.Agent.Alive {
		t.Errorf("view %+v", v)
	}
	for _, args := range [][]string{{"retry"}, {"rollback"}, {"suspend", "--for", "1h"}, {"resume"}} {
		b.want(1, []string{"nothing was changed: the guard does not answer (it does not run)"}, args...)
	}
	b.want(1, []string{"the agent does not answer: it does not run"}, "sync")
}

// TestLookingChangesNothing: verbs that read write no file, not even a lock, and need no folder that is not there.
func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.keepLedger()
	list := func() string {
		var s strings.Builder
		filepath.Walk(b.dir, func(p string, fi os.FileInfo, err error) error {
			data := []byte{}
			if fi.Mode().IsRegular() {
				data, _ = os.ReadFile(p)
			}
			s.WriteString(p + " " + fi.ModTime().String() + " " + string(data) + "\n")
			return err
		})
		return s.String()
	}
	before := list()
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"slots"}, {"marks"}, {"history"}, {"version"}} {
		b.do(args...)
	}
	if after := list(); after != before {
		t.Error("the files have changed")
	}
}

// TestBrokenConfiguration: the copies that agent and guard keep are as good; with none of them the defaults are, in the state folder that the
// broken file names.
func TestBrokenConfiguration(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.keepLedger()
	valid, err := os.ReadFile(b.config)
	if err != nil {
		t.Fatal(err)
	}
	b.write("valid.yaml", string(valid))
	keep := func(elem ...string) {
		profile, err := device.LoadProfile("")
		if err == nil {
			_, _, err = config.Load(b.path("valid.yaml"), b.path(elem...), profile)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.write("holdfast.yaml", "device: {url: 'http://127.0.0.1:9'}\nnonsense: 1\nstate: "+b.dir+"/state\n")
	b.want(0, []string{"fan=on", "the configuration cannot be used, going on with the defaults", "nonsense"}, "slots")
	keep("state", "guard", "config.yaml")
	b.want(0, []string{"fan=on", "the last valid copy, " + b.path("state", "guard", "config.yaml")}, "slots")
	keep("state", "agent", "config.yaml")
	b.want(1, []string{"Nobody keeps the device", "kept at 1111111", "the last valid copy, " + b.path("state", "agent", "config.yaml")}, "status")
	os.Remove(b.config)
}

// TestGuardAnswers: what changes something says what it did and what is next; a right that is missing is told.
func TestGuardAnswers(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	p, err := device.LoadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	l := bootslot.NewLedger("id")
	fallback := bootslot.Release{Fields: p.Fallback}
	st := api.State{Version: "v9", PID: 77, Phase: api.PhaseIdle, Ledger: l, LastKnownGood: fallback, Fallback: fallback, Driver: "agent", Answers: true,
		Lease: api.Lease{Generation: 1, Fields: p.Fallback, Proven: p.Fallback}, Device: &device.State{Actuators: p.Fallback}, Suspended: &api.SuspendedFor{SecondsLeft: 60}}
	b.serve("guard.sock", map[string]any{
		"GET /v1/state": st, "GET /v1/history": []bootslot.Event{{Kind: bootslot.EventRetry, Who: "eva", Count: 3}},
		"POST /v1/retry": &api.StatusError{Status: 403, Message: "only the group holdfast may do this"}, "POST /v1/rollback": &api.StatusError{Status: 409, Message: "there is no previous release"},
		"POST /v1/suspend": api.Suspension{UntilUptimeSeconds: 1e9, Repair: true}, "POST /v1/resume": api.Lease{},
	})
	agent := status.Agent{Version: "v8", PID: 78, Git: status.Git{State: status.GitOK}, Drives: status.DrivesEffective, Target: p.Fallback,
		Report: &device.Report{Answered: true, Observed: &device.State{Actuators: p.Fallback}}}
	b.serve("agent.sock", map[string]any{"GET /v1/status": agent, "POST /v1/reconcile": struct{}{}, "POST /v1/accept": &api.StatusError{Status: 400, Message: "not a revision"}})

	b.want(0, []string{"Nothing is declared yet; keeping the fallback", "alive, pid 77, v9", "alive, pid 78, v8", "suspended for another 1m0s"}, "status")
	b.want(0, []string{"retry", "by eva", "3 times"}, "history")
	b.want(1, []string{"not allowed: only the group holdfast may do this"}, "retry")
	b.want(1, []string{"there is no previous release"}, "rollback")
	b.want(0, []string{"no trials, and no repair", "holdfast resume"}, "suspend", "--for", "2h", "--repair")
	b.want(0, []string{"Resumed; 1m0s were left"}, "resume")
	b.want(0, []string{"fetches now"}, "sync", "--no-wait")
	b.want(0, []string{"Fetched: nothing is declared yet.", "The device is as it is to be."}, "reconcile")
	b.want(1, []string{"nothing was changed: not a revision"}, "accept", "abc")
}

// TestJSONOfWhatWasDone: every verb that changes something says what as JSON, with the keys that its help names.
func TestJSONOfWhatWasDone(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	p, err := device.LoadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	fallback := bootslot.Release{Fields: p.Fallback}
	l := bootslot.NewLedger("id")
	l.Generation, l.Active, l.Grant = 9, bootslot.SlotA, &bootslot.Grant{ID: 9, Declared: fallback.Digest(), Who: "eva"}
	l.Slots[bootslot.SlotA] = bootslot.Slot{Status: bootslot.SlotGood, Release: fallback, Digest: fallback.Digest(), Declared: fallback.Digest(), Proven: true}
	l.Marks = []bootslot.Mark{{ID: 9, Set: device.Fields{"lamp": "on"}, Cause: bootslot.CauseOperator}, {ID: 11, Set: device.Fields{"pump": "on"}}}
	lease := api.Lease{Generation: 9, Fields: p.Fallback, Proven: p.Fallback}
	b.serve("guard.sock", map[string]any{
		"GET /v1/state":  api.State{Phase: api.PhaseIdle, Ledger: l, LastKnownGood: fallback, Fallback: fallback, Lease: lease, Suspended: &api.SuspendedFor{SecondsLeft: 60}},
		"POST /v1/retry": lease, "POST /v1/rollback": lease, "POST /v1/suspend": api.Suspension{UntilUptimeSeconds: 1e9, Repair: true}, "POST /v1/resume": lease,
	})
	b.serve("agent.sock", map[string]any{"GET /v1/status": status.Agent{Declared: &status.Declared{Fields: p.Fallback, Digest: fallback.Digest(), Revision: "123"},
		Git: status.Git{State: status.GitOK}, Report: &device.Report{Answered: true}},
		"POST /v1/reconcile": struct{}{}, "POST /v1/accept": struct{}{}})
	for _, tt := range []struct {
		args []string
		want map[string]any // key to value, nil for any
	}{
		{[]string{"retry"}, map[string]any{"grant": nil, "declared": nil, "agentAnswers": true}},
		{[]string{"rollback", "--to", "fallback"}, map[string]any{"inForce": nil, "mark": nil, "retryNumber": 1.0, "agentAnswers": true}},
		{[]string{"suspend", "--for", "1h", "--repair"}, map[string]any{"secondsLeft": nil, "until": nil, "repair": true}},
		{[]string{"resume"}, map[string]any{"wasSuspended": true, "secondsLeft": 60.0, "agentAnswers": true}},
		{[]string{"sync"}, map[string]any{"fetching": true}},
		{[]string{"accept", "abc"}, map[string]any{"accepted": "abc"}},
		{[]string{"version"}, map[string]any{"version": nil, "go": nil, "platform": nil}},
	} {
		out := b.want(0, nil, append(tt.args, "--json")...)
		var got map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Errorf("%v: %v\n%s", tt.args, err, out)
			continue
		}
		help := b.want(0, nil, tt.args[0], "--help")
		_, keys, _ := strings.Cut(help, "With --json:")
		for k, v := range tt.want {
			if g, ok := got[k]; !ok || v != nil && g != v {
				t.Errorf("%v: %s is %v, want %v\n%s", tt.args, k, g, v, out)
			}
			if !strings.Contains(keys, k) {
				t.Errorf("the help of %s does not name %s", tt.args[0], k)
			}
		}
	}
	b.want(0, []string{"Rolled back. In force: the fallback (", "Mark 9 keeps what was left behind from coming back: lamp=on."}, "rollback", "--to", "fallback")
}

// TestASocketWithNobodyBehindIt: one that systemd has opened takes requests for a process that does not run, which is dead all the same, and whose files can be read.
func TestASocketWithNobodyBehindIt(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.keepLedger()
	for _, name := range []string{"guard", "agent"} {
		l, err := net.Listen("unix", b.path("run", name+".sock"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	b.want(1, []string{"Nobody keeps the device: agent and guard are dead", "the guard is dead (it does not run)"}, "status")
	b.want(0, []string{""}, "history")
}

// TestSilentGuard: a process that is stopped keeps its socket open, and a verb waits for it no longer than it must.
func TestSilentGuard(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	l, err := net.Listen("unix", b.path("run", "guard.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lock, err := sock.Lock(b.path("run", "guard.lock"), "guard")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	start := time.Now()
	b.want(1, []string{"Nobody keeps the device: the agent is dead, the guard is silent", "the guard is silent (it runs and does not answer)"}, "status")
	if took := time.Since(start); took > 2*askTime {
		t.Errorf("it took %v", took)
	}
}

// TestFrozenGuard: what the sidecar says is told without waiting for the file that a guard which hangs keeps locked; its history is not to be had.
func TestFrozenGuard(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.keepLedger()
	s, _, _, err := ledger.Open(b.path("state", "guard"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := net.Listen("unix", b.path("run", "guard.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lock, err := sock.Lock(b.path("run", "guard.lock"), "guard")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	var wg sync.WaitGroup
	for _, tt := range []struct {
		code int
		want string
		args []string
	}{
		{0, "lamp=on", []string{"marks"}}, {0, "fan=on", []string{"slots"}}, {1, "to be kept at 1111111", []string{"status"}},
		{1, "its history is locked", []string{"history"}},
		{1, "no answer: the guard was asked", []string{"retry"}}, {1, "refuses what it had not begun in time", []string{"suspend", "--for", "1h"}},
		{1, "nothing was changed: the guard does not answer (it runs and does not answer)", []string{"rollback"}},
		{1, "this command has run them", []string{"selftest"}}, {0, "lamp is to be off", []string{"why", "lamp"}}, {1, "problem  guard", []string{"doctor"}},
	} {
		wg.Go(func() {
			start := time.Now()
			b.want(tt.code, []string{tt.want}, tt.args...)
			if took := time.Since(start); took >= api.LongPoll || tt.code == 0 && took > askTime+900*time.Millisecond {
				t.Errorf("holdfast %s took %v", tt.args[0], took)
			}
		})
	}
	wg.Wait()
}

// TestTold: a request that changes something ends with a word on whether it did.
func TestTold(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	board := place{config: b.config}.open()
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"too late", &api.StatusError{Status: 408, Message: "the request came too late"}, "nothing was changed: the request came too late"},
		{"no right", &api.StatusError{Status: 403, Message: "not you"}, "not allowed: not you"},
		{"nobody there", fmt.Errorf("%w: %w", api.ErrSilent, &net.OpError{Op: "dial", Err: unix.ECONNREFUSED}), "nothing was changed: the guard does not answer (it does not run)"},
		{"its queue is full", fmt.Errorf("%w: %w", api.ErrSilent, &net.OpError{Op: "dial", Err: unix.EAGAIN}), "nothing was changed: "},
		{"it ended meanwhile", fmt.Errorf("%w: %w", api.ErrSilent, &net.OpError{Op: "read", Err: unix.ECONNRESET}), "no answer: "},
		{"it hangs", fmt.Errorf("%w: %w", api.ErrSilent, context.DeadlineExceeded), "no answer: "},
	} {
		if got := board.told(tt.err); !strings.HasPrefix(got.Error(), tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestNoPermission: another user is told that he may not ask, and not that there is nothing.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to run as somebody else: sudo make unit")
	}
	b := newBoard(t)
	b.keepLedger()
	lf := newLife(t)
	b.serve("guard.sock", map[string]any{"GET /v1/state": lf.state, "GET /v1/history": lf.past, "GET /v1/selftest": lf.state.Checks})
	b.serve("agent.sock", map[string]any{"GET /v1/status": lf.agent})
	for path, mode := range map[string]os.FileMode{b.dir: 0o755, b.path("run", "guard.sock"): 0o660, b.path("run", "agent.sock"): 0o660,
		b.path("state", "guard"): 0o750, b.path("state", "agent"): 0o750} {
		os.MkdirAll(path, 0o755)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"guard.sock", "agent.sock"} {
		if err := os.Chown(b.path("run", name), 0, 4711); err != nil {
			t.Fatal(err)
		}
	}
	holdfast := b.command()
	do := func(group int, args ...string) (int, string) {
		return holdfast(somebody{uid: 65534, gid: group}, args...)
	}
	hint := "run as root or as a member of the group 4711, which owns " + b.path("run", "guard.sock")
	for _, tt := range []struct {
		args      []string
		want, not []string
	}{
		{[]string{"marks"}, []string{"the marks cannot be read: the guard is not reachable (this user may not ask it)", "permission denied", hint}, []string{"no marks", "dead"}},
		{[]string{"slots"}, []string{"the slots cannot be read: the guard is not reachable", hint}, []string{"empty", "dead"}},
		{[]string{"history"}, []string{"the history cannot be read: the guard is not reachable", hint}, []string{"Nothing has happened"}},
		{[]string{"marks", "--json"}, []string{"cannot be read"}, []string{"[]"}},
		{[]string{"status"}, []string{"What is in force cannot be told", "the agent is not reachable", hint, "driven by   not known"}, []string{"Nothing is declared", "dead", "the fallback"}},
		{[]string{"retry"}, []string{"nothing was changed: the guard is not reachable", hint}, []string{"dead"}},
		{[]string{"reconcile"}, []string{"nothing was changed: the agent is not reachable (this user may not ask it)", strings.ReplaceAll(hint, "guard", "agent")}, nil},
		{[]string{"why", "lamp"}, []string{"the ledger cannot be read: the guard is not reachable", hint}, []string{"is to be"}},
		{[]string{"status", "--oneline"}, []string{"unreadable !"}, nil},
		{[]string{"selftest"}, []string{"the guard is not reachable", hint}, []string{"holds"}},
		{[]string{"rollback", "--dry-run"}, []string{"the guard is not reachable", hint}, []string{"goes back"}},
		{[]string{"doctor"}, []string{"unknown  guard", "unknown  agent", hint}, []string{"dead"}},
	} {
		code, out := do(65534, tt.args...)
		if code != 1 {
			t.Errorf("holdfast %v: exit code %d, want 1", tt.args, code)
		}
		for _, w := range tt.want {
			if !strings.Contains(out, w) {
				t.Errorf("holdfast %v does not say %q:\n%s", tt.args, w, out)
			}
		}
		for _, w := range tt.not {
			if strings.Contains(out, w) {
				t.Errorf("holdfast %v says %q:\n%s", tt.args, w, out)
			}
		}
	}

	// A member of the sockets' group may not read the files, and needs none of them.
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "1111111 is in force, as declared"}, {[]string{"why", "fan"}, "since 1111111 passed its trial"}, {[]string{"diff"}, "declared 1111111"}, {[]string{"marks"}, "no marks"},
		{[]string{"slots"}, "*  A"}, {[]string{"history"}, "passed"}, {[]string{"selftest"}, "All required checks hold"}, {[]string{"rollback", "--dry-run"}, "goes back from 1111111"},
		{[]string{"doctor"}, "unknown  record"},
	} {
		code, out := do(4711, tt.args...)
		if tt.args[0] != "doctor" && code != 0 || !strings.Contains(out, tt.want) || strings.Contains(out, "may not ask") {
			t.Errorf("holdfast %v as a member of the group: exit code %d, want %q\n%s", tt.args, code, tt.want, out)
		}
	}
}

// TestOneMark: by its number; what an operator did is told once.
func TestOneMark(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.keepLedger(func(l *bootslot.Ledger) {
		l.Marks = append(l.Marks, bootslot.Mark{ID: 7, Set: device.Fields{"pump": "on"}, Cause: bootslot.CauseOperator, Message: "an operator rolled back", Who: "eva"},
			bootslot.Mark{ID: 8, Set: device.Fields{"door": "open"}, Cause: bootslot.CauseAttempts, Message: "the guard was stopped"})
	})
	out := b.want(0, []string{"mark 7", "pump=on", "operator: somebody rolled back from it (eva)"}, "marks", "7")
	if strings.Contains(out, "mark 2") || strings.Contains(out, "an operator rolled back") || strings.Contains(out, "check") {
		t.Errorf("marks 7 says\n%s", out)
	}
	b.want(0, []string{"why", "the guard was stopped"}, "marks", "8")
	b.want(1, []string{"there is no mark 6"}, "marks", "6")
	var marks []bootslot.Mark
	if err := json.Unmarshal([]byte(b.want(0, nil, "marks", "7", "--json")), &marks); err != nil || len(marks) != 1 || marks[0].ID != 7 {
		t.Errorf("%v, %v", marks, err)
	}
}

// TestManyErrors: each on a line of its own, wherever they come from.
func TestManyErrors(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.write("holdfast.yaml", "device: {url: nonsense}\nnonsense: 1\nstate: "+b.dir+"/state\nrun: "+b.dir+"/run\n")
	b.want(1, []string{"going on with the defaults:\n      " + b.config + ":1:", "\n      " + b.config + ":2:"}, "status")
	b.want(1, []string{"going on with the defaults:\n    " + b.config + ":1:"}, "retry")
}

// TestNewerLedger and a full disk: nothing can be tried, and that is not fine.
func TestNothingCanBeTried(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.keepLedger(func(l *bootslot.Ledger) { l.MinWriter = bootslot.Schema + 1 })
	b.want(1, []string{"! only a newer guard may write the ledger"}, "status")
	b.write("holdfast.yaml", "device: {url: 'http://127.0.0.1:9', timeout: 200ms}\nrepository: {url: '/nonexistent'}\nguard: {diskFloor: 1000000GiB}\nstate: "+b.dir+"/state\nrun: "+b.dir+"/run\n")
	b.want(1, []string{"KiB free, the floor is "}, "status")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	good := b.write("good.yaml", "pump: on\nfan: off\nvent: off\nlamp: on\ndoor: closed\n")
	bad := b.write("bad.yaml", "pump: on\nfan: maybe\nvent: off\nlamp: on\ndoor: ajar\n")
	b.want(0, []string{good + ": valid, content ", "pump=on"}, "validate", good)
	again := b.write("again.yaml", "pump: on\nfan: off\nvent: off\nlamp: on\ndoor: closed\nretry: 3\n")
	b.want(0, []string{again + ": valid, content ", "pump=on (retry: 3)"}, "validate", again)
	b.want(1, []string{good + ": valid", bad + ":2:6: fan: ", bad + ":5:7: door: "}, "validate", good, bad)
	b.want(1, []string{"no.yaml:1:1: cannot read it: no such file or directory"}, "validate", b.path("no.yaml"))
	var all []checked
	if err := json.Unmarshal([]byte(b.want(1, nil, "validate", "--json", good, bad)), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || !all[0].Valid || all[0].Digest == "" || all[1].Valid || len(all[1].Errors) != 2 || all[1].Errors[0].Line != 2 || all[1].Errors[0].Column != 6 {
		t.Errorf("%+v", all)
	}
}

func cells(texts ...string) []cell {
	var out []cell
	for _, t := range texts {
		out = append(out, cell{text: t})
	}
	return out
}

func TestTable(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	printer{w: &b}.table("  ", [][]cell{cells("a", "b", "c"), cells("long", "", "°C"), cells("x", "yy", "")})
	want := "  a     b   c\n  long      °C\n  x     yy\n"
	if b.String() != want {
		t.Errorf("got\n%q\nwant\n%q", b.String(), want)
	}
	b.Reset()
	printer{w: &b, colour: true}.table("", [][]cell{{{"a", red}, {"b", plain}}, {{"abc", plain}, {"b", plain}}})
	if want := "\x1b[31ma\x1b[0m    b\nabc  b\n"; b.String() != want {
		t.Errorf("with colour got\n%q\nwant\n%q", b.String(), want)
	}
}

// TestWatch: it prints again only what has changed.
func TestWatch(t *testing.T) {
	t.Parallel()
	a := status.View{Summary: "a", At: time.Unix(1, 0), Trial: &status.Trial{EndsInSeconds: 5}, Checks: []api.Check{{Name: "x", SinceSeconds: 1}},
		Conditions: []status.Condition{{Type: status.Ready, Status: status.False, Since: time.Unix(1, 0), Message: "5s left"}}}
	b := a
	b.At, b.Trial, b.Checks, b.DeviceCycles = time.Unix(9, 0), &status.Trial{EndsInSeconds: 3}, []api.Check{{Name: "x", SinceSeconds: 4}}, 7
	b.Conditions = []status.Condition{{Type: status.Ready, Status: status.False, Since: time.Unix(2, 0), Message: "4s left"}}
	if fingerprint(a) != fingerprint(b) {
		t.Error("time passing counts as a change")
	}
	if a.Conditions[0].Message == "" || a.Trial.EndsInSeconds != 5 || a.Checks[0].SinceSeconds != 1 {
		t.Error("the view was changed")
	}
	b.Checks[0].OK = true
	if fingerprint(a) == fingerprint(b) {
		t.Error("a check that holds now does not count as a change")
	}
}
