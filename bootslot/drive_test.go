package bootslot

import (
	"testing"
	"time"
)

// Who drives, with a device interval of 8 s. The lease has generation 7.
func TestDriver(t *testing.T) {
	const s, every = time.Second, 8 * time.Second
	beats := func(valid, any time.Duration) Heard { return Heard{Any: any, Valid: valid, Generation: 7} }
	for _, tt := range []struct {
		name   string
		h      Heard
		now    time.Duration
		since  time.Duration
		quiet  bool
		want   Driver
		sample string // of agent-alive: "", "ok" or "bad"
	}{
		{"just started", Heard{}, 100 * s, 100 * s, false, GuardDrives, ""},
		{"started a while ago, no agent", Heard{}, 125 * s, 100 * s, false, GuardDrives, "bad"},
		{"beats", beats(98*s, 98*s), 100 * s, 10 * s, false, AgentDrives, "ok"},
		{"missed for 3 intervals", beats(76*s, 76*s), 100 * s, 10 * s, false, AgentDrives, "ok"},
		{"missed for longer", beats(76*s, 76*s), 101 * s, 10 * s, false, GuardDrives, "bad"},
		{"missed for longer, a new generation", Heard{Any: 76 * s, Valid: 76 * s, Generation: 6}, 101 * s, 99 * s, false, GuardDrives, ""},
		{"an old generation for an interval", Heard{Any: 99 * s, Valid: 90 * s, Generation: 6}, 100 * s, 92 * s, false, AgentDrives, ""},
		{"an old generation for longer", Heard{Any: 99 * s, Valid: 90 * s, Generation: 6}, 101 * s, 92 * s, false, GuardDrives, ""},
		{"an old generation for much longer", Heard{Any: 119 * s, Valid: 90 * s, Generation: 6}, 120 * s, 92 * s, false, GuardDrives, "bad"},
		{"another run's beats alone", Heard{Any: 99 * s}, 109 * s, 100 * s, false, GuardDrives, ""},
		{"this generation was heard before another run's beats", beats(80*s, 99*s), 100 * s, 10 * s, false, AgentDrives, "ok"},
		{"and is missed now", beats(70*s, 99*s), 100 * s, 10 * s, false, GuardDrives, "bad"},
		{"the repair is suspended", beats(98*s, 98*s), 100 * s, 10 * s, true, NobodyDrives, "ok"},
		{"the repair is suspended, no agent", Heard{}, 125 * s, 100 * s, true, NobodyDrives, "bad"},
	} {
		if got := tt.h.Driver(tt.now, every, 7, tt.since, tt.quiet); got != tt.want {
			t.Errorf("%s: %s drives, want %s", tt.name, got, tt.want)
		}
		got := ""
		if s, ok := tt.h.Sample(tt.now, every, 7, tt.since); ok {
			got = map[bool]string{true: "ok", false: "bad"}[s.OK]
			if at := map[bool]time.Duration{true: tt.h.Valid, false: tt.now}[s.OK]; s.Check != AgentAlive || s.At != at || (s.Message == "") != s.OK {
				t.Errorf("%s: sample %+v, want one of %v", tt.name, s, at)
			}
		}
		if got != tt.sample {
			t.Errorf("%s: agent-alive is %q, want %q", tt.name, got, tt.sample)
		}
	}
}

func TestHeard(t *testing.T) {
	var h Heard
	h.Beat(10*time.Second, 7, true)
	h.Beat(12*time.Second, 6, false)
	if want := (Heard{Any: 12 * time.Second, Valid: 10 * time.Second, Generation: 7}); h != want {
		t.Errorf("after an old one: %+v, want %+v", h, want)
	}
	if !h.Current(7) || h.Current(8) || (Heard{Generation: 7}).Current(7) {
		t.Errorf("generation 7 was heard, 8 was not, and a guard that has just started has heard none")
	}
}

func TestSilent(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name                 string
		interval, any, since time.Duration
		want                 bool
	}{
		{"heard just now", 8 * s, 990 * s, 100 * s, false},
		{"heard a minute ago", 8 * s, 940 * s, 100 * s, true},
		{"heard 59 s ago", 8 * s, 941 * s, 100 * s, false},
		{"heard long before the trial, which has just opened", 8 * s, 100 * s, 990 * s, false},
		{"heard long before the trial, a minute ago", 8 * s, 100 * s, 940 * s, true},
		{"never heard", 8 * s, 0, 940 * s, true},
		{"it speaks once a minute, and has missed one", 60 * s, 821 * s, 100 * s, false},
		{"it speaks once a minute, and is dead", 60 * s, 820 * s, 100 * s, true},
	} {
		if got := (Heard{Any: tt.any}).Silent(1000*s, tt.interval, tt.since); got != tt.want {
			t.Errorf("%s: silent is %v", tt.name, got)
		}
	}
}

func TestQuiet(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		looks []bool // one a second, whether last-known-good reads back
		after int    // looks after which the device is left alone, 0 for never
	}{
		{"reads back", []bool{true, true, true, true, true, true, true}, 6},
		{"not for long enough", []bool{true, true, true, true, true}, 0},
		{"begins anew", []bool{true, true, true, false, true, true, true, true, true, true}, 10},
		{"never", []bool{false, false, false, false, false, false, false}, 0},
		{"moved afterwards", []bool{true, true, true, true, true, true, false, true}, 6},
	} {
		var q Quiet
		after := 0
		for i, readBack := range tt.looks {
			if q.See(100*s+time.Duration(i)*s, readBack) {
				if after != 0 {
					t.Errorf("%s: begins twice", tt.name)
				}
				after = i + 1
			}
		}
		if after != tt.after || q.Over != (tt.after > 0) {
			t.Errorf("%s: left alone after %d looks (at the end: %v), want %d", tt.name, after, q.Over, tt.after)
		}
	}
}
