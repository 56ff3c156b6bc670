package strictyaml

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const limit = 1 << 10

// read reads a file of two known keys, word (required) and list, and returns its errors, one a line.
func read(data string) string {
	root := Parse("f.yaml", []byte(data), limit)
	root.Required("word").Text("", "a word", func(s string) bool { return s != "" && !strings.Contains(s, " ") })
	for _, v := range root.Optional("list").List("a list of mappings") {
		v.Map().Optional("n").Int(0, 0, 9)
	}
	if err := root.Err(); err != nil {
		return err.Error()
	}
	return ""
}

func TestStrict(t *testing.T) {
	const missing = "f.yaml:1:1: word: missing, must be a word"
	for _, tt := range []struct {
		name, data, want string // want: "" for no error, else the whole text
	}{
		{"plain", "word: a\n", ""},
		{"no line break at the end", "word: a", ""},
		{"UTF-8 BOM", "\ufeffword: a\n", ""},
		{"CRLF", "word: a\r\nlist: []\r\n", ""},
		{"JSON", `{"word": "a", "list": [{"n": 1}]}`, ""},
		{"comments and document marks", "# hello\n---\nword: a # é\n...\n", ""},
		{"number as text stays as written", "word: 010", ""},

		{"empty", "", "f.yaml:1:1: the file is empty or all comments, must be a mapping, such as key: value"},
		{"white space", " \n\n", "f.yaml:1:1: the file is empty or all comments, must be a mapping, such as key: value"},
		{"comments only", "# nothing\n", "f.yaml:1:1: the file is empty or all comments, must be a mapping, such as key: value"},
		{"too big", "word: " + strings.Repeat("a", limit), "f.yaml:1:1: the file has more than the 1024 bytes that are allowed"},
		{"as big as may be", "word: " + strings.Repeat("a", limit-6), ""},
		{"UTF-16", "\xff\xfew\x00", "f.yaml:1:1: the file is in UTF-16, must be in UTF-8"},
		{"UTF-16 big endian", "\xfe\xff\x00w", "f.yaml:1:1: the file is in UTF-16, must be in UTF-8"},
		{"UTF-16 without a mark", "w\x00", "f.yaml:1:2: found the character U+0000, must be plain UTF-8 text with lines that end in LF or CRLF"},
		{"Latin-1", "word: a\n# \xe9", "f.yaml:2:3: found the byte 0xe9, which is not UTF-8, must be plain UTF-8 text with lines that end in LF or CRLF"},
		{"U+FFFD itself is text", "word: \ufffd", ""},
		{"line break only for YAML", "word: a # b\u2028list: []", "f.yaml:1:12: found the character U+2028, must be plain UTF-8 text with lines that end in LF or CRLF"},
		{"lone CR", "word: a\rlist: []", "f.yaml:1:8: found the character U+000D, must be plain UTF-8 text with lines that end in LF or CRLF"},

		{"null document", "---\n", "f.yaml:2:1: found nothing (null), must be a mapping of keys to values"},
		{"list", "- a\n", "f.yaml:1:1: found a list, must be a mapping of keys to values"},
		{"LFS pointer", "version https://git-lfs\noid sha256:1", "f.yaml:1:1: found \"version https://git-lfs oid sha256:1\", must be a mapping of keys to values"},
		{"second document", "word: a\n---\nword: b\n", "f.yaml:2:1: a second document or trailing text starts here, must be one document"},
		{"trailing text", "word: a\n...\ngarbage\n", "f.yaml:3:1: not valid YAML here or just below: did not find expected <document start>"},

		{"what a terminal would obey", "word: !!null \"\\e[2J\"\nlist: [{\"\\e]0;\": &a 1}]", "f.yaml:1:7: word: found a tag, tags such as !!str are not allowed\n" +
			`f.yaml:1:7: word: found \x1b[2J (null), must be a word` + "\n" + `f.yaml:2:9: list[0]: unknown key "\x1b]0;", must be one of n` + "\n" +
			`f.yaml:2:18: list[0].\x1b]0;: found the anchor &a, anchors are not allowed`},
		{"unknown and missing key", "wrod: a\n", missing + "\nf.yaml:1:1: unknown key \"wrod\" (did you mean \"word\"?), must be one of word, list"},
		{"key in another case", "word: a\nList: []\n", "f.yaml:2:1: unknown key \"List\" (did you mean \"list\"?), must be one of word, list"},
		{"key of another kind", "word: a\n1: []\n", "f.yaml:2:1: unknown key \"1\", must be one of word, list"},
		{"unknown key inside", "word: a\nlist:\n- n: 1\n  m: 2\n", "f.yaml:4:3: list[0]: unknown key \"m\", must be one of n"},
		{"no value", "word:\n", "f.yaml:1:6: word: found nothing (null), must be a word"},
		{"null", "word: null\n", "f.yaml:1:7: word: found null (null), must be a word"},
		{"tilde", "word: ~\n", "f.yaml:1:7: word: found ~ (null), must be a word"},
		{"null in a list", "word: a\nlist: [~]\n", "f.yaml:2:8: list[0]: found ~ (null), must be a mapping of keys to values"},
		{"null key", "word: a\n~: b\n", "f.yaml:2:1: unknown key \"~\", must be one of word, list"},
		{"quoted null is text", "word: \"null\"\n", ""},
		{"mapping for a word", "word: {a: b}\n", "f.yaml:1:7: word: found a mapping, must be a word"},
		{"word for a list", "word: a\nlist: b\n", "f.yaml:2:7: list: found \"b\", must be a list of mappings"},
		{"line break in a word", "word: \"a\\nb\"\n", "f.yaml:1:7: word: found \"a\\nb\", must be a word"},
		{"block text", "word: |\n  a\n", "f.yaml:1:7: word: found \"a\\n\", must be a word"},

		{"duplicate key", "word: a\nlist: []\n\nword: b\n", "f.yaml:4:1: duplicate key \"word\", first in line 1; must be there once"},
		{"duplicate key in quotes", "word: a\n\"word\": a\n", "f.yaml:2:1: duplicate key \"word\", first in line 1; must be there once"},
		{"duplicate key inside", "word: a\nlist: [{n: 1, n: 1}]\n", "f.yaml:2:15: list[0]: duplicate key \"n\", first in line 2; must be there once"},
		{"anchor", "word: &x a\n", "f.yaml:1:7: word: found the anchor &x, anchors are not allowed"},
		{"anchor and alias", "list: &x []\nword: *x\n", "f.yaml:1:7: list: found the anchor &x, anchors are not allowed\nf.yaml:2:7: word: found the alias *x, aliases are not allowed: write the value out"},
		{"merge key", "word: a\n<<: {list: []}\n", "f.yaml:2:1: found a merge key <<, merging is not allowed: write the values out"},
		{"tag", "word: !!str a\n", "f.yaml:1:7: word: found a tag, tags such as !!str are not allowed"},
		{"tag of our own", "word: !x a\n", "f.yaml:1:7: word: found a tag, tags such as !!str are not allowed"},
		{"anchor and tag", "word: &x !!str a\n", "f.yaml:1:7: word: found the anchor &x, anchors are not allowed\nf.yaml:1:7: word: found a tag, tags such as !!str are not allowed"},
		{"lone tag", "word: ! a\n", "f.yaml:1:7: word: found a tag, tags such as !!str are not allowed"},
		{"lone tag before a mapping", "word: a\nlist: ! [ ]\n", "f.yaml:2:7: list: found a tag, tags such as !!str are not allowed"},
		{"tag on a key", "!!str word: a\n", "f.yaml:1:1: found a tag, tags such as !!str are not allowed"},
		{"mapping as a key", "word: a\n{a: b}: c\n", "f.yaml:2:1: found a mapping as a key, must be a word"},
		{"list as a key", "word: a\n? [a]\n: c\n", "f.yaml:2:3: found a list as a key, must be a word"},
		{"too deep", "word: a\nlist: " + strings.Repeat("[", 20) + strings.Repeat("]", 20),
			"f.yaml:2:8: list[0]: found a list, must be a mapping of keys to values\nf.yaml:2:17: list[0][0][0][0][0][0][0][0][0][0]: nested more than 10 deep"},

		{"bad indentation", "word: a\nlist: []\n  - b\n# more\n", "f.yaml:3:3: not valid YAML here or just below: did not find expected key"},
		{"unclosed bracket", "word: a\nlist: [\n{n: 1},\n", "f.yaml:2:1: not valid YAML here or just below: did not find expected node content"},
		{"tab", "word: a\nlist:\n\t- n: 1\n", "f.yaml:3:1: not valid YAML here or just below: found character that cannot start any token"},
		{"merge conflict", "<<<<<<< HEAD\nword: a\n=======\nword: b\n>>>>>>> x\n", "f.yaml:2:1: not valid YAML here or just below: mapping values are not allowed in this context"},
		{"unknown alias", "word: *x\n", "f.yaml:1:1: not valid YAML here or just below: unknown anchor 'x' referenced"},
		{"first line", "word: a: b\n", "f.yaml:1:1: not valid YAML here or just below: mapping values are not allowed in this context"},
		{"far down in a long file", strings.Repeat("#\n", 300) + "word: a: b\n", "f.yaml:301:1: not valid YAML here or just below: mapping values are not allowed in this context"},
		{"far too deep", strings.Repeat("[", limit), "f.yaml:1:1: not valid YAML here or just below: did not find expected node content"},

		{"all at once", "a: &x 1\na: 2\nlist: [{n: x}, ~]\n", missing + `
f.yaml:1:1: unknown key "a", must be one of word, list
f.yaml:1:4: a: found the anchor &x, anchors are not allowed
f.yaml:2:1: duplicate key "a", first in line 1; must be there once
f.yaml:2:1: unknown key "a", must be one of word, list
f.yaml:3:12: list[0].n: found "x", must be a whole number from 0 to 9
f.yaml:3:16: list[1]: found ~ (null), must be a mapping of keys to values`},
	} {
		if got := read(tt.data); got != tt.want {
			t.Errorf("%s: %q gives\n%s\nwant\n%s", tt.name, tt.data, got, tt.want)
		}
	}
}

func TestAliasBombIsCheap(t *testing.T) {
	var b strings.Builder
	b.WriteString("word: a\nl0: &l0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 60 {
		fmt.Fprintf(&b, "l%d: &l%[1]d [%s*l%d]\n", i+1, strings.Repeat(fmt.Sprintf("*l%d, ", i), 9), i)
	}
	start := time.Now()
	root := Parse("f.yaml", []byte(b.String()), 64<<10)
	err := root.Err()
	if d := time.Since(start); d > time.Second {
		t.Errorf("Parse took %v", d)
	}
	if err == nil || len(err.(Errors)) != maxErrors+1 {
		t.Fatalf("Parse gives %v, want %d errors and one that counts the rest", err, maxErrors)
	}
	if last := err.(Errors)[maxErrors].Msg; last != "and 623 more problems from here on" {
		t.Errorf("the last error is %q", last)
	}
}

// Files that are hostile, or just big, cost no more than their size.
func TestTime(t *testing.T) {
	for name, data := range map[string]string{
		"one long line":      "{" + strings.Repeat("a, ", 20000) + "}",
		"brackets":           strings.Repeat("[", 65000),
		"deep, in lines":     strings.Repeat(strings.Repeat("[a, ", 80)+"\n", 190),
		"many keys":          strings.Repeat("a: 1\n", 13000),
		"comments, no value": strings.Repeat("#\n", 32000),
		"many errors":        strings.Repeat("? &a [!x ~]\n", 5000),
	} {
		start := time.Now()
		root := Parse("f.yaml", []byte(data), 64<<10)
		root.Required("word").Bool(false)
		if err := root.Err(); err == nil {
			t.Errorf("%s: no error", name)
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("%s: reading it took %v", name, d)
		}
	}
}

// get reads one value with f and says what came out, or what was wrong.
func get(value string, f func(Value) any) string {
	root := Parse("f", []byte("v: "+value), limit)
	got := f(root.Optional("v"))
	if err := root.Err(); err != nil {
		return "error: " + strings.TrimPrefix(err.(Errors)[0].Msg, "v: ")
	}
	return fmt.Sprint(got)
}

func TestGetters(t *testing.T) {
	boolean := func(v Value) any { return v.Bool(true) }
	whole := func(v Value) any { return v.Int(7, 0, 100) }
	float := func(v Value) any {
		if f := v.Float(); f != nil {
			return *f
		}
		return nil
	}
	duration := func(v Value) any { return v.Duration(time.Minute) }
	bytes := func(v Value) any { return v.Size(5) }
	oneOf := func(v Value) any { return v.OneOf("a", "a", "b") }
	texts := func(v Value) any {
		return strings.Join(v.Texts("words", func(s string) bool { return s != "no" }), "+")
	}
	const (
		noBool = `error: found %s, must be true or false`
		noInt  = `error: found %s, must be a whole number from 0 to 100`
		noNum  = `error: found %s, must be a number, such as 38 or -2.5`
		noDur  = `error: found %s, must be a duration from 1ms to 8760h, such as 500ms, 90s or 1h30m`
		noSize = `error: found %s, must be a size, such as 16MiB, 2GiB or a number of bytes`
	)
	for _, tt := range []struct {
		getter string
		f      func(Value) any
		value  string
		want   string // may have %s for the quoted value
	}{
		{"Bool", boolean, "true", "true"},
		{"Bool", boolean, "false", "false"},
		{"Bool", boolean, "yes", noBool},
		{"Bool", boolean, "True", noBool},
		{"Bool", boolean, `"true"`, `error: found "true", must be true or false`},
		{"Int", whole, "0", "0"},
		{"Int", whole, "100", "100"},
		{"Int", whole, "101", noInt},
		{"Int", whole, "-1", noInt},
		{"Int", whole, "+1", noInt},
		{"Int", whole, "-0", noInt},
		{"Int", whole, "010", noInt},
		{"Int", whole, "0x10", noInt},
		{"Int", whole, "0o7", noInt},
		{"Int", whole, "1_0", noInt},
		{"Int", whole, "1.0", noInt},
		{"Int", whole, "1e1", noInt},
		{"Int", whole, "9999999999999999999", noInt},
		{"Int", whole, `"1"`, `error: found "1", must be a whole number from 0 to 100`},
		{"Float", float, "38", "38"},
		{"Float", float, "-2.5", "-2.5"},
		{"Float", float, "0", "0"},
		{"Float", float, ".inf", noNum},
		{"Float", float, ".nan", noNum},
		{"Float", float, "1e3", noNum},
		{"Float", float, "038", noNum},
		{"Float", float, "1.", noNum},
		{"Float", float, "'38'", `error: found "38", must be a number, such as 38 or -2.5`},
		{"Duration", duration, "90s", "1m30s"},
		{"Duration", duration, "1h30m", "1h30m0s"},
		{"Duration", duration, "1ms", "1ms"},
		{"Duration", duration, "8760h", "8760h0m0s"},
		{"Duration", duration, "0s", noDur},
		{"Duration", duration, "-5s", noDur},
		{"Duration", duration, "999us", noDur},
		{"Duration", duration, "8761h", noDur},
		{"Duration", duration, "60", noDur},
		{"Duration", duration, "1d", noDur},
		{"Duration", duration, "9999999h", noDur},
		{"Size", bytes, "16MiB", "16777216"},
		{"Size", bytes, "1024", "1024"},
		{"Size", bytes, "3B", "3"},
		{"Size", bytes, "1KiB", "1024"},
		{"Size", bytes, "2GiB", "2147483648"},
		{"Size", bytes, "1TiB", "1099511627776"},
		{"Size", bytes, "16MB", noSize},
		{"Size", bytes, "-1", noSize},
		{"Size", bytes, "1.5GiB", noSize},
		{"Size", bytes, "8388607TiB", "9223370937343148032"},
		{"Size", bytes, "8388608TiB", noSize},
		{"OneOf", oneOf, "b", "b"},
		{"OneOf", oneOf, `"b"`, "b"},
		{"OneOf", oneOf, "B", "error: found %s, must be one of a, b"},
		{"Texts", texts, "[a, 'b', 1]", "a+b+1"},
		{"Texts", texts, "[]", ""},
		{"Texts", texts, "[a, no]", `error: [1]: found "no", must be words`},
		{"Texts", texts, "a", "error: found %s, must be a list of words"},
	} {
		want := tt.want
		if strings.Contains(want, "%s") {
			want = fmt.Sprintf(want, fmt.Sprintf("%q", tt.value))
		}
		want = strings.Replace(want, "error: [1]", "error: v[1]", 1)
		if got := get(tt.value, tt.f); got != want {
			t.Errorf("%s of %s gives %s, want %s", tt.getter, tt.value, got, want)
		}
	}
}

func TestAbsentGivesDefault(t *testing.T) {
	root := Parse("f", []byte("{}"), limit)
	v := root.Optional("v")
	if !v.Bool(true) || v.Int(7, 0, 9) != 7 || v.Float() != nil || v.Duration(time.Hour) != time.Hour || v.Size(5) != 5 ||
		v.OneOf("a", "b") != "a" || v.List("x") != nil || v.Texts("x", nil) != nil || v.Present() {
		t.Error("an absent value does not give the default")
	}
	v.Map().Required("inside").Bool(false) // nothing is missing in what need not be there
	if err := root.Err(); err != nil {
		t.Errorf("Err() = %v, want nil", err)
	}
}

func TestErrorf(t *testing.T) {
	root := Parse("f", []byte("# c\na: {b: 1}\n"), limit)
	a := root.Optional("a")
	m := a.Map()
	m.Optional("b").Errorf("one")
	m.Errorf("two")
	m.Optional("c").Errorf("three")
	root.Errorf("four")
	root.Optional("d").Map().Optional("e").Errorf("five")
	want := "f:2:1: four\nf:2:1: d.e: five\nf:2:4: a: two\nf:2:4: a.c: three\nf:2:8: a.b: one"
	if got := root.Err().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := root.Keys(); fmt.Sprint(got) != "[a]" {
		t.Errorf("Keys() = %v", got)
	}
}

func TestReadFileStopsAfterTheLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]int{10: 11, 99: 100, 100: 100, 200: 100} {
		if b, err := ReadFile(path, limit); len(b) != want || err != nil {
			t.Errorf("ReadFile(limit %d) gives %d bytes and %v, want %d", limit, len(b), err, want)
		}
	}
}
