package selftest

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/bootslot/config"
	"holdfast/device"
	"holdfast/device/clock"
)

func TestLimits(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	units := map[string]string{"temperature": "°C"}
	for _, tt := range []struct {
		c    config.Check
		want []string // of the check, and of its fatal limit
	}{
		{config.Check{Reading: "temperature", Min: p(5), Max: p(38.5)}, []string{"5 to 38.5 °C"}},
		{config.Check{Reading: "temperature", Max: p(38), FatalMin: p(1), FatalMax: p(45)}, []string{"at most 38 °C", "1 to 45 °C"}},
		{config.Check{Reading: "light", Min: p(100), FatalMin: p(0)}, []string{"at least 100", "at least 0"}},
		{config.Check{Reading: "temperature", FatalMax: p(45)}, []string{"", "at most 45 °C"}},
		{config.Check{HTTP: "http://127.0.0.1/x"}, []string{"2xx from http://127.0.0.1/x"}},
		{config.Check{Command: []string{"/bin/a", "-b"}}, []string{"exit status 0 of /bin/a -b"}},
		{config.Check{Unit: "a.service"}, []string{"a.service is active"}},
		{config.Check{FreeDisk: "/var", MinFree: 3 << 20}, []string{"3.0 MiB free on /var"}},
	} {
		probes := probesOf(tt.c, units)
		if len(probes) != len(tt.want) {
			t.Errorf("%+v: %d checks", tt.c, len(probes))
			continue
		}
		for i, probe := range probes {
			if probe.Limit != tt.want[i] {
				t.Errorf("%+v: %q, want %q", tt.c, probe.Limit, tt.want[i])
			}
		}
	}
}

// Once measures each check once, and waits for no one longer than it was told to.
func TestOnce(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Checks: []config.Check{command1("quick"), command1("deaf"), {Name: "hot", Reading: "temperature", Max: p(38)}},
			Log: slog.New(slog.DiscardHandler), Clock: clock.NewProcess()})
		m := &fake{release: make(chan struct{}), takes: map[string]time.Duration{"quick": time.Second, "deaf": time.Hour}, deaf: map[string]bool{"deaf": true}, counts: map[string]counts{}}
		r.measure = m.measure
		defer close(m.release)
		limited, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		began := time.Now()
		r.Once(limited, &device.State{Readings: map[string]float64{"temperature": 40}}, r.clock.Uptime())
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v, want the 3 s that it was given", took)
		}
		if s := sample(t, r, "quick"); !s.OK || s.Ended == 0 {
			t.Errorf("%+v", s)
		}
		if s := sample(t, r, "hot"); s.OK || *s.Value != 40 {
			t.Errorf("%+v", s)
		}
		if s := sample(t, r, "deaf"); s.OK || s.Ended != 0 {
			t.Errorf("%+v", s)
		}
	})
}
