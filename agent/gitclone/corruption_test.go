package gitclone

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"holdfast/tools/faultfs"
)

// TestCorruption: the clone's file is damaged in each of its regions and in several ways, while no agent runs or while one does. What is desired is a document that was
// published, whole, with its revision: the last, or the one before it if what says which is the last is damaged; or nothing, which is told. The next fetch has it all
// again, and so has the next agent.
func TestCorruption(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	docs := map[string]string{}
	c := openClone(t, r.options(t, filepath.Join(t.TempDir(), "clone.db")))
	var last, before string
	for n := range 4 {
		doc := fmt.Sprintf("pump: on # %d\n", n)
		before, last = last, r.declare(doc)
		docs[last] = doc
		mustFetch(t, c)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	next := r.declare("pump: off\n")
	docs[next] = "pump: off\n"
	whole, err := os.ReadFile(c.o.Path)
	if err != nil {
		t.Fatal(err)
	}
	stride := faultfs.Pick(*long, 4096, 1024, 64)
	o := r.options(t, filepath.Join(faultfs.Scratch(t), "clone.db"))
	found := map[string]int{}
	for _, kind := range []string{"cut", "zeroed", "erased", "flipped"} {
		for at := 0; at < len(whole); at += stride {
			b := bytes.Clone(whole)
			part := b[at:min(at+stride, len(b))]
			switch kind {
			case "cut":
				b = b[:at]
			case "zeroed":
				clear(part)
			case "erased":
				copy(part, bytes.Repeat([]byte{0xFF}, len(part)))
			default:
				for i := range part {
					part[i] ^= 0x55
				}
			}
			for _, open := range []bool{false, true} {
				what := fmt.Sprintf("%s at %d, open: %v", kind, at, open)
				if err := os.WriteFile(o.Path, whole, 0o600); err != nil {
					t.Fatal(err)
				}
				spoil := func() {
					f, err := os.OpenFile(o.Path, os.O_WRONLY, 0)
					if err == nil && kind == "cut" {
						err = f.Truncate(int64(at))
					} else if err == nil {
						_, err = f.WriteAt(b, 0)
					}
					if err := errors.Join(err, f.Close()); err != nil {
						t.Fatal(err)
					}
				}
				if !open {
					spoil()
				}
				r.serveRevision(last)
				c := openClone(t, o)
				if open {
					spoil()
				}
				d, ok, _ := c.Desired()
				switch notices := c.Notices(); {
				case !ok && len(notices) > 0:
					found["lost"]++
				case !ok || string(d.Data) != docs[d.Revision] || d.Revision != last && d.Revision != before:
					t.Errorf("%s: desired is %q at %q, %v", what, d.Data, d.Revision, notices)
				case len(notices) > 0:
					found["kept"]++
				}
				for _, revision := range []string{last, next} {
					r.serveRevision(revision)
					mustFetch(t, c)
					wantDesired(t, c, revision, docs[revision])
				}
				if err := c.Close(); err != nil {
					t.Errorf("%s: Close = %v", what, err)
				}
				c = openClone(t, o)
				if n := c.Notices(); open && len(n) > 0 {
					found["at the next start"]++ // nobody had read that meanwhile
					mustFetch(t, c)
				} else if len(n) > 0 {
					t.Errorf("%s: the next start: %v", what, n)
				}
				wantDesired(t, c, next, docs[next])
				_ = c.Close()
				if t.Failed() {
					t.FailNow()
				}
			}
		}
	}
	t.Logf("%d bytes; what was found: %v", len(whole), found)
	if found["lost"] == 0 {
		t.Error("that shows nothing")
	}
}

// TestAKeyRots: the document, or where it came from, is no longer found under its name, though all else is well. That is told, and fetched again.
func TestAKeyRots(t *testing.T) {
	for _, key := range []string{valueDesired, valueDocument} {
		_, _, c, one := started(t)
		o := c.o
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		rotten := key[:len(key)-1] + string(key[len(key)-1]^1)
		if err := os.WriteFile(o.Path, bytes.ReplaceAll(b, []byte(key), []byte(rotten)), 0o600); err != nil {
			t.Fatal(err)
		}
		c = openClone(t, o)
		if n := c.Notices(); len(n) != 1 || n[0].What != noticeSetAside {
			t.Errorf("without %q: %v", key, n)
		}
		mustFetch(t, c)
		wantDesired(t, c, one, "pump: on\n")
	}
}
