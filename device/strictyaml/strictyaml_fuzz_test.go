package strictyaml

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"gopkg.in/yaml.v3"
)

// seeds are files of every kind of trouble, for the root {word, list, n}.
var seeds = []string{
	"word: a\n", "word: a\nlist: [{n: 1}, {n: 2}]\nn: 3\n", "", "\ufeff", "a: &x [*x]", "? {a: [b, !!c d]}\n: |\n x", "<<: *a", "{", "- - - -", "a: b\r\n---",
	"%YAML 1.1\n---\na: b", "---", "0: [:!00 \xef", "\"", "a: >\n\n  b\n c", "? ? ?", "#\n  #\n- #\n", "a:\n  #b\n c: #d\n#e",
	// What a terminal would obey, where it may come into a message: as a value, a key, the path to a value, a null.
	`word: "\e[2J"`, `"\e[2J": 1`, `list: [{"\e[2J": &a 1}]`, `word: !!null "\e[2J"`, "\u202eword: {\u202elist: &a 1}", `"a\u0085b": {c: &d 1}`,
	"word: 1m30s", "n: 010", "n: -7", "list: [[[[[[[[[[[1]]]]]]]]]]]", "word: 'a'\nword: b\n", "word: a\n---\nword: b\n", "word: &a b", "word: &a b\nn: *a", "word: ~", "~: 1", "null: x", "?\n: |", "n: 1e3\nlist: {}\nword: []",
}

// ask reads data as a file of ours is read, by every getter, and returns what it got.
func ask(data []byte) (got []any, root *Map) {
	root = Parse("f", data, limit)
	word := root.Required("word")
	got = append(got, word.Text("", "a word", func(s string) bool { return s != "" }), word.Present())
	for _, v := range root.Optional("list").List("a list") {
		m := v.Map()
		got = append(got, m.Keys(), m.Required("n").Int(-1, 0, 9), m.Optional("x").OneOf("", "on", "off"), m.Optional("y").Bool(false))
	}
	n := root.Optional("n")
	got = append(got, n.Int(-1, -100, 100), n.Duration(time.Hour), n.Size(-1), n.Texts("words", func(s string) bool { return s != "" }))
	if f := n.Float(); f != nil {
		got = append(got, *f)
	}
	return got, root
}

// FuzzParse: a file is read, or every error has its place in it and is one line that a terminal can be shown; twice the same; with memory in proportion; and
// what is read without an error is what YAML says it is.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, root := ask(data)
		err := root.Err()
		runtime.ReadMemStats(&after)
		// Where a syntax error is takes a decoding per line, for files whose lines times bytes are up to 320 KiB.
		if n, most := after.TotalAlloc-before.TotalAlloc, uint64(96<<20); n > most {
			t.Errorf("%d bytes take %d bytes of memory to read, more than %d", len(data), n, most)
		}
		wantErrors(t, data, err)
		again, root := ask(data)
		if err2 := root.Err(); !reflect.DeepEqual(again, got) || !reflect.DeepEqual(err2, err) {
			t.Errorf("%q gives %v, %v and then %v, %v", data, got, err, again, err2)
		}

		root = Parse("f", data, limit)
		keys := root.Keys()
		texts := map[string]string{}
		for _, k := range keys {
			texts[k] = root.Optional(k).Text("", "anything", func(string) bool { return true })
		}
		if root.Err() != nil {
			return
		}
		var doc, more yaml.Node
		dec := yaml.NewDecoder(bytes.NewReader(data))
		if err := dec.Decode(&doc); err != nil || !errors.Is(dec.Decode(&more), io.EOF) || !isPlain(&doc) {
			t.Errorf("%q is read as %q: %v, a second document, an anchor or an alias", data, texts, err)
			return
		}
		if slices.ContainsFunc(doc.Content[0].Content, func(n *yaml.Node) bool { return n.Tag == "!!null" }) {
			return // a null is a word that nobody asks for here, and no key there
		}
		var n map[string]yaml.Node
		if err := yaml.Unmarshal(data, &n); err != nil || len(n) != len(keys) {
			t.Errorf("%q is read as %q, by YAML as %v, %v", data, texts, n, err)
		}
		for k, v := range n {
			if texts[k] != v.Value {
				t.Errorf("%q: %s is read as %q, by YAML as %q", data, k, texts[k], v.Value)
			}
		}
	})
}

func isPlain(n *yaml.Node) bool {
	return n.Anchor == "" && n.Kind != yaml.AliasNode && !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !isPlain(c) })
}

// wantErrors checks the form of errors that any data may cause.
func wantErrors(t *testing.T, data []byte, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var errs Errors
	if !errors.As(err, &errs) || len(errs) == 0 || len(errs) > maxErrors+1 {
		t.Fatalf("%q: the error %T is not of 1 to %d places: %v", data, err, maxErrors+1, err)
	}
	lines := strings.Count(string(data), "\n") + 1
	for i, e := range errs {
		if e.File != "f" || e.Line < 1 || e.Line > lines || e.Column < 1 || e.Msg == "" {
			t.Errorf("%q: error at %s:%d:%d of %d lines: %s", data, e.File, e.Line, e.Column, lines, e.Msg)
		}
		if strings.ContainsFunc(e.Msg, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: the message %q is not fit for a terminal", data, e.Msg)
		}
		if len(e.Msg) > 10_000 {
			t.Errorf("%q: a message of %d bytes", data, len(e.Msg))
		}
		if i > 0 && (errs[i-1].Line > e.Line || slices.Contains(errs[:i], e)) {
			t.Errorf("%q: error %v comes after %v, or twice", data, e, errs[i-1])
		}
	}
}
