package gitclone

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// TestToken: the token file is read anew, sent as the password, and never told.
func TestToken(t *testing.T) {
	r := newRepo(t)
	one := r.set("pump: on\n")
	srv, url := r.serve()
	const right, wrong = "s3cret-right", "s3cret-wrong"
	srv.setFront(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if _, p, _ := q.BasicAuth(); p != right {
			// A hostile server gives back what it was told.
			http.Error(w, "no: "+p+" "+q.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, q)
	})
	o := options(t, url)
	o.TokenFile = filepath.Join(t.TempDir(), "token")
	write := func(s string) {
		if err := os.WriteFile(o.TokenFile, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(wrong + "\n")
	c := openClone(t, o)
	e := wantFetch(t, c, ErrAuthOrNotFound)
	for _, secret := range []string{wrong, "aG9sZGZhc3Q6"} { // and base64 of "holdfast:"
		if s := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(s, secret) {
			t.Errorf("error tells the credential: %s", s)
		}
	}
	write(right + "\n")
	mustFetch(t, c)
	wantDesired(t, c, one, "pump: on\n")
	write("")
	wantFetch(t, c, ErrAuthOrNotFound)
	_ = os.Remove(o.TokenFile)
	wantFetch(t, c, ErrAuthOrNotFound)

	// In the URL: used, and neither stored nor told.
	o = options(t, strings.Replace(url, "http://", "http://ada:"+right+"@", 1))
	c = openClone(t, o)
	mustFetch(t, c)
	if d := wantDesired(t, c, one, "pump: on\n"); d.URL != url {
		t.Errorf("URL = %s, want %s", d.URL, url)
	}
	srv.Close()
	if e := wantFetch(t, c, ErrOffline); strings.Contains(e.Error(), right) {
		t.Errorf("error tells the credential: %v", e)
	}
	if b, _ := os.ReadFile(o.Path); strings.Contains(string(b), right) {
		t.Error("the credential is on disk")
	}
}

// TestRedirect: within the same origin it is followed; elsewhere nothing is sent.
func TestRedirect(t *testing.T) {
	r := newRepo(t)
	one := r.set("pump: on\n")
	srv, url := r.serve()
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	srv.setFront(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		switch {
		case strings.HasPrefix(q.URL.Path, "/old.git/"):
			http.Redirect(w, q, strings.Replace(q.URL.String(), "/old.git/", "/state.git/", 1), http.StatusMovedPermanently)
		case strings.HasPrefix(q.URL.Path, "/gone.git/"):
			http.Redirect(w, q, other.URL+"/state.git/info/refs?service=git-upload-pack", http.StatusFound)
		default:
			next.ServeHTTP(w, q)
		}
	})
	c := openClone(t, options(t, strings.Replace(url, "state.git", "old.git", 1)))
	mustFetch(t, c)
	wantDesired(t, c, one, "pump: on\n")
	c = openClone(t, options(t, strings.Replace(url, "state.git", "gone.git", 1)))
	wantFetch(t, c, ErrProtocol)
	if elsewhere != 0 {
		t.Errorf("the other server was asked %d times", elsewhere)
	}
}

// TestTLS: a CA file, a certificate that nobody vouches for, and a clock that has not been set.
func TestTLS(t *testing.T) {
	r := newRepo(t)
	one := r.set("pump: on\n")
	plain, _ := r.serve()
	srv := httptest.NewUnstartedServer(plain.Config.Handler)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	url := srv.URL + "/state.git"

	c := openClone(t, options(t, url))
	if e := wantFetch(t, c, ErrCertificate); strings.Count(e.Error(), srv.URL) != 1 {
		t.Errorf("error %q does not tell the URL once", e)
	}

	ca := filepath.Join(t.TempDir(), "ca.pem")
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, b, 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(t, url)
	o.CAFile = ca
	c = openClone(t, o)
	mustFetch(t, c)
	wantDesired(t, c, one, "pump: on\n")

	o = options(t, url)
	o.CAFile = ca
	o.Now = func() time.Time { return time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC) } // httptest's is valid from 1970 on
	c = openClone(t, o)
	if e := wantFetch(t, c, ErrCertificate); !strings.Contains(e.Advice, "1969-12-31") {
		t.Errorf("advice %q does not name the clock", e.Advice)
	}

	// A server that speaks no TLS.
	c = openClone(t, options(t, strings.Replace(plain.URL, "http://", "https://", 1)+"/state.git"))
	wantFetch(t, c, ErrProtocol)

	// A CA file that is missing is no reason not to start, and one that comes back is read.
	o = options(t, url)
	o.CAFile = filepath.Join(t.TempDir(), "later.pem")
	c = openClone(t, o)
	wantFetch(t, c, ErrCertificate)
	if err := os.WriteFile(o.CAFile, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantFetch(t, c, ErrCertificate)
	if err := os.WriteFile(o.CAFile, b, 0o600); err != nil {
		t.Fatal(err)
	}
	mustFetch(t, c)
}

// sshServer serves repositories over SSH on loopback to one key.
type sshServer struct {
	addr string
	key  ssh.Signer
}

func newSigner(t *testing.T) (ssh.Signer, []byte) {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		t.Fatal(err)
	}
	return s, pem.EncodeToMemory(block)
}

// serveSSH serves; env is sshd's AcceptEnv GIT_PROTOCOL.
func serveSSH(t *testing.T, allowed ssh.PublicKey, env bool) *sshServer {
	t.Helper()
	host, _ := newSigner(t)
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if string(k.Marshal()) != string(allowed.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serveSSHConn(conn, config, env)
		}
	}()
	return &sshServer{l.Addr().String(), host}
}

func serveSSHConn(conn net.Conn, config *ssh.ServerConfig, env bool) {
	defer conn.Close()
	_, chans, reqs, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(reqs)
	for nc := range chans {
		ch, reqs, err := nc.Accept()
		if err != nil {
			return
		}
		go func() {
			defer ch.Close()
			environ := gitEnv()
			for q := range reqs {
				if q.Type == "env" && env {
					var v struct{ Name, Value string }
					if ssh.Unmarshal(q.Payload, &v) == nil {
						environ = append(environ, v.Name+"="+v.Value)
					}
				}
				if q.Type != "exec" {
					_ = q.Reply(false, nil)
					continue
				}
				_ = q.Reply(true, nil)
				cmd := exec.Command("sh", "-c", string(q.Payload[4:]))
				cmd.Env = environ
				cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
				in, err := cmd.StdinPipe()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(in, ch); _ = in.Close() }()
				code := 0
				if err := cmd.Run(); err != nil {
					code = 128
				}
				_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
				return
			}
		}()
	}
}

func TestSSH(t *testing.T) {
	r := newRepo(t)
	one := r.set("pump: on\n")
	signer, key := newSigner(t)
	srv := serveSSH(t, signer.PublicKey(), false)
	dir := t.TempDir()
	file := func(name string, b []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	line := func(k ssh.PublicKey) string { return knownhosts.Line([]string{srv.addr}, k) + "\n" }
	stranger, strangerKey := newSigner(t)
	o := options(t, "ssh://git@"+srv.addr+r.bare)
	o.SSHKeyFile = file("key", key)
	o.KnownHostsFile = file("known_hosts", []byte(line(stranger.PublicKey())))

	c := openClone(t, o)
	e := wantFetch(t, c, ErrHostKey)
	if !strings.Contains(e.Error(), ssh.FingerprintSHA256(srv.key.PublicKey())) {
		t.Errorf("error does not show the key: %v", e)
	}
	file("known_hosts", []byte("# none\n"))
	wantFetch(t, c, ErrHostKey)
	// Several keys, any match; the file is not rewritten.
	known := line(stranger.PublicKey()) + line(srv.key.PublicKey())
	file("known_hosts", []byte(known))
	mustFetch(t, c)
	wantDesired(t, c, one, "pump: on\n")
	if b, _ := os.ReadFile(o.KnownHostsFile); string(b) != known {
		t.Errorf("known_hosts was changed to %q", b)
	}

	for i := range 3 { // so that the ancestry takes a second connection
		r.write("README", fmt.Sprint(i))
		r.git("add", "-A")
		r.git("commit", "-q", "-m", "between")
	}
	two := r.set("pump: off\n")
	mustFetch(t, c)
	wantDesired(t, c, two, "pump: off\n")
	if f := mustFetch(t, c); f.Changed {
		t.Errorf("Fetch of nothing new = %+v", f)
	}

	file("key", strangerKey)
	wantFetch(t, c, ErrAuthOrNotFound)
	_ = os.Remove(o.SSHKeyFile)
	wantFetch(t, c, ErrAuthOrNotFound)
	file("key", key)

	gone := o
	gone.Path, gone.URL = filepath.Join(dir, "gone.db"), "ssh://git@"+srv.addr+"/nowhere/it's.git"
	e = wantFetch(t, openClone(t, gone), ErrAuthOrNotFound)
	if !strings.Contains(e.Error(), "it's.git") {
		t.Errorf("error does not tell what the server says: %v", e)
	}
}

// TestSilentSSH: a server that accepts and says nothing holds nobody up.
func TestSilentSSH(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	signer, key := newSigner(t)
	dir := t.TempDir()
	o := options(t, "ssh://git@"+l.Addr().String()+"/state.git")
	o.SSHKeyFile, o.KnownHostsFile = filepath.Join(dir, "key"), filepath.Join(dir, "known_hosts")
	o.ConnectTimeout = 200 * time.Millisecond
	if err := errors.Join(os.WriteFile(o.SSHKeyFile, key, 0o600),
		os.WriteFile(o.KnownHostsFile, []byte(knownhosts.Line([]string{l.Addr().String()}, signer.PublicKey())), 0o600)); err != nil {
		t.Fatal(err)
	}
	c := openClone(t, o)
	wantFetch(t, c, ErrOffline)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Fetch(ctx); !errors.Is(err, ErrOffline) {
		t.Errorf("Fetch = %v", err)
	}
}
