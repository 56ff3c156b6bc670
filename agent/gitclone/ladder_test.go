package gitclone

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh/knownhosts"
)

// olderProtocol makes a server that does not know protocol v2.
func olderProtocol(w http.ResponseWriter, q *http.Request, next http.Handler) {
	q.Header.Del("Git-Protocol")
	next.ServeHTTP(w, q)
}

// TestThePriceOfOneFile: what one device of a large fleet costs, on servers of every kind. The bounds are the issue's.
func TestThePriceOfOneFile(t *testing.T) {
	const kib = 1 << 10
	for _, layout := range []struct {
		name    string
		sharded bool
	}{{"sharded", true}, {"flat", false}} {
		t.Run(layout.name, func(t *testing.T) {
			devices := 10_000
			if !layout.sharded && !*long {
				devices = 1000
			}
			f := newFleet(t, devices, 200, layout.sharded)
			f.branches(2000)
			for _, tt := range []struct {
				name               string
				older, filters     bool
				first, change, far string // rungs
				firstBytes, bytes  int64  // with the older protocol, besides the list of branches
			}{
				{"v2, filters", false, true, "path", "path", "path", 16 * kib, 16 * kib},
				{"v2, no filters", false, false, "tip", "thin", "thin", 16 * kib, 16 * kib},
				{"older, filters", true, true, "path", "path", "path", 16 * kib, 16 * kib},
				{"older, no filters", true, false, "tip", "thin", "thin", 24 * kib, 16 * kib},
			} {
				if !layout.sharded && tt.older && !*long {
					continue
				}
				t.Run(tt.name, func(t *testing.T) {
					f.filters(tt.filters)
					srv, url := f.serve()
					list := int64(0)
					if tt.older {
						srv.setFront(olderProtocol)
						list = 2001 * 64
					}
					o := options(t, url)
					o.File = f.file(0)
					c := openClone(t, o)
					fetch := func(what, rung string, most int64) {
						t.Helper()
						tip := f.tip
						got := mustFetch(t, c)
						d, _, _ := c.Desired()
						if got.Revision != tip || d.Revision != tip || d.How != rung {
							t.Errorf("%s: Fetch = %+v, by %s, want %s by %s", what, got, d.How, tip, rung)
						}
						if n := got.BytesDown - list; most > 0 && n > most {
							t.Errorf("%s took %d bytes, want %d at most", what, n, most)
						}
						length, taken := fileSize(t, o.Path)
						t.Logf("%s: %d bytes by %s, %d requests for packs; clone.db %d, takes %d", what, got.BytesDown, d.How, srv.count("POST"), length, taken)
					}
					if !layout.sharded {
						tt.firstBytes = 0 // a folder of 10,000 names has 240 KiB that say nothing else
					}
					fetch("first sync", tt.first, tt.firstBytes)
					f.change(0, f.clock)
					fetch("change", tt.change, tt.bytes)
					f.change(77, f.clock) // in our folder
					fetch("another's change", tt.change, tt.bytes)
					f.change(devices-1, f.clock)
					fetch("another's change elsewhere", tt.change, tt.bytes)
					for d := range 30 {
						f.change(60*d, f.clock)
					}
					fetch("30 changes", tt.far, 0)
					if got := mustFetch(t, c); got.BytesDown-list > 100 && !tt.older || got.Changed {
						t.Errorf("no change: Fetch = %+v", got)
					}
					if _, n := fileSize(t, o.Path); n > 40*kib && layout.sharded {
						t.Errorf("clone.db takes %d bytes", n)
					}
				})
			}
		})
	}
}

// TestCrowdedFolderIsTold: with what helps, and in the same words with each change, so that it is logged once.
func TestCrowdedFolderIsTold(t *testing.T) {
	t.Parallel()
	for _, sharded := range []bool{true, false} {
		f := newFleet(t, 2000, 1, sharded)
		_, url := f.serve()
		o := options(t, url)
		o.File = f.file(0)
		c := openClone(t, o)
		first := mustFetch(t, c).Notices
		if told := strings.Join(first, ""); sharded != (told == "") || !sharded && (!strings.Contains(told, "/devices ") || !strings.Contains(told, "more than 64 KiB")) {
			t.Errorf("sharded %v: notices %q", sharded, first)
		}
		for i := range 2 {
			f.change(0, 1+i)
			if got := mustFetch(t, c); !got.Changed || !slices.Equal(got.Notices, first) {
				t.Errorf("sharded %v: Fetch = %+v, told first: %q", sharded, got, first)
			}
		}
	}
}

// broken makes a server that advertises filters and fails on each request that has one.
func broken(how func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if k := key(q); strings.Contains(k, "filter ") {
			how(w)
			return
		}
		next.ServeHTTP(w, q)
	}
}

// TestBrokenFilters: a server that has filters and fails on them costs that once, and is tried again later.
func TestBrokenFilters(t *testing.T) {
	result := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
	}
	for _, tt := range []struct {
		name    string
		how     func(http.ResponseWriter)
		fetches int // until the next rung is tried
	}{
		{"empty answer", result, 1},
		{"refuses in words", func(w http.ResponseWriter) {
			result(w)
			_, _ = io.WriteString(w, "0027ERR upload-pack: not our ref 123456\n")
		}, 1},
		{"a pack without what was asked for", func(w http.ResponseWriter) {
			result(w)
			none := newPack(0)
			_ = none.done()
			_, _ = fmt.Fprintf(w, "000dpackfile\n%04x\x01%s0000", none.Len()+5, none.Bytes())
		}, 1},
		{"500", func(w http.ResponseWriter) { http.Error(w, "oops", http.StatusInternalServerError) }, maxCuts + 1},
		{"dies", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, maxCuts + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t)
			r.run(r.bare, "git", "config", "uploadpack.allowFilter", "true")
			r.set("pump: on\n")
			srv, url := r.serve()
			c := openClone(t, options(t, url))
			mustFetch(t, c)
			if d, _, _ := c.Desired(); d.How != "path" {
				t.Fatalf("first by %s", d.How)
			}
			srv.setFront(broken(tt.how))
			two := r.set("pump: off\n")
			for range tt.fetches - 1 {
				wantFetch(t, c, ErrOffline)
			}
			mustFetch(t, c)
			lucky := strings.HasPrefix(tt.name, "a pack without") // the request after it has no filter, and brings all
			if d := wantDesired(t, c, two, "pump: off\n"); d.How != "thin" && !lucky {
				t.Errorf("by %s, want thin", d.How)
			}
			// It is remembered,
			r.set("pump: on\n")
			srv.count("")
			mustFetch(t, c)
			if n := srv.count("POST"); n != 1 && !lucky {
				t.Errorf("%d requests for packs once it is known, want 1", n)
			}
			if tt.name != "empty answer" {
				return // the rest is the same for all, and takes time
			}
			// and not for ever.
			srv.setFront(nil)
			for i := range retryAbove {
				r.set(fmt.Sprintf("pump: on # %d\n", i))
				mustFetch(t, c)
			}
			if d, _, _ := c.Desired(); d.How != "path" {
				t.Errorf("a server that has been mended is asked by %s, want path", d.How)
			}
		})
	}
}

// TestRefusedFilter: a server that has filters, but not the one that leaves out folders (uploadpackfilter.tree.allow): the
// proof of descent has to do without it as well.
func TestRefusedFilter(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 300, 5, true)
	f.filters(true)
	f.run(f.bare, "git", "config", "uploadpackfilter.tree.allow", "false")
	_, url := f.serve()
	for _, url := range []string{url, f.bare} {
		o := options(t, url)
		o.File = f.file(0)
		c := openClone(t, o)
		for i, want := range []string{"tip", "thin", "thin"} {
			got := mustFetch(t, c)
			if d, _, _ := c.Desired(); got.Revision != f.tip || d.How != want {
				t.Errorf("fetch %d: %+v by %s, want %s", i, got, d.How, want)
			}
			for d := range 5 {
				f.change(d, f.clock)
			}
		}
		f.run(f.bare, "git", "update-ref", "refs/heads/main", f.tip+"~11")
		wantFetch(t, c, ErrHistoryRewritten)
		f.run(f.bare, "git", "update-ref", "refs/heads/main", f.tip)
	}
}

// TestTarpits: a server that never ends over a request, though it is never silent, costs a step's time or bytes, not the
// fetch.
func TestTarpits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		line  string
		pause time.Duration
	}{
		{"drips", "000e\x02counting", 50 * time.Millisecond},
		{"pours progress", "0fff\x02" + strings.Repeat("x", 0xfff-5), 0},
		{"pours nothing", "0005\x01", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, srv, c, _ := started(t, func(o *Options) { o.StepTimeout = 3 * time.Second; o.MinBytesPerSecond = 1 })
			r.run(r.bare, "git", "config", "uploadpack.allowFilter", "true")
			c.remote.forget()
			two := r.set("pump: off\n")
			srv.setFront(broken(func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				_, _ = io.WriteString(w, "000dpackfile\n")
				for {
					if _, err := io.WriteString(w, tt.line); err != nil {
						return
					}
					if tt.pause > 0 {
						w.(http.Flusher).Flush()
						time.Sleep(tt.pause)
					}
				}
			}))
			got := mustFetch(t, c)
			if d := wantDesired(t, c, two, "pump: off\n"); d.How != "thin" && d.How != "path" || got.BytesDown > 3<<20 {
				t.Errorf("by %s, %d bytes", d.How, got.BytesDown)
			}
		})
	}
}

// TestProtocolChanges: a server that spoke v2 and does not any more, and the other way round, costs a question, no fetch.
func TestProtocolChanges(t *testing.T) {
	t.Parallel()
	r, srv, c, _ := started(t)
	for i, front := range []func(http.ResponseWriter, *http.Request, http.Handler){olderProtocol, nil, olderProtocol} {
		srv.setFront(front)
		mustFetch(t, c) // of nothing new
		want := fmt.Sprintf("pump: on # %d\n", i)
		rev := r.set(want)
		mustFetch(t, c)
		wantDesired(t, c, rev, want)
		if v2 := c.remote.known != nil; v2 != (front == nil) {
			t.Errorf("v2 is known: %v, want %v", v2, front == nil)
		}
	}
}

// TestSameContentElsewhere: what our file is to contain is in the stored revision already, in another device's file: the
// server thinks that it is here, and leaves it out.
func TestSameContentElsewhere(t *testing.T) {
	const off = "pump: off\n# as all the others, and long enough to be worth a delta, if git thinks so\n"
	for _, older := range []bool{false, true} {
		for _, filter := range []string{"true", "false"} {
			t.Run(fmt.Sprintf("older=%v,allowFilter=%s", older, filter), func(t *testing.T) {
				t.Parallel()
				r := newRepo(t)
				r.run(r.bare, "git", "config", "uploadpack.allowFilter", filter)
				r.write("greenhouse.yaml", "pump: on\n")
				r.write("a/b/c.yaml", off)
				r.push("one")
				srv, url := r.serve()
				if older {
					srv.setFront(olderProtocol)
				}
				c := openClone(t, options(t, url))
				mustFetch(t, c)
				two := r.set(off)
				mustFetch(t, c)
				wantDesired(t, c, two, off)

				// A folder as well: ours is to be what another was.
				o := c.o
				_ = c.Close()
				r.write("ours/b/c.yaml", "lamp: on\n")
				r.push("three")
				o.File, o.Path = "ours/b/c.yaml", o.Path+"-2"
				c = openClone(t, o)
				mustFetch(t, c)
				r.git("rm", "-rq", "ours")
				r.git("mv", "a", "ours")
				four := r.push("four")
				mustFetch(t, c)
				wantDesired(t, c, four, off)
			})
		}
	}
}

// TestStreams: over SSH, with and without protocol v2, and on a local path, the same rungs hold as over HTTP.
func TestStreams(t *testing.T) {
	for _, filters := range []bool{true, false} {
		f := newFleet(t, 300, 20, true)
		f.filters(filters)
		signer, pem := newSigner(t)
		for _, way := range []string{"http", "local", "ssh", "ssh, v2"} {
			t.Run(fmt.Sprintf("%s,allowFilter=%v", way, filters), func(t *testing.T) {
				o := options(t, f.bare)
				switch way {
				case "http":
					_, o.URL = f.serve()
				case "ssh", "ssh, v2":
					srv := serveSSH(t, signer.PublicKey(), way == "ssh, v2")
					o.URL = "ssh://git@" + srv.addr + f.bare
					o.SSHKeyFile, o.KnownHostsFile = o.Path+".key", o.Path+".hosts"
					if err := errors.Join(os.WriteFile(o.SSHKeyFile, pem, 0o600),
						os.WriteFile(o.KnownHostsFile, []byte(knownhosts.Line([]string{srv.addr}, srv.key.PublicKey())), 0o600)); err != nil {
						t.Fatal(err)
					}
				}
				v2 := way != "ssh"
				o.File = f.file(0)
				c := openClone(t, o)
				fetch := func(want string) {
					t.Helper()
					got := mustFetch(t, c)
					d, _, _ := c.Desired()
					if got.Revision != f.tip || d.Revision != f.tip || d.How != want {
						t.Errorf("Fetch = %+v by %s, want %s by %s", got, d.How, f.tip, want)
					}
					t.Logf("%d bytes by %s", got.BytesDown, d.How)
				}
				first, change := "depth-1", "thin"
				switch {
				case filters && v2:
					first, change = "path", "path"
				case v2:
					first = "tip"
				}
				fetch(first)
				f.change(0, f.clock)
				fetch(change)
				for i := range fewRevisions + 4 {
					f.change(100+i, f.clock)
				}
				f.change(0, f.clock)
				fetch(change)
				f.run(f.bare, "git", "update-ref", "refs/heads/main", f.tip+"~1")
				wantFetch(t, c, ErrHistoryRewritten)
				f.run(f.bare, "git", "update-ref", "refs/heads/main", f.tip)
				if got := mustFetch(t, c); got.Changed {
					t.Errorf("Fetch = %+v", got)
				}
			})
		}
	}
}

// TestMovesWhilePolled: a repository that moves behind a redirect while it is polled by requests that no redirect may repeat.
func TestMovesWhilePolled(t *testing.T) {
	t.Parallel()
	r, srv, c, _ := started(t)
	if err := os.Rename(r.bare, r.bare+".moved"); err != nil {
		t.Fatal(err)
	}
	r.git("remote", "set-url", "origin", r.bare+".moved")
	srv.setFront(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if strings.HasPrefix(q.URL.Path, "/state.git/") {
			http.Redirect(w, q, strings.Replace(q.URL.String(), "/state.git/", "/state.git.moved/", 1), http.StatusMovedPermanently)
			return
		}
		next.ServeHTTP(w, q)
	})
	mustFetch(t, c)
	two := r.set("pump: off\n")
	mustFetch(t, c)
	wantDesired(t, c, two, "pump: off\n")
	if err := os.Rename(r.bare+".moved", r.bare); err != nil { // and back
		t.Fatal(err)
	}
	srv.setFront(nil)
	r.git("remote", "set-url", "origin", r.bare)
	three := r.set("pump: on\n")
	mustFetch(t, c)
	wantDesired(t, c, three, "pump: on\n")
}
