package greenhouse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/device"
)

// fakeClock goes on when it is told to.
type fakeClock struct {
	mu     sync.Mutex
	up     time.Duration
	timers map[chan time.Time]time.Duration
}

func newClock() *fakeClock {
	return &fakeClock{up: time.Hour, timers: map[chan time.Time]time.Duration{}}
}

func (f *fakeClock) Now() time.Time {
	return time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC).Add(f.Uptime())
}

func (f *fakeClock) Uptime() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up
}

func (f *fakeClock) After(d time.Duration) <-chan time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan time.Time, 1)
	f.timers[c] = f.up + d
	return c
}

// advance lets d pass and fires what is due.
func (f *fakeClock) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up += d
	for c, due := range f.timers {
		if due <= f.up {
			c <- time.Time{}
			delete(f.timers, c)
		}
	}
}

// awaitTimer returns when n timers are running.
func (f *fakeClock) awaitTimer(t *testing.T, n int) {
	t.Helper()
	for range 1000 {
		f.mu.Lock()
		have := len(f.timers)
		f.mu.Unlock()
		if have == n {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("not %d timers", n)
}

// bench is a greenhouse behind a server.
type bench struct {
	t     *testing.T
	clock *fakeClock
	url   string
}

func start(t *testing.T, o Options) *bench {
	t.Helper()
	ck := newClock()
	o.Clock = ck
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(g.Handler())
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return &bench{t, ck, srv.URL}
}

// client is Holdfast's own client, patient for d.
func (b *bench) client(d time.Duration) *device.Client {
	b.t.Helper()
	c, err := device.NewClient(device.ClientOptions{URL: b.url, Timeout: d, Clock: b.clock})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// ask sends a request and returns status and body; the status is 0 if there was no answer.
func (b *bench) ask(method, path, body string) (int, string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(got)
}

// must is ask that wants a 200, and decodes it.
func (b *bench) must(method, path, body string) map[string]any {
	b.t.Helper()
	code, got := b.ask(method, path, body)
	var v map[string]any
	if err := json.Unmarshal([]byte(got), &v); err != nil || code != http.StatusOK {
		b.t.Fatalf("%s %s %s: %d %s", method, path, body, code, got)
	}
	return v
}

func (b *bench) actuators() map[string]any {
	b.t.Helper()
	return b.must("GET", "/state", "")["actuators"].(map[string]any)
}

func (b *bench) reading(name string) (float64, bool) {
	b.t.Helper()
	v, ok := b.must("GET", "/state", "")["readings"].(map[string]any)[name].(float64)
	return v, ok
}

func (b *bench) writes() (count int) { return int(b.must("GET", "/sim/writes", "")["count"].(float64)) }

func (b *bench) fault(body string) int {
	b.t.Helper()
	return int(b.must("POST", "/sim/faults", body)["id"].(float64))
}

func (b *bench) noFaults() { b.t.Helper(); b.must("DELETE", "/sim/faults", "") }

var allOff = map[string]any{"pump": "off", "fan": "off", "vent": "off", "lamp": "off", "door": "closed"}

func TestContract(t *testing.T) {
	b := start(t, Options{Seed: 1, Speed: 1, StartHour: 12})
	if code, body := b.ask("GET", "/healthz", ""); code != 200 || body != `{"status":"ok"}`+"\n" {
		t.Errorf("GET /healthz: %d %s", code, body)
	}
	s := b.must("GET", "/state", "")
	if got := slices.Sorted(maps.Keys(s)); !slices.Equal(got, []string{"actuators", "observedAt", "readings"}) {
		t.Errorf("GET /state has %v", got)
	}
	if !reflect.DeepEqual(s["actuators"], allOff) {
		t.Errorf("at the start: %v", s["actuators"])
	}
	if got := slices.Sorted(maps.Keys(s["readings"].(map[string]any))); !slices.Equal(got, []string{"light", "moisture", "temperature"}) {
		t.Errorf("readings %v", got)
	}
	if _, err := time.Parse(time.RFC3339, s["observedAt"].(string)); err != nil {
		t.Error(err)
	}
	a := b.must("POST", "/actuators", `{"lamp":"on","door":"on"}`)
	if got := slices.Sorted(maps.Keys(a)); !slices.Equal(got, []string{"actuators", "readings"}) {
		t.Errorf("POST /actuators answers %v", got)
	}
	want := maps.Clone(allOff)
	want["lamp"], want["door"] = "on", "open" // reported in the device's own spelling
	if !reflect.DeepEqual(a["actuators"], want) || !reflect.DeepEqual(b.actuators(), want) {
		t.Errorf("after a write: %v, then %v", a["actuators"], b.actuators())
	}
	b.must("POST", "/actuators", `{}`)
	b.must("POST", "/reset", "")
	if got := b.actuators(); !reflect.DeepEqual(got, allOff) {
		t.Errorf("after a reset: %v", got)
	}
	for path, method := range map[string]string{"/state": "POST", "/actuators": "GET", "/reset": "GET", "/other": "GET"} {
		if code, _ := b.ask(method, path, ""); code != 404 && code != 405 {
			t.Errorf("%s %s: %d", method, path, code)
		}
	}
}

func TestARefusedWriteAppliesNothing(t *testing.T) {
	b := start(t, Options{})
	for _, tt := range []struct{ body, key, says string }{
		{`{"vent":"on","siren":"on"}`, "known", "siren"},
		{`{"vent":"on","lamp":"dim"}`, "allowed", "lamp"},
		{`{"vent":"on","lamp":"open"}`, "allowed", "lamp"},
		{`{"vent":"on","lamp":true}`, "allowed", "lamp does not take true"},
		{`{"vent":"on","lamp":null}`, "allowed", "lamp does not take null"},
		{`{"vent":"on","door":"ajar"}`, "allowed", "door"},
		{`{"vent":"on","vent":"off"}`, "", "twice"},
		{`{"vent":"on"} {}`, "", "goes on"},
		{`{"vent":"on"`, "", "JSON"},
		{`{"vent":`, "", "JSON"},
		{`["vent"]`, "", "JSON"},
		{`null`, "", "JSON"},
		{``, "", "JSON"},
	} {
		code, body := b.ask("POST", "/actuators", tt.body)
		var p map[string]any
		if err := json.Unmarshal([]byte(body), &p); err != nil || code != 400 || !strings.Contains(fmt.Sprint(p["error"]), tt.says) {
			t.Errorf("%s: %d %s, want 400 and an error about %q", tt.body, code, body, tt.says)
		}
		if list, _ := p[tt.key].([]any); tt.key != "" && len(list) < 2 {
			t.Errorf("%s: %s, want a list %q", tt.body, body, tt.key)
		}
	}
	if code, _ := b.ask("POST", "/actuators", strings.Repeat(" ", maxBody+1)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a huge request: %d", code)
	}
	if got := b.actuators(); !reflect.DeepEqual(got, allOff) || b.writes() != 0 {
		t.Errorf("after refused writes: %v, %d accepted", got, b.writes())
	}
}

func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if _, err := New(Options{TokenFile: file}); err == nil {
		t.Error("New with a token file that is not there: no error")
	}
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := start(t, Options{TokenFile: file})
	for _, path := range []string{"/actuators", "/reset"} {
		if code, body := b.ask("POST", path, `{"lamp":"on"}`); code != 401 || !strings.Contains(body, `"error"`) {
			t.Errorf("POST %s without a token: %d %s", path, code, body)
		}
	}
	if b.actuators()["lamp"] != "off" {
		t.Error("a write without a token was applied")
	}
	c, err := device.NewClient(device.ClientOptions{URL: b.url, TokenFile: file})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.Apply(context.Background(), device.Fields{"lamp": "on"}, func() error { return nil }); err != nil || s.Actuators["lamp"] != "on" {
		t.Errorf("Apply with the token: %v, %v", s, err)
	}
}

func TestLongPoll(t *testing.T) {
	b := start(t, Options{Speed: 1})
	c := b.client(5 * time.Second)
	tag, err := c.WaitState(context.Background(), "")
	if err != nil || tag == "" {
		t.Fatalf("WaitState = %q, %v", tag, err)
	}
	type result struct {
		tag string
		err error
	}
	wait := func() chan result {
		ch := make(chan result, 1)
		go func() {
			tag, err := c.WaitState(context.Background(), tag)
			ch <- result{tag, err}
		}()
		b.clock.awaitTimer(t, 1)
		return ch
	}
	done := wait()
	b.must("POST", "/actuators", `{"lamp":"off"}`) // changes nothing
	select {
	case r := <-done:
		t.Fatalf("woken by nothing: %+v", r)
	case <-time.After(50 * time.Millisecond):
	}
	b.clock.advance(25 * time.Second)
	if r := <-done; r.err != nil || r.tag != tag {
		t.Errorf("after 25 s: %+v, want the same tag", r)
	}
	done = wait()
	b.must("POST", "/sim/set", `{"actuators":{"lamp":"on"}}`)
	r := <-done
	if r.err != nil || r.tag == tag || r.tag == "" {
		t.Errorf("after a change: %+v, was %s", r, tag)
	}
	if other, err := start(t, Options{}).client(time.Second).WaitState(context.Background(), tag); err != nil || other == tag {
		t.Errorf("another life of the device: %q, %v", other, err)
	}
}

func TestClimateFollowsTheClockHandedIn(t *testing.T) {
	run := func() (float64, float64, string) {
		b := start(t, Options{Seed: 7, Speed: 60, StartHour: 12})
		before, _ := b.reading(temperature)
		b.must("POST", "/actuators", `{"lamp":"on"}`)
		b.clock.advance(time.Minute) // an hour inside
		after, _ := b.reading(temperature)
		_, sim := b.ask("GET", "/sim", "")
		return before, after, sim
	}
	before, after, sim := run()
	if after < 38 || after < before+8 {
		t.Errorf("an hour of lamp: from %v to %v °C", before, after)
	}
	if _, _, again := run(); again != sim {
		t.Errorf("the same times gave %s, then %s", sim, again)
	}
	still := start(t, Options{Speed: 0, StartHour: 12})
	_, one := still.ask("GET", "/sim", "")
	still.clock.advance(time.Hour)
	if _, two := still.ask("GET", "/sim", ""); one != two {
		t.Errorf("speed 0: from %s to %s", one, two)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Speed: -1}, {Speed: 3601}, {StartHour: 24}, {StartHour: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("New(%+v): no error", o)
		}
	}
}

func TestSetByHand(t *testing.T) {
	b := start(t, Options{Speed: 0, StartHour: 12})
	s := b.must("POST", "/sim/set", `{"temperature":30,"moisture":120,"light":5,"hour":3,"actuators":{"lamp":"dim","door":null,"siren":"on"}}`)
	if got := s["readings"]; !reflect.DeepEqual(got, map[string]any{"temperature": 30.0, "moisture": 100.0, "light": 5.0}) {
		t.Errorf("readings %v", got)
	}
	want := map[string]any{"pump": "off", "fan": "off", "vent": "off", "lamp": "dim", "siren": "on"}
	if got := b.actuators(); !reflect.DeepEqual(got, want) {
		t.Errorf("actuators %v", got)
	}
	if sim := b.must("GET", "/sim", ""); sim["hour"] != 3.0 || b.writes() != 0 {
		t.Errorf("sim %v, %d writes", sim, b.writes())
	}
	b.must("POST", "/actuators", `{"door":"open"}`)
	if got := b.actuators()["door"]; got != "open" {
		t.Errorf("door %v after a write", got)
	}
	for _, body := range []string{`{"hour":24}`, `{"siren":1}`, `{"temperature":"hot"}`, `{} {}`, ``} {
		if code, got := b.ask("POST", "/sim/set", body); code != 400 {
			t.Errorf("%s: %d %s", body, code, got)
		}
	}
}

func TestLogOfWrites(t *testing.T) {
	b := start(t, Options{})
	b.must("POST", "/actuators", `{"lamp":"on","door":"on"}`)
	b.ask("POST", "/actuators", `{"lamp":"dim"}`)
	b.must("POST", "/reset", "")
	b.must("POST", "/actuators", `{"fan":"on"}`)
	w := b.must("GET", "/sim/writes", "")
	writes := w["writes"].([]any)
	if w["count"] != 2.0 || w["fields"] != 3.0 || w["refused"] != 1.0 || len(writes) != 2 {
		t.Errorf("GET /sim/writes: %v", w)
	}
	if first := writes[0].(map[string]any); first["seq"] != 1.0 || !reflect.DeepEqual(first["set"], map[string]any{"lamp": "on", "door": "open"}) {
		t.Errorf("first: %v", first)
	}
	if w = b.must("GET", "/sim/writes?since=1", ""); len(w["writes"].([]any)) != 1 || w["count"] != 2.0 {
		t.Errorf("since 1: %v", w)
	}
	var l log
	for range maxLog + 5 {
		l.add(entry{})
	}
	if l.count != maxLog+5 || len(l.entries) != maxLog || l.entries[0].Seq != 6 {
		t.Errorf("the log is not bounded: %d of %d, from %d", len(l.entries), l.count, l.entries[0].Seq)
	}
}

func TestFaultsThatMakeNoSense(t *testing.T) {
	b := start(t, Options{})
	for _, tt := range []struct{ body, says string }{
		{`{}`, "kind"},
		{`{"kind":"explode"}`, "not one of hang"},
		{`{"kind":"status"}`, "500 to 599"},
		{`{"kind":"status","status":404}`, "500 to 599"},
		{`{"kind":"delay"}`, "delay: missing"},
		{`{"kind":"delay","delay":"-1s"}`, "less than nothing"},
		{`{"kind":"hang","on":"sunday"}`, "health, read, write"},
		{`{"kind":"hang","count":-1}`, "count"},
		{`{"kind":"hang","reading":"light"}`, "means nothing"},
		{`{"kind":"refuse"}`, "actuator"},
		{`{"kind":"echo","actuator":"lamp"}`, "value: missing"},
		{`{"kind":"stick","reading":"humidity"}`, "reading"},
		{`{"kind":"hang","colour":"red"}`, "colour"},
	} {
		if code, got := b.ask("POST", "/sim/faults", tt.body); code != 400 || !strings.Contains(got, tt.says) {
			t.Errorf("%s: %d %s, want 400 and %q", tt.body, code, got, tt.says)
		}
	}
	if code, _ := b.ask("DELETE", "/sim/faults?id=3", ""); code != 404 {
		t.Errorf("DELETE of no fault: %d", code)
	}
	if code, _ := b.ask("DELETE", "/sim/faults?id=x", ""); code != 400 {
		t.Errorf("DELETE of nonsense: %d", code)
	}
}

// Requests that fail, and whether a write did its work.
func TestFaultsOfRequests(t *testing.T) {
	b := start(t, Options{})
	patient, impatient := b.client(5*time.Second), b.client(150*time.Millisecond)
	ctx := context.Background()
	allow := func() error { return nil }
	for _, tt := range []struct {
		fault string
		says  string // the client's error, of a write
	}{
		{`{"kind":"hang"`, "no answer within"},
		{`{"kind":"drop"`, "reset"},
		{`{"kind":"status","status":503`, "503"},
	} {
		c := patient
		if tt.says == "no answer within" {
			c = impatient
		}
		for _, applied := range []bool{false, true} {
			b.must("POST", "/reset", "")
			b.noFaults()
			b.fault(fmt.Sprintf(`%s,"on":"write","applied":%v}`, tt.fault, applied))
			_, err := c.Apply(ctx, device.Fields{"lamp": "on"}, allow)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: a write: %v, want %q", tt.fault, err, tt.says)
			}
			s, err := patient.State(ctx)
			if err != nil || (s.Actuators["lamp"] == "on") != applied {
				t.Errorf("%s, applied %v: lamp %s, %v", tt.fault, applied, s.Actuators["lamp"], err)
			}
		}
		b.noFaults()
		b.fault(tt.fault + `}`)
		if _, err := c.State(ctx); err == nil {
			t.Errorf("%s: a read: no error", tt.fault)
		}
		if err := c.Health(ctx); err == nil {
			t.Errorf("%s: the health: no error", tt.fault)
		}
		b.noFaults()
		if err := patient.Health(ctx); err != nil {
			t.Errorf("%s: after it: %v", tt.fault, err)
		}
	}
	for _, fault := range []string{`{"kind":"malformed"}`, `{"kind":"huge"}`, `{"kind":"huge","bytes":100}`} {
		b.must("POST", "/reset", "")
		b.fault(fault)
		if _, err := patient.Apply(ctx, device.Fields{"lamp": "on"}, allow); err == nil {
			t.Errorf("%s: a write: no error", fault)
		}
		if _, err := patient.State(ctx); err == nil {
			t.Errorf("%s: a read: no error", fault)
		}
		b.noFaults()
		if s, err := patient.State(ctx); err != nil || s.Actuators["lamp"] != "on" {
			t.Errorf("%s: the write did not do its work: %v, %v", fault, s, err)
		}
	}
}

func TestDelay(t *testing.T) {
	for _, applied := range []bool{false, true} {
		b := start(t, Options{})
		b.fault(fmt.Sprintf(`{"kind":"delay","delay":"12s","on":"write","applied":%v}`, applied))
		done := make(chan string, 1)
		go func() {
			_, body := b.ask("POST", "/actuators", `{"lamp":"on"}`)
			done <- body
		}()
		b.clock.awaitTimer(t, 1)
		if got := b.actuators()["lamp"]; (got == "on") != applied {
			t.Errorf("applied %v: lamp is %s while the write waits", applied, got)
		}
		b.clock.advance(12 * time.Second)
		if got := <-done; !strings.Contains(got, `"lamp":"on"`) {
			t.Errorf("applied %v: answered %s", applied, got)
		}
	}
}

func TestFaultsOfWrites(t *testing.T) {
	b := start(t, Options{})
	c := b.client(time.Second)
	apply := func(set device.Fields) (device.State, error) {
		return c.Apply(context.Background(), set, func() error { return nil })
	}

	b.fault(`{"kind":"refuse","actuator":"door","value":"on"}`)
	_, err := apply(device.Fields{"door": "open", "lamp": "on"})
	var refused *device.RefusedError
	if !errors.As(err, &refused) || !slices.Equal(refused.Allowed, []string{"closed", "off"}) || b.actuators()["lamp"] != "off" {
		t.Errorf("refused value: %v, allowed %v, lamp %v", err, refused, b.actuators()["lamp"])
	}
	if _, err := apply(device.Fields{"door": "closed", "lamp": "on"}); err != nil {
		t.Errorf("the other value: %v", err)
	}
	b.noFaults()

	b.fault(`{"kind":"refuse","actuator":"fan"}`)
	if _, err := apply(device.Fields{"fan": "off"}); !errors.As(err, &refused) {
		t.Errorf("any value: %v", err)
	}
	b.noFaults()

	b.fault(`{"kind":"echo","actuator":"lamp","value":"dim"}`)
	if s, err := apply(device.Fields{"lamp": "off", "fan": "on"}); err != nil || s.Actuators["lamp"] != "dim" || s.Actuators["fan"] != "on" {
		t.Errorf("echo: %v, %v", s, err)
	}
	if got := b.actuators()["lamp"]; got != "dim" {
		t.Errorf("echo: then %v", got)
	}
	b.noFaults()

	b.fault(`{"kind":"ignore","actuator":"vent"}`)
	if s, err := apply(device.Fields{"vent": "on"}); err != nil || s.Actuators["vent"] != "on" {
		t.Errorf("ignore: it says %v, %v", s, err)
	}
	if got := b.actuators()["vent"]; got != "off" {
		t.Errorf("ignore: then %v", got)
	}
}

func TestFaultsOfSensors(t *testing.T) {
	b := start(t, Options{Speed: 60, StartHour: 6})
	b.fault(`{"kind":"stick","reading":"light","at":7}`)
	b.fault(`{"kind":"stick","reading":"moisture"}`)
	b.fault(`{"kind":"creep","reading":"temperature","perHour":100}`)
	light1, _ := b.reading(light)
	moist1, _ := b.reading(moisture)
	temp1, _ := b.reading(temperature)
	b.must("POST", "/actuators", `{"pump":"on"}`)
	b.clock.advance(time.Minute)
	light2, _ := b.reading(light)
	moist2, _ := b.reading(moisture)
	temp2, _ := b.reading(temperature)
	if light1 != 7 || light2 != 7 || moist1 != moist2 || temp2 < temp1+90 {
		t.Errorf("light %v, %v; moisture %v, %v; temperature %v, %v", light1, light2, moist1, moist2, temp1, temp2)
	}
	b.noFaults()
	if v, _ := b.reading(moisture); v <= moist2 {
		t.Errorf("moisture %v when the sensor is mended, was stuck at %v", v, moist2)
	}
	b.fault(`{"kind":"silent","reading":"temperature"}`)
	if v, ok := b.reading(temperature); ok {
		t.Errorf("a silent sensor reads %v", v)
	}
}

func TestFaultsEnd(t *testing.T) {
	b := start(t, Options{})
	b.fault(`{"kind":"status","status":500,"on":"read","count":2}`)
	id := b.fault(`{"kind":"status","status":501,"on":"read","for":"10s"}`)
	codes := func(n int) (out []int) {
		for range n {
			code, _ := b.ask("GET", "/state", "")
			out = append(out, code)
		}
		return out
	}
	if got := codes(3); !slices.Equal(got, []int{500, 500, 501}) {
		t.Errorf("answers %v", got)
	}
	if code, _ := b.ask("GET", "/healthz", ""); code != 200 {
		t.Errorf("the health, which the faults are not on: %d", code)
	}
	var list struct{ Faults []Fault }
	_, body := b.ask("GET", "/sim/faults", "")
	if err := json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&list); err != nil || len(list.Faults) != 1 || list.Faults[0].ID != id || list.Faults[0].Hits != 1 {
		t.Errorf("GET /sim/faults: %s, %v", body, err)
	}
	b.clock.advance(10 * time.Second)
	if got := codes(1); got[0] != 200 {
		t.Errorf("after 10 s: %v", got)
	}
	one := b.fault(`{"kind":"status","status":500}`)
	b.must("DELETE", fmt.Sprintf("/sim/faults?id=%d", one), "")
	if got := codes(1); got[0] != 200 {
		t.Errorf("after it was switched off: %v", got)
	}
}

// What the greenhouse takes is what Holdfast's profile says that it takes.
func TestAgreesWithTheProfile(t *testing.T) {
	p, err := device.LoadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, Options{})
	c := b.client(time.Second)
	if got := device.Unknown(p, map[string]string{}); len(got) != 0 {
		t.Errorf("unknown: %v", got)
	}
	if len(p.Actuators) != len(actuators) {
		t.Errorf("the profile has %d actuators, the greenhouse %d", len(p.Actuators), len(actuators))
	}
	for _, a := range p.Actuators {
		for _, v := range append(slices.Sorted(maps.Keys(a.Synonyms)), a.Allowed...) {
			s, err := c.Apply(context.Background(), device.Fields{a.Name: v}, func() error { return nil })
			want, _ := a.Canonical(v)
			if err != nil || s.Actuators[a.Name] != want {
				t.Errorf("%s: %s → %s, %v, want %s", a.Name, v, s.Actuators[a.Name], err, want)
			}
		}
	}
	s, err := c.State(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Readings {
		if _, ok := s.Readings[r.Name]; !ok {
			t.Errorf("no reading %s", r.Name)
		}
	}
}

// The whole chain once: Holdfast's driver keeps this device, whatever it is made of.
func TestDriverKeepsTheGreenhouse(t *testing.T) {
	b := start(t, Options{Speed: 1})
	p, err := device.LoadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	want := device.Fields{"pump": "off", "fan": "on", "vent": "on", "lamp": "off", "door": "open"}
	d := device.NewDriver(b.client(5*time.Second), p, b.clock, 8*time.Second)
	cycle := func() device.Report {
		r := d.Drive(context.Background(), func(context.Context) (device.Target, error) {
			return device.Target{Generation: 1, Fields: want, ReadAt: b.clock.Uptime()}, nil
		})
		b.clock.advance(8 * time.Second)
		return r
	}
	if r := cycle(); !r.Converged() || len(r.Written) != 3 || b.writes() != 1 {
		t.Errorf("first cycle: %+v, %d writes", r, b.writes())
	}
	if r := cycle(); !r.Converged() || b.writes() != 1 {
		t.Errorf("at rest: %+v, %d writes", r, b.writes())
	}
	b.must("POST", "/reset", "")
	b.fault(`{"kind":"drop","on":"write","applied":true,"count":1}`)
	if r := cycle(); !r.Converged() || b.writes() != 3 { // the first arrived too, though nobody heard of it
		t.Errorf("after a restart and a broken connection: %+v, %d writes", r, b.writes())
	}
	b.fault(`{"kind":"ignore","actuator":"vent"}`)
	b.must("POST", "/sim/set", `{"actuators":{"vent":"off"}}`)
	for range 6 {
		cycle()
	}
	if r := cycle(); !slices.Equal(r.NonConvergent, []string{"vent"}) || b.writes() > 3+3 {
		t.Errorf("a vent that is stuck: %+v, %d writes", r, b.writes())
	}
}
