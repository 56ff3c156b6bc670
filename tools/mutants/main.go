// Command mutants breaks production code in each of the ways that testdata/mutants names, one at a time and on a copy, and demands that the
// tests notice: a suite that stays green over a broken promise does not test that promise.
//
//	go run ./tools/mutants [NAME…]
//
// A mutant is a txtar file. Its comment is one sentence that says what is broken, whatever else there is to say, and the tests that must
// notice; each `red:` line is a run of its own, and each must fail:
//
//	The mark is written after the rollback.
//	red: ./bootslot ^TestModel$
//	-- bootslot/settle.go --
//	whole lines of that file, which stand there exactly once
//	-- instead --
//	what is to stand there
//
// Noticed means that a test has failed: a mutant that does not build, does not apply any more, or hangs the tests, shows nothing and is a failure
// here. So is a suite that is red without any mutant.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

const (
	// folder has the mutants, below the module's root.
	folder = "testdata/mutants"
	suffix = ".mutant"
	// atOnce is how many are tried at once.
	atOnce = 2
	// limit is how long one run of tests may take: a mutant that hangs them shows nothing.
	limit = 2 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if !run(ctx, ".", os.Args[1:]) {
		stop()
		os.Exit(1)
	}
}

// mutant is one way to break the code.
type mutant struct {
	name  string
	what  string // the first line of its comment
	reds  []suite
	edits []edit
}

// suite is what must fail: the tests of a package that match a pattern.
type suite struct{ pkg, pattern string }

// edit replaces lines of a file.
type edit struct{ file, before, instead string }

// load reads the mutants with the given names, all of them if there are none.
func load(root string, names []string) (out []mutant, err error) {
	paths, err := filepath.Glob(filepath.Join(root, folder, "*"+suffix))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), suffix)
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		a, err := txtar.ParseFile(path)
		if err != nil {
			return nil, err
		}
		m, err := parse(name, a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, m)
	}
	for _, n := range names {
		if !slices.ContainsFunc(out, func(m mutant) bool { return m.name == n }) {
			return nil, fmt.Errorf("there is no mutant %s in %s", n, folder)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there are no mutants in %s", folder)
	}
	return out, nil
}

var redLine = regexp.MustCompile(`(?m)^red: (\S+) (\S+)$`)

func parse(name string, a *txtar.Archive) (mutant, error) {
	m := mutant{name: name}
	m.what, _, _ = strings.Cut(string(a.Comment), "\n")
	for _, f := range redLine.FindAllStringSubmatch(string(a.Comment), -1) {
		if _, err := regexp.Compile(f[2]); err != nil {
			return m, err
		}
		m.reds = append(m.reds, suite{f[1], f[2]})
	}
	for i := 0; i+1 < len(a.Files); i += 2 {
		if a.Files[i+1].Name != "instead" {
			return m, fmt.Errorf("after the lines of %s comes %q, not what is to stand there instead", a.Files[i].Name, a.Files[i+1].Name)
		}
		m.edits = append(m.edits, edit{a.Files[i].Name, string(a.Files[i].Data), string(a.Files[i+1].Data)})
	}
	switch {
	case m.what == "" || redLine.MatchString(m.what):
		return m, errors.New("its first line does not say what is broken")
	case len(m.reds) == 0:
		return m, errors.New("no `red: PACKAGE PATTERN` says which tests must notice")
	case len(m.edits) == 0 || len(a.Files)%2 != 0:
		return m, errors.New("it changes nothing: want pairs of `-- FILE --` and `-- instead --`")
	}
	return m, nil
}

// apply returns the files that m changes, as they are with it.
func (m mutant) apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		text, ok := files[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = "\n" + string(b) // so that each line begins after a line's end
		}
		if n := strings.Count(text, "\n"+e.before); n != 1 || e.before == "" {
			return nil, fmt.Errorf("its lines of %s stand there %d times, not once; give %s/%s%s what the code is like now:\n%s",
				e.file, n, folder, m.name, suffix, indent(e.before))
		}
		files[e.file] = strings.Replace(text, "\n"+e.before, "\n"+e.instead, 1)
	}
	for file, text := range files {
		files[file] = text[1:]
	}
	return files, nil
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n    ")
}

// overlay writes m's files into dir and returns the path of a list of them for `go build -overlay`.
func (m mutant) overlay(root, dir string) (string, error) {
	files, err := m.apply(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range files {
		copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = copied
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, b, 0o600)
}

// errSurvived reports a mutant that nothing noticed.
var errSurvived = errors.New("it survives")

// try applies m and runs what must notice it. It returns which tests did.
func (m mutant) try(ctx context.Context, root, dir string) (noticed []string, err error) {
	list, err := m.overlay(root, dir)
	if err != nil {
		return nil, err
	}
	built := map[string]string{}
	for _, s := range m.reds {
		bin, ok := built[s.pkg]
		if !ok {
			bin = filepath.Join(dir, strings.Map(func(r rune) rune {
				if r == '/' || r == '.' {
					return '_'
				}
				return r
			}, s.pkg)+".test")
			build := command(ctx, root, "go", "test", "-c", "-overlay", list, "-o", bin, s.pkg)
			if out, err := build.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("it does not build: %w\n%s", err, out)
			}
			built[s.pkg] = bin
		}
		test := command(ctx, filepath.Join(root, s.pkg), bin, "-test.short", "-test.failfast", "-test.timeout", limit.String(), "-test.run", s.pattern)
		out, err := test.CombinedOutput()
		if err == nil {
			return noticed, fmt.Errorf("%w: %s -run '%s' is green", errSurvived, s.pkg, s.pattern)
		}
		first := failed.FindSubmatch(out)
		if first == nil {
			return noticed, fmt.Errorf("no test of %s has failed, but: %w\n%s", s.pkg, err, out)
		}
		noticed = append(noticed, string(first[1]))
	}
	return noticed, nil
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// command is a command that an interrupt ends in order.
func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	return c
}

// control runs, with no mutant, all that is to be red with one.
func control(ctx context.Context, root string, all []mutant) error {
	patterns := map[string][]string{}
	var pkgs []string
	for _, m := range all {
		for _, s := range m.reds {
			if patterns[s.pkg] == nil {
				pkgs = append(pkgs, s.pkg)
			}
			if !slices.Contains(patterns[s.pkg], s.pattern) {
				patterns[s.pkg] = append(patterns[s.pkg], s.pattern)
			}
		}
	}
	slices.Sort(pkgs)
	for _, p := range pkgs {
		// Not -count=1: what has just been run need not be run again.
		out, err := command(ctx, root, "go", "test", "-short", "-run", strings.Join(patterns[p], "|"), p).CombinedOutput()
		if err == nil && bytes.Contains(out, []byte("no tests to run")) {
			err = errors.New("no test matches")
		}
		if err != nil {
			return fmt.Errorf("%s is not green without mutants: %w\n%s", p, err, out)
		}
	}
	return nil
}

// run tries mutants, prints a line for each, and reports whether all were noticed.
func run(ctx context.Context, root string, names []string) bool {
	began := time.Now()
	root, err := filepath.Abs(root)
	if err != nil {
		fmt.Println("mutants:", err)
		return false
	}
	all, err := load(root, names)
	if err == nil {
		err = control(ctx, root, all)
	}
	if err != nil {
		fmt.Println("mutants:", err)
		return false
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		fmt.Println("mutants:", err)
		return false
	}
	defer os.RemoveAll(temp)

	var (
		wg                sync.WaitGroup
		mu                sync.Mutex // of what is printed and counted
		slots             = make(chan struct{}, atOnce)
		survivors, broken []string
	)
	for _, m := range all {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			start := time.Now()
			var noticed []string
			dir, err := os.MkdirTemp(temp, m.name)
			if err == nil {
				noticed, err = m.try(ctx, root, dir)
				_ = os.RemoveAll(dir)
			}
			took := time.Since(start).Round(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				fmt.Printf("red       %-58s %6v  %s\n", m.name, took, strings.Join(noticed, ", "))
			case errors.Is(err, errSurvived):
				survivors = append(survivors, m.name)
				fmt.Printf("SURVIVED  %-58s %6v  %s\n    %v\n", m.name, took, m.what, err)
			default:
				broken = append(broken, m.name)
				fmt.Printf("BROKEN    %-58s %6v  %v\n", m.name, took, err)
			}
		})
	}
	wg.Wait()
	fmt.Printf("mutants: %d noticed of %d in %v\n", len(all)-len(survivors)-len(broken), len(all), time.Since(began).Round(time.Second))
	if ctx.Err() != nil {
		fmt.Println("mutants: interrupted")
		return false
	}
	for what, names := range map[string][]string{"nothing notices": survivors, "these show nothing": broken} {
		if len(names) > 0 {
			slices.Sort(names)
			fmt.Printf("mutants: %s: %s\n", what, strings.Join(names, ", "))
		}
	}
	return len(survivors)+len(broken) == 0
}
