package scenario

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// story prints, while a scenario runs, its phases and verbs with the time since it began.
// go test shows it with -v, and when the scenario fails.
type story struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
	lines []string // of the script, what has been told already cut off
}

func newStory(out io.Writer, script string) *story {
	s := &story{out: out, began: time.Now()}
	for line := range strings.Lines(script) {
		s.lines = append(s.lines, strings.TrimRight(line, "\n"))
	}
	return s
}

// verb tells of the line that calls verb, and of the comments above it. Lines of testscript's own commands in between are
// told as they are.
func (s *story) verb(verb string) {
	for i, line := range s.lines {
		if w := commandOf(line); w != verb {
			continue
		}
		for _, l := range s.lines[:i+1] {
			if l = strings.TrimSpace(l); l != "" {
				s.tell("%s", l)
			}
		}
		s.lines = s.lines[i+1:]
		return
	}
	s.tell("%s", verb)
}

// note tells something that happened by itself.
func (s *story) note(format string, args ...any) { s.tell("    "+format, args...) }

func (s *story) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%7.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// commandOf is the command of a script's line, conditions and negation skipped; "" if there is none.
func commandOf(line string) string {
	for _, w := range strings.Fields(line) {
		if strings.HasPrefix(w, "#") {
			return ""
		}
		if w == "!" || strings.HasPrefix(w, "[") {
			continue
		}
		return w
	}
	return ""
}
