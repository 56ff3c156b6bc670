package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// recorder stands between one process and the device. It counts what the process asks and writes, and can
// catch it in the act of writing.
type recorder struct {
	who    string
	addr   string
	log    *os.File
	note   func(format string, args ...any)
	server *http.Server
	writer func() *process // whom to freeze

	mu       sync.Mutex
	reads    int // GET /state, read-backs and long polls left out: cycles of the agent, samples of the guard
	wrote    bool
	writes   int             // POST /actuators
	armed    string          // freeze at this moment: beforeWrite, afterRead or ""
	held     bool            // a write or an answer is on its way while the process is frozen
	heldDone chan chan error // thaw: deliver it, and tell when it has been
}

// Moments at which a process can be frozen.
const (
	beforeWrite = "before-write" // its write has left it and has not reached the device
	afterRead   = "after-read"   // what the device reports at the begin of a cycle has not reached it
)

func newRecorder(who, addr, device string, log_ *os.File, note func(string, ...any), writer func() *process) (*recorder, error) {
	to, err := url.Parse(device)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	r := &recorder{who: who, addr: addr, log: log_, note: note, writer: writer, heldDone: make(chan chan error)}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(pr *httputil.ProxyRequest) { pr.SetURL(to) },
		FlushInterval: -1,
		Transport:     &http.Transport{IdleConnTimeout: 5 * time.Second},
		ErrorLog:      log.New(io.Discard, "", 0),
		// A device that drops the connection is not one that answers 502.
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) { panic(http.ErrAbortHandler) },
	}
	r.server = &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.serve(proxy, w, req)
	})}
	go r.server.Serve(l)
	return r, nil
}

func (r *recorder) close() { r.server.Close() }

func (r *recorder) serve(proxy http.Handler, w http.ResponseWriter, req *http.Request) {
	switch {
	case req.Method == http.MethodGet && req.URL.Path == "/state" && req.URL.RawQuery == "":
		r.mu.Lock()
		first := !r.wrote // the read after a write belongs to the same cycle
		if first {
			r.reads++
		}
		r.wrote = false
		r.mu.Unlock()
		if !first || !r.disarm(afterRead) {
			proxy.ServeHTTP(w, req)
			return
		}
		// The answer is as old as the freezing.
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, req)
		delivered := r.hold(req, "what the device reports")
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes())
		if delivered != nil {
			delivered <- nil
		}
	case req.Method == http.MethodPost && req.URL.Path == "/actuators":
		body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		r.mu.Lock()
		r.writes++
		r.wrote = true
		r.mu.Unlock()
		var delivered chan error
		if r.disarm(beforeWrite) {
			delivered = r.hold(req, "its write "+string(body))
			// The writer may have given up by now; what is on the wire arrives all the same.
			*req = *req.WithContext(context.WithoutCancel(req.Context()))
		}
		sw := &statusWriter{ResponseWriter: w}
		func() {
			defer func() {
				p := recover()
				fmt.Fprintf(r.log, "%s %s writes %s: %s\n", time.Now().Format("15:04:05.000"), r.who, body, sw)
				r.note("%s writes %s: %s", r.who, strings.TrimSpace(string(body)), sw)
				if delivered != nil {
					delivered <- nil
				}
				if p != nil {
					panic(p)
				}
			}()
			proxy.ServeHTTP(sw, req)
		}()
	default:
		proxy.ServeHTTP(w, req)
	}
}

// hold freezes the process and keeps what is on its way until thaw.
func (r *recorder) hold(req *http.Request, what string) (delivered chan error) {
	if p := r.writer(); p != nil {
		p.signal(syscall.SIGSTOP)
	}
	r.note("%s is frozen, %s is on its way", r.who, what)
	r.mu.Lock()
	r.held = true
	r.mu.Unlock()
	select {
	case delivered = <-r.heldDone:
	case <-req.Context().Done(): // the process was killed
	}
	r.mu.Lock()
	r.held = false
	r.mu.Unlock()
	return delivered
}

// isHolding reports whether something is on its way to or from a frozen process.
func (r *recorder) isHolding() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// deliver lets what is held, if anything is, arrive, and waits until it has.
func (r *recorder) deliver() {
	r.arm("")
	if !r.isHolding() {
		return
	}
	done := make(chan error, 1)
	select {
	case r.heldDone <- done:
		<-done
	case <-time.After(5 * time.Second):
	}
}

// arm freezes the process at its next such moment.
func (r *recorder) arm(moment string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = moment
}

// disarm reports whether the process is to be frozen at this moment; once.
func (r *recorder) disarm(moment string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	hit := r.armed == moment
	if hit {
		r.armed = ""
	}
	return hit
}

func (r *recorder) counts() (reads, writes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reads, r.writes
}

// statusWriter remembers the status, 0 for a connection that broke.
type statusWriter struct {
	http.ResponseWriter
	code int
}

func (w *statusWriter) WriteHeader(code int) { w.code = code; w.ResponseWriter.WriteHeader(code) }

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) String() string {
	if w.code == 0 {
		return "no answer"
	}
	return fmt.Sprint(w.code)
}

// knobs is somebody at the device itself, and its simulated world.
type knobs struct {
	url   string
	limit time.Duration // for each question; 0 is 5 s
}

var knobClient = &http.Client{Transport: &http.Transport{IdleConnTimeout: 5 * time.Second}}

func (k knobs) within(limit time.Duration) knobs { return knobs{k.url, limit} }

func (k knobs) send(method, path string, body []byte) ([]byte, error) {
	limit := k.limit
	if limit == 0 {
		limit = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, k.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := knobClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s %s: %s: %s", method, path, body, resp.Status, b)
	}
	return b, err
}

// state is what the device shows to somebody who stands before it: its readings and actuators by name. The faults of the contract's
// requests do not reach the bench.
func (k knobs) state() (map[string]string, error) {
	b, err := k.send(http.MethodPost, "/sim/set", []byte("{}"))
	if err != nil {
		return nil, err
	}
	var s struct {
		Readings  map[string]float64 `json:"readings"`
		Actuators map[string]string  `json:"actuators"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	if s.Actuators == nil {
		s.Actuators = map[string]string{}
	}
	for name, v := range s.Readings {
		s.Actuators[name] = fmt.Sprint(v)
	}
	return s.Actuators, nil
}

func TestRecorderCountsAndHolds(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	lamp := "off"
	device := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/actuators" {
			var set map[string]string
			json.NewDecoder(r.Body).Decode(&set)
			lamp = set["lamp"]
		}
		fmt.Fprintf(w, `{"actuators":{"lamp":%q}}`, lamp)
	}))
	defer device.Close()
	logFile, err := os.Create(filepath.Join(t.TempDir(), "device.log"))
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort(freeAddr(), "8081")
	sleeper, err := startProcess("sleeper", filepath.Join(t.TempDir(), "sleeper.log"), nil, "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	defer sleeper.end(syscall.SIGKILL, time.Second)
	r, err := newRecorder("agent", addr, device.URL, logFile, func(string, ...any) {}, func() *process { return sleeper })
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	through, direct := knobs{url: "http://" + addr}, knobs{url: device.URL}
	for _, step := range []struct{ method, path, body string }{
		{"GET", "/state", ""},
		{"POST", "/actuators", `{"lamp":"on"}`},
		{"GET", "/state", ""}, // the read-back
		{"GET", "/state", ""},
		{"GET", "/healthz", ""},
	} {
		if _, err := through.send(step.method, step.path, []byte(step.body)); err != nil {
			t.Fatal(err)
		}
	}
	if reads, writes := r.counts(); reads != 2 || writes != 1 {
		t.Errorf("counts() = %d, %d; want 2 cycles, 1 write", reads, writes)
	}
	r.arm(beforeWrite)
	go through.send("POST", "/actuators", []byte(`{"lamp":"stale"}`))
	for sleeper.state() != "frozen" {
		time.Sleep(time.Millisecond)
	}
	if s, err := direct.state(); err != nil || s["lamp"] != "on" {
		t.Errorf("while the write is held the lamp is %q, %v; want on", s["lamp"], err)
	}
	for !r.isHolding() { // hold tells the story before it can be delivered
		time.Sleep(time.Millisecond)
	}
	r.deliver()
	if s, err := direct.state(); err != nil || s["lamp"] != "stale" {
		t.Errorf("after delivery the lamp is %q, %v; want stale", s["lamp"], err)
	}
}
