package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/tools/faultfs"
)

// How a file of a configuration is copied, on a disk that is not to be trusted. It is the same for guard and agent.

var other = strings.Replace(fourLines, "10.1.2.3", "10.1.2.4", 1)

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whenever the power fails while a copy is made or replaced, the next start has the copy that was confirmed last, or the one that was being made.
func TestPowerCutWhileACopyIsMade(t *testing.T) {
	fs, p, path := faultfs.New(t), greenhouse(t), filepath.Join(t.TempDir(), "holdfast.yaml")
	kept := filepath.Join("state", "guard", "config.yaml")
	load := func(data string) (url string) {
		t.Helper()
		write(t, path, data)
		c, usable, err := Load(path, filepath.Join(fs.Dir, kept), p)
		if !usable || err != nil {
			t.Fatalf("Load = %v, %v", usable, err)
		}
		return c.Device.URL
	}
	first := load(fourLines)
	firstDone := fs.Len()
	second := load(other)
	if load(other); len(fs.Log(0)) != fs.Len() || fs.Counts()[faultfs.Rename] != 2 {
		t.Error("an equal copy is written again")
	}
	log := fs.Log(0)
	write(t, path, "garbage")
	dir, found := filepath.Join(faultfs.Scratch(t), "image"), map[string]int{}
	for image := range faultfs.Crashes(log, 0, faultfs.Depth{All: 8, Torn: 8, Random: 10}) {
		if err := image.Write(dir); err != nil {
			t.Fatal(err)
		}
		c, usable, err := Load(path, filepath.Join(dir, kept), p)
		found[c.Device.URL]++
		switch {
		case err == nil, usable != (c.Device.URL != ""), image.After >= firstDone && !usable, image.After == len(log) && c.Device.URL != second, image.After < firstDone && c.Device.URL == second:
			t.Errorf("%v: Load = %q, %v, %v", image, c.Device.URL, usable, err)
		}
	}
	if len(found) != 3 || found[first] == 0 || found[second] == 0 {
		t.Errorf("found: %v", found)
	}
}

// Whichever call fails while a copy is made, the configuration is used all the same, and the copy before it stays; when the disk is well it is replaced.
func TestIOErrorsWhileACopyIsMade(t *testing.T) {
	fs, p, path := faultfs.New(t), greenhouse(t), filepath.Join(t.TempDir(), "holdfast.yaml")
	for _, reading := range []bool{false, true} {
		for n := 0; ; n++ {
			failed := 0
			for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EROFS} {
				for _, stays := range []bool{false, true} {
					fault := faultfs.Fault{Reading: reading, After: n, Stays: stays, Errno: errno}
					kept := filepath.Join(fs.Dir, fmt.Sprint(reading, n, uint(errno), stays), "config.yaml")
					write(t, path, fourLines)
					if _, _, err := Load(path, kept, p); err != nil {
						t.Fatal(err)
					}
					write(t, path, other)
					fs.Fail(fault)
					c, usable, err := Load(path, kept, p)
					hit := fs.Heal()
					failed += hit
					if !usable || c.Device.URL != "http://10.1.2.4" || err != nil && (hit == 0 || !strings.Contains(err.Error(), "is in use, but cannot keep a copy") || !errors.Is(err, errno)) {
						t.Errorf("%+v: Load = %q, %v, %v", fault, c.Device.URL, usable, err)
					}
					write(t, path, "garbage")
					if c, usable, _ := Load(path, kept, p); !usable || err == nil && c.Device.URL != "http://10.1.2.4" {
						t.Errorf("%+v: then the copy is %q, %v", fault, c.Device.URL, usable)
					}
					write(t, path, other)
					if _, _, err := Load(path, kept, p); err != nil {
						t.Errorf("%+v: on a disk that is well: %v", fault, err)
					}
					write(t, path, "garbage")
					if c, usable, _ := Load(path, kept, p); !usable || c.Device.URL != "http://10.1.2.4" {
						t.Errorf("%+v: in the end the copy is %q, %v", fault, c.Device.URL, usable)
					}
				}
			}
			if failed == 0 {
				break
			}
		}
	}
}

// A copy of which one bit is flipped, or any part lost, is none: never another configuration. The next valid one takes its place.
func TestADamagedCopyIsNone(t *testing.T) {
	p, dir := greenhouse(t), t.TempDir()
	path, kept := filepath.Join(dir, "holdfast.yaml"), filepath.Join(faultfs.Scratch(t), "config.yaml")
	write(t, path, fourLines)
	want, _, err := Load(path, kept, p)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(dir, "broken.yaml")
	write(t, broken, "garbage")
	try := func(what string, b []byte) {
		t.Helper()
		if bytes.Equal(b, whole) {
			return
		}
		write(t, kept, string(b))
		if c, usable, err := Load(broken, kept, p); usable || err == nil || !strings.Contains(err.Error(), kept) {
			t.Errorf("%s: Load = %+v, %v, %v", what, c, usable, err)
		}
	}
	for at := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[at] ^= 1 << bit
			try(fmt.Sprintf("bit %d.%d", at, bit), b)
		}
		try(fmt.Sprintf("cut at %d", at), whole[:at])
		b := bytes.Clone(whole)
		clear(b[at:min(at+16, len(b))])
		try(fmt.Sprintf("zeroed at %d", at), b)
		b = bytes.Clone(whole)
		copy(b[at:], bytes.Repeat([]byte{0xFF}, min(16, len(b)-at)))
		try(fmt.Sprintf("erased at %d", at), b)
	}
	if _, _, err := Load(path, kept, p); err != nil {
		t.Error(err)
	}
	if c, usable, _ := Load(broken, kept, p); !usable || !reflect.DeepEqual(c, want) {
		t.Errorf("after the next valid one: %+v, %v", c, usable)
	}
}
