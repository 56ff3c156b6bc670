package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
)

// printer writes text for people. It colours only a terminal, and only one that does not ask not to be (https://no-color.org).
type printer struct {
	w      io.Writer
	colour bool
	width  int  // of the terminal, 0 if it is none: then nothing is broken into lines
	ascii  bool // the locale has no °
}

func newPrinter(w io.Writer) printer {
	p := printer{w: w, ascii: !localeIsUTF8(os.Getenv)}
	if isTerminal(w) {
		p.colour = os.Getenv("NO_COLOR") == ""
		if size, err := unix.IoctlGetWinsize(int(w.(*os.File).Fd()), unix.TIOCGWINSZ); err == nil {
			p.width = int(size.Col)
		}
	}
	return p
}

// localeIsUTF8 reports whether the locale of whoever reads has characters beyond ASCII (locale(7): the first that is set counts).
func localeIsUTF8(env func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := env(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// inASCII spells what Holdfast itself writes beyond ASCII. What people have written (a revision's subject, a file's name) is theirs.
var inASCII = strings.NewReplacer("·", "-", "°", "", "…", "...", "µ", "u", "–", "-", "—", "-")

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
}

type paint string

const (
	plain  paint = ""
	bold   paint = "1"
	faint  paint = "2"
	red    paint = "31"
	green  paint = "32"
	yellow paint = "33"
)

// painted is text that is written as it is. All other text is shown: what others have written must move no cursor and turn no direction.
type painted string

func (p printer) paint(c paint, s string) painted {
	s = shown(s)
	if !p.colour || c == plain || s == "" {
		return painted(s)
	}
	return painted("\x1b[" + string(c) + "m" + s + "\x1b[0m")
}

// shown is s with a blank for everything that is not printable: it is one line, and a terminal obeys nothing in it.
func shown(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

func (p printer) line(format string, args ...any) {
	for i, a := range args {
		if _, ours := a.(painted); ours {
			continue
		}
		if s := fmt.Sprint(a); shown(s) != s {
			args[i] = shown(s)
		}
	}
	text := fmt.Sprintf(format+"\n", args...)
	if p.ascii {
		text = inASCII.Replace(text)
	}
	io.WriteString(p.w, text)
}

// paragraph writes text behind a sign, broken between words where a terminal ends, the further lines below the first one's text.
func (p printer) paragraph(sign painted, c paint, text string) {
	indent := painted(strings.Repeat(" ", utf8.RuneCountInString(colours.ReplaceAllString(string(sign), ""))))
	room := p.width - len(indent)
	line := ""
	for _, word := range strings.Fields(text) {
		if p.width > 0 && line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > room {
			p.line("%s%s", sign, p.paint(c, line))
			sign, line = indent, ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	p.line("%s%s", sign, p.paint(c, line))
}

// colours are what paint writes.
var colours = regexp.MustCompile("\x1b\\[[0-9]*m")

// mostLines is how many lines of one text are shown: a file with a hundred errors must not push everything else off the screen.
const mostLines = 12

// item writes a text of one or more lines behind a sign, the further ones below it.
func (p printer) item(sign painted, text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	p.line("%s %s", sign, lines[0])
	indent := strings.Repeat(" ", len(sign)-len(strings.TrimLeft(string(sign), " "))+4)
	for i, l := range lines[1:] {
		if i == mostLines {
			p.line("%sand %d more lines, all of them in 'holdfast status --json'", indent, len(lines)-1-i)
			break
		}
		p.line("%s%s", indent, l)
	}
}

// cell is one field of a table.
type cell struct {
	text  string
	paint paint
}

// table writes rows in columns as wide as their widest cell, the last one ragged.
func (p printer) table(indent string, rows [][]cell) {
	var widths []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if r[i].text = shown(c.text); p.ascii {
				r[i].text = inASCII.Replace(r[i].text)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i].text))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		b.WriteString(indent)
		gap := 0
		for i, c := range r {
			if c.text != "" { // trailing blanks are never written
				b.WriteString(strings.Repeat(" ", gap))
				b.WriteString(string(p.paint(c.paint, c.text)))
				gap = 0
			}
			gap += widths[i] - utf8.RuneCountInString(c.text) + 2
		}
		p.line("%s", painted(b.String()))
	}
}

func shortRevision(r string) string {
	if r == "" {
		return "-"
	}
	return r[:min(7, len(r))]
}

func shortDigest(d bootslot.Digest) string {
	if d == "" {
		return "-"
	}
	return d.Short()
}

func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
