package gitclone

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
)

// remote is the state repository's server. It speaks git's protocols itself: go-git's clients know neither protocol v2
// nor filters nor deadlines, and lose the causes of what goes wrong. Nothing of it touches the clone.
type remote struct {
	o        Options
	url      *url.URL // no credentials in it, so that no error text can have them; never written to
	safe     string   // the same: what is stored and shown
	user     string   // from the URL
	password string   // from the URL; a token file goes before it
	link     link

	mu      sync.Mutex   // guards what follows
	http    *http.Client // made when first needed, and anew when the CA file changes
	ca      []byte       // what is in the CA file
	secrets []string     // what must not be in a text
	known   *speaks      // HTTP: what the server speaks; nil: ask
	base    *url.URL     // HTTP: where it speaks it, after redirects
	ladder  ladder
}

// safeURL is the URL without credentials: the one that is stored and shown.
func (r *remote) safeURL() string { return r.safe }

func newRemote(o Options) (*remote, error) {
	u, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	r := &remote{o: o, url: u, user: u.User.Username()}
	r.password, _ = u.User.Password()
	u.User = nil
	r.safe = u.String()
	if u.Scheme == "ssh" && r.user == "" {
		r.user = "git"
	}
	return r, nil
}

// defaultPorts need not be said.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ssh": "22"}

// parseURL reads what git takes for a repository's address: a URL, host:path for SSH, or a local path. Its errors do not
// repeat it, for it may have credentials.
func parseURL(s string) (*url.URL, error) {
	host, path, colon := strings.Cut(s, ":")
	switch {
	case strings.Contains(s, "://"):
		u, err := url.Parse(s)
		if err != nil {
			return nil, errors.New("repository URL is not one")
		}
		port, known := defaultPorts[u.Scheme]
		switch {
		case u.Scheme == "file":
			return localURL(u.Path)
		case !known:
			return nil, fmt.Errorf("repository URL: %q is not one of http, https, ssh, file or a local path", u.Scheme)
		case u.Hostname() == "" || u.Path == "":
			return nil, errors.New("repository URL names no host or no path")
		}
		if u.Port() == port {
			u.Host = strings.TrimSuffix(u.Host, ":"+port)
		}
		return u, nil
	case colon && !strings.Contains(host, "/"):
		u := &url.URL{Scheme: "ssh", Host: host, Path: path}
		if user, rest, ok := strings.Cut(host, "@"); ok {
			u.User, u.Host = url.User(user), rest
		}
		if u.Host == "" || path == "" {
			return nil, errors.New("repository URL names no host or no path")
		}
		return u, nil
	}
	return localURL(s)
}

func localURL(path string) (*url.URL, error) {
	abs, err := filepath.Abs(path)
	if err != nil || path == "" {
		return nil, errors.New("repository URL names no path")
	}
	return &url.URL{Scheme: "file", Path: abs}, nil
}

// stream reports whether conversations go through a process at the other end of a pipe.
func (r *remote) stream() bool { return r.url.Scheme == "ssh" || r.url.Scheme == "file" }

// cause puts what went wrong on the link in front of what became of it.
func (r *remote) cause(err error) error {
	if first := r.link.take(); err != nil && first != nil && !errors.Is(err, first) {
		return fmt.Errorf("%w (%w)", first, err)
	}
	return err
}

// open returns the line to the server, and what is known of what it speaks.
func (r *remote) open(ctx context.Context) (line, *speaks, error) {
	switch r.url.Scheme {
	case "file":
		return &streamLine{start: func() (*process, error) { return r.startLocal(ctx) }}, nil, nil
	case "ssh":
		return r.sshLine(ctx), nil, nil
	}
	user, password, err := r.basicAuth()
	if err != nil {
		return nil, nil, err
	}
	c, err := r.makeHTTP()
	if err != nil {
		return nil, nil, err
	}
	l := &httpLine{remote: r, client: c, base: r.url, user: user, password: password}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known != nil {
		l.base = r.base
	}
	return l, r.known, nil
}

// remember keeps what an HTTP server speaks, so that the next question needs no other before it.
func (r *remote) remember(l line, s speaks) {
	h, ok := l.(*httpLine)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.base = &s, h.base
}

func (r *remote) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.base = nil, nil
}

// makeHTTP makes the HTTP client, or makes it anew if the CA file has changed. A CA file that cannot be read is an error
// of the fetch and not of the start: the device is driven without.
func (r *remote) makeHTTP() (*http.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ca []byte
	if r.o.CAFile != "" {
		var err error
		if ca, err = r.o.read(r.o.CAFile); err != nil {
			return nil, fail(ErrCertificate, "cannot read caFile: %w", err)
		}
	}
	if r.http != nil && bytes.Equal(ca, r.ca) {
		return r.http, nil
	}
	c, err := newHTTPClient(r.o, ca)
	if err != nil {
		return nil, err
	}
	if r.http != nil {
		r.http.CloseIdleConnections()
	}
	r.ca, r.http = ca, c
	return c, nil
}

// close lets go of connections that wait for the next fetch.
func (r *remote) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.http != nil {
		r.http.CloseIdleConnections()
	}
}

// redact takes credentials out of a text that somebody else may have written.
func (r *remote) redact(s string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, secret := range r.secrets {
		s = strings.ReplaceAll(s, secret, "…")
	}
	return s
}

func (r *remote) hide(user, password string) {
	if password == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = []string{base64.StdEncoding.EncodeToString([]byte(user + ":" + password)), password, url.QueryEscape(password)}
}

// basicAuth reads the token anew each time, so that a new one needs no restart. Forges want a token as the password.
func (r *remote) basicAuth() (user, password string, err error) {
	user, password = r.user, r.password
	if r.o.TokenFile != "" {
		b, err := r.o.read(r.o.TokenFile)
		if err != nil {
			return "", "", fail(ErrAuthOrNotFound, "cannot read tokenFile: %w", err)
		}
		if password = strings.TrimSpace(string(b)); password == "" {
			return "", "", fail(ErrAuthOrNotFound, "tokenFile %s is empty", r.o.TokenFile)
		}
		if user == "" {
			user = "holdfast" // any name will do, none will not
		}
	}
	r.hide(user, password)
	return user, password, nil
}
