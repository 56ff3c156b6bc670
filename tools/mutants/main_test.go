package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

const root = "../.."

// promised are the mutants that issue 4 names, which may change, but not go.
var promised = []string{"mark-after-the-rollback", "mark-keyed-by-revision", "active-moved-at-trial-start", "attempt-counted-after-the-switch",
	"restart-clears-marks", "baseline-taken-while-hot", "environment-deletes-the-mark", "mark-with-an-empty-set",
	"holding-computed-from-the-desired-release-only", "a-pass-deletes-digests", "retry-deletes-marks", "group-held-but-not-in-the-set",
	"agent-keeps-a-trials-value-without-a-guard", "driving-back-not-resumed-after-a-restart", "agent-alive-convicts-alone", "attempts-never-reset",
	"sidecar-written-after-the-effect", "lease-not-checked-at-the-send", "retry-not-spent-when-attempts-ran-out", "environment-resets-attempts",
	"exempt-without-waiting-for-recover", "own-digest-stays-marked-after-a-pass", "a-stopped-guards-window-convicts",
	"a-verdict-that-cannot-be-written-leaves-the-candidate-effective"}

// What can be said of the mutants without running them: a change of the code under one shows at once.
func TestMutantsApply(t *testing.T) {
	all, err := load(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range all {
		names = append(names, m.name)
		if _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	for _, n := range promised {
		if !slices.Contains(names, n) {
			t.Errorf("the mutant %s is gone", n)
		}
	}
}

func TestParse(t *testing.T) {
	for name, text := range map[string]string{
		"says nothing":    "red: ./p ^TestX$\n-- a.go --\nx\n-- instead --\ny\n",
		"no tests":        "Breaks it.\n-- a.go --\nx\n-- instead --\ny\n",
		"a bad pattern":   "Breaks it.\nred: ./p ^Test(X$\n-- a.go --\nx\n-- instead --\ny\n",
		"changes nothing": "Breaks it.\nred: ./p ^TestX$\n",
		"half a pair":     "Breaks it.\nred: ./p ^TestX$\n-- a.go --\nx\n",
		"no pair":         "Breaks it.\nred: ./p ^TestX$\n-- a.go --\nx\n-- b.go --\ny\n",
	} {
		if m, err := parse("m", txtar.Parse([]byte(text))); err == nil {
			t.Errorf("%s: parse = %+v, want an error", name, m)
		}
	}
}

// A small module with a suite of its own shows each way in which a mutant can end.
const module = `
-- go.mod --
module small

go 1.26
-- p/p.go --
package p

func Twice(n int) int {
	return 2 * n
}

func Half(n int) int {
	return n / 2
}
-- p/p_test.go --
package p

import "testing"

func TestTwice(t *testing.T) {
	if Twice(3) != 6 {
		t.Error("no")
	}
}

func TestHalf(t *testing.T) {
	Half(3)
}
`

func TestTry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(module)).Files {
		path := filepath.Join(dir, f.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	twice := func(instead string) edit { return edit{"p/p.go", "	return 2 * n\n", instead} }
	half := func(instead string) edit { return edit{"p/p.go", "	return n / 2\n", instead} }
	both := []suite{{"./p", "^TestTwice$"}, {"./p", "^TestHalf$"}}
	for _, tt := range []struct {
		name    string
		m       mutant
		noticed string
		err     string
	}{
		{"noticed", mutant{reds: both[:1], edits: []edit{twice("	return n\n")}}, "TestTwice", ""},
		{"noticed by a panic", mutant{reds: both[1:], edits: []edit{half("	panic(n)\n")}}, "TestHalf", ""},
		{"two edits of one file", mutant{reds: both, edits: []edit{twice("	return n\n"), half("	panic(n)\n")}}, "TestTwice TestHalf", ""},
		{"survives", mutant{reds: both[1:], edits: []edit{half("	return n\n")}}, "", "it survives: ./p -run '^TestHalf$' is green"},
		{"survives one of two", mutant{reds: both, edits: []edit{twice("	return n\n")}}, "TestTwice", "it survives: ./p -run '^TestHalf$' is green"},
		{"no test of that name", mutant{reds: []suite{{"./p", "^TestGone$"}}, edits: []edit{twice("	return n\n")}}, "", "it survives"},
		{"does not build", mutant{reds: both[:1], edits: []edit{twice("	return m\n")}}, "", "it does not build"},
		{"does not apply", mutant{reds: both[:1], edits: []edit{{"p/p.go", "	return 3 * n\n", ""}}}, "", "stand there 0 times"},
		{"a part of a line", mutant{reds: both[:1], edits: []edit{{"p/p.go", "return 2 * n\n", ""}}}, "", "stand there 0 times"},
		{"applies twice", mutant{reds: both[:1], edits: []edit{{"p/p.go", "}\n", ""}}}, "", "stand there 2 times"},
		{"ends the tests without failing one", mutant{reds: both[:1], edits: []edit{{"p/p.go", "package p\n", "package p\n\nfunc init() { panic(1) }\n"}}}, "", "no test of ./p has failed"},
	} {
		noticed, err := tt.m.try(t.Context(), dir, t.TempDir())
		if strings.Join(noticed, " ") != tt.noticed || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: try = %q, %v; want %q, %q", tt.name, noticed, err, tt.noticed, tt.err)
		}
	}
	if err := control(t.Context(), dir, []mutant{{reds: both}}); err != nil {
		t.Errorf("control of a green suite: %v", err)
	}
	if err := control(t.Context(), dir, []mutant{{reds: []suite{{"./p", "^TestGone$"}}}}); err == nil {
		t.Error("control does not see that no test matches")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "p/p.go")); err != nil || !strings.Contains(string(b), "2 * n") {
		t.Errorf("the code itself was touched: %s, %v", b, err)
	}
}
