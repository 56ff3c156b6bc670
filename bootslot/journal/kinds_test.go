package journal

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the repository.
const root = "../.."

// dynamic are the attributes that a record of a kind always has where the call itself does not show it: the history's kinds (guard.logEvent) and those that
// are chosen before the call.
var dynamic = map[Kind][]string{
	Trial: {"generation", "revision", "digest", "slot", "fields", "attempt"}, Adopted: {"generation", "revision", "digest", "slot"},
	Passed: {"generation", "revision", "digest", "slot", "fields", "attempt"}, Failed: {"generation", "revision", "digest", "slot", "fields", "attempt", "check", "mark", "message"},
	Inconclusive: {"generation", "revision", "digest", "slot", "fields", "attempt", "message"}, Cancelled: {"generation", "revision", "digest", "slot", "fields", "attempt", "message"},
	MarkStands: {"generation", "digest", "check", "mark", "message"}, Environment: {"generation", "digest", "check", "mark", "message"},
	MarkDropped: {"generation", "mark", "fields", "message"}, Rollback: {"generation", "digest", "slot", "fields", "mark", "who", "message"},
	Retry: {"generation", "who"}, Suspended: {"generation", "who", "message"}, Resumed: {"generation", "message"}, Configured: {},
	Decision: {"decision", "revision"}, Held: {"decision", "revision", "held", "marks"},
	Storage: {"message"}, CannotWrite: {}, Problem: {}, NotConfigured: {},
	NonConvergent: {"field"}, NonConvergentOver: {"field"}, UnknownActuator: {"field"}, UnknownActuatorOver: {"field"},
}

// calls are the log calls of agent and guard: per kind the attributes that each of its calls has, all attributes there are, and the kinds that are named.
type calls struct {
	always map[Kind][]string
	keys   map[string]bool
	named  map[string]bool // constants
}

func (c *calls) read(t *testing.T, path string, constants map[string]Kind) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "journal" && constants[s.Sel.Name] != "" {
				c.named[s.Sel.Name] = true
			}
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !strings.HasSuffix(strings.ToLower(expr(method.X)), "log") {
			return true
		}
		before := map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3, "LogAttrs": 3}[method.Sel.Name]
		if before == 0 {
			return true
		}
		if call.Ellipsis != token.NoPos {
			return true // logEvent and decided: what they put together is looked at below
		}
		kind, keys := "", []string{}
		for i := before; i+1 < len(call.Args); i += 2 {
			key, err := strconv.Unquote(expr(call.Args[i]))
			if err != nil {
				t.Errorf("%s: the name of an attribute is no constant", set.Position(call.Pos()))
				continue
			}
			if key == "event" {
				kind = expr(call.Args[i+1])
				continue
			}
			c.keys[key] = true
			keys = append(keys, key)
		}
		k, known := constants[strings.TrimPrefix(kind, "journal.")]
		switch {
		case kind == "":
			t.Errorf("%s: a record without a kind of event", set.Position(call.Pos()))
		case !known && !slices.Contains([]string{"kind", "begins", "ends"}, kind):
			t.Errorf("%s: the event is %s, which is no kind", set.Position(call.Pos()), kind)
		case !known:
		case c.always[k] == nil:
			c.always[k] = keys
		default:
			c.always[k] = slices.DeleteFunc(c.always[k], func(key string) bool { return !slices.Contains(keys, key) })
		}
		return true
	})
	// What is put together: []any{"event", kind, "decision", …} and append(args, "held", …).
	ast.Inspect(f, func(n ast.Node) bool {
		var elements []ast.Expr
		switch n := n.(type) {
		case *ast.CompositeLit:
			if expr(n.Type) == "[]any" {
				elements = n.Elts
			}
		case *ast.CallExpr:
			if expr(n.Fun) == "append" && len(n.Args) > 1 && expr(n.Args[0]) == "args" {
				elements = n.Args[1:]
			}
		}
		for i := 0; i+1 < len(elements); i += 2 {
			if key, err := strconv.Unquote(expr(elements[i])); err == nil && key != "event" {
				c.keys[key] = true
			}
		}
		return true
	})
}

// expr is the source of a simple expression.
func expr(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return expr(e.X) + "." + e.Sel.Name
	case *ast.BasicLit:
		return e.Value
	case *ast.ArrayType:
		return "[]" + expr(e.Elt)
	case *ast.CallExpr:
		return expr(e.Fun) + "(…)"
	case nil:
		return ""
	}
	return fmt.Sprintf("%T", e)
}

// constantsOf are a file's constants of type typ.
func constantsOf(t *testing.T, path, typ string) map[string]Kind {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Kind{}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok && s.Type != nil && expr(s.Type) == typ {
			value, err := strconv.Unquote(expr(s.Values[0]))
			if err != nil {
				t.Fatal(err)
			}
			out[s.Names[0].Name] = Kind(value)
		}
		return true
	})
	return out
}

// Every record of agent and guard has a kind, every kind of the history is one, and every kind has a row in the table, is used, stands in
// docs/journal.md with its priority and number, and in the catalog, whose texts name only what such an entry always has; and nothing else stands there.
func TestKinds(t *testing.T) {
	constants := constantsOf(t, "bootslot/journal/kinds.go", "Kind")
	history := map[Kind]bool{}
	for _, typ := range []string{"EventKind", "Verdict"} {
		found := 0
		for _, file := range []string{"bootslot/ledger.go", "bootslot/settle.go", "bootslot/judge.go", "bootslot/release.go"} {
			for _, k := range constantsOf(t, file, typ) {
				found++
				history[k] = true
				if _, ok := kinds[k]; !ok {
					t.Errorf("the history's kind %s (%s) is none of the journal", k, typ)
				}
			}
		}
		if found == 0 {
			t.Fatalf("the constants of %s are somewhere else by now", typ)
		}
	}

	said := calls{always: map[Kind][]string{}, keys: map[string]bool{}, named: map[string]bool{}}
	files := 0
	for _, dir := range []string{"agent", "bootslot"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "journal" || d.Name() == "scenario") {
				return fs.SkipDir
			}
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files++
				said.read(t, path, constants)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 50 || len(said.always) < 30 {
		t.Fatalf("%d files with %d kinds of records are not all", files, len(said.always))
	}

	page, catalog := read(t, "docs/journal.md"), read(t, "packaging/holdfast.catalog")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| ([a-z]+) \\| `([0-9a-f]{32})` \\|").FindAllStringSubmatch(page, -1) {
		rows[m[1]] = m[2] + " " + m[3]
	}
	entries := map[string]string{}
	for _, part := range strings.Split(catalog, "\n-- ")[1:] {
		id, text, _ := strings.Cut(part, "\n")
		entries[id] = text
	}
	priorities := []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}
	variable := regexp.MustCompile(`@HOLDFAST_([A-Z_]+)@`)
	ids := map[string]Kind{}
	for name, k := range constants {
		of, ok := kinds[k]
		if !ok {
			t.Errorf("%s has no row in the table", name)
			continue
		}
		if !said.named[name] && !history[k] {
			t.Errorf("nobody logs %s", name)
		}
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(of.id) || ids[of.id] != "" {
			t.Errorf("%s: the id %q is none, or that of %q as well", name, of.id, ids[of.id])
		}
		ids[of.id] = k
		if want := priorities[of.priority] + " " + of.id; rows[string(k)] != want {
			t.Errorf("docs/journal.md has %q of %s, want %q", rows[string(k)], k, want)
		}
		entry, ok := entries[of.id]
		if !ok {
			t.Errorf("the catalog has no entry for %s, -- %s", k, of.id)
			continue
		}
		if !strings.HasPrefix(entry, "Subject: ") || !strings.Contains(entry, "\nDefined-By: Holdfast\n") || !strings.Contains(entry, "\n\n") {
			t.Errorf("the catalog's entry for %s is not complete:\n%s", k, entry)
		}
		always := said.always[k]
		if d, ok := dynamic[k]; ok {
			always = d
		}
		for _, m := range variable.FindAllStringSubmatch(entry, -1) {
			if !slices.ContainsFunc(always, func(key string) bool { return fieldName(key) == m[1] }) {
				t.Errorf("the catalog's entry for %s shows %s, which is not always there, but %v", k, m[0], always)
			}
		}
		if strings.Count(entry, "@") != 2*len(variable.FindAllString(entry, -1)) {
			t.Errorf("the catalog's entry for %s has an @ too many", k)
		}
	}
	for k := range kinds {
		if !slices.Contains(slices.Collect(maps.Values(constants)), k) {
			t.Errorf("the table has %s, which is no kind", k)
		}
	}
	for id := range entries {
		if ids[id] == "" {
			t.Errorf("the catalog has -- %s, which is the id of no kind", id)
		}
	}
	for k := range rows {
		if !slices.Contains(Kinds(), Kind(k)) {
			t.Errorf("docs/journal.md has %s, which is no kind", k)
		}
	}
	for key := range said.keys {
		if want := "`HOLDFAST_" + fieldName(key) + "`"; !strings.Contains(page, want) {
			t.Errorf("docs/journal.md does not have the field %s", want)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
