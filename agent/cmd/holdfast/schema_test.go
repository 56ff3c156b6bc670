package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/agent/status"
	"holdfast/bootslot"
)

var update = flag.Bool("update", false, "write docs/cli-json.md and the golden files anew")

// schema is what each verb says with --json.
var schema = map[string]reflect.Type{
	"status": reflect.TypeFor[status.View](), "why": reflect.TypeFor[status.Chain](), "diff": reflect.TypeFor[compared](),
	"history": reflect.TypeFor[[]bootslot.Event](), "marks": reflect.TypeFor[[]bootslot.Mark](), "slots": reflect.TypeFor[shownSlots](),
	"selftest": reflect.TypeFor[tested](), "doctor": reflect.TypeFor[examined](),
	"reconcile": reflect.TypeFor[reconciled](), "retry": reflect.TypeFor[retried](), "rollback": reflect.TypeFor[rolledBack](),
	"suspend": reflect.TypeFor[suspended](), "resume": reflect.TypeFor[resumed](), "accept": reflect.TypeFor[accepted](),
	"validate": reflect.TypeFor[[]checked](), "version": reflect.TypeFor[versions](),
}

const moduleRoot = "../../.."

// source is what the comments in the code say of types, their fields and their values.
type source struct {
	types  map[string]string            // "package.Type" to its comment
	fields map[string]map[string]string // and field to its comment
	values map[string][]string          // and what a value of it can be
	groups map[string][][2]string       // "package.Prefix" of untyped constants to value and comment
}

// readSource reads the packages of the types that are reached from the schema.
func readSource(t *testing.T) source {
	t.Helper()
	s := source{map[string]string{}, map[string]map[string]string{}, map[string][]string{}, map[string][][2]string{}}
	for _, dir := range []string{"agent/cmd/holdfast", "agent/status", "bootslot", "bootslot/api", "device"} {
		files, err := filepath.Glob(filepath.Join(moduleRoot, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %d files", dir, err, len(files))
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			s.read(parsed)
		}
	}
	return s
}

func (s source) read(f *ast.File) {
	pkg := f.Name.Name
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				name := pkg + "." + spec.Name.Name
				s.types[name] = text(spec.Doc, g.Doc)
				st, ok := spec.Type.(*ast.StructType)
				if !ok {
					continue
				}
				s.fields[name] = map[string]string{}
				for _, field := range st.Fields.List {
					for _, n := range field.Names {
						s.fields[name][n.Name] = text(field.Doc, field.Comment)
					}
				}
			case *ast.ValueSpec:
				if g.Tok != token.CONST || len(spec.Values) != 1 {
					continue
				}
				v, ok := spec.Values[0].(*ast.BasicLit)
				if !ok || v.Kind != token.STRING {
					continue
				}
				value := strings.Trim(v.Value, "`\"")
				if id, ok := spec.Type.(*ast.Ident); ok {
					s.values[pkg+"."+id.Name] = append(s.values[pkg+"."+id.Name], value)
				} else if name := spec.Names[0].Name; strings.HasPrefix(name, "Reason") {
					s.groups[pkg+".Reason"] = append(s.groups[pkg+".Reason"], [2]string{value, text(spec.Comment, nil)})
				}
			}
		}
	}
}

func text(groups ...*ast.CommentGroup) string {
	for _, g := range groups {
		if t := strings.Join(strings.Fields(g.Text()), " "); t != "" {
			return t
		}
	}
	return ""
}

// key is one key of an object.
type key struct {
	name, field string
	optional    bool
	typ         reflect.Type
}

func keysOf(t reflect.Type) (keys []key) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if !ok {
			name = f.Name
		}
		keys = append(keys, key{name, f.Name, strings.Contains(options, "omit"), f.Type})
	}
	return keys
}

func qualified(t reflect.Type) string {
	return t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:] + "." + t.Name()
}

// sourceName is a type's name in the code, where this package is main.
func sourceName(t reflect.Type) string {
	if strings.HasSuffix(t.PkgPath(), "cmd/holdfast") {
		return "main." + t.Name()
	}
	return qualified(t)
}

// typeText says what a value of a type is, and calls need for each object in it.
func typeText(t reflect.Type, need func(reflect.Type)) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time (RFC 3339)"
	case t.Kind() == reflect.Pointer:
		return typeText(t.Elem(), need)
	case t.Kind() == reflect.Slice:
		return "list of " + typeText(t.Elem(), need)
	case t.Kind() == reflect.Map:
		return "object of " + typeText(t.Elem(), need)
	case t.Kind() == reflect.Struct:
		need(t)
		return "[" + anchorName(t) + "](#" + strings.ToLower(anchorName(t)) + ")"
	case t.Kind() == reflect.String:
		return "string"
	case t.Kind() == reflect.Bool:
		return "true, false"
	}
	return "number"
}

// anchorName is how the page calls an object. Two of one name in two packages are told apart by the package.
func anchorName(t reflect.Type) string {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	switch sourceName(t) {
	case "status.Trial", "status.Release":
		return "Shown" + name
	}
	return name
}

// page is docs/cli-json.md.
func page(s source) string {
	var b strings.Builder
	b.WriteString(`# What the verbs say with --json

This page is generated from the code and checked against what the verbs print (` + "`go test ./agent/cmd/holdfast -run TestSchema -update`" + ` writes it anew). It is an interface:
keys are added, and none is renamed, taken away or given another meaning. Read what you know and ignore the rest. *may be absent* is said of a key that is left
out when it says nothing: an empty text or list, no number, false. Times are this board's wall clock, which may be wrong; what ends in Seconds is measured in
uptime and is right. Whatever is not printable in a text has an escape.

Exit codes are those of the verb without --json. An error is on stderr, as text, and then there may be no JSON.

| verb | what it says |
|---|---|
`)
	done := map[reflect.Type]bool{}
	var queue []reflect.Type
	need := func(t reflect.Type) {
		if !done[t] {
			done[t] = true
			queue = append(queue, t)
		}
	}
	for _, verb := range slices.Sorted(maps.Keys(schema)) {
		fmt.Fprintf(&b, "| `holdfast %s --json` | %s |\n", verb, typeText(schema[verb], need))
	}
	for len(queue) > 0 {
		t := queue[0]
		queue = queue[1:]
		fmt.Fprintf(&b, "\n### %s\n\n", anchorName(t))
		if doc := s.types[sourceName(t)]; doc != "" {
			doc = strings.TrimPrefix(doc, t.Name()+" is ")
			doc = strings.TrimPrefix(doc, t.Name()+" ")
			fmt.Fprintf(&b, "%s\n\n", escape(strings.ToUpper(doc[:1])+doc[1:]))
		}
		b.WriteString("| key | value | what it is |\n|---|---|---|\n")
		for _, k := range keysOf(t) {
			what := s.fields[sourceName(t)][k.field]
			what = strings.TrimPrefix(what, k.field+" is ")
			if values := s.allowed(k.typ); len(values) > 0 {
				what = strings.TrimSpace(strings.TrimSuffix(what, ".") + ". One of " + strings.Join(values, ", "))
				what = strings.TrimPrefix(what, ". ")
			}
			if k.optional {
				what = strings.TrimSpace(strings.TrimSuffix(what, ".") + ". *may be absent*")
				what = strings.TrimPrefix(what, ". ")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.name, typeText(k.typ, need), escape(what))
		}
	}
	b.WriteString("\n## Reasons of conditions\n\nA repository that cannot be used has its kind as the reason, in this form: FileInvalid, HistoryRewritten, AuthOrNotFound.\n\n| reason | what it means |\n|---|---|\n")
	for _, r := range s.groups["status.Reason"] {
		fmt.Fprintf(&b, "| %s | %s |\n", r[0], escape(r[1]))
	}
	return b.String()
}

// allowed lists the values of a type that is a vocabulary.
func (s source) allowed(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.String || t.Name() == "" || t.PkgPath() == "" {
		return nil
	}
	values := slices.Clone(s.values[sourceName(t)])
	if sourceName(t) == "bootslot.EventKind" { // a verdict's event has the verdict's name
		values = append(values, "passed", "failed", "inconclusive", "cancelled")
	}
	return values
}

func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s)
}

// TestSchema: the page says what the code says.
func TestSchema(t *testing.T) {
	t.Parallel()
	golden(t, filepath.Join(moduleRoot, "docs/cli-json.md"), page(readSource(t)))
}

// golden compares text with a file, which -update writes anew.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		a, b := "(nothing)", "(nothing)"
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Fatalf("%s:%d is not what comes of the code (-update writes it anew)\n got %s\nwant %s", file, i+1, a, b)
		}
	}
}

// conforms reports where v, decoded JSON, is not of the type.
func (s source) conforms(path string, v any, t reflect.Type) (errs []string) {
	wrong := func(want string) []string { return []string{fmt.Sprintf("%s is %T, not %s", path, v, want)} }
	switch {
	case t == reflect.TypeFor[time.Time]():
		text, _ := v.(string)
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return wrong("a time")
		}
		return nil
	case t.Kind() == reflect.Pointer:
		if v == nil {
			return nil
		}
		return s.conforms(path, v, t.Elem())
	}
	switch t.Kind() {
	case reflect.Struct:
		m, ok := v.(map[string]any)
		if !ok {
			return wrong("an object")
		}
		known := map[string]bool{}
		for _, k := range keysOf(t) {
			known[k.name] = true
			e, there := m[k.name]
			switch {
			case there:
				errs = append(errs, s.conforms(path+"."+k.name, e, k.typ)...)
			case !k.optional:
				errs = append(errs, path+"."+k.name+" is not there")
			}
		}
		for name := range m {
			if !known[name] {
				errs = append(errs, path+"."+name+" is not documented")
			}
		}
	case reflect.Slice:
		l, ok := v.([]any)
		if !ok {
			return wrong("a list")
		}
		for i, e := range l {
			errs = append(errs, s.conforms(fmt.Sprintf("%s.%d", path, i), e, t.Elem())...)
		}
	case reflect.Map:
		m, ok := v.(map[string]any)
		if !ok {
			return wrong("an object")
		}
		for k, e := range m {
			errs = append(errs, s.conforms(path+"."+k, e, t.Elem())...)
		}
	case reflect.String:
		text, ok := v.(string)
		if !ok {
			return wrong("a string")
		}
		if values := s.allowed(t); len(values) > 0 && !slices.Contains(values, text) && text != "" {
			errs = append(errs, fmt.Sprintf("%s is %q, not one of %s", path, text, strings.Join(values, ", ")))
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			return wrong("true or false")
		}
	default:
		if _, ok := v.(float64); !ok {
			return wrong("a number")
		}
	}
	return errs
}

// says runs a verb with --json and holds what it prints against the page.
func (b boardDir) says(s source, code int, verb string, args ...string) {
	b.t.Helper()
	out := b.want(code, nil, append([]string{verb, "--json"}, args...)...)
	var v any
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		b.t.Errorf("holdfast %s %v: %v\n%s", verb, args, err, out)
		return
	}
	for _, e := range s.conforms(verb, v, schema[verb]) {
		b.t.Errorf("holdfast %s %v: %s", verb, args, e)
	}
}

// TestJSONIsAsDocumented: what every verb prints, with nobody there, with the ledger alone and with everybody alive, is of the documented form.
func TestJSONIsAsDocumented(t *testing.T) {
	t.Parallel()
	s := readSource(t)
	nobody := newBoard(t)
	for _, verb := range []string{"status", "doctor", "selftest"} {
		nobody.says(s, 1, verb)
	}
	nobody.says(s, 0, "marks")
	nobody.says(s, 0, "slots")

	dead := newBoard(t)
	dead.keepLedger()
	for _, verb := range []string{"status", "doctor", "selftest"} {
		dead.says(s, 1, verb)
	}
	dead.says(s, 0, "why", "lamp")
	dead.says(s, 0, "why", "2")
	dead.says(s, 2, "diff")
	dead.says(s, 0, "history")
	dead.says(s, 0, "marks")
	dead.says(s, 0, "slots")

	for name, b := range liveBoards(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.t = t
			fine := map[bool]int{true: 0, false: 1}
			b.says(s, fine[name != "sick"], "status")
			b.says(s, fine[name == "in trial" || name == "as declared"], "diff")
			b.says(s, 0, "why", "lamp")
			b.says(s, 0, "history")
			b.says(s, 0, "history", "--kind", "failed")
			b.says(s, 0, "marks")
			b.says(s, 0, "slots")
			b.says(s, fine[name != "sick"], "selftest")
			b.says(s, fine[name != "sick"], "doctor")
			b.says(s, fine[name != "sick"], "reconcile", "--timeout", "5s")
			b.says(s, 0, "reconcile", "--no-wait")
			b.says(s, 0, "retry")
			b.says(s, 0, "rollback")
			b.says(s, 0, "rollback", "--dry-run")
			b.says(s, 0, "suspend", "--for", "1h", "--repair")
			b.says(s, 0, "resume")
			b.says(s, 0, "accept", strings.Repeat("a", 40))
		})
	}
	b := newBoard(t)
	b.says(s, 0, "version")
	b.says(s, 1, "validate", b.write("bad.yaml", "pump: perhaps\n"))
	b.says(s, 0, "validate", b.write("good.yaml", "pump: on\nfan: off\nvent: off\nlamp: on\ndoor: closed\nretry: 3\n"))
}

// TestHelpNamesTheKeys: what a verb says with --json is in its help, by the names of the outermost keys. status has too many.
func TestHelpNamesTheKeys(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	for verb, typ := range schema {
		help := b.want(0, nil, verb, "--help")
		_, keys, ok := strings.Cut(help, "With --json:")
		if !ok {
			t.Errorf("the help of %s does not say what it says with --json", verb)
			continue
		}
		if typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if verb == "status" {
			continue
		}
		for _, k := range keysOf(typ) {
			if !strings.Contains(keys, k.name) {
				t.Errorf("the help of %s does not name %s", verb, k.name)
			}
		}
	}
}
