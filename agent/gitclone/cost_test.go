package gitclone

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"testing"

	"holdfast/tools/faultfs"
)

// TestWhatAChangeWrites: a change is made durable by two syncs, as many as a file needs that is always whole: first what
// is new, then that it is in force. A poll that finds nothing new makes no call at all that changes a disk.
func TestWhatAChangeWrites(t *testing.T) {
	fs := faultfs.New(t)
	for i, sharded := range []bool{true, false} {
		f := newFleet(t, 1000, 2, sharded)
		f.filters(sharded)
		_, url := f.serve()
		o := options(t, url)
		o.File, o.Path = f.file(0), filepath.Join(fs.Dir, fmt.Sprintf("clone-%d.db", i))
		c := openClone(t, o)
		cost := func(what string, changed bool) faultfs.Counts {
			t.Helper()
			before := fs.Counts()
			if got := mustFetch(t, c); got.Changed != changed {
				t.Fatalf("%s: Fetch = %+v", what, got)
			}
			return fs.Counts().Minus(before)
		}
		cost("first sync", true)
		for i, device := range []int{0, 7, 999, 0} { // ours, one in our folder, one elsewhere
			f.change(device, 1+i)
			if n := cost("change", true); n.Syncs() != 2 || n[faultfs.Write] == 0 {
				t.Errorf("sharded %v: device %d changed: %v, want two syncs", sharded, device, n)
			}
			if n := cost("poll", false); n.Syncs() != 0 || n.Changing() != 0 {
				t.Errorf("sharded %v: a poll of nothing new: %v, want nothing", sharded, n)
			}
		}
		// What is refused is not written, either.
		f.commits(1, func(_ int, file func(name, content string)) { file(f.file(0), "invalid\n") })
		before := fs.Counts()
		wantFetch(t, c, ErrFileInvalid)
		if n := fs.Counts().Minus(before); n.Changing() != 0 {
			t.Errorf("sharded %v: a refused revision: %v, want nothing", sharded, n)
		}
	}
}

// TestChangeAllocates: a change costs memory for what is downloaded and written, and three copies of the folder's listing:
// the one that is stored, the new one, and bbolt's page. Half a one is for chance.
func TestChangeAllocates(t *testing.T) {
	if raceDetector() {
		t.Log("not measured: the race detector allocates as well")
		return
	}
	for _, sharded := range []bool{true, false} {
		devices := 10_000
		f := newFleet(t, devices, 2, sharded)
		o := options(t, f.bare) // git's own process answers: what is allocated here is ours
		o.File = f.file(0)
		listing := 100 * len("100644 gh-00000.yaml\x00"+aHash)
		if !sharded {
			listing = devices * len("100644 gh-00000.yaml\x00"+aHash)
		}
		c := openClone(t, o)
		mustFetch(t, c)
		least := math.MaxInt // of several: buffers that are kept are made anew now and then
		for i := range 6 {
			f.change(0, 1+i)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if got := mustFetch(t, c); !got.Changed {
				t.Fatalf("Fetch = %+v", got)
			}
			runtime.ReadMemStats(&after)
			least = min(least, int(after.TotalAlloc-before.TotalAlloc))
		}
		t.Logf("sharded %v: a change allocates %d bytes, with a listing of %d", sharded, least, listing)
		if most := 150<<10 + 7*listing/2; least > most {
			t.Errorf("sharded %v: a change allocates %d bytes, with a listing of %d; want %d at most", sharded, least, listing, most)
		}
	}
}

const aHash = "12345678901234567890" // as long as one in a folder
