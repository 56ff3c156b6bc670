//go:build compare

package gitclone

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/storage/memory"
)

// task is what a child process is to do, so that its memory, CPU and syncs are its own.
type task struct {
	Who     string // ours, go-git, git
	Op      string // poll, first, change
	URL     string
	File    string
	Dir     string   // where the clone is
	Ref     string   // the server's file of main's head
	Tips    []string // for change: what to put there, one after the other
	Repeats int      // for poll
}

// cost is what one operation took, in the mean.
type cost struct {
	CPU   time.Duration
	Peak  int64 // bytes: the largest resident size of the process
	Idle  int64 // bytes: resident when it waits for the next poll
	Bytes int64 // on the wire, both ways
	Syncs float64
	Disk  int64
}

const taskEnv = "HOLDFAST_COMPARE_TASK"

// TestCompareChild is the other end of run.
func TestCompareChild(t *testing.T) {
	s := os.Getenv(taskEnv)
	if s == "" {
		return // a part of TestCompare
	}
	var k task
	if err := json.Unmarshal([]byte(s), &k); err != nil {
		t.Fatal(err)
	}
	op := k.oursOp
	if k.Who == "go-git" {
		op = k.goGitOp
	}
	do, err := op(t)
	if err != nil {
		t.Fatal(err)
	}
	n := max(1, k.Repeats, len(k.Tips))
	var c cost
	if k.Op != "first" {
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // the peak from here on
	}
	before := cpu()
	for i := range n {
		if k.Op == "change" {
			if err := os.WriteFile(k.Ref, []byte(k.Tips[i]+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	c.CPU = (cpu() - before) / time.Duration(n)
	c.Peak = procStatus("VmHWM:")
	debug.FreeOSMemory() // nobody polls this often; in an agent that waits, garbage is collected every two minutes
	c.Idle = procStatus("VmRSS:")
	b, _ := json.Marshal(c)
	fmt.Printf("\nRESULT %s\n", b)
}

func (k task) oursOp(t *testing.T) (func() error, error) {
	c, err := Open(Options{Path: filepath.Join(k.Dir, "clone.db"), URL: k.URL, File: k.File})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	fetch := func() error {
		f, err := c.Fetch(context.Background())
		if err == nil && f.Changed != (k.Op != "poll") {
			err = fmt.Errorf("Fetch = %+v", f)
		}
		if f.Changed {
			debug.FreeOSMemory() // as the agent does
		}
		return err
	}
	if k.Op == "poll" {
		return fetch, fetch() // what it speaks is known from the second on
	}
	return fetch, nil
}

func (k task) goGitOp(*testing.T) (func() error, error) {
	fetch := &git.FetchOptions{Depth: 1, RefSpecs: []config.RefSpec{"+refs/heads/main:refs/remotes/origin/main"}, Tags: git.NoTags}
	switch k.Op {
	case "poll":
		r := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: "o", URLs: []string{k.URL}})
		list := func() error { _, err := r.List(&git.ListOptions{}); return err }
		return list, list()
	case "first":
		return func() error {
			_, err := git.PlainClone(k.Dir, true, &git.CloneOptions{URL: k.URL, Depth: 1, SingleBranch: true, ReferenceName: "refs/heads/main", Tags: git.NoTags})
			return err
		}, nil
	}
	r, err := git.PlainOpen(k.Dir)
	return func() error {
		err := r.Fetch(fetch)
		if errors.Is(err, git.NoErrAlreadyUpToDate) {
			return nil
		}
		return err
	}, err
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func procStatus(field string) int64 {
	b, _ := os.ReadFile("/proc/self/status")
	return statusField(b, field)
}

func statusField(b []byte, field string) int64 {
	_, rest, _ := bytes.Cut(b, []byte(field))
	f := strings.Fields(string(rest[:min(len(rest), 40)]))
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(f[0], 10, 64)
	return n << 10
}

// bench measures on one repository.
type bench struct {
	*testing.T
	f   *fleet
	w   *wire
	url string
	ref string
}

// run does a task in a process of its own; traced, it counts syncs instead.
func (b bench) run(k task, traced bool) cost {
	b.Helper()
	k.URL, k.File, k.Ref = b.w.through(b.url), b.f.file(0), b.ref
	b.w.take()
	if k.Who == "git" {
		return b.runGit(k, traced)
	}
	s, _ := json.Marshal(k)
	args := []string{os.Args[0], "-test.run=^TestCompareChild$", "-test.v"}
	trace := filepath.Join(b.TempDir(), "trace")
	if traced {
		args = append([]string{"strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", trace}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(gitEnv(), taskEnv+"="+string(s), "GODEBUG=madvdontneed=1")
	out, err := cmd.CombinedOutput()
	_, result, ok := strings.Cut(string(out), "\nRESULT ")
	if err != nil || !ok {
		b.Fatalf("%s %s: %v\n%s", k.Who, k.Op, err, out)
	}
	var c cost
	line, _, _ := strings.Cut(result, "\n")
	if err := json.Unmarshal([]byte(line), &c); err != nil {
		b.Fatal(err)
	}
	n := max(1, k.Repeats, len(k.Tips))
	if k.Op == "poll" {
		n++ // the first
	}
	c.Bytes = b.w.take() / int64(n)
	c.Disk = taken(b, k.Dir)
	c.Syncs = b.syncs(trace, traced, max(1, len(k.Tips)))
	return c
}

func (b bench) syncs(trace string, traced bool, n int) float64 {
	if !traced {
		return 0
	}
	t, err := os.ReadFile(trace)
	if err != nil {
		b.Fatal(err)
	}
	return float64(strings.Count(string(t), "sync(")) / float64(n) // one that is resumed in another line has begun in one
}

// runGit does a task with git's own command. Its processes' memory is looked at while they run.
func (b bench) runGit(k task, traced bool) cost {
	b.Helper()
	var args []string
	switch k.Op {
	case "poll":
		args = []string{"git", "ls-remote", k.URL, "refs/heads/main"}
	case "first":
		args = []string{"git", "clone", "-q", "--bare", "--depth=1", "--single-branch", "--branch=main", k.URL, k.Dir}
	case "change":
		args = []string{"git", "-C", k.Dir, "fetch", "-q", "--depth=1", "origin", "+refs/heads/main:refs/heads/main"}
	}
	trace := filepath.Join(b.TempDir(), "trace")
	if traced {
		args = append([]string{"strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", trace}, args...)
	}
	var c cost
	n := max(1, k.Repeats, len(k.Tips))
	for i := range n {
		if k.Op == "change" {
			if err := os.WriteFile(k.Ref, []byte(k.Tips[i]+"\n"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = gitEnv()
		var errb bytes.Buffer
		cmd.Stderr = &errb
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		done := make(chan struct{})
		peak := make(chan int64)
		go func() {
			top := int64(0)
			for {
				select {
				case <-done:
					peak <- top
					return
				case <-time.After(2 * time.Millisecond):
					top = max(top, family(cmd.Process.Pid))
				}
			}
		}()
		err := cmd.Wait()
		close(done)
		c.Peak = max(c.Peak, <-peak)
		if err != nil {
			b.Fatalf("%v: %v\n%s", args, err, errb.String())
		}
		c.CPU += (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()) / time.Duration(n)
	}
	c.Bytes = b.w.take() / int64(n)
	if k.Op != "poll" {
		c.Disk = taken(b, k.Dir)
	}
	c.Syncs = b.syncs(trace, traced, n)
	return c
}

// family is what a process and its descendants take together.
func family(pid int) (sum int64) {
	dir := fmt.Sprintf("/proc/%d", pid)
	s, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0
	}
	sum = statusField(s, "VmHWM:")
	tasks, _ := filepath.Glob(dir + "/task/*/children")
	for _, f := range tasks {
		kids, _ := os.ReadFile(f)
		for kid := range strings.FieldsSeq(string(kids)) {
			n, _ := strconv.Atoi(kid)
			sum += family(n)
		}
	}
	return sum
}

// taken is what a folder takes of the disk.
func taken(t testing.TB, dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			_, k := fileSize(t, p)
			n += k
		}
		return nil
	})
	return n
}

func kib(n int64) string {
	if n < 10<<10 {
		return fmt.Sprintf("%.1f", float64(n)/1024)
	}
	return fmt.Sprint(n >> 10)
}

// TestCompare prints the table of docs/performance.md: make bench-git.
func TestCompare(t *testing.T) {
	_, straceErr := exec.LookPath("strace")
	const changed = "one line changed"
	fmt.Printf("| repository | operation | who | bytes on the wire | CPU ms | peak MiB | KiB on disk | syncs |\n|---|---|---|---:|---:|---:|---:|---:|\n")
	type repository struct {
		devices, revisions int
		sharded            bool
	}
	var all []repository
	for _, revisions := range []int{200, 5000} {
		all = append(all, repository{1, revisions, false})
		for _, devices := range []int{1000, 10_000} {
			all = append(all, repository{devices, revisions, false}, repository{devices, revisions, true})
		}
	}
	polls := map[string][]float64{} // CPU ms
	for _, a := range all {
		name := fmt.Sprintf("%d devices, %d revisions", a.devices, a.revisions)
		if a.devices > 1 {
			name += map[bool]string{true: ", folders of 100", false: ", one folder"}[a.sharded]
		}
		ok := t.Run(name, func(t *testing.T) {
			const changes = 20
			f := newFleet(t, a.devices, a.revisions, a.sharded)
			base := f.tip
			f.commits(2*changes, func(i int, file func(name, content string)) { file(f.file(0), greenhouse(0, 1_000_000+i)) })
			tips := strings.Split(f.run(f.bare, "git", "rev-list", "--first-parent", "--reverse", base+"..main"), "\n")
			srv, url := f.serve()
			b := bench{t, f, newWire(t, srv.Listener.Addr().String()), url, filepath.Join(f.bare, "refs/heads/main")}
			print := func(op, who string, c cost) {
				syncs := "–"
				if op == changed && straceErr == nil {
					syncs = fmt.Sprintf("%.1f", c.Syncs)
				}
				disk := "–"
				if c.Disk > 0 {
					disk = kib(c.Disk)
				}
				fmt.Printf("| %s | %s | %s | %d | %.2f | %.1f | %s | %s |\n", name, op, who, c.Bytes, float64(c.CPU)/1e6, float64(c.Peak)/(1<<20), disk, syncs)
			}
			for _, who := range []string{"ours, filters", "ours, no filters", "git", "go-git"} {
				if err := os.WriteFile(b.ref, []byte(base+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				kind, filters, _ := strings.Cut(who, ", ")
				f.filters(filters == "filters")
				dir := filepath.Join(t.TempDir(), "clone")
				if kind == "ours" {
					_ = os.MkdirAll(dir, 0o755)
				}
				k := task{Who: kind, Dir: dir}
				k.Op = "first"
				print("first sync", who, b.run(k, false))
				k.Op, k.Repeats = "poll", map[string]int{"git": 30}[kind]
				k.Repeats = cmp.Or(k.Repeats, 400)
				poll := b.run(k, false)
				polls[kind] = append(polls[kind], float64(poll.CPU)/1e6)
				if kind == "git" {
					poll.Disk = 0
				}
				print("no change", who, poll)
				k.Op, k.Repeats, k.Tips = "change", 0, tips[:changes]
				c := b.run(k, false)
				if straceErr == nil {
					k.Tips = tips[changes : 2*changes]
					c.Syncs = b.run(k, true).Syncs
				}
				print(changed, who, c)
				if kind == "ours" {
					fmt.Printf("| %s | peak while changing ÷ idle | %s | | | %.2f | | |\n", name, who, float64(c.Peak)/float64(poll.Idle))
				}
			}
		})
		if !ok {
			t.FailNow()
		}
	}
	fmt.Printf("\n| no change, CPU ms over all repositories | least | mean | most |\n|---|---:|---:|---:|\n")
	mean := map[string]float64{}
	for _, who := range []string{"ours", "git", "go-git"} {
		sum := 0.0
		for _, ms := range polls[who] {
			sum += ms
		}
		mean[who] = sum / float64(max(1, len(polls[who])))
		fmt.Printf("| %s | %.2f | %.2f | %.2f |\n", who, slices.Min(polls[who]), mean[who], slices.Max(polls[who]))
	}
	fmt.Printf("| ours to git | | 1/%.0f | |\n", mean["git"]/mean["ours"])
	t.Run("growth", growth)
}

// growth is what a clone takes after many changes, each fetched.
func growth(t *testing.T) {
	f := newFleet(t, 1000, 1, true)
	f.filters(true)
	base := f.tip
	f.commits(1000, func(i int, file func(name, content string)) { file(f.file(0), greenhouse(0, 1_000_000+i)) })
	tips := strings.Split(f.run(f.bare, "git", "rev-list", "--first-parent", "--reverse", base+"..main"), "\n")
	srv, url := f.serve()
	b := bench{t, f, newWire(t, srv.Listener.Addr().String()), url, filepath.Join(f.bare, "refs/heads/main")}
	fmt.Printf("\n| 1000 devices, folders of 100 | KiB on disk after 100 changes | after 1,000 | peak MiB, 100 | 1,000 |\n|---|---:|---:|---:|---:|\n")
	for _, who := range []string{"ours", "git", "go-git"} {
		if err := os.WriteFile(b.ref, []byte(base+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		k := task{Who: who, Dir: filepath.Join(t.TempDir(), "clone"), Op: "first"}
		if who == "ours" {
			_ = os.MkdirAll(k.Dir, 0o755)
		}
		b.run(k, false)
		k.Op, k.Tips = "change", tips[:100]
		hundred := b.run(k, false)
		k.Tips = tips[100:]
		thousand := b.run(k, false)
		fmt.Printf("| %s | %s | %s | %.1f | %.1f |\n", who, kib(hundred.Disk), kib(thousand.Disk), float64(hundred.Peak)/(1<<20), float64(thousand.Peak)/(1<<20))
	}
}
