// Command fuzz runs every fuzz target of the module for a while, one process each, and says what came of it: executions, inputs that reached something new,
// and a failure in full, whose input is left under testdata/fuzz of its package: commit it, it is a test from then on.
//
//	go run ./tools/fuzz [-keep] NAME TIME [PATTERN]
//
// NAME is how the last line calls the whole; TIME is spent on each target; PATTERN is a regular expression for "PACKAGE TARGET". Each target begins with the committed inputs, which alone run
// in every `go test`. With -keep it begins with those as well that earlier runs have found, and keeps its own, where `go test -fuzz` does, in Go's cache: to read them all again takes
// longer than a short run has.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	keep := flag.Bool("keep", false, "begin with what earlier runs have found, and keep what this one finds")
	flag.Parse()
	if flag.NArg() < 2 || flag.NArg() > 3 {
		fmt.Fprintln(os.Stderr, "usage: fuzz [-keep] NAME TIME [PATTERN]")
		os.Exit(2)
	}
	name, limit := flag.Arg(0), flag.Arg(1)
	start := time.Now()
	s, err := runAll(limit, flag.Arg(2), *keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d targets, %d failed, %d executions in %v\n", name, s.targets, s.failed, s.executions, time.Since(start).Round(time.Second))
	if s.failed > 0 || s.targets == 0 {
		os.Exit(1)
	}
}

type sum struct{ targets, executions, failed int }

// runAll builds package by package, and runs the targets side by side as they are built.
func runAll(limit, pattern string, keep bool) (s sum, err error) {
	only, err := regexp.Compile(pattern)
	if err != nil {
		return s, err
	}
	all, err := find(".")
	if err != nil {
		return s, err
	}
	work, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(work)
	cache := work
	if keep {
		out, err := exec.Command("go", "env", "GOCACHE").Output()
		if err != nil {
			return s, err
		}
		cache = filepath.Join(strings.TrimSpace(string(out)), "fuzz", "holdfast")
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex // guards s, and the output
	free := make(chan struct{}, runtime.NumCPU())
	binary, built := "", ""
	for _, t := range all {
		if !only.MatchString(t.String()) {
			continue
		}
		free <- struct{}{}
		if built != t.folder {
			built, binary = t.folder, filepath.Join(work, strings.ReplaceAll(t.folder, string(filepath.Separator), "_")+".test")
			if out, err := exec.Command("go", "test", "-c", "-fuzz", ".", "-o", binary, "./"+t.folder).CombinedOutput(); err != nil {
				return s, fmt.Errorf("%s: %w\n%s", t.folder, err, out)
			}
		}
		s.targets++
		binary := binary
		wg.Go(func() {
			r := run(t, binary, limit, filepath.Join(cache, t.folder))
			mu.Lock()
			defer mu.Unlock()
			s.executions += r.executions
			word := "ok  "
			if r.failure != "" {
				s.failed++
				word = "FAIL"
				fmt.Print(r.failure)
			}
			fmt.Printf("%s %v: %d executions in %v, %d new inputs\n", word, t, r.executions, r.took.Round(time.Second), r.found)
			<-free
		})
	}
	wg.Wait()
	return s, nil
}

// target is a fuzz test.
type target struct{ folder, name string }

func (t target) String() string { return filepath.ToSlash(t.folder) + " " + t.name }

var declared = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`)

// find lists the targets below root, in the order of their folders and files.
func find(root string) (all []target, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(b, -1) {
			all = append(all, target{filepath.Dir(path), string(m[1])})
		}
		return err
	})
	return all, err
}

// memory is where files cost no writing (shm_overview(7)).
const memory = "/dev/shm"

type result struct {
	executions, found int
	took              time.Duration
	failure           string
}

// run fuzzes one target, with one worker: several targets run side by side. Inputs are hardly made smaller: that takes most of the time of a target that is slow.
func run(t target, binary, limit, cache string) (r result) {
	start := time.Now()
	cmd := exec.Command(binary, "-test.run=^$", "-test.fuzz=^"+t.name+"$", "-test.fuzztime="+limit, "-test.fuzzminimizetime=10x", "-test.parallel=1", "-test.fuzzcachedir="+cache)
	cmd.Dir = t.folder
	if _, err := os.Stat(memory); err == nil { // what a target writes is not worth a disk's time
		cmd.Env = append(os.Environ(), "TMPDIR="+memory)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	r.took = time.Since(start)
	r.executions, r.found = progress(out.String())
	// The end of its time in the middle of an execution may be taken for a failure.
	cutShort := strings.Contains(out.String(), "context deadline exceeded") && !strings.Contains(out.String(), "Failing input")
	switch {
	case err != nil && !cutShort:
		r.failure = fmt.Sprintf("%s%v\n", out.String(), err)
	case r.executions == 0 && !strings.Contains(out.String(), "gathering baseline coverage"): // of a busy machine, which has got no further than the committed inputs
		r.failure = out.String() + "nothing was executed\n"
	}
	return r
}

var told = regexp.MustCompile(`fuzz: elapsed: .*, execs: (\d+) .*new interesting: (\d+)`)

// progress reads the last line that says how far it is.
func progress(out string) (executions, found int) {
	all := told.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return 0, 0
	}
	last := all[len(all)-1]
	executions, _ = strconv.Atoi(last[1])
	found, _ = strconv.Atoi(last[2])
	return executions, found
}
