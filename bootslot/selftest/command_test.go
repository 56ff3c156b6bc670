package selftest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const helperEnv = "HOLDFAST_SELFTEST_HELPER"

// TestMain lets the test binary be a guard that can be killed.
func TestMain(m *testing.M) {
	if script := os.Getenv(helperEnv); script != "" {
		command(context.Background(), "c", []string{"/bin/sh", "-c", script}, time.Hour)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func sh(t *testing.T, timeout time.Duration, script string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return command(ctx, "the-name", append([]string{"/bin/sh", "-c", script, "sh"}, args...), timeout)
}

func TestCommand(t *testing.T) {
	t.Setenv("SECRET", "not for checks")
	t.Setenv("PATH", "/usr/bin:/bin")
	tests := []struct {
		name, script string
		ok           bool
		message      string
	}{
		{"silent", "exit 0", true, "exit status 0"},
		{"says something", "echo registered, 71 %; echo and more >&2", true, "registered, 71 %\nand more"},
		{"fails", "echo no carrier >&2; exit 3", false, "exit status 3: no carrier"},
		{"fails in silence", "exit 1", false, "exit status 1"},
		{"crashes", "echo oops; kill -SEGV $$", false, "killed by SIGSEGV: oops"},
		{"kills itself", "kill -KILL $$", false, "killed by SIGKILL"},
		{"environment", "env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort", true, "HOLDFAST_CHECK=the-name\nLANG=C\nPATH=/usr/bin:/bin"},
		{"folder", "pwd", true, "/"},
		{"no input", "cat; echo end", true, "end"},
		{"plays with the terminal", `printf 'a\033[31mb\000\377c\td\r\n'`, true, "a [31mb c\td"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := sh(t, time.Minute, tt.script)
			if got.ok != tt.ok || got.message != tt.message {
				t.Errorf("command(%q) = %v %q, want %v %q", tt.script, got.ok, got.message, tt.ok, tt.message)
			}
		})
	}
}

func TestCommandThatDoesNotExist(t *testing.T) {
	for _, argv := range [][]string{{"/no/such/check"}, {"no-such-check"}} {
		got := command(t.Context(), "c", argv, time.Minute)
		if got.ok || !strings.HasPrefix(got.message, "cannot be run: ") {
			t.Errorf("command(%q) = %v %q, want not OK, cannot be run", argv, got.ok, got.message)
		}
	}
}

func TestCommandTimeout(t *testing.T) {
	got := sh(t, 300*time.Millisecond, "sleep 300")
	if want := "did not end within 300ms and was killed"; got.ok || got.message != want {
		t.Errorf("command(sleep) = %v %q, want false %q", got.ok, got.message, want)
	}
}

func TestOutputFloodIsBounded(t *testing.T) {
	t.Parallel()
	got := sh(t, time.Second, "yes")
	if got.ok || !strings.HasPrefix(got.message, "did not end within 1s and was killed: ") {
		t.Errorf("command(yes) = %v %.60q, want not OK: did not end", got.ok, got.message)
	}
	if n := len(got.message); n < maxOutput || n > maxOutput+100 {
		t.Errorf("command(yes) has a message of %d bytes, want some %d", n, maxOutput)
	}
}

func TestTheEndOfTheOutputIsKept(t *testing.T) {
	for _, lines := range []int{1, 700, 819, 820, 1640, 100000} {
		got := sh(t, time.Minute, `i=0; yes line | head -n $1; echo last; exit 1`, strconv.Itoa(lines))
		all := strings.Repeat("line\n", lines) + "last\n"
		want := "exit status 1: " + strings.TrimSpace(all)
		if over := len(all) - maxOutput; over > 0 {
			want = "exit status 1: …" + strings.TrimSuffix(all[over:], "\n")
		}
		if got.message != want {
			t.Errorf("%d lines: message has %d bytes and ends in %q, want %d", lines, len(got.message), got.message[max(0, len(got.message)-20):], len(want))
		}
	}
}

func TestFloodTakesNoMemory(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const size = 16 << 20
	go func() {
		defer w.Close()
		block := make([]byte, 1<<16)
		for range size / len(block) {
			_, _ = w.Write(block)
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := tail(r)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; len(got) != maxOutput+len("…") || used > 1<<20 {
		t.Errorf("tail of 16 MiB kept %d bytes and allocated %d, want %d and less than 1 MiB", len(got), used, maxOutput+len("…"))
	}
}

// TestWholeGroupIsKilled: a command that forks, all of it deaf to SIGTERM, with the grandchild holding the pipe.
func TestWholeGroupIsKilled(t *testing.T) {
	tests := []struct {
		name, script string
		ok           bool
	}{
		{"hangs", `trap "" TERM; (trap "" TERM; sleep 300; sleep 300) & echo $$ > $1.new; mv $1.new $1; wait`, false},
		{"ends and leaves a child", `(trap "" TERM; sleep 300; sleep 300) & echo $$ > $1.new; mv $1.new $1; echo done`, true},
		{"fails and leaves a child", `(trap "" TERM; sleep 300; sleep 300) & echo $$ > $1.new; mv $1.new $1; exit 7`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan outcome, 1)
			go func() { ended <- command(ctx, "c", []string{"/bin/sh", "-c", tt.script, "sh", file}, time.Minute) }()
			var group int
			until(t, "the command's pid", func() bool {
				b, err := os.ReadFile(file)
				group, _ = strconv.Atoi(strings.TrimSpace(string(b)))
				return err == nil
			})
			if tt.name == "hangs" {
				if got := alive(t, group); len(got) < 2 {
					t.Errorf("before the timeout %q are alive, want the command and its child", got)
				}
				cancel() // what the timeout does
			}
			select {
			case got := <-ended:
				if got.ok != tt.ok {
					t.Errorf("command() = %v %q, want %v", got.ok, got.message, tt.ok)
				}
			case <-time.After(20 * time.Second):
				t.Errorf("command() is held up by what it forked")
			}
			var left []string
			defer func() {
				if len(left) > 0 {
					t.Errorf("still alive: %q", left)
					_ = syscall.Kill(-group, syscall.SIGKILL)
				}
			}()
			// SIGKILL has been sent; the kernel needs a moment.
			until(t, "the group's death", func() bool { left = alive(t, group); return len(left) == 0 })
		})
	}
}

// TestRunawayHoldsNobody: a process that has left the group is not ours to kill, but it must not block us by the pipe that it inherited.
func TestRunawayHoldsNobody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	got := sh(t, time.Minute, `setsid sh -c 'echo $$ > $0.new; mv $0.new $0; sleep 300' $1 & while ! test -e $1; do sleep 0.01; done; echo done`, file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(-pid, syscall.SIGKILL)
	if !got.ok || got.message != "done" {
		t.Errorf("command() = %v %q, want true %q", got.ok, got.message, "done")
	}
	if len(alive(t, pid)) == 0 {
		t.Error("the runaway is dead: this test shows nothing")
	}
}

func TestCommandDiesWithTheGuard(t *testing.T) {
	guard := exec.Command(os.Args[0])
	file := filepath.Join(t.TempDir(), "pid")
	guard.Env = append(os.Environ(), helperEnv+"=echo $$ > "+file+".new; mv "+file+".new "+file+"; exec sleep 300")
	if err := guard.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	until(t, "the command's pid", func() bool {
		b, err := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	if len(alive(t, pid)) != 1 {
		t.Fatal("the command does not run")
	}
	if err := guard.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = guard.Wait()
	defer syscall.Kill(pid, syscall.SIGKILL)
	until(t, "the command's death", func() bool { return len(alive(t, pid)) == 0 })
}

// alive lists the processes of a group that are neither dead nor zombies.
func alive(t *testing.T, group int) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		t.Fatalf("no processes in /proc: %v", err)
	}
	var out []string
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			continue // it has just ended
		}
		line, _ := bufio.NewReader(f).ReadString('\n')
		f.Close()
		_, after, ok := strings.Cut(line, ") ") // pid (comm) state ppid pgrp
		fields := strings.Fields(after)
		if !ok || len(fields) < 3 || fields[2] != strconv.Itoa(group) || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		out = append(out, fmt.Sprint(filepath.Dir(file), " ", fields[0]))
	}
	return out
}
