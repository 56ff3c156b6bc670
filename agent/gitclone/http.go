package gitclone

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// newHTTPClient returns a client for one server: with deadlines where net/http has none by default, and with nothing
// shared with the rest of the process.
func newHTTPClient(o Options, ca []byte, l *link) (*http.Client, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, Time: o.Now}
	if ca != nil {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(ca) {
			return nil, fail(ErrCertificate, "there is no certificate in caFile %s", o.CAFile)
		}
		tlsConfig.RootCAs = pool
	}
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment, // never for loopback
		DialContext:           (&net.Dialer{Timeout: o.ConnectTimeout}).DialContext,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   o.ConnectTimeout,
		ResponseHeaderTimeout: o.StallTimeout,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          1,
		IdleConnTimeout:       90 * time.Second,
	}
	return &http.Client{
		Transport: &guardedTransport{Transport: t, o: o, link: l},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			from, to := via[0].URL, req.URL
			if from.Scheme != to.Scheme || from.Host != to.Host {
				return fmt.Errorf("%w: %s", errRedirect, to.Host)
			}
			return nil
		},
	}, nil
}

// link remembers what first went wrong on the way to the server: go-git formats such causes away.
type link struct {
	down atomic.Int64 // bytes that came
	mu   sync.Mutex
	err  error
}

func (l *link) note(err error) {
	if err == nil || errors.Is(err, io.EOF) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

func (l *link) take() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	l.err = nil
	return err
}

// guardedTransport bounds each answer in bytes, in silence and in slowness, and refuses what is plainly not a git
// server's before go-git parses it.
type guardedTransport struct {
	*http.Transport // and its CloseIdleConnections

	o    Options
	link *link
}

func (t *guardedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.roundTrip(req)
	t.link.note(err)
	return res, err
}

func (t *guardedTransport) roundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	res, err := t.Transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	limit, wantType := t.o.MaxPackBytes, "application/x-git-upload-pack-result" // docs: gitprotocol-http(5)
	if req.Method == http.MethodGet {
		limit, wantType = t.o.MaxAdvertisementBytes, "application/x-git-upload-pack-advertisement"
	}
	if res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests {
		_ = res.Body.Close()
		cancel(nil)
		return nil, fmt.Errorf("%w: %s answers %d", errUnavailable, req.URL.Host, res.StatusCode)
	}
	if res.StatusCode != http.StatusOK {
		limit = 4 << 10 // an error page: a sentence of it is enough
	} else if got, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";"); strings.TrimSpace(got) != wantType {
		_ = res.Body.Close()
		cancel(nil)
		return nil, fmt.Errorf("%w: %s answers with %q", errNotGit, req.URL.Host, got)
	}
	res.Body = &guardedBody{
		body: res.Body, ctx: ctx, cancel: cancel, left: limit, link: t.link, errorPage: res.StatusCode != http.StatusOK,
		stall: t.o.StallTimeout, rate: t.o.MinBytesPerSecond, start: time.Now(),
	}
	return res, nil
}

// guardedBody cancels its request when the server is silent for stall, or slower than rate over a longer time.
type guardedBody struct {
	body      io.ReadCloser
	ctx       context.Context
	cancel    context.CancelCauseFunc
	left      int64
	link      *link
	errorPage bool
	stall     time.Duration
	rate      int64 // bytes per second
	start     time.Time
	read      int64
}

func (b *guardedBody) Read(p []byte) (int, error) {
	n, err := b.readBounded(p)
	b.link.note(err)
	return n, err
}

func (b *guardedBody) readBounded(p []byte) (int, error) {
	if b.left <= 0 {
		if b.errorPage {
			return 0, io.EOF
		}
		// A body of exactly the limit is fine: look for one byte more.
		var one [1]byte
		if n, err := b.readWithin(one[:]); n == 0 {
			return 0, err
		}
		return 0, errBytes
	}
	n, err := b.readWithin(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.read += int64(n)
	b.link.down.Add(int64(n))
	// The floor counts from after one stall's time, so that a server that packs first, or a slow start, is no offence.
	if d := time.Since(b.start) - b.stall; err == nil && d > b.stall && b.read < b.rate*int64(d/time.Second) {
		b.cancel(errTooSlow)
		return n, errTooSlow
	}
	return n, err
}

func (b *guardedBody) readWithin(p []byte) (int, error) {
	t := time.AfterFunc(b.stall, func() { b.cancel(errStalled) })
	n, err := b.body.Read(p)
	t.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
	}
	return n, err
}

func (b *guardedBody) Close() error {
	b.cancel(nil)
	return b.body.Close()
}
