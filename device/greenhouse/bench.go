package greenhouse

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// maxLog bounds the log of writes; the oldest go first, the counts stay.
const maxLog = 1000

// log is what the bench remembers of the writes that reached the device.
type log struct {
	count   int // accepted writes
	fields  int // keys in them
	refused int // answered 400
	entries []entry
}

// entry is one accepted write.
type entry struct {
	Seq           int               `json:"seq"` // from 1, never reused
	At            time.Time         `json:"at"`
	UptimeSeconds float64           `json:"uptimeSeconds"`
	Set           map[string]string `json:"set"` // canonical values
}

func (l *log) add(e entry) {
	l.count++
	l.fields += len(e.Set)
	e.Seq = l.count
	if l.entries = append(l.entries, e); len(l.entries) > maxLog {
		l.entries = slices.Delete(l.entries, 0, len(l.entries)-maxLog)
	}
}

// bench adds the endpoints of the test bench, which no device has. They need no token.
//
//	GET    /sim              what is simulated: seed, speed, hour, weather, the true climate
//	GET    /sim/faults       200 {"faults":[…]}, those that are still on (type Fault)
//	POST   /sim/faults       switch one on: a Fault without its id → 200 the Fault with it
//	DELETE /sim/faults       switch all off; with ?id=N that one, 404 if it is not on
//	POST   /sim/set          move things by hand, past the contract and its log, all keys optional:
//	                         {"temperature":°C, "moisture":%, "light":lux, "hour":0 to <24, "actuators":{"vent":"on", "siren":"on", "lamp":null}}.
//	                         An actuator's value may be any text; null takes the actuator off the device until it is written or reset.
//	                         What is set goes on from there: the light, for one, is back where sun and lamp have it within a minute.
//	GET    /sim/writes       200 {"count":accepted, "fields":keys in them, "refused":answered 400, "writes":[{"seq":…, "at":…,
//	                         "uptimeSeconds":…, "set":{…}}]}, the last 1000; ?since=N leaves out up to number N
func (g *Greenhouse) bench(mux *http.ServeMux) {
	mux.HandleFunc("GET /sim", g.getSim)
	mux.HandleFunc("GET /sim/faults", g.getFaults)
	mux.HandleFunc("POST /sim/faults", g.postFault)
	mux.HandleFunc("DELETE /sim/faults", g.deleteFaults)
	mux.HandleFunc("POST /sim/set", g.postSet)
	mux.HandleFunc("GET /sim/writes", g.getWrites)
}

func ok(body any) reply { return reply{status: http.StatusOK, body: body} }

// readBody reads a bounded body; if it cannot, it has answered.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		reply{status: http.StatusRequestEntityTooLarge, body: problem{Error: err.Error()}}.write(w)
		return nil, false
	}
	return b, true
}

// readJSON reads a bounded body into v, strictly; if it cannot, it has answered.
func readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = fmt.Errorf("the body goes on after the object")
	}
	if err != nil {
		bad("%v", err).write(w)
	}
	return err == nil
}

func (g *Greenhouse) getSim(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	g.advance()
	rp := ok(map[string]any{
		"seed":    g.options.Seed,
		"speed":   g.options.Speed,
		"hour":    round(hour(g.house.At), 4),
		"outside": g.house.Weather.At(g.house.At),
		"inside": map[string]float64{
			temperature: g.house.AirC, moisture: g.house.MoisturePercent, light: g.house.LightLux,
		},
	})
	g.mu.Unlock()
	rp.write(w)
}

func (g *Greenhouse) getFaults(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	list := []Fault{}
	for _, f := range g.faults.live(g.clock.Uptime()) {
		list = append(list, *f)
	}
	g.mu.Unlock()
	ok(map[string]any{"faults": list}).write(w)
}

func (g *Greenhouse) postFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	if !readJSON(w, r, &f) {
		return
	}
	if err := f.Validate(); err != nil {
		bad("%v", err).write(w)
		return
	}
	if f.Kind == Refuse && f.Value != "" {
		// Writes are compared in the device's own spelling. A value that it never takes is refused as it is.
		if v, known := actuators[index(f.Actuator)].canonical(f.Value); known {
			f.Value = v
		}
	}
	g.mu.Lock()
	f = g.faults.add(f, g.clock.Uptime())
	g.mu.Unlock()
	ok(f).write(w)
}

func (g *Greenhouse) deleteFaults(w http.ResponseWriter, r *http.Request) {
	id := 0
	if q := r.URL.Query().Get("id"); q != "" {
		var err error
		if id, err = strconv.Atoi(q); err != nil || id <= 0 {
			bad("id %q: not a fault's number", q).write(w)
			return
		}
	}
	g.mu.Lock()
	found := g.faults.remove(id)
	g.mu.Unlock()
	if !found {
		reply{status: http.StatusNotFound, body: problem{Error: fmt.Sprintf("no fault %d is on", id)}}.write(w)
		return
	}
	g.getFaults(w, r)
}

func (g *Greenhouse) postSet(w http.ResponseWriter, r *http.Request) {
	var s struct {
		Temperature, Moisture, Light, Hour *float64
		Actuators                          map[string]*string
	}
	if !readJSON(w, r, &s) {
		return
	}
	if s.Hour != nil && !(*s.Hour >= 0 && *s.Hour < hoursOfDay) {
		bad("hour %v: not from 0 to under 24", *s.Hour).write(w)
		return
	}
	put := func(to *float64, from *float64, lo, hi float64) {
		if from != nil {
			*to = clamp(*from, lo, hi)
		}
	}
	g.mu.Lock()
	g.advance()
	put(&g.house.AirC, s.Temperature, minAir, maxAir)
	put(&g.house.MoisturePercent, s.Moisture, 0, maxSoil)
	put(&g.house.LightLux, s.Light, 0, maxLux)
	if s.Hour != nil { // the next time that it is so late; time never runs back
		ahead := math.Mod(*s.Hour-hour(g.house.At)+hoursOfDay, hoursOfDay)
		g.house.At += time.Duration(ahead * float64(time.Hour))
	}
	next := maps.Clone(g.set)
	for name, v := range s.Actuators {
		if v == nil {
			delete(next, name)
		} else {
			next[name] = *v
		}
	}
	g.replace(next)
	rp := reply{http.StatusOK, g.tag(), g.state()}
	g.mu.Unlock()
	rp.write(w)
}

func (g *Greenhouse) getWrites(w http.ResponseWriter, r *http.Request) {
	since := 0
	if q := r.URL.Query().Get("since"); q != "" {
		var err error
		if since, err = strconv.Atoi(q); err != nil {
			bad("since %q: not a number", q).write(w)
			return
		}
	}
	g.mu.Lock()
	writes := slices.DeleteFunc(slices.Clone(g.log.entries), func(e entry) bool { return e.Seq <= since })
	rp := ok(map[string]any{"count": g.log.count, "fields": g.log.fields, "refused": g.log.refused, "writes": writes})
	g.mu.Unlock()
	rp.write(w)
}
