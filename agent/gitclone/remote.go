package gitclone

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing/transport"
)

// remote is the state repository's server. It speaks git's protocols itself: go-git's clients know neither protocol v2
// nor filters nor deadlines, and lose the causes of what goes wrong. Nothing of it touches the clone.
type remote struct {
	o        Options
	endpoint transport.Endpoint // no credentials in it, so that no error text can have them
	user     string             // from the URL
	password string             // from the URL; a token file goes before it
	url      *url.URL           // HTTP: the endpoint
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
func (r *remote) safeURL() string {
	return r.endpoint.String()
}

func newRemote(o Options) (*remote, error) {
	ep, err := transport.NewEndpoint(o.URL)
	if err != nil {
		return nil, fmt.Errorf("repository URL is not one") // go-git's text repeats it, credentials and all
	}
	r := &remote{o: o, endpoint: *ep, user: ep.User, password: ep.Password}
	r.endpoint.User, r.endpoint.Password = "", ""
	switch ep.Protocol {
	case "http", "https":
		if r.url, err = url.Parse(r.safeURL()); err != nil {
			return nil, fmt.Errorf("repository URL is not one")
		}
	case "file":
		r.endpoint.Path = filepath.Clean(r.endpoint.Path)
	case "ssh":
		if r.user == "" {
			r.user = "git"
		}
	default:
		return nil, fmt.Errorf("repository URL: %q is not one of http, https, ssh, file or a local path", ep.Protocol)
	}
	return r, nil
}

// cause puts what went wrong on the link in front of what became of it.
func (r *remote) cause(err error) error {
	if first := r.link.take(); err != nil && first != nil && !errors.Is(err, first) {
		return fmt.Errorf("%w (%w)", first, err)
	}
	return err
}

// open returns the line to the server, and what is known of what it speaks.
func (r *remote) open(ctx context.Context) (line, *speaks, error) {
	switch r.endpoint.Protocol {
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
		if ca, err = os.ReadFile(r.o.CAFile); err != nil {
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
		b, err := os.ReadFile(r.o.TokenFile)
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
