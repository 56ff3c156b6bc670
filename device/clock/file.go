//go:build holdfast_testclock

package clock

import (
	"fmt"
	"os"
	"strings"
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

// After looks at the file every 20 ms, so that an uptime that is advanced wakes the waiter.
func (f file) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	due := f.Uptime() + d
	go func() {
		for {
			left := due - f.Uptime()
			if left <= 0 {
				c <- f.Now()
				return
			}
			time.Sleep(min(left, 20*time.Millisecond))
		}
	}()
	return c
}
