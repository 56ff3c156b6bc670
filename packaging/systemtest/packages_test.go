//go:build system

package systemtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// dist is where `make deb` leaves the packages.
const dist = "../../dist"

// built is the package's file for this machine, as `make deb` has built it.
func built(t *testing.T, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dist, name+"_*_"+runtime.GOARCH+".deb"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s has %d packages %s_*_%s.deb, want one: make deb", dist, len(files), name, runtime.GOARCH)
	}
	return files[0]
}

// version is a built package's.
func version(t *testing.T, file string) string {
	t.Helper()
	return command(t, "dpkg-deb", "--field", file, "Version")
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// nextVersion is above whatever `make deb` builds.
const nextVersion = "9999.1"

// next is the built package as its next version, of which nothing but the version is new. Files, by their path on the board, take the place of the package's own.
func next(t *testing.T, name, version string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	command(t, "dpkg-deb", "--raw-extract", built(t, name), tree)
	control := filepath.Join(tree, "DEBIAN/control")
	text, err := os.ReadFile(control)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(control, regexp.MustCompile(`(?m)^Version: .*$`).ReplaceAll(text, []byte("Version: "+version)), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, from := range files {
		command(t, "install", "-m", "755", from, filepath.Join(tree, path))
	}
	file := filepath.Join(dir, fmt.Sprintf("%s_%s.deb", name, version))
	command(t, "dpkg-deb", "--root-owner-group", "-Zzstd", "-z1", "--build", tree, file)
	return file
}

// nextBinaries are agent and guard that call themselves by the next version.
var nextBinaries = sync.OnceValues(func() (map[string]string, error) {
	files := map[string]string{}
	for path, pkg := range map[string]string{"/usr/bin/holdfast": "holdfast/agent/cmd/holdfast", "/usr/sbin/holdfast-guard": "holdfast/bootslot/cmd/holdfast-guard"} {
		file := filepath.Join(world, filepath.Base(path)+"-next")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+nextVersion, "-o", file, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go build %s: %w: %s", pkg, err, out)
		}
		files[path] = file
	}
	return files, nil
})

// nextPackage is package holdfast in its next version, with binaries that know it.
func nextPackage(t *testing.T) string {
	t.Helper()
	files, err := nextBinaries()
	if err != nil {
		t.Fatal(err)
	}
	return next(t, "holdfast", nextVersion, files)
}

// failing is a program that will not start.
func failing(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "failing")
	if err := os.WriteFile(file, []byte("#!/bin/sh\necho this version does not start >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// carry puts package files on the board and returns their paths there.
func (b *board) carry(files ...string) string {
	b.Helper()
	var paths []string
	for _, f := range files {
		at := "/var/tmp/" + filepath.Base(f)
		b.host("cp", f, filepath.Join(b.root, at))
		paths = append(paths, at)
	}
	return strings.Join(paths, " ")
}

// install is what an operator types to install, upgrade or downgrade, and what that says.
func (b *board) install(files ...string) string {
	b.Helper()
	return b.sh("apt-get install --yes --no-install-recommends --allow-downgrades " + b.carry(files...))
}

// config is a configuration with which a trial takes seconds. Its one check of its own, lamp-is-off, does not hold while the lamp is on.
const config = `device:
  url: http://127.0.0.1:8080
  interval: 1s
repository:
  url: http://git.example.org/state.git
  interval: 1s
guard:
  window: 12s
  soak: 2s
  interval: 500ms
  recover: 30s
  pauses: [1s]
  checks:
    - {name: lamp-is-off, command: [/usr/local/bin/lamp-is-off], timeout: 2s}
`

// slowConfig is one with which a trial takes ten seconds at least.
var slowConfig = strings.Replace(strings.Replace(config, "timeout: 2s", "timeout: 2s, soak: 10s", 1), "window: 12s", "window: 30s", 1)

const lampIsOff = `#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/8080 || exit 1
printf 'GET /state HTTP/1.0\r\n\r\n' >&3
grep -q '"lamp":"off"' <&3
`

// The first revision that every installed board is on: the greenhouse forgets its pump when it restarts, so it is seen whether somebody drives it.
var first = []string{"pump: on"}

// newInstalled makes a board that is installed, configured and on its first revision, and boots it.
func newInstalled(t *testing.T) *board {
	t.Helper()
	layerOnce.Do(func() { makeLayer(t) })
	if layer == "" {
		t.Fatal("no board could be installed")
	}
	b := newBoard(t, layer)
	rev := b.up.push(first...)
	b.boot()
	b.converged(rev)
	return b
}

// layer is the file system of such a board, switched off: what lies under all others.
var (
	layerOnce sync.Once
	layer     string
)

func makeLayer(t *testing.T) {
	t.Helper()
	b := newBoard(t)
	b.boot()
	b.install(built(t, "holdfast"), built(t, "holdfast-greenhouse"))
	b.write("/usr/local/bin/lamp-is-off", lampIsOff)
	b.sh("chmod 755 /usr/local/bin/lamp-is-off; systemctl enable --now holdfast-greenhouse")
	b.write("/etc/holdfast/holdfast.yaml", config)
	revision := b.up.push(first...)
	b.sh("systemctl start holdfast-guard holdfast-agent")
	b.converged(revision)
	b.poweroff()
	b.end()
	dir := filepath.Join(world, "installed")
	if err := os.Rename(b.upper(), dir); err != nil {
		t.Fatal(err)
	}
	layer = dir
}
