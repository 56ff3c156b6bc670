package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// now stands for what depends on when the test runs, and where.
var now = []struct {
	is   *regexp.Regexp
	text string
}{
	{regexp.MustCompile(`\b[0-9dhms]+ ago`), "SOME TIME ago"},
	{regexp.MustCompile(`Suspended for \S+, until [-0-9]+ [0-9:]{8}`), "Suspended for A WHILE, until THEN"},
}

// TestTexts: what people are shown stands in testdata/texts, one file for each situation, to be read as they would.
func TestTexts(t *testing.T) {
	dead := newBoard(t)
	dead.keepLedger()
	boards := map[string]boardDir{"nobody there": newBoard(t), "everybody dead": dead}
	for name, b := range liveBoards(t) {
		boards[name] = b
	}
	for name, b := range boards {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.t = t
			var text strings.Builder
			for _, args := range [][]string{{"status"}, {"status", "--oneline"}, {"why", "lamp"}, {"why", "fan"}, {"diff"}, {"diff", "previous"}, {"marks"}, {"history"}, {"slots"}, {"selftest"},
				{"rollback", "--dry-run"}, {"rollback", "--to", "fallback", "--dry-run"}, {"reconcile", "--timeout", "5s"}, {"suspend", "--for", "2h", "--repair"}, {"retry"}, {"resume"}} {
				code, out, errOut := b.do(args...)
				fmt.Fprintf(&text, "$ holdfast %s\n%s%s[exit code %d]\n\n", strings.Join(args, " "), out, errOut, code)
			}
			got := strings.ReplaceAll(text.String(), b.dir, "DIR")
			for _, n := range now {
				got = n.is.ReplaceAllString(got, n.text)
			}
			golden(t, filepath.Join("testdata", "texts", strings.ReplaceAll(name, " ", "-")+".txt"), got)
		})
	}
}
