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
// Four goroutines: observe reads the device (look.go), drive writes to it when the agent does not (drive.go), tick judges, and the socket's
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
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/config"
	"holdfast/bootslot/journal"
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
	// Notify tells the service manager (sd_notify); nil for nobody.
	Notify func(state string)
	// WatchdogEvery is how often it wants to hear WATCHDOG=1, 0 for never.
	WatchdogEvery time.Duration
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
	heard bootslot.Heard
	beat  api.Heartbeat // the newest
	drove device.Report // by this process
	asked string        // the refusal that is being asked about, "GENERATION FIELD"
	found *bootslot.Refusal

	suspension  api.Suspension
	suspended   time.Duration  // uptime at which it ends; 0: none
	quiet       bootslot.Quiet // whether repair is stopped
	driverSaid  bootslot.Driver
	problems    map[string]string
	noticed     map[string]time.Duration // what the ledger's store had to report: the uptime at which it did
	change      uint64
	changed     chan struct{} // closed and replaced at each change
	lastOutlook string
	stopping    bool // nothing is started any more

	observing, driving time.Duration // uptime of the last sign of life of observe and drive
	line               string        // what the service manager was told last
}

// New opens the ledger, settles what a power cut has left open, and returns a guard that is ready to Run. An error means that another guard is at
// work, or that the ledger cannot even be looked for; a disk that cannot be written is no error.
func New(o Options) (*Guard, error) {
	if o.Notify == nil {
		o.Notify = func(string) {}
	}
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
	client, err := device.NewClient(device.ClientOptions{URL: c.Device.URL, TokenFile: c.Device.TokenFile, Locate: config.Locate, Timeout: c.Device.Timeout, Clock: g.clock, Profile: g.profile})
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
		g.log.Info("problem over", "event", journal.ProblemOver, "what", what)
	} else {
		kind := journal.Problem
		switch what {
		case "ledger", "history":
			kind = journal.CannotWrite
		case "profile", "configuration file", "configuration":
			kind = journal.NotConfigured
		}
		g.problems[what] = message
		g.log.Warn("problem", "event", kind, "what", what, "message", message)
	}
	g.bump()
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

// wished answers a wish: the only way to a trial.
func (g *Guard) wished(w api.TrialRequest) bootslot.Decision {
	before := g.fast()
	l := g.ledger
	if g.unwritten != nil {
		l.Trial = nil // it is over, though that is not recorded yet: nothing may cancel it any more, and nothing else is admitted
	}
	d, step := bootslot.Admit(l, g.board, w.Wish(), g.facts())
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
			var held []string
			for _, h := range d.Held {
				held = append(held, h.Field)
			}
			g.log.Info("decision", "event", journal.Decision, "decision", d.Kind, "reason", d.Reason, "revision", w.Revision,
				"held", journal.Only(strings.Join(held, ",")), "marks", journal.Marks(d.Marks))
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
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// Run works until ctx ends. The service manager is told that the guard is ready when its loops run: device and agent may be there or not.
func (g *Guard) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	g.mu.Lock()
	g.observing, g.driving = g.clock.Uptime(), g.clock.Uptime()
	g.mu.Unlock()
	wg.Go(func() { g.checks.Run(ctx) })
	wg.Go(func() { g.observe(ctx) })
	wg.Go(func() { g.drive(ctx) })
	g.opts.Notify("READY=1")
	var ping <-chan time.Time
	if g.opts.WatchdogEvery > 0 {
		ping = g.clock.After(0)
	}
	for tick := g.clock.After(g.interval()); ; {
		select {
		case <-ctx.Done():
			g.opts.Notify("STOPPING=1")
			g.mu.Lock()
			g.stopping = true // a wish may still be on its way
			g.mu.Unlock()
			g.goodbye("the guard was told to stop")
			return nil
		case <-ping:
			ping = g.clock.After(g.opts.WatchdogEvery)
			if g.alive() {
				g.opts.Notify("WATCHDOG=1")
			}
		case <-tick:
			g.tick()
			g.tellManager()
			tick = g.clock.After(g.interval())
		}
	}
}

// alive reports whether observe and drive come round. All that they wait for has a time-out, so a device that hangs is no reason why they should not; whoever
// asks has the mutex, so nobody keeps that for ever; and the tick is this very loop.
func (g *Guard) alive() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.clock.Uptime()-min(g.observing, g.driving) <= g.cfg.Device.Interval+roundTimeouts*g.cfg.Device.Timeout+roundSlack
}

// How long after its pause a loop may go without a sign of life: the device's time-outs between two of them, with their repetitions, and what a ledger that is
// written on a slow disk holds up.
const (
	roundTimeouts = 10
	roundSlack    = 30 * time.Second
)

// tellManager gives the service manager one line (STATUS=) when it has changed.
func (g *Guard) tellManager() {
	g.mu.Lock()
	name := "the fallback"
	if g.ledger.HasGood() {
		if name = g.ledger.Slots[g.ledger.Active].Revision; name == "" {
			name = g.ledger.Slots[g.ledger.Active].Digest.Short()
		}
	}
	line := fmt.Sprintf("last-known-good is %.12s, driver %s", name, g.driverNow(g.clock.Uptime()))
	if p := g.phase(); p == api.PhaseTrial {
		line += fmt.Sprintf(", a trial of %.12s runs", g.ledger.Trial.Revision)
	} else if p != api.PhaseIdle {
		line += ", " + string(p)
	}
	changed := line != g.line
	g.line = line
	g.mu.Unlock()
	if changed {
		g.opts.Notify("STATUS=" + line)
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

// tick looks once and acts on what is decided.
func (g *Guard) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tickNow(g.clock.Uptime())
}

// catchUp looks before anything is answered or written in a trial that nobody has watched for too long: this process was stopped, and the candidate
// is not to be driven to for even one request more.
func (g *Guard) catchUp() {
	if now := g.clock.Uptime(); g.phase() == api.PhaseTrial && g.judge.Unwatched(now) {
		g.tickNow(now)
	}
}

func (g *Guard) tickNow(now time.Duration) {
	g.expireSuspension(now)
	defer g.forgetNotices(now) // a verdict of this tick may end one
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
