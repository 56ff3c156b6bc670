package selftest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/bootslot/config"
	"holdfast/device"
	"holdfast/device/clock"
)

func p(v float64) *float64 { return &v }

// fake measures as long as it is told to, and counts.
type fake struct {
	release chan struct{} // closed at the end: what is deaf ends too
	mu      sync.Mutex
	takes   map[string]time.Duration // by check; none: no time at all
	deaf    map[string]bool          // does not end with its context
	counts  map[string]counts
}

type counts struct{ started, busy, busiest, cancelled int }

// set says how long the check takes from now on.
func (f *fake) set(check string, takes time.Duration, deaf bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.takes[check], f.deaf[check] = takes, deaf
}

func (f *fake) count(check string, change func(*counts)) counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counts[check]
	if change != nil {
		change(&c)
	}
	f.counts[check] = c
	return c
}

func (f *fake) measure(ctx context.Context, c config.Check) outcome {
	f.count(c.Name, func(n *counts) {
		n.started++
		n.busy++
		n.busiest = max(n.busiest, n.busy)
	})
	defer f.count(c.Name, func(n *counts) { n.busy-- })
	f.mu.Lock()
	takes, done := f.takes[c.Name], ctx.Done()
	if f.deaf[c.Name] {
		done = f.release
	}
	f.mu.Unlock()
	select {
	case <-time.After(takes):
		return outcome{ok: true, message: "fine"}
	case <-done:
		if ctx.Err() == context.Canceled {
			f.count(c.Name, func(n *counts) { n.cancelled++ })
		}
		return outcome{message: "cut short"}
	}
}

func command1(name string) config.Check { return config.Check{Name: name, Command: []string{"/true"}} }

// bubble runs f in a synctest bubble with a Runner of the checks, which begins when start is called.
func bubble(t *testing.T, checks []config.Check, f func(t *testing.T, r *Runner, m *fake, start, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Checks: checks, Interval: time.Second, Log: slog.New(slog.DiscardHandler), Clock: clock.NewProcess()})
		m := &fake{release: make(chan struct{}), takes: map[string]time.Duration{}, deaf: map[string]bool{}, counts: map[string]counts{}}
		r.measure = m.measure
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		start := func() {
			go func() { defer close(done); r.Run(ctx) }()
		}
		stop := func() { cancel(); <-done }
		defer close(m.release)
		defer stop()
		f(t, r, m, start, stop)
	})
}

func sample(t *testing.T, r *Runner, name string) Sample {
	t.Helper()
	for _, s := range r.Latest() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("Latest() has no %q", name)
	return Sample{}
}

func TestSlowCheckDelaysNobody(t *testing.T) {
	checks := []config.Check{command1("quick"), command1("slow")}
	bubble(t, checks, func(t *testing.T, r *Runner, m *fake, start, stop func()) {
		m.set("slow", 3500*time.Millisecond, false)
		start()
		time.Sleep(10*time.Second + 1)
		synctest.Wait()
		if got := m.count("quick", nil).started; got != 11 {
			t.Errorf("in 10 s beside a slow check the quick one was measured %d times, want 11", got)
		}
		if got := m.count("slow", nil).started; got != 3 { // at 0, 4 and 8 s
			t.Errorf("in 10 s the slow check was measured %d times, want 3", got)
		}
		if got := m.count("slow", nil).busiest; got != 1 {
			t.Errorf("the slow check was measured %d times at once, want 1", got)
		}
		now := r.clock.Uptime()
		if s := sample(t, r, "quick"); !s.OK || now-s.Ended > time.Second {
			t.Errorf("quick: %+v at %v, want a good and fresh sample", s, now)
		}
		if s := sample(t, r, "slow"); !s.OK || s.Ended-s.Started != 3500*time.Millisecond || s.Started != time.Hour+4*time.Second {
			t.Errorf("slow: %+v, want started at 1h0m4s and ended 3.5 s later", s)
		}
	})
}

func TestStuckCheckIsReportedAndStaysOne(t *testing.T) {
	c := command1("stuck")
	c.Timeout = 2 * time.Second
	bubble(t, []config.Check{c}, func(t *testing.T, r *Runner, m *fake, start, stop func()) {
		m.set("stuck", time.Minute, true)
		start()
		time.Sleep(2*time.Second + 1)
		synctest.Wait()
		if s := sample(t, r, "stuck"); s.Ended != 0 || s.OK {
			t.Errorf("before its timeout is over: %+v, want nothing measured yet", s)
		}
		time.Sleep(18 * time.Second)
		synctest.Wait()
		s := sample(t, r, "stuck")
		if s.OK || !strings.Contains(s.Message, "stuck") || s.Started != time.Hour || r.clock.Uptime()-s.Ended > time.Second {
			t.Errorf("18 s after its timeout: %+v, want a fresh failing sample that started at 1h0m0s", s)
		}
		if got := m.count("stuck", nil).started; got != 1 {
			t.Errorf("the stuck check was started %d times, want 1", got)
		}
		time.Sleep(41 * time.Second) // it ends after all
		synctest.Wait()
		if s := sample(t, r, "stuck"); !s.OK {
			t.Errorf("after it has come back: %+v, want OK", s)
		}
		if m.count("stuck", nil).started < 2 {
			t.Errorf("after it has come back it is not measured again")
		}
	})
}

func TestRunReturnsThoughSomethingIsStuck(t *testing.T) {
	bubble(t, []config.Check{command1("stuck")}, func(t *testing.T, r *Runner, m *fake, start, stop func()) {
		m.set("stuck", time.Hour, true)
		start()
		time.Sleep(time.Second / 2)
		before := time.Now()
		stop()
		if d := time.Since(before); d > grace {
			t.Errorf("Run returned %v after its context ended, want at most %v", d, grace)
		}
	})
}

func TestTimeoutEndsTheMeasurement(t *testing.T) {
	c := command1("hangs")
	c.Timeout = 2 * time.Second
	bubble(t, []config.Check{c, command1("default")}, func(t *testing.T, r *Runner, m *fake, start, stop func()) {
		m.set("hangs", time.Hour, false)
		m.set("default", time.Hour, false)
		start()
		time.Sleep(2*time.Second + 1)
		synctest.Wait()
		if s := sample(t, r, "hangs"); s.OK || s.Message != "cut short" || s.Ended-s.Started != 2*time.Second {
			t.Errorf("after its timeout of 2 s: %+v, want what the measurement said when it was ended", s)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s := sample(t, r, "default"); s.OK || s.Ended-s.Started != 5*time.Second {
			t.Errorf("after the default timeout of 5 s: %+v, want a failing sample", s)
		}
	})
}

func TestShutdownPublishesNothing(t *testing.T) {
	bubble(t, []config.Check{command1("a")}, func(t *testing.T, r *Runner, m *fake, start, stop func()) {
		start()
		time.Sleep(time.Second / 2)
		synctest.Wait()
		m.set("a", 3*time.Second, false)
		time.Sleep(time.Second)
		stop()
		if m.count("a", nil).cancelled != 1 || m.count("a", nil).busy != 0 {
			t.Errorf("at the end of Run %d measurements were cancelled and %d go on, want 1 and 0", m.count("a", nil).cancelled, m.count("a", nil).busy)
		}
		if s := sample(t, r, "a"); !s.OK {
			t.Errorf("the guard's own end made a failing sample: %+v", s)
		}
	})
}

func TestSetInterval(t *testing.T) {
	bubble(t, []config.Check{command1("a")}, func(t *testing.T, r *Runner, m *fake, start, stop func()) {
		r.SetInterval(time.Minute) // at rest
		start()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := m.count("a", nil).started; got != 1 {
			t.Errorf("10 s with an interval of 1m: measured %d times, want 1", got)
		}
		r.SetInterval(time.Second) // a trial: at once, then each second
		r.SetInterval(time.Second)
		synctest.Wait()
		if got := m.count("a", nil).started; got != 2 {
			t.Errorf("right after the interval became 1 s: measured %d times, want 2", got)
		}
		time.Sleep(3*time.Second + 1)
		synctest.Wait()
		if got := m.count("a", nil).started; got != 5 {
			t.Errorf("3 s after the interval became 1 s: measured %d times, want 5", got)
		}
	})
}

func TestReloadKeepsWhatHasNotChanged(t *testing.T) {
	hot := config.Check{Name: "hot", Reading: "temperature", Max: p(38)}
	bubble(t, []config.Check{command1("same"), command1("changes"), command1("goes"), hot}, func(t *testing.T, r *Runner, m *fake, start, stop func()) {
		r.SetInterval(time.Hour)
		start()
		time.Sleep(time.Second)
		synctest.Wait()
		r.Observe(&device.State{Readings: map[string]float64{"temperature": 20}}, r.clock.Uptime())
		for _, name := range []string{"same", "changes", "comes"} {
			m.set(name, time.Second, false) // so that the samples seen below are the old ones
		}
		hotAgain := hot
		hotAgain.Max = p(38) // another pointer to the same limit
		changed := command1("changes")
		changed.Timeout = time.Minute
		r.Reload([]config.Check{changed, hotAgain, command1("same"), command1("comes")})
		synctest.Wait()
		var got []string
		for _, s := range r.Latest() {
			got = append(got, fmt.Sprint(s.Name, " ", s.OK))
		}
		want := []string{"changes false", "comes false", "hot true", "same true"}
		if !slices.Equal(got, want) {
			t.Errorf("after Reload: Latest() = %q, want %q", got, want)
		}
		r.Reload(nil)
		synctest.Wait()
		if m.count("same", nil).cancelled != 1 || m.count("changes", nil).cancelled != 1 {
			t.Error("after Reload without checks: what was being measured has not been ended")
		}
		if got := r.Latest(); len(got) != 0 {
			t.Errorf("Latest() = %+v, want none", got)
		}
	})
}

func TestChecks(t *testing.T) {
	var log bytes.Buffer
	r := New(Options{
		Checks: []config.Check{
			{Name: "not-too-hot", Reading: "temperature", Max: p(38), FatalMax: p(45), Soak: 20 * time.Minute},
			{Name: "dry", Reading: "moisture", Min: p(10), FatalMin: p(2), Wanted: true},
			{Name: "bright", Reading: "light", Min: p(1)},
			{Name: "modem", Command: []string{"/x"}, Wanted: true},
			{Name: "modem", Command: []string{"/y"}},
		},
		Log: slog.New(slog.NewTextHandler(&log, nil)), Clock: clock.NewProcess(),
	})
	want := []Check{
		{Name: "bright", Required: true, Limit: "at least 1"},
		{Name: "dry", Limit: "at least 10"},
		{Name: "dry:fatal", Fatal: true, Limit: "at least 2"},
		{Name: "modem", Limit: "exit status 0 of /x"},
		{Name: "not-too-hot", Required: true, Soak: 20 * time.Minute, Limit: "at most 38"},
		{Name: "not-too-hot:fatal", Required: true, Fatal: true, Limit: "at most 45"},
	}
	if got := r.Checks(); !slices.Equal(got, want) {
		t.Errorf("Checks() =\n%+v, want\n%+v", got, want)
	}
	for _, s := range r.Latest() {
		if s.OK != s.Fatal || s.Ended != 0 || s.Value != nil {
			t.Errorf("before anything was measured: %+v; only a fatal limit may be OK, and with no value", s)
		}
	}
	if !strings.Contains(log.String(), "check=modem") {
		t.Errorf("the second check named modem is not in the log: %s", log.String())
	}
}

// TestNothingIsLeftBehind runs real checks of each kind that fail slowly, and looks for goroutines afterwards.
func TestNothingIsLeftBehind(t *testing.T) {
	hang := newHangingServer(t)
	folder := t.TempDir()
	executable(t, filepath.Join(folder, "required", "forks"), "#!/bin/sh\nsleep 300 &\nexit 0\n")
	r := New(Options{
		Checks: []config.Check{
			{Name: "http", HTTP: hang.URL, Timeout: 20 * time.Millisecond},
			{Name: "command", Command: []string{"/bin/sh", "-c", "sleep 300 & sleep 300"}, Timeout: 20 * time.Millisecond},
			{Name: "flood", Command: []string{"/bin/sh", "-c", "while :; do echo y; done"}, Timeout: 20 * time.Millisecond},
			{Name: "disk", FreeDisk: "/", MinFree: 1},
		},
		Folders: []string{folder}, Interval: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Clock: clock.New(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	seen := map[string]map[time.Duration]bool{}
	until(t, "five samples of each check", func() bool {
		enough := true
		for _, s := range r.Latest() {
			if seen[s.Name] == nil {
				seen[s.Name] = map[time.Duration]bool{}
			}
			if s.Ended > 0 {
				seen[s.Name][s.Ended] = true
			}
			if wantOK := s.Name == "disk" || s.Name == "check.d/forks"; s.Ended > 0 && s.OK != wantOK {
				t.Errorf("%s: OK = %v, %q; want %v", s.Name, s.OK, s.Message, wantOK)
			}
			enough = enough && len(seen[s.Name]) >= 5
		}
		return enough
	})
	cancel()
	<-done
	var profile string
	until(t, "the end of all goroutines of this package", func() bool {
		var b bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&b, 2)
		profile = b.String()
		return strings.Count(profile, "selftest.run") == 0 && strings.Count(profile, "selftest.tail") == 0 &&
			strings.Count(profile, "selftest.(*Runner)") == 0 && strings.Count(profile, "Transport).") == 0
	})
	if t.Failed() {
		t.Log(profile)
	}
}

// until polls until ok; the deadline is only for a test that fails.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

func executable(t *testing.T, file, content string) {
	t.Helper()
	write(t, file, content, 0o755)
}

func write(t *testing.T, file, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}
