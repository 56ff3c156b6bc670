package selftest

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"holdfast/bootslot/config"
	"holdfast/device"
	"holdfast/device/clock"
)

// fit reports whether a message may go to logs, terminals and JSON: at most some lines, and nothing that a terminal obeys.
func fit(s string) bool {
	return utf8.ValidString(s) && len(s) < maxOutput+100 && !strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
}

// FuzzCheckOutput: whatever a command writes to stdout and stderr, and however it ends, the check holds if and only if it ended with 0, and its message is the end of what it
// wrote, bounded and fit to be shown.
func FuzzCheckOutput(f *testing.F) {
	f.Add([]byte("registered, 71 %\n"), []byte(""), byte(0))
	f.Add([]byte("\x1b[2J\x1b]0;x\a"), []byte("no carrier\r\n"), byte(3))
	f.Add([]byte("\x00\xff\xfe\u009b2J\u202eabc"), []byte("\xe2\x80"), byte(255))
	f.Add([]byte(strings.Repeat("ä", maxOutput)), []byte(strings.Repeat("\n", maxOutput)), byte(1))
	f.Add([]byte(strings.Repeat("x", 3*maxOutput)), []byte("€"), byte(0))
	f.Add([]byte(""), []byte(" \t\v"), byte(126))
	dir := f.TempDir()
	stdout, stderr := filepath.Join(dir, "stdout"), filepath.Join(dir, "stderr")
	f.Fuzz(func(t *testing.T, out, errOut []byte, exit byte) {
		for path, data := range map[string][]byte{stdout: out, stderr: errOut} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := command(t.Context(), "c", []string{"/bin/sh", "-c", `cat "$1"; cat "$2" >&2; exit "$3"`, "sh", stdout, stderr, strconv.Itoa(int(exit))}, time.Minute)
		if got.ok != (exit == 0) || got.value != nil || got.message == "" || !fit(got.message) {
			t.Errorf("exit status %d: %v %q", exit, got.ok, got.message)
		}
		if exit != 0 && !strings.HasPrefix(got.message, "exit status "+strconv.Itoa(int(exit))) {
			t.Errorf("exit status %d: %q", exit, got.message)
		}
		end := append(out, errOut...)
		end = end[max(0, len(end)-maxOutput):]
		letters := func(s string) string {
			return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) }), "")
		}
		if want := letters(strings.ToValidUTF8(string(end), "")); !strings.HasSuffix(letters(got.message), want) {
			t.Errorf("%q is said of %q", got.message, end)
		}
	})
}

// FuzzCheckFile: a file in check.d is a check whose name may be shown, or it is ignored and that is told.
func FuzzCheckFile(f *testing.F) {
	for _, name := range []string{"modem", "a.sh", "\x1b[2J", "a\nb", "a b", "\xff", "\u202ecod.exe", ".hidden", "x~", "ä", "a\u00a0b", strings.Repeat("x", 255)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
			return // no file has it
		}
		dir := t.TempDir()
		file := filepath.Join(dir, "required", name)
		if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		found, ignored := scan([]string{dir})
		switch {
		case leftover(name) && len(found)+len(ignored) == 0:
		case len(found) == 1 && len(ignored) == 0:
			if c := found[0]; c.Name != folderPrefix+name || !fit(c.Name) || strings.ContainsAny(c.Name, "\n\t") || c.Command[0] != file {
				t.Errorf("the check %+v", c)
			}
		case len(found) == 0 && len(ignored) == 1 && ignored[file] != "":
		default:
			t.Errorf("found %+v, ignored %q", found, ignored)
		}
	})
}

// FuzzReading: a reading holds if and only if it is a number within the limits; a fatal limit fails only for a number beyond it; what is said is fit to be shown, and what is
// stored is a number that JSON has.
func FuzzReading(f *testing.F) {
	for _, v := range []float64{20, -1, 38, 38.000001, 45.5, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64} {
		f.Add(v, 0.0, 38.0, -5.0, 45.0, uint8(15), true)
	}
	f.Add(1.0, 1.0, 1.0, 1.0, 1.0, uint8(0), false)
	f.Fuzz(func(t *testing.T, v, lowest, highest, fatalMin, fatalMax float64, limits uint8, there bool) {
		c := config.Check{Name: "c", Reading: "temperature"}
		for bit, l := range []struct {
			at **float64
			v  *float64
		}{{&c.Min, &lowest}, {&c.Max, &highest}, {&c.FatalMin, &fatalMin}, {&c.FatalMax, &fatalMax}} {
			if number := !math.IsNaN(*l.v) && !math.IsInf(*l.v, 0); number && limits>>bit&1 == 1 { // others do not stand in a configuration
				*l.at = l.v
			}
		}
		r := New(Options{Checks: []config.Check{c}, Readings: []device.Reading{{Name: "temperature", Unit: "°C"}}, Log: slog.New(slog.DiscardHandler), Clock: clock.New()})
		st := &device.State{Readings: map[string]float64{}}
		if there {
			st.Readings["temperature"] = v
		}
		r.Observe(st, 0)
		number := there && !math.IsNaN(v) && !math.IsInf(v, 0)
		within := func(low, high *float64) bool { return (low == nil || v >= *low) && (high == nil || v <= *high) }
		for _, s := range r.Latest() {
			want := number && within(c.Min, c.Max)
			if s.Fatal {
				want = !number || within(c.FatalMin, c.FatalMax)
			}
			if s.OK != want || s.Message == "" || !fit(s.Message) {
				t.Errorf("%v within %v: %v %q, want %v", v, limits, s.OK, s.Message, want)
			}
			if (s.Value != nil) != number || number && *s.Value != v {
				t.Errorf("%v is stored as %v", v, s.Value)
			}
		}
	})
}
