package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/agent"
	"holdfast/bootslot/api"
	"holdfast/bootslot/journal"
	"holdfast/bootslot/sock"
)

// stateRepository is a bare repository with one revision of a greenhouse.
func (b boardDir) stateRepository() string {
	b.t.Helper()
	bare, tree := b.path("state.git"), b.path("tree")
	git := func(args ...string) {
		b.t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@localhost", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@localhost")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	git("init", "-q", "--bare", "-b", "main", bare)
	git("init", "-q", "-b", "main", tree)
	b.write("tree/greenhouse.yaml", "pump: off\nfan: on\nvent: on\nlamp: off\ndoor: closed\n")
	git("-C", tree, "add", ".")
	git("-C", tree, "commit", "-q", "-m", "Air")
	git("-C", tree, "push", "-q", bare, "main")
	return bare
}

// output is what a process in the test has logged.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// TestRun runs the real agent without a guard: it fetches, tells how it stands, is the only one, writes nothing to disk once it is at
// rest, and ends when it is told to.
func TestRun(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: make deps")
	}
	b := newBoard(t)
	device := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s without a guard", r.Method, r.URL)
		}
		io.WriteString(w, `{"observedAt":"2026-05-01T12:00:00Z","readings":{"temperature":21},"actuators":{"pump":"on","fan":"off","vent":"on","lamp":"off","door":"closed"}}`)
	}))
	defer device.Close()
	b.write("holdfast.yaml", fmt.Sprintf("device: {url: '%s', interval: 100ms, timeout: 200ms}\nrepository: {url: '%s', interval: 200ms}\nguard: {window: 10s, soak: 1s, interval: 100ms}\nstate: %s/state\nrun: %s/run\n",
		device.URL, b.stateRepository(), b.dir, b.dir))

	log := &output{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, slog.New(journal.New(log, "holdfast")), place{config: b.config}) }()

	wait := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
			select {
			case err := <-ended:
				t.Fatalf("the agent ended by itself: %v", err)
			default:
			}
			if time.Now().After(end) {
				t.Fatalf("%s does not come about; log:\n%s", what, log)
			}
		}
	}
	client := agent.NewClient(b.path("run", "agent.sock"))
	wait("a declared release", func() bool {
		s, err := client.Status(ctx, nil)
		return err == nil && s.Declared != nil && s.Declared.Fields["fan"] == "on" && s.GitCycles > 1
	})
	b.want(1, []string{"the guard is dead (it does not run)", `"Air"`}, "status")
	if want := `msg="guard silent" error="it does not run"`; !strings.Contains(log.String(), want) {
		t.Errorf("the log does not say %s:\n%s", want, log)
	}

	if err := run(ctx, slog.New(slog.DiscardHandler), place{config: b.config}); !errors.As(err, new(sock.RunningError)) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a second agent ends with %v", err)
	}

	before, lines := stamps(t, b.path("state")), log.String()
	s, err := client.Status(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	device0, git0 := s.DeviceCycles, s.GitCycles
	wait("twenty more cycles", func() bool {
		s, err := client.Status(ctx, nil)
		return err == nil && s.DeviceCycles > device0+20 && s.GitCycles > git0+5
	})
	if after := stamps(t, b.path("state")); after != before {
		t.Errorf("the state folder changed at rest:\n%s\n%s", before, after)
	}
	if now := log.String(); now != lines {
		t.Errorf("said at rest:\n%s", strings.TrimPrefix(now, lines))
	}

	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("run: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	b.want(1, []string{"the agent is dead (it does not run)", `"Air"`}, "status") // the clone tells
}

// stamps is every file under dir with its size and time.
func stamps(t *testing.T, dir string) string {
	t.Helper()
	var s strings.Builder
	err := filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err == nil {
			fmt.Fprintln(&s, p, fi.Size(), fi.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.String()
}

// TestNewDeviceWaitsForTheTrial: an open trial keeps the device that it was opened with, as the guard does; then the new one counts.
func TestNewDeviceWaitsForTheTrial(t *testing.T) {
	hup := make(chan os.Signal, 8) // so that the signal never ends the tests
	signal.Notify(hup, unix.SIGHUP)
	defer signal.Stop(hup)
	b := newBoard(t)
	var asked [2]atomic.Int64
	greenhouse := func(i int) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked[i].Add(1)
			io.WriteString(w, `{"observedAt":"2026-05-01T12:00:00Z","readings":{},"actuators":{"pump":"off","fan":"off","vent":"on","lamp":"off","door":"closed"}}`)
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	configure := func(url string) {
		b.write("holdfast.yaml", fmt.Sprintf("device: {url: '%s', interval: 100ms, timeout: 200ms}\nrepository: {url: '%s/nothing', interval: 1m}\nguard: {window: 10s, soak: 1s, interval: 100ms}\nstate: %s/state\nrun: %s/run\n", url, b.dir, b.dir, b.dir))
	}
	first, second := greenhouse(0), greenhouse(1)
	configure(first)
	var lease atomic.Pointer[api.Lease]
	fields := release(t, nil).Fields
	lease.Store(&api.Lease{Generation: 2, Fields: fields, Proven: fields, TrialEndsInSeconds: 50, Instance: "one"})
	l, err := net.Listen("unix", b.path("run", "guard.sock"))
	if err != nil {
		t.Fatal(err)
	}
	guard := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("wait") {
			<-r.Context().Done()
			return
		}
		json.NewEncoder(w).Encode(lease.Load())
	})}
	go guard.Serve(l)
	defer guard.Close()

	log := &output{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, slog.New(journal.New(log, "holdfast")), place{config: b.config}) }()
	defer func() {
		cancel()
		<-ended
	}()
	wait := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s does not come about; log:\n%s", what, log)
			}
		}
	}
	wait("a cycle", func() bool { return asked[0].Load() > 5 })
	configure(second)
	if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wait("a reload", func() bool { return strings.Contains(log.String(), "device settings wait for the end of the trial") })
	n := asked[0].Load()
	wait("more cycles in the trial, and a look whether it is over", func() bool { return asked[0].Load() > n+25 })
	if asked[1].Load() != 0 {
		t.Error("the new device is asked while the trial runs on the old one")
	}
	lease.Store(&api.Lease{Generation: 3, Fields: fields, Proven: fields, Instance: "one"})
	wait("the new device", func() bool { return asked[1].Load() > 5 })
	if got := strings.Count(log.String(), "configuration read again"); got != 2 {
		t.Errorf("the configuration was read again %d times, want 2:\n%s", got, log)
	}
}

// TestRunWithoutConfiguration: with no copy of a valid one there is nothing to go on with, and all of its errors are told.
func TestRunWithoutConfiguration(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.write("holdfast.yaml", "device: {url: nonsense}\nstate: "+b.dir+"/state\nrun: "+b.dir+"/run\n")
	err := run(context.Background(), slog.New(slog.DiscardHandler), place{config: b.config})
	if err == nil || !strings.Contains(err.Error(), "device.url") || !strings.Contains(err.Error(), "repository") {
		t.Errorf("run: %v", err)
	}
}
