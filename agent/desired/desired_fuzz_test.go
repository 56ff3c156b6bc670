package desired

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"holdfast/device/strictyaml"
)

// FuzzParse: a state file is a valid release, which means what it says (written again in the plainest way it is the same, of the same digest), or every error has
// its place and is one line that a terminal can be shown; whatever it is takes no more memory than the limit allows.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		good, "", "\ufeff" + good, strings.ReplaceAll(good, "\n", "\r\n"), good + "retry: 7\n",
		good + "image: {version: 1.0, url: http://h/i, sha256: " + sha + "}\n",
		"{pump: yes, fan: NO, vent: 'on', lamp: \"off\", door: on}", good + "<<: *x", good + "---", "- " + good, "pump: &a [*a]", "? {pump: on}",
		"pump: 1\nfan: null\nvent: !!null \"\\e[2J\"\nlamp: \"on\\e\"\ndoor: ajar\n\"\\e[2J\": {\"\\e]0;\": &a b}\n", good + "retry: -1\n", good + "retry: 0x10\nimage: {}\n",
		strings.Repeat("[\n", 1000), strings.Repeat("a: [", 3000), "image: " + strings.Repeat("{image: ", 20), good + "image: ~\n",
	} {
		f.Add([]byte(s))
	}
	p := greenhouse(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d, err := Parse("f", data, p)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 96<<20 {
			t.Errorf("%d bytes take %d bytes of memory to read", len(data), n)
		}
		if err != nil {
			wantErrors(t, data, err)
			if !reflect.DeepEqual(d, Declared{}) {
				t.Errorf("%q: refused, and %+v all the same", data, d)
			}
			return
		}
		if len(d.Release.Fields) != len(p.Actuators) || len(data) > Limit {
			t.Errorf("%q: accepted with the fields %v", data, d.Release.Fields)
		}
		for _, a := range p.Actuators {
			if v := d.Release.Fields[a.Name]; !slices.Contains(a.Allowed, v) {
				t.Errorf("%q: accepted with %s: %q", data, a.Name, v)
			}
		}
		again, err := Parse("f", []byte(canonical(d)), p)
		if err != nil || !reflect.DeepEqual(again, d) || again.Release.Digest() != d.Release.Digest() {
			t.Errorf("%q gives %+v, and that written again %+v, %v", data, d, again, err)
		}
	})
}

// wantErrors checks the form of errors that any data may cause.
func wantErrors(t *testing.T, data []byte, err error) {
	t.Helper()
	var errs strictyaml.Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("%q: the error %T has no places: %v", data, err, err)
	}
	for _, e := range errs {
		if e.File != "f" || e.Line < 1 || e.Line > strings.Count(string(data), "\n")+1 || e.Column < 1 {
			t.Errorf("%q: the error %v has no place", data, e)
		}
		if e.Msg == "" || strings.ContainsFunc(e.Msg, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: the message %q is not fit for a terminal", data, e.Msg)
		}
	}
}

// plainWord is what stands in YAML without quotes and is a scalar.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.~-]*$`)

// FuzzAllAtOnce: whatever is wrong with the single values of a file, all of it is told together: as many errors, at the same places and in the same words, as
// when each stands alone in a file that is right otherwise.
func FuzzAllAtOnce(f *testing.F) {
	f.Add("on", "off", "on", "off", "closed", "", "1")
	f.Add("maybe", "null", "on", "OFF", "ajar", "fann", "-1")
	f.Add("\x1b[2J", "\u202e", "\n", "yes", "true", "pump", "1e9")
	f.Add("~", "[", "{}", "'", "", "\x1b", "0")
	p := greenhouse(f)
	f.Fuzz(func(t *testing.T, pump, fan, vent, lamp, door, key, retry string) {
		key = key[:min(len(key), 100)] // YAML has none of more than 1024 characters
		values := []string{pump, fan, vent, lamp, door, retry}
		names, right := []string{"pump", "fan", "vent", "lamp", "door", "retry"}, []string{"on", "off", "off", "on", "closed", "3"}
		scalar := func(v string) string {
			if plainWord.MatchString(v) {
				return v
			}
			return strconv.QuoteToASCII(v) // YAML knows these escapes, too
		}
		// file has the given values where wrong says so, and an extra key if extra.
		file := func(wrong func(int) bool, extra bool) []byte {
			var b strings.Builder
			for i, n := range names {
				v := right[i]
				if wrong(i) {
					v = scalar(values[i])
				}
				fmt.Fprintf(&b, "%s: %s\n", n, v)
			}
			if extra && key != "" {
				fmt.Fprintf(&b, "%s: 1\n", scalar(key))
			}
			return []byte(b.String())
		}
		problems := func(data []byte) []strictyaml.Error {
			_, err := Parse("f", data, p)
			if err == nil {
				return nil
			}
			wantErrors(t, data, err)
			return err.(strictyaml.Errors)
		}
		var want []strictyaml.Error
		for i := range values {
			want = append(want, problems(file(func(j int) bool { return j == i }, false))...)
		}
		want = append(want, problems(file(func(int) bool { return false }, true))...)
		data := file(func(int) bool { return true }, true)
		if got := problems(data); !slices.Equal(got, want) {
			t.Errorf("%q gives\n%v\nwant\n%v", data, got, want)
		}
	})
}
