package gitclone

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FuzzHTTP: whatever comes over the connection that the clone keeps, it is what net/http reads there, within the bound on headers; or it is an error of the link or of something that is no
// git server, whose text is fit for a log. The connection is kept only when the answer has ended and the server has said that it may be.
func FuzzHTTP(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Type: x\r\nContent-Length: 4\r\n\r\n0000", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n0000\r\n0\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n0000",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 9), "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nabc",
		"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n123456789", "HTTP/1.1 200 \x1b[2J\r\nConnection: close\r\n\r\n\x1b",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 200<<10), "\x92\x92\x92\n\x1b[2J", "", "HTTP/1.1 200 OK\r\n\x1b[2J\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n0000", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n0000",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 304 Not Modified\r\n\r\nabc",
	} {
		f.Add([]byte(s), uint8(len(s)))
	}
	o := talkOptions()
	f.Fuzz(func(t *testing.T, data []byte, chunk uint8) {
		ours, theirs := pair(t)
		said := make(chan struct{})
		go func() {
			defer close(said)
			defer theirs.Close()
			if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
				return
			}
			for rest := data; len(rest) > 0; {
				n, err := theirs.Write(rest[:min(len(rest), 1+int(chunk)*64)])
				if err != nil {
					return
				}
				rest = rest[n:]
			}
		}()
		req, err := http.NewRequest(http.MethodGet, "http://git.example.org/state.git/info/refs", nil)
		if err != nil {
			t.Fatal(err)
		}
		read := &counting{Conn: ours}
		c := &directConn{Conn: read, raw: ours, since: time.Now()}
		c.r, c.w = bufio.NewReaderSize(c, 4<<10), bufio.NewWriterSize(c, 1<<10)
		d := &direct{o: o, idle: c} // as it was kept after the question before
		var status int
		var body []byte
		res, err := d.RoundTrip(req)
		if err == nil {
			status = res.StatusCode
			body, err = io.ReadAll(io.LimitReader(res.Body, 1<<20))
			if kept := d.idle != nil; kept && (err != nil || res.Close) {
				t.Errorf("%q: the connection is kept after %v", data, err)
			}
			_ = res.Body.Close()
		}
		_ = ours.Close()
		<-said
		if status == 0 && read.n > maxHeaderBytes {
			t.Errorf("%d bytes of a header were read", read.n)
		}
		if err != nil {
			e := classify("fetch", err, o.Now(), func(s string) string { return s })
			if e.Kind != ErrOffline && e.Kind != ErrProtocol {
				t.Errorf("%q: %v is of kind %s", data, err, e.Kind)
			}
			fitForLogs(t, e.Error())
		}

		// net/http itself, of the same bytes.
		r := bufio.NewReader(bytes.NewReader(data))
		for range maxInformational {
			want, werr := http.ReadResponse(r, req)
			if werr != nil {
				if status != 0 {
					t.Errorf("%q is answered with %d, net/http says %v", data, status, werr)
				}
				return
			}
			if want.StatusCode < 200 {
				continue
			}
			if status != want.StatusCode && len(data) < maxHeaderBytes {
				t.Errorf("%q is answered with %d (%v), net/http says %d", data, status, err, want.StatusCode)
			}
			if status == 0 {
				return
			}
			b, werr := io.ReadAll(io.LimitReader(want.Body, 1<<20))
			if !bytes.Equal(b, body) || (werr == nil) != (err == nil) && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%q has the body %q, %v; net/http says %q, %v", data, body, err, b, werr)
			}
			return
		}
		if status != 0 {
			t.Errorf("%q is answered with %d after too much that only says to go on", data, status)
		}
	})
}

// counting counts what is read.
type counting struct {
	net.Conn
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n += n
	return n, err
}

// pair is a connection, both ends of it.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return ends[0], ends[1]
}
