// Command suite runs one suite of tests and says what came of it: its time, its failures in full, and a line for each test that was left out with
// what enables it. With CI=true leaving out is failing.
//
//	go run ./tools/suite [-times] NAME [go test arguments]
//
// With -times it says of each test how long it took, as soon as it has passed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// event is what `go test -json` prints (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
	ImportPath                    string // of a build that failed
	FailedBuild                   string
}

func main() {
	times := len(os.Args) > 1 && os.Args[1] == "-times"
	if times {
		os.Args = os.Args[1:]
	}
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: suite [-times] NAME [go test arguments]")
		os.Exit(2)
	}
	name, args := os.Args[1], os.Args[2:]
	start := time.Now()
	s, err := run(args, os.Stdout, times)
	took := time.Since(start).Round(time.Second)
	leaveOut(name, s.skipped)
	fmt.Printf("%s: %d passed, %d failed, %d skipped in %v\n", name, s.passed, s.failed, len(s.skipped), took)
	switch {
	case err != nil:
		fmt.Printf("%s: %v\n", name, err)
		os.Exit(1)
	case s.failed > 0 || s.passed == 0:
		os.Exit(1)
	case len(s.skipped) > 0 && os.Getenv("CI") == "true":
		fmt.Printf("%s: CI=true, and leaving out is failing\n", name)
		os.Exit(1)
	}
}

// leaveOut says what was left out; to the file that SUITE_LEFT_OUT names as well, for whoever runs several suites and says it all at the end.
func leaveOut(suite string, skipped []string) {
	var out []io.Writer
	if path := os.Getenv("SUITE_LEFT_OUT"); path != "" && len(skipped) > 0 {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		} else {
			defer f.Close()
			out = append(out, f)
		}
	}
	for _, l := range skipped {
		fmt.Fprintf(io.MultiWriter(append(out, os.Stdout)...), "left out of %s: %s\n", suite, l)
	}
}

// result counts tests without subtests of their own, and failed packages.
type result struct {
	passed, failed int
	skipped        []string
}

func run(args []string, out io.Writer, times bool) (result, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	r := count(pipe, out, times)
	if err := cmd.Wait(); err != nil && r.failed == 0 {
		return r, err
	}
	return r, nil
}

func count(in io.Reader, out io.Writer, times bool) result {
	var r result
	said := map[string][]string{} // output of a test or package, until it is known to be needed
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text())
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output":
			said[key] = append(said[key], e.Output)
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "pass":
			if e.Test != "" {
				r.passed++
				if times {
					fmt.Fprintf(out, "%6.1f s  %s\n", e.Elapsed, strings.ReplaceAll(e.Test, "_", " "))
				}
			}
			delete(said, key)
		case "skip":
			if e.Test != "" {
				r.skipped = append(r.skipped, e.Test+": "+reason(said[key]))
			}
			delete(said, key)
		case "fail":
			r.failed++
			for _, l := range said[key] {
				fmt.Fprint(out, l)
			}
			delete(said, key)
		}
	}
	return r
}

// reason is what a test said when it skipped itself.
func reason(output []string) string {
	output = slices.DeleteFunc(slices.Clone(output), func(l string) bool {
		return strings.HasPrefix(strings.TrimSpace(l), "===") || strings.HasPrefix(strings.TrimSpace(l), "---")
	})
	var words []string
	for _, l := range output {
		words = append(words, strings.TrimSpace(l))
	}
	return strings.Join(words, " ")
}
