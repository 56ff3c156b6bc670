package scenario

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// releaseWorld is a board of release binaries, stripped, converged on the release good.
func releaseWorld(t *testing.T, config string) *world {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(dir, newStory(t.Output(), ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	bins := t.TempDir()
	w.binary = func(who string) (string, error) {
		path := filepath.Join(bins, filepath.Base(mains[who]))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./"+mains[who])
		cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return path, err
	}
	w.declare(t, "pump: on\nfan: off\nvent: on\nlamp: off\ndoor: closed\n")
	if err := w.boot(); err != nil {
		t.Fatal(err)
	}
	w.await(t, "verdict=passed", "device.pump=on", "driver=agent", "git=ok", "returning=no", "trial=none")
	return w
}

// declare pushes a state file.
func (w *world) declare(t *testing.T, file string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "greenhouse.yaml"), []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := w.upstream.commit(dir, "declare", false); err != nil {
		t.Fatal(err)
	}
}

func (w *world) await(t *testing.T, conditions ...string) {
	t.Helper()
	if err := w.waitFor(conditions, 3*time.Minute); err != nil {
		t.Fatalf("%v\n%s", err, w.tails(20))
	}
}

// procNumber reads a number of kB or bytes from a file of /proc/PID (proc(5)).
func (w *world) procNumber(who, file, field string) (int, error) {
	if w.procs[who].state() == "dead" {
		return 0, fmt.Errorf("%s is not running", who)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", w.procs[who].cmd.Process.Pid, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == field+":" {
			return strconv.Atoi(words[1])
		}
	}
	return 0, fmt.Errorf("no %s in /proc/PID/%s", field, file)
}

func (w *world) procField(t *testing.T, who, file, field string) int {
	t.Helper()
	n, err := w.procNumber(who, file, field)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// files lists every file of the board with what a write would change.
func (w *world) files(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, dir := range []string{w.stateDir(), w.logs(), w.runDir()} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(path, "device.log") || strings.HasSuffix(path, "git.log") {
				return err // the harness's own
			}
			info, err := d.Info()
			if err == nil {
				out = append(out, fmt.Sprintf("%s %d %s", path, info.Size(), info.ModTime()))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// A hundred cycles in which nothing changes cost the flash nothing: no byte is written, no file is touched, no line is logged. And the guard is small.
func TestAHundredIdleCyclesWriteNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: make scenarios")
	}
	t.Parallel()
	w := releaseWorld(t, "device: {interval: 200ms}\nrepository: {interval: 400ms}\n")
	// The pages of the last verdict are on their way to the disk for a while; what counts begins after them.
	if err := w.idle([]string{"20", "cycles"}); err != nil {
		t.Fatal(err)
	}
	before, bytes := w.files(t), map[string]int{}
	for _, who := range []string{"agent", "guard"} {
		bytes[who] = w.procField(t, who, "io", "write_bytes")
	}
	if err := w.idle([]string{"100", "cycles"}); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"agent", "guard"} {
		if n := w.procField(t, who, "io", "write_bytes") - bytes[who]; n != 0 {
			t.Errorf("the %s wrote %d bytes in 100 idle cycles, want 0", who, n)
		}
	}
	for _, f := range w.files(t) {
		if !slices.Contains(before, f) {
			t.Errorf("a file changed in 100 idle cycles: %s", f)
		}
	}
	const limit = 12_000 // kB
	rss := w.procField(t, "guard", "status", "VmRSS")
	t.Logf("resident: guard %d kB, agent %d kB", rss, w.procField(t, "agent", "status", "VmRSS"))
	if rss > limit {
		t.Errorf("the guard has %d kB resident when idle, more than %d", rss, limit)
	}
}
