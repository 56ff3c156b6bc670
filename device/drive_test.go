package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const testInterval = 8 * time.Second

// greenhouse is the reference device's profile.
func greenhouse() Profile {
	onOff := []string{"on", "off"}
	return Profile{
		Name: "greenhouse",
		Actuators: []Actuator{
			{Name: "pump", Allowed: onOff}, {Name: "fan", Allowed: onOff}, {Name: "vent", Allowed: onOff}, {Name: "lamp", Allowed: onOff},
			{Name: "door", Allowed: []string{"open", "closed"}, Synonyms: map[string]string{"on": "open", "off": "closed"}},
		},
	}
}

// fakeClock stands still until it is told to go on.
type fakeClock struct {
	mu sync.Mutex
	up time.Duration
}

func (f *fakeClock) Now() time.Time { return time.Unix(0, 0) }
func (f *fakeClock) Uptime() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up
}
func (f *fakeClock) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up += d
}
func (f *fakeClock) After(time.Duration) <-chan time.Time { panic("the driver does not wait") }

// fakeDevice is a device in memory that misbehaves as told.
type fakeDevice struct {
	clock     *fakeClock
	actuators map[string]string
	writes    []Fields // accepted ones
	requests  int      // that went out to be written
	gets      int

	getTakes time.Duration
	stateErr func(n int) error         // of the nth GET, from 1
	onApply  func(set Fields) error    // instead of accepting
	after    func(a map[string]string) // what becomes of it right after a write
	echo     func(a map[string]string) // what the write's answer shows instead
}

func (f *fakeDevice) State(context.Context) (State, error) {
	f.gets++
	f.clock.advance(f.getTakes)
	if f.stateErr != nil {
		if err := f.stateErr(f.gets); err != nil {
			return State{}, err
		}
	}
	return State{Actuators: maps.Clone(f.actuators)}, nil
}

func (f *fakeDevice) Apply(_ context.Context, set Fields, before func() error) (State, error) {
	if err := before(); err != nil {
		return State{}, err
	}
	f.requests++
	if f.onApply != nil {
		if err := f.onApply(set); err != nil {
			return State{}, err
		}
	}
	f.writes = append(f.writes, set.Clone())
	maps.Copy(f.actuators, set)
	if f.after != nil {
		f.after(f.actuators)
	}
	a := maps.Clone(f.actuators)
	if f.echo != nil {
		f.echo(a)
	}
	return State{Actuators: a}, nil
}

// world is a driver, its device and a target.
type world struct {
	*fakeDevice
	driver     *Driver
	generation uint64
	fields     Fields
	asked      int
	onAsk      func(n int) error
}

var allOff = Fields{"pump": "off", "fan": "off", "vent": "off", "lamp": "off", "door": "closed"}

func newWorld() *world {
	ck := &fakeClock{up: time.Hour}
	w := &world{fakeDevice: &fakeDevice{clock: ck, actuators: map[string]string(allOff.Clone())}, generation: 7, fields: allOff.Clone()}
	w.driver = NewDriver(w.fakeDevice, greenhouse(), ck, testInterval)
	return w
}

func (w *world) target(context.Context) (Target, error) {
	w.asked++
	if w.onAsk != nil {
		if err := w.onAsk(w.asked); err != nil {
			return Target{}, err
		}
	}
	return Target{Generation: w.generation, Fields: w.fields.Clone(), ReadAt: w.clock.Uptime()}, nil
}

func (w *world) drive() Report { return w.driver.Drive(context.Background(), w.target) }

// cycle drives once and lets an interval pass.
func (w *world) cycle() Report {
	r := w.drive()
	w.clock.advance(testInterval)
	return r
}

func names(drift []Drift) []string {
	var out []string
	for _, d := range drift {
		out = append(out, d.Field)
	}
	return out
}

func TestDiff(t *testing.T) {
	for _, tt := range []struct {
		name     string
		want     Fields
		observed map[string]string
		drift    []Drift
	}{
		{"the same", allOff, allOff, nil},
		{"a synonym", Fields{"door": "closed"}, map[string]string{"door": "off"}, nil},
		{"a value that the profile does not know", Fields{"lamp": "on"}, map[string]string{"lamp": "dim"}, []Drift{{"lamp", "on", "dim"}}},
		{"missing", Fields{"lamp": "off"}, map[string]string{}, []Drift{{"lamp", "off", ""}}},
		{"in the profile's order", Fields{"door": "open", "fan": "on", "pump": "on"}, allOff,
			[]Drift{{"pump", "on", "off"}, {"fan", "on", "off"}, {"door", "open", "closed"}}},
		{"an actuator without a wish", Fields{}, map[string]string{"lamp": "on"}, nil},
		{"a wish that the profile does not know", Fields{"image": "abc"}, map[string]string{}, nil},
		{"values of a newer profile", Fields{"lamp": "blue"}, map[string]string{"lamp": "blue"}, nil},
		{"two values of newer profiles", Fields{"lamp": "blue"}, map[string]string{"lamp": "green"}, []Drift{{"lamp", "blue", "green"}}},
	} {
		if got := Diff(greenhouse(), tt.want, tt.observed); !reflect.DeepEqual(got, tt.drift) {
			t.Errorf("%s: Diff(%v, %v) = %v, want %v", tt.name, tt.want, tt.observed, got, tt.drift)
		}
	}
	if got := Unknown(greenhouse(), map[string]string{"siren": "on", "lamp": "on", "buzzer": "off"}); !slices.Equal(got, []string{"buzzer", "siren"}) {
		t.Errorf("Unknown = %v", got)
	}
}

// From any state and to any target, one Drive of a well-behaved device converges, writes exactly what has drifted,
// in one request, and writes nothing when nothing has. It is run over HTTP, with the real client.
func TestOneDriveConverges(t *testing.T) {
	p := greenhouse()
	var mu sync.Mutex
	actuators := map[string]string{}
	var posts []Fields
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPost {
			var set Fields
			if err := json.NewDecoder(r.Body).Decode(&set); err != nil {
				t.Errorf("POST: %v", err)
			}
			posts = append(posts, set)
			maps.Copy(actuators, set)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"readings": map[string]float64{}, "actuators": actuators})
	}))
	defer srv.Close()
	c, err := NewClient(ClientOptions{URL: srv.URL, Profile: p})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		want, seen := Fields{}, map[string]string{}
		var differ []string
		for _, a := range p.Actuators {
			want[a.Name] = rapid.SampledFrom(a.Allowed).Draw(t, a.Name)
			spelt := append(slices.Sorted(maps.Keys(a.Synonyms)), a.Allowed...)
			switch v := rapid.SampledFrom(append(spelt, "dim", "missing")).Draw(t, a.Name+" seen"); v {
			case "missing":
				differ = append(differ, a.Name)
			default:
				seen[a.Name] = v
				if c, ok := a.Canonical(v); !ok || c != want[a.Name] {
					differ = append(differ, a.Name)
				}
			}
		}
		if rapid.Bool().Draw(t, "siren") {
			seen["siren"] = "on"
		}
		mu.Lock()
		actuators, posts = maps.Clone(seen), nil
		mu.Unlock()

		ck := &fakeClock{up: time.Hour}
		d := NewDriver(c, p, ck, testInterval)
		target := func(context.Context) (Target, error) { return Target{1, want, ck.Uptime()}, nil }
		r := d.Drive(context.Background(), target)

		mu.Lock()
		defer mu.Unlock()
		if !r.Converged() || !slices.Equal(names(r.Drift), differ) || !slices.Equal(r.Written, differ) {
			t.Fatalf("Drive = %+v, want %v written", r, differ)
		}
		if len(differ) == 0 && len(posts) != 0 || len(differ) > 0 && len(posts) != 1 {
			t.Fatalf("%d writes for a drift of %v", len(posts), differ)
		}
		for _, post := range posts {
			if got := slices.Sorted(maps.Keys(post)); !slices.Equal(got, slices.Sorted(slices.Values(differ))) || !want.Contains(post) {
				t.Fatalf("wrote %v for a drift of %v to %v", post, differ, want)
			}
		}
		if seen["siren"] != actuators["siren"] || (seen["siren"] == "on") != slices.Equal(r.Unknown, []string{"siren"}) {
			t.Fatalf("an unknown actuator: reported %v, was %q, is %q", r.Unknown, seen["siren"], actuators["siren"])
		}
	})
}

func TestAStaleTargetWritesNothing(t *testing.T) {
	w := newWorld()
	w.fields["lamp"] = "on"
	w.driver = NewDriver(w.fakeDevice, greenhouse(), w.clock, testInterval)
	stale := func(ctx context.Context) (Target, error) {
		tg, err := w.target(ctx)
		tg.ReadAt -= TargetTTL + 1
		return tg, err
	}
	r := w.driver.Drive(context.Background(), stale)
	if w.requests != 0 || r.Converged() || !strings.Contains(r.Error, ErrStale.Error()) || len(r.Left) != 1 {
		t.Errorf("Drive with an old target: %d requests, %+v", w.requests, r)
	}
	future := func(ctx context.Context) (Target, error) {
		tg, err := w.target(ctx)
		tg.ReadAt += time.Hour
		return tg, err
	}
	if r = w.driver.Drive(context.Background(), future); w.requests != 0 || r.Error == "" {
		t.Errorf("Drive with a target of another boot: %d requests, %+v", w.requests, r)
	}
	if r = w.drive(); !r.Converged() {
		t.Errorf("Drive with a new target: %+v", r)
	}
}

func TestATargetThatGoesStaleBetweenTwoAttempts(t *testing.T) {
	ck := &fakeClock{up: time.Hour}
	posts := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts++
			ck.advance(TargetTTL + 1)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, goodState)
	}))
	defer srv.Close()
	c, err := NewClient(ClientOptions{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	d := NewDriver(c, greenhouse(), ck, testInterval)
	r := d.Drive(context.Background(), func(context.Context) (Target, error) { return Target{1, allOff, ck.Uptime()}, nil })
	if posts != 1 || !strings.Contains(r.Error, ErrStale.Error()) || r.Observed == nil || !slices.Equal(names(r.Left), []string{"lamp"}) {
		t.Errorf("%d writes, %+v", posts, r)
	}
}

func TestASlowDeviceIsWrittenWithANewTarget(t *testing.T) {
	w := newWorld()
	w.getTakes = 4 * time.Second
	w.fields["lamp"] = "on"
	if r := w.drive(); !r.Converged() || w.asked != 2 {
		t.Errorf("Drive: %+v, target read %d times", r, w.asked)
	}
}

func TestNoTargetNoWrite(t *testing.T) {
	w := newWorld()
	w.actuators["lamp"] = "on"
	w.onAsk = func(int) error { return errors.New("guard silent") }
	r := w.drive()
	if w.requests != 0 || !r.Answered || r.Observed == nil || r.Converged() || !strings.Contains(r.Error, "guard silent") {
		t.Errorf("Drive: %d requests, %+v", w.requests, r)
	}
}

func TestTheDeviceIsAway(t *testing.T) {
	w := newWorld()
	w.stateErr = func(int) error { return errors.New("connection refused") }
	if r := w.drive(); r.Answered || r.Converged() || r.Observed != nil || r.Error != "connection refused" || r.Generation != 7 {
		t.Errorf("Drive: %+v", r)
	}
	w.fields["lamp"] = "on"
	w.stateErr = func(n int) error { // it goes away after the write
		if n == 3 {
			return errors.New("connection reset")
		}
		return nil
	}
	r := w.drive()
	if !r.Answered || r.Converged() || r.Error != "connection reset" || r.Observed.Actuators["lamp"] != "on" || len(r.Left) != 0 {
		t.Errorf("Drive: %+v", r)
	}
}

// refuse returns an onApply that refuses a request with that key.
func refuse(key string) func(Fields) error {
	return func(set Fields) error {
		if _, ok := set[key]; ok {
			return &RefusedError{Message: key + " is stuck"}
		}
		return nil
	}
}

func TestARefusedKeyNeverStopsTheOthers(t *testing.T) {
	w := newWorld()
	w.fields = Fields{"pump": "on", "fan": "on", "vent": "on", "lamp": "off", "door": "open"}
	w.onApply = refuse("fan")
	r := w.drive()
	if !slices.Equal(r.Written, []string{"pump", "vent", "door"}) || !slices.Equal(names(r.Left), []string{"fan"}) ||
		!reflect.DeepEqual(r.Refused, map[string]string{"fan": "fan is stuck"}) || r.Error != "" {
		t.Errorf("Drive: %+v", r)
	}
	if w.requests != 5 || w.asked != 5 { // all four, then one at a time, each with a newly read target
		t.Errorf("%d requests, target read %d times, want 5 and 5", w.requests, w.asked)
	}
}

func TestASequenceStopsWhenTheGenerationChanges(t *testing.T) {
	w := newWorld()
	w.fields = Fields{"pump": "on", "fan": "on", "vent": "on", "lamp": "off", "door": "open"}
	w.onApply = refuse("pump")
	w.onAsk = func(n int) error {
		if n == 4 {
			w.generation++
			w.fields["vent"] = "off"
		}
		return nil
	}
	r := w.drive()
	if !slices.Equal(r.Written, []string{"fan"}) || r.Generation != 7 || r.Converged() {
		t.Errorf("Drive: %+v", r)
	}
	w.onApply = nil
	w.clock.advance(time.Hour)
	if r = w.drive(); !r.Converged() || r.Generation != 8 || w.actuators["vent"] != "off" {
		t.Errorf("next Drive: %+v, vent %s", r, w.actuators["vent"])
	}
}

func TestRefusedFieldsAreTriedWithGrowingPauses(t *testing.T) {
	w := newWorld()
	w.fields["lamp"] = "on"
	w.onApply = refuse("lamp")
	var tried []time.Duration
	start := w.clock.Uptime()
	for range 400 {
		before := w.requests
		at := w.clock.Uptime()
		r := w.cycle()
		if w.requests > before {
			tried = append(tried, at-start)
		}
		if r.Refused["lamp"] != "lamp is stuck" || r.Converged() {
			t.Fatalf("at %s: %+v", at-start, r)
		}
	}
	for i := 1; i < len(tried); i++ {
		pause := tried[i] - tried[i-1]
		if want := min(testInterval<<i, maxPause); pause < want || pause > want+testInterval {
			t.Errorf("pause %d: %s, want %s", i, pause, want)
		}
	}
	if len(tried) < 7 {
		t.Errorf("tried at %v", tried)
	}

	w.onApply = nil
	w.fields["lamp"] = "off" // other content: what was remembered is about another value
	w.cycle()
	w.fields["lamp"] = "on"
	if r := w.cycle(); !r.Converged() || len(r.Refused) != 0 {
		t.Errorf("after the value changed: %+v", r)
	}
}

// meta-balena#3876: a device that echoes another value than was set must not be written to for ever.
func TestANonConvergentFieldGetsTwoWritesAndThenPauses(t *testing.T) {
	w := newWorld()
	w.fields["lamp"] = "on"
	w.after = func(a map[string]string) { a["lamp"] = "dim" }
	for i := range 5 {
		r := w.cycle()
		if marked := slices.Contains(r.NonConvergent, "lamp"); marked != (i >= 1) || r.Converged() {
			t.Errorf("cycle %d: %+v", i, r)
		}
	}
	if len(w.writes) != 2 {
		t.Errorf("%d writes in 5 cycles, want 2", len(w.writes))
	}
	for range 450 {
		w.cycle()
	}
	if n := len(w.writes); n < 5 || n > 12 {
		t.Errorf("%d writes in an hour, want few but some", n)
	}
	w.fields["fan"] = "on" // the others are corrected at once
	if r := w.cycle(); !slices.Contains(r.Written, "fan") || !slices.Equal(names(r.Left), []string{"lamp"}) {
		t.Errorf("another field: %+v", r)
	}
	w.after = nil // mended: noticed when the pause is over
	for range int(maxPause/testInterval) + 2 {
		w.cycle()
	}
	if r := w.cycle(); !r.Converged() || len(r.NonConvergent) != 0 {
		t.Errorf("after it was mended: %+v", r)
	}
}

func TestWhatIsRememberedIsAboutOneTargetValue(t *testing.T) {
	w := newWorld()
	w.actuators["lamp"] = "dim"
	w.fields["lamp"] = "on"
	w.onApply = refuse("lamp")
	w.drive()
	if w.drive(); w.requests != 1 {
		t.Errorf("%d requests in 2 cycles, want a pause after the first", w.requests)
	}
	w.fields["lamp"] = "off"
	w.onApply = nil
	if r := w.drive(); !r.Converged() {
		t.Errorf("with another target value: %+v", r)
	}
}

func TestASlowActuatorIsNotNonConvergent(t *testing.T) {
	w := newWorld()
	w.after = func(a map[string]string) { a["door"] = "closed" } // it takes a while
	for range 5 {
		w.fields["door"] = "open"
		if r := w.cycle(); r.Converged() || len(r.NonConvergent) != 0 {
			t.Errorf("while it moves: %+v", r)
		}
		w.actuators["door"] = "open"
		if r := w.cycle(); !r.Converged() || len(r.Written) != 0 {
			t.Errorf("when it has arrived: %+v", r)
		}
		w.actuators["door"], w.fields["door"] = "closed", "closed"
		w.cycle()
	}
}

// Whatever was remembered of a field is about one that is wrong: when it is right, however it got there, a new drift is a new one.
func TestAFieldThatIsRightIsForgiven(t *testing.T) {
	w := newWorld()
	w.fields["lamp"] = "on"
	w.onApply = refuse("lamp")
	w.cycle()
	w.actuators["lamp"] = "on" // by hand
	if r := w.cycle(); !r.Converged() || len(r.Refused) != 0 {
		t.Errorf("set by hand: %+v", r)
	}
	w.actuators["lamp"] = "off"
	w.onApply = nil
	if r := w.drive(); !r.Converged() {
		t.Errorf("drifted later: %+v", r)
	}

	w.after = func(a map[string]string) { a["lamp"] = "off" } // slow
	for i := range 4 {
		w.actuators["lamp"] = "off"
		if r := w.cycle(); len(r.Written) != 1 || len(r.NonConvergent) != 0 {
			t.Errorf("slow, drift %d: %+v", i, r)
		}
		w.actuators["lamp"] = "on"
		w.cycle()
	}
}

func TestAContendedFieldIsCorrectedEachTime(t *testing.T) {
	w := newWorld()
	w.cycle()
	for i := range 6 {
		w.actuators["vent"] = "on" // somebody else wants it so
		r := w.cycle()
		if !r.Converged() || !slices.Equal(r.Written, []string{"vent"}) {
			t.Errorf("drift %d: %+v", i, r)
		}
		if contended := slices.Contains(r.Contended, "vent"); contended != (i >= 2) {
			t.Errorf("drift %d: contended %v", i, contended)
		}
	}
	for range 12 {
		w.cycle()
	}
	if r := w.cycle(); len(r.Contended) != 0 {
		t.Errorf("after a quiet while: %+v", r)
	}
}

func TestTheWritesOwnAnswerCountsToo(t *testing.T) {
	w := newWorld()
	w.fields["lamp"] = "on"
	w.echo = func(a map[string]string) { a["lamp"] = "warming up" }
	if r := w.cycle(); r.Converged() || !slices.Equal(r.Left, []Drift{{"lamp", "on", "warming up"}}) {
		t.Errorf("the two answers differ: %+v", r)
	}
	if r := w.cycle(); !r.Converged() || len(r.Written) != 0 {
		t.Errorf("next cycle: %+v", r)
	}
	w.fields["fan"] = "on"
	w.echo = func(a map[string]string) { clear(a) } // an answer that does not name it has no say
	if r := w.cycle(); !r.Converged() {
		t.Errorf("an answer without the field: %+v", r)
	}
}

// doco-cd PR 1711: nothing is called done before it has been read back.
func TestPartialSuccessIsReportedAsWhatItIs(t *testing.T) {
	w := newWorld()
	w.fields = Fields{"pump": "on", "fan": "on", "vent": "on", "lamp": "on", "door": "open"}
	sick := func(set Fields) error {
		if _, ok := set["vent"]; ok {
			if len(set) > 1 { // it got as far as that
				w.actuators["pump"], w.actuators["fan"] = "on", "on"
			}
			return fmt.Errorf("cannot write to the device: %w", &StatusError{Status: 500, Message: "relay"})
		}
		return nil
	}
	w.onApply = sick
	r := w.cycle()
	if r.Converged() || len(r.Written) != 0 || !slices.Equal(names(r.Left), []string{"vent", "lamp", "door"}) || !strings.Contains(r.Error, "500") {
		t.Errorf("all in one: %+v", r)
	}
	r = w.cycle()
	if r.Converged() || !slices.Equal(r.Written, []string{"lamp", "door"}) || !slices.Equal(names(r.Left), []string{"vent"}) || !strings.Contains(r.Error, "vent: ") {
		t.Errorf("one at a time: %+v", r)
	}
	w.onApply = nil
	if r = w.cycle(); !r.Converged() {
		t.Errorf("when it is well: %+v", r)
	}
}

func TestASilentDeviceIsNotAskedForEachField(t *testing.T) {
	w := newWorld()
	w.fields = Fields{"pump": "on", "fan": "on", "vent": "on", "lamp": "on", "door": "open"}
	w.onApply = func(set Fields) error {
		if len(set) > 1 {
			return &RefusedError{Message: "no"}
		}
		return errors.New("no answer within 2s")
	}
	if r := w.cycle(); w.requests != 2 || r.Error != "pump: no answer within 2s" || len(r.Left) != 5 {
		t.Errorf("%d requests, %+v", w.requests, r)
	}
}
