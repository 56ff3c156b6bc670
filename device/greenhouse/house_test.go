package greenhouse

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var seeds = []uint64{0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, math.MaxUint64}

// until steps by a minute until the house is over that temperature; it returns false after limit.
func until(h House, sw Switches, overC float64, limit time.Duration) (time.Duration, bool) {
	for t := time.Duration(0); t < limit; t += time.Minute {
		if h.AirC > overC {
			return t, true
		}
		h.Step(time.Minute, sw)
	}
	return limit, false
}

// hottest is the highest air temperature over two days.
func hottest(h House, sw Switches) float64 {
	top := h.AirC
	for range 48 * 12 {
		h.Step(5*time.Minute, sw)
		top = max(top, h.AirC)
	}
	return top
}

func TestClosedHouseStaysCool(t *testing.T) {
	for _, seed := range seeds {
		if top := hottest(NewHouse(seed, 0), Switches{}); top > 36 || top < 24 {
			t.Errorf("seed %d: hottest with everything off and closed is %.1f °C, want 24 to 36", seed, top)
		}
	}
}

func TestLampOverheatsAClosedHouseSlowly(t *testing.T) {
	var quickest, sum time.Duration = math.MaxInt64, 0
	for _, seed := range seeds {
		d, hot := until(NewHouse(seed, 12), Switches{Lamp: true}, 38, 3*time.Hour)
		if !hot || d < 8*time.Minute || d > 90*time.Minute {
			t.Errorf("seed %d: lamp on at noon: over 38 °C %v after %s", seed, hot, d)
		}
		quickest, sum = min(quickest, d), sum+d
		if d, hot := until(NewHouse(seed, 12), Switches{Lamp: true}, 44.9, 3*time.Hour); !hot && seed == 1 {
			t.Errorf("seed %d: lamp on at noon: not at 45 °C after %s", seed, d)
		}
	}
	if mean := sum / time.Duration(len(seeds)); mean < 15*time.Minute || mean > 40*time.Minute {
		t.Errorf("over 38 °C after %s on average, want the order of 20 min", mean)
	}
	if quickest < 8*time.Minute {
		t.Errorf("over 38 °C after %s: too quick for a check with a soak of 20 min to be the one to see it", quickest)
	}
}

func TestAirExchangeCools(t *testing.T) {
	for _, seed := range seeds {
		before := hottest(NewHouse(seed, 0), Switches{Lamp: true})
		for _, sw := range []Switches{
			{Lamp: true, Fan: true},
			{Lamp: true, Vent: true},
			{Lamp: true, Vent: true, Fan: true},
			{Lamp: true, Vent: true, Fan: true, Door: true},
		} {
			top := hottest(NewHouse(seed, 0), sw)
			if top >= 38 || top >= before {
				t.Errorf("seed %d: hottest with %+v is %.1f °C, want under 38 and under %.1f", seed, sw, top, before)
			}
			before = top
		}
		if _, hot := until(NewHouse(seed, 22), Switches{Lamp: true}, 38, 8*time.Hour); hot {
			t.Errorf("seed %d: the lamp overheats the house at night", seed)
		}
	}
}

func TestNightIsDarkAndDayIsNot(t *testing.T) {
	for _, seed := range seeds {
		h := NewHouse(seed, 0)
		for range 48 * 6 {
			h.Step(10*time.Minute, Switches{})
			switch day := hour(h.At); {
			case (day < 5.9 || day > 20.2) && h.LightLux > 1:
				t.Errorf("seed %d: %.0f lux at %.1f h", seed, h.LightLux, day)
			case day > 10 && day < 16 && h.LightLux < 5000:
				t.Errorf("seed %d: only %.0f lux at %.1f h", seed, h.LightLux, day)
			}
		}
		h = NewHouse(seed, 0)
		h.Step(3*time.Minute, Switches{Lamp: true})
		if math.Abs(h.LightLux-lampLux) > 100 {
			t.Errorf("seed %d: the lamp gives %.0f lux at night", seed, h.LightLux)
		}
	}
}

func TestPumpWetsAndDaysDry(t *testing.T) {
	h := NewHouse(1, 12)
	h.Step(10*time.Minute, Switches{Pump: true})
	if h.MoisturePercent < initialSoil+5 {
		t.Errorf("after 10 min of pumping: %.1f %%", h.MoisturePercent)
	}
	h.Step(6*time.Hour, Switches{Pump: true})
	wet := h.MoisturePercent
	if wet < 75 || wet > 95 {
		t.Errorf("after 6 h of pumping: %.1f %%", wet)
	}
	h.Step(12*time.Hour, Switches{})
	if h.MoisturePercent > fieldCapacity+1 {
		t.Errorf("12 h later: %.1f %%, want it drained", h.MoisturePercent)
	}
	closed, open := h, h
	closed.Step(24*time.Hour, Switches{})
	open.Step(24*time.Hour, Switches{Vent: true, Fan: true, Door: true})
	if closed.MoisturePercent >= h.MoisturePercent || closed.MoisturePercent < 20 {
		t.Errorf("a day later: %.1f %%", closed.MoisturePercent)
	}
	if open.MoisturePercent >= closed.MoisturePercent {
		t.Errorf("a day later with moving air: %.1f %%, closed %.1f %%", open.MoisturePercent, closed.MoisturePercent)
	}
}

func TestHouseIsBoundedAndDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		start := rapid.Float64Range(0, 23.9).Draw(t, "hour")
		a, b, finer := NewHouse(seed, start), NewHouse(seed, start), NewHouse(seed, start)
		if rapid.Bool().Draw(t, "extreme") {
			a.AirC, a.MoisturePercent, a.LightLux = maxAir, maxSoil, maxLux
			b, finer = a, a
		}
		bit := rapid.Bool()
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			dt := time.Duration(rapid.Int64Range(-int64(time.Second), int64(6*time.Hour)).Draw(t, "dt"))
			if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
				dt *= 1000
			}
			sw := Switches{bit.Draw(t, "pump"), bit.Draw(t, "fan"), bit.Draw(t, "vent"), bit.Draw(t, "lamp"), bit.Draw(t, "door")}
			a.Step(dt, sw)
			b.Step(dt, sw)
			finer.Step(dt/3, sw)
			finer.Step(dt-dt/3, sw)
			if a != b {
				t.Fatalf("the same steps gave %+v and %+v", a, b)
			}
			if math.IsNaN(a.AirC+a.MoisturePercent+a.LightLux) || a.AirC < minAir || a.AirC > maxAir ||
				a.MoisturePercent < 0 || a.MoisturePercent > maxSoil || a.LightLux < 0 || a.LightLux > maxLux {
				t.Fatalf("out of bounds after %s with %+v: %+v", dt, sw, a)
			}
			if dt < longestCatchUp && (math.Abs(a.AirC-finer.AirC) > 0.05 || math.Abs(a.MoisturePercent-finer.MoisturePercent) > 0.05) {
				t.Fatalf("%s in two steps gave %+v, in one %+v", dt, finer, a)
			}
			finer = a
		}
	})
}

func TestWeatherIsAFunctionOfSeedAndTime(t *testing.T) {
	differ := false
	for i := range 200 {
		at := time.Duration(i) * 17 * time.Minute
		o := Weather{1}.At(at)
		if o != (Weather{1}).At(at) {
			t.Fatalf("two answers for %s", at)
		}
		differ = differ || o != Weather{2}.At(at)
		if o.Cloud < 0 || o.Cloud > 1 || o.TemperatureC < 10 || o.TemperatureC > 27 || o.SunLux < 0 || o.SunLux > sunLux {
			t.Errorf("at %s: %+v", at, o)
		}
		if next := (Weather{1}).At(at + time.Minute); math.Abs(next.Cloud-o.Cloud) > 0.2 || math.Abs(next.TemperatureC-o.TemperatureC) > 0.2 {
			t.Errorf("at %s: from %+v to %+v in a minute", at, o, next)
		}
	}
	if !differ {
		t.Error("two seeds, one weather")
	}
}
