package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"holdfast/agent"
	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/ledger"
	"holdfast/device"
)

// TestFilter: which events are wanted, by their sequence numbers.
func TestFilter(t *testing.T) {
	t.Parallel()
	events := []bootslot.Event{
		{Seq: 1, At: then, Kind: bootslot.EventTrial, Revision: "aaaa1", Digest: "dddd1", Fields: []string{"lamp", "vent"}},
		{Seq: 2, At: then.Add(time.Hour), Kind: bootslot.EventKind(bootslot.Failed), Revision: "aaaa1", Digest: "dddd1", Fields: []string{"lamp", "vent"}},
		{Seq: 3, At: time.Unix(100, 0), Kind: bootslot.EventTrial, Revision: "bbbb2", Declared: "dddd2", Fields: []string{"pump"}}, // after a boot, before the time server
		{Seq: 4, At: then.Add(2 * time.Hour), Kind: bootslot.EventUnhealthy, Check: bootslot.ConvergedCheck("pump")},
	}
	set := func(text string) since {
		var s since
		if err := s.Set(text); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, tt := range []struct {
		name string
		f    filter
		last int
		want []uint64
	}{
		{"all", filter{}, 0, []uint64{1, 2, 3, 4}},
		{"the last two", filter{}, 2, []uint64{3, 4}},
		{"a kind", filter{kinds: []string{"trial"}}, 0, []uint64{1, 3}},
		{"the last of a kind", filter{kinds: []string{"trial"}}, 1, []uint64{3}},
		{"two kinds", filter{kinds: []string{"failed", "unhealthy"}}, 0, []uint64{2, 4}},
		{"a field, and the check of it", filter{fields: []string{"pump"}}, 0, []uint64{3, 4}},
		{"a revision's beginning", filter{revisions: []string{"aaaa"}}, 0, []uint64{1, 2}},
		{"a content, as it was declared", filter{revisions: []string{"dddd2"}}, 0, []uint64{3}},
		{"all of it at once", filter{kinds: []string{"trial"}, fields: []string{"vent", "door"}}, 0, []uint64{1}},
		{"nothing is like that", filter{fields: []string{"door"}}, 0, nil},
		{"since a time; what the clock was not set for goes with the one before it", filter{since: set("2026-05-01 11:00")}, 0, []uint64{2, 3, 4}},
		{"since a later time", filter{since: set("2026-05-01 12:00")}, 0, []uint64{4}},
		{"since a length of time", filter{since: set("90m")}, 0, []uint64{2, 3, 4}},
		{"since days", filter{since: set("1d")}, 0, []uint64{1, 2, 3, 4}},
	} {
		if err := tt.f.resolve(then.Add(2 * time.Hour)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		var got []uint64
		for _, e := range tt.f.apply(events, tt.last) {
			got = append(got, e.Seq)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	f := filter{since: set("1h")}
	if err := f.resolve(time.Unix(300, 0)); err == nil || !strings.Contains(err.Error(), "clock was not set") {
		t.Errorf("an hour before 1970: %v", err)
	}
	for _, bad := range []string{"", "yesterday", "-1h", "0d", "99999999d", "2026-13-01"} {
		var s since
		if s.Set(bad) == nil {
			t.Errorf("--since %q is taken", bad)
		}
	}
	b := newBoard(t)
	b.keepLedger()
	b.want(2, []string{"must be one of adopted, trial"}, "history", "--kind", "boom")
	b.want(2, []string{"give 4 digits at least"}, "history", "--revision", "22")
	b.want(0, []string{"No event is like that."}, "history", "--field", "pump")
	if out := b.want(0, nil, "history", "--kind", "failed", "--field", "lamp"); strings.Contains(out, "attempt 1") {
		t.Errorf("more than what failed:\n%s", out)
	}
}

// slowAgent is an agent that does what it is asked for when it is told to.
type slowAgent struct {
	mu     sync.Mutex
	status status.Agent
	asked  []agent.ReconcileRequest
	looked int // how often its status was asked for
	// after says how often that is before a fetch, or a cycle, that was asked for has ended.
	after int
	next  agent.Reconciling
	ended func(*status.Agent) // what a fetch changes
}

func (a *slowAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method == http.MethodPost {
		var in agent.ReconcileRequest
		json.NewDecoder(r.Body).Decode(&in)
		a.asked, a.looked = append(a.asked, in), 0
		a.next = agent.Reconciling{Cycle: a.status.DeviceCycles + 1}
		if !in.NoFetch {
			a.next.Fetch = a.status.GitCycles + 1
		}
		json.NewEncoder(w).Encode(a.next)
		return
	}
	if a.looked++; a.looked > a.after && len(a.asked) > 0 {
		if a.next.Fetch > a.status.GitCycles {
			a.status.GitCycles = a.next.Fetch
			a.ended(&a.status)
		}
		if a.next.Fetch == 0 {
			a.status.DeviceCycles, a.status.EndedCycle = a.next.Cycle, a.next.Cycle
		}
	}
	json.NewEncoder(w).Encode(a.status)
}

// TestReconcile waits for the fetch, then for a look at the device that began after it, and says what came of the two.
func TestReconcile(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, after int, ended func(*status.Agent)) (boardDir, *slowAgent) {
		b := newBoard(t)
		lf := newLife(t)
		a := &slowAgent{status: lf.agent, after: after, ended: ended}
		l, err := net.Listen("unix", b.path("run", "agent.sock"))
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: a}
		go srv.Serve(l)
		t.Cleanup(func() { srv.Close() })
		b.serve("guard.sock", map[string]any{"GET /v1/state": lf.state})
		return b, a
	}
	pump := device.Fields{"pump": "on"}
	for _, tt := range []struct {
		name  string
		args  []string
		after int
		ended func(*status.Agent)
		code  int
		want  []string
		not   string
		asked []bool // for each request, whether it was without a fetch
	}{
		{"nothing new", nil, 0, func(*status.Agent) {}, 0, []string{"Fetched: nothing new, the head is 1111111 still.", "The device is as it is to be.", "is in force, as declared"}, "Waiting", []bool{false, true}},
		{"a new head", nil, 0, func(a *status.Agent) {
			d := release(t, pump)
			a.Declared = &status.Declared{Fields: d.Fields, Digest: d.Digest(), Revision: badRev, Subject: "water"}
		}, 0, []string{`Fetched: the head is 2222222 now ("water").`}, "same content", []bool{false, true}},
		{"a new head with the same content", nil, 0, func(a *status.Agent) {
			d := *a.Declared
			d.Revision, d.Subject = badRev, "a readme"
			a.Declared = &d
		}, 0, []string{`Fetched: the head is 2222222 now ("a readme"), with the same content as before.`}, "", []bool{false, true}},
		{"offline", nil, 0, func(a *status.Agent) {
			a.Git = status.Git{State: status.GitOffline, Message: "no route", Since: then, Times: 1}
		}, 1,
			[]string{"The fetch has not worked: offline since", "no route", "The device is as it is to be."}, "Fetched", []bool{false, true}},
		{"without a fetch", []string{"--no-fetch"}, 0, nil, 0, []string{"The device is as it is to be."}, "Fetched", []bool{true}},
		{"drift that stays", []string{"--no-fetch"}, 0, nil, 1, []string{"lamp is to be off and is on: the device refuses it: stuck"}, "as it is to be.", []bool{true}},
		{"it takes a while", nil, 15, func(*status.Agent) {}, 0, []string{"Waiting for the fetch: /nonexistent", "Waiting for the device: http://127.0.0.1:9", "Fetched: nothing new"}, "", []bool{false, true}},
		{"it takes too long", []string{"--timeout", "300ms"}, 1000, func(*status.Agent) {}, 1, []string{"still waiting for the fetch: /nonexistent"}, "Fetched", []bool{false}},
		{"nobody waits", []string{"--no-wait"}, 1000, nil, 0, []string{"The agent fetches now"}, "Fetched", []bool{false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, a := start(t, tt.after, tt.ended)
			if tt.name == "drift that stays" {
				a.status.Report.Left, a.status.Report.Refused = []device.Drift{{Field: "lamp", Want: "off", Got: "on"}}, map[string]string{"lamp": "stuck"}
			}
			out := b.want(tt.code, tt.want, append([]string{"reconcile"}, tt.args...)...)
			if tt.not != "" && strings.Contains(out, tt.not) {
				t.Errorf("it says %q:\n%s", tt.not, out)
			}
			var asked []bool
			for _, r := range a.asked {
				asked = append(asked, r.NoFetch)
			}
			if !slices.Equal(asked, tt.asked) {
				t.Errorf("asked without a fetch: %v, want %v", asked, tt.asked)
			}
		})
	}
	b := newBoard(t)
	b.want(1, []string{"the agent does not answer: it does not run"}, "sync")
}

// TestAcceptKnowsTheHead: the first digits are enough for the head that is refused now, and for no other.
func TestAcceptKnowsTheHead(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	var got []string
	l, err := net.Listen("unix", b.path("run", "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			var in agent.AcceptRequest
			json.NewDecoder(r.Body).Decode(&in)
			got = append(got, in.Revision)
		}
		json.NewEncoder(w).Encode(status.Agent{Git: status.Git{RemoteRevision: badRev}})
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	for _, r := range []string{badRev[:7], badRev[:6], "1234567"} {
		b.want(0, nil, "accept", r)
	}
	if want := []string{badRev, badRev[:6], "1234567"}; !slices.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
}

// terminal returns the two ends of a terminal, ours and the command's (pts(4)).
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal to be had, which wants /dev/pts: %v", err)
	}
	t.Cleanup(func() { ours.Close() })
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return ours, theirs
}

// TestConfirming: on a terminal a rollback is done only if whoever sits there says so; a script is not asked.
func TestConfirming(t *testing.T) {
	for _, tt := range []struct {
		answer string
		args   []string
		done   int
		asks   bool
	}{
		{"y\n", []string{"rollback"}, 1, true}, {"yes\n", []string{"rollback"}, 1, true}, {"\n", []string{"rollback"}, 0, true}, {"n\n", []string{"rollback"}, 0, true},
		{"", []string{"rollback", "--yes"}, 1, false}, {"", []string{"rollback", "--dry-run"}, 0, false}, {"", []string{"rollback", "--json"}, 1, false},
		{"n\n", []string{"suspend", "--for", "1h", "--repair"}, 0, true}, {"y\n", []string{"suspend", "--for", "1h", "--repair"}, 1, true},
		{"", []string{"suspend", "--for", "1h", "--repair", "-y"}, 1, false}, {"", []string{"suspend", "--for", "1h"}, 1, false},
	} {
		t.Run(strings.Join(tt.args, " ")+" "+strings.TrimSpace(tt.answer), func(t *testing.T) {
			b := newBoard(t)
			lf := newLife(t)
			done := 0
			l, err := net.Listen("unix", b.path("run", "guard.sock"))
			if err != nil {
				t.Fatal(err)
			}
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					done++
				}
				json.NewEncoder(w).Encode(lf.state)
			})}
			go srv.Serve(l)
			t.Cleanup(func() { srv.Close() })
			ours, theirs := terminal(t)
			root, _ := newRoot()
			root.SetArgs(append(tt.args, "--config", b.config, "--share", ""))
			root.SetIn(theirs)
			root.SetOut(theirs)
			root.SetErr(io.Discard)
			if _, err := ours.WriteString(tt.answer); err != nil {
				t.Fatal(err)
			}
			if err := root.Execute(); err != nil {
				t.Fatal(err)
			}
			if done != tt.done {
				t.Errorf("it was done %d times, want %d", done, tt.done)
			}
			said := make([]byte, 8<<10)
			n, _ := ours.Read(said)
			for end := time.Now().Add(5 * time.Second); tt.asks && !bytes.Contains(said[:n], []byte("Go on?")) && time.Now().Before(end); {
				more, _ := ours.Read(said[n:])
				n += more
			}
			if asks := bytes.Contains(said[:n], []byte("Go on?")); asks != tt.asks {
				t.Errorf("it asks: %v, want %v\n%s", asks, tt.asks, said[:n])
			}
		})
	}
}

// TestCompletion: fields, marks and revisions of this board, from whoever is there, and soon even if nobody answers.
func TestCompletion(t *testing.T) {
	t.Parallel()
	live, dead := newBoard(t), newBoard(t)
	lf := newLife(t)
	lf.fail(t)
	lf.agent.Git.State = "history-rewritten"
	lf.serve(live)
	dead.keepLedger()
	for _, tt := range []struct {
		b    boardDir
		args []string
		want []string
	}{
		{live, []string{"why", ""}, []string{"lamp\tis to be off", "fan\tis to be on", "7\tlamp=on"}},
		{live, []string{"marks", ""}, []string{"7\tlamp=on"}},
		{live, []string{"diff", ""}, []string{"previous", badRev + "\tdeclared: more light", goodRev + "\tslot A: good"}},
		{live, []string{"accept", ""}, []string{badRev}},
		{live, []string{"history", "--kind", ""}, []string{"failed", "mark-stands"}},
		{live, []string{"history", "--field", ""}, []string{"lamp"}},
		{live, []string{"rollback", "--to", ""}, []string{"fallback", "previous"}},
		{live, []string{"completion", ""}, []string{"bash", "fish", "zsh"}},
		{live, []string{"do"}, []string{"doctor"}},
		{dead, []string{"why", ""}, []string{"lamp\tis to be off", "2\tlamp=on"}},
	} {
		out := tt.b.completes(tt.args...)
		for _, w := range tt.want {
			if !strings.Contains("\n"+out, "\n"+w) {
				t.Errorf("%v does not offer %q:\n%s", tt.args, w, out)
			}
		}
	}
	for _, shell := range []string{"bash", "fish", "zsh"} {
		dead.want(0, []string{"__complete"}, "completion", shell)
	}
	dead.want(2, []string{"say for which shell: bash, fish, zsh"}, "completion", "tcsh")
}

// completes is what a shell is offered behind a command line, of which the last word is being typed.
func (b boardDir) completes(args ...string) string {
	b.t.Helper()
	var out, errOut bytes.Buffer
	if code := Main(b.t.Context(), slices.Concat([]string{"__complete", "--config", b.config, "--share", ""}, args), &out, &errOut); code != 0 {
		b.t.Errorf("completing %q: exit code %d\n%s", args, code, errOut.String())
	}
	return out.String()
}

// frozen makes a board on which both processes have their sockets open and say nothing, and the ledger locked.
func frozen(t *testing.T) boardDir {
	b := newBoard(t)
	b.keepLedger()
	s, _, _, err := ledger.Open(b.path("state", "guard"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for _, name := range []string{"guard.sock", "agent.sock"} {
		l, err := net.Listen("unix", b.path("run", name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	return b
}

// TestPromptIsQuick: a shell's prompt and a tab wait for nobody, whoever is frozen.
func TestPromptIsQuick(t *testing.T) {
	t.Parallel()
	b := frozen(t)
	os.WriteFile(b.path("state", "guard", "ledger.json"), []byte("junk"), 0o644) // then only the locked file is left
	for _, tt := range []struct {
		most time.Duration
		want string
		args []string
	}{{oneLineTime, "unreadable !", []string{"status", "--oneline"}}, {completeTime, "lamp", nil}} {
		began := time.Now()
		var out string
		if tt.args != nil {
			_, out, _ = b.do(tt.args...)
		} else {
			out = b.completes("why", "")
		}
		if took := time.Since(began); took > tt.most+askTime/2 {
			t.Errorf("%v took %v", tt.args, took)
		}
		if !strings.Contains(out, tt.want) {
			t.Errorf("%v says %q, want %q", tt.args, out, tt.want)
		}
	}
}

// TestPrompt: one word for each situation.
func TestPrompt(t *testing.T) {
	t.Parallel()
	boards := liveBoards(t)
	for name, want := range map[string]string{"as declared": "ok 1111111", "held": "held 1111111 lamp", "in trial": "trial 2222222 lamp 42s", "returning": "returning 1111111",
		"a baseline awaited": "waiting 2222222", "sick": "suspended 1111111 !6"} {
		b := boards[name]
		if out := b.want(map[bool]int{true: 0, false: 1}[name != "sick"], nil, "status", "--oneline"); out != want+"\n" {
			t.Errorf("%s: %q, want %q", name, out, want)
		}
	}
	for want, v := range map[string]status.View{
		"unreadable":           {},
		"new the fallback":     {LedgerKnown: true, Guard: status.Process{State: status.ProcessAlive}, LastKnownGood: status.Release{Source: status.FromFallback}},
		"nobody abc offline":   {LedgerKnown: true, Guard: status.Process{State: status.ProcessDead}, Agent: status.Process{State: status.ProcessSilent}, LastKnownGood: status.Release{Revision: "abc"}, Git: status.Git{State: status.GitOffline}},
		"held abc lamp,pump":   {LedgerKnown: true, Guard: status.Process{State: status.ProcessAlive}, LastKnownGood: status.Release{Revision: "abc"}, Decision: &status.Decision{Held: []bootslot.HeldField{{Field: "lamp"}, {Field: "pump"}}}},
		"suspended abc !1":     {LedgerKnown: true, Guard: status.Process{State: status.ProcessAlive}, LastKnownGood: status.Release{Revision: "abc"}, Suspended: &api.SuspendedFor{}, NotFine: []string{"x"}},
		"waiting 3333333 !2":   {LedgerKnown: true, Guard: status.Process{State: status.ProcessAlive}, Declared: &status.Declared{Revision: "33333334", Digest: "x"}, NotFine: []string{"x", "y"}},
		"trial 3333333 lamp,a": {LedgerKnown: true, Guard: status.Process{State: status.ProcessAlive}, Phase: api.PhaseTrial, Trial: &status.Trial{Candidate: status.Release{Revision: "33333334"}, Changed: []string{"lamp", "a"}}},
	} {
		if got := v.Prompt(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestReadVerbsAlwaysAnswer: whatever is broken, every verb that reads says something, in good time, and leaves everything as it is.
func TestReadVerbsAlwaysAnswer(t *testing.T) {
	t.Parallel()
	junk := func(name ...string) func(boardDir) {
		return func(b boardDir) {
			b.keepLedger()
			for _, n := range name {
				b.write(n, strings.Repeat("junk ", 5000))
			}
		}
	}
	for name, f := range map[string]func(boardDir){
		"no state at all":   func(b boardDir) {},
		"no run folder":     func(b boardDir) { os.RemoveAll(b.path("run")) },
		"a file for folder": func(b boardDir) { b.write("state", "what is this") },
		"sidecar damaged":   junk("state/guard/ledger.json"),
		"ledger damaged":    junk("state/guard/ledger.db"),
		"both damaged":      junk("state/guard/ledger.json", "state/guard/ledger.db"),
		"clone damaged":     junk("state/agent/clone.db"),
		"a truncated ledger": func(b boardDir) {
			b.keepLedger()
			os.Truncate(b.path("state", "guard", "ledger.db"), 20000)
			os.Remove(b.path("state", "guard", "ledger.json"))
		},
		"no configuration": func(b boardDir) { b.keepLedger(); os.Remove(b.config) },
		"a stale socket": func(b boardDir) {
			b.keepLedger()
			for _, n := range []string{"guard.sock", "agent.sock"} {
				l, err := net.Listen("unix", b.path("run", n))
				if err != nil {
					t.Fatal(err)
				}
				l.(*net.UnixListener).SetUnlinkOnClose(false)
				l.Close()
			}
		},
		"answers that are no JSON": func(b boardDir) {
			for _, n := range []string{"guard.sock", "agent.sock"} {
				l, err := net.Listen("unix", b.path("run", n))
				if err != nil {
					t.Fatal(err)
				}
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") })}
				go srv.Serve(l)
				b.t.Cleanup(func() { srv.Close() })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBoard(t)
			f(b)
			before := b.list()
			for _, args := range [][]string{{"status"}, {"status", "--oneline"}, {"status", "--json"}, {"why", "lamp"}, {"why", "2"}, {"diff"}, {"diff", "A"}, {"marks"}, {"slots"}, {"history"},
				{"history", "--since", "1h"}, {"selftest"}, {"doctor"}, {"doctor", "--json"}, {"reconcile", "--timeout", "1s"}, {"rollback", "--dry-run"}, {"version"}} {
				code, out, errOut := b.do(args...)
				if code < 0 || code > 2 || out+errOut == "" || code != 0 && code != 1 && args[0] != "diff" {
					t.Errorf("holdfast %v: exit code %d, says %q", args, code, out+errOut)
				}
				for _, no := range []string{"goroutine", "nil pointer", "%!"} {
					if strings.Contains(out+errOut, no) {
						t.Errorf("holdfast %v: %s", args, out+errOut)
					}
				}
			}
			if after := b.list(); after != before {
				t.Errorf("the files have changed:\n%s\n%s", before, after)
			}
		})
	}
}

// list is every file of the board, with its time and its content.
func (b boardDir) list() string {
	var s strings.Builder
	filepath.Walk(b.dir, func(p string, fi os.FileInfo, err error) error {
		data := []byte{}
		if err == nil && fi.Mode().IsRegular() {
			data, _ = os.ReadFile(p)
		}
		if err == nil {
			fmt.Fprintf(&s, "%s %s %x\n", p, fi.ModTime(), data)
		}
		return nil
	})
	return s.String()
}

// TestManPages: one for every verb, with what --help says, and nothing in it that man would take for an order.
func TestManPages(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.want(0, nil, "man", b.path("man"))
	root, _ := newRoot()
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		page, err := os.ReadFile(b.path("man", pageName(c)+".1"))
		if c.Hidden {
			if err == nil {
				t.Errorf("%s has a page", c.Name())
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range []string{".TH HOLDFAST", ".SH NAME\n" + roff(pageName(c)) + ` \- ` + roff(c.Short) + "\n", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH \"EXIT STATUS\"", ".SH EXAMPLES", ".SH \"SEE ALSO\""} {
			if !bytes.Contains(page, []byte(part)) && !(c == root && strings.Contains(part, "EXAMPLES")) {
				t.Errorf("the page of %s has no %q", c.Name(), part)
			}
		}
		for l := range strings.Lines(string(page)) {
			if word, _, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " "); strings.HasPrefix(l, "'") || strings.HasPrefix(l, ".") &&
				!slices.Contains([]string{".TH", ".SH", ".B", ".TP", ".PP", ".br", ".nf", ".fi"}, word) {
				t.Errorf("the page of %s has a line that man takes for an order: %s", c.Name(), l)
			}
		}
	}
	for in, want := range map[string]string{"a-b": `a\-b`, ".x": `\&.x`, "'holdfast'": `\&'holdfast'`, `\d`: `\ed`} {
		if got := roff(in); got != want {
			t.Errorf("roff(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestParagraph: words stay whole where a terminal ends.
func TestParagraph(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	printer{w: &b, width: 14}.paragraph("  - ", plain, "one two three averyveryverylongword x")
	if want := "  - one two\n    three\n    averyveryverylongword\n    x\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	p := printer{w: &b, colour: true, width: 20}
	p.paragraph("  "+p.paint(red, "bad")+" ", faint, "one two three four")
	if want := "  \x1b[31mbad\x1b[0m \x1b[2mone two three\x1b[0m\n      \x1b[2mfour\x1b[0m\n"; b.String() != want {
		t.Errorf("got\n%q\nwant\n%q", b.String(), want)
	}
	b.Reset()
	printer{w: &b}.paragraph("", plain, strings.Repeat("word ", 100))
	if strings.Count(b.String(), "\n") != 1 {
		t.Error("broken into lines though it is no terminal")
	}
}

// TestNarrow: in 60 columns no word is broken, tables keep their columns, and what is piped is never broken.
func TestNarrow(t *testing.T) {
	t.Parallel()
	for name, b := range liveBoards(t) {
		for _, show := range []func(p printer, b *board, v status.View){
			func(p printer, b *board, v status.View) { _ = showStatus(p, b, v) },
			func(p printer, b *board, v status.View) {
				for _, m := range v.Marks {
					showMark(p, b, v, m)
				}
			},
			func(p printer, b *board, v status.View) {
				p.line("To try %s once more: %s", strings.Repeat("what is held ", 9), "do it.\nNow.")
			},
		} {
			board := place{config: b.config}.open()
			v := status.Build(board.sources(t.Context(), thoroughly))
			var narrow, wide bytes.Buffer
			show(printer{w: &narrow, width: 60}, &board, v)
			show(printer{w: &wide}, &board, v)
			for l := range strings.Lines(narrow.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > 60 {
					t.Errorf("%s: %d columns: %s", name, n, l)
				}
			}
			if got, want := strings.Fields(narrow.String()), strings.Fields(wide.String()); !slices.Equal(got, want) {
				t.Errorf("%s: other words:\n%s\n%s", name, narrow.String(), wide.String())
			}
		}
	}
	var b bytes.Buffer
	printer{w: &b, width: 24}.table("  ", [][]cell{cells("a", "b", "one two three four"), cells("long", "", "five")})
	if want := "  a     b  one two three\n           four\n  long     five\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestOnATerminal: colour, unless NO_COLOR says otherwise.
func TestOnATerminal(t *testing.T) {
	_, theirs := terminal(t)
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if !newPrinter(theirs).colour {
		t.Error("no colour on a terminal")
	}
	t.Setenv("NO_COLOR", "1")
	if newPrinter(theirs).colour {
		t.Error("colour though NO_COLOR is set")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if newPrinter(theirs).colour {
		t.Error("colour on a dumb terminal")
	}
	if newPrinter(&bytes.Buffer{}).colour {
		t.Error("colour in a pipe")
	}
}

// TestDiff: what is compared, and what it is called.
func TestDiff(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	lf := newLife(t)
	lf.agent.Report.Observed.Actuators = map[string]string{"vent": "on", "door": "off", "fan": "true", "lamp": "off", "pump": "off"} // the door in another spelling
	lf.serve(b)
	b.want(1, []string{"door  closed            closed     off\n", "fan   on                on         true\n"}, "diff")
	lf.agent.Report.Observed.Actuators["fan"] = "on"
	b = newBoard(t)
	lf.serve(b)
	b.want(0, []string{"declared 1111111"}, "diff")
	b.want(0, []string{"A 1111111"}, "diff", "A")
	b.want(0, []string{"declared 1111111"}, "diff", goodRev[:4])
	b.want(0, []string{"last-known-good 1111111"}, "diff", "last-known-good")
	b.want(1, []string{"fallback  effective", "fan   off"}, "diff", "fallback")
	b.want(1, []string{"previous 0000000", "fan   off"}, "diff", "0000000c")
	b.want(2, []string{`"abcdef0" is not on this board`, "A (1111111), previous (0000000), fallback", "git show abcdef0:FILE"}, "diff", "abcdef0")
	b.want(2, []string{`"111" is not on this board`}, "diff", "111")
	b.want(2, []string{"takes one revision, or nothing"}, "diff", "a", "b")

	lf.state.Ledger.Previous.Revision = goodRev[:8] + "and then something else"
	b = newBoard(t)
	lf.serve(b)
	b.want(2, []string{"is the beginning of more than one"}, "diff", goodRev[:8])

	mixed := release(t, device.Fields{"fan": "on", "pump": "on"})
	slot := lf.state.Ledger.Slots[bootslot.SlotA]
	slot.Declared = mixed.Digest()
	lf.state.Ledger.Slots[bootslot.SlotA] = slot
	b = newBoard(t)
	lf.serve(b)
	b.want(0, []string{"came of 1111111 with held fields left out"}, "diff", "A")

	lf.agent.Report.Answered = false
	b = newBoard(t)
	lf.serve(b)
	b.want(2, []string{"the device does not answer"}, "diff")

	b = newBoard(t)
	b.want(2, []string{"the device does not answer", "Nothing is declared yet."}, "diff")
}
