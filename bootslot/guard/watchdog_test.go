package guard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/bootslot/api"
	"holdfast/device/clock"
)

// manager is a service manager.
type manager struct {
	mu   sync.Mutex
	said []string
}

func (m *manager) notify(state string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, state)
}

func (m *manager) count(prefix string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.said {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

// comes waits until the manager has heard n more pings.
func (m *manager) comes(t *testing.T, what string, n int) {
	t.Helper()
	want := m.count("WATCHDOG=1") + n
	for end := time.Now().Add(20 * time.Second); m.count("WATCHDOG=1") < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: the pings have ended", what)
		}
	}
}

// watched is a guard with the real clock, and its loops.
func watched(t *testing.T, url, interval string) (*Guard, *manager, func()) {
	t.Helper()
	b := newBench(t, "")
	if err := b.g.Close(); err != nil {
		t.Fatal(err)
	}
	b.cfg.Device.URL, b.cfg.Device.Interval, b.cfg.Device.Timeout = url, 20*time.Millisecond, 100*time.Millisecond
	var err error
	if b.cfg.Guard.Interval, err = time.ParseDuration(interval); err != nil {
		t.Fatal(err)
	}
	m := &manager{}
	o := b.g.opts
	o.Config, o.Clock, o.Notify, o.WatchdogEvery = b.cfg, clock.New(), m.notify, 10*time.Millisecond
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); _ = g.Close() })
	return g, m, stop
}

// The pings go on with a device that hangs, with none, and while the checks rest for longer than the watchdog waits; the manager is told at once that
// the guard is ready, once how it stands, and in time that it stops.
func TestWatchdogOfWhatIsAlive(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(hang) })
	for name, how := range map[string][2]string{
		"a device that hangs": {srv.URL, "10ms"}, "no device": {"http://127.0.0.1:1", "10ms"}, "long pauses": {srv.URL, "1h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, m, stop := watched(t, how[0], how[1])
			m.comes(t, name, 1)
			signs := func() (observing, driving time.Duration) {
				g.mu.Lock()
				defer g.mu.Unlock()
				return g.observing, g.driving
			}
			o, d := signs()
			m.comes(t, name, 200) // two seconds: twenty of the device's time-outs
			if o2, d2 := signs(); o2 <= o || d2 <= d {
				t.Errorf("signs of life: %v and %v, then %v and %v", o, d, o2, d2)
			}
			stop()
			m.mu.Lock()
			first, last := m.said[0], m.said[len(m.said)-1]
			m.mu.Unlock()
			if first != "READY=1" || last != "STOPPING=1" {
				t.Errorf("the manager heard %q first and %q last", first, last)
			}
			if n := m.count("STATUS=last-known-good is the fallback, driver guard"); n != m.count("STATUS=") || n > 1 || n == 0 && name != "long pauses" {
				t.Errorf("the status was told %d times: %v", n, slices.DeleteFunc(m.said, func(s string) bool { return !strings.HasPrefix(s, "STATUS") }))
			}
		})
	}
}

// They end when the guard's mutex is never given back, or one of its loops does not come round.
func TestWatchdogOfWhatHangs(t *testing.T) {
	t.Parallel()
	quiet := func(t *testing.T, m *manager) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; {
			before := m.count("WATCHDOG=1")
			time.Sleep(200 * time.Millisecond)
			if m.count("WATCHDOG=1") == before {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the pings go on")
			}
		}
	}
	t.Run("mutex", func(t *testing.T) {
		t.Parallel()
		g, m, _ := watched(t, "http://127.0.0.1:1", "10ms")
		m.comes(t, "before", 10)
		g.mu.Lock()
		quiet(t, m)
		g.mu.Unlock()
		m.comes(t, "when it is given back", 10)
	})
	t.Run("loops", func(t *testing.T) {
		t.Parallel()
		g, m, _ := watched(t, "http://127.0.0.1:1", "10ms")
		m.comes(t, "before", 10)
		late := func(d time.Duration) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.cfg.Device.Timeout += d
		}
		late(-time.Hour) // as if they had been away for as long
		quiet(t, m)
		late(time.Hour)
		m.comes(t, "when they come round again", 10)
	})
	b := newBench(t, "")
	loops := map[string]func(){
		"observe": func() { b.g.observing = b.clock.up }, // as it does, before it asks the device
		"drive":   func() { _, _ = b.g.target(context.Background()) },
	}
	limit := b.cfg.Device.Interval + roundTimeouts*b.cfg.Device.Timeout + roundSlack
	for hangs := range loops {
		for _, round := range loops {
			round()
		}
		for left := limit; left > 0; left -= time.Second {
			b.clock.up += time.Second
			for name, round := range loops {
				if name != hangs {
					round()
				}
			}
			if !b.g.alive() {
				t.Fatalf("%s: taken for dead %v too early", hangs, left)
			}
		}
		if b.clock.up += time.Second; b.g.alive() {
			t.Errorf("%s: hangs, and is taken for alive", hangs)
		}
		if loops[hangs](); !b.g.alive() {
			t.Errorf("%s: comes round again, and is not taken for alive", hangs)
		}
	}
}

// The manager's line follows the phase, and says what is in force.
func TestManagersLine(t *testing.T) {
	b := newBench(t, "")
	m := &manager{}
	b.g.opts.Notify = m.notify
	tell := func(want string) {
		t.Helper()
		b.g.tellManager()
		if got := m.said[len(m.said)-1]; got != "STATUS="+want {
			t.Errorf("the manager was told %q, want %q", got, want)
		}
		n := len(m.said)
		b.g.tellManager()
		if len(m.said) != n {
			t.Error("the same is told again")
		}
	}
	b.pass(20 * time.Second)
	tell("last-known-good is the fallback, driver agent")
	b.try(0, "lamp", "on")
	tell("last-known-good is the fallback, driver agent, a trial of " + b.g.ledger.Trial.Revision[:min(12, len(b.g.ledger.Trial.Revision))] + " runs")
	b.temp = 50
	b.pass(5 * time.Second)
	b.want("phase", b.g.phase(), api.PhaseReturning)
	tell("last-known-good is the fallback, driver agent, returning")
}
