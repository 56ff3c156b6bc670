package scenario

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// disk is a small file system of a scenario's own, mounted over its state folder: a tmpfs in a user and mount
// namespace, which needs no root. Processes that are to see it are started through enter; the harness reaches it through root.
type disk struct {
	holder *exec.Cmd // keeps the namespaces, and so what is on the disk, until the scenario ends
	hold   io.Closer
	dir    string
}

// errNoNamespaces reports that this machine does not let its users have a file system of their own.
var errNoNamespaces = errors.New("no user and mount namespaces here (sysctl kernel.unprivileged_userns_clone=1, or a container that allows unshare)")

// newDisk mounts an empty file system of size (as of tmpfs: 8M) at dir, for those that enter only.
func newDisk(dir, size string) (*disk, error) {
	d := &disk{dir: dir}
	d.holder = exec.Command("unshare", "--user", "--map-root-user", "--mount", "--propagation", "private",
		"sh", "-c", `mount -t tmpfs -o "mode=0755,size=$1" none "$2" && echo ready && read _`, "sh", size, dir)
	d.holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if d.hold, err = d.holder.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := d.holder.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	d.holder.Stderr = &stderr
	if err := startCmd(d.holder); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoNamespaces, err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		d.close()
		return nil, fmt.Errorf("%w: %s", errNoNamespaces, strings.TrimSpace(stderr.String()))
	}
	return d, nil
}

func (d *disk) close() {
	d.hold.Close()
	d.holder.Process.Kill()
	d.holder.Wait()
}

// enter is the command line that runs argv where the disk is mounted. nsenter becomes argv: the process id is that of argv.
func (d *disk) enter(argv ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(d.holder.Process.Pid), "--user", "--preserve-credentials", "--mount", "--"}, argv...)
}

// root is the disk as seen from outside.
func (d *disk) root() string {
	return filepath.Join("/proc", strconv.Itoa(d.holder.Process.Pid), "root", d.dir)
}

const ballast = ".ballast"

// fill writes until there is no space left.
func (d *disk) fill() error {
	f, err := os.OpenFile(filepath.Join(d.root(), ballast), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 16; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) free() error { return os.Remove(filepath.Join(d.root(), ballast)) }

// remount makes it ro or rw. That needs that no file is open for writing, as at the boot of a board that finds its disk in doubt.
func (d *disk) remount(mode string) error {
	argv := d.enter("mount", "-o", "remount,bind,"+mode, d.dir)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot remount: %w: %s", err, out)
	}
	return nil
}

func TestDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := newDisk(dir, "2M")
	if errors.Is(err, errNoNamespaces) {
		leaveOut(t, err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	run := func(script string) (string, error) {
		argv := d.enter("sh", "-c", script)
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		return string(out), err
	}
	if out, err := run("echo kept >" + dir + "/f && id -u"); err != nil || out != "0\n" {
		t.Fatalf("a process on the disk: %q, %v; want uid 0", out, err)
	}
	if b, err := os.ReadFile(filepath.Join(d.root(), "f")); err != nil || string(b) != "kept\n" {
		t.Errorf("from outside f is %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "f")); err == nil {
		t.Error("the disk is seen without entering")
	}
	if err := d.fill(); err != nil {
		t.Fatal(err)
	}
	if out, err := run("head -c 9999 /dev/zero >" + dir + "/g"); err == nil || !strings.Contains(out, "No space left") {
		t.Errorf("writing to the full disk: %q, %v", out, err)
	}
	if err := d.free(); err != nil {
		t.Fatal(err)
	}
	if err := d.remount("ro"); err != nil {
		t.Fatal(err)
	}
	if out, err := run("echo more >" + dir + "/g"); err == nil || !strings.Contains(out, "Read-only") {
		t.Errorf("writing to the read-only disk: %q, %v", out, err)
	}
	if err := d.remount("rw"); err != nil {
		t.Fatal(err)
	}
	if out, err := run("echo more >" + dir + "/g && cat " + dir + "/f"); err != nil || out != "kept\n" {
		t.Errorf("after all that: %q, %v", out, err)
	}
}

// leaveOut skips a test that this machine does not allow; in CI that is a failure.
func leaveOut(t testing.TB, why error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("left out, which CI does not allow: %v", why)
	}
	who := "?"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	t.Skipf("left out as %s: %v (allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000; or run as root)", who, why)
}
