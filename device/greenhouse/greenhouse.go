// Package greenhouse is the reference device: a simulated greenhouse that speaks the device contract (docs/design.md), and
// misbehaves when told to.
//
// It has three layers. House (house.go) is physics: a value, and a function of elapsed time. Greenhouse (this file and
// http.go) is the device: five actuators, their contract over HTTP, and a clock that is handed in; it holds all of its state in memory
// and forgets it on a restart, on purpose. Faults (fault.go) stand between the two and the network, and are switched on from outside, as
// are the hands that move things behind the agent's back (bench.go). Everything under /sim/, and POST /reset, exists on
// the simulator only: it is the test bench, not the device.
//
//	client ──▶ faults ──▶ contract ──▶ actuators ──▶ House.Step
//	                          ▲                          │
//	                          └──── faults ◀── sensors ◀─┘
//
// It knows the device's own idea of its actuators, not the profile of Holdfast: that both agree is for tests to see.
package greenhouse

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"holdfast/device"
	"holdfast/device/clock"
)

// Options say what greenhouse to simulate.
type Options struct {
	// Seed chooses the weather.
	Seed uint64
	// Speed is how much simulated time passes in one unit of uptime: 1 is real time, 60 an hour a minute, 0 stands still. At most 3600.
	Speed float64
	// StartHour is the simulated hour of the day at the start and after a reset, 0 to under 24.
	StartHour float64
	// TokenFile holds the bearer token that a write needs, read anew for each; "" for none.
	TokenFile string
	// Clock drives everything: the climate, long-polls and the faults' time.
	Clock clock.Clock
}

// actuator is one output. Switch says which value of the reported ones is on; Synonyms are spellings that it takes besides.
type actuator struct {
	name     string
	on, off  string
	synonyms map[string]string
}

// actuators are what this device has, sorted as people would list them.
var actuators = []actuator{
	{name: "pump", on: "on", off: "off"},
	{name: "fan", on: "on", off: "off"},
	{name: "vent", on: "on", off: "off"},
	{name: "lamp", on: "on", off: "off"},
	{name: "door", on: "open", off: "closed", synonyms: map[string]string{"on": "open", "off": "closed"}},
}

// canonical returns the value that v is reported as.
func (a actuator) canonical(v string) (string, bool) {
	if v == a.on || v == a.off {
		return v, true
	}
	w, ok := a.synonyms[v]
	return w, ok
}

// allowed lists the values that a takes, synonyms last.
func (a actuator) allowed() []string {
	return append([]string{a.on, a.off}, slices.Sorted(maps.Keys(a.synonyms))...)
}

// The readings' names.
const (
	temperature = "temperature" // °C
	moisture    = "moisture"    // %
	light       = "light"       // lux
)

// Greenhouse is one simulated device. It is safe for use by several goroutines.
type Greenhouse struct {
	options Options
	clock   clock.Clock
	boot    string        // part of the tag: another life of the device has other tags
	maxWait time.Duration // of a long-poll

	mu      sync.Mutex
	house   House
	last    time.Duration     // uptime up to which the house is simulated
	set     map[string]string // actuators, as reported; also what a hand on the bench put there
	version int               // of set
	changed chan struct{}     // closed when set changes
	faults  faults
	log     log
}

// New returns a greenhouse with everything off and closed.
func New(o Options) (*Greenhouse, error) {
	var errs []error
	if !(o.Speed >= 0 && o.Speed <= 3600) {
		errs = append(errs, fmt.Errorf("speed %v: not between 0 and 3600", o.Speed))
	}
	if !(o.StartHour >= 0 && o.StartHour < hoursOfDay) {
		errs = append(errs, fmt.Errorf("start hour %v: not from 0 to under 24", o.StartHour))
	}
	if o.TokenFile != "" {
		if _, err := readToken(o.TokenFile); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	g := &Greenhouse{
		options: o, clock: o.Clock, boot: hex.EncodeToString(id[:]), maxWait: 25 * time.Second,
		changed: make(chan struct{}),
	}
	g.restart()
	return g, nil
}

// restart is what a power cut does to the device: the actuators fall off and closed, the climate is at its start. The
// bench is another box: its faults and its log stay.
func (g *Greenhouse) restart() {
	g.house = NewHouse(g.options.Seed, g.options.StartHour)
	g.last = g.clock.Uptime()
	off := map[string]string{}
	for _, a := range actuators {
		off[a.name] = a.off
	}
	g.replace(off)
}

// replace puts the actuators as given, and wakes long-polls if that changes anything. mu is held, or g is new.
func (g *Greenhouse) replace(set map[string]string) {
	if maps.Equal(set, g.set) {
		return
	}
	g.set = set
	g.version++
	close(g.changed)
	g.changed = make(chan struct{})
}

// tag names the present state of the actuators. mu is held.
func (g *Greenhouse) tag() string { return g.boot + "-" + strconv.Itoa(g.version) }

// advance simulates the time since the last call. mu is held. Every change of an actuator comes after it, so that each stretch of time
// is lived with the actuators that it had.
func (g *Greenhouse) advance() {
	now := g.clock.Uptime()
	elapsed := time.Duration(float64(now-g.last) * g.options.Speed)
	g.last = now
	g.house.Step(elapsed, g.switches())
}

// switches are the actuators as physics sees them: what it does not understand is off.
func (g *Greenhouse) switches() Switches {
	on := func(i int) bool { return g.set[actuators[i].name] == actuators[i].on }
	return Switches{Pump: on(0), Fan: on(1), Vent: on(2), Lamp: on(3), Door: on(4)}
}

// state is what the device reports now. mu is held.
func (g *Greenhouse) state() device.State {
	g.advance()
	r := map[string]float64{
		temperature: round(g.house.AirC, 2),
		moisture:    round(g.house.MoisturePercent, 1),
		light:       round(g.house.LightLux, 0),
	}
	g.faults.sensors(r, g.clock.Uptime(), g.house.At)
	return device.State{
		ObservedAt: g.clock.Now().UTC().Truncate(time.Millisecond),
		Readings:   r,
		Actuators:  maps.Clone(g.set),
	}
}

func round(x float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(x*p) / p
}
