// Command fuzz runs every fuzz target of the module for a while, one process each, and says what came of it: executions, inputs that reached something new,
// and a failure in full, whose input is left under testdata/fuzz of its package: commit it, it is a test from then on.
//
//	go run ./tools/fuzz NAME TIME [PATTERN]
//
// NAME is how the last line calls the whole; TIME is spent on each target; PATTERN is a regular expression for "PACKAGE TARGET". The committed inputs alone run in
// every `go test`.
package main

import (
	"bytes"
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
	if len(os.Args) < 3 || len(os.Args) > 4 {
		fmt.Fprintln(os.Stderr, "usage: fuzz NAME TIME [PATTERN]")
		os.Exit(2)
	}
	pattern := ""
	if len(os.Args) == 4 {
		pattern = os.Args[3]
	}
	only, err := regexp.Compile(pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	all, err := find(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	start := time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex // guards what follows, and the output
	targets, executions, failed := 0, 0, 0
	slots := make(chan struct{}, runtime.NumCPU())
	for _, t := range all {
		if !only.MatchString(t.String()) {
			continue
		}
		targets++
		slots <- struct{}{}
		wg.Go(func() {
			r := run(t, os.Args[2])
			mu.Lock()
			defer mu.Unlock()
			executions += r.executions
			if r.failure != "" {
				failed++
				fmt.Print(r.failure)
			}
			fmt.Printf("%s %v: %d executions in %v, %d new inputs\n", map[bool]string{true: "ok  ", false: "FAIL"}[r.failure == ""], t, r.executions, r.took.Round(time.Second), r.found)
			<-slots
		})
	}
	wg.Wait()
	fmt.Printf("%s: %d targets, %d failed, %d executions in %v\n", os.Args[1], targets, failed, executions, time.Since(start).Round(time.Second))
	if failed > 0 || targets == 0 {
		os.Exit(1)
	}
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

// run fuzzes one target. One worker is enough: several targets run side by side. Inputs are hardly made smaller: that takes most of the time of a target that is slow.
func run(t target, limit string) (r result) {
	start := time.Now()
	cmd := exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", limit, "-fuzzminimizetime", "10x", "-parallel", "1", "./"+t.folder)
	if _, err := os.Stat(memory); err == nil { // what a target writes is not worth a disk's time
		cmd.Env = append(os.Environ(), "GOTMPDIR="+os.TempDir(), "TMPDIR="+memory)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	r.took = time.Since(start)
	r.executions, r.found = progress(out.String())
	// go test may take the end of its time in the middle of an execution for a failure.
	cutShort := strings.Contains(out.String(), "context deadline exceeded") && !strings.Contains(out.String(), "Failing input")
	switch {
	case err != nil && !cutShort:
		r.failure = fmt.Sprintf("%s%v\n", out.String(), err)
	case r.executions == 0:
		r.failure = out.String() + "nothing was executed\n"
	}
	return r
}

var told = regexp.MustCompile(`fuzz: elapsed: .*, execs: (\d+) .*new interesting: (\d+)`)

// progress reads the last line that go test has printed of how far it is.
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
