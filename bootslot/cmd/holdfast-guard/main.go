// Command holdfast-guard is the rollback layer: it judges trials, keeps the marks, and keeps the device when the agent does not.
//
// It is small on purpose: no git, no TLS server, no CLI library (layout_test.go lists what may not be linked in).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime/debug"
	"strconv"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"holdfast/bootslot/config"
	"holdfast/bootslot/guard"
	"holdfast/bootslot/journal"
	"holdfast/bootslot/sock"
	"holdfast/device"
	"holdfast/device/clock"
	"holdfast/image/fallback"
)

// version is set by the build (-ldflags -X main.version=…).
var version = "devel"

func main() {
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: holdfast-guard [flags]\n\nJudges trials, keeps the marks, and keeps the device when the agent does not.\n\n")
		flag.PrintDefaults()
	}
	path := flag.String("config", "/etc/holdfast/holdfast.yaml", "the configuration `file`")
	share := flag.String("share", fallback.Dir, "the `folder` whose profile.yaml and fallback.yaml override the baked-in ones")
	agent := flag.String("agent-user", "", "the `user` from whom alone wishes and heartbeats are taken (default: the guard's own)")
	checkDirs := flag.String("check-dirs", "/etc/holdfast/check.d:/usr/lib/holdfast/check.d", "`folders` of executable checks, separated by colons")
	showVersion := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *showVersion {
		fmt.Println("holdfast-guard", version)
		return
	}
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "holdfast-guard: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	log := slog.New(journal.New(os.Stderr, "holdfast-guard"))
	if err := run(log, *path, *share, *agent, filepath.SplitList(*checkDirs)); err != nil {
		log.Error("the guard stops", "event", journal.CannotRun, "error", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger, path, share, agent string, checkDirs []string) error {
	// The record and some requests are all there is: a heap that is collected early, and given back, keeps the board's memory free. The limit is
	// soft: a long history that is read takes more, for that moment.
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(7 << 20)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	// What follows is no reason not to keep the device, as long as no other guard does: it is reported, and the guard goes on without.
	uid, uerr := agentUID(agent)
	ck := clock.New()
	profile, perr := device.LoadProfile(share)
	cfg, cerr := load(path, profile)
	if cfg == nil {
		c := config.Default(profile)
		cfg = &c
		log.Warn("no configuration has ever been valid: going on with the profile's device and the built-in checks", "event", journal.NotConfigured, "device", c.Device.URL)
	}
	sock.Inherit(cfg.GuardSocket())
	lock, lerr := sock.Lock(cfg.GuardLock(), "guard")
	if errors.As(lerr, new(sock.RunningError)) {
		return lerr
	}
	if lerr == nil {
		defer lock.Close()
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		watchdog = 0
	}
	g, err := guard.New(guard.Options{Config: *cfg, Profile: profile, Clock: ck, Log: log, Version: version, CheckFolders: checkDirs, AgentUID: uid,
		Notify: func(state string) { notify(log, state) }, WatchdogEvery: watchdog / 2})
	if err != nil {
		return err
	}
	defer g.Close()
	report := func(what string, err error) {
		if err != nil {
			g.Problem(what, err.Error())
		} else {
			g.Problem(what, "")
		}
	}
	report("profile", perr)
	report("configuration file", cerr)
	report("agent's user", uerr)
	report("lock", lerr)

	served := make(chan struct{})
	go func() { defer close(served); g.ListenAndServe(ctx, cfg.GuardSocket()) }()

	hup := make(chan os.Signal, 1)
	signal.Notify(hup, unix.SIGHUP)
	go func() {
		for range hup {
			p, err := device.LoadProfile(share)
			report("profile", err)
			c, err := load(path, p)
			report("configuration file", err)
			if c != nil {
				g.Reconfigure(*c, p)
			}
		}
	}()

	log.Info("guard started", "event", journal.Started, "version", version, "device", cfg.Device.URL, "socket", cfg.GuardSocket())
	err = g.Run(ctx)
	<-served
	log.Info("guard stopped", "event", journal.Stopped)
	return err
}

// load reads the configuration, or the copy of the last valid one; nil if there is neither.
func load(path string, p device.Profile) (*config.Config, error) {
	kept := config.Config{State: config.StateFolder(path)}.GuardConfigCopy()
	c, usable, err := config.Load(path, kept, p)
	if !usable {
		return nil, err
	}
	return &c, err
}

// nobody is no user's id (setuid(2) takes it for "leave it as it is").
const nobody = math.MaxUint32

// agentUID is the user from whom wishes are taken: nobody, with an error, if there is no such user.
func agentUID(name string) (uint32, error) {
	if name == "" {
		return uint32(os.Geteuid()), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nobody, fmt.Errorf("wishes are taken from nobody: --agent-user: %w", err)
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nobody, fmt.Errorf("wishes are taken from nobody: --agent-user: %w", err)
	}
	return uint32(id), nil
}

func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("the service manager cannot be told", "event", journal.ServiceManager, "state", state, "error", err)
	}
}
