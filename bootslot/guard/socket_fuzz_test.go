package guard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/sock"
)

// situations are what a request may find.
var situations = []func(*bench){
	func(*bench) {},
	func(b *bench) { b.pass(30 * time.Second) },
	func(b *bench) { b.try(0, "lamp", "on") },
	func(b *bench) { b.try(0, "lamp", "on"); b.temp = 50; b.pass(5 * time.Second) }, // returning, and a mark
	func(b *bench) {
		b.wish(3, "lamp", "on")
		_, _ = b.g.suspend(time.Hour, true, "ann")
		b.pass(10 * time.Second)
	},
	func(b *bench) { b.try(0, "fan", "on"); b.pass(30 * time.Second); b.disk.err = unix.ENOSPC },
}

// known is all of a guard that a request may change.
type known struct {
	Ledger     bootslot.Ledger
	Wish       *api.TrialRequest
	Decision   *bootslot.Decision
	Suspension api.Suspension
	Suspended  time.Duration
	Beat       api.Heartbeat
	Heard      bootslot.Heard
	Unwritten  bool
}

func (b *bench) known() known {
	g := b.g
	g.mu.Lock()
	defer g.mu.Unlock()
	return known{g.ledger, g.wish, g.decision, g.suspension, g.suspended, g.beat, g.heard, g.unwritten != nil}
}

// sane checks what must be so after any request: nothing but a release of the profile is effective, and all that is known can be told and stored.
func (b *bench) sane() {
	b.Helper()
	b.g.mu.Lock()
	state := b.g.state()
	b.g.mu.Unlock()
	if _, err := json.Marshal(state); err != nil {
		b.Errorf("the state cannot be told: %v", err)
	}
	for _, r := range []bootslot.Release{b.g.effective(), b.g.ledger.LastKnownGood(b.g.board)} {
		if r.Image != nil || len(r.Fields) != len(b.g.profile.Actuators) {
			b.Errorf("effective is %+v", r)
		}
		for _, a := range b.g.profile.Actuators {
			if !slices.Contains(a.Allowed, r.Fields[a.Name]) {
				b.Errorf("effective is %s=%q", a.Name, r.Fields[a.Name])
			}
		}
	}
	if raw, err := json.Marshal(b.g.ledger); err != nil || len(raw) > 64<<10 {
		b.Errorf("the ledger takes %d bytes, %v", len(raw), err)
	}
	for _, m := range b.g.ledger.Marks {
		if len(m.Set) == 0 {
			b.Errorf("the mark %+v holds nothing", m)
		}
	}
}

// peer is the context of a connection of this user.
func peer(t testing.TB) context.Context {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	file := os.NewFile(uintptr(fds[0]), "pair")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return sock.Server(context.Background(), nil).ConnContext(context.Background(), c)
}

var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// seconds is what a deadline may look like that is not over.
var seconds = regexp.MustCompile(`^\+?[0-9.]+([eE]\+?[0-9]+)?$`)

// FuzzRequest: whatever is asked at the guard's socket, by whomever and in whatever situation, the answer is JSON; an error changes nothing, nor does a question; what is
// carried out was asked by one JSON object of bounded size, in time, by somebody who may; and the guard goes on.
func FuzzRequest(f *testing.F) {
	release := `{"fields":{"pump":"off","fan":"on","vent":"on","lamp":"off","door":"closed"}}`
	for i, r := range []struct{ method, target, body, deadline string }{
		{"GET", "/v1/effective", "", ""}, {"GET", "/v1/effective?wait=0", "", ""}, {"GET", "/v1/effective?wait=-1", "", ""}, {"GET", "/v1/state?wait=1", "", ""},
		{"GET", "/v1/history?last=3", "", ""}, {"GET", "/v1/history?last=x", "", ""}, {"GET", "/v1/selftest", "", ""},
		{"POST", "/v1/trials", `{"release":` + release + `,"revision":"r1","retry":1}`, "3700"}, {"POST", "/v1/trials", `{"release":{"fields":{"pump":"on"}}}`, ""},
		{"POST", "/v1/trials", `{"release":` + strings.TrimSuffix(release, "}") + `,"image":{"version":"1","url":"http://a/b","sha256":""}}}`, ""},
		{"POST", "/v1/trials", `{"release":` + release + `,"revision":"` + strings.Repeat("x", 100<<10) + `"}`, ""},
		{"POST", "/v1/heartbeat", `{"generation":1,"refused":{"pump":"no\u001b[2J","x":""},"nonConvergent":["y"],"contended":["z","pump"]}`, ""},
		{"POST", "/v1/heartbeat", `{"goodbye":true}`, "3600"}, {"POST", "/v1/heartbeat", `{"goodbye":true}`, "1"},
		{"POST", "/v1/retry", "{}", ""}, {"POST", "/v1/retry", "", "NaN"}, {"POST", "/v1/retry", "nonsense", ""}, {"POST", "/v1/resume", "{}", "+Inf"}, {"POST", "/v1/resume", "[", "0x1p99"},
		{"POST", "/v1/rollback", `{"toFallback":true}`, ""}, {"POST", "/v1/rollback", "null", ""}, {"POST", "/v1/rollback", "{} x", ""}, {"POST", "/v1/rollback", "", ""}, {"POST", "/v1/rollback", "[]", ""},
		{"POST", "/v1/suspend", `{"forSeconds":60,"repair":true}`, ""}, {"POST", "/v1/suspend", `{"forSeconds":1e300}`, ""}, {"POST", "/v1/suspend", `{"forSeconds":-1}`, ""},
		{"POST", "/v1/suspend", `{"forSeconds":60,"x":"` + strings.Repeat("x", maxRequest) + `"}`, ""},
		{"GET", "/", "", ""}, {"DELETE", "/v1/state", "", ""}, {"POST", "/v1//retry", "{}", ""}, {"GET", "/v1/../v1/state", "", ""}, {"HEAD", "/v1/state", "", ""}, {"POST", "*", "", ""}, {"POST", "/v2/retry", "{}", ""},
	} {
		f.Add(r.method, r.target, []byte(r.body), r.deadline, uint8(i), false)
		if r.target == "/v1/trials" || r.target == "/v1/heartbeat" {
			f.Add(r.method, r.target, []byte(r.body), r.deadline, uint8(1), true)
		}
		if r.method == http.MethodPost {
			f.Add(r.method, r.target, []byte(r.body), r.deadline, uint8(1), false) // where most of it can be carried out
		}
	}
	known := peer(f)
	f.Fuzz(func(t *testing.T, method, target string, body []byte, deadline string, situation uint8, stranger bool) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !token.MatchString(method) || strings.ContainsAny(deadline, "\x00\r\n") {
			return // net/http itself refuses it
		}
		b := newBench(t, "")
		situations[int(situation)%len(situations)](b)
		base := known
		if stranger {
			base = context.Background()
		}
		ctx, cancel := context.WithTimeout(base, 20*time.Millisecond) // a question that waits
		defer cancel()
		req := (&http.Request{Method: method, URL: u, RequestURI: target, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "guard", Header: http.Header{},
			Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}).WithContext(ctx)
		if deadline != "" {
			req.Header.Set(api.DeadlineHeader, deadline)
		}
		before := b.known()
		rec := httptest.NewRecorder()
		b.g.handler().ServeHTTP(rec, req)
		after := b.known()

		answer, status := rec.Body.Bytes(), rec.Code
		var e api.Error
		switch {
		case status == http.StatusNoContent && len(answer) == 0:
		case !json.Valid(answer) || rec.Header().Get("Content-Type") != "application/json":
			t.Errorf("%s %s is answered with %d and %q", method, target, status, answer)
		case status >= 300 && (json.Unmarshal(answer, &e) != nil || e.Message == "" || len(answer) > 8*maxRequest):
			t.Errorf("%s %s is answered with %d and %q", method, target, status, answer)
		}
		recorded := status < 300 || status == http.StatusServiceUnavailable // as far as that could be stored
		if (!recorded || method != http.MethodPost) && !reflect.DeepEqual(after, before) {
			t.Errorf("%s %s %q is answered with %d and changes\n%+v\nto\n%+v", method, target, body, status, before, after)
		}
		if method == http.MethodPost && status < 300 {
			object := bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) && json.Valid(body)
			if empty := len(bytes.Trim(body, " \t\r\n")) == 0 && (u.Path == "/v1/retry" || u.Path == "/v1/resume"); !object && !empty || len(body) > maxRequest {
				t.Errorf("%s %s is carried out for %q", method, target, body)
			}
			if stranger && (u.Path == "/v1/trials" || u.Path == "/v1/heartbeat") {
				t.Errorf("%s is carried out for a stranger", target)
			}
			if deadline != "" && !seconds.MatchString(deadline) {
				t.Errorf("%s is carried out with the deadline %q", target, deadline)
			}
		}
		b.sane()
		b.disk.err = nil
		b.pass(2 * time.Second)
		b.sane()
	})
}

// FuzzSocket: whatever bytes come over the guard's socket, it answers in HTTP or hangs up, and then answers the next one who asks.
func FuzzSocket(f *testing.F) {
	for _, s := range []string{
		"", "GET /v1/state HTTP/1.1\r\nHost: g\r\n\r\n", "GET /v1/state HTTP/1.0\r\n\r\nGET /v1/state HTTP/1.1\r\nHost: g\r\n\r\n", "\x00\x01", "POST /v1/resume HTTP/1.1\r\nHost: g\r\nContent-Length: 99\r\n\r\n{}",
		"POST /v1/suspend HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"for\r\nzz\r\n", "GET /v1/state?wait=%zz HTTP/1.1\r\nHost: g\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET http://x/v1/state HTTP/1.1\r\nHost: \x1b\r\n\r\n", "GET /v1/state HTTP/1.1\r\nHost: g\r\nX: " + strings.Repeat("y", 40<<10) + "\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: g\r\n\r\n",
		"POST /v1/retry HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", "GET /v1/state HTTP/1.1\r\nHost: g\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := newBench(t, "")
		dir := b.TempDir()
		l, err := net.Listen("unix", dir+"/s")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- b.g.Serve(ctx, l) }()
		defer func() {
			cancel()
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
		}()
		before := b.known()
		say := func(data []byte) []byte {
			c, err := net.Dial("unix", dir+"/s")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = c.Write(data)
			_ = c.(*net.UnixConn).CloseWrite()
			answer, err := io.ReadAll(c)
			if err != nil && os.IsTimeout(err) {
				t.Errorf("%q: no end to the answer", data)
			}
			return answer
		}
		answer := bufio.NewReader(bytes.NewReader(say(data)))
		for {
			if _, err := answer.Peek(1); err != nil {
				break
			}
			resp, err := http.ReadResponse(answer, nil)
			if err != nil {
				break // a HEAD's, or of a request that was cut off
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		if !bytes.Contains(data, []byte("POST")) && !reflect.DeepEqual(b.known(), before) {
			t.Errorf("%q changes\n%+v\nto\n%+v", data, before, b.known())
		}
		if next := say([]byte("GET /v1/state HTTP/1.1\r\nHost: guard\r\nConnection: close\r\n\r\n")); !bytes.HasPrefix(next, []byte("HTTP/1.1 200 ")) {
			t.Errorf("after %q the next one gets %q", data, next)
		}
		b.sane()
	})
}
