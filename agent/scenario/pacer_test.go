package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"holdfast/device/clock"
)

// pacer passes over the time in which nothing happens, and only over that: as soon as all processes of the board sleep and nothing is on its way
// between them, wall clock and uptime go forward to the next moment at which one of them wants to be woken. What they do then takes the
// real time that it takes, so that leases and time-outs mean what they always mean; a month of waiting takes minutes.
//
// Not seen, and so passed over too, is who waits by the runtime's own timers for something else than the device: a server that stalls, or is slow. And a wait ends
// up to slack late, as on a board that has more to do, so that waits that end nearly together end together.
type pacer struct {
	w       *world
	waits   string                   // folder of the test clock: who waits until when
	flying  map[string]*atomic.Int64 // requests that are being answered, by who asks or is asked
	asked   map[string]*atomic.Int64 // all that ever were
	passed  time.Duration            // over, in all
	steps   int                      // in which it was passed over
	began   time.Duration            // kernel's uptime
	moved   time.Time                // the last time
	threads map[int][]*os.File       // their stat files, by process id
}

const (
	slack = 5 * time.Second
	// While a process is stopped somebody may be waiting for it with a time-out of seconds, which must not become hours.
	frozenStep, frozenPause = time.Minute, 2200 * time.Millisecond
	// retryPause is a little longer than the device's client waits, in real time, before it tries again what failed.
	retryPause = 250 * time.Millisecond
	// stuckAfter is how long a board may be busy with one moment.
	stuckAfter = 2 * time.Minute
)

// newPacer takes over the clock of a world in which nothing runs yet. The clock's folder is no disk: its writes are not the board's.
func newPacer(w *world, folder string) (*pacer, error) {
	p := &pacer{w: w, waits: filepath.Join(folder, "waits"), flying: map[string]*atomic.Int64{}, asked: map[string]*atomic.Int64{}, threads: map[int][]*os.File{}, began: clock.System{}.Uptime()}
	if err := os.Mkdir(p.waits, 0o755); err != nil {
		return nil, err
	}
	w.clockDir = folder
	for who, s := range map[string]*http.Server{"agent": w.recorders["agent"].server, "guard": w.recorders["guard"].server,
		"battery": w.battery.server, "upstream": w.upstream.server} {
		p.flying[who], p.asked[who] = new(atomic.Int64), new(atomic.Int64)
		s.Handler = counted(s.Handler, p.flying[who], p.asked[who], w.recorders[who] != nil)
	}
	return p, w.reboot()
}

// counted counts the requests that h is answering, long-polls aside, and all that it ever was asked. One that fails counts, if it is retried, until it has been.
func counted(h http.Handler, n, all *atomic.Int64, retried bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("wait") {
			h.ServeHTTP(w, r)
			return
		}
		n.Add(1)
		all.Add(1)
		sw := &statusWriter{ResponseWriter: w}
		defer func() {
			if retried && (sw.code == 0 || sw.code >= 500) {
				time.AfterFunc(retryPause, func() { n.Add(-1) })
			} else {
				n.Add(-1)
			}
		}()
		h.ServeHTTP(sw, r)
	})
}

// now is the simulated time since the pacer was made: what has been passed over, and what has really gone by.
func (p *pacer) now() time.Duration { return clock.System{}.Uptime() - p.began + p.passed }

// until lets the board live until the simulated time t.
func (p *pacer) until(t time.Duration) error {
	busy := time.Now()
	for p.now() < t {
		frozen := p.frozen()
		if frozen && time.Since(p.moved) < frozenPause {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		due, why := p.rests()
		if why != "" {
			if err := p.w.check(); err != nil {
				return err
			}
			if time.Since(busy) > stuckAfter {
				return fmt.Errorf("the board has been busy for %v: %s", stuckAfter, why)
			}
			time.Sleep(200 * time.Microsecond)
			continue
		}
		busy = time.Now()
		step := t - p.now()
		if due < math.MaxInt64 { // somebody waits for something
			step = min(step, due-p.uptime()+slack)
		}
		if frozen {
			step = min(step, frozenStep)
		}
		if step <= 0 {
			continue
		}
		p.passed += step
		p.steps++
		p.moved = busy
		if err := p.w.setClock(p.w.wall+step, p.w.uptime+step); err != nil {
			return err
		}
	}
	return nil
}

// uptime is the board's.
func (p *pacer) uptime() time.Duration { return clock.System{}.Uptime() + p.w.uptime }

func (p *pacer) frozen() bool {
	for _, who := range processNames {
		if p.w.procs[who].state() == "frozen" {
			return true
		}
	}
	return false
}

// rests returns the uptime at which the first of them wants to go on, or why not all of them rest. It looks twice: what one has sent may not have
// woken the other yet.
func (p *pacer) rests() (due time.Duration, why string) {
	for range 2 {
		for who, n := range p.flying {
			if n.Load() > 0 && p.w.procs[who].state() != "frozen" {
				return 0, "a request of or to the " + who + " is being answered"
			}
		}
		due = math.MaxInt64
		for _, who := range processNames {
			if p.w.procs[who].state() != "running" {
				continue
			}
			at, _, err := p.waitOf(who)
			switch {
			case errors.Is(err, os.ErrNotExist) && who == "greenhouse": // it has not waited for anything yet
			case err != nil:
				return 0, who + " starts"
			case at <= p.uptime():
				return 0, who + " wakes up"
			default:
				due = min(due, at)
			}
		}
		for _, who := range processNames {
			if p.w.procs[who].state() == "running" && p.runs(p.w.procs[who].cmd.Process.Pid) {
				return 0, who + " runs"
			}
		}
	}
	return due, ""
}

// waitOf is what the test clock tells of a running process: the uptime at which its next wait ends, and its goroutines when the clock was last moved.
func (p *pacer) waitOf(who string) (due time.Duration, goroutines int, err error) {
	b, err := os.ReadFile(filepath.Join(p.waits, strconv.Itoa(p.w.procs[who].cmd.Process.Pid)))
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscan(string(b), (*int64)(&due), &goroutines)
	return due, goroutines, err
}

// forget removes what processes that have ended have left: their numbers are given to others.
func (p *pacer) forget() error {
	left, err := os.ReadDir(p.waits)
	for _, f := range left {
		lives := slices.ContainsFunc(processNames, func(who string) bool {
			return p.w.procs[who].state() != "dead" && strconv.Itoa(p.w.procs[who].cmd.Process.Pid) == f.Name()
		})
		if !lives {
			err = errors.Join(err, os.Remove(filepath.Join(p.waits, f.Name())))
		}
	}
	return err
}

// runs reports whether a thread of the process runs, or waits for the disk (proc(5)).
func (p *pacer) runs(pid int) bool {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	info, err := os.Stat(tasks)
	if err != nil {
		return false // it has just ended
	}
	of := p.threads[pid]
	if n := int(info.Sys().(*syscall.Stat_t).Nlink) - 2; of == nil || n != len(of) {
		for _, f := range of {
			f.Close()
		}
		entries, err := os.ReadDir(tasks)
		if err != nil {
			return false
		}
		of = nil
		for _, e := range entries {
			f, err := os.Open(filepath.Join(tasks, e.Name(), "stat"))
			if err != nil {
				return true // it comes and goes
			}
			of = append(of, f)
		}
		p.threads[pid] = of
	}
	b := make([]byte, 128)
	for _, f := range of {
		n, err := f.ReadAt(b, 0)
		if err != nil && n == 0 {
			delete(p.threads, pid) // a thread has gone
			return true
		}
		// The state follows the name, which is in brackets and may hold anything.
		if i := bytes.LastIndexByte(b[:n], ')'); i < 0 || b[i+2] == 'R' || b[i+2] == 'D' {
			return true
		}
	}
	return false
}
