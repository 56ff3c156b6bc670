package strictyaml

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gopkg.in/yaml.v3"
)

// Value is what stands, or does not stand, at one place of the file. Each getter returns the default if the
// value is absent, and also, with a problem noted, if it is wrong or a required one is missing.
type Value struct {
	doc      *doc
	path     string     // as people write it, such as guard.checks[0].max
	node     *yaml.Node // nil: absent
	in       *yaml.Node // the mapping in which it is missing, or what stands in its place
	required bool
}

// Present reports whether something stands there, be it right or wrong.
func (v Value) Present() bool { return v.node != nil }

// Errorf notes a problem at the value's place, or, if it is absent, at that of the mapping in which it is missing.
func (v Value) Errorf(format string, args ...any) {
	if n := cmp.Or(v.node, v.in); n != nil {
		v.doc.errorf(n.Line, n.Column, "%s%s", prefix(v.path), fmt.Sprintf(format, args...))
	}
}

// want returns the node if it is of that kind; if it is not, it notes what must be there, unless the value may be absent.
func (v Value) want(kind yaml.Kind, allowed string) *yaml.Node {
	switch {
	case v.node == nil:
		if v.required {
			v.Errorf("missing, must be %s", allowed)
		}
	case v.node.Kind == yaml.AliasNode: // complained about by now
	case v.node.Kind != kind || v.node.Tag == "!!null":
		v.Errorf("found %s, must be %s", describe(v.node), allowed)
	default:
		return v.node
	}
	return nil
}

// Map returns the mapping that stands there; an absent or wrong one is empty, and nothing is missing in it.
func (v Value) Map() *Map {
	m := &Map{doc: v.doc, node: v.want(yaml.MappingNode, "a mapping of keys to values"), place: cmp.Or(v.node, v.in), parent: v.path}
	v.doc.maps = append(v.doc.maps, m)
	return m
}

// List returns the values of the list that stands there.
func (v Value) List(allowed string) []Value {
	n := v.want(yaml.SequenceNode, allowed)
	if n == nil {
		return nil
	}
	list := make([]Value, len(n.Content))
	for i, c := range n.Content {
		list[i] = Value{doc: v.doc, path: fmt.Sprintf("%s[%d]", v.path, i), node: c}
	}
	return list
}

// Scalar is a single value as it is written.
type Scalar struct {
	Text  string
	Plain bool // without quotes
}

// Read returns the value as parse understands it, or def. allowed says what may stand there and follows on
// "must be". Text with control characters in it (a line break, say) is never right.
func Read[T any](v Value, def T, allowed string, parse func(Scalar) (T, bool)) T {
	n := v.want(yaml.ScalarNode, allowed)
	if n == nil {
		return def
	}
	const notPlain = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	if !strings.ContainsFunc(n.Value, unicode.IsControl) {
		if t, ok := parse(Scalar{n.Value, n.Style&notPlain == 0}); ok {
			return t
		}
	}
	v.Errorf("found %s, must be %s", describe(n), allowed)
	return def
}

// Text returns text for which valid is true.
func (v Value) Text(def, allowed string, valid func(string) bool) string {
	return Read(v, def, allowed, func(s Scalar) (string, bool) { return s.Text, valid(s.Text) })
}

// OneOf returns one of the allowed words, quoted or not.
func (v Value) OneOf(def string, allowed ...string) string {
	return v.Text(def, "one of "+strings.Join(allowed, ", "), func(s string) bool { return slices.Contains(allowed, s) })
}

// Bool returns a boolean: true or false, unquoted.
func (v Value) Bool(def bool) bool {
	return Read(v, def, "true or false", func(s Scalar) (bool, bool) {
		return s.Text == "true", s.Plain && (s.Text == "true" || s.Text == "false")
	})
}

var decimal = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// Int returns a whole number in decimal from low to high, unquoted; 010, 1.0, 1e3 and 0x10 are none.
func (v Value) Int(def, low, high int64) int64 {
	allowed := fmt.Sprintf("a whole number from %d to %d", low, high)
	return Read(v, def, allowed, func(s Scalar) (int64, bool) {
		n, err := strconv.ParseInt(s.Text, 10, 64)
		return n, s.Plain && decimal.MatchString(s.Text) && err == nil && low <= n && n <= high
	})
}

var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// Float returns a number such as 38 or -2.5, unquoted, or nil.
func (v Value) Float() *float64 {
	return Read(v, nil, "a number, such as 38 or -2.5", func(s Scalar) (*float64, bool) {
		f, err := strconv.ParseFloat(s.Text, 64)
		return &f, s.Plain && number.MatchString(s.Text) && err == nil && !math.IsInf(f, 0)
	})
}

// Durations from MinDuration to MaxDuration are accepted: none is 0, and sums of a few never overflow.
const (
	MinDuration = time.Millisecond
	MaxDuration = 365 * 24 * time.Hour
)

// Duration returns a duration, such as 90s.
func (v Value) Duration(def time.Duration) time.Duration {
	return Read(v, def, "a duration from 1ms to 8760h, such as 500ms, 90s or 1h30m", func(s Scalar) (time.Duration, bool) {
		d, err := time.ParseDuration(s.Text)
		return d, err == nil && MinDuration <= d && d <= MaxDuration
	})
}

var size = regexp.MustCompile(`^([0-9]{1,15})(B|KiB|MiB|GiB|TiB)?$`)

// Size returns a number of bytes, such as 16MiB.
func (v Value) Size(def int64) int64 {
	return Read(v, def, "a size, such as 16MiB, 2GiB or a number of bytes", func(s Scalar) (int64, bool) {
		m := size.FindStringSubmatch(s.Text)
		if m == nil {
			return 0, false
		}
		n, err := strconv.ParseInt(m[1], 10, 64)
		shift := map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[m[2]]
		return n << shift, err == nil && n <= math.MaxInt64>>shift
	})
}

// Texts returns a list of texts for each of which valid is true.
func (v Value) Texts(allowed string, valid func(string) bool) []string {
	var out []string
	for _, e := range v.List("a list of " + allowed) {
		out = append(out, e.Text("", allowed, valid))
	}
	return out
}
