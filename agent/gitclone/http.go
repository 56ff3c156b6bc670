package gitclone

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
)

// newHTTPClient returns a client for one server: with deadlines where net/http has none by default, and with nothing
// shared with the rest of the process.
func newHTTPClient(o Options, ca []byte) (*http.Client, error) {
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
	return &http.Client{
		Transport: &transport{
			direct: direct{o: o, tls: tlsConfig},
			proxied: http.Transport{
				Proxy:                 http.ProxyFromEnvironment,
				DialContext:           (&net.Dialer{Timeout: o.ConnectTimeout}).DialContext,
				TLSClientConfig:       tlsConfig,
				TLSHandshakeTimeout:   o.ConnectTimeout,
				ResponseHeaderTimeout: o.StallTimeout,
				DisableCompression:    true, // packs are compressed, and the header is a twentieth of a poll
				MaxIdleConns:          1,
				IdleConnTimeout:       maxIdle,
			},
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			from, to := via[0].URL, req.URL
			if from.Scheme != to.Scheme || from.Host != to.Host || len(via) > 5 {
				return fmt.Errorf("%w: %s", errRedirect, to.Host)
			}
			return nil
		},
	}, nil
}

// transport leaves to net/http what is not plain: proxies, which the environment names and which are never used for
// loopback, and host names that are not ASCII.
type transport struct {
	direct  direct
	proxied http.Transport
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	proxy, err := http.ProxyFromEnvironment(req)
	if err == nil && proxy == nil && !strings.ContainsFunc(req.URL.Host, func(r rune) bool { return r > unicode.MaxASCII }) {
		return t.direct.RoundTrip(req)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	res, err := t.proxied.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	res.Body = &proxiedBody{res.Body, ctx, cancel, t.direct.o.StallTimeout}
	return res, nil
}

func (t *transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}

// proxiedBody ends a request when the server is silent for stall.
type proxiedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration
}

func (b *proxiedBody) Read(p []byte) (int, error) {
	t := time.AfterFunc(b.stall, func() { b.cancel(errStalled) })
	defer t.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = ended(b.ctx, err)
	}
	return n, err
}

func (b *proxiedBody) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// httpLine is git over HTTP (gitprotocol-http(5)): one question about what there is, then requests, each by itself.
type httpLine struct {
	remote         *remote
	client         *http.Client
	base           *url.URL // of the repository, after redirects; never written to
	user, password string
}

func (l *httpLine) stream() bool { return false }

// close leaves the connection for the next fetch.
func (l *httpLine) close() {}

func (l *httpLine) abort() {}

func (l *httpLine) forget() { l.base = l.remote.url }

const infoRefs = "/info/refs"

func (l *httpLine) hello(ctx context.Context) (*pktReader, error) {
	p, at, err := l.do(ctx, http.MethodGet, infoRefs, nil, "application/x-git-upload-pack-advertisement")
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(at.Path, infoRefs) {
		_ = p.close()
		return nil, fmt.Errorf("%w: %s", errRedirect, at.Path)
	}
	base := *at
	base.Path, base.RawPath, base.RawQuery = strings.TrimSuffix(at.Path, infoRefs), strings.TrimSuffix(at.RawPath, infoRefs), ""
	l.base = &base
	return p, nil
}

func (l *httpLine) ask(ctx context.Context, request []byte) (*pktReader, error) {
	p, _, err := l.do(ctx, http.MethodPost, "/git-upload-pack", request, "application/x-git-upload-pack-result")
	return p, err
}

// do bounds each answer in silence and in slowness, and refuses what is plainly not a git server's before it is parsed.
// It returns the URL that answered.
func (l *httpLine) do(ctx context.Context, method, path string, request []byte, wantType string) (_ *pktReader, at *url.URL, err error) {
	link, o := &l.remote.link, l.remote.o
	defer func() { link.note(err) }()
	u := *l.base
	u.Path += path
	if u.RawPath != "" {
		u.RawPath += path
	}
	req := (&http.Request{Method: method, URL: &u, Header: http.Header{
		"User-Agent":   {"git/holdfast"}, // some forges want to see git there
		"Git-Protocol": {"version=2"},
	}}).WithContext(ctx)
	if l.user != "" || l.password != "" {
		req.SetBasicAuth(l.user, l.password)
	}
	send := l.client.Transport.RoundTrip // a request is not repeated elsewhere
	if request != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(request)), int64(len(request))
		req.Header["Content-Type"] = []string{"application/x-git-upload-pack-request"}
	} else {
		u.RawQuery = "service=git-upload-pack"
		send = l.client.Do // the first question may be redirected
	}
	res, err := send(req)
	if err != nil {
		return nil, nil, err
	}
	b := &guardedBody{ReadCloser: res.Body, link: link, stall: o.StallTimeout, rate: o.MinBytesPerSecond, start: time.Now()}
	if err := l.refusal(res, b, res.Request.URL.Host, wantType); err != nil {
		_ = b.Close()
		return nil, nil, err
	}
	return newPktReader(b, b.Close), res.Request.URL, nil
}

// refusal is what is wrong with an answer before it is parsed.
func (l *httpLine) refusal(res *http.Response, body io.Reader, host, wantType string) error {
	switch code := res.StatusCode; {
	case code >= 500 || code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s answers %d", errUnavailable, host, code)
	case code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound || code == http.StatusGone:
		page, _ := io.ReadAll(io.LimitReader(body, 4<<10)) // a sentence of it is enough
		return fmt.Errorf("%w: %s answers %d: %s", errAuth, host, code, clean(string(page)))
	case code >= 300 && code < 400:
		return fmt.Errorf("%w: %s answers %d to a request", errRedirect, host, code)
	case code != http.StatusOK:
		return fmt.Errorf("%w: %s answers %d", errNotGit, host, code)
	}
	if got, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";"); strings.TrimSpace(got) != wantType {
		return fmt.Errorf("%w: %s answers with %q", errNotGit, host, got)
	}
	return nil
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

// guardedBody counts what comes, and fails when that is slower than rate over a longer time.
type guardedBody struct {
	io.ReadCloser
	link  *link
	stall time.Duration
	rate  int64 // bytes per second
	start time.Time
	read  int64
}

func (b *guardedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	b.link.down.Add(int64(n))
	// The floor counts from after one stall's time, so that a server that packs first, or a slow start, is no offence.
	if d := time.Since(b.start) - b.stall; err == nil && d > b.stall && b.read < b.rate*int64(d/time.Second) {
		err = errTooSlow
	}
	b.link.note(err)
	return n, err
}
