package selftest

import (
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"holdfast/bootslot/config"
	"holdfast/device"
	"holdfast/device/clock"
)

func TestObserve(t *testing.T) {
	reads := func(v float64) *device.State {
		return &device.State{Readings: map[string]float64{"temperature": v, "light": 1}}
	}
	hot := config.Check{Name: "hot", Reading: "temperature", Max: p(38), FatalMax: p(45)}
	cold := config.Check{Name: "cold", Reading: "temperature", Min: p(5), FatalMin: p(-2.5)}
	tests := []struct {
		name  string
		check config.Check
		state *device.State
		want  []string // OK, value, message; the check and its fatal limit
	}{
		{"well", hot, reads(21.26), []string{"true 21.26 temperature 21.26 °C", "true 21.26 temperature 21.26 °C"}},
		{"on the limit", hot, reads(38), []string{"true 38 temperature 38 °C", "true 38 temperature 38 °C"}},
		{"above", hot, reads(41.2), []string{"false 41.2 temperature 41.2 °C is above 38", "true 41.2 temperature 41.2 °C"}},
		{"a hair above", hot, reads(38.001), []string{"false 38.001 temperature 38.001 °C is above 38", "true 38.001 temperature 38 °C"}},
		{"many decimals", hot, reads(41.23456789), []string{"false 41.23456789 temperature 41.23 °C is above 38", "true 41.23456789 temperature 41.23 °C"}},
		{"on the fatal limit", hot, reads(45), []string{"false 45 temperature 45 °C is above 38", "true 45 temperature 45 °C"}},
		{"beyond the fatal limit", hot, reads(46), []string{"false 46 temperature 46 °C is above 38", "false 46 temperature 46 °C is above the fatal limit 45"}},
		{"below", cold, reads(4), []string{"false 4 temperature 4 °C is below 5", "true 4 temperature 4 °C"}},
		{"far below", cold, reads(-3), []string{"false -3 temperature -3 °C is below 5", "false -3 temperature -3 °C is below the fatal limit -2.5"}},
		{"no unit", config.Check{Name: "light", Reading: "light", Min: p(2)}, reads(0), []string{"false 1 light 1 is below 2"}},
		{"no answer", hot, nil, []string{"false - the device does not answer", "true - not measured: the device does not answer"}},
		{"no sensor", hot, &device.State{}, []string{"false - the device reports no temperature", "true - not measured: the device reports no temperature"}},
		{"not a number", hot, reads(math.NaN()), []string{"false - the device reports no temperature", "true - not measured: the device reports no temperature"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ck := clock.NewProcess()
			r := New(Options{
				Checks:   []config.Check{tt.check, command1("z")},
				Readings: []device.Reading{{Name: "temperature", Unit: "°C"}},
				Log:      slog.New(slog.DiscardHandler), Clock: ck,
			})
			r.Observe(reads(20), 1) // what was observed before does not matter
			started := ck.Uptime()
			r.Observe(tt.state, started)
			got := r.Latest()
			if len(got) != len(tt.want)+1 {
				t.Fatalf("Latest() has %d samples, want %d", len(got), len(tt.want)+1)
			}
			for i, want := range tt.want {
				v := "-"
				if got[i].Value != nil {
					v = fmt.Sprint(*got[i].Value)
				}
				if have := fmt.Sprint(got[i].OK, " ", v, " ", got[i].Message); have != want {
					t.Errorf("%s:\ngot  %s\nwant %s", got[i].Name, have, want)
				}
				if got[i].Started != started || got[i].Ended < started || got[i].Ended > ck.Uptime() {
					t.Errorf("%s: from %v to %v, want from %v on", got[i].Name, got[i].Started, got[i].Ended, started)
				}
			}
			if z := got[len(got)-1]; z.Ended != 0 {
				t.Errorf("Observe measured a command: %+v", z)
			}
		})
	}
}

// The guard's loop observes while it holds nothing; Run must not measure readings by itself.
func TestRunLeavesReadingsAlone(t *testing.T) {
	bubble(t, []config.Check{{Name: "hot", Reading: "temperature", Max: p(38)}}, func(t *testing.T, r *Runner, m *fake, start, stop func()) {
		start()
		time.Sleep(3 * time.Second)
		if s := sample(t, r, "hot"); s.Ended != 0 || m.count("hot", nil).started != 0 {
			t.Errorf("without Observe: %+v, measured %d times by Run; want no sample", s, m.count("hot", nil).started)
		}
	})
}
