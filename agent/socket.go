package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bootslot/api"
)

// longPoll is how long GET /v1/status?wait= stays open.
const longPoll = 25 * time.Second

// Handler serves the agent's socket:
//
//	GET  /v1/status?wait=CHANGE → status.Agent; with wait, once its change counter is another one (or after 25 s)
//	POST /v1/reconcile          {} → 202: fetch and look at the device now
//	POST /v1/accept             AcceptRequest → 202: take a head that does not descend from the one in force, once
//
// An error is a status of 400 and above with api.Error, as at the guard's socket.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		if s := r.URL.Query().Get("wait"); s != "" {
			n, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				answer(w, http.StatusBadRequest, api.Error{Message: "wait is not a change counter"})
				return
			}
			a.mu.Lock()
			now, next := a.changes.n, a.changes.c
			a.mu.Unlock()
			if now == n {
				select {
				case <-next:
				case <-r.Context().Done():
				case <-a.o.Clock.After(longPoll):
				}
			}
		}
		answer(w, http.StatusOK, a.Status())
	})
	mux.HandleFunc("POST /v1/reconcile", func(w http.ResponseWriter, r *http.Request) {
		a.o.Log.InfoContext(r.Context(), "asked to fetch now", "who", who(r))
		a.FetchNow()
		answer(w, http.StatusAccepted, struct{}{})
	})
	mux.HandleFunc("POST /v1/accept", func(w http.ResponseWriter, r *http.Request) {
		var in AcceptRequest
		if err := json.NewDecoder(io.LimitReader(r.Body, 4<<10)).Decode(&in); err != nil {
			answer(w, http.StatusBadRequest, api.Error{Message: "the request is not understood: " + err.Error()})
			return
		}
		if err := a.o.Clone.Accept(in.Revision); err != nil {
			answer(w, http.StatusBadRequest, api.Error{Message: err.Error()})
			return
		}
		a.o.Log.InfoContext(r.Context(), "revision accepted by an operator", "revision", in.Revision, "who", who(r))
		a.FetchNow()
		answer(w, http.StatusAccepted, struct{}{})
	})
	return mux
}

// peerKey carries the peer's user in a request's context.
type peerKey struct{}

// ConnContext is for the server of the agent's socket (http.Server): it notes who has connected, as the kernel vouches for it (SO_PEERCRED, unix(7)).
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *unix.Ucred
	if raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, cred.Uid)
}

// who names the peer for the log.
func who(r *http.Request) string {
	uid, ok := r.Context().Value(peerKey{}).(uint32)
	if !ok {
		return "unknown"
	}
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}

// AcceptRequest is `holdfast accept`.
type AcceptRequest struct {
	Revision string `json:"revision"` // 40 hex digits
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the other side is gone: nothing to be done
}

// Listen listens on the socket at path, mode 0660. One that an agent left behind is removed: who calls has the lock.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// RunningError reports that another agent runs.
type RunningError struct{ PID int }

func (e RunningError) Error() string {
	if e.PID == 0 {
		return "another agent is running"
	}
	return fmt.Sprintf("another agent is running, with process id %d", e.PID)
}

// Lock makes sure that this agent is the only one: it holds the kernel's lock on the file at path until it is closed, or the
// process ends in whatever way. RunningError if another process has it; any other error says that there is no way to tell.
func Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		b, _ := io.ReadAll(io.LimitReader(f, 32))
		pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return nil, RunningError{pid}
	}
	// The number is for people; what counts is the lock, so a file that cannot be written is no reason to give up.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}
