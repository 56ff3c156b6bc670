package sock

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	for body, want := range map[string]string{
		`{"n": 1}`: "", " {\"n\":1}\n": "", `{"n":1,"of a newer one":[]}`: "", `{"n":null}`: "",
		"": "EOF", "\n": "EOF", "null": "must be a JSON object", "[]": "must be a JSON object", "1": "must be a JSON object", "nonsense": "must be a JSON object",
		`{"n":1} x`: "invalid character", `{"n":1}{"n":2}`: "invalid character", `{"n":`: "unexpected end", `{"n":"x"}`: "cannot unmarshal",
	} {
		var v struct{ N int }
		err := Read(httptest.NewRequest("POST", "/", strings.NewReader(body)), &v)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || (want == "EOF") != errors.Is(err, io.EOF) {
			t.Errorf("Read(%q) = %v, want %q", body, err, want)
		}
	}
}

// What the socket does not know is an error like every other.
func TestHandler(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/state", func(w http.ResponseWriter, r *http.Request) { Answer(w, http.StatusOK, 1) })
	mux.HandleFunc("POST /v1/do", func(w http.ResponseWriter, r *http.Request) {
		if err := Read(r, new(struct{})); err != nil {
			Answer(w, http.StatusBadRequest, Error{err.Error()})
			return
		}
		Answer(w, http.StatusOK, func() {}) // cannot be encoded
	})
	h := Handler(mux, 10)
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string // of the error
	}{
		{"GET", "/v1/state", "", 200, ""},
		{"GET", "/v1/stat", "", 404, `GET "/v1/stat": not found`},
		{"GET", "/", "", 404, `GET "/": not found`},
		{"GET", "/v1/state/", "", 404, `GET "/v1/state/": not found`},
		{"GET", "//v1/state", "", 404, `GET "//v1/state": not found`},
		{"POST", "/v1/state", "{}", 405, `POST "/v1/state": method not allowed`},
		{"POST", "/v1/do", "{}", 500, "the answer cannot be encoded"},
		{"POST", "/v1/do", `{         }`, 400, "http: request body too large"},
	} {
		rec := httptest.NewRecorder()
		r := httptest.NewRequest(tt.method, "/", strings.NewReader(tt.body))
		r.URL.Path = tt.path
		h.ServeHTTP(rec, r)
		var e Error
		if tt.want != "" {
			if err := json.Unmarshal(rec.Body.Bytes(), &e); err != nil {
				t.Errorf("%s %s: %q: %v", tt.method, tt.path, rec.Body.String(), err)
			}
		}
		if rec.Code != tt.status || e.Message != tt.want || rec.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %q as %s, want %d %q", tt.method, tt.path, rec.Code, e.Message, rec.Header().Get("Content-Type"), tt.status, tt.want)
		}
		if allow := rec.Header().Get("Allow"); (allow != "") != (tt.status == 405) {
			t.Errorf("%s %s: Allow is %q", tt.method, tt.path, allow)
		}
	}
}
