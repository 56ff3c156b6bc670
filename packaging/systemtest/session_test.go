//go:build system

package systemtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const sessionPage = "../../docs/session.md"

// The session of docs/session.md, typed as it stands there: every command must end as it did when it was recorded, and what a verb of holdfast says first
// must be the same, but for numbers. With SESSION_RECORD=1 the page is written anew.
func TestSession(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(sessionPage)
	if err != nil {
		t.Fatal(err)
	}
	b := newBoard(t)
	for _, name := range []string{"holdfast", "holdfast-greenhouse"} {
		b.host("cp", built(t, name), filepath.Join(b.root, "root"))
	}
	b.host("mkdir", filepath.Join(b.root, "root/new"))
	b.host("cp", nextPackage(t), filepath.Join(b.root, "root/new"))
	b.boot()

	record := os.Getenv("SESSION_RECORD") != ""
	blocks := regexp.MustCompile("(?ms)^```console\n(.*?)^```$")
	played := blocks.ReplaceAllStringFunc(string(page), func(block string) string {
		body := blocks.FindStringSubmatch(block)[1]
		var said strings.Builder
		for _, c := range parseSession(t, body) {
			out, exit := b.typed(c)
			text := c.typed
			if exit != 0 {
				text += fmt.Sprintf("    # exit %d", exit)
			}
			said.WriteString(text + "\n")
			if out != "" {
				said.WriteString(out + "\n")
			}
			if record {
				continue
			}
			if exit != c.exit {
				t.Errorf("%s\nexit %d, and %d when it was recorded\n%s", c.typed, exit, c.exit, out)
			}
			if got, want := firstLine(out), firstLine(c.out); strings.Contains(c.script, "holdfast ") && got != want {
				t.Errorf("%s\nsays        %q,\nrecorded is %q", c.typed, got, want)
			}
		}
		return "```console\n" + said.String() + "```"
	})
	if record {
		if err := os.WriteFile(sessionPage, []byte(played), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// entry is one command of a session and what came of it.
type entry struct {
	typed  string // with its prompts, without what is said of its exit status
	board  bool   // else the laptop
	script string
	exit   int
	out    string
}

// parseSession reads a block: "board# " and "laptop$ " are prompts, "> " goes on with a command, the rest is what it said.
func parseSession(t *testing.T, body string) []entry {
	t.Helper()
	var all []entry
	for _, line := range strings.Split(strings.TrimSuffix(body, "\n"), "\n") {
		script, onBoard := strings.CutPrefix(line, "board# ")
		laptop, onLaptop := strings.CutPrefix(line, "laptop$ ")
		more, goesOn := strings.CutPrefix(line, "> ")
		switch {
		case onBoard || onLaptop:
			e := entry{board: onBoard, script: script}
			if onLaptop {
				e.script = laptop
			}
			if m := regexp.MustCompile(`    # exit (\d+)$`).FindStringSubmatchIndex(line); m != nil {
				fmt.Sscan(line[m[2]:m[3]], &e.exit)
				line = line[:m[0]]
			}
			e.typed = line
			all = append(all, e)
		case len(all) == 0:
			t.Fatalf("%s: a block begins with %q, which is no command", sessionPage, line)
		case goesOn && all[len(all)-1].out == "":
			e := &all[len(all)-1]
			e.typed += "\n" + line
			e.script += "\n" + more
		default:
			e := &all[len(all)-1]
			e.out += line + "\n"
		}
	}
	return all
}

// typed carries a command out where it is typed.
func (b *board) typed(c entry) (out string, exit int) {
	b.Helper()
	var err error
	if c.board {
		out, err = b.try("cd; " + c.script)
	} else {
		b.up.pushes++ // its clock
		cmd := exec.Command("sh", "-c", c.script)
		cmd.Dir, cmd.Env = b.up.work, b.up.env()
		var said []byte
		said, err = cmd.CombinedOutput()
		out = strings.TrimRight(string(said), "\n")
	}
	// as a terminal shows it: a carriage return begins a line anew
	out = regexp.MustCompile(`(?m)^.*\r([^\r\n])`).ReplaceAllString(out, "$1")
	out = strings.ReplaceAll(out, "\r", "")
	if code := (*exec.ExitError)(nil); errors.As(err, &code) {
		return out, code.ExitCode()
	} else if err != nil {
		b.Fatalf("%s: %v\n%s", c.typed, err, out)
	}
	return out, 0
}

// firstLine is the first line of what was said, with every number and revision taken out.
func firstLine(out string) string {
	line, _, _ := strings.Cut(out, "\n")
	return regexp.MustCompile(`\b[0-9a-f]{7,}\b|[0-9]+`).ReplaceAllString(line, "#")
}
