package gitclone

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const (
	revisionA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	revisionB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// answerTo is a whole HTTP answer that says where main is.
func answerTo(request []byte, revision string) []byte {
	kind, body := "result", "003d"+revision+" refs/heads/main\n0000"
	if bytes.HasPrefix(request, []byte("GET ")) {
		kind, body = "advertisement", "001e# service=git-upload-pack\n0000000eversion 2\n000cls-refs\n0012fetch=shallow\n0000"
	}
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-%s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body)
}

// bareServer calls do for each request of each connection, with its bytes and its number, until it returns false. It allocates
// nothing itself.
func bareServer(t *testing.T, do func(c net.Conn, request []byte, n int) bool) (url string, conns *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	conns = new(atomic.Int64)
	requests := 0
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			buf := make([]byte, 4096)
			for at := 0; ; { // one connection at a time
				n, err := c.Read(buf[at:])
				at += n
				if err != nil {
					break
				}
				if request := buf[:at]; bytes.HasSuffix(request, []byte("0000")) || bytes.HasPrefix(request, []byte("GET ")) && bytes.HasSuffix(request, []byte("\r\n\r\n")) {
					if requests++; !do(c, request, requests) {
						break
					}
					at = 0
				}
			}
			_ = c.Close()
		}
	}()
	return "http://" + l.Addr().String() + "/state.git", conns
}

// publishedAt is a clone that has a revision already.
func publishedAt(t *testing.T, url, revision string) *Clone {
	t.Helper()
	c := openClone(t, options(t, url))
	c.desired.Store(&Desired{Revision: revision, URL: c.remote.safeURL(), Branch: c.o.Branch, File: c.o.File})
	c.whole = true
	return c
}

// TestPollAllocates: little, as 10,000 agents poll for years. How long it takes is told by make bench-git.
func TestPollAllocates(t *testing.T) {
	var poll []byte
	url, conns := bareServer(t, func(c net.Conn, request []byte, n int) bool {
		answer := poll
		if n <= 2 {
			poll = answerTo(request, revisionA)
			answer = poll
		}
		_, err := c.Write(answer)
		return err == nil
	})
	c := publishedAt(t, url, revisionA)
	ctx := t.Context()
	fetch := func() {
		if f, err := c.Fetch(ctx); err != nil || f.Changed || f.Revision != revisionA {
			t.Fatalf("Fetch = %+v, %v", f, err)
		}
	}
	fetch()
	const polls = 200
	created := func() uint64 {
		s := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	goroutines := created()
	for range polls {
		fetch()
	}
	// To wake another goroutine, which wakes a thread, costs more than all that is allocated.
	if n := created() - goroutines; n > polls/10 {
		t.Errorf("%d polls made %d goroutines, want none", polls, n)
	}
	runtime.ReadMemStats(&after)
	allocs, size := (after.Mallocs-before.Mallocs)/polls, (after.TotalAlloc-before.TotalAlloc)/polls
	t.Logf("a poll makes %d allocations of %d bytes", allocs, size)
	if allocs > 75 || size > 5<<10 && !raceDetector() {
		t.Errorf("a poll makes %d allocations of %d bytes, want 75 of 5 KiB at most", allocs, size)
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for %d polls", n, polls+1)
	}
}

// raceDetector reports whether this test was built with it: then all that is allocated is larger.
func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// TestConnection: what servers do to a connection that is kept, and to one that is not.
func TestConnection(t *testing.T) {
	write := func(c net.Conn, s ...any) bool {
		_, err := fmt.Fprint(c, s...)
		return err == nil
	}
	whole := func(c net.Conn, request []byte, revision string) bool {
		return write(c, string(answerTo(request, revision)))
	}
	second := make(chan struct{}) // closed when something has come after an answer
	tests := []struct {
		name  string
		do    func(c net.Conn, request []byte, n int) bool
		conns int64 // for three polls that succeed
		kind  Kind  // of the first
		fails bool  // each does
	}{
		{"kept", func(c net.Conn, q []byte, _ int) bool { return whole(c, q, revisionA) }, 1, "", false},
		{"closed after each answer, unsaid", func(c net.Conn, q []byte, _ int) bool { whole(c, q, revisionA); return false }, 4, "", false},
		{"closed after each answer, as was said", func(c net.Conn, q []byte, _ int) bool {
			write(c, strings.Replace(string(answerTo(q, revisionA)), "\r\n", "\r\nConnection: close\r\n", 1))
			return true
		}, 4, "", false},
		{"no length", func(c net.Conn, q []byte, _ int) bool {
			a := string(answerTo(q, revisionA))
			head, body, _ := strings.Cut(a, "\r\n\r\n")
			head, _, _ = strings.Cut(head, "\r\nContent-Length")
			write(c, strings.Replace(head, "1.1", "1.0", 1), "\r\n\r\n", body)
			return false
		}, 4, "", false},
		{"in chunks", func(c net.Conn, q []byte, _ int) bool {
			head, body, _ := strings.Cut(string(answerTo(q, revisionA)), "\r\n\r\n")
			head, _, _ = strings.Cut(head, "\r\nContent-Length")
			return write(c, head, "\r\nTransfer-Encoding: chunked\r\n\r\n", fmt.Sprintf("%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", 10, body[:10], len(body)-10, body[10:]))
		}, 1, "", false},
		{"an answer to nothing", func(c net.Conn, q []byte, n int) bool {
			ok := whole(c, q, revisionA)
			if n == 2 { // after the first poll, which is after the first question
				time.Sleep(10 * time.Millisecond)
				ok = whole(c, q, revisionB)
				close(second)
			}
			return ok
		}, 2, "", false},
		{"an answer to nothing, at once", func(c net.Conn, q []byte, n int) bool {
			if n == 2 {
				return write(c, string(answerTo(q, revisionA)), string(answerTo(q, revisionB)))
			}
			return whole(c, q, revisionA)
		}, 2, "", false},
		{"a word before the answer", func(c net.Conn, q []byte, _ int) bool {
			return write(c, "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n") && whole(c, q, revisionA)
		}, 1, "", false},
		{"words, and no answer", func(c net.Conn, q []byte, _ int) bool {
			for write(c, "HTTP/1.1 103 Early Hints\r\n\r\n") {
			}
			return false
		}, 0, ErrProtocol, true},
		{"a header without end", func(c net.Conn, q []byte, _ int) bool {
			write(c, "HTTP/1.1 200 OK\r\n")
			for write(c, "X: ", strings.Repeat("x", 1000), "\r\n") {
			}
			return false
		}, 0, ErrProtocol, true},
		{"a header that trickles", func(c net.Conn, q []byte, _ int) bool {
			for write(c, "H") {
				time.Sleep(20 * time.Millisecond)
			}
			return false
		}, 0, ErrOffline, true},
		{"cut in the header", func(c net.Conn, q []byte, _ int) bool { write(c, "HTTP/1.1 200 OK\r\nConte"); return false }, 0, ErrOffline, true},
		{"cut before it", func(c net.Conn, q []byte, _ int) bool { return false }, 0, ErrOffline, true},
		{"silence", func(c net.Conn, q []byte, _ int) bool { return true }, 0, ErrOffline, true},
		{"silence in the body", func(c net.Conn, q []byte, _ int) bool {
			a := answerTo(q, revisionA)
			_, err := c.Write(a[:len(a)-6])
			return err == nil
		}, 0, ErrOffline, true},
		{"not HTTP", func(c net.Conn, q []byte, _ int) bool { return write(c, "SSH-2.0-OpenSSH_9.2\r\n") }, 0, ErrProtocol, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url, conns := bareServer(t, tt.do)
			c := publishedAt(t, url, revisionA)
			if tt.kind == ErrOffline {
				c.remote.o.StallTimeout = 200 * time.Millisecond
			}
			for i := range 3 {
				f, err := c.Fetch(t.Context())
				if KindOf(err) != tt.kind || !tt.fails && f.Revision != revisionA {
					t.Errorf("poll %d: Fetch = %+v, %v (%s), want %s", i+1, f, err, KindOf(err), tt.kind)
				}
				if stalls := strings.HasPrefix(tt.name, "silence") || tt.name == "a header that trickles"; stalls && !strings.Contains(fmt.Sprint(err), errStalled.Error()) {
					t.Errorf("poll %d: Fetch = %v, want that %v", i+1, err, errStalled)
				}
				if i == 0 && strings.HasPrefix(tt.name, "an answer to nothing") && tt.name[len(tt.name)-1] == 'g' {
					<-second
				}
			}
			if n := conns.Load(); n != tt.conns && !tt.fails {
				t.Errorf("%d connections for three polls, want %d", n, tt.conns)
			}
		})
	}
}

// TestConnectionGrowsOld: one that has been idle for long is not trusted.
func TestConnectionGrowsOld(t *testing.T) {
	url, conns := bareServer(t, func(c net.Conn, q []byte, _ int) bool { _, err := c.Write(answerTo(q, revisionA)); return err == nil })
	c := publishedAt(t, url, revisionA)
	mustFetch(t, c)
	mustFetch(t, c)
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	c.remote.http.Transport.(*transport).direct.idle.since = time.Now().Add(-maxIdle - time.Second)
	mustFetch(t, c)
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// TestProxy: the environment's is used, with its stalls and its refusals, and never for loopback.
func TestProxy(t *testing.T) {
	const env = "HOLDFAST_TEST_PROXIED"
	if os.Getenv(env) == "" {
		var through atomic.Int64
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			through.Add(1)
			switch {
			case q.URL.Host == "stalls.example.org" && q.Method == http.MethodPost:
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				_, _ = io.WriteString(w, "003d"+revisionA)
				w.(http.Flusher).Flush()
				<-q.Context().Done()
			case strings.HasSuffix(q.URL.Host, ".example.org"):
				answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answerTo([]byte(q.Method+" "), revisionA))), nil)
				if err == nil {
					w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
					_, _ = io.Copy(w, answer.Body)
				}
			default:
				http.Error(w, "what is that?", http.StatusTeapot)
			}
		}))
		defer proxy.Close()
		cmd := exec.Command(os.Args[0], "-test.run=^TestProxy$", "-test.count=1", "-test.v")
		cmd.Env = append(os.Environ(), env+"=1", "http_proxy="+proxy.URL, "https_proxy="+proxy.URL, "no_proxy=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if n := through.Load(); n != 6 {
			t.Errorf("%d requests went through the proxy, want 6", n)
		}
		return
	}
	c := publishedAt(t, "http://git.example.org/state.git", revisionA)
	for range 2 { // three requests
		if f := mustFetch(t, c); f.Revision != revisionA {
			t.Errorf("Fetch = %+v", f)
		}
	}
	c = publishedAt(t, "http://stalls.example.org/state.git", revisionA) // two
	c.remote.o.StallTimeout = 300 * time.Millisecond
	if e := wantFetch(t, c, ErrOffline); !errors.Is(e, ErrOffline) || !strings.Contains(e.Error(), errStalled.Error()) {
		t.Errorf("Fetch = %v", e)
	}
	wantFetch(t, publishedAt(t, "https://git.example.org/state.git", revisionA), ErrOffline) // one: CONNECT
	url, _ := bareServer(t, func(c net.Conn, q []byte, _ int) bool { _, err := c.Write(answerTo(q, revisionA)); return err == nil })
	mustFetch(t, publishedAt(t, url, revisionA))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	silent, _ := bareServer(t, func(net.Conn, []byte, int) bool { return true })
	if _, err := publishedAt(t, silent, revisionA).Fetch(ctx); !errors.Is(err, ErrOffline) {
		t.Errorf("Fetch = %v", err)
	}
}
