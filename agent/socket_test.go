package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/agent/gitclone"
	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/sock"
	"holdfast/device/clock"
)

func ask(w *world, method, path, body string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.agent.Handler().ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
	return rec
}

func TestHandler(t *testing.T) {
	inWorld(t, func(w *world) {
		w.clone.push("r1", "vent=off lamp=off")
		w.start()
		w.pass(time.Second)
		var s status.Agent
		if err := json.Unmarshal(ask(w, "GET", "/v1/status", "").Body.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if s.Declared == nil || s.Declared.Revision != "r1" || s.Declared.Subject != "about r1" || s.Drives != status.DrivesEffective || s.Git.State != status.GitOK ||
			s.Report == nil || !s.Report.Answered || s.DeviceCycles == 0 || s.GitCycles != 1 || s.PID != os.Getpid() {
			t.Errorf("status %+v", s)
		}
		fetches := len(w.clone.fetches)
		n := len(w.clone.fetches)
		if got := ask(w, "POST", "/v1/reconcile", `{"noFetch":true}`); got.Code != http.StatusAccepted || strings.Contains(got.Body.String(), "fetch") {
			t.Errorf("reconcile without a fetch: %d %s", got.Code, got.Body)
		}
		w.pass(time.Millisecond)
		if len(w.clone.fetches) != n {
			t.Error("fetched though it was told not to")
		}
		if code := ask(w, "POST", "/v1/reconcile", "{}").Code; code != http.StatusAccepted {
			t.Errorf("reconcile: %d", code)
		}
		w.pass(time.Millisecond)
		if len(w.clone.fetches) != fetches+1 {
			t.Error("reconcile did not fetch")
		}
		for _, tt := range []struct {
			method, path, body string
			want               int
		}{
			{"POST", "/v1/accept", `{"revision":"x"}`, http.StatusAccepted}, {"POST", "/v1/accept", `nonsense`, http.StatusBadRequest},
			{"GET", "/v1/status?wait=x", "", http.StatusBadRequest}, {"GET", "/v1/reconcile", "", http.StatusMethodNotAllowed}, {"GET", "/", "", http.StatusNotFound},
		} {
			if got := ask(w, tt.method, tt.path, tt.body).Code; got != tt.want {
				t.Errorf("%s %s: %d, want %d", tt.method, tt.path, got, tt.want)
			}
		}
	})
}

// TestStatusWaits: a question with wait is answered when something has changed, and time passing is no change.
func TestStatusWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.clone.push("r1", "vent=off lamp=on")
		w.guard.decide = func(g *fakeGuard, _ api.TrialRequest) bootslot.Decision {
			return bootslot.Decision{Kind: bootslot.Refused, Reason: fmt.Sprintf("a pause of %d s is left", 1000-len(g.wishes))}
		}
		w.start()
		w.pass(time.Minute)
		n := w.agent.Status().Change
		w.pass(10 * time.Minute)
		if now := w.agent.Status().Change; now != n {
			t.Errorf("%d changes in ten minutes of nothing", now-n)
		}
		answered := make(chan time.Duration, 1)
		begin := time.Now()
		go func() {
			ask(w, "GET", "/v1/status?wait="+jsonNumber(n), "")
			answered <- time.Since(begin)
		}()
		w.pass(10 * time.Second)
		select {
		case took := <-answered:
			t.Fatalf("answered after %v though nothing has changed", took)
		default:
		}
		w.clone.fail(&gitclone.Error{Kind: gitclone.ErrOffline, Err: errors.New("no route")})
		w.agent.FetchNow()
		synctest.Wait()
		select {
		case <-answered:
		default:
			t.Error("not answered when the link went down")
		}
	})
}

// TestWhoAsked: what an operator asks of the agent is in the log with his name, which the kernel vouches for.
func TestWhoAsked(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "agent.sock")
	l, err := sock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	log := &logged{}
	a := New(Options{Clock: clock.NewProcess(), Log: slog.New(log), Clone: &fakeClone{}}, nil)
	srv := sock.Server(t.Context(), a.Handler())
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for path, body := range map[string]string{"/v1/reconcile": "{}", "/v1/accept": `{"revision":"x"}`} {
		resp, err := client.Post("http://agent"+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	me := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		me = u.Username
	}
	for _, want := range []string{`msg="asked to fetch now" who=` + me, `msg="revision accepted by an operator" revision=x who=` + me} {
		if log.count(want) != 1 {
			t.Errorf("the log does not say %q: %q", want, log.all())
		}
	}
}

func jsonNumber(n uint64) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestListen(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "agent.sock")
	old, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	old.Close() // as after kill -9: the file is there and nobody listens
	l, err := sock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v; want 0660", fi.Mode(), err)
	}
}

// TestReconcilingSaysWhich: whoever asks for a fetch and a look waits for those that began after he asked, and not for the ones that were under way.
func TestReconcilingSaysWhich(t *testing.T) {
	inWorld(t, func(w *world) {
		w.clone.push("r1", "vent=off lamp=off")
		w.start()
		w.pass(time.Minute)
		before := w.agent.Status()
		if r := w.agent.Reconcile(true); r.Fetch != before.GitCycles+1 || r.Cycle != before.DeviceCycles+1 {
			t.Errorf("at rest: %+v, want the next ones after %d and %d", r, before.GitCycles, before.DeviceCycles)
		}
		w.pass(time.Second)
		after := w.agent.Status()
		if after.GitCycles != before.GitCycles+1 || after.EndedCycle < before.DeviceCycles+1 || after.EndedCycle > after.DeviceCycles {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if r := w.agent.Reconcile(false); r.Fetch != 0 || r.Cycle != after.DeviceCycles+1 {
			t.Errorf("without a fetch: %+v", r)
		}
		w.pass(time.Second)
		if n := w.agent.Status().GitCycles; n != after.GitCycles {
			t.Errorf("%d fetches, though none was asked for", n-after.GitCycles)
		}

		w.clone.mu.Lock()
		w.clone.hangs = true
		w.clone.mu.Unlock()
		w.agent.FetchNow()
		w.pass(time.Second)
		if r := w.agent.Reconcile(true); r.Fetch != after.GitCycles+2 {
			t.Errorf("while a fetch runs: %+v, want %d", r, after.GitCycles+2)
		}
	})
}
