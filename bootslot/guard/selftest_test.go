package guard

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/bootslot/api"
	"holdfast/device"
)

// steppedClock is a hand clock whose timers of some lengths fire when the test says so.
type steppedClock struct {
	*handClock
	timers map[time.Duration]chan time.Time
}

func (c steppedClock) After(d time.Duration) <-chan time.Time {
	if t, ok := c.timers[d]; ok {
		return t
	}
	return c.handClock.After(d)
}

// What was measured before does not count: neither the device, nor any of the checks.
func TestMeasuredSince(t *testing.T) {
	b := newBench(t, "")
	b.pass(3 * time.Second)
	at := b.clock.up
	b.want("measured at that time", b.g.measuredSince(at), true)
	b.clock.up += time.Second
	b.want("nothing is measured after it", b.g.measuredSince(at+1), false)
	b.g.checks.Observe(&device.State{Readings: map[string]float64{"temperature": 20}}, b.clock.up)
	b.want("the device is not looked at", b.g.measuredSince(at+1), false)
	b.seeDevice()
	b.want("both are", b.g.measuredSince(at+1), true)

	b = newBench(t, "    - {name: slow, command: [/bin/true]}\n") // nobody runs it here
	b.pass(3 * time.Second)
	b.want("one check is not measured", b.g.measuredSince(at), false)
}

// What an operator asks for is measured after he asked, and he is told reading and limit; a trial is not hurried by it.
func TestSelfTest(t *testing.T) {
	b := newBench(t, "")
	b.pass(3 * time.Second)
	polls, limit := make(chan time.Time), make(chan time.Time)
	b.g.clock = steppedClock{b.clock, map[time.Duration]chan time.Time{selfTestPoll: polls, selfTestTime: limit}}
	ask := func() <-chan []api.Check {
		answer := make(chan []api.Check, 1)
		b.clock.up += time.Second
		go func() {
			out, err := b.g.serveSelfTest(httptest.NewRequest("GET", "/v1/selftest", nil))
			if err != nil {
				t.Error(err)
			}
			answer <- out.([]api.Check)
		}()
		return answer
	}
	hurried := func() bool {
		select {
		case <-b.g.look:
			return true
		default:
			return false
		}
	}
	// await lets the question look again until it is answered.
	await := func(answer <-chan []api.Check, over chan time.Time) []api.Check {
		for {
			select {
			case over <- time.Time{}:
			case out := <-answer:
				return out
			}
		}
	}
	hurried()
	answer := ask()
	polls <- time.Time{} // it has looked, and waits
	b.want("the device is looked at", hurried(), true)
	b.temp = 41.2
	b.seeDevice()
	found := map[string]api.Check{}
	for _, c := range await(answer, polls) {
		found[c.Name] = c
	}
	hot := found["not-too-hot"]
	if hot.OK || hot.Value == nil || *hot.Value != 41.2 || hot.Limit != "at most 38 °C" || hot.Found != "temperature 41.2 °C is above 38" || hot.Message != hot.Found || hot.AgeSeconds != 0 {
		t.Errorf("%+v", hot)
	}
	if fatal := found["not-too-hot:fatal"]; !fatal.OK || fatal.Limit != "at most 45 °C" || fatal.Message != "" || fatal.Found != "temperature 41.2 °C" {
		t.Errorf("%+v", fatal)
	}
	if door := found["device-converged:door"]; !door.OK || door.Found != "" {
		t.Errorf("%+v", door)
	}

	b.temp = 20
	answer = ask() // of a device that does not answer in time
	polls <- time.Time{}
	if out := await(answer, limit); len(out) != len(found) {
		t.Errorf("%d checks, want %d", len(out), len(found))
	}

	b.try(0, "lamp", "on")
	hurried()
	answer = ask()
	polls <- time.Time{}
	b.want("the device is looked at in a trial", hurried(), false)
	b.seeDevice()
	await(answer, polls)
}

// A page of the history begins before an event that is named by its number.
func TestHistoryBefore(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	for query, want := range map[string]int{"": 200, "?before=1": 200, "?before=x": 400, "?before=-1": 400, "?last=x": 400} {
		w := httptest.NewRecorder()
		b.g.handler().ServeHTTP(w, httptest.NewRequest("GET", "/v1/history"+query, nil))
		b.want("status of /v1/history"+query, w.Code, want)
		if query == "?before=1" {
			b.want("before the first", strings.TrimSpace(w.Body.String()), "[]")
		}
	}
}
