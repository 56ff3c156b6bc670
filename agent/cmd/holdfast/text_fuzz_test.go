package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
)

// fill gives every string of v, keys included, the text s, and every list an element: so that no text of an answer is forgotten here.
func fill(v reflect.Value, s string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), s)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), s)
	case reflect.Map:
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(k, s)
		fill(e, s)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(k, e)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), s)
			}
		}
	}
}

// verbs are all that ask agent or guard.
var verbs = [][]string{
	{"status"}, {"marks"}, {"slots"}, {"history"}, {"status", "--json"}, {"marks", "--json"}, {"slots", "--json"}, {"history", "--json"}, {"retry"}, {"rollback"},
	{"rollback", "--to", "fallback"}, {"suspend", "--for", "1h"}, {"suspend", "--for", "1h", "--json"}, {"resume"}, {"sync", "--no-wait"}, {"accept", strings.Repeat("a", 40)},
	{"why", "lamp"}, {"why", "7"}, {"why", "lamp", "--json"}, {"diff"}, {"diff", "previous"}, {"diff", "--json"}, {"status", "--oneline"}, {"doctor"}, {"doctor", "--json"},
	{"selftest"}, {"selftest", "--json"}, {"rollback", "--dry-run"}, {"reconcile", "--timeout", "50ms"}, {"reconcile", "--timeout", "50ms", "--json"},
	{"history", "--field", "lamp", "--since", "1h"},
}

// FuzzText: whatever agent and guard answer (names and messages of devices and checks, authors and subjects of revisions are other people's), no verb fails for it, and what
// it prints is lines of printable text and, with --json, JSON.
func FuzzText(f *testing.F) {
	answers := func(s string, more func(*api.State)) (guard, agent []byte) {
		var g api.State
		var a status.Agent
		var events []bootslot.Event
		fill(reflect.ValueOf(&g).Elem(), s)
		fill(reflect.ValueOf(&a).Elem(), s)
		fill(reflect.ValueOf(&events).Elem(), s)
		more(&g)
		guard, err := json.Marshal(map[string]any{"state": g, "history": events})
		if err != nil {
			f.Fatal(err)
		}
		agent, err = json.Marshal(a)
		if err != nil {
			f.Fatal(err)
		}
		return guard, agent
	}
	for _, s := range []string{"plain", "\x1b[2J\x1b]0;x\a\r\n", "\u009b2J\u202e\u2028\u00ad\ufeff", "a\nb\tc\x7f\U000e0001"} {
		for verb := range verbs {
			g, a := answers(s, func(g *api.State) {
				if verb%2 == 1 {
					g.Phase, g.Ledger.Trial, g.Decision = api.PhaseReturning, nil, nil
				}
			})
			f.Add(uint8(verb), g, a)
		}
	}
	f.Add(uint8(0), []byte(`{"state":{"phase":"idle","ledger":{"slots":null}},"history":null}`), []byte(`{}`))
	for verb := range verbs { // a decision that names marks and no field that they hold, and a mark of nothing
		b, err := json.Marshal(map[string]any{"state": api.State{Ledger: bootslot.Ledger{Marks: []bootslot.Mark{{ID: 7, Cause: bootslot.CauseFailed}}},
			Decision: &bootslot.Decision{Kind: bootslot.Held, Marks: []uint64{7}, RetryNumber: 1}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(verb), b, []byte("{}"))
	}
	for _, phase := range []string{"trial", "returning", "\x1b"} { // without what a ledger has in such a phase
		b, err := json.Marshal(map[string]any{"state": api.State{Phase: api.Phase(phase), Ledger: bootslot.NewLedger("id")}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(0), b, []byte("{}"))
	}
	f.Add(uint8(3), []byte("null"), []byte("\x1b[2J"))
	dir, err := os.MkdirTemp("", "hf") // a socket's path must stay short
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "holdfast.yaml")
	var guard, agent atomic.Pointer[[]byte]
	device := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(*agent.Load()) }))
	f.Cleanup(device.Close)
	text := "device: {url: '" + device.URL + "'}\nrepository: {url: '/nonexistent'}\nstate: " + dir + "/state\nrun: " + dir + "/run\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		f.Fatal(err)
	}
	serve := func(name string, answer func(path string) []byte) {
		l, err := net.Listen("unix", filepath.Join(dir, "run", name))
		if err != nil {
			f.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(answer(r.URL.Path)) })}
		go srv.Serve(l)
		f.Cleanup(func() { srv.Close() })
	}
	serve("guard.sock", func(path string) []byte {
		var parts struct{ State, History json.RawMessage }
		switch b := *guard.Load(); {
		case json.Unmarshal(b, &parts) != nil:
			return b // no JSON at all
		case path == "/v1/history":
			return parts.History
		default:
			return parts.State // a lease and a suspension are parts of it, by their names
		}
	})
	serve("agent.sock", func(string) []byte { return *agent.Load() })
	f.Fuzz(func(t *testing.T, verb uint8, g, a []byte) {
		guard.Store(&g)
		agent.Store(&a)
		args := verbs[int(verb)%len(verbs)]
		var out, errOut bytes.Buffer
		code := Main(t.Context(), append([]string{"--config", config, "--share", ""}, args...), &out, &errOut)
		if code != 0 && code != 1 && !(args[0] == "diff" && code == 2) {
			t.Errorf("holdfast %v: exit code %d\n%s", args, code, errOut.String())
		}
		for _, b := range [][]byte{out.Bytes(), errOut.Bytes()} {
			if !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
				t.Errorf("holdfast %v prints %q", args, b)
			}
		}
		if args[len(args)-1] == "--json" && code == 0 && !json.Valid(out.Bytes()) {
			t.Errorf("holdfast %v prints %q", args, out.Bytes())
		}
	})
}
