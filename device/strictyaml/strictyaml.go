// Package strictyaml reads YAML as Holdfast wants it written: one document, plain keys, no surprises. The state file, the
// profile, the fallback and the configuration are all read through it, so that one rule holds for all of them: every
// problem is reported, all at once, each as FILE:LINE:COLUMN with what was found and what is allowed.
//
//	root := strictyaml.Parse(name, data, 64<<10)
//	device := root.Required("device").Map()
//	url := device.Required("url").Text("", "a URL", isURL)
//	wait := device.Optional("timeout").Duration(2 * time.Second)
//	return root.Err() // what was wrong above, and every key that nobody asked for
//
// Nothing stops at the first problem: a getter that cannot read its value notes why and returns the default. Parse
// never fails either; what it could not read at all is empty, and only that is reported.
//
// Why not yaml.v3's Decode into structs: there `pump:` becomes false without an error, `010` becomes 8, keys under
// an anchor appear elsewhere, a second document is ignored and an empty file is all defaults. Here the text as it is written
// counts, a scalar's type never depends on what YAML makes of it, and quotes tell words from numbers.
//
// Line breaks are LF or CRLF; a byte order mark of UTF-8 is skipped. Any other encoding, control characters and the
// line breaks that only YAML knows (NEL, U+2028, U+2029, a lone CR) are refused: an editor shows them as something else.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// maxDepth is how deep lists and mappings may be nested. The deepest of our files, the configuration, needs 5.
const maxDepth = 10

// maxErrors is how many problems of a file are listed; a file of rubbish must not fill the journal.
const maxErrors = 100

// Error is one problem of one file.
type Error struct {
	File         string
	Line, Column int // from 1; the column counts characters
	Msg          string
}

func (e Error) Error() string { return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Msg) }

// Errors are all problems of one file, in the order of their places.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// ReadFile reads the file at path, at most one byte more than limit, for Parse to refuse: a file that grew without
// bound must not take the memory of the board.
func ReadFile(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)+1))
}

// doc is a file while it is read.
type doc struct {
	name    string
	lines   []string
	runes   []rune // of line number runesOf
	runesOf int
	maps    []*Map // all that were handed out, for the keys that nobody asked for
	errors  Errors
}

func (d *doc) errorf(line, column int, format string, args ...any) {
	line = min(line, max(1, len(d.lines))) // an empty value may be one past the end
	d.errors = append(d.errors, Error{d.name, max(1, line), max(1, column), escaped(fmt.Sprintf(format, args...))})
}

// escaped spells out what is not printable: quoted text, which YAML gives such characters with "\e", is part of paths and messages, and those are shown on terminals.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// Parse reads a file of at most limit bytes whose root is a mapping. name is how errors call it. The result is never
// nil; Err of it says what is wrong.
func Parse(name string, data []byte, limit int) *Map {
	d := &doc{name: name}
	m := &Map{doc: d}
	if n := d.load(data, limit); n != nil {
		d.inspect(n, "", 0)
		m = Value{doc: d, node: n}.Map()
	}
	m.root = true
	return m
}

// load returns the node of the only document, or nil and an error noted.
func (d *doc) load(data []byte, limit int) *yaml.Node {
	if len(data) > limit {
		d.errorf(1, 1, "the file has more than the %d bytes that are allowed", limit)
		return nil
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		d.errorf(1, 1, "the file is in UTF-16, must be in UTF-8")
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	d.lines = strings.Split(string(data), "\n")
	for i, l := range d.lines {
		if column, found := odd(l); found != "" {
			d.errorf(i+1, column, "found %s, must be plain UTF-8 text with lines that end in LF or CRLF", found)
			return nil
		}
	}
	docs, err := decode(data)
	switch {
	case err != nil:
		line := d.syntaxErrorLine(err, len(data))
		indent := len(d.lines[line-1]) - len(strings.TrimLeft(d.lines[line-1], " "))
		d.errorf(line, indent+1, "not valid YAML here or just below: %s", strings.TrimPrefix(lineOf.ReplaceAllString(err.Error(), ""), "yaml: "))
	case len(docs) == 0:
		d.errorf(1, 1, "the file is empty or all comments, must be a mapping, such as key: value")
	case len(docs) > 1:
		d.errorf(docs[1].Line, docs[1].Column, "a second document or trailing text starts here, must be one document")
	case len(docs[0].Content) != 1:
		d.errorf(1, 1, "the YAML reader found no value, must be a mapping, such as key: value")
	default:
		return docs[0].Content[0]
	}
	return nil
}

// odd finds the first character of a line that is not plain text; column is 0 if there is none.
func odd(line string) (column int, found string) {
	line = strings.TrimSuffix(line, "\r")
	for i, r := range line {
		column++
		if _, size := utf8.DecodeRuneInString(line[i:]); r == utf8.RuneError && size == 1 {
			return column, fmt.Sprintf("the byte 0x%02x, which is not UTF-8", line[i])
		}
		if r != '\t' && unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\ufeff' {
			return column, fmt.Sprintf("the character %U", r)
		}
	}
	return 0, ""
}

// decode returns the documents of data, at most two. yaml.v3 panics on some inputs.
func decode(data []byte) (docs []*yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			docs, err = nil, fmt.Errorf("the YAML reader gave up: %v", p)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for len(docs) < 2 {
		n := new(yaml.Node)
		if err := dec.Decode(n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		docs = append(docs, n)
	}
	return docs, nil
}

// lineOf finds the line in an error of yaml.v3.
var lineOf = regexp.MustCompile(`line (\d+): `)

// syntaxErrorLine finds the line to show for a syntax error. yaml.v3 names the line in which the construct began,
// sometimes the one before; the line after the longest run of lines that is YAML by itself is a better answer. That takes
// time and, where much nests, hundreds of bytes of garbage for each byte read, so it is done for files of the size that people write:
// the example of the configuration is half of what is allowed.
func (d *doc) syntaxErrorLine(err error, size int) int {
	if len(d.lines)*size <= 320<<10 {
		for n := len(d.lines) - 1; n > 0; n-- {
			if _, err := decode([]byte(strings.Join(d.lines[:n], "\n"))); err == nil {
				return n + 1
			}
		}
		return 1
	}
	if m := lineOf.FindStringSubmatch(err.Error()); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return min(n, len(d.lines))
		}
	}
	return 1
}

// inspect refuses what no file of ours may contain, wherever it stands.
func (d *doc) inspect(n *yaml.Node, path string, depth int) {
	if depth > maxDepth {
		d.errorf(n.Line, n.Column, "%snested more than %d deep", prefix(path), maxDepth)
		return
	}
	if n.Anchor != "" {
		d.errorf(n.Line, n.Column, "%sfound the anchor &%s, anchors are not allowed", prefix(path), n.Anchor)
	}
	if n.Kind == yaml.AliasNode {
		d.errorf(n.Line, n.Column, "%sfound the alias *%s, aliases are not allowed: write the value out", prefix(path), n.Value)
	}
	if n.Style&yaml.TaggedStyle != 0 || d.at(n) == '!' { // yaml.v3 keeps no trace of a lone "!"
		d.errorf(n.Line, n.Column, "%sfound a tag, tags such as !!str are not allowed", prefix(path))
	}
	if n.Kind == yaml.SequenceNode {
		for i, c := range n.Content {
			d.inspect(c, fmt.Sprintf("%s[%d]", path, i), depth+1)
		}
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		d.inspect(k, path, depth+1)
		switch {
		case k.Kind == yaml.AliasNode: // complained about by now
		case k.Kind != yaml.ScalarNode:
			d.errorf(k.Line, k.Column, "%sfound %s as a key, must be a word", prefix(path), describe(k))
		case k.Tag == "!!merge":
			d.errorf(k.Line, k.Column, "%sfound a merge key <<, merging is not allowed: write the values out", prefix(path))
		case first[k.Value] != nil:
			d.errorf(k.Line, k.Column, "%sduplicate key %q, first in line %d; must be there once", prefix(path), short(k.Value), first[k.Value].Line)
		default:
			first[k.Value] = k
		}
		d.inspect(v, join(path, short(k.Value)), depth+1)
	}
}

// at returns the character at which a node starts.
func (d *doc) at(n *yaml.Node) rune {
	if n.Line < 1 || n.Line > len(d.lines) {
		return 0
	}
	if n.Line != d.runesOf { // a line of 64 KiB may hold as many nodes: convert it once
		d.runesOf, d.runes = n.Line, []rune(d.lines[n.Line-1])
	}
	if n.Column < 1 || n.Column > len(d.runes) {
		return 0
	}
	return d.runes[n.Column-1]
}

// Map is a mapping of the file. Keys that are never asked for are unknown.
type Map struct {
	doc    *doc
	node   *yaml.Node // nil: could not be read, or is not there; then everything in it is absent, and nothing missing
	place  *yaml.Node // of problems: the node, else what stands there or around it; nil if the file could not be read
	parent string
	asked  []string
	root   bool
}

// Required returns the value of key; reading it is an error if it is missing.
func (m *Map) Required(key string) Value {
	v := m.Optional(key)
	v.required = m.node != nil
	return v
}

// Optional returns the value of key, which may be absent.
func (m *Map) Optional(key string) Value {
	if !slices.Contains(m.asked, key) {
		m.asked = append(m.asked, key)
	}
	v := Value{doc: m.doc, path: join(m.parent, key), in: m.place}
	m.each(func(k, n *yaml.Node) bool {
		if k.Value == key {
			v.node = n
		}
		return v.node == nil
	})
	return v
}

// Keys returns the keys in the order of the file, for mappings whose keys are names. It asks for none.
func (m *Map) Keys() []string {
	var keys []string
	m.each(func(k, _ *yaml.Node) bool {
		if !slices.Contains(keys, k.Value) {
			keys = append(keys, k.Value)
		}
		return true
	})
	return keys
}

// each calls f for every key that is a plain word, and its value, until it returns false.
func (m *Map) each(f func(k, v *yaml.Node) bool) {
	if m.node == nil {
		return
	}
	for i := 0; i+1 < len(m.node.Content); i += 2 {
		if k := m.node.Content[i]; k.Kind == yaml.ScalarNode && k.Tag != "!!merge" && !f(k, m.node.Content[i+1]) {
			return
		}
	}
}

// Errorf notes a problem at the place where the mapping starts.
func (m *Map) Errorf(format string, args ...any) {
	if m.place != nil {
		m.doc.errorf(m.place.Line, m.place.Column, "%s%s", prefix(m.parent), fmt.Sprintf(format, args...))
	}
}

// Err returns all problems of the file as Errors, or nil. It is called once, on the root, when everything has been asked for.
func (m *Map) Err() error {
	if !m.root {
		panic("strictyaml: Err is for the root")
	}
	for _, m := range m.doc.maps {
		m.each(func(k, _ *yaml.Node) bool {
			if !slices.Contains(m.asked, k.Value) {
				m.doc.errorf(k.Line, k.Column, "%sunknown key %q%s, must be one of %s",
					prefix(m.parent), short(k.Value), didYouMean(k.Value, m.asked), strings.Join(m.asked, ", "))
			}
			return true
		})
	}
	m.doc.maps = nil
	errs := m.doc.errors
	slices.SortStableFunc(errs, func(a, b Error) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	said := map[Error]bool{} // a mapping and its first key begin at the same place, and each may say the same
	errs = slices.DeleteFunc(errs, func(e Error) bool {
		was := said[e]
		said[e] = true
		return was
	})
	if n := len(errs); n > maxErrors {
		last := errs[maxErrors]
		last.Msg = fmt.Sprintf("and %d more problems from here on", n-maxErrors)
		errs = append(slices.Clip(errs[:maxErrors]), last)
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// prefix is what stands before a message about path; the root needs nothing.
func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// describe says what a node is, for "found …".
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Value == "":
		return "nothing (null)"
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return n.Value + " (null)"
	default:
		return strconv.Quote(short(userinfo.ReplaceAllString(n.Value, "…@")))
	}
}

// userinfo is the start of a URL that may hold a password: errors go to the journal, and from there to people.
var userinfo = regexp.MustCompile(`\S*:\S*@`)

// short cuts what is too long for a message.
func short(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}

// didYouMean returns ` (did you mean "pump"?)` if one of known is close to word, else "".
func didYouMean(word string, known []string) string {
	if len(word) > 64 {
		return ""
	}
	best, at := "", 3 // up to two letters off
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < at && d*2 <= len(k) {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance counts the letters to insert, delete or replace to get from a to b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d++
			}
			diagonal = row[j+1]
			row[j+1] = min(d, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
