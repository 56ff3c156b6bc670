//go:build system

package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// lower is the root file system below every board's.
var lower string

// patience is for what takes seconds on an idle machine. Nothing asserts how long a thing took.
const patience = 120 * time.Second

// board is a system that is booted, and the end of its cable.
type board struct {
	*testing.T
	n    int    // its number: 10.77.n.2 is its address, 10.77.n.1 that of its git server
	dir  string // its folder in this run's world
	root string // its file system
	net  *os.Process
	up   *upstream

	nspawn *exec.Cmd
	exited chan int // the exit status of nspawn
	leader int      // the PID of the board's PID 1
}

var boards atomic.Int32

// newBoard makes a board with layers below its file system, and does not boot it. It ends with the test.
func newBoard(t *testing.T, layers ...string) *board {
	t.Helper()
	b := &board{T: t, n: int(boards.Add(1))}
	b.dir = filepath.Join(world, strconv.Itoa(b.n))
	b.root = filepath.Join(b.dir, "root")
	for _, d := range []string{"root", "upper", "work"} {
		if err := os.MkdirAll(filepath.Join(b.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		b.end()
		os.RemoveAll(b.dir)
	})
	if err := syscall.Mount("overlay", b.root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", strings.Join(append(layers, lower), ":"), b.upper(), filepath.Join(b.dir, "work"))); err != nil {
		t.Fatalf("cannot mount the board's file system: %v", err)
	}
	b.write("/etc/machine-id", "77000000000000000000000000000077\n")
	b.write("/etc/hosts", fmt.Sprintf("127.0.0.1 localhost board\n10.77.%d.1 git.example.org\n", b.n))

	// A process holds the network namespace, so that the cable outlives a reboot.
	hold := exec.Command("sleep", "infinity")
	hold.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := hold.Start(); err != nil {
		t.Fatal(err)
	}
	b.net = hold.Process
	b.host("ip", "link", "add", b.cable(), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(b.net.Pid))
	b.host("ip", "address", "add", fmt.Sprintf("10.77.%d.1/24", b.n), "dev", b.cable())
	b.host("ip", "link", "set", b.cable(), "up")
	b.inNet("ip", "link", "set", "lo", "up")
	b.inNet("ip", "address", "add", fmt.Sprintf("10.77.%d.2/24", b.n), "dev", "eth0")
	b.inNet("ip", "link", "set", "eth0", "up")
	b.up = newUpstream(t, filepath.Join(b.dir, "git"), fmt.Sprintf("10.77.%d.1:80", b.n))
	return b
}

func (b *board) upper() string { return filepath.Join(b.dir, "upper") }
func (b *board) cable() string { return fmt.Sprintf("board%d", b.n) }

// host runs a command of the harness.
func (b *board) host(name string, args ...string) {
	b.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// inNet is host, in the board's network namespace.
func (b *board) inNet(args ...string) {
	b.Helper()
	b.host("nsenter", append([]string{"--target", strconv.Itoa(b.net.Pid), "--net", "--"}, args...)...)
}

// cut pulls the cable out; restore puts it back in.
func (b *board) cut()     { b.Helper(); b.host("ip", "link", "set", b.cable(), "down") }
func (b *board) restore() { b.Helper(); b.host("ip", "link", "set", b.cable(), "up") }

// write puts a file into the board's file system, as root's.
func (b *board) write(path, text string) {
	b.Helper()
	path = filepath.Join(b.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		b.Fatal(err)
	}
}

// boot starts the board and waits until it runs.
func (b *board) boot() {
	b.Helper()
	b.start()
	b.running()
}

// running waits until systemd says that the system runs, with no unit failed.
func (b *board) running() {
	b.Helper()
	var out string
	b.until("the system runs", func() bool {
		out, _ = b.try("systemctl is-system-running --wait")
		return out == "running" || out == "degraded"
	})
	if out != "running" {
		b.Fatalf("the system is %s: %s", out, b.sh("systemctl --failed --no-legend; journalctl -b -p err --no-pager"))
	}
}

// start starts the board and waits until it has a PID 1.
func (b *board) start() {
	b.Helper()
	console, err := os.OpenFile(filepath.Join(b.dir, "console"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer console.Close()
	notify := filepath.Join(b.dir, "notify")
	os.Remove(notify)
	said, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		b.Fatal(err)
	}
	defer said.Close()
	group := filepath.Join(cgroup, strconv.Itoa(b.n))
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		b.Fatal(err)
	}
	g, err := os.Open(group)
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	b.nspawn = exec.Command("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", "--directory="+b.root,
		fmt.Sprintf("--network-namespace-path=/proc/%d/ns/net", b.net.Pid), "--resolv-conf=off", "--timezone=off", "--link-journal=no",
		"--machine="+b.cable(), "--console=pipe")
	b.nspawn.Env = []string{"PATH=" + os.Getenv("PATH"), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1", "NOTIFY_SOCKET=" + notify}
	b.nspawn.Stdout, b.nspawn.Stderr = console, console
	b.nspawn.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.Fd())}
	if err := b.nspawn.Start(); err != nil {
		b.Fatal(err)
	}
	exited := make(chan int, 1)
	go func(cmd *exec.Cmd) {
		cmd.Wait()
		exited <- cmd.ProcessState.ExitCode()
	}(b.nspawn)
	b.exited = exited
	said.SetReadDeadline(time.Now().Add(patience))
	for buf := make([]byte, 4096); ; {
		n, err := said.Read(buf)
		if err != nil {
			text, _ := os.ReadFile(filepath.Join(b.dir, "console"))
			b.Fatalf("systemd-nspawn does not start the board: %v\n%s", err, text)
		}
		if m := regexp.MustCompile(`(?m)^X_NSPAWN_LEADER_PID=(\d+)$`).FindSubmatch(buf[:n]); m != nil {
			b.leader, _ = strconv.Atoi(string(m[1]))
			return
		}
	}
}

// stopped waits for the end of the board's PID 1 and checks how it ended: nspawn returns 133 for a reboot, 0 for a poweroff.
func (b *board) stopped(want int) {
	b.Helper()
	select {
	case got := <-b.exited:
		b.nspawn = nil
		if got != want {
			b.Fatalf("systemd-nspawn: exit status %d, want %d", got, want)
		}
	case <-time.After(patience):
		b.Fatal("the board does not stop")
	}
}

func (b *board) reboot() {
	b.Helper()
	b.restart()
	b.running()
}

// restart is a reboot after which not all has to be well.
func (b *board) restart() {
	b.Helper()
	b.try("systemctl reboot")
	b.stopped(133)
	b.start()
}

func (b *board) poweroff() {
	b.Helper()
	b.try("systemctl poweroff")
	b.stopped(0)
}

// powerCut ends all that runs on the board, at once.
func (b *board) powerCut() {
	b.Helper()
	if err := syscall.Kill(b.leader, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	<-b.exited
	b.nspawn = nil
}

// end takes the board away, whatever state it is in, and leaves its files.
func (b *board) end() {
	if b.net == nil {
		return
	}
	if b.Failed() && b.nspawn != nil {
		out, _ := b.try("journalctl --no-pager -o short-monotonic -n 150; systemctl --failed --no-legend")
		b.Logf("the board's journal:\n%s", out)
	}
	if b.nspawn != nil {
		b.powerCut()
	}
	if err := syscall.Unmount(b.root, syscall.MNT_DETACH); err != nil {
		b.Errorf("cannot unmount %s: %v", b.root, err)
	}
	b.net.Kill()
	b.net.Wait()
	b.net = nil
	removeCgroups(filepath.Join(cgroup, strconv.Itoa(b.n)))
}

// exec runs a command on the board and returns what it printed, to stdout and stderr.
func (b *board) exec(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(b.leader), "--all", "--root", "--wd", "--"}, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_PAGER=", "COLUMNS=300"}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimRight(string(out), "\n"), err
}

// try runs a script on the board; sh one that must succeed.
func (b *board) try(script string) (string, error) { return b.exec("sh", "-c", script) }

func (b *board) sh(script string) string {
	b.Helper()
	out, err := b.try(script)
	if err != nil {
		b.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// as runs a script on the board as one of its users.
func (b *board) as(user, script string) (string, error) {
	return b.exec("runuser", "-u", user, "--", "sh", "-c", script)
}

// until waits for what a condition's name says.
func (b *board) until(what string, holds func() bool) {
	b.Helper()
	for start := time.Now(); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Since(start) > patience {
			b.Fatalf("still not so: %s", what)
		}
	}
}

// show is a property of a unit (systemctl show).
func (b *board) show(unit, property string) string {
	b.Helper()
	return b.sh("systemctl show --value --property=" + property + " " + unit)
}

// journal is the entries that journalctl finds, oldest first.
func (b *board) journal(args string) []map[string]any {
	b.Helper()
	var all []map[string]any
	out := b.sh("journalctl --no-pager --quiet --output=json " + args)
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var e map[string]any
		if err := dec.Decode(&e); err != nil {
			b.Fatalf("journalctl %s: %v", args, err)
		}
		all = append(all, e)
	}
	return all
}

// want says where a text lacks a part that it must have.
func (b *board) want(text string, parts ...string) {
	b.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			b.Errorf("lacks %q:\n%s", p, text)
		}
	}
}
