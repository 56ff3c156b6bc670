package gitclone

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/tools/faultfs"
)

// TestIOErrors: whichever call fails of those with which a change is stored, or a clone is made or opened, once or for a while, the agent goes on with what it had, or with
// the new; the same agent has the new one when the disk is well, and so has the next.
func TestIOErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := filepath.Join(r.fs.Dir, "clone.db")
	const doc = "pump: off\n"
	earlier, now := r.declare("pump: on\n"), r.declare(doc)
	tried, left := 0, 0
	for _, tt := range []struct {
		name    string
		first   bool // nothing has been stored before
		atStart bool // the fault is there when the agent starts
		reading bool
	}{
		{name: "a change"},
		{name: "the first fetch", first: true},
		{name: "a start, and a change", atStart: true},
		{name: "a new board", first: true, atStart: true},
		{name: "a start on a disk that cannot read, and a change", atStart: true, reading: true},
	} {
	calls:
		for n := 0; ; n++ {
			for _, fault := range []faultfs.Fault{
				{Errno: unix.EIO}, {Errno: unix.ENOSPC, Stays: true}, {Errno: unix.EROFS}, {Errno: unix.EIO, Stays: true}, {Errno: unix.ENOSPC}, {Errno: unix.EROFS, Stays: true},
			} {
				if left++; tt.reading && fault.Errno != unix.EIO || !tt.reading && left%faultfs.Pick(*long, 17, 4, 1) != 0 {
					continue
				}
				fault.After, fault.Reading = n, tt.reading
				what := fmt.Sprintf("%s: %+v", tt.name, fault)
				tried++
				var old string
				o := r.options(t, path)
				if !tt.first {
					old = earlier
					r.serveRevision(old)
					c := openClone(t, o)
					mustFetch(t, c)
					if err := c.Close(); err != nil {
						t.Fatal(err)
					}
				}
				var c *Clone
				if !tt.atStart {
					c = openClone(t, o)
				}
				r.serveRevision(now)
				r.fs.Fail(fault)
				if tt.atStart {
					c = openClone(t, o)
				}
				for range 2 {
					_, err := c.Fetch(t.Context())
					var e *Error
					if err != nil && (!errors.Is(err, ErrStore) || !errors.As(err, &e) || e.Advice == "" || !strings.Contains(err.Error(), "clone.db")) {
						t.Errorf("%s: Fetch = %v", what, err)
					}
					d, _, _ := c.Desired()
					if err == nil && d.Revision != now || d.Revision != now && d.Revision != old && !(tt.atStart && d.Revision == "") {
						t.Errorf("%s: Fetch = %v, and %q is desired; want %s or %s", what, err, d.Revision, old, now)
					}
				}
				failed := r.fs.Heal()
				mustFetch(t, c)
				wantDesired(t, c, now, doc)
				for _, n := range c.Notices() {
					if n.What != noticeSetAside && n.What != noticeObjectsLost || !tt.reading {
						t.Errorf("%s: on a disk that is well: %+v", what, n)
					}
				}
				if err := c.Close(); err != nil {
					t.Errorf("%s: Close = %v", what, err)
				}
				c = openClone(t, o)
				wantDesired(t, c, now, doc)
				if n := c.Notices(); len(n) > 0 {
					t.Errorf("%s: the next start: %v", what, n)
				}
				_ = c.Close()
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if t.Failed() {
					t.FailNow()
				}
				if failed == 0 {
					break calls
				}
			}
		}
	}
	t.Logf("%d with a fault", tried)
}
