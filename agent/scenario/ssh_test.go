package scenario

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshServer serves the repository over SSH to the one key that is in keyFile.
type sshServer struct {
	addr       string // by which it is known
	keyFile    string
	knownHosts string
	user       ssh.PublicKey
	config     atomic.Pointer[ssh.ServerConfig]
	host       ssh.PublicKey
	listener   net.Listener
}

func newSSHServer(dir, addr string, l net.Listener) (*sshServer, error) {
	s := &sshServer{addr: addr, listener: l, keyFile: filepath.Join(dir, "ssh_key"), knownHosts: filepath.Join(dir, "known_hosts")}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return nil, err
	}
	if s.user, err = ssh.NewPublicKey(key.Public()); err != nil {
		return nil, err
	}
	return s, errors.Join(os.WriteFile(s.keyFile, pem.EncodeToMemory(block), 0o600), s.newHostKey(), s.makeKnown())
}

// newHostKey is what an operator does who has set up the server anew, or somebody in between.
func (s *sshServer) newHostKey() error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	host, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return err
	}
	c := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if string(k.Marshal()) != string(s.user.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	c.AddHostKey(host)
	s.host = host.PublicKey()
	s.config.Store(c)
	return nil
}

// makeKnown adds a line to known_hosts.
func (s *sshServer) makeKnown() error {
	f, err := os.OpenFile(s.knownHosts, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(knownhosts.Line([]string{s.addr}, s.host) + "\n")
	return errors.Join(err, f.Close())
}

func (s *sshServer) close() { s.listener.Close() }

func (s *sshServer) serve() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.connection(c)
	}
}

func (s *sshServer) connection(c net.Conn) {
	defer c.Close()
	_, channels, requests, err := ssh.NewServerConn(c, s.config.Load())
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for nc := range channels {
		ch, requests, err := nc.Accept()
		if err != nil {
			return
		}
		go session(ch, requests)
	}
}

// session runs the one command that it is asked for, git-upload-pack, and says with which status that ended.
func session(ch ssh.Channel, requests <-chan *ssh.Request) {
	defer ch.Close()
	env := gitEnv()
	for r := range requests {
		var v struct{ Name, Value string }
		switch {
		case r.Type == "env" && ssh.Unmarshal(r.Payload, &v) == nil:
			env = append(env, v.Name+"="+v.Value)
		case r.Type == "exec":
			_ = r.Reply(true, nil)
			cmd := exec.Command("sh", "-c", string(r.Payload[4:]))
			cmd.Env, cmd.Stdout, cmd.Stderr = env, ch, ch.Stderr()
			in, err := cmd.StdinPipe()
			if err != nil {
				return
			}
			go func() { io.Copy(in, ch); in.Close() }()
			status := struct{ Code uint32 }{}
			if err := cmd.Run(); err != nil {
				status.Code = 128
			}
			_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(status))
			return
		}
	}
}
