package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const goodState = `{"observedAt":"2026-05-01T12:00:00Z","readings":{"temperature":21.5,"moisture":40,"light":9000},` +
	`"actuators":{"pump":"off","fan":"off","vent":"off","lamp":"on","door":"closed"}}`

// testClient returns a client of a server with that handler, and a counter of requests.
func testClient(t *testing.T, o ClientOptions, h http.HandlerFunc) (*Client, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	if o.URL == "" {
		o.URL = srv.URL
	}
	c, err := NewClient(o)
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	return c, &n
}

func allow() error { return nil }

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

func TestNewClientRefusesWhatIsNoDevice(t *testing.T) {
	for _, u := range []string{"", "127.0.0.1:8080", "ftp://h", "http://", "http://a:b@h", "http://h?x=1", "http://h#x", "http://h:x"} {
		if c, err := NewClient(ClientOptions{URL: u}); err == nil {
			t.Errorf("NewClient(%q) = %v, want an error", u, c)
		}
	}
	if _, err := NewClient(ClientOptions{URL: "http://h", Timeout: -1}); err == nil {
		t.Error("NewClient with a negative time-out: no error")
	}
}

func TestState(t *testing.T) {
	c, _ := testClient(t, ClientOptions{}, answer(goodState))
	s, err := c.State(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if s.Actuators["lamp"] != "on" || s.Readings["temperature"] != 21.5 || !s.ObservedAt.Equal(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("State() = %+v", s)
	}
}

func TestStateIsForgivingButNotBlind(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		actuators  string // as fmt prints the map; "" for an error
		readings   string
	}{
		{"keys of a newer device", `{"actuators":{"pump":"off"},"firmware":{"v":2}}`, "map[pump:off]", "map[]"},
		{"a reading that is null is no 0", `{"actuators":{},"readings":{"temperature":null,"light":"n/a","moisture":3}}`, "map[]", "map[moisture:3]"},
		{"a reading beyond a float", `{"actuators":{},"readings":{"temperature":1e999}}`, "map[]", "map[]"},
		{"actuators that are no strings", `{"actuators":{"pump":true,"fan":1,"vent":null,"lamp":{}}}`, "map[fan:1 lamp:{} pump:true]", "map[]"},
		{"names and values that a terminal would obey", `{"actuators":{"\u001b[2J":"\u009b1m"},"readings":{"\u202ex":1}}`, "map[ [2J: 1m]", "map[ x:1]"},
		{"a clock that is none", `{"observedAt":"yesterday","actuators":{}}`, "map[]", "map[]"},
		{"no actuators", `{"readings":{}}`, "", ""},
		{"actuators are null", `{"actuators":null}`, "", ""},
		{"actuators are a list", `{"actuators":[]}`, "", ""},
		{"not a number", `{"actuators":{},"readings":{"temperature":NaN}}`, "", ""},
		{"cut off", goodState[:len(goodState)-3], "", ""},
		{"something after it", goodState + "x", "", ""},
		{"a page", "<html>login</html>", "", ""},
		{"nothing", "", "", ""},
	} {
		c, n := testClient(t, ClientOptions{}, answer(tt.body))
		s, err := c.State(context.Background())
		if tt.actuators == "" {
			if err == nil {
				t.Errorf("%s: State() = %+v, want an error", tt.name, s)
			}
			if n.Load() != 1 {
				t.Errorf("%s: asked %d times, want once: the answer will not get better", tt.name, n.Load())
			}
			continue
		}
		if got := fmt.Sprint(s.Actuators); err != nil || got != tt.actuators {
			t.Errorf("%s: actuators = %s, %v, want %s", tt.name, got, err, tt.actuators)
		}
		if got := fmt.Sprint(s.Readings); got != tt.readings {
			t.Errorf("%s: readings = %s, want %s", tt.name, got, tt.readings)
		}
	}
}

func TestRetriesAtMostOnce(t *testing.T) {
	for _, tt := range []struct {
		name     string
		status   int
		header   string // Retry-After
		attempts int32
		atMost   time.Duration
	}{
		{"internal error", 500, "", 2, time.Second},
		{"busy for an hour", 503, "3600", 2, 3 * time.Second},
		{"too many, for an hour", 429, "3600", 2, 3 * time.Second},
		{"an overflow of Retry-After", 503, "9223372036854775807", 2, 3 * time.Second},
		{"not implemented", 501, "", 1, time.Second},
		{"refused", 400, "", 1, time.Second},
		{"no such page", 404, "", 1, time.Second},
		{"elsewhere", 302, "", 1, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, n := testClient(t, ClientOptions{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "/healthz")
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.WriteHeader(tt.status)
			})
			start := time.Now()
			_, err := c.State(context.Background())
			if err == nil || n.Load() != tt.attempts || time.Since(start) > tt.atMost {
				t.Errorf("GET: %d attempts in %s, error %v, want %d", n.Load(), time.Since(start), err, tt.attempts)
			}
			n.Store(0)
			asked := 0
			_, err = c.Apply(context.Background(), Fields{"pump": "on"}, func() error { asked++; return nil })
			if err == nil || n.Load() != tt.attempts || asked != int(tt.attempts) {
				t.Errorf("POST: %d attempts, before asked %d times, error %v, want %d", n.Load(), asked, err, tt.attempts)
			}
			var refused *RefusedError
			if is := errors.As(err, &refused); is != (tt.status == 400) {
				t.Errorf("POST: error %v is a RefusedError: %v", err, is)
			}
		})
	}
}

func TestASecondAttemptIsEnough(t *testing.T) {
	var n atomic.Int32
	c, _ := testClient(t, ClientOptions{Timeout: 200 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == "POST" && string(body) != `{"pump":"on"}` {
			t.Errorf("body %s", body)
		}
		switch n.Add(1) {
		case 1:
			w.WriteHeader(500)
		case 3:
			panic(http.ErrAbortHandler) // the connection breaks
		case 5:
			time.Sleep(400 * time.Millisecond)
		default:
			fmt.Fprint(w, goodState)
		}
	})
	for range 3 {
		if _, err := c.Apply(context.Background(), Fields{"pump": "on"}, allow); err != nil {
			t.Errorf("Apply: %v", err)
		}
	}
	if n.Load() != 6 {
		t.Errorf("%d attempts, want 6", n.Load())
	}
}

func TestTimeoutIsPerAttemptAndIncludesTheBody(t *testing.T) {
	done := make(chan struct{})
	defer close(done)
	hang := func(http.ResponseWriter, *http.Request) { <-done }
	trickle := func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"actuators":`)
		w.(http.Flusher).Flush()
		<-done
	}
	for name, h := range map[string]http.HandlerFunc{"hangs": hang, "trickles": trickle} {
		c, n := testClient(t, ClientOptions{Timeout: 100 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			h(w, r)
		})
		start := time.Now()
		_, err := c.State(context.Background())
		if d := time.Since(start); err == nil || d > 2*time.Second || n.Load() != 2 {
			t.Errorf("%s: State: %v after %s and %d attempts", name, err, d, n.Load())
		}
		if err != nil && !strings.Contains(err.Error(), "no answer within 100ms") {
			t.Errorf("%s: error %q does not say what happened", name, err)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	c, n := testClient(t, ClientOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		pad := strings.Repeat(" ", 1<<10)
		for range 100 {
			fmt.Fprint(w, pad)
		}
		fmt.Fprint(w, goodState)
	})
	if _, err := c.State(context.Background()); err == nil || !strings.Contains(err.Error(), "64 KiB") || n.Load() != 1 {
		t.Errorf("State: %v after %d attempts", err, n.Load())
	}
}

func TestNothingGoesOutWithoutBefore(t *testing.T) {
	var body atomic.Bool
	c, n := testClient(t, ClientOptions{}, func(w http.ResponseWriter, r *http.Request) {
		body.Store(true)
		w.WriteHeader(500)
	})
	asked := 0
	_, err := c.Apply(context.Background(), Fields{"pump": "on"}, func() error { asked++; return ErrStale })
	if err != ErrStale || n.Load() != 0 || asked != 1 {
		t.Errorf("Apply with a stale target: %v, %d requests, before asked %d times", err, n.Load(), asked)
	}
	asked = 0
	_, err = c.Apply(context.Background(), Fields{"pump": "on"}, func() error {
		if asked++; asked > 1 {
			return ErrStale
		}
		return nil
	})
	if !errors.Is(err, ErrStale) || n.Load() != 1 || asked != 2 {
		t.Errorf("Apply with a target that went stale between attempts: %v, %d requests, before asked %d times", err, n.Load(), asked)
	}
	if err != nil && !strings.Contains(err.Error(), "500") {
		t.Errorf("error %q does not say how the first attempt went", err)
	}
}

func TestRefusal(t *testing.T) {
	c, _ := testClient(t, ClientOptions{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(400)
		fmt.Fprint(w, `{"error":"lamp:\u0007 no such value","allowed":["on","off"]}`)
	})
	_, err := c.Apply(context.Background(), Fields{"lamp": "dim"}, allow)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Message != "lamp:  no such value" || strings.Join(refused.Allowed, " ") != "on off" {
		t.Errorf("Apply = %#v", err)
	}
}

func TestToken(t *testing.T) {
	// It is read where it is, and called as it is configured.
	file, real := "/etc/greenhouse/token", filepath.Join(t.TempDir(), "token")
	locate := func(path string) (string, error) {
		if path != file {
			t.Errorf("%s is looked for", path)
		}
		if _, err := os.Stat(real); err != nil {
			return "", fmt.Errorf("open %s: not passed", path)
		}
		return real, nil
	}
	var want atomic.Value
	want.Store("Bearer one")
	c, n := testClient(t, ClientOptions{TokenFile: file, Locate: locate}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			if r.Header.Get("Authorization") != "" {
				t.Error("a read carries the token")
			}
		} else if r.Header.Get("Authorization") != want.Load() {
			w.WriteHeader(401)
			return
		}
		fmt.Fprint(w, goodState)
	})
	apply := func() error {
		_, err := c.Apply(context.Background(), Fields{"pump": "on"}, allow)
		return err
	}
	if _, err := c.State(context.Background()); err != nil {
		t.Errorf("State without a token file: %v", err)
	}
	n.Store(0)
	for _, bad := range []string{"", "\n", "two words", "a\nb", strings.Repeat("x", 5000)} {
		if bad != "" {
			write(t, real, bad)
		}
		if err := apply(); err == nil || !strings.Contains(err.Error(), file) || n.Load() != 0 {
			t.Errorf("Apply with token file %.20q: %v, %d requests", bad, err, n.Load())
		}
	}
	write(t, real, "one\n")
	if err := apply(); err != nil {
		t.Errorf("Apply: %v", err)
	}
	want.Store("Bearer two")
	if err := apply(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("Apply with the wrong token: %v, want the file's name", err)
	}
	write(t, real, "two")
	if err := apply(); err != nil {
		t.Errorf("Apply after the file changed: %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKeysGoOutInTheProfilesOrder(t *testing.T) {
	var mu sync.Mutex
	var got string
	c, _ := testClient(t, ClientOptions{Profile: greenhouse()}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = string(b)
		fmt.Fprint(w, goodState)
	})
	set := Fields{"door": "open", "fan": "on", "pump": "off", "lamp": "off", "vent": "on", "zz": "1", "aa": `"`}
	if _, err := c.Apply(context.Background(), set, allow); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := `{"pump":"off","fan":"on","vent":"on","lamp":"off","door":"open","aa":"\"","zz":"1"}`; got != want {
		t.Errorf("body %s, want %s", got, want)
	}
}

func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	c, err := NewClient(ClientOptions{URL: "http://greenhouse.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	if tr := c.http.HTTPClient.Transport.(attempts).next.(*http.Transport); tr.Proxy != nil {
		t.Error("the transport has a proxy")
	}
}

func TestHealth(t *testing.T) {
	for body, ok := range map[string]bool{`{"status":"ok"}`: true, `{"status":"melting"}`: false, `ok`: false} {
		c, _ := testClient(t, ClientOptions{URL: ""}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				t.Errorf("asked %s", r.URL)
			}
			fmt.Fprint(w, body)
		})
		if err := c.Health(context.Background()); (err == nil) != ok {
			t.Errorf("Health with %s: %v", body, err)
		}
	}
}

func TestWaitState(t *testing.T) {
	c, n := testClient(t, ClientOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/state" || !r.URL.Query().Has("wait") {
			t.Errorf("asked %s", r.URL)
		}
		switch r.URL.Query().Get("wait") {
		case "none":
		case "broken":
			w.WriteHeader(500)
		default:
			w.Header().Set(TagHeader, "a&b")
		}
		fmt.Fprint(w, goodState)
	})
	for _, tt := range []struct{ tag, want string }{
		{"", "a&b"},
		{"old", "a&b"},
		{"a&b", ""}, // it came at once and is the same: the device does not wait
		{"none", ""},
	} {
		if got, err := c.WaitState(context.Background(), tt.tag); err != nil || got != tt.want {
			t.Errorf("WaitState(%q) = %q, %v, want %q", tt.tag, got, err, tt.want)
		}
	}
	n.Store(0)
	if _, err := c.WaitState(context.Background(), "broken"); err == nil || n.Load() != 1 {
		t.Errorf("WaitState of a broken device: %v after %d attempts, want an error after one", err, n.Load())
	}
}

func TestAPathInTheURLIsKept(t *testing.T) {
	srv := httptest.NewServer(http.StripPrefix("/gh/7", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/state" {
			t.Errorf("asked %s", r.URL.Path)
		}
		fmt.Fprint(w, goodState)
	})))
	defer srv.Close()
	c, err := NewClient(ClientOptions{URL: srv.URL + "/gh/7/"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.State(context.Background()); err != nil {
		t.Error(err)
	}
}
