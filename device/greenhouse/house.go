package greenhouse

import (
	"math"
	"time"
)

// The house is a hobby greenhouse of 2 m by 3 m: 6 m² of floor, some 25 m² of double polycarbonate. Figures are of the right
// order for such a house, chosen so that with everything closed
//
//   - nothing on: it stays under 36 °C on the warmest day of the weather below;
//   - the lamp on from noon: it is over 38 °C after some 20 minutes under a clear sky, an hour under a closed one, and goes
//     on to 45 °C and more; vent or fan alone keep it below 38 °C then;
//   - the lamp on from 22 h: it stays below 38 °C all night.
const (
	heatCapacity = 115e3 // J/K: air, benches, the top of the soil. With everything closed the time constant is 35 min

	lossClosed     = 55.0  // W/K through the walls, all closed
	lossVent       = 90.0  // W/K more with the roof vent open
	lossDoor       = 100.0 // W/K more with the door open
	lossFanOpen    = 120.0 // W/K more with the fan on and vent or door open
	lossFanClosed  = 70.0  // W/K more with the fan on and nothing open: it draws air through the gaps
	lossEverything = lossClosed + lossVent + lossDoor + lossFanOpen

	lampHeat = 1000.0  // W, ballast included
	sunHeat  = 500.0   // W inside, sun at its highest, clear sky
	lampLux  = 12000.0 // at the sensor
	sunLux   = 90000.0 // outside, sun at its highest, clear sky

	transmission = 0.65             // of the sun's light through the roof
	lightTime    = 20 * time.Second // the lamp's run-up and the sensor's averaging

	pumpCeiling   = 95.0             // % that the pump would wet the soil to, were there no drain
	pumpTime      = 40 * time.Minute // its time constant
	fieldCapacity = 60.0             // %: what is above drains off
	drainTime     = 2 * time.Hour
	dryFloor      = 5.0            // % that does not evaporate
	dryTime       = 60 * time.Hour // at 20 °C, all closed; faster when warm and with air exchange
	initialSoil   = 45.0           // %

	// The sensors' ranges; the house does not leave them.
	minAir, maxAir   = -40.0, 85.0 // °C
	maxLux           = 150e3
	maxSoil          = 100.0
	longestSubstep   = 10 * time.Second
	longestCatchUp   = 48 * time.Hour // what lies further back has no influence any more
	hoursOfDay       = 24.0
	sunrise, sunset  = 6.0, 20.0 // h
	warmestHour      = 15.0
	meanOutside      = 18.5 // °C
	outsideAmplitude = 5.5  // °C
	weatherSpread    = 1.5  // °C, up or down, from one half day to the next
)

// Switches are the actuators as physics sees them. Door is true when it is open.
type Switches struct{ Pump, Fan, Vent, Lamp, Door bool }

// Outside is the weather at one moment.
type Outside struct {
	TemperatureC float64 `json:"temperature"` // °C
	Cloud        float64 `json:"cloud"`       // 0, clear, to 1, closed
	SunLux       float64 `json:"light"`       // lux, through the clouds; 0 at night
}

// Weather is a summer, the same for the same seed: a day's course of sun and temperature, and clouds that drift slowly.
type Weather struct{ Seed uint64 }

// At is the weather at a time since midnight of the first day. It is a function of seed and time alone.
func (w Weather) At(t time.Duration) Outside {
	cloud := 0.65*w.noise(1, t, 3*time.Hour) + 0.35*w.noise(2, t, 45*time.Minute)
	cloud = clamp((cloud-0.5)*1.8+0.4, 0, 1)
	day := hour(t)
	return Outside{
		TemperatureC: meanOutside + outsideAmplitude*math.Cos((day-warmestHour)/hoursOfDay*2*math.Pi) +
			weatherSpread*(2*w.noise(3, t, 12*time.Hour)-1),
		Cloud:  cloud,
		SunLux: sunLux * height(day) * (1 - 0.75*cloud),
	}
}

// hour is the hour of the day, 0 to under 24.
func hour(t time.Duration) float64 { return math.Mod(t.Hours(), hoursOfDay) }

// height is how high the sun stands, 0 at night to 1 at its highest.
func height(day float64) float64 {
	return max(0, math.Sin((day-sunrise)/(sunset-sunrise)*math.Pi)) * b2f(day > sunrise && day < sunset)
}

// noise is between 0 and 1 and changes smoothly from one knot in time to the next.
func (w Weather) noise(channel uint64, t, knot time.Duration) float64 {
	i := uint64(t / knot)
	f := float64(t%knot) / float64(knot)
	f = f * f * (3 - 2*f)
	return w.roll(channel, i)*(1-f) + w.roll(channel, i+1)*f
}

// roll is a number from 0 to under 1 that seed, channel and index determine (splitmix64).
func (w Weather) roll(channel, i uint64) float64 {
	z := w.Seed*0x9e3779b97f4a7c15 + channel*0xd1b54a32d192ed03 + i*0x8cb92ba72f3d8dd7
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return float64(z>>11) / (1 << 53)
}

// House is the climate inside: three quantities of first order, each drawn to where sun, weather and switches would
// have it. The zero value is of no use; see NewHouse.
type House struct {
	Weather         Weather
	At              time.Duration // simulated, since midnight of the first day
	AirC            float64       // °C
	MoisturePercent float64       // % of the soil's volume, 0 to 100
	LightLux        float64       // lux, at the plants
}

// NewHouse is a house at the given hour of the first day (0 to under 24), with everything off and closed for so long that air and
// light are at rest.
func NewHouse(seed uint64, startHour float64) House {
	h := House{
		Weather:         Weather{seed},
		At:              time.Duration(startHour * float64(time.Hour)),
		MoisturePercent: initialSoil,
	}
	h.AirC, _ = h.airRest(Switches{})
	h.LightLux = h.lightRest(Switches{})
	return h
}

// Step lets dt of simulated time pass with the switches as they are. The result depends on the house, dt and the switches alone;
// how a time is divided into steps changes it by less than the sensors show.
func (h *House) Step(dt time.Duration, sw Switches) {
	if dt <= 0 {
		return
	}
	if dt > longestCatchUp {
		h.At += dt - longestCatchUp
		dt = longestCatchUp
	}
	n := (dt + longestSubstep - 1) / longestSubstep
	for i := range n {
		sub := dt*(i+1)/n - dt*i/n
		h.At += sub
		h.substep(sub, sw)
	}
}

// substep solves each equation exactly for conditions that stand still meanwhile, and so never overshoots.
func (h *House) substep(dt time.Duration, sw Switches) {
	rest, tau := h.airRest(sw)
	h.AirC = clamp(toward(h.AirC, rest, dt, tau), minAir, maxAir)
	h.LightLux = clamp(toward(h.LightLux, h.lightRest(sw), dt, lightTime), 0, maxLux)

	m := h.MoisturePercent
	if sw.Pump {
		m = toward(m, pumpCeiling, dt, pumpTime)
	}
	if m > fieldCapacity {
		m = toward(m, fieldCapacity, dt, drainTime)
	}
	// Warm, moving air dries: at 20 °C and closed the factor is 1, at 35 °C with all open 3.5.
	warm := clamp(0.5+(h.AirC-10)/20, 0.1, 4)
	moving := 1 + (loss(sw)-lossClosed)/(lossEverything-lossClosed)
	if m > dryFloor {
		m = toward(m, dryFloor, dt, time.Duration(float64(dryTime)/(warm*moving)))
	}
	h.MoisturePercent = clamp(m, 0, maxSoil)
}

// airRest is the air temperature at which gains and losses are equal, in °C, and the time constant towards it.
func (h *House) airRest(sw Switches) (restC float64, tau time.Duration) {
	out := h.Weather.At(h.At)
	gain := sunHeat*height(hour(h.At))*(1-0.7*out.Cloud) + lampHeat*b2f(sw.Lamp)
	return out.TemperatureC + gain/loss(sw), time.Duration(heatCapacity / loss(sw) * float64(time.Second))
}

// lightRest is the light at the plants when the lamp has run up.
func (h *House) lightRest(sw Switches) float64 {
	return transmission*h.Weather.At(h.At).SunLux + lampLux*b2f(sw.Lamp)
}

// loss is the heat that leaves the house, in W per K of difference to the outside.
func loss(sw Switches) float64 {
	w := lossClosed + lossVent*b2f(sw.Vent) + lossDoor*b2f(sw.Door)
	switch {
	case sw.Fan && (sw.Vent || sw.Door):
		w += lossFanOpen
	case sw.Fan:
		w += lossFanClosed
	}
	return w
}

// toward moves x towards rest for dt, with time constant tau.
func toward(x, rest float64, dt, tau time.Duration) float64 {
	return rest + (x-rest)*math.Exp(-float64(dt)/float64(tau))
}

func clamp(x, lo, hi float64) float64 { return min(hi, max(lo, x)) }

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
