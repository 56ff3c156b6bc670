//go:build deb

// Package packaging tests what `make deb` has built: that it is the same each time, clean, runs on each architecture, and that its
// scripts leave a board as they should. How it works in a booted system is tested in packaging/systemtest.
package packaging

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// architectures are Debian's names, with the emulator that starts their programs on any machine.
var architectures = []struct {
	name, emulator string
	machine        elf.Machine
	arm            string // GOARM
}{
	{"amd64", "qemu-x86_64-static", elf.EM_X86_64, ""},
	{"arm64", "qemu-aarch64-static", elf.EM_AARCH64, ""},
	{"armhf", "qemu-arm-static", elf.EM_ARM, "7"},
}

const declared = "pump: on\nfan: off\nvent: on\nlamp: off\ndoor: closed\n"

// run runs a program in a folder, "" for this one, and returns what it says.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// packages are the files that `make deb` has built of this very state of the tree.
func packages(t *testing.T, name, arch string) []string {
	t.Helper()
	files, err := filepath.Glob("../dist/" + name + "_" + run(t, "..", "tools/deb/version") + "_" + arch + ".deb")
	if err != nil || len(files) == 0 {
		t.Fatalf("dist has no %s for %s of this revision: make deb", name, arch)
	}
	return files
}

func sum(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// The version of each commit is greater than that of the one before, tags or not.
func TestVersionsGrow(t *testing.T) {
	script, err := filepath.Abs("../tools/deb/version")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	git := func(args ...string) {
		run(t, dir, "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"}, args...)...)
	}
	git("init", "-q")
	before := "0"
	for i, step := range []struct{ tag, want string }{
		{"", `0\.0~git1\.[0-9a-f]{7}`}, {"", `0\.0~git2\.[0-9a-f]{7}`}, {"v0.1.0-rc1", `0\.1\.0~rc1`}, {"", `0\.1\.0~rc1\+git1\.[0-9a-f]{7}`},
		{"v0.1.0", `0\.1\.0`}, {"", `0\.1\.0\+git1\.[0-9a-f]{7}`}, {"unrelated", `0\.1\.0\+git2\.[0-9a-f]{7}`}, {"v0.1.1", `0\.1\.1`}, {"v0.10.0", `0\.10\.0`},
	} {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte{byte(i)}, 0o644); err != nil {
			t.Fatal(err)
		}
		git("add", "file")
		git("commit", "-q", "-m", strconv.Itoa(i))
		if step.tag != "" {
			git("tag", step.tag)
		}
		version := run(t, dir, script)
		if !regexp.MustCompile("^" + step.want + "$").MatchString(version) {
			t.Errorf("version of commit %d, tag %q, = %q, want %s", i, step.tag, version, step.want)
		}
		if out, err := exec.Command("dpkg", "--compare-versions", version, "gt", before).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("version %q of commit %d is not greater than the last, %q: %s", version, i, before, out)
		}
		before = version
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := run(t, dir, script); got != before+"+dirty" {
		t.Errorf("version of a changed tree = %q, want %q", got, before+"+dirty")
	}
}

// The same commit gives the same bytes: in another folder, of files with other times, under another umask.
func TestReproducible(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder of another name")
	run(t, "", "git", "clone", "-q", "--no-checkout", "..", dir)
	run(t, dir, "sh", "-c", "umask 077 && git checkout -q")
	changes, err := exec.Command("git", "-C", "..", "diff", "HEAD", "--binary").Output()
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) > 0 {
		apply := exec.Command("git", "apply", "-")
		apply.Dir, apply.Stdin = dir, bytes.NewReader(changes)
		if out, err := apply.CombinedOutput(); err != nil {
			t.Fatalf("git apply: %v\n%s", err, out)
		}
	}
	run(t, dir, "sh", "-c", "git ls-files -z | xargs -0 touch -d 2001-02-03")
	run(t, dir, "sh", "-c", "umask 077 && TZ=Asia/Kathmandu LC_ALL=C.UTF-8 tools/deb/build out amd64 arm64 armhf")
	second, err := filepath.Glob(filepath.Join(dir, "out/*.deb"))
	if err != nil || len(second) != 2*len(architectures) {
		t.Fatalf("built %v, %v, want two packages for each architecture", second, err)
	}
	for _, file := range second {
		first := filepath.Join("../dist", filepath.Base(file))
		if sum(t, first) == sum(t, file) {
			continue
		}
		text := func(file string) string {
			return run(t, "", "dpkg-deb", "--info", file) + "\n" + run(t, "", "dpkg-deb", "--contents", file)
		}
		t.Errorf("%s is not the same when it is built again:\n%s\n\nand\n\n%s", filepath.Base(file), text(first), text(file))
	}
}

func TestLintian(t *testing.T) {
	files := packages(t, "holdfast*", "*")
	if len(files) != 2*len(architectures) {
		t.Fatalf("dist has %v, want two packages for each architecture", files)
	}
	out, err := exec.Command("lintian", append([]string{"--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"}, files...)...).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("lintian: %v\n%s", err, out)
	}
}

func TestShellcheck(t *testing.T) {
	files, err := filepath.Glob("deb/*")
	if err != nil {
		t.Fatal(err)
	}
	tools, err := filepath.Glob("../tools/deb/*")
	if err != nil {
		t.Fatal(err)
	}
	var scripts []string
	for _, f := range append(files, tools...) {
		if b, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		} else if bytes.HasPrefix(b, []byte("#!/bin/sh\n")) {
			scripts = append(scripts, f)
		}
	}
	if len(scripts) < 10 {
		t.Fatalf("found only %v", scripts)
	}
	run(t, "", "shellcheck", scripts...)
}

// extract unpacks the packages of an architecture.
func extract(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"holdfast", "holdfast-greenhouse"} {
		run(t, "", "dpkg-deb", "--extract", packages(t, name, arch)[0], dir)
	}
	return dir
}

// How much of systemd's worries may remain (systemd-analyze security, in tenths).
func TestUnits(t *testing.T) {
	root := extract(t, "amd64")
	dir := filepath.Join(root, "usr/lib/systemd/system")
	for unit, exposure := range map[string]string{"holdfast-agent.service": "15", "holdfast-guard.service": "19", "holdfast-greenhouse.service": "15"} {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold="+exposure, filepath.Join(dir, unit)).CombinedOutput()
		if err != nil {
			t.Errorf("%s is more exposed than %s tenths: %v\n%s", unit, exposure, err, out)
		}
	}
	// Whoever has neither of the programs that the units start is told so: that is no fault of the units.
	cmd := exec.Command("systemd-analyze", "verify", "--man=no", "holdfast-agent.service", "holdfast-guard.service", "holdfast-agent.socket",
		"holdfast-guard.socket", "holdfast-previous@guard.service", "holdfast-greenhouse.service")
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
	out, _ := cmd.CombinedOutput()
	for l := range strings.Lines(string(out)) {
		if strings.Contains(l, "holdfast") && !strings.Contains(l, "is not executable: No such file or directory") {
			t.Error(strings.TrimSpace(l))
		}
	}
}

// Each architecture's programs are what they should be, start, and keep a device for a moment. An emulator stands in for the boards.
func TestEachArchitectureRuns(t *testing.T) {
	for _, a := range architectures {
		t.Run(a.name, func(t *testing.T) {
			root := extract(t, a.name)
			version := run(t, "..", "tools/deb/version")
			for _, program := range []string{"usr/bin/holdfast", "usr/sbin/holdfast-guard", "usr/bin/greenhouse"} {
				path := filepath.Join(root, program)
				f, err := elf.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				libraries, err := f.ImportedLibraries()
				if f.Machine != a.machine || err != nil || len(libraries) > 0 || f.Section(".interp") != nil || f.Section(".symtab") != nil {
					t.Errorf("%s: machine %v, libraries %v, %v; it is to be for %v, static and stripped", program, f.Machine, libraries, err, a.machine)
				}
				info, err := buildinfo.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range info.Settings {
					if s.Key == "GOARM" && s.Value != a.arm && !strings.HasPrefix(s.Value, a.arm+",") {
						t.Errorf("%s: GOARM=%s, want %s", program, s.Value, a.arm)
					}
				}
			}
			emulated := func(program string, args ...string) *exec.Cmd {
				return exec.Command(a.emulator, append([]string{filepath.Join(root, program)}, args...)...)
			}
			say := func(want, program string, args ...string) {
				t.Helper()
				if out, err := emulated(program, args...).CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
					t.Fatalf("%s %v says %q, %v, want %q", program, args, out, err, want)
				}
			}
			state := filepath.Join(root, "greenhouse.yaml")
			if err := os.WriteFile(state, []byte(declared), 0o644); err != nil {
				t.Fatal(err)
			}
			say("holdfast "+version, "usr/bin/holdfast", "version")
			say("holdfast-guard "+version, "usr/sbin/holdfast-guard", "--version")
			say("", "usr/bin/holdfast", "validate", state)

			// start starts a program for as long as the test runs, and returns what it prints.
			start := func(program string, args ...string) func() string {
				t.Helper()
				log, err := os.Create(filepath.Join(t.TempDir(), "log"))
				if err != nil {
					t.Fatal(err)
				}
				cmd := emulated(program, args...)
				cmd.Stdout, cmd.Stderr = log, log
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				said := func() string {
					b, _ := os.ReadFile(log.Name())
					return string(b)
				}
				t.Cleanup(func() {
					_ = cmd.Process.Kill()
					_ = cmd.Wait()
					log.Close()
					if t.Failed() {
						t.Logf("%s:\n%s", program, said())
					}
				})
				return said
			}
			wait := func(what string, ok func() bool) {
				t.Helper()
				for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("waited too long for %s", what)
					}
				}
			}
			greenhouse := start("usr/bin/greenhouse", "serve", "--listen", "127.0.0.1:0")
			var url string
			wait("the greenhouse", func() bool {
				_, url, _ = strings.Cut(greenhouse(), "listening on ")
				return strings.HasSuffix(url, "\n")
			})
			url = strings.TrimSpace(url)

			// What git declares is tried, passes, and is kept.
			repository := filepath.Join(root, "state")
			run(t, "", "git", "init", "-q", "-b", "main", repository)
			if err := os.WriteFile(filepath.Join(repository, "greenhouse.yaml"), []byte(declared), 0o644); err != nil {
				t.Fatal(err)
			}
			run(t, repository, "git", "add", ".")
			run(t, repository, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "water the beds")
			config := filepath.Join(root, "holdfast.yaml")
			text := fmt.Sprintf("device:\n  url: %s\n  interval: 1s\n  timeout: 1s\nrepository:\n  url: %s\n  interval: 5s\nguard:\n  window: 30s\n  soak: 2s\n  interval: 200ms\n"+
				"state: %s\nrun: %s\n", url, repository, filepath.Join(root, "var"), filepath.Join(root, "run"))
			if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			share := filepath.Join(root, "usr/share/holdfast")
			start("usr/sbin/holdfast-guard", "--config", config, "--share", share)
			start("usr/bin/holdfast", "run", "--config", config, "--share", share)
			wait("a trial that has passed", func() bool {
				out, err := emulated("usr/bin/holdfast", "history", "--config", config, "--kind", "passed").CombinedOutput()
				return err == nil && strings.Contains(string(out), "passed")
			})
			resp, err := http.Get(url + "/state")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(b), `"pump":"on"`) {
				t.Errorf("the device says %s, %v, want pump on", b, err)
			}
		})
	}
}
