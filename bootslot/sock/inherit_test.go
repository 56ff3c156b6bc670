package sock

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be a process that systemd starts.
func TestMain(m *testing.M) {
	switch path := os.Getenv("SOCK_TEST_PATH"); os.Getenv("SOCK_TEST_PROCESS") {
	case "serve":
		serve(path)
	case "lock":
		if _, err := Lock(path, "guard"); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
	default:
		os.Exit(m.Run())
	}
}

// serve serves path, stops, and serves it again, once for each line that it reads. To a request it answers what a command sees that it starts.
func serve(path string) {
	Inherit(path)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		l, err := Listen(path)
		if err != nil {
			fmt.Println(err)
			return
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out, _ := exec.Command("sh", "-c", `env | grep ^LISTEN_; ls -l /proc/self/fd`).CombinedOutput()
			_, _ = w.Write(out)
		})}
		go func() { _ = srv.Serve(l) }()
		fmt.Println("listening on", l.Addr())
		lines.Scan()
		_ = srv.Close()
		fmt.Println("closed")
	}
}

// A socket that systemd has opened is used as it is, outlives the process and each of its servers, and is nothing for the commands that it starts.
func TestASocketOfSystemds(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "guard.sock")
	open := func(name string) *os.File {
		t.Helper()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	ours := open("guard.sock")
	if err := os.Chmod(path, 0o606); err != nil { // no mode that Listen would choose
		t.Fatal(err)
	}
	others := open("agent.sock")
	plain, err := os.Create(filepath.Join(dir, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	passed := []*os.File{others, ours, plain}
	var names []string // as /proc calls them
	for _, f := range passed {
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	// The shell knows the number of the process that it becomes.
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), "LISTEN_FDS=3", "LISTEN_FDNAMES=a:b:c", "SOCK_TEST_PROCESS=serve", "SOCK_TEST_PATH="+path)
	cmd.ExtraFiles = passed
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = cmd.Wait() }()
	said := bufio.NewScanner(out)
	step := func(want string) {
		t.Helper()
		fmt.Fprintln(in)
		if said.Scan(); said.Text() != want {
			t.Fatalf("the process says %q, want %q", said.Text(), want)
		}
	}
	ask := func() chan string {
		answer := make(chan string, 1)
		go func() {
			c, err := net.Dial("unix", path)
			if err != nil {
				answer <- err.Error()
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			b, _ := io.ReadAll(c)
			answer <- string(b)
		}()
		return answer
	}
	for range 2 {
		queued := ask() // nobody serves it now, and nobody is refused
		select {
		case a := <-queued:
			t.Fatalf("with nobody there: %q", a)
		case <-time.After(50 * time.Millisecond):
		}
		step("listening on " + path)
		a := <-queued
		head, body, _ := strings.Cut(a, "\r\n\r\n")
		if !strings.Contains(head, "200 OK") || !strings.Contains(body, "/proc/") || strings.Contains(body, "LISTEN_") {
			t.Errorf("a command of the process sees in its environment:\n%s", a)
		}
		for _, name := range names {
			if strings.Contains(body, name) {
				t.Errorf("a command of the process has %s open", name)
			}
		}
		step("closed")
	}
	fds, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, fd := range fds {
		if to, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "fd", fd.Name())); slices.Contains(names, to) {
			kept = append(kept, to)
		}
	}
	if !slices.Equal(kept, names[1:2]) {
		t.Errorf("of %v the process has %v open, want its own socket alone", names, kept)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) || after.Mode() != before.Mode() {
		t.Errorf("the socket was touched: %v, then %v, %v", before.Mode(), after, err)
	}
}

// A lock that another user's process left behind, in a folder where only his own files are a user's to change, is still a lock.
func TestLockOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "guard.lock")
	if err := os.WriteFile(path, []byte("1\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	child := func() (string, error) {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "SOCK_TEST_PROCESS=lock", "SOCK_TEST_PATH="+path)
		if os.Geteuid() == 0 { // who may write to everything; another user may not
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	for d := dir; strings.HasPrefix(d, os.TempDir()) && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if out, err := child(); err != nil || out != "locked" {
		t.Errorf("a file that is somebody else's: %v, %s", err, out)
	}
	held, err := Lock(path, "guard")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if out, err := child(); err == nil || !strings.HasPrefix(out, "another guard is running") {
		t.Errorf("one that is held: %v, %s", err, out)
	}
}
