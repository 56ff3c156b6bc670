package gitclone

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// TestTip: a new clone of a fleet on a server without filters takes kilobytes, whatever the head has changed, or all of a
// revision if it must.
func TestTip(t *testing.T) {
	const kib = 1 << 10
	rng := rand.NewChaCha8([32]byte{})
	type commits = func(f *fleet)
	readme := func(n int) commits {
		return func(f *fleet) {
			f.commits(n, func(i int, file func(name, content string)) { file("README", fmt.Sprintln("text", i)) })
		}
	}
	// without makes a server that does not get to see a line of a request.
	without := func(part string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, q *http.Request, next http.Handler) {
			b, _ := io.ReadAll(q.Body)
			b = bytes.ReplaceAll(b, []byte(part), nil)
			q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
			next.ServeHTTP(w, q)
		}
	}
	for _, tt := range []struct {
		name  string
		file  string // "": one of a hundred in a folder
		then  commits
		front func(http.ResponseWriter, *http.Request, http.Handler)
		how   string
		most  int64
	}{
		{"a device elsewhere", "", func(f *fleet) { f.change(1500, 1) }, nil, "tip", 16 * kib},
		{"a device in our folder", "", func(f *fleet) { f.change(7, 1) }, nil, "tip", 16 * kib},
		{"our device", "", func(f *fleet) { f.change(0, 1) }, nil, "tip", 16 * kib},
		{"no device", "", readme(1), nil, "tip", 24 * kib},
		{"no device, for long", "", readme(tipHistory - 5), nil, "tip", 32 * kib},
		{"no device, for too long", "", readme(tipHistory + 5), nil, "depth-1", 0},
		{"nothing", "", func(f *fleet) { f.commits(2, func(int, func(name, content string)) {}) }, nil, "tip", 16 * kib},
		{"a merge", "", func(f *fleet) {
			base := f.tip
			f.change(1500, 1)
			side := f.tip
			f.tip = base
			f.change(1600, 1)
			tree := f.run(f.bare, "git", "rev-parse", f.tip+"^{tree}")
			f.tip = f.run(f.bare, "git", "commit-tree", "-m", "merge", "-p", f.tip, "-p", side, tree)
			f.run(f.bare, "git", "update-ref", "refs/heads/main", f.tip)
		}, nil, "tip", 24 * kib},
		{"a first revision", "", func(f *fleet) {
			tree := f.run(f.bare, "git", "rev-parse", f.tip+"^{tree}")
			f.tip = f.run(f.bare, "git", "commit-tree", "-m", "first", tree)
			f.run(f.bare, "git", "update-ref", "refs/heads/main", f.tip)
		}, nil, "depth-1", 0},
		{"a file at the root", "greenhouse.yaml", func(f *fleet) {
			f.commits(1, func(_ int, file func(name, content string)) { file("greenhouse.yaml", "pump: on\n") })
			f.change(5, 1)
		}, nil, "tip", 16 * kib},
		{"a file far down", "sites/north/a/b/c.yaml", func(f *fleet) {
			f.commits(1, func(_ int, file func(name, content string)) { file("sites/north/a/b/c.yaml", "pump: on\n") })
			f.change(5, 1)
		}, nil, "tip", 24 * kib},
		{"a folder that is too large with all its files", "firmware/greenhouse.yaml", func(f *fleet) {
			f.commits(1, func(_ int, file func(name, content string)) {
				file("firmware/greenhouse.yaml", "pump: on\n")
				for i := range 400 {
					b := make([]byte, 400)
					_, _ = rng.Read(b)
					file(fmt.Sprintf("firmware/%d", i), fmt.Sprintf("%x", b))
				}
			})
			f.change(5, 1)
		}, nil, "depth-1", 0},
		{"the server leaves nothing out", "", func(f *fleet) { f.change(1500, 1) }, without("000ethin-pack\n"), "depth-1", 0},
		{"the server gives no folders", "", func(f *fleet) { f.change(1500, 1) }, func(w http.ResponseWriter, q *http.Request, next http.Handler) {
			if k := key(q); strings.Contains(k, "command=fetch") && !strings.Contains(k, "deepen") && !strings.Contains(k, "have ") {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				_, _ = io.WriteString(w, "0027ERR upload-pack: not our ref 123456\n")
				return
			}
			next.ServeHTTP(w, q)
		}, "depth-1", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 3000, 3, true)
			tt.then(f)
			srv, url := f.serve()
			srv.setFront(tt.front)
			o := options(t, url)
			if o.File = tt.file; o.File == "" {
				o.File = f.file(0)
			}
			c := openClone(t, o)
			got := mustFetch(t, c)
			d, _, _ := c.Desired()
			want := f.run(f.bare, "git", "show", f.tip+":"+o.File) + "\n"
			if got.Revision != f.tip || string(d.Data) != want || d.How != tt.how || tt.most > 0 && got.BytesDown > tt.most {
				t.Errorf("Fetch = %+v by %s: %q, want %q by %s, with %d bytes at most", got, d.How, d.Data, want, tt.how, tt.most)
			}
			t.Logf("%d bytes by %s, %d requests for packs", got.BytesDown, d.How, srv.count("POST"))
			srv.setFront(nil)
			f.change(3, 77) // and from there it goes on as ever
			if got := mustFetch(t, c); got.Revision != f.tip || got.BytesDown > 4*kib {
				t.Errorf("Fetch of a change = %+v", got)
			}
		})
	}
}
