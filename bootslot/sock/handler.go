package sock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
)

// Answer answers a request with v as JSON.
func Answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a peer that has gone away needs no answer
}

// Read reads a request's body, one JSON object and nothing else, into v: what is half understood is not carried out. io.EOF says that the body is empty.
func Read(r *http.Request, v any) error {
	b, err := io.ReadAll(r.Body)
	switch b = bytes.Trim(b, " \t\r\n"); { // JSON's white space (RFC 8259, section 2)
	case err != nil:
		return err
	case len(b) == 0:
		return io.EOF
	case b[0] != '{':
		return errors.New("the body must be a JSON object")
	}
	return json.Unmarshal(b, v)
}

// Handler serves mux on a socket: each body has limit bytes at most, and what mux does not know is answered like every other error, in JSON.
func Handler(mux *http.ServeMux, limit int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		refused := statusOnly{w, http.StatusNotFound}
		if r.URL.Path == path.Clean(r.URL.Path) { // mux would redirect, and nobody here follows
			h, pattern := mux.Handler(r)
			if pattern != "" {
				mux.ServeHTTP(w, r)
				return
			}
			h.ServeHTTP(&refused, r)
		}
		Answer(w, refused.status, Error{fmt.Sprintf("%s %q: %s", r.Method, r.URL.Path, strings.ToLower(http.StatusText(refused.status)))})
	})
}

// statusOnly keeps an answer's header and forgets its text.
type statusOnly struct {
	http.ResponseWriter
	status int
}

func (s *statusOnly) WriteHeader(status int)      { s.status = status }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
