//go:build holdfast_testclock

package clock

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// FileEnv names the environment variable that holds the path of the clock file.
const FileEnv = "HOLDFAST_TEST_CLOCK_FILE"

// New returns the kernel's clock, shifted by what the file named in FileEnv says. The file holds one
// line, two Go durations: what is added to the wall clock and what is added to the uptime, such as
// "-489000h 15m". It is read anew at each call; a missing file shifts nothing. A test replaces the
// file by renaming a new one over it.
func New() Clock { return file{os.Getenv(FileEnv)} }

type file struct{ path string }

func (f file) offsets() (wall, uptime time.Duration) {
	if f.path == "" {
		return 0, 0
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		return 0, 0
	}
	words := strings.Fields(string(b))
	if len(words) != 2 {
		panic(fmt.Sprintf("clock: %s: %q is not two durations", f.path, b))
	}
	if wall, err = time.ParseDuration(words[0]); err != nil {
		panic(err)
	}
	if uptime, err = time.ParseDuration(words[1]); err != nil {
		panic(err)
	}
	return wall, uptime
}

func (f file) Now() time.Time {
	wall, _ := f.offsets()
	return time.Now().Add(wall)
}

func (f file) Uptime() time.Duration {
	_, up := f.offsets()
	return System{}.Uptime() + up
}

// After wakes up when the file changes, so that an uptime that is advanced wakes the waiter.
func (f file) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	due := f.Uptime() + d
	go func() {
		for {
			moved := watch(f)
			left := due - f.Uptime()
			if left <= 0 {
				c <- f.Now()
				return
			}
			t := time.NewTimer(left)
			select {
			case <-t.C:
			case <-moved:
				t.Stop()
			}
		}
	}()
	return c
}

var watched struct {
	sync.Mutex
	moved chan struct{} // closed and replaced when the file has changed; nil until somebody waits
}

// watch returns a channel that is closed when the file changes. One goroutine a process looks at the file, every 20 ms.
func watch(f file) <-chan struct{} {
	watched.Lock()
	defer watched.Unlock()
	if watched.moved == nil {
		watched.moved = make(chan struct{})
		wall, uptime := f.offsets()
		go func() {
			for range time.Tick(20 * time.Millisecond) {
				w, u := f.offsets()
				if w == wall && u == uptime {
					continue
				}
				wall, uptime = w, u
				watched.Lock()
				close(watched.moved)
				watched.moved = make(chan struct{})
				watched.Unlock()
			}
		}()
	}
	return watched.moved
}
