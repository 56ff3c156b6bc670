// Package selftest measures the checks. It decides nothing: baseline, soak, verdict and alarm are pure functions of
// package bootslot, which the guard's loop calls with what Latest says.
//
// A check is one of
//
//	reading     computed from the device's state that the guard's loop has read anyway (Observe); no request of its own
//	http        GET, 2xx                                   http.go
//	command     exits 0; check.d executables too           command.go, folder.go
//	unit        systemctl is-active                        unit.go
//	freeDisk    statfs                                     disk.go
//
// Run starts every check but the readings once per interval, each in a goroutine that lives only as long as the
// measurement, so that one that is slow or hangs delays neither the others nor the guard:
//
//	         interval, not busy
//	idle ────────────────────────► busy ──── its own timeout ends it ───► a sample, failing ──► idle
//	 ▲                             │  │
//	 └──── a sample ◄── it ends ───┘  └──── not even the timeout ends it ─► a failing sample per interval, still busy
//	                                        (a dead disk, a process that the kernel cannot kill)
//
// So the same check never runs twice at once, a slow one simply runs less often, and one that is stuck costs one
// goroutine and not one per interval.
//
// Timeouts are the Go runtime's time; the stamps on a sample are uptimes of the Clock. A fatal limit is a check of its own,
// NAME:fatal, so that it has a baseline of its own.
package selftest

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"holdfast/bootslot/config"
	"holdfast/bootslot/journal"
	"holdfast/device"
	"holdfast/device/clock"
)

const (
	defaultInterval = time.Second
	defaultTimeout  = 5 * time.Second
	// grace is how long after its timeout a measurement may still be busy with ending.
	grace = time.Second
	// FatalSuffix follows a check's name in the name of its fatal limit.
	FatalSuffix = ":fatal"
)

// Options say what is measured.
type Options struct {
	Checks []config.Check
	// Folders hold executable checks in their subfolders required and wanted; of two with the same name the one in
	// the earlier folder counts (/etc/holdfast/check.d, /usr/lib/holdfast/check.d).
	Folders []string
	// Readings give the units for messages (the profile's).
	Readings []device.Reading
	Interval time.Duration // between two samples of a check, default 1 s
	Log      *slog.Logger
	Clock    clock.Clock
}

// Check is what is configured, measured or not.
type Check struct {
	Name string
	// Required checks convict; the others only report.
	Required bool
	// Fatal says that this is the fatal limit of the reading check whose name comes before FatalSuffix.
	Fatal bool
	Soak  time.Duration // 0: the guard's. Always 0 for a fatal limit.
	// Limit says to people what holds: "5 to 38 °C", "2xx from http://127.0.0.1:9090/ready".
	Limit string
}

// Sample is the newest measurement of a check.
type Sample struct {
	Check
	OK bool
	// Message is for people: "temperature 41.2 °C is above 38". At most some 4 KiB, no control characters but newline and tab.
	Message string
	// Value is the reading, or the bytes free of a disk; nil for other checks, and when nothing could be measured. A fatal
	// limit with a nil Value was not measured: OK then, as silence is not beyond the limit, but no evidence that it held.
	Value *float64
	// Started and Ended are the uptimes at which the measurement started and ended. Both are 0, and OK is false but for a fatal
	// limit, when there has been none yet. Two samples of a check with the same Ended are one. An Ended that is older than interval
	// and timeout together means that Run or Observe is held up, or the whole guard was.
	Started, Ended time.Duration
}

// Runner measures the checks in the background. Its methods may be called from any goroutine.
type Runner struct {
	folders []string
	units   map[string]string
	log     *slog.Logger
	clock   clock.Clock
	measure func(context.Context, config.Check) outcome // replaced by tests
	wake    chan struct{}

	mu       sync.Mutex
	interval time.Duration
	probes   []*probe          // sorted by name
	ignored  map[string]string // files in Folders that are no checks: why; to log it once
}

// probe is a check with its newest sample.
type probe struct {
	Check
	spec config.Check
	last Sample

	busy    bool
	started time.Duration // uptime
	begun   time.Time     // the same moment for measuring the timeout
	cancel  context.CancelFunc
}

// outcome is what one measurement found.
type outcome struct {
	ok      bool
	message string
	value   *float64
}

// New returns a Runner with the checks of o and those that its folders hold now. Nothing is measured before Run.
func New(o Options) *Runner {
	r := &Runner{
		folders: o.Folders,
		units:   map[string]string{},
		log:     o.Log,
		clock:   o.Clock,
		measure: measure,
		wake:    make(chan struct{}, 1),
	}
	for _, reading := range o.Readings {
		r.units[reading.Name] = reading.Unit
	}
	r.interval = positive(o.Interval)
	r.Reload(o.Checks)
	return r
}

// Reload replaces the configured checks and looks into the folders again. A check whose definition has not changed keeps
// its sample; a measurement of one that is gone is ended, and its result is dropped.
func (r *Runner) Reload(checks []config.Check) {
	found, ignored := scan(r.folders)
	r.mu.Lock()
	defer r.mu.Unlock()
	for file, reason := range ignored {
		if r.ignored[file] != reason {
			r.log.Warn("check ignored", "event", journal.CheckIgnored, "file", file, "reason", reason)
		}
	}
	r.ignored = ignored

	old := map[string]*probe{}
	for _, p := range r.probes {
		old[p.Name] = p
	}
	var probes []*probe
	for _, c := range slices.Concat(checks, found) {
		for _, p := range probesOf(c, r.units) {
			if slices.ContainsFunc(probes, func(q *probe) bool { return q.Name == p.Name }) {
				r.log.Warn("check ignored", "event", journal.CheckIgnored, "check", p.Name, "reason", "another check has this name")
				continue
			}
			if q := old[p.Name]; q != nil && reflect.DeepEqual(q.spec, p.spec) {
				p = q
				delete(old, p.Name)
			}
			probes = append(probes, p)
		}
	}
	for _, p := range old {
		if p.busy {
			p.cancel()
		}
	}
	slices.SortFunc(probes, func(a, b *probe) int { return cmp.Compare(a.Name, b.Name) })
	r.probes = probes
	r.hurry()
}

// probesOf returns the checks that a configured one stands for.
func probesOf(c config.Check, units map[string]string) []*probe {
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	out := []*probe{{spec: c, Check: Check{Name: c.Name, Required: !c.Wanted, Soak: c.Soak, Limit: limitOf(c, units)}}}
	if c.Reading != "" && (c.FatalMin != nil || c.FatalMax != nil) {
		out = append(out, &probe{spec: c, Check: Check{Name: c.Name + FatalSuffix, Required: !c.Wanted, Fatal: true,
			Limit: between(c.FatalMin, c.FatalMax, units[c.Reading])}})
	}
	for _, p := range out {
		p.last = Sample{Check: p.Check, OK: p.Fatal, Message: "not measured yet"}
	}
	return out
}

// Checks lists what is configured, sorted by name.
func (r *Runner) Checks() []Check {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Check, len(r.probes))
	for i, p := range r.probes {
		out[i] = p.Check
	}
	return out
}

// Latest returns one sample for each check that is configured, the newest, sorted by name.
func (r *Runner) Latest() []Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Sample, len(r.probes))
	for i, p := range r.probes {
		out[i] = p.last
	}
	return out
}

// SetInterval sets the time between two samples of a check: short in a trial, long at rest. When it changes, every check that
// is not busy is measured at once.
func (r *Runner) SetInterval(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d = positive(d); d != r.interval {
		r.interval = d
		r.hurry()
	}
}

// positive returns d, or the default for what would make Run spin.
func positive(d time.Duration) time.Duration {
	if d <= 0 {
		return defaultInterval
	}
	return d
}

// Measure makes Run measure every check now that is not being measured.
func (r *Runner) Measure() { r.hurry() }

// hurry makes Run start a round now.
func (r *Runner) hurry() {
	select {
	case r.wake <- struct{}{}:
	default: // one is due already
	}
}

// Observe measures the reading checks with a state that the guard has asked the device for at uptime started; nil when
// the device did not answer.
func (r *Runner) Observe(st *device.State, started time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := r.clock.Uptime()
	for _, p := range r.probes {
		switch {
		case p.spec.Reading == "":
		case p.Fatal:
			p.publish(fatalLimit(p.spec, st, r.units[p.spec.Reading]), started, ended)
		default:
			p.publish(withinLimits(p.spec, st, r.units[p.spec.Reading]), started, ended)
		}
	}
}

func (p *probe) publish(o outcome, started, ended time.Duration) {
	p.last = Sample{Check: p.Check, OK: o.ok, Message: o.message, Value: o.value, Started: started, Ended: ended}
}

// Run measures until ctx ends. Then it ends what is being measured, all processes included, drops those results and
// returns: within a second even if something cannot be ended.
func (r *Runner) Run(ctx context.Context) {
	var running sync.WaitGroup
	for ctx.Err() == nil {
		select {
		case <-r.wake: // this round is the one that was wanted
		default:
		}
		interval := r.round(ctx, &running)
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-r.clock.After(interval):
		}
	}
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(grace):
	}
}

// Once measures every check once and returns what it found when the last has ended, or ctx has: those that have not are "not measured yet". st is what the
// device said at uptime started; nil if it does not answer.
func (r *Runner) Once(ctx context.Context, st *device.State, started time.Duration) []Sample {
	r.Observe(st, started)
	var running sync.WaitGroup
	r.round(ctx, &running)
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return r.Latest()
}

// round starts every check that is not busy and returns the time until the next round.
func (r *Runner) round(ctx context.Context, running *sync.WaitGroup) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.probes {
		switch {
		case p.spec.Reading != "":
		case !p.busy:
			p.busy, p.started, p.begun = true, r.clock.Uptime(), time.Now()
			timed, cancel := context.WithTimeout(ctx, p.spec.Timeout)
			p.cancel = cancel
			running.Go(func() {
				defer cancel()
				r.finish(ctx, p, r.measure(timed, p.spec))
			})
		case time.Since(p.begun) > p.spec.Timeout+grace:
			stuck := outcome{message: "is stuck: it cannot be ended, though its timeout of " + p.spec.Timeout.String() + " is over"}
			p.publish(stuck, p.started, r.clock.Uptime())
		}
	}
	return r.interval
}

// finish stores what was measured. A measurement that the guard's own end has ended says nothing about the board.
func (r *Runner) finish(ctx context.Context, p *probe, o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.busy = false
	if ctx.Err() == nil {
		p.publish(o, p.started, r.clock.Uptime())
	}
}

// measure does one measurement of c, which is no reading check. It returns soon after ctx has ended, unless the
// kernel holds it.
func measure(ctx context.Context, c config.Check) outcome {
	switch {
	case c.HTTP != "":
		return get(ctx, c.HTTP, c.Timeout)
	case len(c.Command) > 0:
		return command(ctx, c.Name, c.Command, c.Timeout)
	case c.Unit != "":
		return unitActive(ctx, c.Name, c.Unit, c.Timeout)
	case c.FreeDisk != "":
		return freeDisk(c.FreeDisk, c.MinFree)
	}
	return outcome{message: "nothing is configured to be measured"} // config refuses such a check
}
