package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/ledger"
	"holdfast/bootslot/selftest"
	"holdfast/bootslot/sock"
	"holdfast/device"
	"holdfast/device/durable"
)

// maxRequest bounds a request's body in bytes.
const maxRequest = 256 << 10

// maxOrigin bounds what the record keeps of where a wish came from, in bytes of each text: it stays small whatever the repository says.
const maxOrigin = 128

// Serve answers on l until ctx ends.
func (g *Guard) Serve(ctx context.Context, l net.Listener) error {
	srv := sock.Server(ctx, g.handler())
	stop := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(last) != nil {
			_ = srv.Close()
		}
	})
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ListenAndServe answers on the socket at path until ctx ends. A socket that cannot be opened, or is lost, is a problem to report, and is tried again: the
// device is kept without it.
func (g *Guard) ListenAndServe(ctx context.Context, path string) {
	for ctx.Err() == nil {
		l, err := sock.Listen(path)
		if err == nil {
			g.Problem("socket", "")
			err = g.Serve(ctx, l)
		}
		if ctx.Err() != nil {
			return
		}
		g.Problem("socket", fmt.Sprintf("nobody can ask the guard: %s: %v", path, err))
		select {
		case <-ctx.Done():
		case <-g.clock.After(listenRetry):
		}
	}
}

// listenRetry is the pause between two attempts to open the socket.
const listenRetry = 5 * time.Second

// lock takes the mutex for a request that changes something, and returns an error without it if the request came too late: whoever sent it has given up, perhaps
// while this process was stopped, and was told that nothing happens.
func (g *Guard) lock(r *http.Request) error {
	g.mu.Lock()
	text := r.Header.Get(api.DeadlineHeader)
	if text == "" {
		return nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(seconds) || math.IsInf(seconds, 0) || strings.ContainsAny(text, "xX"): // a hexadecimal number is no time that anybody writes
		err = &refusal{http.StatusBadRequest, fmt.Errorf("%s: %q is not a number of seconds", api.DeadlineHeader, text)}
	case g.clock.Uptime().Seconds() > seconds:
		err = &refusal{http.StatusRequestTimeout, errors.New("the request came too late and was not carried out")}
	}
	if err != nil {
		g.mu.Unlock()
	}
	return err
}

// refusal is an error with its HTTP status.
type refusal struct {
	status int
	err    error
}

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

// handler is the socket's whole vocabulary (package api).
func (g *Guard) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			out, err := f(r)
			if err != nil {
				status := http.StatusInternalServerError
				var re *refusal
				if errors.As(err, &re) {
					status = re.status
				}
				sock.Answer(w, status, api.Error{Message: err.Error()})
				return
			}
			if out == nil {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			sock.Answer(w, http.StatusOK, out)
		})
	}
	handle("GET /v1/effective", g.serveEffective)
	handle("POST /v1/trials", g.agentOnly(g.serveTrial))
	handle("POST /v1/heartbeat", g.agentOnly(g.serveHeartbeat))
	handle("GET /v1/state", g.serveState)
	handle("GET /v1/history", g.serveHistory)
	handle("GET /v1/selftest", g.serveSelfTest)
	handle("POST /v1/retry", g.serveRetry)
	handle("POST /v1/rollback", g.serveRollback)
	handle("POST /v1/suspend", g.serveSuspend)
	handle("POST /v1/resume", g.serveResume)
	return sock.Handler(mux, maxRequest)
}

func read(r *http.Request, v any) error {
	if err := sock.Read(r, v); err != nil {
		return &refusal{http.StatusBadRequest, fmt.Errorf("the request is not understood: %w", err)}
	}
	return nil
}

// nothing reads the body of a request that needs none.
func nothing(r *http.Request) error {
	if err := read(r, new(struct{})); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// agentOnly lets in the agent's user alone: nobody else may ask for a trial or pretend that the agent lives.
func (g *Guard) agentOnly(f func(*http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		if uid, ok := sock.UID(r); !ok || uid != g.opts.AgentUID {
			return nil, &refusal{http.StatusForbidden, fmt.Errorf("only the agent's user (uid %d) may do this, not %s", g.opts.AgentUID, sock.Who(r))}
		}
		return f(r)
	}
}

// await holds a question until current differs from the number in its parameter wait.
func (g *Guard) await(r *http.Request, current func() uint64) error {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return &refusal{http.StatusBadRequest, fmt.Errorf("wait=%q is not a number", text)}
	}
	limit := g.clock.After(api.LongPoll)
	for {
		g.mu.Lock()
		same, changed := current() == n, g.changed
		g.mu.Unlock()
		if !same {
			return nil
		}
		select {
		case <-changed:
		case <-limit:
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

func (g *Guard) serveEffective(r *http.Request) (any, error) {
	if err := g.await(r, func() uint64 { return g.ledger.Generation }); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.catchUp()
	return g.lease(), nil
}

func (g *Guard) serveTrial(r *http.Request) (any, error) {
	var req api.TrialRequest
	if err := read(r, &req); err != nil {
		return nil, err
	}
	if err := g.valid(req.Release); err != nil {
		return nil, &refusal{http.StatusBadRequest, err}
	}
	req.Revision = ledger.Clip(req.Revision, maxOrigin)
	req.Origin = bootslot.Origin{Author: ledger.Clip(req.Origin.Author, maxOrigin), Subject: ledger.Clip(req.Origin.Subject, maxOrigin)}
	if err := g.lock(r); err != nil {
		return nil, err
	}
	defer g.mu.Unlock()
	g.catchUp()
	return g.wished(req), nil
}

// valid checks a release against the guard's own profile: the agent may be of another version.
func (g *Guard) valid(r bootslot.Release) error {
	var errs []error
	for _, a := range g.profile.Actuators {
		v, ok := r.Fields[a.Name]
		if !ok {
			errs = append(errs, fmt.Errorf("the release has no %s", a.Name))
		} else if !slices.Contains(a.Allowed, v) {
			errs = append(errs, fmt.Errorf("%s: %q is not one of %v", a.Name, v, a.Allowed))
		}
	}
	for f := range r.Fields {
		if _, ok := g.profile.Actuator(f); !ok {
			errs = append(errs, fmt.Errorf("%s is no actuator of the profile %s", f, g.profile.Name))
		}
	}
	if i := r.Image; i != nil && !sha256Hex.MatchString(i.SHA256) {
		errs = append(errs, fmt.Errorf("image: %q is not a sha256, 64 hex digits in lower case", i.SHA256))
	}
	return errors.Join(errs...)
}

// sha256Hex is an image's identity. None that is empty may get past: "no image is ready" would say that it is.
var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (g *Guard) serveHeartbeat(r *http.Request) (any, error) {
	var h api.Heartbeat
	if err := read(r, &h); err != nil {
		return nil, err
	}
	if err := g.lock(r); err != nil {
		return nil, err // a beat from before this process was stopped says nothing of now
	}
	g.mu.Unlock()
	// The question that a refusal leads to outlives this request.
	g.beaten(context.WithoutCancel(r.Context()), h)
	return nil, nil
}

func (g *Guard) serveState(r *http.Request) (any, error) {
	if err := g.await(r, func() uint64 { return g.change }); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state(), nil
}

func (g *Guard) serveHistory(r *http.Request) (any, error) {
	n := 0
	if text := r.URL.Query().Get("last"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			return nil, &refusal{http.StatusBadRequest, fmt.Errorf("last=%q is not a number", text)}
		}
	}
	var before uint64
	if text := r.URL.Query().Get("before"); text != "" {
		var err error
		if before, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, &refusal{http.StatusBadRequest, fmt.Errorf("before=%q is not a number", text)}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	events, err := g.store.HistoryBefore(before, n)
	if events == nil {
		events = []bootslot.Event{}
	}
	return events, err
}

// selfTestTime bounds the wait for measurements. What hangs for longer has a timeout of its own, and is told as it is.
const selfTestTime = 10 * time.Second

// serveSelfTest has every check measured and answers when that has been done. It only looks. In a trial and before one the guard measures often
// enough by itself, and does not hurry: three samples beyond a fatal limit must not convict sooner because somebody is curious.
func (g *Guard) serveSelfTest(r *http.Request) (any, error) {
	g.mu.Lock()
	asked, fast := g.clock.Uptime(), g.fast()
	g.mu.Unlock()
	if !fast {
		g.checks.Measure()
		select {
		case g.look <- struct{}{}:
		default:
		}
	}
	limit := g.clock.After(selfTestTime)
	for {
		g.mu.Lock()
		checks, fresh := g.checkStates(g.clock.Uptime()), g.measuredSince(asked)
		g.mu.Unlock()
		if fresh {
			return checks, nil
		}
		select {
		case <-limit:
			return checks, nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-g.clock.After(selfTestPoll):
		}
	}
}

// selfTestPoll is how often it is looked whether everything has been measured.
const selfTestPoll = 100 * time.Millisecond

// measuredSince reports whether the device has been looked at, and every configured check has been measured, after uptime at.
func (g *Guard) measuredSince(at time.Duration) bool {
	if !g.seen.known || g.seen.started < at {
		return false
	}
	return !slices.ContainsFunc(g.checks.Latest(), func(s selftest.Sample) bool { return s.Started < at })
}

// commit stores an operator's step and acts on it.
func (g *Guard) commit(s bootslot.Step, err error, by string) (any, error) {
	if err != nil {
		return nil, &refusal{http.StatusConflict, err}
	}
	if g.unwritten != nil {
		return nil, &refusal{http.StatusServiceUnavailable, fmt.Errorf("the last verdict is not recorded yet: %s", g.writeErr)}
	}
	ended := g.ledger.Trial != nil && s.Ledger.Trial == nil
	if err := g.save(s); errors.As(err, new(*ledger.FoundError)) || err != nil && !ended {
		return nil, &refusal{http.StatusServiceUnavailable, fmt.Errorf("it cannot be recorded, so nothing was done: %w", err)}
	} else if err != nil {
		// As with any verdict that cannot be written: last-known-good is in force all the same, and the record follows.
		g.unwritten = &verdict{bootslot.Cancelled, bootslot.Evidence{Message: "an operator rolled back", Who: by, Operator: true}}
		g.trialEnded(g.clock.Uptime())
		g.enter(g.clock.Uptime())
		return nil, &refusal{http.StatusServiceUnavailable, fmt.Errorf("last-known-good is in force, but that is not recorded yet: %w", err)}
	}
	now := g.clock.Uptime()
	if ended {
		g.trialEnded(now)
	}
	if g.phase() != api.PhaseTrial {
		g.enter(now)
	}
	return g.lease(), nil
}

func (g *Guard) serveRetry(r *http.Request) (any, error) {
	if err := nothing(r); err != nil {
		return nil, err
	}
	if err := g.lock(r); err != nil {
		return nil, err
	}
	defer g.mu.Unlock()
	if g.wish == nil {
		return nil, &refusal{http.StatusConflict, errors.New("the agent has not said what is declared since the guard started; is it running?")}
	}
	s, err := bootslot.Retry(g.ledger, g.board, g.wish.Wish(), sock.Who(r), g.clock.Now())
	return g.commit(s, err, sock.Who(r))
}

func (g *Guard) serveRollback(r *http.Request) (any, error) {
	var req api.RollbackRequest
	if err := read(r, &req); err != nil {
		return nil, err
	}
	if err := g.lock(r); err != nil {
		return nil, err
	}
	defer g.mu.Unlock()
	var declared *bootslot.Wish
	if g.wish != nil {
		w := g.wish.Wish()
		declared = &w
	}
	s, err := bootslot.Rollback(g.ledger, g.board, req.ToFallback, declared, sock.Who(r), g.clock.Now())
	return g.commit(s, err, sock.Who(r))
}

func (g *Guard) serveSuspend(r *http.Request) (any, error) {
	var req api.SuspendRequest
	if err := read(r, &req); err != nil {
		return nil, err
	}
	if req.ForSeconds < 1 || req.ForSeconds > api.MaxSuspension.Seconds() { // before it is a Duration, which has no room for any number
		return nil, &refusal{http.StatusBadRequest, fmt.Errorf("a suspension of %v s is not between 1s and %v", req.ForSeconds, api.MaxSuspension)}
	}
	d := time.Duration(req.ForSeconds * float64(time.Second))
	if err := g.lock(r); err != nil {
		return nil, err
	}
	defer g.mu.Unlock()
	s, err := g.suspend(d, req.Repair, sock.Who(r))
	if err != nil {
		return nil, &refusal{http.StatusServiceUnavailable, err}
	}
	return s, nil
}

func (g *Guard) serveResume(r *http.Request) (any, error) {
	if err := nothing(r); err != nil {
		return nil, err
	}
	if err := g.lock(r); err != nil {
		return nil, err
	}
	defer g.mu.Unlock()
	if err := g.resume("before its time was over", sock.Who(r)); err != nil {
		return nil, &refusal{http.StatusServiceUnavailable, err}
	}
	return g.lease(), nil
}

// state is all that the guard knows.
func (g *Guard) state() api.State {
	now := g.clock.Uptime()
	s := api.State{Version: g.opts.Version, PID: os.Getpid(), Instance: g.instance, Change: g.change, Phase: g.phase(), Lease: g.lease(),
		Ledger: g.ledger, LastKnownGood: g.ledger.LastKnownGood(g.board), Fallback: g.board.Fallback, Wish: g.wish, Decision: g.decision,
		Driver: string(g.driverNow(now)), HeartbeatSecondsAgo: -1, Answers: g.seen.answered}
	if g.heard.Valid > 0 {
		s.HeartbeatSecondsAgo = (now - g.heard.Valid).Seconds()
	}
	if g.seen.answered {
		st := g.seen.state
		s.Device = &st
		s.Drift = device.Diff(g.profile, g.effective().Fields, st.Actuators)
	}
	if g.suspended > now {
		s.Suspended = &api.SuspendedFor{SecondsLeft: (g.suspended - now).Seconds(), Repair: g.suspension.Repair, Who: g.suspension.Who}
	}
	if g.rest != nil {
		s.Baseline = g.rest.Facts(now).Why
	}
	s.Checks = g.checkStates(now)
	s.CheckFolders = g.opts.CheckFolders
	for _, p := range g.problems {
		s.Problems = append(s.Problems, p)
	}
	slices.Sort(s.Problems)
	return s
}

func (g *Guard) checkStates(now time.Duration) []api.Check {
	newest := map[string]bootslot.Sample{}
	for _, m := range g.lookNow(now).Samples {
		newest[m.Check] = m
	}
	measured := map[string]selftest.Sample{}
	for _, m := range g.checks.Latest() {
		measured[m.Name] = m
	}
	var out []api.Check
	for _, c := range g.allChecks() {
		m := measured[c.Name]
		a := api.Check{Name: c.Name, Required: c.Required, Found: m.Message, Limit: m.Limit, Value: m.Value}
		if m, ok := newest[c.Name]; ok {
			a.Known, a.OK, a.AgeSeconds = true, m.OK, (now - m.At).Seconds()
			if !m.OK {
				a.Message = m.Message
			}
		}
		if st := g.states[c.Name]; st != nil && st.ok == a.OK { // else it has just changed
			a.SinceSeconds = (now - st.since).Seconds()
		}
		if ill := g.unhealthy[c.Name]; ill != nil && ill.reported {
			a.UnhealthySince = ill.since
		}
		if t := g.ledger.Trial; t != nil {
			switch {
			case slices.Contains(t.Baseline.Convicting, c.Name):
				a.Role = "convicting"
			case slices.Contains(t.Baseline.Exempt, c.Name):
				a.Role = "exempt"
			}
		}
		out = append(out, a)
	}
	return out
}

func writeJSONFile(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.Replace(path, append(b, '\n'), 0o644)
}
