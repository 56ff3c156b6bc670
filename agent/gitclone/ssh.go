package gitclone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
)

// sshLine is git-upload-pack over SSH, all of a conversation on one connection.
func (r *remote) sshLine(ctx context.Context) line {
	var c *sshConn
	return &streamLine{
		start: func() (_ *process, err error) {
			if c == nil {
				if c, err = r.dialSSH(ctx); err != nil {
					return nil, err
				}
			}
			return c.start("git-upload-pack " + shellQuote(r.url.Path))
		},
		hang: func() {
			if c != nil {
				c.close()
			}
		},
	}
}

// sshConn is a connection whose host is proven.
type sshConn struct {
	raw    net.Conn
	client *ssh.Client
	stop   func() bool // of the context
}

func (c *sshConn) close() {
	c.stop()
	_ = c.client.Close()
}

// dialSSH connects, and proves the host's key against known_hosts. go-git's own client has no deadline on anything but the
// connection, so that a server that accepts and then says nothing would hold a goroutine and a socket for ever; it also
// reads the user's ssh_config.
func (r *remote) dialSSH(ctx context.Context) (_ *sshConn, err error) {
	addr := net.JoinHostPort(r.url.Hostname(), cmp.Or(r.url.Port(), defaultPorts["ssh"]))

	key, err := r.o.read(r.o.SSHKeyFile)
	if err != nil {
		return nil, fail(ErrAuthOrNotFound, "cannot read sshKeyFile: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return nil, fail(ErrAuthOrNotFound, "cannot read sshKeyFile %s: %w", r.o.SSHKeyFile, err)
	}
	// Any line of the host will do, so that a new key can be made known before the old one goes. A file is never written.
	known, err := r.knownHosts()
	if err != nil {
		return nil, fail(ErrHostKey, "cannot read knownHostsFile: %w", err)
	}
	hosts, err := knownhosts.NewDB(known...)
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
	return &sshConn{raw, ssh.NewClient(c, chans, reqs), stop}, nil
}

// knownHosts are the files that say which keys hosts have: the configured one, else the user's and the system's, as far as
// they are there.
func (r *remote) knownHosts() ([]string, error) {
	if r.o.KnownHostsFile != "" {
		file, err := r.o.locate(r.o.KnownHostsFile)
		return []string{file}, err
	}
	files := []string{"/etc/ssh/ssh_known_hosts"}
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".ssh", "known_hosts"))
	}
	return slices.DeleteFunc(files, func(name string) bool { _, err := os.Stat(name); return err != nil }), nil
}

// start runs a command at the other end.
func (c *sshConn) start(command string) (*process, error) {
	sess, err := c.client.NewSession()
	if err != nil {
		return nil, err
	}
	p := &process{stderr: &tail{max: 1 << 10}}
	sess.Stderr = p.stderr
	if p.in, err = sess.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := sess.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = newPktReader(out, nil)
	p.kill = func() { _ = c.raw.Close() }
	p.end = func() { _ = sess.Close() }
	p.drain = func() { _ = sess.Wait() } // no longer than the connection's deadlines
	// Many servers do not accept it (sshd: AcceptEnv GIT_PROTOCOL), and then speak the older protocol. No answer is waited
	// for: that would be one more time to the server and back.
	_, err = sess.SendRequest("env", false, ssh.Marshal(struct{ Name, Value string }{gitProtocolName, gitProtocolValue}))
	if err != nil {
		return nil, err
	}
	return p, sess.Start(command)
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

// shellQuote quotes for the shell at the other end, as git does.
func shellQuote(s string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(s) + "'"
}
