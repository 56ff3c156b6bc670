package gitclone

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// inSmallDisk runs the test again in a process of its own that may mount: t.Name() there gets a folder on a disk of 256
// KiB that is all its own. It needs user namespaces, and no root.
func inSmallDisk(t *testing.T, do func(t *testing.T, dir string)) {
	const env = "HOLDFAST_SMALL_DISK"
	if dir := os.Getenv(env); dir != "" {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
			t.Fatalf("cannot mount: %v", err)
		}
		do(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil && (len(out) == 0 || strings.Contains(string(out), "cannot mount")):
		t.Skipf("user namespaces are not allowed here: %v %s", err, out)
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	}
}

func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return
		}
	}
}

// TestDiskFull: nothing is published that is not on disk; what is published stays; space makes it good.
func TestDiskFull(t *testing.T) {
	inSmallDisk(t, func(t *testing.T, dir string) {
		r := newRepo(t)
		one := r.set("pump: on\n")
		srv, url := r.serve()
		o := options(t, url)
		o.Path = filepath.Join(dir, "clone.db")
		c := openClone(t, o)
		mustFetch(t, c)
		fill(t, dir)
		two := r.set("pump: off\n" + strings.Repeat("# so that it needs more pages\n", 1000))
		srv.count("")
		for range 3 {
			wantFetch(t, c, ErrStore)
		}
		if n := srv.count("POST"); n != 1 {
			t.Errorf("%d packs for a revision that cannot be stored, want 1", n)
		}
		wantDesired(t, c, one, "pump: on\n")

		// A restart on the full disk.
		_ = c.Close()
		c = openClone(t, o)
		wantDesired(t, c, one, "pump: on\n")
		wantFetch(t, c, ErrStore)
		wantDesired(t, c, one, "pump: on\n")

		_ = os.Remove(filepath.Join(dir, "filler"))
		mustFetch(t, c)
		if d, _, _ := c.Desired(); d.Revision != two {
			t.Errorf("Desired = %s, want %s", d.Revision, two)
		}
		_ = c.Close()

		// A new clone on a full disk: in memory, and on disk as soon as it can be.
		_ = os.Remove(o.Path)
		fill(t, dir)
		c = openClone(t, o)
		if n := c.Notices(); len(n) != 1 || n[0].What != "in-memory" {
			t.Errorf("Notices = %v", n)
		}
		mustFetch(t, c)
		three := r.set("pump: on\n")
		mustFetch(t, c)
		wantDesired(t, c, three, "pump: on\n")
		if _, ok, _ := Read(o.Path); ok {
			t.Error("a clone is on a full disk")
		}
		_ = os.Remove(filepath.Join(dir, "filler"))
		if f := mustFetch(t, c); f.Changed {
			t.Errorf("Fetch of nothing new = %+v", f)
		}
		if n := c.Notices(); len(n) != 0 {
			t.Errorf("Notices = %v", n)
		}
		if d, ok, err := Read(o.Path); !ok || d.Revision != three {
			t.Errorf("Read = %+v, %v, %v", d, ok, err)
		}
	})
}

// TestReadOnlyDisk: what is there is used, nothing new is published, and nothing older comes back.
func TestReadOnlyDisk(t *testing.T) {
	inSmallDisk(t, func(t *testing.T, dir string) {
		r := newRepo(t)
		one := r.set("pump: on\n")
		_, url := r.serve()
		o := options(t, url)
		o.Path = filepath.Join(dir, "clone.db")
		c := openClone(t, o)
		mustFetch(t, c)
		_ = c.Close()
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatalf("cannot mount: %v", err)
		}
		c = openClone(t, o)
		if n := c.Notices(); len(n) != 1 || n[0].What != "read-only" {
			t.Errorf("Notices = %v", n)
		}
		wantDesired(t, c, one, "pump: on\n")
		if f := mustFetch(t, c); f.Changed {
			t.Errorf("Fetch of nothing new = %+v", f)
		}
		two := r.set("pump: off\n")
		wantFetch(t, c, ErrStore)
		wantDesired(t, c, one, "pump: on\n")
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, ""); err != nil {
			t.Fatalf("cannot mount: %v", err)
		}
		if _, err := c.Fetch(context.Background()); err != nil {
			t.Errorf("Fetch on a disk that can be written again = %v", err)
		}
		wantDesired(t, c, two, "pump: off\n")
		_ = c.Close()
		if d, ok, _ := Read(o.Path); !ok || d.Revision != two {
			t.Errorf("Read = %+v", d)
		}
	})
}
