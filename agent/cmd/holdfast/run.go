package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"holdfast/agent"
	"holdfast/agent/desired"
	"holdfast/agent/gitclone"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/config"
	"holdfast/bootslot/journal"
	"holdfast/bootslot/ledger"
	"holdfast/bootslot/sock"
	"holdfast/device"
	"holdfast/device/clock"
)

func newRun(where *place) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the agent: fetch, ask the guard, drive the device, for ever",
		Long: `Run the agent until SIGTERM. It fetches what git declares, asks the guard for a trial of it, and drives
the device to what the guard says. SIGHUP makes it read its configuration again.

If the configuration is broken the agent goes on with the last valid copy of it, and status says so.

Exit code 0: it was told to stop. 1: it cannot run: another agent does, or no configuration was ever valid.`,
		Example: "  holdfast run --config /etc/holdfast/holdfast.yaml",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(journal.New(cmd.ErrOrStderr(), "holdfast"))
			return run(cmd.Context(), log, *where)
		},
	}
}

// memoryLimit is where the collector begins to work hard. An idle agent needs a tenth of it, a first fetch of ten thousand
// files half; a limit near those would cost more CPU than the memory is worth.
const memoryLimit = 96 << 20

// closeTime is how long a fetch that was told to end may take for it.
const closeTime = 5 * time.Second

// errStuck ends the process: what is left of it would keep the clone locked. The service manager starts it anew, and nothing
// is lost by that.
var errStuck = errors.New("the running fetch does not end; starting anew is the way out")

func run(ctx context.Context, log *slog.Logger, where place) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, unix.SIGHUP)
	defer signal.Stop(hup)

	d := daemonProcess{log: log, where: where, clock: clock.New()}
	if err := d.load(); err != nil {
		return err
	}
	for _, dir := range []string{d.cfg.Run, d.cfg.AgentFolder()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			d.note("%v", err)
		}
	}
	sock.Inherit(d.cfg.AgentSocket())
	lock, err := sock.Lock(d.cfg.AgentLock(), "agent")
	var running sock.RunningError
	switch {
	case errors.As(err, &running):
		return err
	case err != nil: // the clone has a lock of its own
		d.note("cannot tell whether another agent runs: %v", err)
	default:
		defer lock.Close()
	}
	served := d.serve(d.cfg.AgentSocket())
	defer served()

	log.Info("agent started", "event", journal.Started, "version", versionText(), "device", d.cfg.Device.URL, "repository", d.cfg.Repository.URL, "socket", d.cfg.AgentSocket())
	var a *agent.Agent
	for {
		a, err = d.life(ctx, hup, a)
		if err != nil || ctx.Err() != nil {
			log.Info("agent stopped", "event", journal.Stopped)
			return err
		}
	}
}

// daemonProcess is what outlives a change of the configuration.
type daemonProcess struct {
	log     *slog.Logger
	where   place
	clock   clock.Clock
	profile device.Profile
	cfg     config.Config
	// loadProblems are of the newest reading of profile and configuration, notes of the start.
	loadProblems []string
	notes        []string
	handler      atomic.Pointer[http.Handler]
	started      chan struct{} // closed when there is a handler
	// deviceWaits says that device settings or a profile have been read that an open trial keeps out until it has ended.
	deviceWaits bool
}

func (d *daemonProcess) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	d.log.Warn("start is not as it should be", "event", journal.Problem, "error", text)
	d.notes = append(d.notes, text)
}

// load reads profile and configuration. The error says that there is no configuration at all.
func (d *daemonProcess) load() error {
	d.loadProblems = nil
	profile, err := device.LoadProfile(d.where.share)
	if err != nil {
		d.loadProblems = append(d.loadProblems, err.Error())
		d.log.Warn("the board's own profile is not used", "event", journal.NotConfigured, "error", err)
	}
	kept := config.Config{State: config.StateFolder(d.where.config)}.AgentConfigCopy()
	cfg, usable, err := config.Load(d.where.config, kept, profile)
	if !usable {
		return fmt.Errorf("there is no valid configuration, and no copy of one: %w", err)
	}
	if err != nil {
		d.loadProblems = append(d.loadProblems, err.Error())
		d.log.Warn("configuration is not as it should be", "event", journal.NotConfigured, "error", err)
	}
	d.profile, d.cfg = profile, cfg
	return nil
}

// startWait is how long a request waits for an agent that starts, as it has waited in the socket's queue for the process. Some only ask whether it
// lives, and give up after askTime.
const startWait = time.Second

// serve opens the socket and answers with whatever handler is set. Without a socket the device is kept all the same.
func (d *daemonProcess) serve(path string) (stop func()) {
	d.started = make(chan struct{})
	l, err := sock.Listen(path)
	if err != nil {
		d.note("no socket: %v", err)
		return func() {}
	}
	srv := sock.Server(context.Background(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-d.started:
			(*d.handler.Load()).ServeHTTP(w, r)
		case <-d.clock.After(startWait):
			sock.Answer(w, http.StatusServiceUnavailable, sock.Error{Message: "the agent is starting"})
		}
	}))
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			d.log.Warn("socket lost", "event", journal.Problem, "error", err)
		}
	}()
	return func() { _ = srv.Close() }
}

// life runs an agent, which takes over from the one before it, until ctx ends or the configuration has changed.
func (d *daemonProcess) life(ctx context.Context, hup <-chan os.Signal, from *agent.Agent) (*agent.Agent, error) {
	cfg, profile := d.cfg, d.profile // a reload writes those of d meanwhile
	client, err := device.NewClient(device.ClientOptions{URL: cfg.Device.URL, TokenFile: cfg.Device.TokenFile, Locate: config.Locate,
		Timeout: cfg.Device.Timeout, Clock: d.clock, Profile: profile})
	if err != nil {
		return from, err
	}
	parse := func(name string, data []byte) (bootslot.Release, uint64, error) {
		p, err := desired.Parse(name, data, profile)
		return p.Release, p.Retry, err
	}
	clone, err := d.openClone(func(name string, data []byte) error {
		_, _, err := parse(name, data)
		return err
	})
	if err != nil {
		return from, err
	}
	writes := agent.NewWrites(client)
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		watchdog = 0
	}
	a := agent.New(agent.Options{
		Interval: cfg.Device.Interval, Timeout: cfg.Device.Timeout, GitEvery: cfg.Repository.Interval,
		Guard: api.NewClient(cfg.GuardSocket()), Driver: device.NewDriver(writes, profile, d.clock, cfg.Device.Interval), Watcher: client,
		Writes: writes, Clone: clone, Profile: profile, Parse: parse,
		Record: func() *agent.Record {
			l, err := ledger.ReadSidecar(cfg.LedgerJSON())
			if err != nil {
				return nil
			}
			r := &agent.Record{Generation: l.Generation, Trial: l.Trial != nil}
			if l.HasGood() {
				r.Fields = l.Slots[l.Active].Release.Fields
			}
			return r
		},
		Suspended: func() (api.Suspension, time.Duration) { return api.LoadSuspension(cfg.SuspendFile(), d.clock) },
		Clock:     d.clock, Log: d.log, Version: versionText(),
		Notify: d.notify, WatchdogEvery: watchdog / 2,
		Problems: append(append([]string(nil), d.notes...), d.loadProblems...),
	}, from)
	handler := a.Handler()
	if d.handler.Swap(&handler) == nil {
		close(d.started)
	}

	inner, stop := context.WithCancel(ctx)
	defer stop()
	reload := make(chan struct{})
	go func() {
		defer close(reload)
		for {
			var look <-chan time.Time
			if d.deviceWaits {
				look = d.clock.After(trialLook)
			}
			changed := false
			select {
			case <-inner.Done():
				return
			case <-hup:
				changed = d.reload(cfg, a.TrialLeft() > 0)
			case <-look:
				changed = a.TrialLeft() == 0 && d.reload(cfg, false)
			}
			if changed {
				stop()
				return
			}
		}
	}()
	err = a.Run(inner)
	stop()
	<-reload
	if ctx.Err() != nil {
		d.notify(daemon.SdNotifyStopping)
		a.Goodbye(context.WithoutCancel(ctx))
	}
	closed := make(chan error, 1)
	go func() { closed <- clone.Close() }()
	select {
	case cerr := <-closed:
		return a, errors.Join(err, cerr)
	case <-d.clock.After(closeTime):
		if ctx.Err() != nil {
			return a, err // the process ends anyway, and the lock with it
		}
		return a, errors.Join(err, errStuck)
	}
}

// trialLook is how often it is looked whether the trial is over that holds up new device settings.
const trialLook = time.Second

// reload reads the configuration again and reports whether the agent must be made anew. An open trial keeps the device that it was opened
// with, as the guard does: else the agent would drive one device and the guard judge another.
func (d *daemonProcess) reload(old config.Config, inTrial bool) (changed bool) {
	d.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
	defer d.notify(daemon.SdNotifyReady)
	problems, profile := d.loadProblems, d.profile
	d.deviceWaits = false
	if err := d.load(); err != nil {
		d.loadProblems = []string{err.Error()}
		d.log.Warn("configuration not taken", "event", journal.NotConfigured, "error", err)
		return !reflect.DeepEqual(problems, d.loadProblems)
	}
	if d.cfg.Run != old.Run || d.cfg.State != old.State {
		d.loadProblems = append(d.loadProblems, "the run and state folders change only with a restart")
		d.cfg.Run, d.cfg.State = old.Run, old.State
	}
	d.deviceWaits = inTrial && (d.cfg.Device != old.Device || !reflect.DeepEqual(d.profile, profile))
	if d.deviceWaits {
		d.cfg.Device, d.profile = old.Device, profile
		d.log.Info("device settings wait for the end of the trial", "event", journal.ConfigurationWaits)
	}
	changed = !reflect.DeepEqual(d.cfg, old) || !reflect.DeepEqual(d.profile, profile) || !reflect.DeepEqual(problems, d.loadProblems)
	d.log.Info("configuration read again", "event", journal.Configured, "changed", changed)
	return changed
}

func (d *daemonProcess) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		d.log.Warn("the service manager cannot be told", "event", journal.ServiceManager, "state", state, "error", err)
	}
}

// closer is the clone as the loops use it, and its end.
type closer interface {
	Fetch(ctx context.Context) (gitclone.Fetched, error)
	Desired() (gitclone.Desired, bool, error)
	Notices() []gitclone.Notice
	Accept(revision string) error
	Close() error
}

// openClone opens the clone. Only another agent is a reason not to start: a repository that cannot be used at all, for its
// options' sake, must not stop the repair.
func (d *daemonProcess) openClone(validate func(string, []byte) error) (closer, error) {
	r := d.cfg.Repository
	o := gitclone.Options{Path: d.cfg.CloneDB(), URL: r.URL, Branch: r.Branch, File: r.Path, History: r.History, TokenFile: r.TokenFile,
		SSHKeyFile: r.SSHKeyFile, KnownHostsFile: r.KnownHostsFile, CAFile: r.CAFile, Locate: config.Locate, Validate: validate, Now: d.clock.Now}
	if l, err := ledger.ReadSidecar(d.cfg.LedgerJSON()); err == nil && l.HasGood() {
		o.ActiveRevision = l.Slots[l.Active].Revision
	}
	c, err := gitclone.Open(o)
	switch {
	case err == nil:
		return c, nil
	case gitclone.KindOf(err) == gitclone.ErrStore:
		return nil, err
	}
	d.log.Warn("repository cannot be used", "event", journal.RepositoryUnusable, "error", err)
	return unusable{o.Path, err}, nil
}

// unusable stands for a clone whose options cannot work: what it holds counts, and nothing new comes.
type unusable struct {
	path string
	err  error
}

func (u unusable) Fetch(context.Context) (gitclone.Fetched, error) {
	return gitclone.Fetched{}, &gitclone.Error{Kind: gitclone.ErrStore, Advice: "mend the repository part of the configuration, then send SIGHUP", Err: u.err}
}
func (u unusable) Desired() (gitclone.Desired, bool, error) { return gitclone.Read(u.path) }
func (u unusable) Notices() []gitclone.Notice               { return nil }
func (u unusable) Accept(string) error                      { return u.err }
func (u unusable) Close() error                             { return nil }
