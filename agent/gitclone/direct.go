package gitclone

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// direct is HTTP/1.1 with one server, without a proxy, over one connection that is kept from one poll to the next.
//
// It is an http.RoundTripper beside net/http's because that hands each request from one goroutine to two others and back:
// to wake their threads was half of what a poll costs. Here whoever asks writes and reads. How HTTP is written and read
// is net/http's all the same.
type direct struct {
	o   Options
	tls *tls.Config

	mu   sync.Mutex
	idle *directConn // that waits for the next request; nil: none
}

// directConn is a connection. It belongs to one request at a time.
type directConn struct {
	net.Conn // what is spoken through: TLS, or raw
	raw      net.Conn
	r        *bufio.Reader
	w        *bufio.Writer
	left     int64     // bytes that may come
	err      error     // of the last read
	since    time.Time // when it became idle, or its deadline was set
}

const (
	// maxIdle is how long a connection is kept: longer ones are forgotten, without a word, by what is in between.
	maxIdle = 90 * time.Second
	// maxHeaderBytes bounds an answer's header, and maxInformational how many go before it that say only "go on" (1xx).
	maxHeaderBytes   = 64 << 10
	maxInformational = 5
)

// RoundTrip sends a request and reads the answer's header. The answer's body must be closed.
func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c := d.take()
	if c == nil {
		var err error
		if c, err = d.dial(ctx, req.URL); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.raw.Close() })
	res, err := c.exchange(req, d.o.StallTimeout)
	if err != nil {
		stop()
		_ = c.raw.Close()
		return nil, ended(ctx, err)
	}
	res.Body = &directBody{d: d, c: c, body: res.Body, ctx: ctx, stop: stop, keep: !res.Close}
	return res, nil
}

// exchange writes the request and reads the answer's header, within stall.
func (c *directConn) exchange(req *http.Request, stall time.Duration) (*http.Response, error) {
	c.allow(stall)
	if err := errors.Join(req.Write(c.w), c.w.Flush()); err != nil {
		return nil, err
	}
	c.left = maxHeaderBytes
	for range maxInformational {
		res, err := http.ReadResponse(c.r, req)
		switch {
		case err == nil:
		case errors.Is(c.err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case c.err != nil:
			return nil, c.err // and not what became of it: half a line cannot be parsed
		default:
			return nil, fmt.Errorf("%w: %w", errNotGit, err)
		}
		if res.StatusCode >= 200 {
			c.left = math.MaxInt64 // who reads the body bounds it
			return res, nil
		}
	}
	return nil, fmt.Errorf("%w: it says only to go on", errNotGit)
}

// allow lets whatever is waited for next take stall, or a little less: to set a deadline is not for nothing.
func (c *directConn) allow(stall time.Duration) {
	if now := time.Now(); now.Sub(c.since) > stall/16 {
		c.since = now
		_ = c.SetDeadline(now.Add(stall))
	}
}

// Read counts what comes, and remembers why nothing more does.
func (c *directConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.err = fmt.Errorf("%w: its header does not end", errNotGit)
		return 0, c.err
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.err = err
	return n, err
}

// dial makes a connection.
func (d *direct) dial(ctx context.Context, u *url.URL) (*directConn, error) {
	addr := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPorts[u.Scheme]))
	raw, err := (&net.Dialer{Timeout: d.o.ConnectTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &directConn{Conn: raw, raw: raw}
	if u.Scheme == "https" {
		config := d.tls.Clone()
		config.ServerName = u.Hostname()
		t := tls.Client(raw, config)
		shake, cancel := context.WithTimeoutCause(ctx, d.o.ConnectTimeout, errStalled)
		defer cancel()
		if err := t.HandshakeContext(shake); err != nil {
			_ = raw.Close()
			return nil, ended(shake, err)
		}
		c.Conn = t
	}
	c.r, c.w = bufio.NewReaderSize(c, 4<<10), bufio.NewWriterSize(c, 1<<10)
	return c, nil
}

// take returns the idle connection if it is still good: nothing has come on it since its last answer, neither an end nor
// an answer to nothing, which would be taken for the next one's.
func (d *direct) take() *directConn {
	d.mu.Lock()
	c := d.idle
	d.idle = nil
	d.mu.Unlock()
	if c == nil {
		return nil
	}
	if time.Since(c.since) > maxIdle || c.r.Buffered() > 0 || !silent(c.raw) {
		_ = c.raw.Close()
		return nil
	}
	c.since = time.Time{}
	return c
}

// put keeps a connection for the next request.
func (d *direct) put(c *directConn) {
	c.since = time.Now()
	_ = c.SetDeadline(time.Time{}) // no timer needs to go off meanwhile
	d.mu.Lock()
	old := d.idle
	d.idle = c
	d.mu.Unlock()
	if old != nil {
		_ = old.raw.Close()
	}
}

// CloseIdleConnections is what http.Client calls.
func (d *direct) CloseIdleConnections() {
	d.mu.Lock()
	c := d.idle
	d.idle = nil
	d.mu.Unlock()
	if c != nil {
		_ = c.raw.Close()
	}
}

// silent reports whether there is nothing to be read.
func silent(c net.Conn) (yes bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		yes = errors.Is(err, unix.EAGAIN)
	})
	return yes && err == nil
}

// directBody is an answer's body. It gives its connection back when it has been read to the end, and closes it otherwise:
// nobody waits for what a server may never end.
type directBody struct {
	d    *direct
	c    *directConn
	body io.Reader
	ctx  context.Context
	stop func() bool
	keep bool // the server will answer another request
	done bool
}

func (b *directBody) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	b.c.allow(b.d.o.StallTimeout)
	n, err := b.body.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.done = true
		if b.stop() && b.keep {
			b.d.put(b.c)
		} else {
			_ = b.c.raw.Close()
		}
	case err != nil:
		err = ended(b.ctx, err)
	}
	return n, err
}

func (b *directBody) Close() error {
	if b.done {
		return nil
	}
	b.done = true
	b.stop()
	return b.c.raw.Close()
}

// ended says why a connection has ended, if it was we who ended it.
func ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w (%w)", errStalled, err)
	}
	return err
}
