package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

func TestLocale(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  string
		want bool
	}{
		{"", false}, {"LANG=C", false}, {"LANG=de_DE.UTF-8", true}, {"LANG=en_US.utf8", true}, {"LC_ALL=C LANG=en_US.UTF-8", false},
		{"LC_CTYPE=C.UTF-8 LANG=C", true}, {"LC_ALL= LANG=C.UTF-8", true}, {"LANG=de_DE@euro", false},
	} {
		got := localeIsUTF8(func(name string) string {
			for _, kv := range strings.Fields(tt.env) {
				if k, v, _ := strings.Cut(kv, "="); k == name {
					return v
				}
			}
			return ""
		})
		if got != tt.want {
			t.Errorf("%q: %v, want %v", tt.env, got, tt.want)
		}
	}
}

// TestASCII: what Holdfast writes itself is spelt in ASCII; what people have written is theirs.
func TestASCII(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := printer{w: &b, ascii: true}
	p.item("  ·", "temperature is 41.2 °C… (\"Tür zu\")")
	p.table("", [][]cell{cells("41 °C", "x"), cells("long one", "y")})
	if want := "  - temperature is 41.2 C... (\"Tür zu\")\n41 C      x\nlong one  y\n"; b.String() != want {
		t.Errorf("got\n%q\nwant\n%q", b.String(), want)
	}
}

// TestShown: a terminal obeys only what Holdfast itself writes to it.
func TestShown(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b[2J\u009b2J\u202eb\nc\x7f\xff"
	const blank = "a [2J 2J b c \ufffd"
	var b bytes.Buffer
	p := printer{w: &b, colour: true}
	p.line("%s|%v|%d %q", hostile, errors.New(hostile), 7, "\n")
	p.item(p.paint(red, "!\x1b"), hostile)
	p.table("", [][]cell{{{hostile, yellow}, {"x", plain}}})
	want := blank + "|" + blank + "|7 \" \"\n\x1b[31m! \x1b[0m a [2J 2J b\n    c \ufffd\n\x1b[33m" + blank + "\x1b[0m  x\n"
	if b.String() != want {
		t.Errorf("got\n%q\nwant\n%q", b.String(), want)
	}
	b.Reset()
	if err := printJSON(&b, map[string]string{"a": hostile + "\U000e0001ä"}); err != nil {
		t.Fatal(err)
	}
	if want := `{` + "\n" + `  "a": "a\u001b[2J\u009b2J\u202eb\nc\u007f\ufffd\udb40\udc01ä"` + "\n}\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestItem: what has several lines stays in its place, and does not push everything else away.
func TestItem(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := printer{w: &b}
	p.item("  !", status.Explain("the configuration cannot be used", errors.New("a:1:1: one\na:2:1: two")))
	if want := "  ! the configuration cannot be used:\n      a:1:1: one\n      a:2:1: two\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	p.item("!", "bad:"+strings.Repeat("\nx", 30))
	if got := b.String(); strings.Count(got, "\n") != mostLines+2 || !strings.Contains(got, "    and 18 more lines") {
		t.Errorf("got\n%s", got)
	}
}

// TestScreen: on a terminal one view is written over the other, when it differs; elsewhere below it, and not for the seconds that run.
func TestScreen(t *testing.T) {
	t.Parallel()
	view := func(phase api.Phase, seconds float64) status.View {
		return status.View{Phase: phase, Trial: &status.Trial{EndsInSeconds: seconds}}
	}
	views := []status.View{view("trial", 5), view("trial", 5), view("trial", 4), view("idle", 4)}
	write := func(w io.Writer, v status.View) error {
		_, err := io.WriteString(w, string(v.Phase)+" "+span(v.Trial.EndsInSeconds)+"\n")
		return err
	}
	for _, tt := range []struct {
		name    string
		inPlace bool
		want    string
	}{
		{"terminal", true, "\x1b[Htrial 5s\x1b[K\n\x1b[J\x1b[Htrial 4s\x1b[K\n\x1b[J\x1b[Hidle 4s\x1b[K\n\x1b[J"},
		{"pipe", false, "trial 5s\n\nidle 4s\n"},
	} {
		var b bytes.Buffer
		s := screen{w: &b, inPlace: tt.inPlace, gap: true}
		for _, v := range views {
			if err := s.show(v, write); err != nil {
				t.Fatal(err)
			}
		}
		if b.String() != tt.want {
			t.Errorf("%s: got\n%q\nwant\n%q", tt.name, b.String(), tt.want)
		}
	}
}

// TestMarkOfARollback: the newest mark in the list need not be the rollback's, which may live on in another.
func TestMarkOfARollback(t *testing.T) {
	t.Parallel()
	left := bootslot.Release{Fields: device.Fields{"lamp": "on"}}
	mark := func(id uint64, of ...bootslot.Digest) bootslot.Mark { return bootslot.Mark{ID: id, Candidates: of} }
	idle := api.State{LastKnownGood: left}
	inTrial := api.State{LastKnownGood: bootslot.Release{}, Ledger: bootslot.Ledger{Trial: &bootslot.Trial{Digest: left.Digest()}}}
	returning := api.State{Ledger: bootslot.Ledger{Returning: &bootslot.Returning{Mark: 4, Digest: left.Digest()}}}
	for _, tt := range []struct {
		name   string
		before api.State
		marks  []bootslot.Mark
		want   uint64
	}{
		{"a new one", idle, []bootslot.Mark{mark(4), mark(9, left.Digest())}, 9},
		{"folded into an older one", idle, []bootslot.Mark{mark(3), mark(4, "x", left.Digest()), mark(7)}, 4},
		{"a trial's, folded", inTrial, []bootslot.Mark{mark(4, left.Digest()), mark(7)}, 4},
		{"returning, which made no new one", returning, []bootslot.Mark{mark(4, left.Digest()), mark(7)}, 4},
		{"a retired one keeps nothing back", idle, []bootslot.Mark{{ID: 9, Retired: true, Candidates: []bootslot.Digest{left.Digest()}}}, 0},
	} {
		if m, ok := rollbackMark(tt.marks, tt.before, 9); m.ID != tt.want || ok != (tt.want != 0) {
			t.Errorf("%s: %d, want %d", tt.name, m.ID, tt.want)
		}
	}
}

// TestAwaitNews: a watcher looks when there is news, and does not wait for it any longer than it must.
func TestAwaitNews(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.serve("guard.sock", map[string]any{"GET /v1/state": api.State{Change: 8}})
	board := place{config: b.config}.open()
	start := time.Now()
	board.awaitNews(t.Context(), status.Sources{Guard: &api.State{Change: 7}, Agent: nil})
	if took := time.Since(start); took >= watchEvery {
		t.Errorf("it took %v though the guard had news", took)
	}
	start = time.Now()
	board.awaitNews(t.Context(), status.Sources{})
	if took := time.Since(start); took < watchEvery {
		t.Errorf("it took %v though nobody answers", took)
	}
}

func TestGitText(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.Local)
	got := gitText(status.Git{State: status.GitOffline, Since: at, LastFetch: at, NextInSeconds: 30})
	if want := "last good fetch 2026-05-01 12:00:00, next try in 30s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got = gitText(status.Git{State: status.GitOK, Since: at, RemoteRevision: "0123456789abcdef", NextInSeconds: 30})
	if want := "ok since 2026-05-01 12:00:00, head 0123456"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := processText(status.Process{State: status.ProcessUnreachable, Why: "x"}); got != "not reachable (x)" {
		t.Errorf("process %q", got)
	}
}
