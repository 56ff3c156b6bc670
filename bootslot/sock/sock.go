// Package sock is what the sockets of agent and guard have in common: one process per run folder, a socket that a dead process left
// behind is no obstacle, its group may read and operate, and who asks is known.
package sock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// Bounds on a peer's patience: RequestTime is how long it may take to send a request's head, and as long again its body (HurryBody); AnswerTime
// is how long an answer, a wait included, may take to be read.
const (
	RequestTime = 5 * time.Second
	LongPoll    = 25 * time.Second
	AnswerTime  = LongPoll + 2*RequestTime
)

// RunningError reports that another process has the lock.
type RunningError struct {
	What string // guard or agent
	PID  int    // 0 if it is not known
}

func (e RunningError) Error() string {
	if e.PID == 0 {
		return "another " + e.What + " is running"
	}
	return fmt.Sprintf("another %s is running, with process id %d", e.What, e.PID)
}

// Lock makes sure that this agent or guard is the only one: it holds the kernel's lock on the file at path until it is closed, or the
// process ends in whatever way. RunningError if another process has it; any other error says that there is no way to tell.
func Lock(path, what string) (io.Closer, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := openLock(path)
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
		return nil, RunningError{what, pid}
	}
	// The number is for people; what counts is the lock, so a file that cannot be written is no reason to give up.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

// Held reports whether a process has the lock at path: true also if that cannot be told. It looks (/proc/locks, proc_locks(5)) and does not try, which could
// keep from starting whoever is about to.
func Held(path string) bool {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return true
	}
	// 1: FLOCK  ADVISORY  WRITE 4711 00:18:4242 0 EOF
	inode := strconv.FormatUint(st.Ino, 10)
	for line := range strings.Lines(string(locks)) {
		if f := strings.Fields(line); len(f) > 5 && f[1] == "FLOCK" && strings.HasSuffix(f[5], ":"+inode) {
			return true
		}
	}
	return false
}

// openLock opens the file at path, and makes it if it is not there. One that another user left behind, such as root who tried the process by hand, can only
// be read: that is enough for the lock. Only what is not there is created, as the kernel refuses O_CREAT for somebody else's file in a sticky folder
// (fs.protected_regular, proc_sys_fs(5)).
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644); errors.Is(err, fs.ErrExist) {
			return os.OpenFile(path, os.O_RDWR, 0) // another one was faster
		}
	case errors.Is(err, fs.ErrPermission):
		return os.Open(path)
	}
	return f, err
}

// inherited is the socket that systemd has opened for this process, by its path. It stays open for as long as the process lives: when its server has ended
// it can be listened on again, and who connects meanwhile waits.
var inherited = map[string]*os.File{}

// Inherit takes over the socket at path if systemd has opened it (sd_listen_fds(3)), closes whatever else it has passed, and takes all trace of that out of
// the environment. It is called once, before Listen and before a command is started, which would inherit it all.
func Inherit(path string) {
	for _, f := range activation.Files(true) {
		l, err := net.FileListener(f)
		if err != nil {
			f.Close()
			continue
		}
		l.Close() // a duplicate: what it was for is its address
		if l.Addr().Network() == "unix" && l.Addr().String() == path && inherited[path] == nil {
			inherited[path] = f
		} else {
			f.Close()
		}
	}
}

// Listen listens on the socket at path. If systemd has opened it, it is systemd's, with its owner and mode. Else it is made, mode 0660; one that a dead
// process left behind is removed: who calls has the lock.
func Listen(path string) (net.Listener, error) {
	if f := inherited[path]; f != nil {
		return net.FileListener(f)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Server returns a server for such a socket, whose requests know their peer and whose slow peers are let go. Its requests end with ctx.
func Server(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hurryBody(w, r); h.ServeHTTP(w, r) }),
		ReadHeaderTimeout: RequestTime,
		WriteTimeout:      AnswerTime,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withPeer,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}

// hurryBody bounds the time for a body. Not for a GET: it may wait, and its connection is watched for its end meanwhile.
func hurryBody(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		// An answer that is no connection (a test's recorder) has no deadline.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(RequestTime))
	}
}

// peerKey carries the peer's user in a request's context.
type peerKey struct{}

// withPeer notes who has connected, as the kernel vouches for it (SO_PEERCRED, unix(7)).
func withPeer(ctx context.Context, c net.Conn) context.Context {
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

// UID returns the peer's user, false if it is not known.
func UID(r *http.Request) (uint32, bool) {
	uid, ok := r.Context().Value(peerKey{}).(uint32)
	return uid, ok
}

// Who names the peer for log and history.
func Who(r *http.Request) string {
	uid, ok := UID(r)
	if !ok {
		return "unknown"
	}
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}
