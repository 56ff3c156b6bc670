package bootslot

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Tapes tell what a guard sees once a second: of the device R (answers, and reads back), d (answers, differs), x (does not answer), S (the guard is
// stopped); of a check + (good), - (bad), . (no new measurement). What is seen at a tick was measured half a second before. The last
// character goes on for ever.
type tape string

func (t tape) at(i int) byte {
	if len(t) == 0 {
		return '.'
	}
	return t[min(i, len(t))-1]
}

const second = time.Second

// ticks feeds tapes to see, tick by tick, until it says that it has had enough. Ticks begin at 1.
func ticks(n int, device tape, checks map[string]tape, see func(i int, k Look) bool) {
	for i := 1; i <= n; i++ {
		d := device.at(i)
		if d == 'S' {
			continue
		}
		now := time.Duration(i) * second
		k := Look{At: now, Answered: d != 'x', ReadBack: d == 'R'}
		for name, t := range checks {
			if s := t.at(i); s != '.' {
				k.Samples = append(k.Samples, Sample{Check: name, OK: s == '+', Message: name + " is bad", At: now - second/2})
			}
		}
		if see(i, k) {
			return
		}
	}
}

// Soak is 3 s here and the window 12 s; long has a soak of 6 s of its own.
var judgeChecks = []Check{{Name: "hot", Required: true, Soak: 3 * second}, {Name: "hot:fatal", Required: true, Soak: 3 * second, Fatal: true},
	{Name: "long", Required: true, Soak: 6 * second}, {Name: "wet", Required: true}, {Name: DeviceAnswers, Required: true, Soak: 3 * second},
	{Name: ConvergedCheck("lamp"), Required: true, Soak: 3 * second}, {Name: "wanted"}}

func TestJudge(t *testing.T) {
	lamp := ConvergedCheck("lamp")
	tests := []struct {
		name       string
		convicting string
		device     tape
		checks     map[string]tape
		want       Verdict
		at         int // the tick of the verdict
		check      string
	}{
		{"all hold for the soak time from the read-back on", "hot wet", "ddR", map[string]tape{"hot": "+", "wet": "+"}, Passed, 7, ""},
		{"read back at once", "hot", "R", map[string]tape{"hot": "+"}, Passed, 5, ""},
		{"a good sample from before the read-back does not count", "hot", "dddR", map[string]tape{"hot": "++++."}, Failed, 12, "hot"},
		{"one bad sample restarts the soak", "hot", "R", map[string]tape{"hot": "+++-+"}, Passed, 8, ""},
		{"one bad sample of one of two", "hot wet", "R", map[string]tape{"hot": "+++-+", "wet": "+"}, Passed, 8, ""},
		{"a check that is late", "hot", "R", map[string]tape{"hot": "--------+"}, Passed, 12, ""},
		{"a check that is too late", "hot", "R", map[string]tape{"hot": "---------+"}, Failed, 12, "hot"},
		{"a check that never holds", "hot wet", "R", map[string]tape{"hot": "+", "wet": "-"}, Failed, 12, "wet"},
		{"a check that flaps", "hot wet", "R", map[string]tape{"hot": "+", "wet": "+-+-+-+-+-+-+-+-+-"}, Failed, 12, "wet"},
		{"a check that has no result", "hot wet", "R", map[string]tape{"hot": "+"}, Failed, 12, "wet"},
		{"a check that hangs after a good result", "hot", "R", map[string]tape{"hot": "++."}, Failed, 12, "hot"},
		{"a check with a longer soak of its own", "hot long", "R", map[string]tape{"hot": "+", "long": "+"}, Passed, 8, ""},
		{"the window grows by a longer soak", "hot long", "R", map[string]tape{"hot": "+", "long": "--------+"}, Passed, 15, ""},
		{"the window does not grow by one that does not convict", "hot", "R", map[string]tape{"hot": "---------+", "long": "+"}, Failed, 12, "hot"},
		{"a check without a soak has the guard's", "wet", "R", map[string]tape{"wet": "+"}, Passed, 5, ""},

		{"a check that is exempt fails", "wet", "R", map[string]tape{"hot": "-", "wet": "+"}, Passed, 5, ""},
		{"a wanted check fails", "wet", "R", map[string]tape{"wanted": "-", "wet": "+"}, Passed, 5, ""},
		{"a fatal limit that is exempt", "wet", "R", map[string]tape{"hot:fatal": "-", "wet": "+"}, Passed, 5, ""},
		{"nothing convicts: read back for the soak time", "", "ddR", nil, Passed, 6, ""},
		{"nothing convicts, and it is never read back", "", "d", nil, Inconclusive, 12, ""},

		{"fatal: three in a row", "hot hot:fatal", "R", map[string]tape{"hot": "-", "hot:fatal": "++---"}, Failed, 5, "hot:fatal"},
		{"fatal: two in a row, then good", "hot:fatal", "R", map[string]tape{"hot:fatal": "--+--+"}, Passed, 9, ""},
		{"fatal: three in a row before the read-back", "hot:fatal", "d", map[string]tape{"hot:fatal": "-"}, Failed, 3, "hot:fatal"},
		{"fatal: three before the read-back, not in a row", "hot:fatal", "ddddddR", map[string]tape{"hot:fatal": "-+-+-+"}, Passed, 11, ""},
		{"fatal: a missing measurement does not interrupt", "hot:fatal", "R", map[string]tape{"hot:fatal": "-.-.-"}, Failed, 5, "hot:fatal"},
		{"not fatal: three in a row", "hot", "R", map[string]tape{"hot": "---+"}, Passed, 7, ""},

		{"the device never answers", "hot " + DeviceAnswers, "x", map[string]tape{DeviceAnswers: "-"}, Inconclusive, 12, ""},
		{"the device answers at first, and never reads back", "hot " + DeviceAnswers, "ddx", map[string]tape{DeviceAnswers: "++-"}, Inconclusive, 12, ""},
		{"the device reads back, then dies", DeviceAnswers, "RRx", map[string]tape{DeviceAnswers: "++-"}, Failed, 12, DeviceAnswers},
		{"the device reads back, then is away for a moment", DeviceAnswers, "RRxxR", map[string]tape{DeviceAnswers: "++--+"}, Passed, 8, ""},
		{"the device is away at the end, which is exempt", "hot", "RRRRRRRRRRRx", map[string]tape{"hot": "--------+"}, Passed, 12, ""},
		{"a field that does not read back, and checks that are well", "hot " + lamp, "d", map[string]tape{"hot": "+", lamp: "-"}, Failed, 12, lamp},
		{"a field that drifts, and a check that fails of it", "hot " + lamp, "Rd", map[string]tape{"hot": "+-", lamp: "+-"}, Failed, 12, "hot"},
		{"what fails is named before what did", "hot wet", "R", map[string]tape{"hot": "-----------+", "wet": "+++++++++++-"}, Failed, 12, "wet"},

		{"the guard is stopped for the soak time", "hot", "RSSR", map[string]tape{"hot": "+"}, Passed, 7, ""},
		{"the guard is stopped for longer", "hot", "RSSSR", map[string]tape{"hot": "+"}, Inconclusive, 5, ""},
		{"the guard is stopped from the start", "hot", "SSSR", map[string]tape{"hot": "+"}, Inconclusive, 4, ""},
		{"the guard is stopped over the window's end", "hot", "RRRRRRRRRSSSSR", map[string]tape{"hot": "-"}, Inconclusive, 14, ""},
		{"the guard is stopped while a fatal limit is passed", "hot:fatal", "RRSSSR", map[string]tape{"hot:fatal": "--"}, Inconclusive, 6, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			trial := Trial{Baseline: Baseline{Convicting: strings.Fields(tt.convicting), Exempt: []string{"other"}}}
			j := NewJudge(trial, 0, 12*second, 3*second, judgeChecks)
			var got Verdict
			var ev Evidence
			at := 0
			ticks(40, tt.device, tt.checks, func(i int, k Look) bool {
				got, ev = j.See(k)
				at = i
				return got != ""
			})
			if got != tt.want || at != tt.at || ev.Check != tt.check {
				t.Errorf("Judge = %q at %d, check %q (%s), want %q at %d, check %q", got, at, ev.Check, ev.Message, tt.want, tt.at, tt.check)
			}
			if got == Failed != (ev.Message != "" && ev.Check != "") && got != Inconclusive {
				t.Errorf("Judge: evidence = %+v of a %s", ev, got)
			}
		})
	}
}

// An agent of which nothing is heard for SilenceMax may be driving to last-known-good by itself: the trial is over then, however long its window is.
func TestJudgeSilence(t *testing.T) {
	for _, tt := range []struct {
		name       string
		convicting string
		silent     int // the tick from which on nothing has been heard
		hot        tape
		want       Verdict
		at         int
		check      string
	}{
		{"in the middle", "hot " + AgentAlive, 5, "-", Failed, 5, AgentAlive},
		{"agent-alive is exempt", "hot", 5, "-", Inconclusive, 5, AgentAlive},
		{"all has held in that moment", "hot", 5, "+", Passed, 5, ""},
		{"when the window ends", "hot " + AgentAlive, 12, "-", Failed, 12, "hot"},
		{"never", "hot", 40, "-", Failed, 12, "hot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := NewJudge(Trial{Baseline: Baseline{Convicting: strings.Fields(tt.convicting)}}, 0, 12*second, 3*second,
				append(judgeChecks, Check{Name: AgentAlive, Required: true, Soak: 3 * second}))
			ticks(40, "R", map[string]tape{"hot": tt.hot}, func(i int, k Look) bool {
				k.Silent = i >= tt.silent
				v, ev := j.See(k)
				if v != "" && (v != tt.want || i != tt.at || ev.Check != tt.check || (v == Passed) != (ev.Message == "")) {
					t.Errorf("Judge = %q at %d, %+v; want %q at %d, check %q", v, i, ev, tt.want, tt.at, tt.check)
				}
				return v != ""
			})
		})
	}
}

func TestJudgeRefusal(t *testing.T) {
	lamp := ConvergedCheck("lamp")
	for _, tt := range []struct {
		name       string
		convicting string
		want       Verdict
	}{
		{"a refused value convicts at once", lamp, Failed},
		{"one that is exempt does not", "hot", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := NewJudge(Trial{Baseline: Baseline{Convicting: strings.Fields(tt.convicting)}}, 0, 12*second, 3*second, judgeChecks)
			v, ev := j.See(Look{At: second, Answered: true, Refusal: &Refusal{lamp, "refused"}})
			check(t, "Judge", v, tt.want)
			if v == Failed {
				check(t, "Judge: check", ev.Check, lamp)
			}
		})
	}
}

func TestJudgeTimes(t *testing.T) {
	j := NewJudge(Trial{Baseline: Baseline{Convicting: []string{"long"}}}, 100*second, 12*second, 3*second, judgeChecks)
	check(t, "EndsIn at its opening", j.EndsIn(100*second), 15*second)
	check(t, "EndsIn later", j.EndsIn(110*second), 5*second)
	check(t, "EndsIn when it is over", j.EndsIn(200*second), 0)
	// What was measured before the trial says nothing of it, good or bad.
	j = NewJudge(Trial{Baseline: Baseline{Convicting: []string{"hot:fatal"}}}, 100*second, 12*second, 3*second, judgeChecks)
	for i := range 4 {
		at := 100*second + time.Duration(i)*second
		if v, _ := j.See(Look{At: at, Answered: true, ReadBack: true, Samples: []Sample{{Check: "hot:fatal", At: 99*second + time.Duration(i)*second/10}}}); v != "" {
			t.Errorf("Judge = %s of measurements before the trial", v)
		}
	}
	// The same measurement seen again is one measurement.
	j = NewJudge(Trial{Baseline: Baseline{Convicting: []string{"hot:fatal"}}}, 0, 12*second, 3*second, judgeChecks)
	for i := 1; i < 8; i++ {
		if v, _ := j.See(Look{At: time.Duration(i) * second, Answered: true, ReadBack: true, Samples: []Sample{{Check: "hot:fatal", At: second}}}); v != "" {
			t.Errorf("Judge = %s of one measurement seen %d times", v, i)
		}
	}
}

// restChecks have a recover of 8 s with them, or of the longest soak.
var restChecks = []Check{{Name: "hot", Required: true, Soak: 3 * second}, {Name: "wet", Required: true, Soak: 3 * second}, {Name: "wanted", Soak: 3 * second}}

func TestRest(t *testing.T) {
	good := map[string]tape{"hot": "+", "wet": "+"}
	tests := []struct {
		name   string
		device tape
		checks map[string]tape
		at     int // the tick after which Facts are asked
		later  time.Duration
		want   string // rest, what holds, overdue
	}{
		{"the soak is not over", "R", good, 4, 0, "rest"},
		{"the soak is over", "R", good, 5, 0, "rest hot wet"},
		{"a check is bad", "R", map[string]tape{"hot": "+", "wet": "-"}, 6, 0, "rest hot"},
		{"a check was bad", "R", map[string]tape{"hot": "+", "wet": "+++-+"}, 7, 0, "rest hot"},
		{"a check was bad, and is well again", "R", map[string]tape{"hot": "+", "wet": "+++-+"}, 8, 0, "rest hot wet"},
		{"a check with no result", "R", map[string]tape{"hot": "+"}, 6, 0, "rest hot"},
		{"a check with a longer soak needs the guard's only", "R", good, 5, 0, "rest hot wet"},
		{"not at rest", "d", good, 6, 0, ""},
		{"at rest later: what was measured before does not count", "dddR", good, 7, 0, "rest"},
		{"at rest later", "dddR", good, 8, 0, "rest hot wet"},
		{"drift", "RRRRRRd", good, 7, 0, ""},
		{"after drift, anew", "RRRRRRdR", good, 11, 0, "rest"},
		{"after drift", "RRRRRRdR", good, 12, 0, "rest hot wet"},
		{"the device does not answer", "RRRRRRx", good, 7, 0, ""},
		{"after an absence, anew", "RRRRRRxR", good, 11, 0, "rest"},

		{"recover is not over", "R", map[string]tape{"hot": "+", "wet": "-"}, 7, 0, "rest hot"},
		{"recover is over", "R", map[string]tape{"hot": "+", "wet": "-"}, 8, 0, "rest hot overdue"},
		{"recover is over, never at rest", "d", good, 8, 0, "overdue"},
		{"recover begins when the baseline is lost", "R", map[string]tape{"hot": "+", "wet": "+++++++-"}, 14, 0, "rest hot"},
		{"recover is over since the baseline was lost", "R", map[string]tape{"hot": "+", "wet": "+++++++-"}, 15, 0, "rest hot overdue"},
		{"a baseline after all", "R", map[string]tape{"hot": "+", "wet": "----------+"}, 14, 0, "rest hot wet"},
		{"recover counts while the device answers", "xxxxxxxxxxR", map[string]tape{"hot": "+", "wet": "-"}, 15, 0, "rest hot"},
		{"a device that comes and goes: what had no time to hold is waited for", "RxRxRxRxRxRxRxRxRxRxRxRxRxRxRxRxRxR", good, 17, 0, "rest"},
		{"a device that comes and goes: for as long again at most", "RxRxRxRxRxRxRxRxRxRxRxRxRxRxRxRxRxR", good, 33, 0, "rest overdue"},
		{"one check is sick, and drift makes the other begin anew: a moment of drift lets nothing off", "RRRRRRRRRRdR", map[string]tape{"hot": "+", "wet": "-"}, 11, 0, ""},
		{"nor does the moment after it", "RRRRRRRRRRdR", map[string]tape{"hot": "+", "wet": "-"}, 13, 0, "rest"},
		{"one check is sick, and the other has held anew", "RRRRRRRRRRdR", map[string]tape{"hot": "+", "wet": "-"}, 16, 0, "rest hot overdue"},
		{"one check is sick, and a gap makes the other begin anew", "RRRRRRRSSSSR", map[string]tape{"hot": "+", "wet": "-"}, 13, 0, "rest"},
		{"one check is sick, and the other has held anew after a gap", "RRRRRRRSSSSR", map[string]tape{"hot": "+", "wet": "-"}, 16, 0, "rest hot overdue"},
		{"one check is sick, and the other flaps", "R", map[string]tape{"hot": "+-+-+-+-+-+-+-+-+-+-+-+-+-+-", "wet": "-"}, 10, 0, "rest overdue"},
		{"a wanted check holds up nothing", "R", map[string]tape{"hot": "+", "wet": "+", "wanted": "-"}, 5, 0, "rest hot wet"},

		{"the guard is stopped: nothing is known", "R", good, 6, 4 * second, ""},
		{"the guard is stopped: recover is not over by that", "R", map[string]tape{"hot": "+", "wet": "-"}, 5, 60 * second, ""},
		{"the guard was stopped: anew", "RRRRRRSSSSR", good, 14, 0, "rest"},
		{"the guard was stopped: a gap is no time of recover", "RRRSSSSSSSSSSR", map[string]tape{"hot": "+", "wet": "-"}, 15, 0, "rest"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewRest(0, 3*second, 8*second, restChecks)
			ticks(tt.at, tt.device, tt.checks, func(_ int, k Look) bool { r.See(k); return false })
			f := r.Facts(time.Duration(tt.at)*second + tt.later)
			checkList(t, "Facts: required", f.Required, []string{"hot", "wet"})
			var got []string
			if f.AtRest {
				got = append(got, "rest")
			}
			got = append(got, f.Holding...)
			if f.Overdue {
				got = append(got, "overdue")
			}
			check(t, "Facts", strings.Join(got, " "), tt.want)
			if whole := len(f.Holding) == 2; whole != (f.Why == "") {
				t.Errorf("Facts: why = %q", f.Why)
			}
		})
	}
	for device, why := range map[tape]string{
		"d": "the device does not read back last-known-good; the trial starts in 2s anyway",
		"R": "not held at rest for 3s yet: wet; the trial starts in 2s anyway",
	} {
		r := NewRest(0, 3*second, 8*second, restChecks)
		ticks(6, device, map[string]tape{"hot": "+", "wet": "-"}, func(_ int, k Look) bool { r.See(k); return false })
		check(t, "Facts: why", r.Facts(6*second).Why, why)
	}
	check(t, "recover with a check whose soak is longer", NewRest(0, 3*second, 8*second, []Check{{Name: "long", Soak: 20 * second}}).Recover, 20*second)
}

func TestRecovery(t *testing.T) {
	tests := []struct {
		name   string
		check  string
		device tape
		hot    tape
		want   string
	}{
		{"it holds at once", "hot", "R", "+", "stands at 5"},
		{"it holds once the device is back", "hot", "dddR", "+", "stands at 8"},
		{"it recovers slowly", "hot", "R", "-----+", "stands at 9"},
		{"it still fails after recover", "hot", "R", "-", "environment at 8"},
		{"it has no result: it is waited for, for as long again", "hot", "R", "", "environment at 16"},
		{"it holds when recover is over: it may hold on", "hot", "R", "-------+", "stands at 11"},
		{"it holds when recover is over, and fails then", "hot", "R", "-------++-", "environment at 10"},
		{"it flaps", "hot", "R", "+-", "environment at 8"},
		{"last-known-good is never read back", "hot", "d", "+", "environment at 8"},
		{"the device does not answer", "hot", "x", "", "open"},
		{"the device answers late", "hot", "xxxxxxxxxxxxR", "-", "environment at 20"},
		{"the device goes in between", "hot", "RRRRxR", "+", "stands at 10"},
		{"the check is no longer configured", "gone", "ddR", "", "stands at 3"},
		{"the check is no longer configured, and the device does not answer", "gone", "x", "", "open"},
		{"the guard is stopped", "hot", "RSSSSSSSSSSSSR", "-", "environment at 21"},
		{"the guard is stopped while it holds", "hot", "RRSSSSSSSSSR", "+", "stands at 16"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewRecovery(tt.check, 0, 3*second, 8*second, restChecks)
			got := "open"
			ticks(60, tt.device, map[string]tape{"hot": tt.hot, "wet": "-"}, func(i int, k Look) bool {
				over, held := r.See(k)
				if over {
					got = fmt.Sprintf("environment at %d", i)
					if held {
						got = fmt.Sprintf("stands at %d", i)
					}
				}
				return over
			})
			check(t, "Recovery", got, tt.want)
			if strings.HasPrefix(got, "environment") && strings.Contains(string(tt.hot), "-") {
				check(t, "Recovery: message", r.Message(), "hot is bad")
			}
		})
	}
	check(t, "recover with a check whose soak is longer", NewRecovery("hot", 0, 3*second, 8*second, []Check{{Name: "long", Soak: 20 * second}}).Recover, 20*second)
}
