package faultfs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// must is for calls that this test does not ask about.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A file is written and read, also through a mapping, and the log and the counts have each call.
func TestACallIsCarriedOutAndLogged(t *testing.T) {
	fs := New(t)
	path := filepath.Join(fs.Dir, "d", "f")
	must(t, os.Mkdir(filepath.Dir(path), 0o755))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	if _, err := f.WriteAt([]byte("hello"), 3); err != nil {
		t.Fatal(err)
	}
	must(t, f.Truncate(8192))
	mapped, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	if got := string(mapped[3:8]); got != "hello" {
		t.Errorf("mapped: %q", got)
	}
	if _, err := f.WriteAt([]byte("HE"), 3); err != nil {
		t.Fatal(err)
	}
	if got := string(mapped[3:8]); got != "HEllo" {
		t.Errorf("mapped, after a write: %q", got)
	}
	must(t, unix.Munmap(mapped))
	must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	must(t, unix.Fdatasync(int(f.Fd())))
	must(t, f.Close())
	must(t, os.Rename(path, path+"2"))
	d, err := os.Open(filepath.Dir(path))
	must(t, err)
	must(t, d.Sync())
	names, err := d.Readdirnames(-1)
	if err != nil || !slices.Equal(names, []string{"f2"}) {
		t.Errorf("the folder has %q, %v", names, err)
	}
	must(t, d.Close())
	must(t, os.Remove(path+"2"))
	if _, err := os.Stat(path + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed, Stat = %v", err)
	}
	var got []string
	for _, op := range fs.Log(0) {
		got = append(got, op.String())
	}
	want := "mkdir d; create d/f; write d/f [3,8); truncate d/f to 8192; write d/f [3,5); allocate d/f; sync d/f; close d/f; rename d/f to d/f2; sync folder d; remove d/f2"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("log: %s\nwant %s", s, want)
	}
	if c := fs.Counts(); c.Changing() != 10 || c.Syncs() != 2 || c[Write] != 2 || c[Open] == 0 || c[Read] == 0 || c[Stat] == 0 {
		t.Errorf("counts: %v", c)
	}
}

func TestACallFailsWhenItIsToldTo(t *testing.T) {
	fs := New(t)
	write := func(name string) error { return os.WriteFile(filepath.Join(fs.Dir, name), []byte("x"), 0o600) }
	for after, what := range []string{"create", "write", "close"} {
		fs.Fail(Fault{After: after, Errno: syscall.EIO})
		from := fs.Len()
		if err := write(what); !errors.Is(err, syscall.EIO) {
			t.Errorf("call %d: %v, want EIO", after, err)
		}
		if log := fs.Log(from); log[after].Kind.String() != what || !log[after].Failed {
			t.Errorf("call %d: %v", after, log)
		}
		if err := write(what + "2"); err != nil {
			t.Errorf("the file after it: %v", err)
		}
		if n := fs.Heal(); n != 1 {
			t.Errorf("%d calls have failed, want 1", n)
		}
	}
	fs.Fail(Fault{After: 3, Errno: syscall.EROFS, Stays: true})
	if err := write("last"); err != nil {
		t.Errorf("write before it: %v", err)
	}
	for _, name := range []string{"last", "more"} {
		if err := write(name); !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s = %v, want EROFS", name, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(fs.Dir, "last")); err != nil || string(b) != "x" {
		t.Errorf("reading on a disk that cannot be written: %q, %v", b, err)
	}
	fs.Fail(Fault{Reading: true, Errno: syscall.EIO, Stays: true})
	if _, err := os.ReadFile(filepath.Join(fs.Dir, "last")); !errors.Is(err, syscall.EIO) {
		t.Errorf("reading a bad disk: %v", err)
	}
	fs.Fail(Fault{Of: "last", Reading: true, Errno: syscall.EIO, Stays: true})
	must(t, write("more"))
	if _, err := os.ReadFile(filepath.Join(fs.Dir, "more")); err != nil {
		t.Errorf("reading another file: %v", err)
	}
	if _, err := os.ReadFile(filepath.Join(fs.Dir, "last")); !errors.Is(err, syscall.EIO) {
		t.Errorf("reading the bad file: %v", err)
	}
	must(t, os.Rename(filepath.Join(fs.Dir, "more"), filepath.Join(fs.Dir, "last")))
	if _, err := os.ReadFile(filepath.Join(fs.Dir, "last")); err != nil {
		t.Errorf("reading the file that has its name now: %v", err)
	}
	fs.Heal()
	must(t, write("more"))
}

// states is what Crashes says of a log, from its n-th call on: each state as "name=content …".
func states(log []Op, n int, d Depth) []string {
	var out []string
	for i := range Crashes(log, n, d) {
		var files []string
		for _, d := range i.dirs {
			files = append(files, d+"/")
		}
		for name, data := range i.files {
			runs := ""
			for k := 0; k < len(data); k += sector {
				runs += strings.Trim(string(data[k:min(k+sector, len(data))][:1]), "\x00") + "."
			}
			files = append(files, name+"="+runs)
		}
		slices.Sort(files)
		if s := strings.Join(files, " "); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// What may be there after a power cut, on logs so small that the answer is plain.
func TestWhatAPowerCutLeaves(t *testing.T) {
	create := func(n int, name string) Op { return Op{Kind: Create, File: n, Path: name} }
	write := func(n int, s string) Op { // a letter is a sector
		op := Op{Kind: Write, File: n}
		for _, c := range s {
			op.Data = append(op.Data, []byte(strings.Repeat(string(c), sector))...)
		}
		return op
	}
	sync, folder := Op{Kind: Sync, File: 1}, Op{Kind: SyncFolder}
	failed := func(op Op) Op { op.Failed = true; return op }
	base := []Op{create(1, "f"), write(1, "a"), sync, folder}
	for name, tt := range map[string]struct {
		log  []Op
		want string
	}{
		"nothing is open":                       {base, "f=a."},
		"a name without its folder's sync":      {[]Op{create(1, "f"), write(1, "a"), sync}, " | f=a."},
		"a file without its own":                {[]Op{create(1, "f"), write(1, "a"), folder}, "f= | f=a."},
		"a write":                               {append(base, write(1, "b")), "f=a. | f=b."},
		"a write that is torn":                  {append(base, write(1, "bc")), "f=a. | f=a.c. | f=b. | f=b.c."},
		"two writes, in either order":           {append(base, write(1, "b"), write(1, "c")), "f=a. | f=b. | f=c."},
		"a write over one that was synced":      {append(base, write(1, "b"), sync, write(1, "c")), "f=b. | f=c."},
		"the sync has failed":                   {append(base, write(1, "b"), failed(sync)), "f=a. | f=b."},
		"a sync after one that has failed":      {append(base, write(1, "b"), failed(sync), sync), "f=a. | f=b."},
		"a write after a sync that has failed":  {append(base, write(1, "b"), failed(sync), write(1, "c"), sync), "f=c."},
		"a write that has failed":               {append(base, failed(write(1, "b"))), "f=a."},
		"a truncation":                          {append(base, Op{Kind: Truncate, File: 1}), "f= | f=a."},
		"replaced, nothing synced":              {append(base, create(2, "t"), write(2, "b"), Op{Kind: Rename, File: 2, Path: "t", To: "f"}), "f= | f=a. | f=a. t= | f=a. t=b. | f=b."},
		"replaced, the content synced":          {append(base, create(2, "t"), write(2, "b"), Op{Kind: Sync, File: 2}, Op{Kind: Rename, File: 2, Path: "t", To: "f"}), "f=a. | f=a. t=b. | f=b."},
		"replaced, all synced":                  {append(base, create(2, "t"), write(2, "b"), Op{Kind: Sync, File: 2}, Op{Kind: Rename, File: 2, Path: "t", To: "f"}, folder), "f=b."},
		"removed":                               {append(base, Op{Kind: Remove, File: 1, Path: "f"}), " | f=a."},
		"in a folder whose name is not durable": {[]Op{{Kind: Mkdir, Path: "d"}, create(1, "d/f"), write(1, "a"), sync, {Kind: SyncFolder, Path: "d"}}, " | d/ d/f=a."},
	} {
		if got := strings.Join(states(tt.log, len(tt.log), Depth{All: 6, Torn: 8}), " | "); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	// Each point of a log is a power cut of its own.
	if got := strings.Join(states(base, 0, Depth{All: 6, Torn: 8}), " | "); got != " | f= | f=a." {
		t.Errorf("at any point: %s", got)
	}
	// Where there is too much for all of it, what is drawn by lot is the same each time.
	var many []Op
	for i := range 12 {
		many = append(many, Op{Kind: Write, File: 1, Off: int64(i * sector), Data: []byte("b")})
	}
	log := append(slices.Clone(base), many...)
	a, b := states(log, len(log), Depth{Random: 40}), states(log, len(log), Depth{Random: 40})
	if !slices.Equal(a, b) || len(a) < 50 {
		t.Errorf("%d and %d states", len(a), len(b))
	}
}

// An image is written as it was said.
func TestAnImageIsWritten(t *testing.T) {
	log := []Op{{Kind: Mkdir, Path: "d"}, {Kind: Create, File: 1, Path: "d/f"}, {Kind: Write, File: 1, Data: []byte("hello")}}
	dir := filepath.Join(Scratch(t), "image")
	got := map[string]bool{}
	for i := range Crashes(log, 3, Depth{All: 3}) {
		must(t, i.Write(dir))
		b, err := os.ReadFile(filepath.Join(dir, "d", "f"))
		_, derr := os.Stat(filepath.Join(dir, "d"))
		got[fmt.Sprintf("%s %v %v", b, err == nil, derr == nil)] = true
	}
	if len(got) != 4 {
		t.Errorf("images: %v", got)
	}
}

// A test that is killed, its disk's process with it, leaves nothing mounted behind.
func TestTheDiskGoesWithItsTest(t *testing.T) {
	const env = "HOLDFAST_FAULTFS_TEST"
	if os.Getenv(env) != "" {
		fmt.Println(New(t).Dir)
		time.Sleep(time.Minute) // until it is killed
		return
	}
	New(t) // or this test is left out
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), env+"=1", "TMPDIR="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		dir, err := bufio.NewReader(out).ReadString('\n')
		must(t, err)
		mounted := func() bool {
			b, err := os.ReadFile("/proc/self/mountinfo")
			must(t, err)
			return strings.Contains(string(b), " "+strings.TrimSpace(dir)+" ")
		}
		if !mounted() {
			t.Fatalf("%q is not mounted", dir)
		}
		to := -cmd.Process.Pid // the terminal's and the time-out's way: to both
		if sig == syscall.SIGKILL {
			to = -to
		}
		must(t, syscall.Kill(to, sig))
		_ = cmd.Wait()
		for range 1000 {
			if !mounted() {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if mounted() {
			t.Errorf("%v: still mounted", sig)
		}
	}
}
