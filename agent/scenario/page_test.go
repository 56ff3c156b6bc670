package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

const pages = "../../docs"

// block is one fenced block of a page of docs.
type block struct {
	section string // the heading above it
	line    int    // of its first line in the page
	info    string // what stands behind the fence, such as "console" or "yaml greenhouse.yaml"
	text    string
}

// blocksOf reads the fenced blocks of a page.
func blocksOf(page string) (blocks []block) {
	section, open := "", false
	for i, line := range strings.Split(page, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !open:
			blocks, open = append(blocks, block{section: section, line: i + 2, info: info}), true
		case fence:
			open = false
		case open:
			blocks[len(blocks)-1].text += line + "\n"
		case strings.HasPrefix(line, "#"):
			section = strings.TrimLeft(line, "# ")
		}
	}
	return blocks
}

// said is one command of a console block, and what the page says that it prints.
type said struct {
	args []string
	exit int
	want string
}

var exits = regexp.MustCompile(`^exit ([12])$`)

// commandsOf reads a console block. A command is a line "$ holdfast ARGS…", with "# exit 1" behind it if that is its exit code.
func commandsOf(text string) (list []said, err error) {
	for line := range strings.Lines(text) {
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case is:
			command, remark, _ := strings.Cut(command, "#")
			args := strings.Fields(command)
			if len(args) < 2 || args[0] != "holdfast" {
				return nil, fmt.Errorf("%q is not a command of holdfast", command)
			}
			s := said{args: args[1:]}
			if m := exits.FindStringSubmatch(strings.TrimSpace(remark)); m != nil {
				s.exit, _ = strconv.Atoi(m[1])
			}
			list = append(list, s)
		case len(list) == 0:
			return nil, fmt.Errorf("%q stands before any command", line)
		default:
			list[len(list)-1].want += line
		}
	}
	return list, nil
}

// prints reports whether got is what a page shows: word for word, but that "…" is anything in a line, and a line of it alone any lines.
func prints(want, got string) bool {
	var b strings.Builder
	for line := range strings.Lines(want) {
		line = strings.TrimRight(line, " \n")
		if strings.TrimSpace(line) == "…" {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + ` *\n`)
	}
	return regexp.MustCompile(`\A` + b.String() + `\n*\z`).MatchString(got)
}

// readers are the verbs that look, and change nothing: root and a member of the group are told the same.
var readers = []string{"status", "why", "diff", "marks", "history", "slots", "selftest", "doctor"}

// page runs the commands of one section of a page, in order, those that only look as a member of the group as well. A block with a file's name behind its language is that file from there on.
func (w *world) page(file, section string) error {
	page, err := os.ReadFile(filepath.Join(pages, file))
	if err != nil {
		return err
	}
	var errs []error
	ran := false
	for _, b := range blocksOf(string(page)) {
		if b.section != section {
			continue
		}
		kind, name, _ := strings.Cut(b.info, " ")
		if kind != "console" {
			if name != "" {
				errs = append(errs, os.WriteFile(filepath.Join(w.archive, name), []byte(b.text), 0o666))
			}
			continue
		}
		list, err := commandsOf(b.text)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", file, b.line, err)
		}
		for _, c := range list {
			ran = true
			people := map[string]func(...string) ([]byte, []byte, error){"": w.holdfast}
			if slices.Contains(readers, c.args[0]) && w.hasMembers() {
				people[" as a member of the group"] = w.asMember
			}
			for who, holdfast := range people {
				out, errOut, err := holdfast(slices.Insert(slices.Clone(c.args), 1, "--config", w.configFile("agent"))...)
				exit := 0
				if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
					exit = failed.ExitCode()
				} else if err != nil {
					return err
				}
				got := string(bytes.Join([][]byte{out, errOut}, nil))
				w.story.note("$ holdfast %s%s\n%s", strings.Join(c.args, " "), who, got)
				if exit != c.exit || !prints(c.want, got) {
					errs = append(errs, fmt.Errorf("%s:%d: `holdfast %s`%s has exit code %d, want %d, and prints\n%s\nThe page says\n%s",
						file, b.line, strings.Join(c.args, " "), who, exit, c.exit, got, c.want))
				}
			}
		}
	}
	if !ran {
		errs = append(errs, fmt.Errorf("%s has no command in a section %q", file, section))
	}
	return errors.Join(errs...)
}

// TestPagesAreRun: each command that a page of docs shows is in a section that a scenario runs.
func TestPagesAreRun(t *testing.T) {
	t.Parallel()
	run := map[string]bool{}
	scripts, err := filepath.Glob(filepath.Join(scenarios, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range scripts {
		a, err := txtar.ParseFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(a.Comment)) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "page "); ok {
				file, section, _ := strings.Cut(rest, " ")
				run[file+"#"+strings.Trim(section, "'")] = true
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(pages, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, f := range files {
		if filepath.Base(f) == "session.md" {
			continue // played on a booted board: packaging/systemtest
		}
		page, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocksOf(string(page)) {
			if !strings.Contains(b.text, "holdfast ") || b.info != "console" && !regexp.MustCompile(`(?m)^(\$ )?holdfast `).MatchString(b.text) {
				continue
			}
			commands++
			if where := filepath.Base(f) + "#" + b.section; b.info != "console" || !run[where] {
				t.Errorf("%s:%d: commands that nothing runs: must be in a block of console, and a scenario needs the line: page %s '%s'", f, b.line, filepath.Base(f), b.section)
			}
		}
	}
	if commands < 5 {
		t.Errorf("%d blocks of commands were found: have the pages another shape?", commands)
	}
}

// notOurs are programs of the system in the blocks of a shell. What they do there is looked at where a whole board is: packaging's own tests.
var notOurs = []string{"install", "apt", "dpkg", "systemctl", "journalctl", "sudo"}

// TestShellBlocks: each line of a block of a shell, in the README and the pages, means something. holdfast is run as it stands there, with nobody to ask, and
// must not call it misuse; holdfast-guard must know its flags, the Makefile its targets, wherever they are named. The README shows every verb.
func TestShellBlocks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	files, err := filepath.Glob(filepath.Join(pages, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^[a-z][a-z-]*:`).FindAllString(string(makefile), -1)
	dir := t.TempDir()
	config := filepath.Join(dir, "holdfast.yaml")
	text := fmt.Sprintf("device: {url: 'http://127.0.0.1:9', timeout: 200ms}\nrepository: {url: /nonexistent}\nstate: %[1]s/state\nrun: %[1]s/run\n", dir)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// run runs a program of ours, for a moment if it does not end by itself, and says what is wrong with its arguments.
	run := func(who string, args ...string) (out string, misuse bool) {
		bin, err := binary(who)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin, args...)
		cmd.Dir = dir
		b, _ := cmd.CombinedOutput()
		return string(b), cmd.ProcessState.ExitCode() == 2 && ctx.Err() == nil
	}
	readme := ""
	for _, f := range append(files, "../../README.md") {
		page, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		readme = string(page) // the last one is
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)").FindAllStringSubmatch(string(page), -1) {
			if !slices.Contains(targets, m[1]+":") {
				t.Errorf("%s: there is no target %s in the Makefile", f, m[1])
			}
		}
		for _, b := range blocksOf(string(page)) {
			if b.info != "sh" {
				continue
			}
			for i, line := range strings.Split(strings.TrimSpace(b.text), "\n") {
				command, _, _ := strings.Cut(line, "#")
				words := strings.Fields(strings.NewReplacer("REVISION", strings.Repeat("7", 40)).Replace(command))
				if len(words) == 0 {
					continue
				}
				out, misuse := "", false
				switch who := words[0]; {
				case who == "holdfast":
					out, misuse = run("agent", append(words[1:], "--config", config)...)
					misuse = misuse && strings.Contains(out, "--help'") // diff has the code 2 for more
				case who == "holdfast-guard":
					out, misuse = run("guard", append(words[1:], "--help")...)
				case who == "make" || slices.Contains(notOurs, who):
				default:
					t.Errorf("%s:%d: nothing tries %s", f, b.line+i, who)
				}
				if misuse {
					t.Errorf("%s:%d: %s:\n%s", f, b.line+i, command, out)
				}
			}
		}
	}
	help, _ := run("agent", "--help")
	verbs := regexp.MustCompile(`(?m)^  ([a-z]+) +[A-Z]`).FindAllStringSubmatch(help, -1)
	if len(verbs) < 18 {
		t.Errorf("%d verbs were found in the help", len(verbs))
	}
	for _, v := range verbs {
		if !strings.Contains(readme, "holdfast "+v[1]) && v[1] != "man" && v[1] != "help" {
			t.Errorf("the README does not show `holdfast %s`", v[1])
		}
	}
}

func TestPrints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, got string
		is        bool
	}{
		{"a\nb\n", "a  \nb\n\n", true},
		{"a\n", "a\nb\n", false},
		{"a\n…\n", "a\nb\nc\n", true},
		{"a\n…\nc\n", "a\nb\n", false},
		{"since … (1 try)\n", "since 2026-11-30 (1 try)\n", true},
		{"since … (1 try)\n", "since 2026-11-30\n (1 try)\n", false},
		{"a.c\n", "abc\n", false},
	} {
		if got := prints(c.want, c.got); got != c.is {
			t.Errorf("prints(%q, %q) = %v, want %v", c.want, c.got, got, c.is)
		}
	}
}
