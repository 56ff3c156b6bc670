//go:build holdfast_testclock

package clock

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// FileEnv names the environment variable that holds the path of the clock file.
const FileEnv = "HOLDFAST_TEST_CLOCK_FILE"

// New returns the kernel's clock, shifted by what the file named in FileEnv says. The file holds one
// line, two Go durations: what is added to the wall clock and what is added to the uptime, such as
// "-489000h 15m". It is read anew at each call; a missing file shifts nothing. A test replaces the
// file by renaming a new one over it, which wakes all whose time has come by that.
//
// In a folder "waits" beside the file, if there is one, each process keeps a file, named by its process id, of two numbers: the uptime in
// nanoseconds at which the next of its waits is over (the greatest int64 if it waits for nothing), and how many goroutines it had when the clock was last
// moved. So a test can pass over the time in which nothing happens, and see what is left behind.
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

// After wakes up when the file changes, too, so that an uptime that is advanced wakes the waiter.
func (f file) After(d time.Duration) <-chan time.Time {
	if f.path == "" {
		return time.After(d)
	}
	c := make(chan time.Time, 1)
	all.begin.Do(func() { all.start(f) })
	all.add(c, f.Uptime()+d)
	return c
}

// waits are all of this process's. One goroutine ends them and one watches the file, however many there are.
type waits struct {
	begin         sync.Once
	clock         file
	sooner, moved chan struct{} // of capacity 1

	mu         sync.Mutex
	due        map[chan<- time.Time]time.Duration // uptime
	next       time.Duration                      // the earliest of them, never if there is none
	goroutines int
	told       *os.File // nil if nobody wants to know
}

var all waits

const never = time.Duration(math.MaxInt64)

func (w *waits) start(f file) {
	w.clock, w.due, w.next = f, map[chan<- time.Time]time.Duration{}, never
	w.sooner, w.moved = make(chan struct{}, 1), make(chan struct{}, 1)
	w.told, _ = os.Create(filepath.Join(filepath.Dir(f.path), "waits", strconv.Itoa(os.Getpid()))) // mostly there is no such folder
	go w.watch()
	go w.run()
}

func (w *waits) add(c chan<- time.Time, due time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due[c] = due
	if due < w.next {
		w.next = due
		w.tell()
		nudge(w.sooner)
	}
}

// run ends the waits that are over.
func (w *waits) run() {
	for {
		w.mu.Lock()
		now, next := w.clock.Uptime(), never
		for c, due := range w.due {
			if due <= now {
				c <- w.clock.Now()
				delete(w.due, c)
			} else {
				next = min(next, due)
			}
		}
		w.next = next
		w.tell()
		w.mu.Unlock()
		t := time.NewTimer(next - now)
		select {
		case <-t.C:
		case <-w.sooner:
		case <-w.moved:
			w.mu.Lock()
			w.goroutines = runtime.NumGoroutine()
			w.mu.Unlock()
		}
		t.Stop()
	}
}

// tell writes what the next wait is. mu is held.
func (w *waits) tell() {
	if w.told == nil {
		return
	}
	if _, err := w.told.WriteAt(fmt.Appendf(nil, "%20d %20d\n", w.next, w.goroutines), 0); err != nil {
		panic(err)
	}
}

// watch reports each renaming of a file over the clock's (inotify(7)).
func (w *waits) watch() {
	dir, name := filepath.Split(w.clock.path)
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, filepath.Clean(dir), unix.IN_MOVED_TO)
	}
	if err != nil {
		panic(fmt.Sprintf("clock: cannot watch %s: %v", dir, err))
	}
	events, b := os.NewFile(uintptr(fd), "inotify"), make([]byte, 4096)
	nudge(w.moved) // it may have been moved before it was watched
	for {
		n, err := events.Read(b)
		if err != nil {
			panic(fmt.Sprintf("clock: cannot watch %s: %v", dir, err))
		}
		if bytes.Contains(b[:n], append([]byte(name), 0)) {
			nudge(w.moved)
		}
	}
}

func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
