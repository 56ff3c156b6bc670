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

// line writes a sentence, broken between words where a terminal ends; what is indented or painted stays as it is.
func (p printer) line(format string, args ...any) {
	whole := strings.HasPrefix(format, " ")
	for i, a := range args {
		if _, ours := a.(painted); ours {
			whole = true
			continue
		}
		if s := fmt.Sprint(a); shown(s) != s {
			args[i] = shown(s)
		}
	}
	text := fmt.Sprintf(format, args...)
	if p.ascii {
		text = inASCII.Replace(text)
	}
	if whole {
		io.WriteString(p.w, text+"\n")
		return
	}
	for t := range strings.SplitSeq(text, "\n") {
		for _, l := range p.broken(t, p.width) {
			io.WriteString(p.w, l+"\n")
		}
	}
}

// leastRoom is how many characters a line must have for its text to be broken into several.
const leastRoom = 10

// broken is text in lines of room characters at most, broken between words. It is one line if this is no terminal, or there is no room to speak of.
func (p printer) broken(text string, room int) (lines []string) {
	if room < leastRoom || utf8.RuneCountInString(text) <= room {
		return []string{text}
	}
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > room {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// paragraph writes text behind a sign, broken between words where a terminal ends, the further lines below the first one's text.
func (p printer) paragraph(sign painted, c paint, text string) {
	indent := painted(strings.Repeat(" ", utf8.RuneCountInString(colours.ReplaceAllString(string(sign), ""))))
	for _, line := range p.broken(text, p.width-len(indent)) {
		p.line("%s%s", sign, p.paint(c, line))
		sign = indent
	}
}

// colours are what paint writes.
var colours = regexp.MustCompile("\x1b\\[[0-9]*m")

// mostLines is how many lines of one text are shown: a file with a hundred errors must not push everything else off the screen.
const mostLines = 12

// item writes a text of one or more lines behind a sign, the further ones below it.
func (p printer) item(sign painted, text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	p.paragraph(sign+" ", plain, lines[0])
	indent := strings.Repeat(" ", len(sign)-len(strings.TrimLeft(string(sign), " "))+4)
	for i, l := range lines[1:] {
		if i == mostLines {
			p.line("%sand %d more lines, all of them in 'holdfast status --json'", indent, len(lines)-1-i)
			break
		}
		p.paragraph(painted(indent), plain, l)
	}
}

// cell is one field of a table.
type cell struct {
	text  string
	paint paint
}

// table writes rows in columns as wide as their widest cell, the last one ragged, and broken into lines where a terminal ends.
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
		last, at := &r[len(r)-1], len(indent)
		for _, w := range widths[:len(r)-1] {
			at += w + 2
		}
		lines := p.broken(last.text, p.width-at)
		last.text = lines[0]
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
		for _, l := range lines[1:] {
			p.line("%s%s", painted(strings.Repeat(" ", at)), p.paint(last.paint, l))
		}
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
