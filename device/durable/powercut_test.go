package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/tools/faultfs"
)

// content is what a folder's files hold after a power cut, "-" for one that is not there.
func content(t *testing.T, dir string, names ...string) string {
	t.Helper()
	out := ""
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case errors.Is(err, os.ErrNotExist):
			out += "- "
		case err != nil:
			t.Fatal(err)
		default:
			out += string(b[:min(3, len(b))]) + fmt.Sprint(len(b)) + " "
		}
	}
	return out
}

// Whenever the power fails, a file has its old content or its new one, and once it is said to have the new one it has; a folder that was made is there, with what is in it.
func TestPowerCut(t *testing.T) {
	fs, dir := faultfs.New(t), filepath.Join(faultfs.Scratch(t), "image")
	name := filepath.Join("a", "b", "file")
	path := filepath.Join(fs.Dir, name)
	body := func(s string, n int) []byte { return append([]byte(s), make([]byte, n)...) }
	var done []int
	for _, do := range []func() error{
		func() error { return MakeFolder(filepath.Dir(path), 0o755) },
		func() error { return Replace(path, body("one", 3000), 0o600) },
		func() error { return Replace(path, body("two", 100), 0o600) },
		func() error { _, err := SetAside(path); return err },
		func() error { return Replace(path, body("tri", 5000), 0o600) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		done = append(done, fs.Len())
	}
	states := []string{"- - ", "one3003 - ", "two103 - ", "- two103 ", "tri5003 two103 "} // after each of them
	found := map[string]bool{}
	for image := range faultfs.Crashes(fs.Log(0), 0, faultfs.Depth{All: 8, Torn: 20, Random: 50}) {
		if err := image.Write(dir); err != nil {
			t.Fatal(err)
		}
		got := content(t, dir, name, name+".bad")
		i := 0
		for i < len(done) && done[i] <= image.After {
			i++
		}
		if got != states[max(i-1, 0)] && (i == len(states) || got != states[i]) {
			t.Errorf("%v: %s", image, got)
		}
		if _, err := os.Stat(filepath.Join(dir, "a", "b")); i > 0 && err != nil {
			t.Errorf("%v: %v", image, err)
		}
		found[got] = true
	}
	if len(found) != len(states) {
		t.Errorf("found: %v", found)
	}
}

// Whichever call fails, the error says so and the old content stays, or it is the new one; nothing is left over; tried again on a disk that is well it works, and
// what is then said to be on the disk is, though a sync has failed before.
func TestIOErrors(t *testing.T) {
	fs, image := faultfs.New(t), filepath.Join(faultfs.Scratch(t), "image")
	for n := 0; ; n++ {
		failed := 0
		for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EROFS} {
			for _, stays := range []bool{false, true} {
				what := fmt.Sprintf("call %d: %v, stays %v", n, errno, stays)
				folder, from := fmt.Sprint(n, uint(errno), stays), fs.Len()
				path := filepath.Join(fs.Dir, folder, "sub", "file")
				do := func() error {
					return errors.Join(MakeFolder(filepath.Dir(path), 0o755), Replace(path, []byte("new"), 0o600))
				}
				if err := MakeFolder(filepath.Join(fs.Dir, folder), 0o755); err != nil {
					t.Fatal(err)
				}
				fs.Fail(faultfs.Fault{After: n, Errno: errno, Stays: stays})
				err := do()
				hit := fs.Heal()
				failed += hit
				if (err != nil) != (hit > 0) || err != nil && !errors.Is(err, errno) {
					t.Errorf("%s: %d calls have failed, and it says %v", what, hit, err)
				}
				if got := content(t, fs.Dir, filepath.Join(folder, "sub", "file")); got != "- " && got != "new3 " {
					t.Errorf("%s: %s", what, got)
				}
				if _, err := os.Stat(path + ".tmp"); err == nil && !stays {
					t.Errorf("%s: something half written takes room", what)
				}
				if err := do(); err != nil {
					t.Errorf("%s: on a disk that is well: %v", what, err)
				}
				if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
					t.Errorf("%s: left over: %v, %v", what, names, err)
				}
				log := fs.Log(from)
				for i := range faultfs.Crashes(log, len(log), faultfs.Depth{All: 8}) {
					if err := i.Write(image); err != nil {
						t.Fatal(err)
					}
					if got := content(t, image, filepath.Join(folder, "sub", "file")); got != "new3 " {
						t.Errorf("%s: %v: %s", what, i, got)
					}
				}
			}
		}
		if failed == 0 {
			break
		}
	}
}
