package gitclone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// started is a clone that has fetched "pump: on".
func started(t *testing.T, change ...func(*Options)) (*repo, *server, *Clone, string) {
	t.Helper()
	r := newRepo(t)
	one := r.set("pump: on\n")
	srv, url := r.serve()
	o := options(t, url)
	for _, f := range change {
		f(&o)
	}
	c := openClone(t, o)
	mustFetch(t, c)
	wantDesired(t, c, one, "pump: on\n")
	return r, srv, c, one
}

// TestFileStaysFlat: the file does not grow with the number of changes.
func TestFileStaysFlat(t *testing.T) {
	t.Parallel()
	r, _, c, _ := started(t)
	size := func() int64 { fi, _ := os.Stat(c.o.Path); return fi.Size() }
	first := size()
	for i := range 15 {
		rev := r.set(fmt.Sprintf("pump: on # %d\n", i))
		mustFetch(t, c)
		wantDesired(t, c, rev, fmt.Sprintf("pump: on # %d\n", i))
	}
	if last := size(); last > first+16<<10 || last > 64<<10 {
		t.Errorf("the file grew from %d to %d bytes over 15 changes", first, last)
	}
	sh, err := c.store.Shallow()
	if err != nil || len(sh) != 1 {
		t.Errorf("shallow list has %d entries, %v, want 1", len(sh), err)
	}
	n := 0
	it, err := c.store.IterEncodedObjects(plumbing.AnyObject)
	if err == nil {
		err = it.ForEach(func(plumbing.EncodedObject) error { n++; return nil })
	}
	if err != nil || n != 2 {
		t.Errorf("%d objects are stored, %v, want 2: revision and folder; the file is the document", n, err)
	}
}

// TestRefusedContent: what is wrong with a revision is told at each fetch, downloaded once, and changes nothing.
func TestRefusedContent(t *testing.T) {
	huge := strings.Repeat("x", 3<<20)
	tests := []struct {
		name string
		do   func(r *repo)
		kind Kind
		says string
	}{
		{"invalid", func(r *repo) { r.write("greenhouse.yaml", "invalid: on\n") }, ErrFileInvalid, "no such actuator"},
		{"missing", func(r *repo) { r.git("rm", "-q", "greenhouse.yaml") }, ErrFileMissing, "greenhouse.yaml"},
		{"moved", func(r *repo) { r.git("mv", "greenhouse.yaml", "Greenhouse.yaml") }, ErrFileMissing, `but "Greenhouse.yaml"`},
		{"symlink", func(r *repo) {
			r.git("rm", "-q", "greenhouse.yaml")
			_ = os.Symlink("/etc/passwd", filepath.Join(r.work, "greenhouse.yaml"))
		}, ErrNotAFile, "symbolic link"},
		{"submodule", func(r *repo) {
			r.git("rm", "-q", "greenhouse.yaml")
			r.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",greenhouse.yaml")
			_ = os.Mkdir(filepath.Join(r.work, "greenhouse.yaml"), 0o755)
		}, ErrNotAFile, "submodule"},
		{"folder", func(r *repo) { r.git("rm", "-q", "greenhouse.yaml"); r.write("greenhouse.yaml/x", "y") }, ErrNotAFile, "folder"},
		{"LFS pointer", func(r *repo) {
			r.write("greenhouse.yaml", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
		}, ErrNotAFile, "LFS"},
		{"too large", func(r *repo) { r.write("greenhouse.yaml", huge) }, ErrTooLarge, "greenhouse.yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, srv, c, one := started(t)
			before := disk(t, c)
			tt.do(r)
			bad := r.push("bad")
			srv.count("")
			for range 3 {
				e := wantFetch(t, c, tt.kind)
				if !strings.Contains(e.Error(), tt.says) {
					t.Errorf("error %q does not say %q", e, tt.says)
				}
			}
			if n := srv.count("POST"); n < 1 || n > 2 { // the pack, and its ancestry if that was not clear
				t.Errorf("head %s was downloaded %d times", bad, n)
			}
			wantDesired(t, c, one, "pump: on\n")
			if disk(t, c) != before {
				t.Error("the clone was written")
			}
			// Mended by the next revision.
			r.git("rm", "-rfq", "--cached", "greenhouse.yaml", "--ignore-unmatch")
			_ = os.RemoveAll(filepath.Join(r.work, "greenhouse.yaml"))
			good := r.set("pump: off\n")
			mustFetch(t, c)
			wantDesired(t, c, good, "pump: off\n")
			// Or by going back to the published one: its error is gone too.
			r.write("greenhouse.yaml", "invalid\n")
			r.push("bad again")
			wantFetch(t, c, ErrFileInvalid)
			r.git("push", "-q", "-f", "origin", good+":main")
			if f := mustFetch(t, c); f.Changed {
				t.Errorf("Fetch of the published head = %+v", f)
			}
		})
	}
}

func TestBranchGone(t *testing.T) {
	t.Parallel()
	r, _, c, one := started(t)
	r.git("push", "-q", "origin", "HEAD:other")
	r.run(r.bare, "git", "symbolic-ref", "HEAD", "refs/heads/other")
	r.git("push", "-q", "origin", ":main")
	wantFetch(t, c, ErrBranchGone)
	wantDesired(t, c, one, "pump: on\n")
	two := r.set("pump: off\n")
	mustFetch(t, c)
	wantDesired(t, c, two, "pump: off\n")
}

func TestEmptyRepository(t *testing.T) {
	r := newRepo(t)
	_, url := r.serve()
	for _, url := range []string{url, r.bare} {
		c := openClone(t, options(t, url))
		wantFetch(t, c, ErrRepositoryEmpty)
		if d, ok, err := c.Desired(); ok || err != nil {
			t.Errorf("Desired = %+v, %v, %v", d, ok, err)
		}
	}
	c := openClone(t, options(t, url))
	wantFetch(t, c, ErrRepositoryEmpty)
	one := r.set("pump: on\n")
	mustFetch(t, c)
	wantDesired(t, c, one, "pump: on\n")
}

// TestHistory: a head must descend from what is in force, however many revisions lie between, on servers with and
// without filters.
func TestHistory(t *testing.T) {
	for _, filter := range []string{"true", "false"} {
		t.Run("allowFilter="+filter, func(t *testing.T) {
			t.Parallel()
			r, srv, c, _ := started(t)
			r.run(r.bare, "git", "config", "uploadpack.allowFilter", filter)
			c.remote.forget()

			// Ten revisions between two polls, with a merge.
			r.git("checkout", "-q", "-b", "side")
			for i := range 5 {
				r.write("README", fmt.Sprint(i))
				r.git("add", "-A")
				r.git("commit", "-q", "-m", "side")
			}
			r.git("checkout", "-q", "main")
			for i := range 5 {
				r.write("NEWS", fmt.Sprint(i))
				r.git("add", "-A")
				r.git("commit", "-q", "-m", "main")
			}
			r.git("merge", "-q", "--no-ff", "-m", "merge", "side")
			r.git("commit", "-q", "--allow-empty", "-m", "after")
			two := r.set("pump: off\n")
			mustFetch(t, c)
			wantDesired(t, c, two, "pump: off\n")

			// Rewritten: another root, and one that goes back.
			before := disk(t, c)
			for _, back := range []string{"HEAD~1", "HEAD~3"} {
				r.git("push", "-q", "-f", "origin", back+":main")
				srv.count("")
				for range 2 {
					wantFetch(t, c, ErrHistoryRewritten)
				}
				if n, most := srv.count("POST"), map[string]int{"true": 1, "false": 3}[filter]; n == 0 || n > most {
					t.Errorf("%d packs for two fetches of a rewritten head, want 1 to %d", n, most)
				}
			}
			r.git("checkout", "-q", "--orphan", "fresh")
			evil := r.set("lamp: on\n")
			wantFetch(t, c, ErrHistoryRewritten)
			wantFetch(t, c, ErrHistoryRewritten)
			wantDesired(t, c, two, "pump: off\n")
			if disk(t, c) != before {
				t.Error("the clone was written")
			}

			if err := c.Accept("abc"); err == nil {
				t.Error("Accept of half a revision succeeded")
			}
			if err := c.Accept(strings.Repeat("1", 40)); err != nil {
				t.Fatal(err)
			}
			wantFetch(t, c, ErrHistoryRewritten)
			if err := c.Accept(evil); err != nil {
				t.Fatal(err)
			}
			mustFetch(t, c)
			wantDesired(t, c, evil, "lamp: on\n")
			// Once.
			r.git("push", "-q", "-f", "origin", two+":main")
			wantFetch(t, c, ErrHistoryRewritten)
			r.git("push", "-q", "-f", "origin", evil+":main")
			mustFetch(t, c)
			r.git("push", "-q", "-f", "origin", two+":main")
			wantFetch(t, c, ErrHistoryRewritten)
		})
	}
}

func TestFollow(t *testing.T) {
	r, srv, c, _ := started(t, func(o *Options) { o.History = Follow })
	r.git("checkout", "-q", "--orphan", "fresh")
	two := r.set("lamp: on\n")
	srv.count("")
	mustFetch(t, c)
	wantDesired(t, c, two, "lamp: on\n")
	if n := srv.count("POST"); n != 1 {
		t.Errorf("%d packs, want 1", n)
	}
}

// TestOtherRepository: another repository behind a new URL is history rewritten; a mirror of the same is not.
func TestOtherRepository(t *testing.T) {
	r, _, c, one := started(t)
	o := c.o
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	mirror := filepath.Join(t.TempDir(), "mirror.git")
	r.run(r.work, "git", "clone", "-q", "--bare", r.bare, mirror)
	o.URL = mirror
	c = openClone(t, o)
	if f := mustFetch(t, c); !f.Changed || !f.SameDocument {
		t.Errorf("Fetch from a mirror = %+v", f)
	}
	if d := wantDesired(t, c, one, "pump: on\n"); d.URL != "file://"+mirror {
		t.Errorf("URL = %s", d.URL)
	}
	_ = c.Close()

	other := newRepo(t)
	two := other.set("lamp: on\n")
	o.URL = other.bare
	c = openClone(t, o)
	wantFetch(t, c, ErrHistoryRewritten)
	wantDesired(t, c, one, "pump: on\n")
	if err := c.Accept(two); err != nil {
		t.Fatal(err)
	}
	mustFetch(t, c)
	wantDesired(t, c, two, "lamp: on\n")
}

// TestNewClone: without a clone the first head is trusted; that it does not descend from what is in force is told.
func TestNewClone(t *testing.T) {
	r, _, c, one := started(t)
	o := c.o
	two := r.set("pump: off\n")
	_ = c.Close()
	r.run(r.bare, "git", "config", "uploadpack.allowFilter", "true")
	for _, tt := range []struct {
		name, active string
		notice       bool
	}{
		{"descends", one, false},
		{"is it", two, false},
		{"nothing in force", "", false},
		{"rewritten", strings.Repeat("7", 40), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.Remove(o.Path); err != nil {
				t.Fatal(err)
			}
			o.ActiveRevision = tt.active
			c := openClone(t, o)
			f := mustFetch(t, c)
			wantDesired(t, c, two, "pump: off\n")
			if (len(f.Notices) > 0) != tt.notice {
				t.Errorf("Notices = %q, want one: %v", f.Notices, tt.notice)
			}
			_ = c.Close()
		})
	}
}

// TestDamagedClone: a file cut short or overwritten never stops Open, and the next fetch mends it.
func TestDamagedClone(t *testing.T) {
	t.Parallel()
	_, _, c, one := started(t)
	o := c.o
	_ = c.Close()
	whole, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	kept, lost := 0, 0
	for i := range 31 {
		size := len(whole) * i / 30
		if err := os.WriteFile(o.Path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Open(o)
		if err != nil {
			t.Fatalf("cut at %d: Open = %v", size, err)
		}
		if _, ok, _ := c.Desired(); ok {
			kept++
			wantDesired(t, c, one, "pump: on\n")
		} else {
			lost++
			if n := c.Notices(); len(n) != 1 || n[0].What != "set-aside" {
				t.Errorf("cut at %d: Notices = %v", size, n)
			}
		}
		if f := mustFetch(t, c); f.Revision != one {
			t.Errorf("cut at %d: Fetch = %+v", size, f)
		}
		wantDesired(t, c, one, "pump: on\n")
		if err := c.Close(); err != nil {
			t.Errorf("cut at %d: Close = %v", size, err)
		}
	}
	if kept == 0 || lost == 0 {
		t.Errorf("kept %d, lost %d: the test has lost its point", kept, lost)
	}
}

// TestObjectsRot: the document has a sum of its own; it stays when the objects behind it do not.
func TestObjectsRot(t *testing.T) {
	t.Parallel()
	_, srv, c, one := started(t)
	o := c.o
	_ = c.Close()
	whole, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.ReplaceAll(whole, []byte("author Ada"), []byte("author Bob")) // in the revision only
	if bytes.Equal(bad, whole) {
		t.Fatal("the revision is not where it was expected")
	}
	if err := os.WriteFile(o.Path, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	c = openClone(t, o)
	wantDesired(t, c, one, "pump: on\n")
	if n := c.Notices(); len(n) != 2 || n[0].What != "objects-lost" || n[1].What != "set-aside" {
		t.Errorf("Notices = %v", n)
	}
	_ = c.Close()
	c = openClone(t, o) // and it is on disk, in the new file
	wantDesired(t, c, one, "pump: on\n")
	if n := c.Notices(); len(n) != 1 || n[0].What != "objects-lost" {
		t.Errorf("Notices after a restart = %v", n)
	}
	srv.count("")
	if f := mustFetch(t, c); f.Changed {
		t.Errorf("Fetch of lost objects = %+v", f)
	}
	if srv.count("POST") == 0 {
		t.Error("no pack was asked for: the objects are to be fetched again")
	}
	mustFetch(t, c)
	if n := srv.count("POST"); n != 0 {
		t.Errorf("%d packs, want 0", n)
	}
}

// TestServerFaults: what a server or something in between can do wrong.
func TestServerFaults(t *testing.T) {
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>Welcome to the harbour's WiFi</html>")
	}))
	defer portal.Close()
	type front = func(http.ResponseWriter, *http.Request, http.Handler)
	status := func(code int) front {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			http.Error(w, "go away\x1b[31m\n", code)
		}
	}
	onPost := func(f front) front {
		return func(w http.ResponseWriter, q *http.Request, next http.Handler) {
			if q.Method == http.MethodPost {
				f(w, q, next)
				return
			}
			next.ServeHTTP(w, q)
		}
	}
	tests := []struct {
		name  string
		front front
		kind  Kind
	}{
		{"404", status(404), ErrAuthOrNotFound},
		{"401", status(401), ErrAuthOrNotFound},
		{"403", status(403), ErrAuthOrNotFound},
		{"500", status(500), ErrOffline},
		{"503", status(503), ErrOffline},
		{"503 to the request for a pack", onPost(status(503)), ErrOffline},
		{"captive portal", func(w http.ResponseWriter, q *http.Request, _ http.Handler) { portal.Config.Handler.ServeHTTP(w, q) }, ErrProtocol},
		{"captive portal that redirects", func(w http.ResponseWriter, q *http.Request, _ http.Handler) {
			http.Redirect(w, q, portal.URL+"/welcome", http.StatusFound)
		}, ErrProtocol},
		{"portal that says it is git", func(w http.ResponseWriter, q *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, "<html>Welcome</html>")
		}, ErrProtocol},
		{"empty answer to the first question", func(w http.ResponseWriter, q *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		}, ErrProtocol},
		{"empty answer to the request for a pack", onPost(func(w http.ResponseWriter, q *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		}), ErrProtocol},
		{"portal in the middle", onPost(func(w http.ResponseWriter, q *http.Request, _ http.Handler) {
			portal.Config.Handler.ServeHTTP(w, q)
		}), ErrProtocol},
		{"silence", func(w http.ResponseWriter, q *http.Request, _ http.Handler) { <-q.Context().Done() }, ErrOffline},
		{"silence in the middle", onPost(func(w http.ResponseWriter, q *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			_, _ = io.WriteString(w, "0034shallow ")
			w.(http.Flusher).Flush()
			_, _ = io.Copy(io.Discard, q.Body) // or the server does not see that the client has gone
			<-q.Context().Done()
		}), ErrOffline},
		{"drops the connection", func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }, ErrOffline},
		{"endless list of one branch", func(w http.ResponseWriter, q *http.Request, next http.Handler) {
			if q.Method == http.MethodGet {
				next.ServeHTTP(w, q)
				return
			}
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			for {
				if _, err := io.WriteString(w, "003f"+strings.Repeat("1", 40)+" refs/heads/mainly\n"); err != nil {
					return
				}
			}
		}, ErrTooLarge},
		{"endless advertisement", func(w http.ResponseWriter, q *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, "001e# service=git-upload-pack\n0000")
			line := strings.Repeat("1", 40) + " refs/heads/" + strings.Repeat("x", 100)
			_, _ = fmt.Fprintf(w, "%04x%s\x00ofs-delta\n", len(line)+15, line)
			line += "\n"
			for {
				if _, err := fmt.Fprintf(w, "%04x%s", len(line)+4, line); err != nil {
					return
				}
			}
		}, ErrTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, srv, c, one := started(t, func(o *Options) { o.StallTimeout = 2 * time.Second; o.MaxAdvertisementBytes = 1 << 20 })
			two := r.set("pump: off\n")
			before := disk(t, c)
			srv.setFront(tt.front)
			for range 2 {
				e := wantFetch(t, c, tt.kind)
				if s := e.Error(); strings.ContainsAny(s, "\n\x1b") || len(s) > 600 {
					t.Errorf("error is not one short line: %q", s)
				}
			}
			wantDesired(t, c, one, "pump: on\n")
			if disk(t, c) != before {
				t.Error("the clone was written")
			}
			srv.setFront(nil)
			mustFetch(t, c)
			wantDesired(t, c, two, "pump: off\n")
		})
	}
}

// tape is all that a server answered in one fetch, request by request. It is played back cut or damaged.
type tape struct {
	mu      sync.Mutex
	answers map[string]*httptest.ResponseRecorder
	order   []string
	at      map[string]int           // where an answer begins among all
	alter   func([]byte, int) []byte // the bytes from position n on, as they are to be sent; nil cuts
}

func key(q *http.Request) string {
	b, _ := io.ReadAll(q.Body)
	q.Body = io.NopCloser(bytes.NewReader(b))
	return q.Method + " " + q.URL.String() + " " + string(b)
}

// record makes a fetch and keeps what came.
func record(t *testing.T, c *Clone, srv *server) *tape {
	t.Helper()
	p := &tape{answers: make(map[string]*httptest.ResponseRecorder), at: make(map[string]int)}
	srv.setFront(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		k, rec := key(q), httptest.NewRecorder()
		next.ServeHTTP(rec, q)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.answers[k], p.at[k] = rec, p.length()
		p.order = append(p.order, k)
		w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
		_, _ = w.Write(rec.Body.Bytes())
	})
	_, _, err := c.remote.converse(context.Background(), p.question(c))
	if err != nil {
		t.Fatalf("cannot record: %v", err)
	}
	srv.setFront(p.play)
	return p
}

func (p *tape) question(c *Clone) question {
	d := c.desired.Load()
	return question{old: plumbing.NewHash(d.Revision), stored: newStoreSource(c.store, d.Data)}
}

func (p *tape) play(w http.ResponseWriter, q *http.Request, _ http.Handler) {
	k := key(q)
	p.mu.Lock()
	defer p.mu.Unlock()
	rec := p.answers[k]
	if rec == nil {
		panic(http.ErrAbortHandler)
	}
	b := rec.Body.Bytes()
	out := p.alter(b, p.at[k])
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	_, _ = w.Write(out)
}

func (p *tape) length() (n int) {
	for _, k := range p.order {
		n += p.answers[k].Body.Len()
	}
	return n
}

// boundaries are the ends of the pkt-lines, over all answers.
func (p *tape) boundaries() (ends []int) {
	at := 0
	for _, k := range p.order {
		b := p.answers[k].Body.Bytes()
		for i := 0; i+4 <= len(b); {
			var n int
			_, _ = fmt.Sscanf(string(b[i:i+4]), "%x", &n)
			i += max(n, 4)
			ends = append(ends, at+i)
		}
		at += len(b)
	}
	return ends
}

// TestCutAndDamagedPacks: answers cut at any packet's end and near it, or with any byte changed, at any step of any rung,
// publish nothing and leave nothing.
func TestCutAndDamagedPacks(t *testing.T) {
	for _, filter := range []string{"true", "false"} {
		t.Run("allowFilter="+filter, func(t *testing.T) {
			t.Parallel()
			r, srv, c, one := started(t)
			r.run(r.bare, "git", "config", "uploadpack.allowFilter", filter)
			two := r.set("pump: off\n")
			before := disk(t, c)
			c.remote.forget()
			p := record(t, c, srv)
			known := c.remote.known
			if !known.v2 || known.filter != (filter == "true") {
				t.Fatalf("the server speaks %+v", known)
			}
			try := func(alter func([]byte, int) []byte, format string, args ...any) bool {
				t.Helper()
				p.mu.Lock()
				p.alter = alter
				p.mu.Unlock()
				c.remote.forget()
				c.remote.ladder = ladder{}
				_, st, err := c.remote.converse(context.Background(), p.question(c))
				if err == nil && (st.desired.Revision != two || string(st.desired.Data) != "pump: off\n") {
					t.Fatalf("%s: took %q at %s for the document", fmt.Sprintf(format, args...), st.desired.Data, st.desired.Revision)
				}
				switch k := sort(err); k {
				case "", ErrOffline, ErrProtocol, ErrTooLarge, ErrBranchGone, ErrRepositoryEmpty: // a name or a mark can change into another
				default:
					t.Errorf("%s: %v is %s", fmt.Sprintf(format, args...), err, k)
				}
				return err == nil
			}
			all, passed := p.length(), 0
			for _, end := range append(p.boundaries(), 0) {
				for cut := max(0, end-2); cut <= min(all-1, end+5); cut++ {
					if try(func(b []byte, at int) []byte { return b[:min(len(b), max(0, cut-at))] }, "cut at %d of %d", cut, all) {
						passed++
						if cut < all-4 {
							t.Errorf("answers cut at %d of %d passed", cut, all) // only the last flush may be missing
						}
					}
				}
			}
			harmless := 0
			for n := range all {
				if testing.Short() && n%7 != 0 {
					continue
				}
				if try(func(b []byte, at int) []byte {
					b = bytes.Clone(b)
					if n >= at && n < at+len(b) {
						b[n-at] ^= 0x21
					}
					return b
				}, "byte %d of %d changed", n, all) {
					harmless++ // in what only the protocol needs: names of capabilities, the list of boundaries
				}
			}
			if harmless > all/2 {
				t.Errorf("%d of %d bytes can be changed unnoticed", harmless, all)
			}
			t.Logf("%d answers, %d bytes; %d bytes can be changed unnoticed", len(p.order), all, harmless)
			wantDesired(t, c, one, "pump: on\n")
			if disk(t, c) != before {
				t.Error("the clone was written")
			}
		})
	}
}

// TestHundredCutFetches: they leave no growth, in memory that lives on or on disk.
func TestHundredCutFetches(t *testing.T) {
	t.Parallel()
	r, srv, c, one := started(t)
	r.write("other", strings.Repeat("not compressible? "+fmt.Sprint(time.Now().UnixNano()), 1000))
	two := r.set("pump: off\n")
	before := disk(t, c)
	srv.setFront(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if q.Method != http.MethodPost {
			next.ServeHTTP(w, q)
			return
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, q)
		w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
		w.Header().Set("Content-Length", fmt.Sprint(rec.Body.Len()))
		_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
	})
	for range 100 {
		wantFetch(t, c, ErrOffline)
	}
	wantDesired(t, c, one, "pump: on\n")
	if disk(t, c) != before {
		t.Error("the clone was written")
	}
	if n := c.left.Load(); n != 0 {
		t.Errorf("%d conversations are left behind", n)
	}
	srv.setFront(nil)
	mustFetch(t, c)
	wantDesired(t, c, two, "pump: off\n")
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	for _, url := range []string{"http://" + addr + "/state.git", "http://no-such-host.invalid/state.git"} {
		c := openClone(t, options(t, url))
		wantFetch(t, c, ErrOffline)
	}
	c := openClone(t, options(t, filepath.Join(t.TempDir(), "nothing.git")))
	wantFetch(t, c, ErrAuthOrNotFound)
}

// frontOnly is a clone of a server that is nothing but f.
func frontOnly(t *testing.T, f http.HandlerFunc, change func(*Options)) *Clone {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	o := options(t, srv.URL+"/state.git")
	change(&o)
	return openClone(t, o)
}

// TestTooSlow: a server that trickles is a dead link, though it is never silent for long.
func TestTooSlow(t *testing.T) {
	t.Parallel()
	c := frontOnly(t, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = io.WriteString(w, "001e# service=git-upload-pack\n0000fff0")
		for {
			select {
			case <-q.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
				if _, err := io.WriteString(w, "1"); err != nil {
					return
				}
				w.(http.Flusher).Flush()
			}
		}
	}, func(o *Options) { o.StallTimeout = time.Second; o.MinBytesPerSecond = 1000 })
	if e := wantFetch(t, c, ErrOffline); !strings.Contains(e.Error(), "too slowly") {
		t.Errorf("error %q does not say why", e)
	}
}

// TestContextEnds: Fetch returns when its context does, and when its own time is over.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	c := frontOnly(t, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() },
		func(o *Options) { o.StallTimeout = time.Minute; o.FetchTimeout = 300 * time.Millisecond })
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.Fetch(ctx); !errors.Is(err, ErrOffline) {
		t.Errorf("Fetch = %v", err)
	}
	start := time.Now()
	if e := wantFetch(t, c, ErrOffline); !strings.Contains(e.Error(), "out of time") {
		t.Errorf("error %q does not say why", e)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("Fetch took %v", d)
	}
}

// TestConcurrent is for the race detector: Desired, Notices and Accept beside Fetch.
func TestConcurrent(t *testing.T) {
	r, _, c, _ := started(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if d, ok, err := c.Desired(); err != nil || !ok || !strings.HasPrefix(string(d.Data), "pump: ") {
					t.Errorf("Desired = %+v, %v, %v", d, ok, err)
					return
				}
				_ = c.Notices()
				_ = c.Accept(strings.Repeat("1", 40))
				_, _, _ = Read(c.o.Path)
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = c.Fetch(ctx)
			}
		})
	}
	for i := range 8 {
		r.set(fmt.Sprintf("pump: on # %d\n", i))
	}
	mustFetch(t, c)
	cancel()
	wg.Wait()
	if d, _, _ := c.Desired(); string(d.Data) != "pump: on # 7\n" {
		t.Errorf("Desired = %q", d.Data)
	}
}

// TestReadBesideTheAgent: a command looks at a clone that is locked, missing, or no clone.
func TestReadBesideTheAgent(t *testing.T) {
	_, _, c, one := started(t)
	if d, ok, err := Read(c.o.Path); err != nil || !ok || d.Revision != one {
		t.Errorf("Read of a locked clone = %+v, %v, %v", d, ok, err)
	}
	if _, err := Open(c.o); !errors.Is(err, ErrStore) {
		t.Errorf("second Open = %v, want %s", err, ErrStore)
	}
	dir := t.TempDir()
	if d, ok, err := Read(filepath.Join(dir, "clone.db")); err != nil || ok {
		t.Errorf("Read of nothing = %+v, %v, %v", d, ok, err)
	}
	junk := filepath.Join(dir, "junk.db")
	if err := os.WriteFile(junk, bytes.Repeat([]byte("junk"), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, ok, err := Read(junk); !errors.Is(err, ErrStore) || ok {
		t.Errorf("Read of junk = %+v, %v, %v", d, ok, err)
	}
}

func TestOpenRefusesOptions(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.File = "../etc/passwd" },
		func(o *Options) { o.File = "/greenhouse.yaml" },
		func(o *Options) { o.File = "a//b" },
		func(o *Options) { o.File = "" },
		func(o *Options) { o.History = "rewrite" },
		func(o *Options) { o.URL = "gopher://example.org/x" },
		func(o *Options) { o.URL = "http://us%er:hunter2@exa mple.org/x" },
	} {
		o := options(t, "http://127.0.0.1:1/state.git")
		change(&o)
		if c, err := Open(o); err == nil {
			t.Errorf("Open(%+v) = %v, want an error", o, c)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error tells the password: %v", err)
		}
	}
}

// TestNamesThatLookAlike: they are told apart byte for byte, and told.
func TestNamesThatLookAlike(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"greenhouse.yaml", "Greenhouse.YAML", true},
		{"greenhouse.yaml", "greenhouse.yml", true},
		{"greenhouse.yaml", "greenhouse", false},
		{"greenhouse.yaml", "greenhouse.yaml.bak", false},
		{"gh-0041.yaml", "gh-0042.yaml", false},
		{"caf\u00e9.yaml", "cafe\u0301.yaml", true},
		{"caf\u00e9.yaml", "cafe.yaml", false},
		{"caf\u00e9.yaml", "caf\xe9.yaml", true}, // Latin-1
		{"", "x", false},
	} {
		if got := looksLike(tt.a, tt.b); got != tt.want || looksLike(tt.b, tt.a) != got {
			t.Errorf("looksLike(%+q, %+q) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
	r, _, c, _ := started(t)
	r.write("Greenhouse.yaml", "pump: maybe\n")
	rev := r.set("pump: off\n")
	if f := mustFetch(t, c); len(f.Notices) != 1 || !strings.Contains(f.Notices[0], `"Greenhouse.yaml"`) {
		t.Errorf("notices %q do not name the twin", f.Notices)
	}
	wantDesired(t, c, rev, "pump: off\n")
}

// TestAllNoticesAreTold: a new clone finds a rewritten history, a folder that is too full and a twin, and says all of it at each fetch. What lies in the
// revision is said after a restart, too; what became of it when it came is not.
func TestAllNoticesAreTold(t *testing.T) {
	t.Parallel()
	r, _, c, _ := started(t)
	o := c.o
	_ = c.Close()
	r.run(r.bare, "git", "config", "uploadpack.allowFilter", "true")
	for i := range maxListing/100 + 1 {
		r.write(fmt.Sprintf("%0100d.yaml", i), "x: 1\n")
	}
	r.write("Greenhouse.yaml", "pump: maybe\n")
	r.set("pump: off\n")
	if err := os.Remove(o.Path); err != nil {
		t.Fatal(err)
	}
	o.ActiveRevision = strings.Repeat("7", 40)
	parts := []string{"does not descend from 7777777", "folder / has more than ", `"Greenhouse.yaml"`}
	want := func(when string, notices, parts []string) {
		t.Helper()
		if len(notices) != len(parts) {
			t.Errorf("%s: notices %q, want %d", when, notices, len(parts))
			return
		}
		for i, p := range parts {
			if !strings.Contains(notices[i], p) {
				t.Errorf("%s: notice %d is %q, want %q in it", when, i, notices[i], p)
			}
		}
	}
	c = openClone(t, o)
	want("published", mustFetch(t, c).Notices, parts)
	want("again", mustFetch(t, c).Notices, parts)
	_ = c.Close()
	c = openClone(t, o)
	want("restarted", mustFetch(t, c).Notices, parts[1:])
	r.run(r.work, "git", "rm", "-q", "Greenhouse.yaml")
	rev := r.set("pump: on\n")
	want("the twin is gone", mustFetch(t, c).Notices, parts[1:2])
	wantDesired(t, c, rev, "pump: on\n")
}
