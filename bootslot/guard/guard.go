// Package guard is the rollback layer as a process: it looks at the device and at the checks once per interval, lets the pure
// functions of package bootslot decide, stores what they say, and only then acts on it. It depends on nothing else: not on git, not on the
// network, not on the agent.
//
//	         wish ─► Admit ─► open trial
//	┌──────┐ ───────────────────────────► ┌───────┐  passed, inconclusive, cancelled
//	│ idle │ ◄─────────────────────────── │ trial │ ─────────────────────────────────┐
//	└──────┘                              └───────┘                                  │
//	   ▲                                      │ failed: slot, mark and phase in one  │
//	   │    mark stands, or environment   ┌───────────┐        transaction           │
//	   ├───────────────────────────────── │ returning │                              │
//	   │                                  └───────────┘                              │
//	   └─────────────────────────────────────────────────────────────────────────────┘
//
// Four goroutines: observe reads the device, drive writes to it when the agent does not (drive.go), tick judges, and the socket's
// server answers (server.go). All state is behind one mutex that nobody holds while he waits for the device or a check; it is held while the ledger
// is written, because nothing may be answered before that is known.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/config"
	"holdfast/bootslot/ledger"
	"holdfast/bootslot/selftest"
	"holdfast/device"
	"holdfast/device/clock"
)

// Options are what a guard is made of.
type Options struct {
	Config  config.Config
	Profile device.Profile
	Clock   clock.Clock
	Log     *slog.Logger
	Version string
	// CheckFolders hold executable checks (selftest.Options.Folders).
	CheckFolders []string
	// AgentUID is the only user from whom wishes and heartbeats are taken.
	AgentUID uint32
}

// Guard is the process's state.
type Guard struct {
	opts     Options
	clock    clock.Clock
	log      *slog.Logger
	profile  device.Profile
	instance string
	checks   *selftest.Runner
	kick     chan struct{} // wakes drive
	look     chan struct{} // wakes observe

	mu     sync.Mutex
	cfg    config.Config
	next   *settings // to be taken over when the open trial is settled
	board  bootslot.Board
	client *device.Client
	driver *device.Driver

	store  record
	ledger bootslot.Ledger
	// unwritten is a verdict that could not be recorded: last-known-good is in force all the same, and nothing is admitted.
	unwritten *verdict
	writeErr  string        // why the last write failed, "" when it did not
	retryAt   time.Duration // uptime of the next attempt to write

	started   time.Duration // uptime
	ticked    time.Duration // uptime of the last tick
	settled   time.Duration // uptime of the last trial's end, or of the start
	genSince  time.Duration // uptime since when the lease has its generation
	judge     *bootslot.Judge
	rest      *bootslot.Rest
	recovery  *bootslot.Recovery
	unhealthy map[string]*illness
	telling   map[string]telling
	states    map[string]*checkState

	wish     *api.TrialRequest
	decision *bootslot.Decision

	seen  observation
	beat  heartbeat
	drove device.Report // by this process
	asked string        // the refusal that is being asked about, "GENERATION FIELD"
	found *bootslot.Refusal

	suspension  api.Suspension
	suspended   time.Duration // uptime at which it ends; 0: none
	quietSince  time.Duration // uptime since when last-known-good has read back under suspend --repair; 0: it has not
	quiet       bool          // repair is stopped
	driverSaid  string
	problems    map[string]string
	noticed     map[string]time.Duration // what the ledger's store had to report: the uptime at which it did
	change      uint64
	changed     chan struct{} // closed and replaced at each change
	lastOutlook string
	stopping    bool // nothing is started any more
}

// record is the part of the ledger's store that the guard needs.
type record interface {
	Save(bootslot.Step) error
	SaveRaw([]byte, []bootslot.Event) error
	Restore() error
	Append(...bootslot.Event) error
	History(n int) ([]bootslot.Event, error)
	Raw() []byte
	Notices() []string
	Close() error
}

// verdict is a settlement that waits to be written.
type verdict struct {
	verdict  bootslot.Verdict
	evidence bootslot.Evidence
}

// observation is what the device said last.
type observation struct {
	known    bool // it has been asked
	answered bool
	state    device.State
	started  time.Duration // uptime at which the question went out
	err      string
}

// heartbeat is the agent's last one.
type heartbeat struct {
	any        time.Duration // uptime of the last one, 0 for none
	valid      time.Duration // uptime of the last one that had the generation that the lease had then, 0 for none
	generation uint64        // of that
	last       api.Heartbeat
}

// illness is a required check that fails on the release in force. Reported is what status shows, told what log and history were told.
type illness struct {
	since          time.Time // wall clock
	reported, told bool
}

// telling is when log and history may next be told of a check that fails: one that comes and goes for ever must neither wear the flash nor push every
// verdict out of the history. Status always has it.
type telling struct {
	next  time.Duration // uptime
	pause time.Duration
}

// The pause between two alarms of one check doubles up to maxTelling, and starts anew after as long without one.
const (
	minTelling = time.Minute
	maxTelling = 6 * time.Hour
)

// tells reports whether an alarm of check may be told at uptime now, and makes the next one wait.
func (g *Guard) tells(check string, now time.Duration) bool {
	t := g.telling[check]
	if now < t.next {
		return false
	}
	if now-t.next >= maxTelling {
		t.pause = 0
	}
	t.pause = min(max(2*t.pause, minTelling), maxTelling)
	t.next = now + t.pause
	g.telling[check] = t
	return true
}

// checkState is since when a check is as it is.
type checkState struct {
	ok    bool
	since time.Duration // uptime
}

// New opens the ledger, settles what a power cut has left open, and returns a guard that is ready to Run. An error means that another guard is at
// work, or that the ledger cannot even be looked for; a disk that cannot be written is no error.
func New(o Options) (*Guard, error) {
	g := &Guard{opts: o, clock: o.Clock, log: o.Log, profile: o.Profile, instance: newInstance(), kick: make(chan struct{}, 1),
		look: make(chan struct{}, 1), unhealthy: map[string]*illness{}, telling: map[string]telling{}, states: map[string]*checkState{},
		problems: map[string]string{}, noticed: map[string]time.Duration{}, changed: make(chan struct{})}
	g.checks = selftest.New(selftest.Options{Checks: o.Config.Guard.Checks, Folders: o.CheckFolders, Readings: o.Profile.Readings,
		Interval: o.Config.Device.Interval, Log: o.Log, Clock: o.Clock})
	if err := g.configure(o.Config); err != nil {
		return nil, err
	}
	store, l, notices, err := ledger.Open(filepath.Join(o.Config.State, "guard"))
	if errors.Is(err, ledger.ErrLocked) {
		return nil, err
	}
	g.store, g.ledger = store, l
	now := g.clock.Uptime()
	g.started, g.settled, g.genSince = now, now, now
	if err != nil {
		g.writeFailed(err)
	}
	g.notices(notices)
	g.loadSuspension()
	g.boot()
	g.enter(now)
	return g, nil
}

func newInstance() string {
	return fmt.Sprintf("%d-%x", os.Getpid(), time.Now().UnixNano())
}

// configure takes over a configuration. The caller holds the mutex, or is alone.
func (g *Guard) configure(c config.Config) error {
	client, err := device.NewClient(device.ClientOptions{URL: c.Device.URL, TokenFile: c.Device.TokenFile, Timeout: c.Device.Timeout, Clock: g.clock, Profile: g.profile})
	if err != nil {
		return fmt.Errorf("cannot use the device %s: %w", c.Device.URL, err)
	}
	g.cfg = c
	g.client, g.driver = client, device.NewDriver(client, g.profile, g.clock, c.Device.Interval)
	groups := make([][]string, len(g.profile.Groups))
	for i, gr := range g.profile.Groups {
		groups[i] = gr.Fields
	}
	g.board = bootslot.Board{Fallback: bootslot.Release{Fields: g.profile.Fallback}, Groups: groups,
		HoldRelease: c.Guard.Hold == "release", Attempts: c.Guard.Attempts, Pauses: c.Guard.Pauses}
	g.checks.Reload(c.Guard.Checks)
	return nil
}

// settings are what may be read anew.
type settings struct {
	config  config.Config
	profile device.Profile
}

// Reconfigure takes over a configuration and a profile that were read anew. An open trial keeps what it was opened with.
func (g *Guard) Reconfigure(c config.Config, p device.Profile) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.State != g.cfg.State || c.Run != g.cfg.Run {
		c.State, c.Run = g.cfg.State, g.cfg.Run // the ledger and the socket are open there, and the agent looks there, too
		g.problem("folders", "the run and state folders change only with a restart")
	} else {
		g.problem("folders", "")
	}
	if g.ledger.Trial != nil {
		g.next = &settings{c, p}
		return
	}
	g.takeOver(settings{c, p})
}

// trialEnded takes note of the trial's end, and takes over the configuration that waited for it.
func (g *Guard) trialEnded(now time.Duration) {
	g.settled = now
	if g.next != nil && g.unwritten == nil {
		n := *g.next
		g.next = nil
		g.takeOver(n)
	}
}

func (g *Guard) takeOver(n settings) {
	old := g.profile
	g.profile = n.profile
	if err := g.configure(n.config); err != nil {
		g.profile = old
		g.problem("configuration", err.Error())
		return
	}
	g.problem("configuration", "")
	g.record(bootslot.Event{Kind: bootslot.EventConfigured})
	g.enter(g.clock.Uptime())
}

// Problem reports, or with "" withdraws, something that is wrong with the guard's own means.
func (g *Guard) Problem(what, message string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.problem(what, message)
}

func (g *Guard) problem(what, message string) {
	if g.problems[what] == message {
		return
	}
	if message == "" {
		delete(g.problems, what)
		g.log.Info("problem over", "what", what)
	} else {
		g.problems[what] = message
		g.log.Warn("problem", "what", what, "message", message)
	}
	g.bump()
}

func (g *Guard) notices(notices []string) {
	for _, n := range notices {
		if g.problems[n] != "" {
			continue // a disk that stays as it is says the same at each attempt
		}
		g.log.Warn("storage", "message", n)
		g.problems[n], g.noticed[n] = n, g.clock.Uptime()
		if err := g.store.Append(bootslot.Event{Generation: g.ledger.Generation, At: g.clock.Now(), Kind: bootslot.EventRepaired, Message: n}); err != nil {
			g.log.Warn("history not written", "error", err)
		}
	}
}

// boot settles a trial that was interrupted. Until that is written last-known-good is in force, and nothing is admitted.
func (g *Guard) boot() {
	if g.ledger.Trial == nil {
		return
	}
	if !g.ledger.Writable() {
		raw, open, err := bootslot.SettleForeign(g.store.Raw())
		if err == nil && open {
			err = g.store.SaveRaw(raw, nil)
		}
		if err != nil {
			g.log.Error("the trial of a newer guard's ledger cannot be settled", "error", err)
		}
		g.ledger.Trial = nil // never effective here, written or not
		g.ledger.Generation++
		return
	}
	s := bootslot.Boot(g.ledger, g.board, g.clock.Now())
	g.conclude(*s, bootslot.Inconclusive, bootslot.Evidence{Message: s.Events[0].Message})
}

// phase is what the guard is doing. The caller holds the mutex, as in all that follows.
func (g *Guard) phase() api.Phase {
	switch {
	case g.ledger.Trial != nil && g.unwritten == nil:
		return api.PhaseTrial
	case g.ledger.Returning != nil:
		return api.PhaseReturning
	}
	return api.PhaseIdle
}

// enter starts the phase that the ledger says: trackers anew, and the pace of looking.
func (g *Guard) enter(now time.Duration) {
	g.rest, g.recovery = nil, nil
	checks := g.allChecks()
	gc := g.cfg.Guard
	switch g.phase() {
	case api.PhaseTrial:
		// judge is set where the trial is opened
	case api.PhaseReturning:
		g.judge = nil
		g.recovery = bootslot.NewRecovery(g.ledger.Returning.Check, now, gc.Soak, gc.Recover, checks)
	default:
		g.judge = nil
		g.rest = bootslot.NewRest(now, gc.Soak, gc.Recover, checks)
	}
	g.found, g.asked = nil, ""
	g.setPace()
	g.wake()
	g.bump()
}

// fast reports whether the guard has something to find out: then it looks once per guard interval, else once per device interval.
func (g *Guard) fast() bool {
	return g.phase() != api.PhaseIdle || g.decision != nil && (g.decision.Kind == bootslot.AwaitBaseline || g.decision.Kind == bootslot.Refused)
}

func (g *Guard) setPace() {
	if g.fast() {
		g.checks.SetInterval(g.cfg.Guard.Interval)
	} else {
		g.checks.SetInterval(g.cfg.Device.Interval)
	}
}

// wake makes drive and observe look at once.
func (g *Guard) wake() {
	for _, c := range []chan struct{}{g.kick, g.look} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// bump tells those who wait that something has changed.
func (g *Guard) bump() {
	g.change++
	close(g.changed)
	g.changed = make(chan struct{})
}

// allChecks are the configured checks and the built-in ones.
func (g *Guard) allChecks() []bootslot.Check {
	var out []bootslot.Check
	for _, c := range g.checks.Checks() {
		soak := c.Soak
		if soak == 0 {
			soak = g.cfg.Guard.Soak
		}
		out = append(out, bootslot.Check{Name: c.Name, Required: c.Required, Soak: soak, Fatal: c.Fatal})
	}
	builtIn := []string{bootslot.DeviceAnswers, bootslot.AgentAlive}
	for _, a := range g.profile.Actuators {
		builtIn = append(builtIn, bootslot.ConvergedCheck(a.Name))
	}
	for _, name := range builtIn {
		out = append(out, bootslot.Check{Name: name, Required: true, Soak: g.cfg.Guard.Soak})
	}
	return out
}

// effective is what the device is to be now: never the candidate of a trial whose end could not be written.
func (g *Guard) effective() bootslot.Release {
	if g.unwritten != nil {
		return g.ledger.LastKnownGood(g.board)
	}
	return g.ledger.Effective(g.board)
}

func (g *Guard) lease() api.Lease {
	l := api.Lease{Generation: g.ledger.Generation, Fields: g.effective().Fields, Proven: g.ledger.LastKnownGood(g.board).Fields, Instance: g.instance}
	if g.phase() == api.PhaseTrial && g.judge != nil {
		l.TrialEndsInSeconds = g.judge.EndsIn(g.clock.Uptime()).Seconds()
	}
	return l
}

// save stores a step and, once it is stored, makes it the guard's record. If it cannot be stored the record stays, but for its generation, which is
// never used twice: what failed may stand in one of the two files already.
func (g *Guard) save(s bootslot.Step) error {
	err := g.store.Save(s)
	if n := g.store.Notices(); len(n) > 0 {
		g.notices(n)
	}
	g.genSince = g.clock.Uptime()
	if g.takeFound(err) {
		return err
	}
	if err != nil {
		g.ledger.Generation = s.Ledger.Generation
		g.writeFailed(err)
		return err
	}
	g.ledger = s.Ledger
	g.writeErr = ""
	g.problem("ledger", "")
	for _, e := range s.Events {
		g.logEvent(e)
	}
	return nil
}

// takeFound goes on with the record that came to light when the files could be read at last, if err says so: what was decided without it is void, and a
// trial that is open in it was interrupted.
func (g *Guard) takeFound(err error) bool {
	var found *ledger.FoundError
	if !errors.As(err, &found) {
		return false
	}
	now := g.clock.Uptime()
	g.log.Warn("another record is in force", "generation", found.Ledger.Generation)
	// Its generations are not those of the record before, so the leases of that are another run's.
	g.ledger, g.instance, g.unwritten, g.writeErr = found.Ledger, newInstance(), nil, ""
	g.problem("ledger", "")
	g.settled, g.genSince = now, now
	g.boot()
	g.enter(now)
	return true
}

// restore finds out whether the disk can be written again, and takes back what is half written.
func (g *Guard) restore() {
	err := g.store.Restore()
	if n := g.store.Notices(); len(n) > 0 {
		g.notices(n)
	}
	switch {
	case g.takeFound(err):
	case err != nil:
		g.writeFailed(err)
	default:
		g.writeErr = ""
		g.problem("ledger", "")
	}
}

func (g *Guard) writeFailed(err error) {
	g.writeErr = err.Error()
	g.retryAt = g.clock.Uptime() + writeRetry
	g.problem("ledger", "the ledger cannot be written: "+err.Error())
}

// noticeTime is how long status shows that a file was set aside or rebuilt, which is over and done with; the history keeps it.
const noticeTime = 24 * time.Hour

// writeRetry is the pause between two attempts to write a record: a full disk is not mended by hammering it.
const writeRetry = 5 * time.Second

func (g *Guard) logEvent(e bootslot.Event) {
	args := []any{"generation", e.Generation}
	for _, a := range []struct {
		key, value string
	}{{"revision", e.Revision}, {"digest", e.Digest.Short()}, {"slot", string(e.Slot)}, {"fields", strings.Join(e.Fields, ",")},
		{"check", e.Check}, {"who", e.Who}, {"message", e.Message}} {
		if a.value != "" {
			args = append(args, a.key, a.value)
		}
	}
	if e.Mark != 0 {
		args = append(args, "mark", e.Mark)
	}
	if e.Attempt != 0 {
		args = append(args, "attempt", e.Attempt)
	}
	level := slog.LevelInfo
	switch e.Kind {
	case bootslot.EventKind(bootslot.Failed), bootslot.EventKind(bootslot.Inconclusive), bootslot.EventEnvironment, bootslot.EventRollback, bootslot.EventMarkDropped:
		level = slog.LevelWarn // something was undone, or could not be judged
	}
	g.log.Log(context.Background(), level, string(e.Kind), args...)
}

// settle ends the open trial. If that cannot be written, last-known-good is in force all the same and the verdict is tried again; a pass that
// cannot be recorded is none.
func (g *Guard) settle(v bootslot.Verdict, ev bootslot.Evidence) {
	ev.At = g.clock.Now()
	if ev.During == nil {
		ev.During = g.readings()
	}
	g.conclude(bootslot.Settle(g.ledger, g.board, v, ev), v, ev)
}

// conclude stores a settlement.
func (g *Guard) conclude(s bootslot.Step, v bootslot.Verdict, ev bootslot.Evidence) {
	now := g.clock.Uptime()
	if err := g.save(s); errors.As(err, new(*ledger.FoundError)) {
		return // that trial never was
	} else if err != nil {
		if v == bootslot.Passed {
			v, ev = bootslot.Inconclusive, bootslot.Evidence{Message: "it passed, but that could not be recorded"}
		}
		if g.unwritten == nil { // said once, however often it is tried again
			g.log.Error("verdict not written, going back to last-known-good", "verdict", v, "error", err)
		}
		g.unwritten = &verdict{v, ev}
	} else {
		g.unwritten = nil
	}
	g.trialEnded(now)
	g.enter(now)
}

// readings are what the device's sensors say now, of those that the profile knows: evidence is kept in the record, which stays small
// whatever the device tells. Nil if it does not answer.
func (g *Guard) readings() bootslot.Readings {
	if !g.seen.answered {
		return nil
	}
	out := bootslot.Readings{}
	for _, r := range g.profile.Readings {
		if v, ok := g.seen.state.Readings[r.Name]; ok {
			out[r.Name] = v
		}
	}
	return out
}

// closeReturning ends the phase after a failed trial.
func (g *Guard) closeReturning(held bool) {
	ev := bootslot.Evidence{At: g.clock.Now(), Message: g.recovery.Message(), During: g.readings()}
	if held {
		ev.Message = fmt.Sprintf("%s holds on last-known-good", g.ledger.Returning.Check)
	}
	if g.save(bootslot.CloseReturning(g.ledger, g.board, held, ev)) == nil {
		g.enter(g.clock.Uptime())
	}
}

// wished answers a wish: the only way to a trial.
func (g *Guard) wished(w api.TrialRequest) bootslot.Decision {
	before := g.fast()
	l := g.ledger
	if g.unwritten != nil {
		l.Trial = nil // it is over, though that is not recorded yet: nothing may cancel it any more, and nothing else is admitted
	}
	d, step := bootslot.Admit(l, g.board, bootslot.Wish{Release: w.Release, Revision: w.Revision, Number: w.Retry}, g.facts())
	if step != nil && g.unwritten == nil {
		opens, cancels := g.ledger.Trial == nil && step.Ledger.Trial != nil, g.ledger.Trial != nil
		if err := g.save(*step); err != nil {
			d.Kind, d.Reason = bootslot.Refused, "it cannot be recorded: "+err.Error()
			if cancels && !errors.As(err, new(*ledger.FoundError)) {
				g.unwritten = &verdict{bootslot.Cancelled, bootslot.Evidence{Message: "not desired any more", ByGit: true}}
				g.enter(g.clock.Uptime())
			}
		} else {
			now := g.clock.Uptime()
			if opens {
				gc := g.cfg.Guard
				g.ticked = now
				for n, at := range g.noticed {
					if now-at > noticeTime {
						delete(g.noticed, n)
						g.problem(n, "")
					}
				}
				g.judge = bootslot.NewJudge(*g.ledger.Trial, now, gc.Window, gc.Soak, g.allChecks())
			}
			if cancels {
				g.trialEnded(now)
			}
			g.enter(now)
		}
	}
	if said := string(d.Kind) + " " + d.Reason; d.Kind != bootslot.Refused && d.Kind != bootslot.AwaitBaseline && said != g.lastOutlook {
		g.lastOutlook = said
		if d.Kind != bootslot.Trying && d.Kind != bootslot.Same {
			g.log.Info("decision", "decision", d.Kind, "reason", d.Reason, "revision", w.Revision)
		}
	}
	if g.decision == nil || g.decision.Kind != d.Kind || g.wish == nil || g.wish.Revision != w.Revision || g.wish.Retry != w.Retry {
		g.bump()
	}
	g.wish, g.decision = &w, &d
	if g.fast() != before {
		g.setPace()
		g.wake()
	}
	return d
}

// facts are what Admit depends on besides the ledger.
func (g *Guard) facts() bootslot.Facts {
	now := g.clock.Uptime()
	f := bootslot.Facts{Waited: now - max(g.settled, g.started), At: g.clock.Now(), Obstacle: g.obstacle(now), Before: g.readings()}
	if g.rest != nil {
		f.Rest = g.rest.Facts(now)
	} else {
		for _, c := range g.allChecks() {
			if c.Required {
				f.Rest.Required = append(f.Rest.Required, c.Name)
			}
		}
	}
	return f
}

// obstacle is why nothing may be tried now, whatever the ledger says.
func (g *Guard) obstacle(now time.Duration) string {
	switch {
	case g.stopping:
		return "the guard is stopping"
	case g.suspended > now:
		return fmt.Sprintf("suspended for another %v", (g.suspended - now).Round(time.Second))
	case g.unwritten != nil:
		return "the last verdict is not recorded yet: " + g.writeErr
	case g.writeErr != "" && now < g.retryAt:
		return "the ledger cannot be written: " + g.writeErr
	case !g.seen.known:
		return "the device has not been looked at yet"
	case !g.seen.answered:
		return "the device does not answer: " + g.seen.err
	}
	if free, err := freeBytes(g.cfg.State); err == nil && free < g.cfg.Guard.DiskFloor {
		return fmt.Sprintf("%s has %.1f MiB free, the floor is %.1f MiB", g.cfg.State, mib(free), mib(g.cfg.Guard.DiskFloor))
	}
	return ""
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// freeBytes is what an ordinary user may still write below path.
func freeBytes(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// Run works until ctx ends. alive is called once per tick, for the service manager's watchdog.
func (g *Guard) Run(ctx context.Context, alive func()) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { g.checks.Run(ctx) })
	wg.Go(func() { g.observe(ctx) })
	wg.Go(func() { g.drive(ctx) })
	for {
		select {
		case <-ctx.Done():
			g.mu.Lock()
			g.stopping = true // a wish may still be on its way
			g.mu.Unlock()
			g.goodbye("the guard was told to stop")
			return nil
		case <-g.clock.After(g.interval()):
		}
		g.tick()
		alive()
	}
}

func (g *Guard) interval() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cfg.Guard.Interval
}

// goodbye settles an open trial because a process stops in order.
func (g *Guard) goodbye(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ledger.Trial != nil && g.unwritten == nil {
		g.settle(bootslot.Cancelled, bootslot.Evidence{Message: why, Goodbye: true})
	}
}

// Close lets go of the ledger.
func (g *Guard) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.store.Close()
}

// observe reads the device's state, fast while there is something to find out. A device that hangs holds up only this.
func (g *Guard) observe(ctx context.Context) {
	for {
		g.mu.Lock()
		client, pause := g.client, g.cfg.Device.Interval
		if g.fast() {
			pause = g.cfg.Guard.Interval
		}
		g.mu.Unlock()
		started := g.clock.Uptime()
		st, err := client.State(ctx)
		if ctx.Err() != nil {
			return
		}
		g.observed(st, err, started)
		select {
		case <-ctx.Done():
			return
		case <-g.look:
			// Not at once: a device that answers nothing would be asked without end.
			select {
			case <-ctx.Done():
				return
			case <-g.clock.After(min(pause, g.interval()) / 4):
			}
		case <-g.clock.After(pause):
		}
	}
}

func (g *Guard) observed(st device.State, err error, started time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.seen
	g.seen = observation{known: true, answered: err == nil, state: st, started: started}
	if err != nil {
		g.seen.err = err.Error()
		g.checks.Observe(nil, started)
	} else {
		g.checks.Observe(&st, started)
	}
	if was.known && was.answered != g.seen.answered || !was.known {
		if g.seen.answered {
			g.log.Info("device answers")
		} else {
			g.log.Warn("device does not answer", "error", g.seen.err)
		}
		g.bump()
	}
}

// tick looks once and acts on what is decided.
func (g *Guard) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tickNow(g.clock.Uptime())
}

// catchUp looks before anything is answered or written in a trial that nobody has watched for too long: this process was stopped, and the candidate
// is not to be driven to for even one request more.
func (g *Guard) catchUp() {
	if now := g.clock.Uptime(); g.phase() == api.PhaseTrial && now-g.ticked > g.judge.Soak {
		g.tickNow(now)
	}
}

func (g *Guard) tickNow(now time.Duration) {
	g.ticked = now
	g.expireSuspension(now)
	switch {
	case now < g.retryAt:
	case g.unwritten != nil:
		u := *g.unwritten
		g.settle(u.verdict, u.evidence)
	case g.writeErr != "":
		g.restore()
	}
	g.noteDriver(now)
	k := g.lookNow(now)
	g.trackChecks(now, k)
	switch g.phase() {
	case api.PhaseTrial:
		if v, ev := g.judge.See(k); v != "" {
			g.settle(v, ev)
		}
	case api.PhaseReturning:
		if !g.ledger.Writable() {
			return
		}
		if over, held := g.recovery.See(k); over && (g.writeErr == "" || now >= g.retryAt) {
			g.closeReturning(held)
		}
	default:
		g.rest.See(k)
	}
}

// lookNow gathers what the guard sees at this tick.
func (g *Guard) lookNow(now time.Duration) bootslot.Look {
	k := bootslot.Look{At: now, Answered: g.seen.answered, Refusal: g.found}
	want := g.effective().Fields
	drifted := map[string]device.Drift{}
	if g.seen.answered {
		for _, d := range device.Diff(g.profile, want, g.seen.state.Actuators) {
			drifted[d.Field] = d
		}
		aside := g.aside()
		k.ReadBack = g.seen.started >= g.genSince
		for f := range drifted {
			k.ReadBack = k.ReadBack && aside[f]
		}
	}
	if g.seen.known {
		k.Samples = append(k.Samples, bootslot.Sample{Check: bootslot.DeviceAnswers, OK: g.seen.answered, Message: g.seen.err, At: g.seen.started})
		for _, a := range g.profile.Actuators {
			s := bootslot.Sample{Check: bootslot.ConvergedCheck(a.Name), OK: g.seen.answered, Message: "the device does not answer", At: g.seen.started}
			if d, ok := drifted[a.Name]; ok {
				s.OK, s.Message = false, fmt.Sprintf("%s is to be %s and the device reports %q", d.Field, d.Want, d.Got)
			}
			k.Samples = append(k.Samples, s)
		}
	}
	// What agent-alive measures is the heartbeats themselves: an agent that dies right after one has not held for the time in which it is only
	// missed. A generation that is new is not known to the agent yet: that is neither alive nor dead.
	switch limit := 3 * g.cfg.Device.Interval; {
	case g.agentAlive(now):
		k.Samples = append(k.Samples, bootslot.Sample{Check: bootslot.AgentAlive, OK: true, At: g.beat.valid})
	case now-max(g.genSince, g.started) > limit:
		k.Samples = append(k.Samples, bootslot.Sample{Check: bootslot.AgentAlive, Message: fmt.Sprintf("no heartbeat of this generation for %v", limit), At: now})
	}
	for _, m := range g.checks.Latest() {
		if m.Ended == 0 || m.Fatal && m.Value == nil {
			continue // not measured
		}
		at := m.Started
		if !m.OK {
			at = m.Ended // a check that is stuck fails again and again in one measurement
		}
		k.Samples = append(k.Samples, bootslot.Sample{Check: m.Name, OK: m.OK, Message: m.Message, At: at})
	}
	return k
}

// aside are the fields that do not count for reading back: those that the device refuses, that do not converge or that somebody else keeps moving; in a
// trial those that are exempt. Each has a check of its own, which does not hold; they are no reason to let the others off.
func (g *Guard) aside() map[string]bool {
	out := map[string]bool{}
	if g.phase() == api.PhaseTrial {
		for _, c := range g.ledger.Trial.Baseline.Exempt {
			for _, a := range g.profile.Actuators {
				if c == bootslot.ConvergedCheck(a.Name) {
					out[a.Name] = true
				}
			}
		}
		return out
	}
	set := func(refused map[string]string, lists ...[]string) {
		for f := range refused {
			out[f] = true
		}
		for _, f := range slices.Concat(lists...) {
			out[f] = true
		}
	}
	if g.beatIsCurrent() {
		set(g.beat.last.Refused, g.beat.last.NonConvergent, g.beat.last.Contended)
	}
	if g.drove.Generation == g.ledger.Generation {
		set(g.drove.Refused, g.drove.NonConvergent, g.drove.Contended)
	}
	return out
}

// trackChecks keeps since when each check is as it is, and raises and ends the alarm for a required one that fails on the release in force.
func (g *Guard) trackChecks(now time.Duration, k bootslot.Look) {
	required := map[string]bool{}
	for _, c := range g.allChecks() {
		required[c.Name] = c.Required
	}
	for _, s := range k.Samples {
		st := g.states[s.Check]
		if st == nil || st.ok != s.OK {
			if st != nil {
				g.bump()
			}
			st = &checkState{s.OK, now}
			g.states[s.Check] = st
		}
		if !required[s.Check] || g.phase() != api.PhaseIdle {
			continue
		}
		ill := g.unhealthy[s.Check]
		stable := now-st.since >= g.cfg.Guard.Soak
		switch {
		case !s.OK && ill == nil:
			g.unhealthy[s.Check] = &illness{since: g.clock.Now()}
		case !s.OK && !ill.reported && stable:
			ill.reported, ill.told = true, g.tells(s.Check, now)
			if ill.told {
				g.alarm(bootslot.EventUnhealthy, s)
			}
			g.bump()
		case s.OK && ill != nil && !ill.reported:
			delete(g.unhealthy, s.Check)
		case s.OK && ill != nil && stable:
			delete(g.unhealthy, s.Check)
			if ill.told {
				g.alarm(bootslot.EventHealthy, s)
			}
			g.bump()
		}
	}
	for name := range g.unhealthy {
		if !required[name] {
			delete(g.unhealthy, name) // no longer configured
		}
	}
}

// alarm tells log and history that a required check has begun, or ceased, to fail. It is never a verdict.
func (g *Guard) alarm(kind bootslot.EventKind, s bootslot.Sample) {
	e := bootslot.Event{Generation: g.ledger.Generation, At: g.clock.Now(), Kind: kind, Check: s.Check, Message: s.Message}
	if kind == bootslot.EventUnhealthy {
		g.log.Warn("unhealthy", "check", s.Check, "message", s.Message)
	} else {
		g.log.Info("healthy again", "check", s.Check)
	}
	if g.ledger.Writable() {
		if err := g.store.Append(e); err != nil {
			g.problem("history", "the history cannot be written: "+err.Error())
		} else {
			g.problem("history", "")
		}
	}
	g.bump()
}

// loadSuspension reads what the run folder says.
func (g *Guard) loadSuspension() {
	s, left := api.LoadSuspension(g.cfg.SuspendFile(), g.clock)
	if left > 0 {
		g.suspension, g.suspended, g.quiet = s, g.clock.Uptime()+left, s.Repair && s.Rested
	}
}

func (g *Guard) expireSuspension(now time.Duration) {
	if g.suspended == 0 {
		return
	}
	if now < g.suspended {
		g.quieten(now)
		return
	}
	g.resume("its time is over", "")
}

// quieten stops the repair once the device has read back last-known-good for a while.
func (g *Guard) quieten(now time.Duration) {
	if !g.suspension.Repair || g.quiet {
		return
	}
	if g.phase() == api.PhaseTrial || !g.lookNow(now).ReadBack {
		g.quietSince = 0
		return
	}
	if g.quietSince == 0 {
		g.quietSince = now
	}
	if now-g.quietSince >= quietAfter {
		g.quiet = true
		g.suspension.Rested = true
		// And if power fails now? The run folder is gone with it, and the suspension has ended. If only this process dies, the agent
		// has seen the same, and the next guard waits for it once more.
		if err := writeJSONFile(g.cfg.SuspendFile(), g.suspension); err != nil {
			g.log.Warn("the suspension's file cannot be written", "error", err)
		}
		g.log.Warn("repair is suspended: nobody drives the device")
		g.bump()
	}
}

// quietAfter is how long last-known-good must read back before suspend --repair stops the driving (docs/design.md, "Who drives").
const quietAfter = 5 * time.Second

// suspend stops trials, and with repair the driving; it cancels a running trial.
func (g *Guard) suspend(d time.Duration, repair bool, who string) (api.Suspension, error) {
	s := api.Suspension{UntilUptimeSeconds: (g.clock.Uptime() + d).Seconds(), BootID: api.BootID(), Repair: repair, Who: who}
	if err := writeJSONFile(g.cfg.SuspendFile(), s); err != nil {
		return s, fmt.Errorf("cannot write the suspension: %w", err)
	}
	if g.ledger.Trial != nil && g.unwritten == nil {
		g.settle(bootslot.Cancelled, bootslot.Evidence{Message: "suspended", Who: who})
	}
	g.suspension, g.suspended = s, g.clock.Uptime()+d
	g.quiet, g.quietSince = false, 0
	what := "trials for " + d.String()
	if repair {
		what = "trials and repair for " + d.String()
	}
	g.record(bootslot.Event{Kind: bootslot.EventSuspended, Who: who, Message: what})
	g.bump()
	return s, nil
}

// resume ends a suspension. The file goes first: the agent obeys it, too.
func (g *Guard) resume(why, by string) {
	if err := os.Remove(g.cfg.SuspendFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		g.log.Warn("the suspension's file cannot be removed", "error", err)
	}
	if g.suspended == 0 {
		return
	}
	wasQuiet := g.quiet
	g.suspension, g.suspended, g.quiet, g.quietSince = api.Suspension{}, 0, false, 0
	g.record(bootslot.Event{Kind: bootslot.EventResumed, Message: why, Who: by})
	if wasQuiet {
		g.enter(g.clock.Uptime()) // what was measured while nobody drove is no baseline
	}
	g.wake()
	g.bump()
}

// record logs an event that changes nothing in the ledger, and puts it into the history.
func (g *Guard) record(e bootslot.Event) {
	e.Generation, e.At = g.ledger.Generation, g.clock.Now()
	g.logEvent(e)
	if err := g.store.Append(e); err != nil {
		g.log.Warn("history not written", "error", err)
	}
}
