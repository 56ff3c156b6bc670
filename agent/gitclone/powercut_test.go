package gitclone

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holdfast/tools/faultfs"
)

// rig is a repository at several points of its life, a server that serves one of them and asks git for the same thing once, and a disk for clones.
type rig struct {
	*repo
	fs  *faultfs.FS
	url string

	mu   sync.Mutex
	at   string // the revision that is served
	said map[string]*httptest.ResponseRecorder
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{repo: newRepo(t), fs: faultfs.New(t), said: map[string]*httptest.ResponseRecorder{}}
	srv, url := r.serve()
	srv.setFront(r.front)
	r.url = url
	return r
}

func (r *rig) front(w http.ResponseWriter, q *http.Request, git http.Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, _ := io.ReadAll(q.Body)
	q.Body = io.NopCloser(bytes.NewReader(body))
	q.URL.Path = strings.Replace(q.URL.Path, "/state.git", "/"+r.at, 1)
	key := fmt.Sprint(q.Method, q.URL, q.Header, string(body))
	a := r.said[key]
	if a == nil {
		a = httptest.NewRecorder()
		git.ServeHTTP(a, q)
		r.said[key] = a
	}
	for k, v := range a.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(a.Code)
	_, _ = w.Write(a.Body.Bytes())
}

// declare pushes a document, serves it, and returns its revision.
func (r *rig) declare(document string) string {
	r.t.Helper()
	r.write("greenhouse.yaml", document)
	revision := r.push("a change")
	if err := os.CopyFS(filepath.Join(filepath.Dir(r.bare), revision), os.DirFS(r.bare)); err != nil {
		r.t.Fatal(err)
	}
	r.serveRevision(revision)
	return revision
}

// serveRevision makes a revision that was declared once the branch's head.
func (r *rig) serveRevision(revision string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = revision
}

func (r *rig) options(t *testing.T, path string) Options {
	o := options(t, r.url)
	o.Path = path
	return o
}

// TestPowerCutOnRealFiles: whenever the power fails, from the first fetch to a compaction, and whatever of what was not synced is lost, torn or out of order, the
// next agent has the document that it had last or the one that was being stored, with its revision; nothing is found damaged; and it fetches what is declared.
func TestPowerCutOnRealFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := filepath.Join(r.fs.Dir, "clone.db")
	type had struct {
		began, done    int
		revision, data string
	}
	story := []had{}
	step := func(do func() *Clone) {
		t.Helper()
		began := r.fs.Len()
		d, _, _ := do().Desired()
		story = append(story, had{began, r.fs.Len(), d.Revision, string(d.Data)})
	}
	var c *Clone
	reopen := func() *Clone {
		if c != nil {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		c = openClone(t, r.options(t, path))
		return c
	}
	fetch := func() *Clone { mustFetch(t, c); return c }
	step(reopen)
	for _, content := range []string{"pump: on\n", "pump: off\n", "pump: on\n" + strings.Repeat("# a long comment\n", 20_000), "fan: on\n", "fan: off\n"} {
		r.declare(content)
		step(fetch)
	}
	step(reopen) // compacted
	last := r.declare("lamp: off\n")
	step(fetch)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	log := r.fs.Log(0)

	depth := faultfs.Pick(*long, faultfs.Depth{All: 1}, faultfs.Depth{All: 4, Torn: 3, Random: 2}, faultfs.Depth{All: 8, Torn: 64, Random: 100})
	image := filepath.Join(faultfs.Scratch(t), "image")
	known, fetched := map[uint64]Desired{}, map[string]bool{}
	states := 0
	for i := range faultfs.Crashes(log, 0, depth) {
		states++
		d, ok := known[i.Key]
		if !ok {
			if err := i.Write(image); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(image, "clone.db")
			read, _, err := Read(path)
			if err != nil {
				t.Fatalf("%v: Read = %v", i, err)
			}
			c := openClone(t, r.options(t, path))
			d, _, _ = c.Desired()
			if d.Revision != read.Revision || string(d.Data) != string(read.Data) {
				t.Errorf("%v: the agent has %q, the command reads %q", i, d.Revision, read.Revision)
			}
			if n := c.Notices(); len(n) > 0 {
				t.Errorf("%v: %v", i, n)
			}
			if !fetched[d.Revision] || *long {
				fetched[d.Revision] = true
				mustFetch(t, c)
				wantDesired(t, c, last, "lamp: off\n")
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			known[i.Key] = d
		}
		k := -1
		for k+1 < len(story) && story[k+1].done <= i.After {
			k++
		}
		var allowed []had
		if k >= 0 {
			allowed = append(allowed, story[k])
		} else {
			allowed = append(allowed, had{})
		}
		if k+1 < len(story) && story[k+1].began < i.After {
			allowed = append(allowed, story[k+1])
		}
		ok = false
		for _, a := range allowed {
			ok = ok || a.revision == d.Revision && a.data == string(d.Data)
		}
		if !ok {
			t.Fatalf("%v: %q at %s is desired, one of %d others was to be", i, d.Data[:min(20, len(d.Data))], d.Revision, len(allowed))
		}
	}
	if len(fetched) != 7 {
		t.Errorf("%d documents were found, want 7: %v", len(fetched), fetched)
	}
	t.Logf("%d calls, %d states after a power cut, %d different", len(log), states, len(known))
}

// TestWhatAFetchWrites: a change is one transaction of two syncs, and a poll that finds nothing new touches no disk.
func TestWhatAFetchWrites(t *testing.T) {
	r := newRig(t)
	r.declare("pump: on\n")
	c := openClone(t, r.options(t, filepath.Join(r.fs.Dir, "clone.db")))
	mustFetch(t, c)
	for n := range 5 {
		r.declare(fmt.Sprintf("pump: on # %d\n", n))
		before := r.fs.Counts()
		if f := mustFetch(t, c); !f.Changed {
			t.Fatal("nothing has changed")
		}
		if did := r.fs.Counts().Minus(before); did.Syncs() > 2 || did[faultfs.Write] > 10 || did[faultfs.Create]+did[faultfs.Rename]+did[faultfs.Remove] > 0 {
			t.Errorf("change %d: %v; want 2 syncs", n, did)
		}
		before = r.fs.Counts()
		for range 3 {
			mustFetch(t, c)
		}
		if did := r.fs.Counts().Minus(before); did.Changing() > 0 {
			t.Errorf("three polls after change %d: %v", n, did)
		}
	}
}
