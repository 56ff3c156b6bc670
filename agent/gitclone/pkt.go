package gitclone

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-git/go-git/v5/plumbing"
)

// Both of git's protocols speak in pkt-lines: four hex digits of length, then that many bytes less four. Lengths below
// four are marks (gitprotocol-common(5), gitprotocol-v2(5)).
type mark int

const (
	pktData  mark = iota
	pktFlush      // 0000: the end of a message
	pktDelim      // 0001: the end of a section
	pktEnd        // 0002: the end of an answer
)

// maxPkt is the longest pkt-line's content.
const maxPkt = 65520 - 4

// pktReader reads what a server says. What it returns is valid until the next call.
type pktReader struct {
	r       *bufio.Reader
	left    int64 // bytes that may still come in lines; not counted in packs, see packBody
	buf     []byte
	ended   bool // the answer has been read to its end
	closing func() error
}

func newPktReader(r io.Reader, closing func() error) *pktReader {
	return &pktReader{r: bufio.NewReaderSize(r, 512), closing: closing} // for lengths and one line; what is long goes past it
}

func (p *pktReader) close() error {
	if p.closing == nil {
		return nil // a stream, whose reader lives on
	}
	if p.ended {
		_, _ = p.r.Peek(1) // over HTTP, so that the connection can carry the next request
	}
	return p.closing()
}

// next returns the next line, without its line feed, or a mark. io.EOF means that the server has said all that it will.
func (p *pktReader) next() ([]byte, mark, error) {
	b, m, err := p.raw()
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	return b, m, err
}

func (p *pktReader) raw() ([]byte, mark, error) {
	var head [4]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return nil, 0, err
	}
	n, err := strconv.ParseUint(string(head[:]), 16, 16)
	switch {
	case err != nil || n == 3 || n > maxPkt+4:
		return nil, 0, fmt.Errorf("%w: %q instead of a length", errNotGit, head[:])
	}
	if p.left -= int64(max(n, 4)); p.left < 0 { // marks as well: a server can go on with them for ever
		return nil, 0, errBytes
	}
	if n < 3 {
		return nil, mark(n) + pktFlush, nil
	}
	if cap(p.buf) < int(n) {
		p.buf = make([]byte, n)
	}
	b := p.buf[:n-4]
	if _, err := io.ReadFull(p.r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, 0, err
	}
	return b, pktData, nil
}

// said is an error that the server put into words.
func said(b []byte) (string, bool) {
	if len(b) >= 4 && string(b[:4]) == "ERR " {
		return clean(string(b[4:])), true
	}
	return "", false
}

// pktWriter makes a request.
type pktWriter struct{ b []byte }

// line writes a line of these parts.
func (w *pktWriter) line(parts ...string) {
	at := len(w.b)
	w.b = append(w.b, "0000"...)
	for _, p := range parts {
		w.b = append(w.b, p...)
	}
	w.b = append(w.b, '\n')
	n := len(w.b) - at
	hex.Encode(w.b[at:at+4], []byte{byte(n >> 8), byte(n)})
}

func (w *pktWriter) flush() { w.b = append(w.b, "0000"...) }
func (w *pktWriter) delim() { w.b = append(w.b, "0001"...) }

// sideband reads a pack out of an answer in which progress and errors are mixed with it.
type sideband struct {
	p     *pktReader
	rest  []byte
	noise int  // bytes that were not the pack's
	done  bool // the flush after the pack has come
}

// maxNoise is how much progress and keep-alive may come with a pack. No progress is asked for.
const maxNoise = 1 << 20

func (s *sideband) Read(b []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.done {
			return 0, io.EOF
		}
		if s.noise > maxNoise {
			return 0, errBytes
		}
		s.p.left = maxPkt + 4 // bounded by packBody, over all of the pack
		line, m, err := s.p.raw()
		switch {
		case errors.Is(err, io.EOF):
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		case m == pktFlush:
			s.done = true
			return 0, io.EOF
		case m != pktData || len(line) == 0:
			return 0, fail(ErrProtocol, "the pack is not in git's sideband")
		}
		switch line[0] {
		case 1:
			if s.rest = line[1:]; len(s.rest) == 0 {
				s.noise += len(line) + 4
			}
		case 2: // progress: for a terminal
			s.noise += len(line) + 4
		default:
			return 0, fmt.Errorf("%w: %s", errSays, clean(string(line[1:])))
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// parseHash reads a hash at the beginning of a line.
func parseHash(line string) (h plumbing.Hash, rest string, ok bool) {
	const n = 2 * len(h)
	if len(line) < n || len(line) > n && line[n] != ' ' {
		return h, "", false
	}
	if _, err := hex.Decode(h[:], []byte(line[:n])); err != nil {
		return plumbing.ZeroHash, "", false
	}
	if len(line) > n {
		rest = line[n+1:]
	}
	return h, rest, true
}
