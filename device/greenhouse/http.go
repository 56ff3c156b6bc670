package greenhouse

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"holdfast/device"
)

// maxBody bounds a request, in bytes.
const maxBody = 64 << 10

// Handler returns the device's HTTP interface: the contract, and the bench under /sim/ (bench.go).
//
//	GET  /healthz          200 {"status":"ok"}; touches no state
//	GET  /state            200 {"observedAt":…, "readings":{…}, "actuators":{…}}, with the tag in the header Holdfast-Tag
//	GET  /state?wait=TAG   the same, as soon as the tag is another one, after 25 s at the latest
//	POST /actuators        200 {"actuators":{…}, "readings":{…}}; 400 {"error":…, "known":[…] or "allowed":[…]}; 401
//	POST /reset            200 like /state; needs the token like any write
//
// The tag is opaque. It changes when an actuator does and when the device restarts, not with the readings.
func (g *Greenhouse) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", g.faulty(onHealth, g.healthz))
	mux.HandleFunc("GET /state", g.faulty(onRead, g.getState))
	mux.HandleFunc("POST /actuators", g.faulty(onWrite, g.postActuators))
	mux.HandleFunc("POST /reset", g.postReset)
	g.bench(mux)
	return mux
}

// reply is an answer that is yet to be written: faults may come in between.
type reply struct {
	status int
	tag    string
	body   any
}

// handler answers a contract request whose body has been read.
type handler func(r *http.Request, body []byte) reply

func (rp reply) write(w http.ResponseWriter) {
	b, err := json.Marshal(rp.body)
	if err != nil {
		panic(err) // our own types
	}
	writeJSON(w, rp, append(b, '\n'))
}

func writeJSON(w http.ResponseWriter, rp reply, b []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if rp.tag != "" {
		h.Set(device.TagHeader, rp.tag)
	}
	if rp.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="greenhouse"`)
	}
	w.WriteHeader(rp.status)
	_, _ = w.Write(b) // the client may be gone; there is nobody else to tell
}

// problem is the body of a 4xx.
type problem struct {
	Error   string   `json:"error"`
	Known   []string `json:"known,omitempty"`
	Allowed []string `json:"allowed,omitempty"`
}

func bad(format string, a ...any) reply {
	return reply{status: http.StatusBadRequest, body: problem{Error: fmt.Sprintf(format, a...)}}
}

func (g *Greenhouse) healthz(*http.Request, []byte) reply {
	return reply{status: http.StatusOK, body: map[string]string{"status": "ok"}}
}

func (g *Greenhouse) getState(r *http.Request, _ []byte) reply {
	if wait := r.URL.Query().Get("wait"); wait != "" {
		g.wait(r.Context(), wait)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return reply{http.StatusOK, g.tag(), g.state()}
}

// wait returns when tag is not the present one, after maxWait, or when the client is gone.
func (g *Greenhouse) wait(ctx context.Context, tag string) {
	g.mu.Lock()
	changed, same := g.changed, g.tag() == tag
	g.mu.Unlock()
	if !same {
		return
	}
	select {
	case <-changed:
	case <-g.clock.After(g.maxWait):
	case <-ctx.Done():
	}
}

func (g *Greenhouse) postActuators(r *http.Request, body []byte) reply {
	if rp, ok := g.authorized(r); !ok {
		return rp
	}
	set, rp, ok := parseSet(body)
	g.mu.Lock()
	defer g.mu.Unlock()
	if ok {
		rp, ok = g.faults.refuse(set, g.clock.Uptime())
	}
	if !ok {
		g.log.refused++
		return rp
	}
	g.advance() // up to now with the actuators as they were
	next, shown := g.faults.bend(set, g.set, g.clock.Uptime())
	g.replace(next)
	g.log.add(entry{At: g.clock.Now().UTC(), UptimeSeconds: g.clock.Uptime().Seconds(), Set: set})
	s := g.state()
	return reply{http.StatusOK, g.tag(), map[string]any{"actuators": shown, "readings": s.Readings}}
}

// parseSet reads the body of a write: a JSON object of known actuators, each once, with values that it takes. Nothing
// is applied unless all of it is right.
func parseSet(body []byte) (set map[string]string, rp reply, ok bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, bad("the body is not a JSON object of actuators"), false
	}
	set = map[string]string{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, bad("the body is not JSON: %v", err), false
		}
		name := t.(string) // an object's key
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, bad("the body is not JSON: %v", err), false
		}
		i := index(name)
		if i < 0 {
			rp := problem{Error: fmt.Sprintf("unknown actuator %q", name)}
			for _, a := range actuators {
				rp.Known = append(rp.Known, a.name)
			}
			return nil, reply{status: http.StatusBadRequest, body: rp}, false
		}
		if _, twice := set[name]; twice {
			return nil, bad("%s is given twice", name), false
		}
		text, isText := v.(string)
		value, known := actuators[i].canonical(text)
		if !isText || !known {
			return nil, reply{status: http.StatusBadRequest, body: problem{
				Error: fmt.Sprintf("%s does not take %v", name, quote(v)), Allowed: actuators[i].allowed(),
			}}, false
		}
		set[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, bad("the body is not JSON: %v", err), false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, bad("the body goes on after the object"), false
	}
	return set, reply{}, true
}

// quote is a decoded value as JSON again, for a message.
func quote(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// index is the position of the actuator of that name, -1 if there is none.
func index(name string) int {
	for i, a := range actuators {
		if a.name == name {
			return i
		}
	}
	return -1
}

func (g *Greenhouse) postReset(w http.ResponseWriter, r *http.Request) {
	if rp, ok := g.authorized(r); !ok {
		rp.write(w)
		return
	}
	g.mu.Lock()
	g.restart()
	rp := reply{http.StatusOK, g.tag(), g.state()}
	g.mu.Unlock()
	rp.write(w)
}

// authorized reports whether r may write; if not, the reply says why.
func (g *Greenhouse) authorized(r *http.Request) (reply, bool) {
	if g.options.TokenFile == "" {
		return reply{}, true
	}
	token, err := readToken(g.options.TokenFile)
	if err != nil {
		return reply{status: http.StatusInternalServerError, body: problem{Error: err.Error()}}, false
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
		return reply{status: http.StatusUnauthorized, body: problem{Error: "a write needs the device's token"}}, false
	}
	return reply{}, true
}

// readToken reads the token that writers must know.
func readToken(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("token file %s: empty", file)
	}
	return token, nil
}
