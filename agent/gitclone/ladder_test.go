package gitclone

import (
	"net/http"
	"testing"
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
			f := newFleet(t, 10_000, 200, layout.sharded)
			f.branches(2000)
			for _, tt := range []struct {
				name               string
				older, filters     bool
				first, change, far string // rungs
				firstBytes, bytes  int64  // with the older protocol, besides the list of branches
			}{
				{"v2, filters", false, true, "path", "path", "path", 16 * kib, 16 * kib},
				{"v2, no filters", false, false, "depth-1", "thin", "thin", 0, 16 * kib},
				{"older, filters", true, true, "path", "path", "path", 16 * kib, 16 * kib},
				{"older, no filters", true, false, "depth-1", "thin", "thin", 0, 16 * kib},
			} {
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
					f.change(9999, f.clock)
					fetch("another's change elsewhere", tt.change, tt.bytes)
					for d := range 30 {
						f.change(100*d, f.clock)
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
