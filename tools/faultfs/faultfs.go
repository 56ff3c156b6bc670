// Package faultfs is a disk for tests: it remembers each call that was made of it, says what a power cut at any point would have left, and fails when it
// is told to.
//
//	code under test ──system calls──► kernel ──FUSE──► a process with the files in its memory
//	                                                     │
//	test ◄── Log: what was written, named, synced ───────┤
//	test ──► Fail: the next call, or all from there on ──┘
//
//	Crashes(log, from) ──► each state in which power can leave the disk ──► Image.Write(folder) ──► open it with production code
//
// # What a power cut leaves
//
// What was synced is there: the content of a file after fsync or fdatasync of that file, a name (made, changed or taken away) after fsync of its
// folder. Of all else any part may be there, whatever the order in which it was done: each write whole, not at all, or torn between two
// sectors of 512 bytes; each name as it was or as it became; a name without its content. That is more than any one file system does; a program
// that stands it needs to know nothing of the file system below. Content that was given to a sync that failed may be there or not for ever: the
// kernel forgets it then, and a sync that succeeds later says nothing of it.
//
// # Why a process of its own
//
// bbolt maps its file. A page of a mapping that this process would have to serve to itself stops the garbage collector, which stops the process. So
// New starts the test's binary once more, whose first act (init) is to become the disk.
package faultfs

import (
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
)

// Kind is what a call does.
type Kind uint8

// The kinds of call, those that change nothing first.
const (
	Stat       Kind = iota
	Open            // for reading
	Read            // of a file or of a folder
	OpenWrite       // of a file that is there, for writing
	Create          // of a file
	Mkdir           // of a folder
	Write           // by the kernel's measure: 128 KiB at most
	Truncate        // to any length
	Allocate        // fallocate; the length stays
	Rename          // over what is there
	Remove          // of a file or an empty folder
	Sync            // fsync or fdatasync of a file
	SyncFolder      // fsync of a folder
	Close           // of a file that was open for writing
	kinds
)

func (k Kind) String() string {
	return [...]string{"stat", "open", "read", "open for writing", "create", "mkdir", "write", "truncate", "allocate", "rename", "remove", "sync", "sync folder", "close"}[k]
}

// Changes reports whether a call of this kind needs a disk that can be written.
func (k Kind) Changes() bool { return k >= OpenWrite }

// Op is one call that needs a disk that can be written. Paths are relative to the mount's root.
type Op struct {
	Kind   Kind
	File   int    // numbers files in the order of their creation, from 1; 0 is a folder
	Path   string // of the file or folder; of a rename the old name
	To     string // of a rename
	Off    int64
	Data   []byte
	Size   int64 // of a truncation, in bytes
	Failed bool
}

func (o Op) String() string {
	s := fmt.Sprintf("%s %s", o.Kind, o.Path)
	switch o.Kind {
	case Write:
		s += fmt.Sprintf(" [%d,%d)", o.Off, o.Off+int64(len(o.Data)))
	case Truncate:
		s += fmt.Sprintf(" to %d", o.Size)
	case Rename:
		s += " to " + o.To
	}
	if o.Failed {
		s += " (failed)"
	}
	return s
}

// Fault says which call fails, and how.
type Fault struct {
	Reading bool   // it is of those that change nothing; else of those that need a disk that can be written
	Of      string // it reads from a file that is there now and has this name, in whatever folder: a dead block; "" for any call
	After   int    // as many of them succeed first
	Stays   bool   // all after it fail as well
	Errno   syscall.Errno
}

// Counts says how many calls of each kind were made.
type Counts [kinds]int

// Minus is how many were made since earlier.
func (c Counts) Minus(earlier Counts) Counts {
	for k := range c {
		c[k] -= earlier[k]
	}
	return c
}

// Changing is how many of them need a disk that can be written, closing aside: one that does none of them has not touched it.
func (c Counts) Changing() int {
	n := 0
	for k := OpenWrite; k < Close; k++ {
		n += c[k]
	}
	return n
}

// Syncs is how often a file or folder was made durable: what costs time on a real disk.
func (c Counts) Syncs() int { return c[Sync] + c[SyncFolder] }

func (c Counts) String() string {
	s := ""
	for k, n := range c {
		if n > 0 {
			s += fmt.Sprintf("%s %d, ", Kind(k), n)
		}
	}
	return s
}

// FS is a mounted disk.
type FS struct {
	Dir string // where it is mounted: an empty folder at first
	t   testing.TB
	c   *rpc.Client
}

// pipe is a process's standard input and output.
type pipe struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipe) Close() error {
	p.ReadCloser.Close()
	return p.WriteCloser.Close()
}

// New mounts an empty disk for as long as the test runs. Where FUSE is not to be had the test is left out.
func New(t testing.TB) *FS {
	t.Helper()
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skipf("needs FUSE: package fuse3, and the right to open /dev/fuse: %v", err)
	} else {
		f.Close()
	}
	fs := &FS{Dir: t.TempDir(), t: t}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), mountEnv+"="+fs.Dir, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fs.c = rpc.NewClient(pipe{out, in})
	t.Cleanup(func() {
		fs.c.Close() // which the process sees as the end of its input: it unmounts and ends
		if err := cmd.Wait(); err != nil {
			t.Errorf("the disk's process: %v", err)
		}
	})
	var mounted string
	fs.call("Mounted", 0, &mounted)
	if mounted != "" {
		t.Skipf("needs FUSE: package fuse3, and the right to mount: %s", mounted)
	}
	return fs
}

func (fs *FS) call(what string, arg, reply any) {
	fs.t.Helper()
	if err := fs.c.Call("Disk."+what, arg, reply); err != nil {
		fs.t.Fatalf("the disk's process does not answer: %v", err)
	}
}

// Len is how many entries Log has.
func (fs *FS) Len() (n int) {
	fs.call("Len", 0, &n)
	return n
}

// Log is what was done to the disk, oldest first, without the first from calls.
func (fs *FS) Log(from int) (ops []Op) {
	fs.call("Log", from, &ops)
	return ops
}

// Counts is how many calls were made so far.
func (fs *FS) Counts() (c Counts) {
	fs.call("Counted", 0, &c)
	return c
}

// Fail makes calls fail from now on, instead of what an earlier Fail said.
func (fs *FS) Fail(f Fault) { fs.call("Fail", f, new(int)) }

// Heal ends what Fail began, and reports how many calls have failed.
func (fs *FS) Heal() (failed int) {
	fs.call("Heal", 0, &failed)
	return failed
}

// Pick is how much is looked at: deep with a test's -long, daily without it, and raced under the race detector, which makes it all slow and has nothing to
// find here.
func Pick[T any](long bool, raced, daily, deep T) T {
	if long {
		return deep
	}
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return raced
	}
	return daily
}

// Scratch is a folder for images, in memory where that can be had: there are thousands of them.
func Scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "holdfast-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
