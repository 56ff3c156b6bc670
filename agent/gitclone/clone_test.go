package gitclone

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// options of a clone in a folder of its own, with short deadlines.
func options(t testing.TB, url string) Options {
	return Options{
		Path: filepath.Join(t.TempDir(), "clone.db"), URL: url, File: "greenhouse.yaml",
		ConnectTimeout: 5 * time.Second, StallTimeout: 5 * time.Second, FetchTimeout: 30 * time.Second,
		Validate: func(name string, data []byte) error {
			if strings.Contains(string(data), "invalid") {
				return errors.New(name + ":1: no such actuator")
			}
			return nil
		},
	}
}

func openClone(t testing.TB, o Options) *Clone {
	t.Helper()
	c, err := Open(o)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func mustFetch(t testing.TB, c *Clone) Fetched {
	t.Helper()
	f, err := c.Fetch(context.Background())
	if err != nil {
		t.Fatalf("Fetch = %v", err)
	}
	return f
}

// wantFetch fetches and wants one kind of error.
func wantFetch(t testing.TB, c *Clone, k Kind) *Error {
	t.Helper()
	f, err := c.Fetch(context.Background())
	var e *Error
	if !errors.Is(err, k) || !errors.As(err, &e) {
		t.Fatalf("Fetch = %+v, %v (%s), want %s", f, err, KindOf(err), k)
	}
	if e.Advice == "" {
		t.Errorf("error %q has no advice", e)
	}
	return e
}

func wantDesired(t testing.TB, c *Clone, revision, data string) Desired {
	t.Helper()
	d, ok, err := c.Desired()
	if err != nil || !ok || d.Revision != revision || string(d.Data) != data {
		t.Fatalf("Desired = %+v, %v, %v, want %q at %s", d, ok, err, data, revision)
	}
	return d
}

// onDisk is all that a write would change.
type onDisk struct {
	bytes string
	mtime time.Time
	txid  int
}

func disk(t testing.TB, c *Clone) onDisk {
	t.Helper()
	b, err := os.ReadFile(c.o.Path)
	if err != nil {
		t.Fatal(err)
	}
	fi, _ := os.Stat(c.o.Path)
	id, err := c.store.TxID()
	if err != nil {
		t.Fatal(err)
	}
	return onDisk{string(b), fi.ModTime(), id}
}

func TestFetch(t *testing.T) {
	r := newRepo(t)
	one := r.set("pump: on\n")
	srv, url := r.serve()
	o := options(t, url)
	c := openClone(t, o)

	if d, ok, err := c.Desired(); ok || err != nil {
		t.Fatalf("Desired before the first fetch = %+v, %v, %v", d, ok, err)
	}
	if f := mustFetch(t, c); !f.Changed || f.Revision != one || f.SameDocument {
		t.Errorf("first Fetch = %+v, want a change to %s", f, one)
	}
	d := wantDesired(t, c, one, "pump: on\n")
	if d.Author != "Ada" || d.Subject != "set pump: on" || d.URL != url || d.When.Year() != 2026 || d.Branch != "main" {
		t.Errorf("provenance = %+v", d)
	}

	// Nothing new: nothing is written, nothing is downloaded.
	before := disk(t, c)
	srv.count("")
	for range 20 {
		if f := mustFetch(t, c); f.Changed || f.Revision != one {
			t.Fatalf("Fetch of nothing new = %+v", f)
		}
	}
	if n := srv.count("POST"); n != 0 {
		t.Errorf("%d packs were asked for though nothing changed", n)
	}
	if disk(t, c) != before {
		t.Error("the clone was written though nothing changed")
	}

	two := r.set("pump: off\n")
	if f := mustFetch(t, c); !f.Changed || f.Revision != two || f.SameDocument {
		t.Errorf("Fetch after a change = %+v, want %s", f, two)
	}
	wantDesired(t, c, two, "pump: off\n")
	if after := disk(t, c); after.txid != before.txid+1 {
		t.Errorf("a publish took %d transactions, want 1", after.txid-before.txid)
	}

	r.write("README", "other\n")
	three := r.push("something else")
	if f := mustFetch(t, c); !f.Changed || !f.SameDocument || f.Revision != three {
		t.Errorf("Fetch of the same document under a new revision = %+v", f)
	}
	wantDesired(t, c, three, "pump: off\n")

	// Without network, and after a restart.
	srv.Close()
	wantFetch(t, c, ErrOffline)
	wantDesired(t, c, three, "pump: off\n")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if d, ok, err := Read(o.Path); err != nil || !ok || d.Revision != three || string(d.Data) != "pump: off\n" {
		t.Errorf("Read = %+v, %v, %v", d, ok, err)
	}
	c = openClone(t, o)
	wantDesired(t, c, three, "pump: off\n")
	wantFetch(t, c, ErrOffline)
}

func TestFetchLocalPath(t *testing.T) {
	r := newRepo(t)
	r.write("devices/gh-0042/greenhouse.yaml", "lamp: on\n")
	one := r.push("one")
	for _, url := range []string{r.bare, "file://" + r.bare} {
		o := options(t, url)
		o.File = "devices/gh-0042/greenhouse.yaml"
		c := openClone(t, o)
		mustFetch(t, c)
		wantDesired(t, c, one, "lamp: on\n")
		if f := mustFetch(t, c); f.Changed {
			t.Errorf("second Fetch = %+v", f)
		}
	}
}
