package gitclone

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

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
	http     transport.Transport
	guard    *guardedTransport
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
		c, err := newHTTPClient(o)
		if err != nil {
			return nil, err
		}
		r.guard = c.Transport.(*guardedTransport)
		r.http = githttp.NewClientWithOptions(c, &githttp.ClientOptions{RedirectPolicy: githttp.FollowInitialRedirects})
	case "file":
		r.endpoint.Path = filepath.Clean(r.endpoint.Path)
	default:
		return nil, fmt.Errorf("repository URL: %q is not one of http, https, ssh, file or a local path", ep.Protocol)
	}
	return r, nil
}

// conversation is one exchange with the server: what it has, then packs of it.
type conversation struct {
	remote  *remote
	session transport.UploadPackSession
	refs    *packp.AdvRefs
	asked   bool
}

// dial starts a conversation. The returned refs are what the server has now; the head is read from them once.
func (r *remote) dial(ctx context.Context) (*conversation, error) {
	s, err := r.session()
	if err != nil {
		return nil, err
	}
	refs, err := s.AdvertisedReferencesContext(ctx)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return &conversation{remote: r, session: s, refs: refs}, nil
}

func (r *remote) session() (transport.UploadPackSession, error) {
	ep := r.endpoint // a copy: go-git changes it on a redirect
	switch ep.Protocol {
	case "file":
		if _, err := os.Stat(ep.Path); err != nil {
			return nil, fail(ErrAuthOrNotFound, "no repository at %s: %w", ep.Path, err)
		}
		return gitfile.DefaultClient.NewUploadPackSession(&ep, nil)
	default:
		auth, err := r.basicAuth()
		if err != nil {
			return nil, err
		}
		return r.http.NewUploadPackSession(&ep, auth)
	}
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
	if c.asked && c.remote.http == nil {
		// Streams carry one request. Over HTTP each request is one anyway.
		_ = c.session.Close()
		s, err := c.remote.session()
		if err != nil {
			return nil, err
		}
		c.session = s
	}
	c.asked = true
	res, err := c.session.UploadPack(ctx, req)
	if err != nil {
		return nil, err
	}
	var body io.Reader = res
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		body = sideband.NewDemuxer(sideband.Sideband64k, res)
	case req.Capabilities.Supports(capability.Sideband):
		body = sideband.NewDemuxer(sideband.Sideband, res)
	}
	return struct {
		io.Reader
		io.Closer
	}{body, res}, nil
}
