package gitclone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh"
)

// sshSession is git over SSH. go-git's own has no deadline on anything but the connection, so that a server that accepts
// and then says nothing would hold a goroutine and a socket for ever; it also reads the user's ssh_config.
type sshSession struct {
	stop   func() bool // of the context
	client *ssh.Client
	in     io.WriteCloser
	out    io.Reader
	stderr *tail
	limit  int64 // bytes of the advertisement
}

// dialSSH connects, proves the host's key against known_hosts, and starts git-upload-pack.
func (r *remote) dialSSH(ctx context.Context) (_ session, err error) {
	ep := r.endpoint
	port := ep.Port
	if port == 0 {
		port = gitssh.DefaultPort
	}
	addr := net.JoinHostPort(strings.Trim(ep.Host, "[]"), strconv.Itoa(port))

	key, err := os.ReadFile(r.o.SSHKeyFile)
	if err != nil {
		return nil, fail(ErrAuthOrNotFound, "cannot read sshKeyFile: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return nil, fail(ErrAuthOrNotFound, "cannot read sshKeyFile %s: %w", r.o.SSHKeyFile, err)
	}
	var files []string // none: the user's and the system's
	if r.o.KnownHostsFile != "" {
		files = []string{r.o.KnownHostsFile}
	}
	// Any line of the host will do, so that a new key can be made known before the old one goes. A file is never written.
	hosts, err := gitssh.NewKnownHostsDb(files...)
	if err != nil {
		return nil, fail(ErrHostKey, "cannot read knownHostsFile: %w", err)
	}
	check := hosts.HostKeyCallback()
	var hostKeyErr error
	config := &ssh.ClientConfig{
		User: r.user,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: func(host string, remote net.Addr, key ssh.PublicKey) error {
			if err := check(host, remote, key); err != nil {
				hostKeyErr = fmt.Errorf("%w: %s shows %s %s: %w", errHostKey, host, key.Type(), ssh.FingerprintSHA256(key), err)
			}
			return hostKeyErr
		},
		HostKeyAlgorithms: hosts.HostKeyAlgorithms(addr), // ask for a key that is known
	}

	raw, err := (&net.Dialer{Timeout: r.o.ConnectTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := &deadlineConn{Conn: raw, stall: r.o.StallTimeout, link: &r.link}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer func() {
		if err != nil {
			stop()
			_ = raw.Close()
		}
	}()
	shake := time.AfterFunc(r.o.ConnectTimeout, func() { r.link.note(errStalled); _ = raw.Close() })
	c, chans, reqs, err := ssh.NewClientConn(conn, addr, config)
	shake.Stop()
	if hostKeyErr != nil {
		return nil, hostKeyErr
	}
	if err != nil {
		return nil, err
	}
	client := ssh.NewClient(c, chans, reqs)
	s := &sshSession{stop: stop, client: client, stderr: &tail{max: 1 << 10}, limit: r.o.MaxAdvertisementBytes}
	sess, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	sess.Stderr = s.stderr
	if s.in, err = sess.StdinPipe(); err != nil {
		return nil, err
	}
	if s.out, err = sess.StdoutPipe(); err != nil {
		return nil, err
	}
	return s, sess.Start("git-upload-pack " + shellQuote(ep.Path))
}

func (s *sshSession) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	refs := packp.NewAdvRefs()
	err := refs.Decode(io.LimitReader(s.out, s.limit))
	var line *pktline.ErrorLine
	switch {
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && refs.IsEmpty():
		return nil, transport.ErrEmptyRemoteRepository
	case errors.Is(err, packp.ErrEmptyInput):
		_ = s.client.Close() // then all of stderr has come
		_ = s.client.Wait()
		if said := clean(s.stderr.String()); said != "" {
			return nil, fail(ErrAuthOrNotFound, "the server says: %s", said)
		}
		return nil, io.ErrUnexpectedEOF
	case errors.As(err, &line):
		return nil, fail(ErrAuthOrNotFound, "the server says: %s", clean(line.Text))
	case err != nil:
		return nil, err
	}
	transport.FilterUnsupportedCapabilities(refs.Capabilities)
	return refs, nil
}

func (s *sshSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := errors.Join(req.UploadRequest.Encode(&b), req.UploadHaves.Encode(&b, true), pktline.NewEncoder(&b).Encodef("done\n")); err != nil {
		return nil, err
	}
	if _, err := s.in.Write(b.Bytes()); err != nil {
		return nil, err
	}
	if err := s.in.Close(); err != nil {
		return nil, err
	}
	res := packp.NewUploadPackResponse(req)
	if err := res.Decode(io.NopCloser(s.out)); err != nil {
		return nil, fmt.Errorf("cannot read the server's answer: %w", err)
	}
	return res, nil
}

func (s *sshSession) Close() error {
	s.stop()
	return s.client.Close()
}

// deadlineConn gives each read and each write a deadline. Reads are outstanding for as long as the connection lives,
// which is one fetch.
type deadlineConn struct {
	net.Conn
	stall time.Duration
	link  *link
}

func (c *deadlineConn) Read(p []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.stall))
	n, err := c.Conn.Read(p)
	c.link.down.Add(int64(n))
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.link.note(err)
	}
	return n, err
}

func (c *deadlineConn) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.stall))
	return c.Conn.Write(p)
}

// tail keeps the first bytes of what a stranger writes.
type tail struct {
	mu  sync.Mutex
	max int
	b   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[:min(len(p), t.max-len(t.b))]...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// shellQuote quotes for the shell at the other end, as git does.
func shellQuote(s string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(s) + "'"
}
