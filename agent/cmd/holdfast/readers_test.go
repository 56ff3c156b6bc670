package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/agent/gitclone"
)

// somebody is who runs a command, and what of the board is a read-only disk for it.
type somebody struct {
	uid, gid int
	readOnly string // a folder
}

// asHoldfast names the environment variable that makes the test binary the real command of somebody: JSON of both.
const asHoldfast = "HOLDFAST_TEST_AS"

type commandLine struct {
	UID, GID int
	ReadOnly string
	Args     []string
}

// mainAsSomebody is the process that command starts.
func mainAsSomebody() int {
	var c commandLine
	err := json.Unmarshal([]byte(os.Getenv(asHoldfast)), &c)
	if c.ReadOnly != "" { // in a mount namespace of this process
		err = errors.Join(err, unix.Mount(c.ReadOnly, c.ReadOnly, "", unix.MS_BIND, ""), unix.Mount("", c.ReadOnly, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
	if err := errors.Join(err, syscall.Setgroups(nil), syscall.Setgid(c.GID), syscall.Setuid(c.UID)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return -1
	}
	return Main(context.Background(), c.Args, os.Stdout, os.Stderr)
}

// command returns what runs a command line as somebody else, in a process of its own. That takes root.
func (b boardDir) command() func(who somebody, args ...string) (code int, out string) {
	b.t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		b.t.Fatal(err)
	}
	exe := b.path("holdfast.test")
	if err := os.WriteFile(exe, self, 0o755); err != nil {
		b.t.Fatal(err)
	}
	for { // until no child of another test has the file open for writing, as all have at their start what this process had
		if err := exec.Command(exe, "-test.list=^$").Run(); !errors.Is(err, unix.ETXTBSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func(who somebody, args ...string) (int, string) {
		b.t.Helper()
		line, err := json.Marshal(commandLine{who.uid, who.gid, who.readOnly, append(args, "--config", b.config, "--share", "")})
		if err != nil {
			b.t.Fatal(err)
		}
		cmd := exec.Command(exe)
		cmd.Dir = b.dir
		cmd.Env = append(os.Environ(), asHoldfast+"="+string(line))
		if who.readOnly != "" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		}
		out, err := cmd.CombinedOutput()
		if err != nil && !errors.As(err, new(*exec.ExitError)) {
			b.t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
}

// TestReadersOfADeadBoard: with agent and guard dead every verb that reads answers from the files, on a disk that is read-only, too. A member of the group
// is told as much as root, anybody else who may ask. Nobody writes anything.
func TestReadersOfADeadBoard(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a disk and to run as somebody else: sudo make unit")
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: make deps")
	}
	b := newBoard(t)
	b.keepLedger()
	for _, dir := range []string{"agent", "guard"} { // as the README has them installed
		path := b.path("state", dir)
		if err := errors.Join(os.MkdirAll(path, 0o750), os.Chmod(path, 0o750|os.ModeSetgid), os.Chown(path, 0, 4711), os.Chmod(path, 0o750|os.ModeSetgid)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ledger.db", "ledger.json"} {
		if err := os.Chown(b.path("state", "guard", name), 0, 4711); err != nil {
			t.Fatal(err)
		}
	}
	clone, err := gitclone.Open(gitclone.Options{Path: b.path("state", "agent", "clone.db"), URL: b.stateRepository(), Branch: "main", File: "greenhouse.yaml", Now: time.Now})
	if err == nil {
		_, err = clone.Fetch(context.Background())
		err = errors.Join(err, clone.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(b.path("run"), 0, 4711), os.Chmod(b.path("run"), 0o770|os.ModeSetgid), os.Chmod(b.dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	checks := b.path("check.d", "required")
	if err := errors.Join(os.MkdirAll(checks, 0o755), os.Chmod(checks, 0o700)); err != nil {
		t.Fatal(err)
	}
	holdfast := b.command()
	before := b.list()
	for name, who := range map[string]somebody{"root": {}, "a member": {65534, 4711, ""}, "somebody": {65534, 65534, ""},
		"root, read-only": {0, 0, b.path("state")}, "a member, read-only": {65534, 4711, b.path("state")}, "somebody, read-only": {65534, 65534, b.path("state")}} {
		for _, tt := range []struct {
			args        []string
			code        int
			want, stray string // told to root and members, and to anybody else
		}{
			{[]string{"status"}, 1, "Nobody keeps the device: agent and guard are dead", "What is in force cannot be told"},
			{[]string{"status", "--oneline"}, 1, "nobody 1111111", "unreadable"},
			{[]string{"why", "lamp"}, 0, "lamp is to be off: that is the value of last-known-good 1111111", "the ledger cannot be read"},
			{[]string{"why", "2"}, 0, "The check not-too-hot failed: 41.2", "the ledger cannot be read"},
			{[]string{"history"}, 0, "2222222", "the history cannot be read"},
			{[]string{"marks"}, 0, "lamp=on", "the marks cannot be read"},
			{[]string{"slots"}, 0, "fan=on", "the slots cannot be read"},
			{[]string{"diff"}, 1, "fan   on", "cannot be"},
			{[]string{"diff", "A"}, 1, "A 1111111", "cannot be"},
			{[]string{"selftest"}, 1, "device-answers", "the guard is not reachable"},
			{[]string{"doctor", "--check-dirs", b.path("check.d")}, 1, "both copies are there", "unknown  guard"},
		} {
			code, out := holdfast(who, tt.args...)
			want := tt.want
			if who.gid == 65534 {
				tt.code, want = max(tt.code, 1), tt.stray
				if tt.args[len(tt.args)-1] != "--oneline" && !strings.Contains(out, "run as root or as a member of the group 4711, which owns "+b.path("run")) {
					t.Errorf("%s: holdfast %v does not say who may ask:\n%s", name, tt.args, out)
				}
			}
			if code != tt.code && !(tt.args[0] == "diff" && code == 2) || !strings.Contains(out, want) {
				t.Errorf("%s: holdfast %v: exit code %d, want %d and %q:\n%s", name, tt.args, code, tt.code, want, out)
			}
			if told := strings.Contains(out, "unknown  check.d"); told != (who.uid != 0 && tt.args[0] == "doctor") || strings.Contains(out, "problem  check.d") {
				t.Errorf("%s: holdfast %v says of checks that this user may not look at:\n%s", name, tt.args, out)
			}
			if who.readOnly != "" && who.gid != 65534 && tt.args[0] == "doctor" && !strings.Contains(out, "is read-only: nothing can be recorded") {
				t.Errorf("%s: holdfast doctor does not see the disk:\n%s", name, out)
			}
		}
	}
	if after := b.list(); after != before {
		t.Errorf("the files have changed:\n%s\n%s", before, after)
	}
}
