package guard

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/config"
	"holdfast/bootslot/sock"
	"holdfast/device"
)

// The guard's loop is driven by hand here: a tick at a time, on a clock that stands still in between. What runs beside it on a board
// (drive, the socket, the checks' processes) has the scenarios.

type handClock struct{ up time.Duration }

func (c *handClock) Now() time.Time                       { return time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC).Add(c.up) }
func (c *handClock) Uptime() time.Duration                { return c.up }
func (c *handClock) After(time.Duration) <-chan time.Time { return make(chan time.Time) }

// fullDisk is a store that can be made to fail.
type fullDisk struct {
	record
	err     error
	appends int // calls
}

func (f *fullDisk) Append(events ...bootslot.Event) error {
	f.appends++
	return f.record.Append(events...)
}

func (f *fullDisk) Save(s bootslot.Step) error {
	if f.err != nil {
		return f.err
	}
	return f.record.Save(s)
}

type bench struct {
	*testing.T
	g     *Guard
	clock *handClock
	disk  *fullDisk
	state map[string]string
	temp  float64
	// away: the device does not answer. mute: the agent sends no heartbeat. stuck: a field that does not move.
	away, mute bool
	stuck      string
	contended  string // somebody moves it every other second
	cfg        config.Config
}

const tickEvery = time.Second

func newBench(t *testing.T, more string) *bench {
	t.Helper()
	dir := t.TempDir()
	profile, err := device.LoadProfile("")
	if err != nil {
		t.Fatal(err)
	}
	text := "device: {url: 'http://127.0.0.1:1'}\nrepository: {url: /nowhere}\nstate: " + dir + "/state\nrun: " + dir + "/run\nguard:\n  diskFloor: 1KiB\n" +
		"  checks:\n    - {name: not-too-hot, reading: temperature, max: 38, fatalMax: 45}\n" + more
	cfg, err := config.Parse("test.yaml", []byte(text), profile)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, clock: &handClock{up: time.Hour}, temp: 20, cfg: cfg}
	b.start()
	t.Cleanup(func() { _ = b.g.Close() })
	b.state = map[string]string{}
	for k, v := range b.g.profile.Fallback {
		b.state[k] = v
	}
	return b
}

// start is a guard's start; the device stays as it is.
func (b *bench) start() {
	b.Helper()
	profile, err := device.LoadProfile("")
	if err != nil {
		b.Fatal(err)
	}
	g, err := New(Options{Config: b.cfg, Profile: profile, Clock: b.clock, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), AgentUID: uint32(os.Getuid())})
	if err != nil {
		b.Fatal(err)
	}
	b.g, b.disk = g, &fullDisk{record: g.store}
	g.store = b.disk
}

// crash is a kill -9 and a start.
func (b *bench) crash() {
	b.Helper()
	if err := b.g.store.Close(); err != nil { // the kernel lets go of the lock
		b.Fatal(err)
	}
	b.start()
}

// pass lets d go by: the device becomes what it is to be, the agent's heart beats, the guard looks.
func (b *bench) pass(d time.Duration) {
	b.Helper()
	for end := b.clock.up + d; b.clock.up < end; {
		b.clock.up += tickEvery
		lease := b.lease()
		if !b.away {
			for k, v := range lease.Fields {
				if k != b.stuck {
					b.state[k] = v
				}
			}
		}
		if !b.mute {
			h := api.Heartbeat{Generation: lease.Generation, Instance: lease.Instance}
			if b.contended != "" {
				h.Contended = []string{b.contended}
			}
			b.g.beaten(context.Background(), h)
		}
		if b.contended != "" && b.clock.up/time.Second%2 == 0 {
			b.state[b.contended] = "moved"
		}
		b.seeDevice()
		b.g.tick()
	}
}

// seeDevice has the guard look at the device.
func (b *bench) seeDevice() {
	if b.away {
		b.g.observed(device.State{}, errors.New("no answer"), b.clock.up)
		return
	}
	actuators := map[string]string{}
	for k, v := range b.state {
		actuators[k] = v
	}
	b.g.observed(device.State{Actuators: actuators, Readings: map[string]float64{"temperature": b.temp}}, nil, b.clock.up)
}

func (b *bench) reconfigure(c config.Config) { b.g.Reconfigure(c, b.g.profile) }

func (b *bench) lease() api.Lease {
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	return b.g.lease()
}

// wish asks for the fallback with some fields changed.
func (b *bench) wish(retry uint64, fields ...string) bootslot.Decision {
	r := bootslot.Release{Fields: b.g.profile.Fallback.Clone()}
	for i := 0; i < len(fields); i += 2 {
		r.Fields[fields[i]] = fields[i+1]
	}
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	return b.g.wished(api.TrialRequest{Release: r, Revision: strings.Join(fields, ""), Retry: retry})
}

// try asks until a trial runs.
func (b *bench) try(retry uint64, fields ...string) {
	b.Helper()
	var d bootslot.Decision
	for range 3000 {
		if d = b.wish(retry, fields...); d.Kind == bootslot.Trying {
			return
		}
		b.pass(time.Second)
	}
	b.Fatalf("no trial of %v: %s %s", fields, d.Kind, d.Reason)
}

func (b *bench) want(what string, got, want any) {
	b.Helper()
	if got != want {
		b.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestPassedAndFailed(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "fan", "on")
	b.want("effective fan", b.lease().Fields["fan"], "on")
	b.want("proven fan", b.lease().Proven["fan"], "off")
	b.pass(20 * time.Second)
	b.want("phase", b.g.phase(), api.PhaseIdle)
	b.want("last-known-good fan", b.lease().Fields["fan"], "on")

	b.try(0, "fan", "on", "lamp", "on")
	b.temp = 40
	b.pass(50 * time.Second)
	b.want("phase before the window ends", b.g.phase(), api.PhaseTrial)
	b.pass(12 * time.Second)
	b.want("phase after it", b.g.phase(), api.PhaseReturning)
	b.want("marks", len(b.g.ledger.Marks), 1)
	b.want("check", b.g.ledger.Marks[0].Check, "not-too-hot")
	b.want("effective lamp", b.lease().Fields["lamp"], "off")
	b.want("asked again while returning", b.wish(0, "fan", "on", "lamp", "on").Kind, bootslot.Held)
	b.temp = 30
	b.pass(20 * time.Second)
	b.want("phase when it is well again", b.g.phase(), api.PhaseIdle)
	b.want("cause", b.g.ledger.Marks[0].Cause, bootslot.CauseFailed)
	b.want("asked again", b.wish(0, "fan", "on", "lamp", "on").Kind, bootslot.Held)
}

func TestFatalLimitConvictsAtOnce(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.pass(3 * time.Second)
	b.temp = 50
	b.pass(2 * time.Second)
	b.want("phase after two samples", b.g.phase(), api.PhaseTrial)
	b.pass(2 * time.Second)
	b.want("phase after three", b.g.phase(), api.PhaseReturning)
	b.want("check", b.g.ledger.Marks[0].Check, "not-too-hot:fatal")
}

func TestEnvironment(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.temp = 40 // and stays, whatever the lamp does
	b.pass(70 * time.Second)
	b.want("phase", b.g.phase(), api.PhaseReturning)
	b.pass(9 * time.Minute)
	b.want("phase before recover is over", b.g.phase(), api.PhaseReturning)
	b.pass(2 * time.Minute)
	b.want("phase after it", b.g.phase(), api.PhaseIdle)
	b.want("cause", b.g.ledger.Marks[0].Cause, bootslot.CauseEnvironment)
	b.want("asked while it is hot", b.wish(0, "lamp", "on").Kind, bootslot.Held)
	b.temp = 20
	b.pass(2 * time.Minute)
	b.try(0, "lamp", "on") // the check has held for soak: it reopens
	b.pass(30 * time.Second)
	b.want("last-known-good lamp", b.lease().Proven["lamp"], "on")
}

func TestAnAgentThatDiesOfItsReleaseConvicts(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.mute = true
	b.pass(65 * time.Second)
	b.want("phase", b.g.phase(), api.PhaseReturning)
	b.want("check", b.g.ledger.Marks[0].Check, bootslot.AgentAlive)
	b.mute = false // it lives again on last-known-good
	b.pass(20 * time.Second)
	b.want("cause", b.g.ledger.Marks[0].Cause, bootslot.CauseFailed)
}

// A trial may be longer than the agent waits before it drives to last-known-good by itself. A guard that cannot hear it, though both live, does not drive to
// the candidate any more then.
func TestALongTrialDoesNotOutliveTheAgentsPatience(t *testing.T) {
	b := newBench(t, "    - {name: overheats-slowly, reading: temperature, max: 40, soak: 20m}\n")
	b.try(0, "lamp", "on")
	b.pass(5 * time.Minute)
	b.want("phase while it is heard", b.g.phase(), api.PhaseTrial)
	b.mute = true
	b.pass(bootslot.SilenceMax(b.cfg.Device.Interval) - time.Second)
	b.want("phase before that", b.g.phase(), api.PhaseTrial)
	b.pass(time.Second)
	b.want("phase then", b.g.phase(), api.PhaseReturning)
	b.want("check", b.g.ledger.Marks[0].Check, bootslot.AgentAlive)
	if target, err := b.g.target(t.Context()); err != nil || target.Fields["lamp"] != "off" {
		t.Errorf("target = %v, %v; want last-known-good", target.Fields, err)
	}
	b.mute = false
	b.pass(25 * time.Second)
	b.want("cause", b.g.ledger.Marks[0].Cause, bootslot.CauseFailed)
}

// The agent speaks once per device interval, which may be a minute or more: that it says nothing in between is no silence.
func TestAnAgentThatSpeaksSeldomIsHeard(t *testing.T) {
	b := newBench(t, "    - {name: overheats-slowly, reading: temperature, max: 40, soak: 20m}\n")
	c := b.cfg
	c.Device.Interval, c.Guard.Window = time.Minute, 5*time.Minute
	b.reconfigure(c)
	b.try(0, "lamp", "on")
	for range 10 {
		b.mute = true
		b.pass(c.Device.Interval)
		b.mute = false
		b.pass(time.Second)
	}
	b.want("phase", b.g.phase(), api.PhaseTrial)
	b.want("marks", len(b.g.ledger.Marks), 0)
}

func TestAnAgentThatStaysDeadConvictsNobody(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.mute = true
	b.pass(12 * time.Minute)
	b.want("phase", b.g.phase(), api.PhaseIdle)
	b.want("cause", b.g.ledger.Marks[0].Cause, bootslot.CauseEnvironment)
	b.want("driver", b.g.driverNow(b.clock.up), bootslot.GuardDrives)
}

func TestInterruptedThreeTimesIsMarked(t *testing.T) {
	b := newBench(t, "")
	for i := range 3 {
		b.try(0, "lamp", "on")
		b.want("attempt", b.g.ledger.Trial.Attempt, i+1)
		b.crash()
		b.want("effective lamp after the start", b.lease().Fields["lamp"], "off")
	}
	b.want("cause", b.g.ledger.Marks[0].Cause, bootslot.CauseAttempts)
	b.pass(time.Hour)
	b.want("asked again", b.wish(0, "lamp", "on").Kind, bootslot.Held)
	b.try(1, "lamp", "on") // a raised number gives exactly one
	b.pass(30 * time.Second)
	b.want("last-known-good lamp", b.lease().Proven["lamp"], "on")
}

func TestTheGuardsOwnGapIsNoVerdict(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.pass(5 * time.Second)
	b.clock.up += 20 * time.Second // stopped
	b.temp = 60
	b.pass(time.Second)
	b.want("phase", b.g.phase(), api.PhaseIdle)
	b.want("marks", len(b.g.ledger.Marks), 0)
	b.want("effective lamp", b.lease().Fields["lamp"], "off")
}

func TestAVerdictThatCannotBeWritten(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	before := b.lease().Generation
	b.temp = 50
	b.disk.err = unix.ENOSPC
	b.pass(10 * time.Second)
	b.want("effective lamp", b.lease().Fields["lamp"], "off")
	if g := b.lease().Generation; g <= before {
		t.Errorf("generation %d, not beyond %d: the candidate's lease would still be good", g, before)
	}
	b.temp = 20
	b.want("asked meanwhile", b.wish(0, "fan", "on").Kind, bootslot.Refused)
	b.pass(20 * time.Second)
	b.disk.err = nil
	b.pass(10 * time.Second)
	b.want("marks once it can be written", len(b.g.ledger.Marks), 1)
	b.pass(30 * time.Second)
	b.want("phase", b.g.phase(), api.PhaseIdle)
	b.try(0, "fan", "on")
}

func TestAPassThatCannotBeWrittenIsNone(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.pass(10 * time.Second)
	b.disk.err = unix.EROFS
	b.pass(30 * time.Second)
	b.want("effective lamp", b.lease().Fields["lamp"], "off")
	b.disk.err = nil
	b.pass(10 * time.Second)
	b.want("spare", b.g.ledger.Slots[bootslot.SlotA].Status, bootslot.SlotEmpty)
	b.want("marks", len(b.g.ledger.Marks), 0)
	b.want("tries counted", b.g.ledger.Tries[0].Count, 1)
}

func TestATrialThatCannotBeWrittenDoesNotStart(t *testing.T) {
	b := newBench(t, "")
	b.pass(time.Minute)
	b.disk.err = unix.ENOSPC
	d := b.wish(0, "lamp", "on")
	b.want("decision", d.Kind, bootslot.Refused)
	b.want("effective lamp", b.lease().Fields["lamp"], "off")
	b.pass(30 * time.Second)
	b.disk.err = nil
	b.try(0, "lamp", "on")
	b.want("attempt", b.g.ledger.Trial.Attempt, 1)
}

func TestUnhealthyIsAnAlarmAndNoRollback(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "fan", "on")
	b.pass(30 * time.Second)
	b.temp = 60 // beyond the fatal limit, even
	b.pass(time.Minute)
	b.want("fan", b.lease().Fields["fan"], "on")
	b.want("marks", len(b.g.ledger.Marks), 0)
	if ill := b.g.unhealthy["not-too-hot"]; ill == nil || !ill.reported {
		t.Errorf("not-too-hot is not unhealthy: %+v", b.g.unhealthy)
	}
	b.temp = 20
	b.pass(time.Minute)
	b.want("unhealthy after it", len(b.g.unhealthy), 0)
	events, err := b.g.store.History(0)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, string(e.Kind)+" "+e.Check)
	}
	if got := strings.Join(kinds, ", "); !strings.Contains(got, "unhealthy not-too-hot, ") || !strings.Contains(got, "healthy not-too-hot") {
		t.Errorf("history: %s", got)
	}
}

// A device that goes away fails device-answers, each check of a reading, and one for each of its fields. The flash is written once for all of them, and once when it is back.
func TestAnAbsentDeviceIsOneAlarm(t *testing.T) {
	b := newBench(t, "")
	b.pass(30 * time.Second)
	for _, away := range []bool{true, false} {
		b.away, b.disk.appends = away, 0
		b.pass(time.Minute)
		events, err := b.g.store.History(0)
		if err != nil {
			t.Fatal(err)
		}
		kind, told := map[bool]bootslot.EventKind{true: bootslot.EventUnhealthy, false: bootslot.EventHealthy}[away], 0
		for _, e := range events {
			if e.Kind == kind {
				told++
			}
			if e.Kind == bootslot.EventHealthy && e.Message != "" {
				t.Errorf("a check that is well says %q", e.Message)
			}
		}
		if want := 2 + len(b.g.profile.Actuators); told != want || b.disk.appends != 1 {
			t.Errorf("away %v: %d events in %d writes, want %d in 1", away, told, b.disk.appends, want)
		}
	}
}

func TestAFixGetsInAlthoughLastKnownGoodIsUnhealthy(t *testing.T) {
	b := newBench(t, "")
	b.temp = 40
	b.pass(time.Minute)
	b.want("asked early", b.wish(0, "fan", "on").Kind, bootslot.AwaitBaseline)
	b.pass(10 * time.Minute)
	b.want("asked after recover", b.wish(0, "fan", "on").Kind, bootslot.Trying)
	b.want("exempt", strings.Join(b.g.ledger.Trial.Baseline.Exempt, " "), "not-too-hot")
	b.pass(30 * time.Second)
	b.want("fan", b.lease().Proven["fan"], "on")
	b.want("proven", b.g.ledger.Slots[b.g.ledger.Active].Proven, false)
}

func TestOpenTrialKeepsWhatItWasOpenedWith(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.pass(2 * time.Second)
	other := b.cfg
	other.Guard.Checks = nil
	b.reconfigure(other)
	b.temp = 50
	b.pass(5 * time.Second)
	b.want("marks: the check of the opening still convicts", len(b.g.ledger.Marks), 1)
	b.pass(2 * time.Second)
	b.want("a check that is no longer configured counts as held", b.g.phase(), api.PhaseIdle)
	b.want("checks now", len(b.g.checks.Checks()), 0)
}

func TestGoodbyeCancelsOnceAndCountsThen(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.g.beaten(context.Background(), api.Heartbeat{Goodbye: true})
	b.want("tries counted", b.g.ledger.Tries[0].Count, 0)
	b.want("effective lamp", b.lease().Fields["lamp"], "off")
	b.try(0, "lamp", "on")
	b.g.goodbye("the guard was told to stop")
	b.want("tries counted the second time", b.g.ledger.Tries[0].Count, 1)
}

func TestARefusedValueConvictsOnlyIfTheDeviceTakesTheGoodOne(t *testing.T) {
	for _, tt := range []struct {
		name       string
		takesGood  bool
		wantFailed bool
	}{{"takes last-known-good's", true, true}, {"refuses that, too", false, false}} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "")
			asked := make(chan struct{}, 10)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { asked <- struct{}{} }()
				if !tt.takesGood {
					w.WriteHeader(http.StatusBadRequest)
					_, _ = io.WriteString(w, `{"error":"no","allowed":["dim"]}`)
					return
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"actuators": map[string]string{"lamp": "off"}, "readings": map[string]float64{}})
			}))
			defer srv.Close()
			client, err := device.NewClient(device.ClientOptions{URL: srv.URL, Clock: b.clock})
			if err != nil {
				t.Fatal(err)
			}
			b.stuck = "lamp"
			b.try(0, "lamp", "on")
			b.g.client = client
			l := b.lease()
			b.g.beaten(context.Background(), api.Heartbeat{Generation: l.Generation, Instance: l.Instance, Refused: map[string]string{"lamp": "no"}})
			<-asked
			// The answer is taken when the goroutine that asked has ended; nothing else changes meanwhile.
			for stacks := make([]byte, 1<<20); strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*Guard).refused."); {
				time.Sleep(time.Millisecond)
			}
			b.pass(2 * time.Second)
			b.want("failed at once", len(b.g.ledger.Marks) == 1, tt.wantFailed)
		})
	}
}

func TestWhoDrives(t *testing.T) {
	b := newBench(t, "")
	b.want("just started", b.g.driverNow(b.clock.up), bootslot.GuardDrives)
	b.pass(time.Second)
	b.want("heartbeats", b.g.driverNow(b.clock.up), bootslot.AgentDrives)
	b.mute = true
	b.pass(24 * time.Second)
	b.want("silent for 3 intervals", b.g.driverNow(b.clock.up), bootslot.AgentDrives)
	b.pass(time.Second)
	b.want("silent for longer", b.g.driverNow(b.clock.up), bootslot.GuardDrives)
	b.mute = false
	b.pass(time.Minute)
	b.try(0, "lamp", "on")
	// The agent goes on with the old generation.
	b.mute = true
	for range 12 {
		b.g.beaten(context.Background(), api.Heartbeat{Generation: 1, Instance: b.g.instance})
		b.pass(time.Second)
	}
	b.want("an old generation for longer than an interval", b.g.driverNow(b.clock.up), bootslot.GuardDrives)
	b.mute = false
	b.pass(2 * time.Minute)
	b.want("heartbeats again", b.g.driverNow(b.clock.up), bootslot.AgentDrives)
	// A second agent that never noticed the guard's restart beats on, and the first is gone.
	b.mute = true
	for range 30 {
		b.g.beaten(context.Background(), api.Heartbeat{Generation: b.lease().Generation, Instance: "another run"})
		b.pass(time.Second)
	}
	b.want("heartbeats of another run alone", b.g.driverNow(b.clock.up), bootslot.GuardDrives)
}

func TestOnlyTheAgentsUserAsks(t *testing.T) {
	b := newBench(t, "")
	b.g.opts.AgentUID = 1 << 30
	path := filepath.Join(t.TempDir(), "s")
	l, err := sock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.g.Serve(ctx, l) }()
	c := api.NewClient(path)
	var se *api.StatusError
	if _, err := c.Trial(ctx, api.TrialRequest{}); !errors.As(err, &se) || se.Status != http.StatusForbidden {
		t.Errorf("Trial by another user = %v, want 403", err)
	}
	if err := c.Heartbeat(ctx, api.Heartbeat{}); !errors.As(err, &se) || se.Status != http.StatusForbidden {
		t.Errorf("Heartbeat by another user = %v, want 403", err)
	}
	if _, err := c.State(ctx, nil); err != nil {
		t.Errorf("State by another user = %v: the socket's group may read", err)
	}
	if _, err := c.Rollback(ctx, api.RollbackRequest{}); !errors.As(err, &se) || se.Status != http.StatusConflict || !strings.Contains(se.Message, "previous") {
		t.Errorf("Rollback without previous = %v, want 409", err)
	}
	b.g.opts.AgentUID = uint32(os.Getuid())
	if _, err := c.Trial(ctx, api.TrialRequest{Release: bootslot.Release{Fields: device.Fields{"vent": "ajar", "siren": "on"}}}); !errors.As(err, &se) ||
		se.Status != http.StatusBadRequest || !strings.Contains(se.Message, `vent: "ajar" is not one of [on off]`) || !strings.Contains(se.Message, "siren") {
		t.Errorf("Trial of nonsense = %v, want 400", err)
	}
	long := strings.Repeat("é", 200)
	if _, err := c.Trial(ctx, api.TrialRequest{Release: b.g.board.Fallback, Origin: bootslot.Origin{Author: "ann", Subject: long}}); err != nil {
		t.Error(err)
	}
	if o := b.g.wish.Origin; o.Author != "ann" || len(o.Subject) > maxOrigin || !strings.HasPrefix(long, strings.TrimSuffix(o.Subject, "…")) {
		t.Errorf("origin %q: the record stays small", o)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestSuspension(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.g.mu.Lock()
	_, err := b.g.suspend(time.Hour, true, "somebody")
	b.g.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	b.want("the trial is over", b.g.phase(), api.PhaseIdle)
	b.want("asked", b.wish(0, "lamp", "on").Kind, bootslot.Refused)
	b.pass(4 * time.Second)
	b.want("driver at first", b.g.driverNow(b.clock.up), bootslot.AgentDrives)
	b.pass(3 * time.Second)
	b.want("driver once it has read back", b.g.driverNow(b.clock.up), bootslot.NobodyDrives)
	b.crash()
	b.want("driver after a restart", b.g.driverNow(b.clock.up), bootslot.NobodyDrives)
	b.pass(time.Hour)
	b.want("driver when it is over", b.g.driverNow(b.clock.up), bootslot.AgentDrives)
	if _, err := os.Stat(b.cfg.SuspendFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the suspension's file is still there: %v", err)
	}
}

// A check that comes and goes for a month is shown each time, and told seldom.
func TestAFlappingCheckSparesTheFlash(t *testing.T) {
	b := newBench(t, "")
	b.pass(time.Minute)
	for range 6 * 60 { // six hours
		b.temp = 40
		b.pass(30 * time.Second)
		if b.g.unhealthy["not-too-hot"] == nil {
			t.Fatal("status does not show it")
		}
		b.temp = 20
		b.pass(30 * time.Second)
	}
	events, err := b.g.store.History(0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(events); n < 6 || n > 24 {
		t.Errorf("%d events in six hours, want some 16", n)
	}
}

func TestARollbackOnAFullDiskGoesBackAllTheSame(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.disk.err = unix.ENOSPC
	s, err := bootslot.Rollback(b.g.ledger, b.g.board, false, nil, "eva", b.clock.Now())
	b.g.mu.Lock()
	_, err = b.g.commit(s, err, "eva")
	b.g.mu.Unlock()
	if err == nil {
		t.Error("the operator is not told that it is not recorded")
	}
	b.want("effective lamp", b.lease().Fields["lamp"], "off")
	b.want("asked meanwhile", b.wish(0, "lamp", "on").Kind, bootslot.Refused)
	b.disk.err = nil
	b.pass(10 * time.Second)
	b.want("marks once it can be written", len(b.g.ledger.Marks), 1)
	b.want("cause", b.g.ledger.Marks[0].Cause, bootslot.CauseOperator)
	b.want("asked again", b.wish(0, "lamp", "on").Kind, bootslot.Held)
}

// A guard that was stopped in a trial hands out the candidate to nobody, and does not drive to it, before it has looked.
func TestAThawedGuardLooksFirst(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.clock.up += time.Minute
	b.mute = true
	b.clock.up += time.Minute
	if target, err := b.g.target(t.Context()); err != nil || target.Fields["lamp"] != "off" {
		t.Errorf("target = %v, %v; want last-known-good", target.Fields, err)
	}
	b.want("phase", b.g.phase(), api.PhaseIdle)
	b.want("marks", len(b.g.ledger.Marks), 0)
}

// What somebody asked of a guard that did not answer, and was told that nothing happens, does not happen later.
func TestALateRequestIsNotCarriedOut(t *testing.T) {
	b := newBench(t, "")
	for _, tt := range []struct {
		deadline string
		want     int
	}{{"", http.StatusOK}, {"3599.0", http.StatusRequestTimeout}, {"3601", http.StatusOK}, {"soon", http.StatusBadRequest}} {
		r := httptest.NewRequest("POST", "/v1/suspend", strings.NewReader(`{"forSeconds": 60}`))
		if tt.deadline != "" {
			r.Header.Set(api.DeadlineHeader, tt.deadline)
		}
		w := httptest.NewRecorder()
		b.g.handler().ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("deadline %q at uptime 3600: %d %s, want %d", tt.deadline, w.Code, w.Body, tt.want)
		}
		b.want("suspended", b.g.suspended > 0, tt.want == http.StatusOK)
		b.g.mu.Lock()
		if err := b.g.resume("", ""); err != nil {
			t.Fatal(err)
		}
		b.g.mu.Unlock()
	}
}

// Somebody keeps moving a field: that field has its own check, and the others are judged all the same.
func TestAContendedFieldLetsNoOtherCheckOff(t *testing.T) {
	b := newBench(t, "")
	b.contended = "fan"
	b.try(0, "lamp", "on")
	b.want("exempt", strings.Join(b.g.ledger.Trial.Baseline.Exempt, " "), bootslot.ConvergedCheck("fan"))
	b.temp = 50
	b.pass(10 * time.Second)
	b.want("marks", len(b.g.ledger.Marks), 1)
}
