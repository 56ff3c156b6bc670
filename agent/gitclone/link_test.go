package gitclone

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/storage/memory"
)

// long asks for what takes minutes: make test-long.
var long = flag.Bool("long", false, "also what is too long for every day")

// wire is a link to a server that counts what goes over it, HTTP's headers and all, and can be slow.
type wire struct {
	addr     string
	up, down atomic.Int64
	conns    atomic.Int64
	rate     atomic.Int64 // bytes per second towards the client; 0: as fast as can be
}

func newWire(t testing.TB, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	w := &wire{addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.conns.Add(1)
			s, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				return
			}
			go w.copy(s, c, &w.up, false)
			go w.copy(c, s, &w.down, true)
		}
	}()
	return w
}

func (w *wire) copy(to, from net.Conn, n *atomic.Int64, down bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 512)
	for {
		k, err := from.Read(buf)
		n.Add(int64(k))
		if r := w.rate.Load(); down && r > 0 {
			time.Sleep(time.Duration(k) * time.Second / time.Duration(r))
		}
		if _, werr := to.Write(buf[:k]); err != nil || werr != nil {
			return
		}
	}
}

func (w *wire) take() int64 { return w.up.Swap(0) + w.down.Swap(0) }

// through gives the URL by way of the wire.
func (w *wire) through(url string) string {
	_, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	return "http://" + w.addr + "/" + path
}

// TestPollOnTheWire: all that a poll of nothing new sends and gets, headers included, against go-git's List, with one
// branch and with 10,000.
func TestPollOnTheWire(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 10, 2, false)
	srv, url := f.serve()
	w := newWire(t, srv.Listener.Addr().String())
	o := options(t, w.through(url))
	o.File = f.file(0)
	c := openClone(t, o)
	mustFetch(t, c)
	for _, branches := range []int{0, 10_000} {
		f.branches(branches)
		mustFetch(t, c)
		before := disk(t, c)
		w.take()
		conns := w.conns.Load()
		for range 5 {
			if got := mustFetch(t, c); got.Changed {
				t.Fatalf("Fetch = %+v", got)
			}
		}
		ours := w.take() / 5
		if n := w.conns.Load() - conns; n != 0 {
			t.Errorf("%d connections for 5 polls: the one that there is should do", n)
		}
		if _, err := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: "o", URLs: []string{o.URL}}).List(&git.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		theirs := w.take()
		t.Logf("%d more branches: a poll takes %d bytes on the wire, go-git's List %d", branches, ours, theirs)
		if float64(ours) > 0.75*float64(theirs) || ours > 700 {
			t.Errorf("%d more branches: a poll takes %d bytes, go-git's List %d: want 0.75 of that, and 700, at most", branches, ours, theirs)
		}
		if disk(t, c) != before {
			t.Error("polls have written")
		}
	}
}

// TestSlowLink: 8 kB/s bring a first sync of a fleet on a server without filters, given time.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1000, 2, false)
	srv, url := f.serve()
	w := newWire(t, srv.Listener.Addr().String())
	w.rate.Store(8000)
	o := options(t, w.through(url))
	o.File, o.StallTimeout, o.FetchTimeout = f.file(0), 20*time.Second, 2*time.Minute
	c := openClone(t, o)
	start := time.Now()
	got := mustFetch(t, c)
	first := time.Since(start)
	f.change(0, 7)
	start = time.Now()
	change := mustFetch(t, c)
	t.Logf("first sync: %d bytes in %v; change: %d bytes in %v", got.BytesDown, first, change.BytesDown, time.Since(start))
	if first < 2*time.Second {
		t.Errorf("the link was not slow: %v for %d bytes", first, got.BytesDown)
	}
	if change.BytesDown > 4<<10 {
		t.Errorf("a change took %d bytes", change.BytesDown)
	}
}

// TestClockAt1970: a certificate of this century, and a board that thinks that it is the last: nothing changes, the advice
// names the clock, and setting it is all that is needed.
func TestClockAt1970(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	one := r.set("pump: on\n")
	plain, _ := r.serve()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(plain.Config.Handler)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	srv.StartTLS()
	defer srv.Close()
	o := options(t, srv.URL+"/state.git")
	o.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(o.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	var clock atomic.Int64
	clock.Store(now.Unix())
	o.Now = func() time.Time { return time.Unix(clock.Load(), 0) }
	c := openClone(t, o)
	mustFetch(t, c)
	before := disk(t, c)
	two := r.set("pump: off\n")
	c.remote.close() // a connection that lives is not asked for its certificate again
	clock.Store(42)
	if e := wantFetch(t, c, ErrCertificate); !strings.Contains(e.Advice, "1970-01-01") {
		t.Errorf("advice %q does not name the clock", e.Advice)
	}
	wantDesired(t, c, one, "pump: on\n")
	if disk(t, c) != before {
		t.Error("the clone was written")
	}
	clock.Store(now.Unix())
	mustFetch(t, c)
	wantDesired(t, c, two, "pump: off\n")
}

// TestSkewedClocks: the descent is proven though each revision is older, by its maker's clock, than the one before.
func TestSkewedClocks(t *testing.T) {
	t.Parallel()
	for _, filters := range []bool{true, false} {
		f := newFleet(t, 5, 2, true)
		f.filters(filters)
		_, url := f.serve()
		o := options(t, url)
		o.File = f.file(0)
		c := openClone(t, o)
		mustFetch(t, c)
		for i := range 20 {
			f.clock -= 86_400
			f.change(i%5, f.clock)
		}
		if got := mustFetch(t, c); got.Revision != f.tip || !got.Changed {
			t.Errorf("filters %v: Fetch = %+v", filters, got)
		}
	}
}

// TestRewrittenFleet: to find that a long history of a large fleet has been rewritten costs little, and once.
func TestRewrittenFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3000, 100, true)
	for _, filters := range []bool{true, false} {
		f.filters(filters)
		_, url := f.serve()
		o := options(t, url)
		o.File = f.file(0)
		c := openClone(t, o)
		mustFetch(t, c)
		tip := f.tip
		f.tip = tip + "~1"
		f.clock += 100
		f.change(0, 42) // instead of the last one
		got, err := c.Fetch(context.Background())
		if KindOf(err) != ErrHistoryRewritten || got.BytesDown > maxSkewedBytes+64<<10 {
			t.Errorf("filters %v: Fetch = %+v, %v", filters, got, err)
		}
		t.Logf("filters %v: %d bytes", filters, got.BytesDown)
		if got, err = c.Fetch(context.Background()); KindOf(err) != ErrHistoryRewritten || got.BytesDown > 1000 {
			t.Errorf("filters %v: second Fetch = %+v, %v", filters, got, err)
		}
		f.run(f.bare, "git", "update-ref", "refs/heads/main", tip)
		f.tip = tip
	}
}

// TestRecreatedBranch: deleted, and made anew with a history of its own: refused until it is accepted. Renamed: gone.
func TestRecreatedBranch(t *testing.T) {
	t.Parallel()
	r, _, c, one := started(t)
	r.run(r.bare, "git", "branch", "-m", "main", "trunk")
	for range 2 {
		wantFetch(t, c, ErrBranchGone)
	}
	wantDesired(t, c, one, "pump: on\n")
	r.git("checkout", "-q", "--orphan", "fresh")
	two := r.set("pump: off\n")
	for range 2 {
		if e := wantFetch(t, c, ErrHistoryRewritten); !strings.Contains(e.Advice, "holdfast accept "+two) {
			t.Errorf("advice %q is not the command that accepts %s", e.Advice, two)
		}
	}
	wantDesired(t, c, one, "pump: on\n")
	if err := c.Accept(two); err != nil {
		t.Fatal(err)
	}
	mustFetch(t, c)
	wantDesired(t, c, two, "pump: off\n")
}

// inLimitedMemory runs a test again in a process of its own, and returns its largest resident size in bytes.
func inLimitedMemory(t *testing.T, limit int64, do func(t *testing.T)) {
	const env = "HOLDFAST_LIMITED_MEMORY"
	if os.Getenv(env) != "" {
		debug.SetMemoryLimit(limit)
		do(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v", fmt.Sprintf("-long=%v", *long))
	cmd.Env = append(os.Environ(), env+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	peak := int64(-1)
	for l := range strings.Lines(string(out)) {
		if _, n, ok := strings.Cut(l, "VmHWM:"); ok {
			peak, _ = strconv.ParseInt(strings.Fields(n)[0], 10, 64)
		}
	}
	if peak < 0 || peak<<10 > limit {
		t.Errorf("the process took %d KiB, %d are allowed", peak, limit>>10)
	}
}

// tellPeak says how large this process has been.
func tellPeak(t *testing.T) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		if strings.HasPrefix(l, "VmHWM:") {
			fmt.Print(l)
		}
	}
}

// TestHugeFileInAnotherFolder: 200 MB beside our file cost bandwidth, at worst, and no memory: not with filters, where it
// does not come, and not without, where it is read past; 64 MB are enough for all of the process.
func TestHugeFileInAnotherFolder(t *testing.T) {
	size := 40 << 20
	if *long {
		size = 200 << 20
	}
	inLimitedMemory(t, 64<<20, func(t *testing.T) {
		f := &fleet{repo: newRepo(t), devices: 3, clock: 1_700_000_000}
		block := strings.Repeat("holdfast", 8192)
		f.hugeFile("firmware/image.bin", block, size/len(block), greenhouse(0, 0), f.file(0))
		_, url := f.serve()
		for _, filters := range []bool{true, false} {
			f.filters(filters)
			o := options(t, url)
			o.File, o.FetchTimeout, o.MaxPackBytes = f.file(0), 5*time.Minute, 256<<20
			c := openClone(t, o)
			got := mustFetch(t, c)
			d, _, _ := c.Desired()
			t.Logf("allowFilter=%v: %d bytes by %s", filters, got.BytesDown, d.How)
			if string(d.Data) != greenhouse(0, 0) || filters && got.BytesDown > 4<<10 {
				t.Errorf("allowFilter=%v: %d bytes by %s: %q", filters, got.BytesDown, d.How, d.Data)
			}
			f.change(0, 9)
			if got := mustFetch(t, c); got.BytesDown > 4<<10 {
				t.Errorf("allowFilter=%v: a change took %d bytes", filters, got.BytesDown)
			}
			f.run(f.bare, "git", "update-ref", "refs/heads/main", f.tip+"~1")
			f.tip += "~1"
			f.tip = f.run(f.bare, "git", "rev-parse", f.tip)
		}
		tellPeak(t)
	})
}

// TestThousandChanges: file and memory are flat over a thousand changes; a hundred on every day.
func TestThousandChanges(t *testing.T) {
	t.Parallel()
	n := 60
	if *long {
		n = 1000
	}
	f := newFleet(t, 100, 1, true)
	f.filters(true)
	tips := make([]string, 0, n)
	f.commits(n, func(i int, file func(name, content string)) { file(f.file(0), greenhouse(0, i+1)) })
	for l := range strings.Lines(f.run(f.bare, "git", "rev-list", "--first-parent", "--reverse", "main")) {
		tips = append(tips, strings.TrimSpace(l))
	}
	f.run(f.bare, "git", "repack", "-adq")
	o := options(t, f.bare)
	o.File = f.file(0)
	ref := filepath.Join(f.bare, "refs/heads/main")
	at := func(i int) {
		if err := os.WriteFile(ref, []byte(tips[i]+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at(0)
	c := openClone(t, o)
	mustFetch(t, c)
	settled := int64(0)
	for i := 1; i <= n; i++ {
		before, err := c.store.TxID()
		if err != nil {
			t.Fatal(err)
		}
		at(i)
		f, err := c.Fetch(context.Background())
		if err != nil || !f.Changed || f.SameDocument {
			t.Fatalf("change %d: Fetch = %+v, %v", i, f, err)
		}
		if after, _ := c.store.TxID(); after != before+1 {
			t.Fatalf("change %d took %d transactions, of two syncs each", i, after-before)
		}
		length, taken := fileSize(t, o.Path)
		switch {
		case i == 10:
			settled = length
		case i > 10 && length != settled || taken > 40<<10:
			t.Fatalf("after %d changes clone.db has %d bytes, %d after 10, and takes %d", i, length, settled, taken)
		}
	}
	d, _, _ := c.Desired()
	if string(d.Data) != greenhouse(0, n) {
		t.Errorf("Desired = %q", d.Data)
	}
	t.Logf("clone.db has %d bytes after %d changes", settled, n)
}
