//go:build system

// Package systemtest installs the packages on a board that is really booted, with systemd as PID 1, and lives there: trials, reboots, upgrades, faults.
//
// A board is a container of systemd-nspawn: a root file system (root.sh) under an overlay of its own, and a network namespace with one cable, to the
// address where this package serves the state repository. All of it happens in namespaces that this process makes for itself: PIDs, mounts, network. So
// whatever ends it, even SIGKILL, ends every process that it started and every mount; what is left is a folder, which the next run removes.
//
//	make deb && make test-system        as root
package systemtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// world is the folder of this run; cgroup its control group.
var world, cgroup string

// What the inner process is told by the outer one.
const (
	envWorld = "HOLDFAST_SYSTEMTEST_WORLD"
	envRoot  = "HOLDFAST_SYSTEMTEST_ROOT"
)

func TestMain(m *testing.M) {
	if os.Getenv(envWorld) == "" {
		os.Exit(outside())
	}
	world = os.Getenv(envWorld)
	if err := inside(); err != nil {
		fmt.Fprintln(os.Stderr, "system tests:", err)
		os.Exit(1)
	}
	code := m.Run()
	removeCgroups(cgroup)
	os.Exit(code)
}

// needs says what this machine lacks.
func needs() error {
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("must be root: they boot a system, in namespaces of their own"))
	}
	for tool, pkg := range map[string]string{
		"systemd-nspawn": "systemd-container", "mmdebstrap": "mmdebstrap", "zstd": "zstd", "dpkg-deb": "dpkg",
		"nsenter": "util-linux", "flock": "util-linux", "ip": "iproute2", "git": "git",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: apt-get install %s, or make deps for all of them", tool, pkg))
		}
	}
	return errors.Join(errs...)
}

// outside runs this program again in namespaces of its own and returns its exit status. The kernel kills the inner process with this one, and with it all
// that is in its PID namespace.
func outside() int {
	fail := func(err error) int {
		fmt.Fprintf(os.Stderr, "system tests: %s\n", strings.ReplaceAll(err.Error(), "\n", "\nsystem tests: "))
		return 1
	}
	if err := needs(); err != nil {
		return fail(err)
	}
	out, err := os.CreateTemp("", "holdfast-root")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(out.Name())
	mk := exec.Command("./root.sh")
	mk.Stdout, mk.Stderr = out, os.Stderr
	if err := mk.Run(); err != nil {
		return fail(fmt.Errorf("root.sh: %w", err))
	}
	root, err := os.ReadFile(out.Name())
	if err != nil {
		return fail(err)
	}
	dir, unlock, err := newWorld(filepath.Dir(string(root)))
	if err != nil {
		return fail(err)
	}
	defer unlock()

	runtime.LockOSThread() // Pdeathsig is about the thread that starts the child
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), envWorld+"="+dir, envRoot+"="+strings.TrimSpace(string(root)))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Unshareflags: syscall.CLONE_NEWNS, // with private propagation: nothing that is mounted there is seen here
		Pdeathsig:    syscall.SIGKILL,
	}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		return fail(err)
	}
	return 0
}

// newWorld makes this run's folder below the cache, locked, and removes those that nobody locks any more.
func newWorld(cache string) (dir string, remove func(), err error) {
	old, _ := filepath.Glob(filepath.Join(cache, "world.*"))
	for _, o := range old {
		if f, err := os.Open(o); err == nil {
			if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				os.RemoveAll(o)
			}
			f.Close()
		}
	}
	if dir, err = os.MkdirTemp(cache, "world."); err != nil {
		return "", nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return dir, func() { os.RemoveAll(dir); f.Close() }, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

// inside prepares the namespaces: a /proc and a /run of their own, and control groups in the unified hierarchy, which systemd wants.
func inside() error {
	if os.Getpid() != 1 {
		return fmt.Errorf("%s is set by hand", envWorld)
	}
	// The machine's own control groups stay mounted where nobody in here looks.
	if err := syscall.Unmount("/sys/fs/cgroup", syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot unmount /sys/fs/cgroup: %w", err)
	}
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"tmpfs", "/run"}, {"sysfs", "/sys"}, {"cgroup2", "/sys/fs/cgroup"}} {
		if err := syscall.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("cannot mount %s at %s: %w", m.kind, m.at, err)
		}
	}
	old, _ := filepath.Glob("/sys/fs/cgroup/holdfast-systemtest.*")
	for _, o := range old {
		removeCgroups(o) // those of a run that goes on are not empty, and stay
	}
	cgroup = "/sys/fs/cgroup/holdfast-systemtest." + strings.TrimPrefix(filepath.Ext(world), ".")
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	lower = filepath.Join(world, "root")
	if err := os.Mkdir(lower, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("tar", "--zstd", "-xf", os.Getenv(envRoot), "-C", lower, "--numeric-owner").CombinedOutput(); err != nil {
		return fmt.Errorf("cannot unpack %s: %w: %s", os.Getenv(envRoot), err, out)
	}
	return nil
}

// removeCgroups removes a control group and those in it, as far as they are empty.
func removeCgroups(group string) {
	filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != group {
			removeCgroups(path)
			return filepath.SkipDir
		}
		return nil
	})
	syscall.Rmdir(group)
}
