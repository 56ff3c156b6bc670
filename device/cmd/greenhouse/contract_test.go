package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/device"
	"holdfast/device/clock"
	"holdfast/device/greenhouse"
)

// TestContract asks devices whether they keep the device contract: the greenhouse and the shims of the page for integrators, or the one at CONTRACT_DEVICE
// (make contract), whose profile is in the folder CONTRACT_SHARE and whose token in the file CONTRACT_TOKEN.
func TestContract(t *testing.T) {
	if url := os.Getenv("CONTRACT_DEVICE"); url != "" {
		p, err := device.LoadProfile(os.Getenv("CONTRACT_SHARE"))
		if err != nil {
			t.Fatal(err)
		}
		contract(t, url, os.Getenv("CONTRACT_TOKEN"), p)
		return
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("greenhouse", func(t *testing.T) {
		p, err := device.LoadProfile("")
		if err != nil {
			t.Fatal(err)
		}
		g, err := greenhouse.New(greenhouse.Options{Speed: 1, StartHour: 12, TokenFile: token, Clock: clock.New()})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(g.Handler())
		defer srv.Close()
		if !contract(t, srv.URL, token, p) {
			t.Error("it tells no tag")
		}
	})
	for name, tags := range map[string]bool{"shim.py": false, "tagged.py": true} {
		t.Run(name, func(t *testing.T) {
			dir, url := startShim(t, name)
			if told := contract(t, url, filepath.Join(dir, "token"), pageProfile(t)); told != tags {
				t.Errorf("it tells a tag: %v", told)
			}
		})
	}
}

// contract checks a device against docs/device-contract.md. It moves each actuator to each of its values, and leaves everything as it was. It returns
// whether the device tells a tag, which it need not.
func contract(t *testing.T, url, tokenFile string, p device.Profile) (tagged bool) {
	t.Helper()
	token := ""
	if tokenFile != "" {
		b, err := os.ReadFile(tokenFile)
		if err != nil {
			t.Fatal(err)
		}
		token = strings.TrimSpace(string(b))
	}
	url = strings.TrimSuffix(url, "/")
	type answer struct {
		Status     string
		ObservedAt string             `json:"observedAt"`
		Readings   map[string]float64 `json:"readings"`
		Actuators  device.Fields      `json:"actuators"`
		Error      string             `json:"error"`
		Known      []string           `json:"known"`
		Allowed    []string           `json:"allowed"`
	}
	// ask sends a request, which must be answered with a JSON object and the status want, and returns that with its tag.
	ask := func(ctx context.Context, want int, token, method, path string, body any) (a answer, tag string) {
		t.Helper()
		var sent io.Reader
		what := method + " " + path
		if body != nil {
			b, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			sent, what = bytes.NewReader(b), what+" "+string(b)
		}
		req, err := http.NewRequestWithContext(ctx, method, url+path, sent)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultTransport.RoundTrip(req) // redirects are not followed
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("%s: %v", what, err)
			}
			return a, ""
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			t.Errorf("%s: %v", what, err)
		case resp.StatusCode != want:
			t.Errorf("%s: status %d, want %d: %.200s", what, resp.StatusCode, want, b)
		case len(b) > 64<<10:
			t.Errorf("%s: an answer of %d bytes, 64 KiB are allowed", what, len(b))
		default:
			if err := json.Unmarshal(b, &a); err != nil {
				t.Errorf("%s: %.200s: %v", what, b, err)
			}
		}
		return a, resp.Header.Get(device.TagHeader)
	}
	ctx := t.Context()
	state := func() answer {
		t.Helper()
		a, _ := ask(ctx, 200, "", "GET", "/state", nil)
		return a
	}
	first := state()
	if len(first.Actuators) == 0 {
		t.Fatal("GET /state tells no actuators, so nothing else is asked")
	}
	if _, err := time.Parse(time.RFC3339, first.ObservedAt); err != nil {
		t.Errorf("GET /state: observedAt %q: %v", first.ObservedAt, err)
	}
	for _, r := range p.Readings {
		if _, ok := first.Readings[r.Name]; !ok {
			t.Logf("GET /state has no reading %s now", r.Name)
		}
	}
	for _, a := range p.Actuators {
		if !slices.Contains(a.Allowed, first.Actuators[a.Name]) {
			t.Errorf("GET /state: %s is %q; the profile knows %v", a.Name, first.Actuators[a.Name], a.Allowed)
		}
	}
	if unknown := device.Unknown(p, first.Actuators); len(unknown) > 0 {
		t.Logf("actuators that the profile does not know, which are left alone: %v", unknown)
	}
	if a, _ := ask(ctx, 200, "", "GET", "/healthz", nil); a.Status != "ok" {
		t.Errorf("GET /healthz: status %q, want ok", a.Status)
	}

	// Every value of every actuator, by itself: what is answered and what is read then are the change, and nothing but the change. The same once more is
	// no error: a write can arrive twice.
	now := first.Actuators
	for _, a := range p.Actuators {
		for _, v := range append(slices.Clone(a.Allowed), first.Actuators[a.Name]) {
			change := device.Fields{a.Name: v}
			want := maps.Clone(now)
			maps.Copy(want, change)
			for range 2 {
				done, _ := ask(ctx, 200, token, "POST", "/actuators", change)
				if !maps.Equal(done.Actuators, want) || done.Readings == nil {
					t.Errorf("POST /actuators %v answers with actuators %v and readings %v, want %v and what is read", change, done.Actuators, done.Readings, want)
				}
			}
			if read := state(); !maps.Equal(read.Actuators, want) {
				t.Errorf("after POST /actuators %v the state is %v, want %v", change, read.Actuators, want)
			}
			now = want
		}
	}

	// What is refused is refused whole, and says what would be taken.
	some := p.Actuators[0]
	other := some.Allowed[0]
	if other == now[some.Name] {
		other = some.Allowed[1]
	}
	if a, _ := ask(ctx, 400, token, "POST", "/actuators", device.Fields{some.Name: other, "holdfast-nothing": "on"}); a.Error == "" || !slices.Contains(a.Known, some.Name) {
		t.Errorf("an unknown actuator: error %q, known %v", a.Error, a.Known)
	}
	last := p.Actuators[len(p.Actuators)-1]
	if a, _ := ask(ctx, 400, token, "POST", "/actuators", device.Fields{some.Name: other, last.Name: "holdfast-nothing"}); a.Error == "" || !slices.Contains(a.Allowed, last.Allowed[0]) {
		t.Errorf("a value that %s does not take: error %q, allowed %v", last.Name, a.Error, a.Allowed)
	}
	if token != "" {
		for _, wrong := range []string{"", token + "x"} {
			if a, _ := ask(ctx, 401, wrong, "POST", "/actuators", device.Fields{some.Name: other}); a.Error == "" {
				t.Error("a write without the token: no error")
			}
		}
	}
	if read := state(); !maps.Equal(read.Actuators, now) {
		t.Errorf("after what was refused the state is %v, want %v", read.Actuators, now)
	}

	// Two clients: one that waits for a change must not keep the other one out. Without a tag the wait is answered at once, which is allowed.
	_, tag := ask(ctx, 200, "", "GET", "/state", nil)
	if _, again := ask(ctx, 200, "", "GET", "/state", nil); again != tag {
		t.Errorf("the tag goes from %q to %q with nothing changed", tag, again)
	}
	began, woken := time.Now(), make(chan string, 1)
	go func() {
		waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		_, next := ask(waiting, 200, "", "GET", "/state?wait="+tag, nil)
		woken <- next
	}()
	if tag == "" {
		<-woken
		return false
	}
	select {
	case next := <-woken:
		t.Errorf("GET /state?wait=%s is answered after %v with the tag %q, and nothing has changed", tag, time.Since(began), next)
		woken <- next
	case <-time.After(300 * time.Millisecond):
	}
	ask(ctx, 200, token, "POST", "/actuators", device.Fields{some.Name: other})
	if next := <-woken; next == tag || next == "" {
		t.Errorf("after a change GET /state?wait=%s answers with the tag %q", tag, next)
	}
	ask(ctx, 200, token, "POST", "/actuators", device.Fields{some.Name: now[some.Name]})
	return true
}

// What the page calls 30 lines are.
func TestTheShimIsShort(t *testing.T) {
	lines := 0
	for line := range strings.Lines(string(blockOf(t, "shim.py"))) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > 30 {
		t.Errorf("the page's shim has %d lines that are not empty", lines)
	}
	if !strings.Contains(string(page(t)), "30 lines") {
		t.Error("the page does not say how many lines its shim has")
	}
}
