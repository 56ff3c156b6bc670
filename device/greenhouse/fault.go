package greenhouse

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Kind says how the device misbehaves.
type Kind string

// These change how a request is answered. On says which requests: health, read, write; without it all of them.
const (
	// Hang accepts the request and never answers.
	Hang Kind = "hang"
	// Drop breaks the connection (RST) instead of answering.
	Drop Kind = "drop"
	// Status answers with Fault.Status, 500 to 599.
	Status Kind = "status"
	// Delay answers, but only after Fault.Delay of uptime. A client that has gone by then did not write anything.
	Delay Kind = "delay"
	// Malformed answers half of the JSON; Huge answers Fault.Bytes of it. What the request asks for is done.
	Malformed Kind = "malformed"
	Huge      Kind = "huge"
)

// These change what a write does. Fault.Actuator says to which actuator; a write without it is not affected.
const (
	// Refuse answers 400 to a write of Fault.Value (any value if it is "").
	Refuse Kind = "refuse"
	// Echo stores Fault.Value, whatever is written; it need not be a value that the device knows.
	Echo Kind = "echo"
	// Ignore stores nothing. The write's own answer shows what was asked for all the same; GET /state does not.
	Ignore Kind = "ignore"
)

// These change a sensor, Fault.Reading. They touch no physics.
const (
	// Stick reports Fault.At, or what the sensor shows when it is first read.
	Stick Kind = "stick"
	// Creep is off by Fault.PerHour for each simulated hour since it was first read.
	Creep Kind = "creep"
	// Silent leaves the reading out.
	Silent Kind = "silent"
)

// Fault is one way to misbehave, from when it is switched on until it has happened Count times, For has passed, or it is
// removed. Faults of requests and of writes are tried in the order in which they were switched on, and the first that fits acts (delays
// besides, all of them).
type Fault struct {
	ID   int  `json:"id"` // given by the greenhouse
	Kind Kind `json:"kind"`

	On     string   `json:"on,omitempty"`     // health, read, write, or "" for all
	Status int      `json:"status,omitempty"` // of Status
	Delay  Duration `json:"delay,omitempty"`  // of Delay
	Bytes  int      `json:"bytes,omitempty"`  // of Huge, default 16 MiB
	// Applied lets a write do its work although its answer does not come, or comes with a 5xx or late: the case in which
	// a client cannot know what happened. For Hang, Drop, Status, Delay.
	Applied bool `json:"applied,omitempty"`

	Actuator string `json:"actuator,omitempty"` // of Refuse, Echo, Ignore
	Value    string `json:"value,omitempty"`    // of Refuse, Echo

	Reading string   `json:"reading,omitempty"` // of Stick, Creep, Silent
	At      *float64 `json:"at,omitempty"`      // of Stick, in the reading's unit
	PerHour float64  `json:"perHour,omitempty"` // of Creep, in the reading's unit

	Count int      `json:"count,omitempty"` // 0 for no limit. A request is one time, whatever it asks for
	For   Duration `json:"for,omitempty"`   // of uptime, 0 for no limit
	Hits  int      `json:"hits"`            // how often it has happened, counted by the greenhouse

	since time.Duration // uptime when it was switched on
	began time.Duration // simulated time when the sensor was first read
}

// Duration is a time.Duration that is a text such as "1.5s" in JSON.
type Duration time.Duration

// MarshalText is what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a time of zero or more.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err == nil && v < 0 {
		err = fmt.Errorf("%s: less than nothing", v)
	}
	*d = Duration(v)
	return err
}

// Endpoints that a fault of requests may be limited to.
const (
	onHealth = "health"
	onRead   = "read"
	onWrite  = "write"
)

// Validate reports all that is wrong with f.
func (f Fault) Validate() error {
	var errs []error
	wrong := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	uses := map[string]bool{}
	switch f.Kind {
	case Hang, Drop, Status, Delay:
		uses["on"], uses["applied"] = true, true
		uses["status"], uses["delay"] = f.Kind == Status, f.Kind == Delay
		if f.Kind == Status && (f.Status < 500 || f.Status > 599) {
			wrong("status %d: not from 500 to 599", f.Status)
		}
		if f.Kind == Delay && f.Delay == 0 {
			wrong("delay: missing")
		}
	case Malformed, Huge:
		uses["on"], uses["bytes"] = true, f.Kind == Huge
		if f.Bytes < 0 || f.Bytes > 1<<30 {
			wrong("bytes %d: not from 0 to 1 GiB", f.Bytes)
		}
	case Refuse, Echo, Ignore:
		uses["actuator"], uses["value"] = true, f.Kind != Ignore
		if index(f.Actuator) < 0 {
			wrong("actuator %q: the greenhouse has none of that name", f.Actuator)
		}
		if f.Kind == Echo && f.Value == "" {
			wrong("value: missing")
		}
	case Stick, Creep, Silent:
		uses["reading"], uses["at"], uses["perHour"] = true, f.Kind == Stick, f.Kind == Creep
		if !slices.Contains([]string{temperature, moisture, light}, f.Reading) {
			wrong("reading %q: the greenhouse has none of that name", f.Reading)
		}
	default:
		wrong("kind %q: not one of hang, drop, status, delay, malformed, huge, refuse, echo, ignore, stick, creep, silent", f.Kind)
		return errors.Join(errs...)
	}
	if !slices.Contains([]string{"", onHealth, onRead, onWrite}, f.On) {
		wrong("on %q: not one of health, read, write", f.On)
	}
	if f.Count < 0 {
		wrong("count %d: less than nothing", f.Count)
	}
	for key, given := range map[string]bool{
		"on": f.On != "", "status": f.Status != 0, "delay": f.Delay != 0, "bytes": f.Bytes != 0, "applied": f.Applied,
		"actuator": f.Actuator != "", "value": f.Value != "", "reading": f.Reading != "", "at": f.At != nil, "perHour": f.PerHour != 0,
	} {
		if given && !uses[key] {
			wrong("%s: means nothing to a fault of kind %s", key, f.Kind)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// faults are those that are switched on. The greenhouse's lock guards them.
type faults struct {
	list []*Fault
	next int // the last id given
}

func (fs *faults) add(f Fault, now time.Duration) Fault {
	fs.next++
	f.ID, f.Hits, f.since, f.began = fs.next, 0, now, -1
	if f.Kind == Huge && f.Bytes == 0 {
		f.Bytes = 16 << 20
	}
	fs.list = append(fs.list, &f)
	return f
}

// remove takes out the fault of that id, all of them if it is 0, and reports whether there was any.
func (fs *faults) remove(id int) bool {
	n := len(fs.list)
	fs.list = slices.DeleteFunc(fs.list, func(f *Fault) bool { return id == 0 || f.ID == id })
	return id == 0 || len(fs.list) < n
}

// live drops what is over and returns the rest.
func (fs *faults) live(now time.Duration) []*Fault {
	fs.list = slices.DeleteFunc(fs.list, func(f *Fault) bool {
		return f.Count > 0 && f.Hits >= f.Count || f.For > 0 && now-f.since >= time.Duration(f.For)
	})
	return fs.list
}

// request returns the fault that acts on a request, nil for none, and the delay before it is done and before it is answered.
func (fs *faults) request(on string, now time.Duration) (act *Fault, doing, answering time.Duration) {
	for _, f := range fs.live(now) {
		if f.On != "" && f.On != on {
			continue
		}
		switch f.Kind {
		case Delay:
			f.Hits++
			if f.Applied {
				answering += time.Duration(f.Delay)
			} else {
				doing += time.Duration(f.Delay)
			}
		case Hang, Drop, Status, Malformed, Huge:
			if act == nil {
				f.Hits++
				c := *f
				act = &c
			}
		}
	}
	return act, doing, answering
}

// refuse answers for a write that a fault refuses; ok is false then.
func (fs *faults) refuse(set map[string]string, now time.Duration) (rp reply, ok bool) {
	for _, f := range fs.live(now) {
		v, written := set[f.Actuator]
		if f.Kind == Refuse && written && (f.Value == "" || f.Value == v) {
			f.Hits++
			a := actuators[index(f.Actuator)]
			p := problem{Error: fmt.Sprintf("%s does not take %q", a.name, v), Allowed: []string{}}
			if f.Value != "" {
				p.Allowed = slices.DeleteFunc(a.allowed(), func(w string) bool { c, _ := a.canonical(w); return c == f.Value })
			}
			return reply{status: http.StatusBadRequest, body: p}, false
		}
	}
	return reply{}, true
}

// bend returns the actuators after a write of set to old, and what the write's answer shows.
func (fs *faults) bend(set, old map[string]string, now time.Duration) (next, shown map[string]string) {
	next = maps.Clone(old)
	maps.Copy(next, set)
	shown = maps.Clone(next)
	done := map[string]bool{}
	for _, f := range fs.live(now) {
		if _, written := set[f.Actuator]; !written || done[f.Actuator] {
			continue
		}
		switch f.Kind {
		case Echo:
			next[f.Actuator], shown[f.Actuator] = f.Value, f.Value
		case Ignore:
			if v, had := old[f.Actuator]; had {
				next[f.Actuator] = v
			} else {
				delete(next, f.Actuator)
			}
		default:
			continue
		}
		f.Hits++
		done[f.Actuator] = true
	}
	return next, shown
}

// sensors changes the readings r. at is the simulated time.
func (fs *faults) sensors(r map[string]float64, now, at time.Duration) {
	for _, f := range fs.live(now) {
		v, ok := r[f.Reading]
		if !ok {
			continue // no sensor's fault, or one that is silent by now
		}
		if f.began < 0 || f.began > at { // at goes back with a reset
			f.began = at
		}
		f.Hits++
		switch f.Kind {
		case Stick:
			if f.At == nil {
				f.At = &v
			}
			r[f.Reading] = *f.At
		case Creep:
			r[f.Reading] = round(v+f.PerHour*(at-f.began).Hours(), 2)
		case Silent:
			delete(r, f.Reading)
		}
	}
}

// faulty is h behind the faults of requests.
func (g *Greenhouse) faulty(on string, h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, ok := readBody(w, r)
		if !ok {
			return
		}
		g.mu.Lock()
		f, doing, answering := g.faults.request(on, g.clock.Uptime())
		g.mu.Unlock()
		if !g.pause(r, doing) {
			return
		}
		var rp reply
		if silent := f != nil && (f.Kind == Hang || f.Kind == Drop || f.Kind == Status); !silent || f.Applied {
			rp = h(r, body)
		}
		if !g.pause(r, answering) {
			return
		}
		if f == nil {
			rp.write(w)
			return
		}
		switch f.Kind {
		case Hang:
			<-r.Context().Done() // the client gives up, or the server stops
		case Drop:
			drop(w)
		case Status:
			reply{status: f.Status, body: problem{Error: "simulated fault"}}.write(w)
		case Malformed:
			b, err := json.Marshal(rp.body)
			if err != nil {
				panic(err) // our own types
			}
			writeJSON(w, rp, b[:len(b)/2])
		case Huge:
			writeJSON(w, rp, []byte(`{"padding":"`))
			chunk := slices.Repeat([]byte{'x'}, 16<<10)
			for left := f.Bytes; left > 0; left -= len(chunk) {
				if _, err := w.Write(chunk[:min(left, len(chunk))]); err != nil {
					return // the client has had enough
				}
			}
			_, _ = w.Write([]byte(`"}`))
		}
	}
}

// pause waits for d of uptime and reports whether the client is still there.
func (g *Greenhouse) pause(r *http.Request, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-g.clock.After(d):
		return true
	case <-r.Context().Done():
		return false
	}
}

// drop breaks the connection without an answer.
func drop(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the same, with FIN instead of RST
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
