// Package clock tells time to everything in Holdfast that waits or measures.
//
// There are two times and they are never mixed. Now is the wall clock: boards without a battery wake
// up in 1970, and a time server may move it by decades, so it is shown to people and compared with
// nothing. Uptime is the kernel's monotonic time since boot (CLOCK_BOOTTIME, clock_gettime(2)): it is
// the same in every process of the board, goes on while a process is stopped, and starts anew with a boot;
// leases, soak, windows and pauses are measured in it.
//
// New returns the clock of this build. The release build reads the kernel and nothing else. With the
// build tag holdfast_testclock it also reads a file that shifts both times, and tells a test what it waits for (file.go), so that a test can
// jump the clock, let a pause of 15 minutes pass, or a month; nothing else differs between the two builds.
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock tells time.
type Clock interface {
	// Now is the wall clock: shown, never compared.
	Now() time.Time
	// Uptime is monotonic: leases, soak, windows, pauses.
	Uptime() time.Duration
	// After sends once d of uptime has passed.
	After(d time.Duration) <-chan time.Time
}

// Believable reports whether a wall clock that said t can have been right. One that nobody has set is in 1970, or where the last shutdown left it: no
// board that runs this has seen an earlier day than era.
func Believable(t time.Time) bool { return !t.Before(era) }

var era = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// System is the kernel's clock.
type System struct{}

// Now returns the wall clock.
func (System) Now() time.Time { return time.Now() }

// Uptime returns the time since boot, suspended time included (CLOCK_BOOTTIME).
func (System) Uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Linux has had this clock since 2.6.39; without it no lease or window could be trusted.
		panic("clock: CLOCK_BOOTTIME is not available: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// After is time.After.
func (System) After(d time.Duration) <-chan time.Time { return time.After(d) }

// process counts uptime from its own creation with the Go runtime's timers, so that it obeys
// a testing/synctest bubble.
type process struct{ start time.Time }

// NewProcess returns a Clock on the Go runtime's timers alone, for in-process tests in a
// testing/synctest bubble. Its uptime starts at one hour, so that "never" (0) and "just now" differ.
func NewProcess() Clock { return process{time.Now()} }

func (process) Now() time.Time                         { return time.Now() }
func (p process) Uptime() time.Duration                { return time.Hour + time.Since(p.start) }
func (process) After(d time.Duration) <-chan time.Time { return time.After(d) }
