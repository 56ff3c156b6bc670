//go:build measure

package scenario

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// TestMeasure takes the figures of the README with the default intervals. It asserts nothing, so it is no part of the suites: `make measure` runs it.
func TestMeasure(t *testing.T) {
	const config = `
device: {interval: 8s, timeout: 2s}
repository: {interval: 30s}
guard: {window: 60s, soak: 15s, interval: 1s, recover: 10m, pauses: [1m, 5m, 15m]}
`
	w := releaseWorld(t, config)
	row := func(what string, took time.Duration) { fmt.Printf("| %s | %v |\n", what, took.Round(time.Millisecond)) }
	deviceIs := func(field, value string) {
		t.Helper()
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
			if s, err := w.device.state(); err == nil && s[field] == value {
				return
			}
		}
		t.Fatalf("%s did not become %s", field, value)
	}
	var drift []time.Duration
	for range 5 {
		time.Sleep(3 * time.Second) // somewhere within an interval
		began := time.Now()
		if err := w.sim("POST", "/sim/set", `{"actuators":{"fan":"on"}}`); err != nil {
			t.Fatal(err)
		}
		deviceIs("fan", "off")
		drift = append(drift, time.Since(began))
	}
	slices.Sort(drift)
	row("drift to corrected, the device tells of changes (median of 5)", drift[2])

	for _, who := range []string{"agent", "guard"} {
		began := time.Now()
		if err := w.end(who, 9); err != nil {
			t.Fatal(err)
		}
		if err := w.sim("POST", "/sim/set", `{"actuators":{"fan":"on"}}`); err != nil {
			t.Fatal(err)
		}
		deviceIs("fan", "off")
		row("kill -9 of the "+who+", with drift at that moment, to corrected by the other", time.Since(began))
		began = time.Now()
		if err := w.sim("POST", "/sim/set", `{"actuators":{"fan":"on"}}`); err != nil {
			t.Fatal(err)
		}
		if err := w.start(who); err != nil {
			t.Fatal(err)
		}
		deviceIs("fan", "off")
		row("start of the "+who+", with drift at that moment, to corrected", time.Since(began))
		w.await(t, "agent=alive", "guard=alive", "driver=agent")
	}

	time.Sleep(20 * time.Second) // the baseline holds
	began := time.Now()
	w.declare(t, "pump: off\nfan: off\nvent: on\nlamp: off\ndoor: closed\n")
	w.await(t, "trial=running")
	row("git push to trial (poll every 30 s ± 20 %)", time.Since(began))
	w.await(t, "trial=none", "verdict=passed", "device.pump=off")
	row("git push to passed", time.Since(began))
	time.Sleep(30 * time.Second)
	for _, who := range []string{"agent", "guard"} {
		fmt.Printf("| %s, resident when idle | %.1f MB |\n", who, float64(w.procField(t, who, "status", "VmRSS"))/1000)
		bin, _ := w.binary(who)
		info, err := os.Stat(bin)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("| %s, binary | %.1f MB |\n", who, float64(info.Size())/1e6)
	}
}
