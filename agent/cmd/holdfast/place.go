package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/agent/desired"
	"holdfast/agent/gitclone"
	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/config"
	"holdfast/bootslot/ledger"
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
	clock    clock.Clock
	guard    *api.Client
	agent    agentClient
	problems []string
}

// askTime is how long a verb waits for agent and guard each: a process that is stopped keeps its socket open and says nothing.
const askTime = 2 * time.Second

// open finds out where everything is. A broken configuration is a problem to be told, not the end: the copies that agent and
// guard keep of the last valid one are as good, and with none of them the defaults.
func (w place) open() board {
	b := board{clock: clock.New()}
	var err error
	if b.profile, err = device.LoadProfile(w.share); err != nil {
		b.problem("the board's own profile is not used: %v", err)
	}
	cfg, usable, err := config.Load(w.config, "", b.profile)
	if !usable {
		kept := config.Config{State: config.StateFolder(w.config)}
		from := ""
		for _, path := range []string{kept.AgentConfigCopy(), kept.GuardConfigCopy()} {
			if cfg, usable, _ = config.Load(path, "", b.profile); usable {
				from = "the last valid copy, " + path
				break
			}
		}
		if !usable {
			cfg, from = config.Default(b.profile), "the defaults"
			cfg.State = kept.State
		}
		b.problem("the configuration cannot be used, going on with %s: %v", from, err)
	}
	b.config = cfg
	b.guard = api.NewClient(cfg.GuardSocket())
	b.agent = newAgentClient(cfg.AgentSocket())
	return b
}

func (b *board) problem(format string, args ...any) {
	b.problems = append(b.problems, status.OneLine(fmt.Sprintf(format, args...)))
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

// sources asks agent and guard, both at once, and reads the files of whoever is dead.
func (b *board) sources(ctx context.Context) status.Sources {
	s := status.Sources{Now: b.clock.Now(), Profile: b.profile, Board: b.rules(), Problems: b.problems}
	var wg sync.WaitGroup
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		st, err := b.guard.State(ctx, nil)
		if err != nil {
			s.GuardWhy = why(err)
			return
		}
		s.Guard = &st
		s.History, _ = b.guard.History(ctx, historyForVerdict)
	})
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		a, err := b.agent.Status(ctx)
		if err != nil {
			s.AgentWhy = why(err)
			return
		}
		s.Agent = &a
	})
	wg.Wait()
	if s.Guard == nil {
		l, err := ledger.ReadSidecar(b.config.LedgerJSON())
		dl, events, derr := ledger.ReadDB(b.config.LedgerDB(), historyForVerdict)
		switch {
		case err == nil:
			s.Ledger = &l
		case derr == nil:
			s.Ledger = &dl
		case errors.Is(err, fs.ErrNotExist):
			s.LedgerWhy = "there is none yet"
		default:
			s.LedgerWhy = why(err)
		}
		s.History = events
		if sus, left := api.LoadSuspension(b.config.SuspendFile(), b.clock); left > 0 {
			s.Suspended = &api.SuspendedFor{SecondsLeft: left.Seconds(), Repair: sus.Repair, Who: sus.Who}
		}
	}
	if s.Agent == nil {
		s.Declared, s.CloneWhy = b.declared()
	}
	if s.Guard == nil && s.Agent == nil {
		c, err := device.NewClient(device.ClientOptions{URL: b.config.Device.URL, Timeout: b.config.Device.Timeout, Clock: b.clock, Profile: b.profile})
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			var st device.State
			if st, err = c.State(ctx); err == nil {
				s.Device = &st
			}
		}
		if err != nil {
			s.DeviceWhy = status.OneLine(err.Error())
		}
	}
	return s
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
	return &status.Declared{Fields: r.Fields, Image: r.Image, Digest: r.Digest(), Revision: d.Revision, Subject: d.Subject, Retry: retry}, ""
}

// why says in one line why somebody does not answer, or what is wrong with a file.
func why(err error) string {
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT) && errors.As(err, new(*net.OpError)):
		return "it does not run"
	case errors.Is(err, unix.EACCES) && errors.As(err, new(*net.OpError)):
		return "this user may not ask it"
	case errors.Is(err, context.DeadlineExceeded):
		return "it runs and does not answer"
	}
	return status.OneLine(err.Error())
}

// agentClient asks the agent over its socket.
type agentClient struct{ http *http.Client }

func newAgentClient(path string) agentClient {
	return agentClient{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}}
}

// Status asks for the agent's own part of the view.
func (c agentClient) Status(ctx context.Context) (status.Agent, error) {
	var a status.Agent
	return a, c.do(ctx, http.MethodGet, "/v1/status", nil, &a)
}

// Reconcile makes the agent fetch and look at the device now.
func (c agentClient) Reconcile(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/reconcile", struct{}{}, nil)
}

func (c agentClient) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if u := errors.Unwrap(err); u != nil { // without method and URL, which are ours
			err = u
		}
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		var e api.Error
		if json.Unmarshal(b, &e) != nil || e.Message == "" {
			e.Message = "the agent answered " + resp.Status
		}
		return errors.New(e.Message)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}
