package guard

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/bootslot/api"
)

// What is only half understood is not carried out, and changes nothing.
func TestRequestsThatAreNotUnderstood(t *testing.T) {
	b := newBench(t, "")
	b.pass(30 * time.Second)
	const fields = `{"fields":{"pump":"off","fan":"on","vent":"on","lamp":"off","door":"closed"}`
	for _, tt := range []struct {
		path, body, deadline string
		want                 int
		says                 string
	}{
		{"rollback", "null", "", 400, "must be a JSON object"},
		{"rollback", `{"toFallback":true}{}`, "", 400, "not understood"},
		{"retry", "nonsense", "", 400, "must be a JSON object"},
		{"resume", "{", "", 400, "not understood"},
		{"resume", "", "NaN", 400, "not a number of seconds"},
		{"resume", "{}", "+Inf", 400, "not a number of seconds"},
		{"resume", "{}", "-Inf", 400, "not a number of seconds"},
		{"resume", "{}", "1", 408, "too late"},
		{"suspend", `{"forSeconds":1e300}`, "", 400, "not between"},
		// On a board without boot slots no image is ready, and "" must not pass for none.
		{"trials", `{"release":` + fields + `,"image":{"sha256":""}}}`, "", 400, `image: "" is not a sha256`},
		{"trials", `{"release":` + fields + `,"image":{"sha256":"` + strings.Repeat("A", 64) + `"}}}`, "", 400, "is not a sha256"},
	} {
		before := b.known()
		r := httptest.NewRequest("POST", "/v1/"+tt.path, strings.NewReader(tt.body)).WithContext(peer(t))
		if tt.deadline != "" {
			r.Header.Set(api.DeadlineHeader, tt.deadline)
		}
		rec := httptest.NewRecorder()
		b.g.handler().ServeHTTP(rec, r)
		if rec.Code != tt.want || !strings.Contains(strings.ReplaceAll(rec.Body.String(), `\"`, `"`), tt.says) {
			t.Errorf("%s %q: %d %s, want %d %s", tt.path, tt.body, rec.Code, rec.Body, tt.want, tt.says)
		}
		if after := b.known(); !reflect.DeepEqual(after, before) {
			t.Errorf("%s %q changes %+v to %+v", tt.path, tt.body, before, after)
		}
	}
	// Without a body, where none is needed.
	rec := httptest.NewRecorder()
	b.g.handler().ServeHTTP(rec, httptest.NewRequest("POST", "/v1/resume", http.NoBody))
	b.want("resume without a body", rec.Code, 200)
}

// A suspension whose file stays is not over: the agent obeys that, too. Once its time is over, no file keeps it.
func TestAResumeThatCannotRemoveTheFile(t *testing.T) {
	b := newBench(t, "")
	b.pass(20 * time.Second)
	if _, err := b.g.suspend(time.Hour, true, "eva"); err != nil {
		t.Fatal(err)
	}
	file := b.cfg.SuspendFile()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(file, "x"), 0o755); err != nil { // as good as another user's file in a sticky folder
		t.Fatal(err)
	}
	resume := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		b.g.handler().ServeHTTP(rec, httptest.NewRequest("POST", "/v1/resume", http.NoBody))
		return rec
	}
	rec := resume()
	b.want("resume", rec.Code, http.StatusServiceUnavailable)
	if said := rec.Body.String(); !strings.Contains(said, "the suspension stays") || !strings.Contains(said, "As root: rm "+file) {
		t.Errorf("the answer is %s", said)
	}
	b.want("suspended", b.g.suspended > b.clock.up, true)
	b.clock.up += time.Hour
	b.g.tick()
	b.want("suspended when its time is over", b.g.suspended, time.Duration(0))
}
