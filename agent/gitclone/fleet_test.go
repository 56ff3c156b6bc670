package gitclone

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fleet is a repository of many devices, made with git fast-import: the commands that people use take minutes.
type fleet struct {
	*repo
	devices int
	sharded bool // a hundred to a folder; else all in one
	clock   int  // seconds, one a revision
	tip     string
}

// greenhouse is what a device's file has in it: five lines and its own name.
func greenhouse(device, version int) string {
	return fmt.Sprintf("# greenhouse %05d\npump: on\nfan: off\nvent: off\nlamp: on # %d\ndoor: closed\n", device, version)
}

// file is the path of a device's file.
func (f *fleet) file(device int) string {
	if f.sharded {
		return fmt.Sprintf("devices/%03d/gh-%05d.yaml", device/100, device)
	}
	return fmt.Sprintf("devices/gh-%05d.yaml", device)
}

// newFleet makes a repository of so many devices and revisions; each revision after the first changes one device, and
// never device 0.
func newFleet(t testing.TB, devices, revisions int, sharded bool) *fleet {
	t.Helper()
	f := &fleet{repo: newRepo(t), devices: devices, sharded: sharded, clock: 1_700_000_000}
	f.commits(1+revisions-1, func(n int, file func(name, content string)) {
		if n > 0 {
			d := 1 + n%max(1, devices-1)
			file(f.file(d), greenhouse(d, n))
			return
		}
		for d := range devices {
			file(f.file(d), greenhouse(d, 0))
		}
	})
	f.run(f.bare, "git", "repack", "-adq") // as a forge does
	return f
}

// commits appends n revisions to main, of the files that do gives, and returns the last.
func (f *fleet) commits(n int, do func(n int, file func(name, content string))) string {
	f.t.Helper()
	cmd := exec.Command("git", "fast-import", "--quiet", "--force", "--date-format=raw")
	cmd.Dir, cmd.Env = f.bare, gitEnv()
	var errb strings.Builder
	cmd.Stderr = &errb
	in, err := cmd.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	w := bufio.NewWriter(in)
	for i := range n {
		f.clock++
		subject := fmt.Sprintf("revision %d", f.clock-1_700_000_000)
		fmt.Fprintf(w, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata %d\n%s\n", f.clock, len(subject), subject)
		if f.tip != "" && i == 0 {
			fmt.Fprintf(w, "from %s\n", f.tip)
		}
		do(i, func(name, content string) {
			fmt.Fprintf(w, "M 644 inline %s\ndata %d\n%s\n", name, len(content), content)
		})
	}
	_ = w.Flush()
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		f.t.Fatalf("git fast-import: %v\n%s", err, errb.String())
	}
	f.tip = f.run(f.bare, "git", "rev-parse", "refs/heads/main")
	return f.tip
}

// change pushes one change of one device.
func (f *fleet) change(device, version int) string {
	f.t.Helper()
	return f.commits(1, func(_ int, file func(name, content string)) { file(f.file(device), greenhouse(device, version)) })
}

func (f *fleet) filters(on bool) {
	f.t.Helper()
	f.run(f.bare, "git", "config", "uploadpack.allowFilter", fmt.Sprint(on))
}

// branches adds n more branches, as git packs them.
func (f *fleet) branches(n int) {
	f.t.Helper()
	f.run(f.bare, "git", "pack-refs", "--all")
	p := filepath.Join(f.bare, "packed-refs")
	b, err := os.ReadFile(p)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range n {
		b = fmt.Appendf(b, "%s refs/heads/topic/%05d\n", f.tip, i) // after main, in order
	}
	if err := os.WriteFile(p, b, 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// fileSize is how long a file is, and how much of the disk it takes.
func fileSize(t testing.TB, path string) (length, taken int64) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Size, st.Blocks * 512
}

// hugeFile commits a file of n blocks, beside ours.
func (f *fleet) hugeFile(name, block string, n int, ours, file string) {
	f.t.Helper()
	cmd := exec.Command("git", "fast-import", "--quiet", "--date-format=raw", "--big-file-threshold=1m")
	cmd.Dir, cmd.Env = f.bare, gitEnv()
	in, err := cmd.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	w := bufio.NewWriter(in)
	fmt.Fprintf(w, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata 4\nhuge\nM 644 inline %s\ndata %d\n", f.clock, name, n*len(block))
	for range n {
		_, _ = w.WriteString(block)
	}
	fmt.Fprintf(w, "\nM 644 inline %s\ndata %d\n%s\n", file, len(ours), ours)
	_ = w.Flush()
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		f.t.Fatalf("git fast-import: %v", err)
	}
	f.tip = f.run(f.bare, "git", "rev-parse", "refs/heads/main")
}
