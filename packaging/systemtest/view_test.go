//go:build system

package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// view is what `holdfast status --json` says, as far as it is asked about here (docs/cli-json.md).
type view struct {
	Summary    string
	Details    []string
	NotFine    []string
	Problems   []string
	Phase      string
	Driver     string
	Generation uint64
	Guard      process
	Agent      process
	Effective  release
	Declared   *release
	Trial      *struct{ Attempt int }
	Device     struct {
		Answers  bool
		Observed map[string]string
		Drift    []any
	}
	Marks        []mark
	LastVerdict  *struct{ Kind, Revision, Check string }
	Git          struct{ State string }
	DeviceCycles uint64
}

type process struct {
	Alive   bool
	PID     int
	Version string
}

type release struct {
	Revision string
	Fields   map[string]string
}

type mark struct {
	ID    uint64
	Set   map[string]string
	Cause string
	Check string
}

// status asks the board. Its exit status is not looked at: 1 is not fine.
func (b *board) status() view {
	b.Helper()
	out, err := b.try("holdfast status --json")
	var v view
	if jsonErr := json.Unmarshal([]byte(out), &v); jsonErr != nil {
		b.Fatalf("holdfast status --json: %v: %v\n%s", err, jsonErr, out)
	}
	return v
}

// untilStatus waits until the board's status is so.
func (b *board) untilStatus(what string, holds func(v view) bool) view {
	b.Helper()
	var v view
	for start := time.Now(); ; time.Sleep(150 * time.Millisecond) {
		if v = b.status(); holds(v) {
			return v
		}
		if time.Since(start) > patience {
			b.Fatalf("still not so: %s; status: %+v", what, v)
		}
	}
}

// converged waits until revision is in force, without a trial, and the device is as it says.
func (b *board) converged(revision string) view {
	b.Helper()
	return b.untilStatus("revision "+revision+" is in force, and the device is as it says", func(v view) bool {
		return v.Phase == "idle" && v.Effective.Revision == revision && v.isDriven()
	})
}

// isDriven says that the device is as it is to be.
func (v view) isDriven() bool {
	if !v.Device.Answers || len(v.Device.Observed) == 0 {
		return false
	}
	for field, value := range v.Effective.Fields {
		if v.Device.Observed[field] != value {
			return false
		}
	}
	return true
}

// unmarked says where an innocent is marked.
func (b *board) unmarked() {
	b.Helper()
	if v := b.status(); len(v.Marks) > 0 {
		b.Errorf("there are marks: %+v", v.Marks)
	}
}

// device is what the greenhouse itself reports.
func (b *board) device() map[string]string {
	b.Helper()
	var state struct{ Actuators map[string]string }
	if err := json.Unmarshal(b.http("GET", "/state", nil), &state); err != nil {
		b.Fatal(err)
	}
	return state.Actuators
}

// moved moves an actuator by hand and waits until somebody has put it back.
func (b *board) moved(field string) {
	b.Helper()
	was := b.device()[field]
	by := map[string]string{"on": "off", "off": "on"}[was]
	b.http("POST", "/sim/set", fmt.Appendf(nil, `{"actuators":{%q:%q}}`, field, by))
	b.until("the device is kept: "+field+" is put back to "+was, func() bool { return b.device()[field] == was })
}

// http asks the greenhouse, on the board's loopback.
func (b *board) http(method, path string, body []byte) []byte {
	b.Helper()
	answer, err := b.ask(method, "http://127.0.0.1:8080"+path, body)
	if err != nil {
		b.Fatal(err)
	}
	return answer
}

func (b *board) ask(method, url string, body []byte) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: b.dial}}
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, res.Status, answer)
	}
	return answer, err
}

// dial is net.Dial in the board's network namespace.
func (b *board) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	type result struct {
		c   net.Conn
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", b.net.Pid))
		if err != nil {
			done <- result{nil, err}
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{nil, err}
			return
		}
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		done <- result{c, err}
	}()
	r := <-done
	return r.c, r.err
}

// step runs a part of one board's story, in order. After one that fails the others are left out.
func (b *board) step(name string, f func()) {
	whole := b.T
	ok := whole.Run(name, func(t *testing.T) {
		b.T, b.up.t = t, t
		f()
	})
	b.T, b.up.t = whole, whole
	if !ok {
		whole.FailNow()
	}
}
