package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/agent"
	"holdfast/agent/desired"
	"holdfast/agent/gitclone"
	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/config"
	"holdfast/bootslot/ledger"
	"holdfast/bootslot/sock"
	"holdfast/device"
	"holdfast/device/clock"
)

// place says where this board's files are.
type place struct {
	config string
	share  string
}

// board is what a verb knows of the board before it asks anybody.
type board struct {
	profile  device.Profile
	config   config.Config
	patience time.Duration // for an answer of agent and guard each
	clock    clock.Clock
	guard    *api.Client
	agent    *agent.Client
	problems []string
}

// askTime is how long a verb waits for agent and guard each: a process that is stopped keeps its socket open and says nothing.
const askTime = 2 * time.Second

// open finds out where everything is. A broken configuration is a problem to be told, not the end: the copies that agent and
// guard keep of the last valid one are as good, and with none of them the defaults.
func (w place) open() board {
	b := board{clock: clock.New(), patience: askTime}
	var err error
	if b.profile, err = device.LoadProfile(w.share); err != nil {
		b.problem("the board's own profile is not used", err)
	}
	cfg, usable, err := config.Load(w.config, "", b.profile)
	if !usable {
		kept := config.Config{State: config.StateFolder(w.config)}
		from := ""
		for _, path := range []string{kept.AgentConfigCopy(), kept.GuardConfigCopy()} {
			var err error
			if cfg, err = config.LoadCopy(path, b.profile); err == nil {
				usable, from = true, "the last valid copy, "+path
				break
			}
		}
		if !usable {
			cfg, from = config.Default(b.profile), "the defaults"
			cfg.State = kept.State
		}
		b.problem("the configuration cannot be used, going on with "+from, err)
	}
	b.config = cfg
	b.guard = api.NewClient(cfg.GuardSocket())
	b.agent = agent.NewClient(cfg.AgentSocket())
	return b
}

func (b *board) problem(about string, err error) {
	b.problems = append(b.problems, status.Explain(about, err))
}

// rules are the board's rules for admission, as the guard has them.
func (b *board) rules() bootslot.Board {
	r := bootslot.Board{Fallback: bootslot.Release{Fields: b.profile.Fallback}, HoldRelease: b.config.Guard.Hold == "release",
		Attempts: b.config.Guard.Attempts, Pauses: b.config.Guard.Pauses}
	for _, g := range b.profile.Groups {
		r.Groups = append(r.Groups, g.Fields)
	}
	return r
}

// parse makes a release of a declared document.
func (b *board) parse(name string, data []byte) (bootslot.Release, uint64, error) {
	d, err := desired.Parse(name, data, b.profile)
	return d.Release, d.Retry, err
}

// historyForVerdict is how many events are looked through for the last verdict.
const historyForVerdict = 200

// how says how much is to be found out.
type how int

const (
	quickly    how = iota // no file that may have to be waited for, and not the device
	plainly               // what is in force, and what is wished
	thoroughly            // the last verdict, too
)

// whether says why a process gave no answer. A socket that systemd has opened takes a request for a process that does not run; only its lock tells.
func whether(err error, lock string) (status.ProcessState, string) {
	state, words := status.Why(err)
	if state == status.ProcessSilent && !sock.Held(lock) {
		return status.ProcessDead, "it does not run"
	}
	return state, words
}

// sources asks agent and guard, both at once, and reads the files of whoever does not answer.
func (b *board) sources(ctx context.Context, how how) status.Sources {
	s := status.Sources{Now: b.clock.Now(), Profile: b.profile, Board: b.rules(), Problems: b.problems, DiskWhy: b.diskWhy()}
	var wg sync.WaitGroup
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, b.patience)
		defer cancel()
		st, err := b.guard.State(ctx, nil)
		if err != nil {
			s.GuardState, s.GuardWhy = whether(err, b.config.GuardLock())
			return
		}
		s.Guard = &st
		if how == thoroughly {
			s.History, _ = b.guard.History(ctx, historyForVerdict)
		}
	})
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, b.patience)
		defer cancel()
		a, err := b.agent.Status(ctx, nil)
		if err != nil {
			s.AgentState, s.AgentWhy = whether(err, b.config.AgentLock())
			return
		}
		s.Agent = &a
	})
	wg.Wait()
	if s.GuardState == status.ProcessUnreachable || s.AgentState == status.ProcessUnreachable {
		s.Access = access(b.config.GuardSocket())
	}
	if s.Guard == nil {
		b.readLedger(&s, how)
		if sus, left := api.LoadSuspension(b.config.SuspendFile(), b.clock); left > 0 {
			s.Suspended = &api.SuspendedFor{SecondsLeft: left.Seconds(), Repair: sus.Repair, Who: sus.Who}
		}
	}
	if s.Agent == nil {
		s.Declared, s.CloneWhy = b.declared()
	}
	if s.Guard == nil && s.Agent == nil && how != quickly {
		s.Device, s.DeviceWhy = b.lookAtDevice(ctx)
	}
	return s
}

// readLedger reads the sidecar, and ledger.db only if that fails or for the history: a guard that hangs keeps it locked.
func (b *board) readLedger(s *status.Sources, how how) {
	l, err := ledger.ReadSidecar(b.config.LedgerJSON())
	if err == nil {
		s.Ledger = &l
		if how != thoroughly || s.GuardState != status.ProcessDead {
			return
		}
	} else if how == quickly {
		s.NoLedger = errors.Is(err, fs.ErrNotExist)
		_, s.LedgerWhy = status.Why(err)
		return
	}
	dl, events, derr := ledger.ReadDB(b.config.LedgerDB(), historyForVerdict)
	if derr == nil {
		s.History = events
	}
	switch {
	case err == nil:
	case derr == nil:
		s.Ledger = &dl
	case errors.Is(err, fs.ErrNotExist) && errors.Is(derr, fs.ErrNotExist):
		s.NoLedger, s.LedgerWhy = true, "there is none yet"
	default:
		_, s.LedgerWhy = status.Why(err)
	}
}

// access says who may ask what this user may not: the group that owns the socket, or the folder if that hides the socket.
func access(socket string) string {
	for _, path := range []string{socket, filepath.Dir(socket)} {
		fi, err := os.Stat(path)
		if err != nil {
			continue
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok || st.Gid == 0 {
			break
		}
		return fmt.Sprintf("run as root or as a member of the %s, which owns %s", groupName(st.Gid), path)
	}
	return "run as root"
}

// diskWhy is why the disk lets no trial start, by the guard's own rule; "" if it is well or cannot be asked.
func (b *board) diskWhy() string {
	var st unix.Statfs_t
	if unix.Statfs(b.config.State, &st) != nil {
		return ""
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	if free >= b.config.Guard.DiskFloor {
		return ""
	}
	return fmt.Sprintf("%s has %d KiB free, the floor is %d KiB", b.config.State, free>>10, b.config.Guard.DiskFloor>>10)
}

// needLedger says why slots and marks cannot be told, nil if they can.
func needLedger(what string, s status.Sources, v status.View) error {
	if v.LedgerKnown {
		return nil
	}
	text := fmt.Sprintf("%s cannot be read: the guard %s, and of its ledger: %s", what, v.Guard.Words(), s.LedgerWhy)
	if s.Access != "" {
		text += "; " + s.Access
	}
	return errors.New(text)
}

// declared reads what the clone holds, without the agent.
func (b *board) declared() (*status.Declared, string) {
	d, ok, err := gitclone.Read(b.config.CloneDB())
	switch {
	case err != nil:
		return nil, why(err)
	case !ok:
		return nil, ""
	}
	r, retry, err := b.parse(d.File, d.Data)
	if err != nil {
		return nil, fmt.Sprintf("revision %s is not valid for this board: %s", d.Revision, why(err))
	}
	return status.NewDeclared(d, r, retry), ""
}

// why says in words why somebody does not answer, or what is wrong with a file.
func why(err error) string {
	_, text := status.Why(err)
	return text
}
