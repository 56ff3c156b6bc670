package selftest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// newHangingServer takes requests and never answers.
func newHangingServer(t *testing.T) *httptest.Server {
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(stop); s.Close() })
	return s
}

func fetch(t *testing.T, url string, timeout time.Duration) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return get(ctx, url, timeout)
}

func TestHTTP(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") })
	mux.HandleFunc("/empty", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/not-modified", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://status.example.org/", http.StatusFound)
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/breaks-off", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "half")
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	tls := httptest.NewTLSServer(mux)
	defer tls.Close()
	nobody := nobodyThere(t)

	tests := []struct {
		name, url string
		ok        bool
		message   string
	}{
		{"well", s.URL + "/ok", true, "GET " + s.URL + "/ok: 200 OK"},
		{"no content", s.URL + "/empty", true, "204 No Content"},
		{"a secret in the URL", strings.Replace(s.URL, "//", "//user:secret@", 1) + "/broken?token=secret", false, "GET " + s.URL + "/broken: 503 Service Unavailable"},
		{"not found", s.URL + "/none", false, "404 Not Found"},
		{"not modified", s.URL + "/not-modified", false, "304 Not Modified"},
		{"redirect to itself", s.URL + "/here", true, "200 OK"},
		{"redirect in a circle", s.URL + "/round", false, "redirects more than 5 times"},
		{"redirect to another host", s.URL + "/away", false, `redirects to another host, "status.example.org"`},
		{"endless body", s.URL + "/endless", true, "200 OK"},
		{"body breaks off", s.URL + "/breaks-off", false, "its body breaks off"},
		{"certificate that cannot be checked", tls.URL + "/ok", true, "200 OK"},
		{"nobody there", nobody, false, "connection refused"},
		{"no URL", "http://[", false, "missing ']'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := fetch(t, tt.url, time.Minute)
			if got.ok != tt.ok || !strings.Contains(got.message, tt.message) {
				t.Errorf("get(%s) = %v %q, want %v %q", tt.url, got.ok, got.message, tt.ok, tt.message)
			}
			if strings.Contains(got.message, "secret") {
				t.Errorf("get(%s) = %q, which has the secret", tt.url, got.message)
			}
		})
	}
}

// nobodyThere is an address at which nobody listens.
func nobodyThere(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestHTTPTimeout(t *testing.T) {
	t.Parallel()
	hang := newHangingServer(t)
	if got := fetch(t, hang.URL, 50*time.Millisecond); got.ok || !strings.HasSuffix(got.message, "no answer within 50ms") {
		t.Errorf("get(hanging server) = %v %q, want no answer within 50ms", got.ok, got.message)
	}
	half := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "half")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer half.Close()
	if got := fetch(t, half.URL, time.Second); got.ok || !strings.HasSuffix(got.message, "200 OK, but its body does not end within 1s") {
		t.Errorf("get(server that hangs in the body) = %v %q, want its body does not end", got.ok, got.message)
	}
}

func TestHTTPKeepsNoConnection(t *testing.T) {
	states := make(chan http.ConnState, 100)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) { states <- st }
	s.Start()
	defer s.Close()
	for range 2 {
		if got := fetch(t, s.URL, time.Minute); !got.ok {
			t.Fatalf("get() = %q", got.message)
		}
	}
	opened, closed := 0, 0
	for closed < 2 {
		select {
		case st := <-states:
			switch st {
			case http.StateNew:
				opened++
			case http.StateClosed:
				closed++
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("after two requests %d connections were opened and %d closed, want 2 and 2", opened, closed)
		}
	}
	if opened != 2 {
		t.Errorf("two requests opened %d connections, want 2", opened)
	}
}
