package selftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

const (
	// maxOutput is how much of the end of a command's output is kept.
	maxOutput = 4 << 10
	// drain is how long a command's output may stay open once its whole group is dead: only a process that has left the
	// group (setsid) can hold it, and that must not hold us.
	drain = 200 * time.Millisecond

	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// command runs argv in folder / with a minimal environment; exit status 0 is good, and the end of its output is the message.
func command(ctx context.Context, name string, argv []string, timeout time.Duration) outcome {
	output, err := run(ctx, name, argv)
	said := printable(output)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return outcome{ok: true, message: cmp.Or(said, "exit status 0")}
	case !errors.As(err, &exit):
		return outcome{message: "cannot be run: " + err.Error()}
	case ctx.Err() != nil && signalOf(exit) == unix.SIGKILL:
		return outcome{message: joined("did not end within "+timeout.String()+" and was killed", said)}
	case exit.Exited():
		return outcome{message: joined(fmt.Sprintf("exit status %d", exit.ExitCode()), said)}
	default:
		return outcome{message: joined(fmt.Sprintf("killed by %s", unix.SignalName(signalOf(exit))), said)}
	}
}

func joined(what, said string) string {
	if said == "" {
		return what
	}
	return what + ": " + said
}

func signalOf(e *exec.ExitError) syscall.Signal {
	if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ws.Signal()
	}
	return 0
}

// run runs argv until it or ctx ends and returns the last maxOutput bytes that it wrote to stdout and stderr. The command leads a
// process group of its own, and when run returns the whole group has been sent SIGKILL: after the timeout, but also when
// the command has ended by itself and left something behind.
//
// os/exec's own Cancel and WaitDelay are not enough: they reap the leader first, and from then on the
// group's number may belong to somebody else. Here the leader stays a zombie until its group is killed.
func run(ctx context.Context, name string, argv []string) (output string, err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + cmp.Or(os.Getenv("PATH"), defaultPath), "LANG=C", "HOLDFAST_CHECK=" + name}
	// Should the guard be killed, the kernel kills the leader in its place.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	// A pipe of our own: one of os/exec's would be read for as long as anybody holds its other end.
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w

	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		// Pdeathsig is sent when the *thread* that started the command ends. Waiting blocks a thread in any case.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			awaitExit(cmd.Process.Pid)
		}
	}()
	err = <-started
	w.Close()
	if err != nil {
		return "", err
	}
	kept := make(chan string, 1)
	go func() { kept <- tail(r) }()

	group := -cmd.Process.Pid
	select {
	case <-ended:
	case <-ctx.Done():
		_ = unix.Kill(group, unix.SIGKILL)
		<-ended
	}
	_ = unix.Kill(group, unix.SIGKILL) // what the leader left behind; the leader itself is a zombie, so the number is still ours
	err = cmd.Wait()
	_ = r.SetReadDeadline(time.Now().Add(drain))
	return <-kept, err
}

// awaitExit waits until the child has ended, and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// tail reads f to its end, or until its deadline, and returns the last maxOutput bytes.
func tail(f *os.File) string {
	buf := make([]byte, 0, 2*maxOutput)
	cut := false
	for {
		if over := len(buf) - maxOutput; over > 0 {
			buf, cut = append(buf[:0], buf[over:]...), true
		}
		n, err := f.Read(buf[len(buf):cap(buf)])
		if err != nil { // then n is 0
			break
		}
		buf = buf[:len(buf)+n]
	}
	if cut {
		return "…" + string(buf)
	}
	return string(buf)
}

// printable makes text that came from outside fit for a log, a terminal and JSON.
func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "")))
}
