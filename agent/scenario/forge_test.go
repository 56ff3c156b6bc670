package scenario

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// forge stands before git's own answers: it refuses, redirects, lies, breaks off and damages as it is told, and logs.
type forge struct {
	git   http.Handler
	log   io.Writer
	homes []string // host:port by which it may be asked
	other string   // and one by which nobody may

	mu      sync.Mutex
	answer  string // a word of answers, or a status
	token   string // "" lets everybody in
	refusal int    // status for who does not have it
	spoil   spoil
	strays  []error
}

// answers that are not a status.
var answers = regexp.MustCompile(`^(ok|portal|empty|moved|elsewhere|[45]\d\d)$`)

// spoil is what becomes of git's own answers from now on.
type spoil struct {
	how     string // "", cut or damaged
	packets int    // cut: so many are left
	abort   bool   // and then the connection ends, instead of the answer
	at      int    // damaged: this byte of the pack, counted round and round
}

// answers sets one of answers.
func (f *forge) answers(answer string) { f.set(func() { f.answer = answer }) }

func (f *forge) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// moved is where the repository is while it has moved.
const moved = "/moved"

func (f *forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	answer, token, refusal, spoilt := f.answer, f.token, f.refusal, f.spoil.how != ""
	if !slices.Contains(f.homes, r.Host) {
		f.strays = append(f.strays, fmt.Errorf("%s was asked for %s, with Authorization %q: only %v may be", r.Host, r.URL, r.Header.Get("Authorization"), f.homes))
	}
	f.mu.Unlock()
	fmt.Fprintf(f.log, "%s %s %s: %s\n", time.Now().Format("15:04:05.000"), r.Method, r.URL.RequestURI(), answer)

	contentType := "application/x-git-upload-pack-result"
	if r.Method == http.MethodGet {
		contentType = "application/x-git-upload-pack-advertisement"
	}
	_, password, _ := r.BasicAuth()
	path, thither := strings.CutPrefix(r.URL.Path, moved)
	switch {
	case answer == "portal":
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!DOCTYPE html><title>Welcome to Barn WiFi</title><form>Please log in</form>")
	case answer == "empty":
		w.Header().Set("Content-Type", contentType)
	case answer == "elsewhere":
		http.Redirect(w, r, "http://"+f.other+r.URL.RequestURI(), http.StatusFound)
	case answer == "moved" && !thither:
		http.Redirect(w, r, moved+r.URL.RequestURI(), http.StatusMovedPermanently)
	case answer != "ok" && answer != "moved":
		var code int
		fmt.Sscan(answer, &code)
		refuse(w, code)
	case token != "" && password != token:
		refuse(w, refusal)
	case answer == "ok" && thither:
		refuse(w, http.StatusNotFound)
	default:
		// net/http/cgi refuses chunked bodies, which a client may send.
		body, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		r.URL.Path, r.URL.RawPath = path, ""
		if spoilt {
			f.serveSpoilt(w, r)
			return
		}
		f.git.ServeHTTP(w, r)
	}
}

func refuse(w http.ResponseWriter, code int) {
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
	}
	http.Error(w, http.StatusText(code), code)
}

func (f *forge) serveSpoilt(w http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	f.git.ServeHTTP(rec, r)
	f.mu.Lock()
	body, abort := f.spoil.use(rec.Body.Bytes())
	f.mu.Unlock()
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	w.WriteHeader(rec.Code)
	w.Write(body)
	if abort {
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// use is what becomes of one answer.
func (s *spoil) use(body []byte) (_ []byte, abort bool) {
	end, pack := 0, []int(nil) // where the bytes of the pack are: in git's sideband
	for _, p := range packets(body) {
		if s.how == "cut" {
			if s.packets == 0 {
				return body[:end], s.abort
			}
			s.packets--
		}
		if p > end+5 && body[end+4] == 1 {
			for i := end + 5; i < p; i++ {
				pack = append(pack, i)
			}
		}
		end = p
	}
	if s.how == "damaged" && len(pack) > 0 {
		body[pack[s.at%len(pack)]] ^= 0x21
	}
	return body, false
}

// packets are the ends of an answer's pkt-lines (gitprotocol-common(5)).
func packets(body []byte) (ends []int) {
	for at := 0; at+4 <= len(body); {
		n := 0
		if _, err := fmt.Sscanf(string(body[at:at+4]), "%04x", &n); err != nil {
			break
		}
		at = min(at+max(n, 4), len(body))
		ends = append(ends, at)
	}
	return ends
}

func (f *forge) astray() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.strays...)
}

// certificate is one for an address that vouches for itself, valid from 2020 on: a board that woke in 1970 does not believe it.
func certificate(addr, caFile string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	c := x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(addr)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, &c, &c, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// counting counts what goes out over a listener's connections.
type counting struct {
	net.Listener
	out *atomic.Int64
}

// Accept waits for a connection.
func (l counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countingConn{c, l.out}, err
}

type countingConn struct {
	net.Conn
	out *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.out.Add(int64(n))
	return n, err
}

func TestSpoil(t *testing.T) {
	t.Parallel()
	const answer = "000dpackfile\n" + "000b\x01PACKab" + "0008\x02not" + "0007\x01cd" + "0000"
	for _, tt := range []struct {
		spoil spoil
		want  string
		abort bool
	}{
		{spoil{how: "cut", packets: 0}, "", false},
		{spoil{how: "cut", packets: 1, abort: true}, answer[:13], true},
		{spoil{how: "cut", packets: 4, abort: true}, answer[:len(answer)-4], true},
		{spoil{how: "cut", packets: 5, abort: true}, answer, false},
		{spoil{how: "damaged", at: 0}, strings.Replace(answer, "P", "q", 1), false},
		{spoil{how: "damaged", at: 7}, strings.Replace(answer, "cd", "cE", 1), false},
		{spoil{how: "damaged", at: 8}, strings.Replace(answer, "P", "q", 1), false},
	} {
		got, abort := tt.spoil.use([]byte(answer))
		if string(got) != tt.want || abort != tt.abort {
			t.Errorf("%+v: %q, %v, want %q, %v", tt.spoil, got, abort, tt.want, tt.abort)
		}
	}
}
