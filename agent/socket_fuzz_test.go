package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"holdfast/agent/status"
	"holdfast/bootslot/api"
	"holdfast/device/clock"
)

// acceptor is a clone of which only Accept is asked.
type acceptor struct {
	fakeClone
	accepted []string
}

var hash = regexp.MustCompile(`^[0-9a-f]{40}$`)

func (c *acceptor) Accept(revision string) error {
	if !hash.MatchString(revision) {
		return errors.New("not a revision: " + revision)
	}
	c.accepted = append(c.accepted, revision)
	return nil
}

// FuzzRequest: whatever is asked at the agent's socket, the answer is JSON; an error makes it do nothing, nor does a question; and what it does was asked by one JSON object of bounded size.
func FuzzRequest(f *testing.F) {
	revision := strings.Repeat("a", 40)
	for _, r := range []struct{ method, target, body string }{
		{"GET", "/v1/status", ""}, {"GET", "/v1/status?wait=0", ""}, {"GET", "/v1/status?wait=9", ""}, {"GET", "/v1/status?wait=-1", ""}, {"GET", "/v1/status?wait=%zz", ""},
		{"POST", "/v1/reconcile", "{}"}, {"POST", "/v1/reconcile", ""}, {"POST", "/v1/reconcile", `{"noFetch":true}`}, {"POST", "/v1/reconcile", "null"}, {"POST", "/v1/reconcile", "{}{}"},
		{"POST", "/v1/accept", `{"revision":"` + revision + `"}`}, {"POST", "/v1/accept", `{"revision":"` + revision + `"} x`}, {"POST", "/v1/accept", `["` + revision + `"]`}, {"POST", "/v1/accept", ""},
		{"POST", "/v1/accept", `{"revision":"\u001b[2J"}`}, {"POST", "/v1/accept", `{"revision":"` + revision + `","x":"` + strings.Repeat("x", 5<<10) + `"}`}, {"POST", "/v1/accept", `{"revision":null}`},
		{"GET", "/", ""}, {"PUT", "/v1/accept", "{}"}, {"POST", "/v1//reconcile", "{}"}, {"HEAD", "/v1/status", ""}, {"OPTIONS", "*", ""}, {"GET", "/v1/accept", ""},
	} {
		f.Add(r.method, r.target, []byte(r.body))
	}
	token := regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	ck := clock.NewProcess()
	f.Fuzz(func(t *testing.T, method, target string, body []byte) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !token.MatchString(method) {
			return // net/http itself refuses it
		}
		clone := &acceptor{}
		a := New(Options{Clock: ck, Log: slog.New(slog.DiscardHandler), Clone: clone}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // a question that waits
		defer cancel()
		req := (&http.Request{Method: method, URL: u, RequestURI: target, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "agent", Header: http.Header{},
			Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}).WithContext(ctx)
		before := a.Status()
		rec := httptest.NewRecorder()
		a.Handler().ServeHTTP(rec, req)
		after := a.Status()

		answer, code := rec.Body.Bytes(), rec.Code
		var e api.Error
		if !json.Valid(answer) || rec.Header().Get("Content-Type") != "application/json" || code >= 300 && (json.Unmarshal(answer, &e) != nil || e.Message == "" || len(answer) > 8*maxRequest) {
			t.Errorf("%s %s is answered with %d and %q", method, target, code, answer)
		}
		fetches, looks := len(a.now), len(a.wakes)
		if did := fetches+looks+len(clone.accepted) > 0; did && (code >= 300 || method != http.MethodPost) {
			t.Errorf("%s %s %q is answered with %d; %d fetches, %d looks, accepted %q", method, target, body, code, fetches, looks, clone.accepted)
		}
		if !reflect.DeepEqual(after, before) {
			t.Errorf("%s %s changes\n%+v\nto\n%+v", method, target, before, after)
		}
		if method == http.MethodPost && code < 300 {
			var in struct{ Revision string }
			object := bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) && json.Unmarshal(body, &in) == nil
			if empty := len(bytes.TrimSpace(body)) == 0 && u.Path == "/v1/reconcile"; !object && !empty || len(body) > maxRequest {
				t.Errorf("%s %s is carried out for %q", method, target, body)
			}
			if u.Path == "/v1/accept" && (len(clone.accepted) != 1 || clone.accepted[0] != in.Revision || fetches != 1) {
				t.Errorf("%s %q: %d fetches, accepted %q", target, body, fetches, clone.accepted)
			}
		}
		var s status.Agent
		if code == http.StatusOK && json.Unmarshal(answer, &s) != nil {
			t.Errorf("%s %s is answered with %q", method, target, answer)
		}
	})
}
