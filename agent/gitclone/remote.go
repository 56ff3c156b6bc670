package gitclone

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	gitfile "github.com/go-git/go-git/v5/plumbing/transport/file"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// remote is the state repository's server. It uses go-git's transports directly and never client.InstallProtocol, which
// is the process's and not ours. Nothing of it touches the clone.
type remote struct {
	o        Options
	endpoint transport.Endpoint // no credentials in it, so that no error text can have them
	user     string             // from the URL
	password string             // from the URL; a token file goes before it
	link     link

	mu      sync.Mutex          // guards what follows
	http    transport.Transport // made when first needed, and anew when the CA file changes
	idle    func()              // closes its connections
	ca      []byte              // what is in the CA file
	secrets []string            // what must not be in a text
}

// session is one connection as go-git has them: what the server has, then packs of it.
type session interface {
	AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error)
	UploadPack(context.Context, *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
	Close() error
}

// isStream reports whether a connection carries one request only.
func (r *remote) isStream() bool {
	return r.endpoint.Protocol == "ssh" || r.endpoint.Protocol == "file"
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

// conversation is one exchange with the server: what it has, then packs of it.
type conversation struct {
	remote  *remote
	session session
	refs    *packp.AdvRefs
	asked   bool
}

// dial starts a conversation. The returned refs are what the server has now; the head is read from them once.
func (r *remote) dial(ctx context.Context) (*conversation, error) {
	_ = r.link.take() // what went wrong before is not the cause of what goes wrong now
	s, err := r.session(ctx)
	if err != nil {
		return nil, r.cause(err)
	}
	refs, err := s.AdvertisedReferencesContext(ctx)
	if err != nil {
		_ = s.Close()
		return nil, r.cause(err)
	}
	return &conversation{remote: r, session: s, refs: refs}, nil
}

// cause puts what went wrong on the link in front of what became of it.
func (r *remote) cause(err error) error {
	if first := r.link.take(); err != nil && first != nil && !errors.Is(err, first) {
		return fmt.Errorf("%w (%w)", first, err)
	}
	return err
}

func (r *remote) session(ctx context.Context) (session, error) {
	ep := r.endpoint // a copy: go-git changes it on a redirect
	switch ep.Protocol {
	case "file":
		if _, err := os.Stat(ep.Path); err != nil {
			return nil, fail(ErrAuthOrNotFound, "no repository at %s: %w", ep.Path, err)
		}
		return gitfile.DefaultClient.NewUploadPackSession(&ep, nil) // runs git itself
	case "ssh":
		return r.dialSSH(ctx)
	default:
		auth, err := r.basicAuth()
		if err != nil {
			return nil, err
		}
		t, err := r.makeHTTP()
		if err != nil {
			return nil, err
		}
		return t.NewUploadPackSession(&ep, auth)
	}
}

// makeHTTP makes the HTTP client, or makes it anew if the CA file has changed. A CA file that cannot be read is an error
// of the fetch and not of the start: the device is driven without.
func (r *remote) makeHTTP() (transport.Transport, error) {
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
	c, err := newHTTPClient(r.o, ca, &r.link)
	if err != nil {
		return nil, err
	}
	if r.idle != nil {
		r.idle()
	}
	r.ca, r.idle = ca, c.CloseIdleConnections
	r.http = githttp.NewClientWithOptions(c, &githttp.ClientOptions{RedirectPolicy: githttp.FollowInitialRedirects})
	return r.http, nil
}

// close lets go of connections that wait for the next fetch.
func (r *remote) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle != nil {
		r.idle()
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
func (r *remote) basicAuth() (transport.AuthMethod, error) {
	user, password := r.user, r.password
	if r.o.TokenFile != "" {
		b, err := os.ReadFile(r.o.TokenFile)
		if err != nil {
			return nil, fail(ErrAuthOrNotFound, "cannot read tokenFile: %w", err)
		}
		if password = strings.TrimSpace(string(b)); password == "" {
			return nil, fail(ErrAuthOrNotFound, "tokenFile %s is empty", r.o.TokenFile)
		}
		if user == "" {
			user = "holdfast" // any name will do, none will not
		}
	}
	if user == "" && password == "" {
		return nil, nil
	}
	r.hide(user, password)
	return &githttp.BasicAuth{Username: user, Password: password}, nil
}

// close ends the conversation.
func (c *conversation) close() { _ = c.session.Close() }

// head returns the branch's revision.
func (c *conversation) head(branch plumbing.ReferenceName) (plumbing.Hash, bool) {
	h, ok := c.refs.References[string(branch)]
	return h, ok && !h.IsZero()
}

func (c *conversation) can(cap capability.Capability) bool { return c.refs.Capabilities.Supports(cap) }

// request returns an empty request with what both sides can do.
func (c *conversation) request(wants ...plumbing.Hash) *packp.UploadPackRequest {
	req := packp.NewUploadPackRequestFromCapabilities(c.refs.Capabilities)
	if c.can(capability.NoProgress) {
		_ = req.Capabilities.Set(capability.NoProgress)
	}
	if c.can(capability.Shallow) {
		_ = req.Capabilities.Set(capability.Shallow)
	}
	req.Wants = wants
	return req
}

// pack asks for a pack and returns its bytes.
func (c *conversation) pack(ctx context.Context, req *packp.UploadPackRequest) (io.ReadCloser, error) {
	if c.asked && c.remote.isStream() {
		// A stream carries one request. Over HTTP each request is one anyway.
		_ = c.session.Close()
		s, err := c.remote.session(ctx)
		if err != nil {
			return nil, c.remote.cause(err)
		}
		c.session = s
		if _, err := s.AdvertisedReferencesContext(ctx); err != nil {
			return nil, c.remote.cause(err)
		}
	}
	c.asked = true
	res, err := c.session.UploadPack(ctx, req)
	if err != nil {
		return nil, c.remote.cause(err)
	}
	var body io.Reader = res
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		body = sideband.NewDemuxer(sideband.Sideband64k, res)
	case req.Capabilities.Supports(capability.Sideband):
		body = sideband.NewDemuxer(sideband.Sideband, res)
	}
	return &packBody{r: body, close: res.Close, left: c.remote.o.MaxPackBytes, cause: c.remote.cause}, nil
}

// packBody bounds a pack whatever it comes through, and gives the cause of a broken one.
type packBody struct {
	r     io.Reader
	close func() error
	left  int64
	cause func(error) error
}

func (b *packBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, errBytes
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.cause(err)
	}
	return n, err
}

func (b *packBody) Close() error { return b.close() }
