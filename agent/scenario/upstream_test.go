package scenario

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// upstream is the state repository: bare, served by a real git http-backend over HTTP and HTTPS and by git-upload-pack over SSH,
// each through a proxy that is the weather.
type upstream struct {
	dir    string // the bare repository
	branch string // the one that pushes go to
	forge  *forge
	ssh    *sshServer
	caFile string
	log    *os.File
	out    atomic.Int64 // bytes that have left it

	server  *http.Server
	doors   map[string]door // by the scheme of their URL
	weather []*toxiproxy.Proxy
	pushes  int
}

// door is an address of the weather, and that of the server behind it.
type door struct{ listen, behind string }

// url is the repository's, through the weather.
func (u *upstream) url(scheme string) string {
	if scheme == "ssh" {
		return "ssh://git@" + u.doors[scheme].listen + u.dir
	}
	return scheme + "://" + u.doors[scheme].listen + "/state.git"
}

const heads = "refs/heads/"

// gitEnv keeps every git of the harness away from the configuration of whoever runs the tests.
func gitEnv(more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Operator", "GIT_AUTHOR_EMAIL=operator@example.org",
		"GIT_COMMITTER_NAME=Operator", "GIT_COMMITTER_EMAIL=operator@example.org",
	}, more...)
}

// newUpstream makes an empty repository in dir and serves it at addr, an IP address of the scenario's own.
func newUpstream(dir, addr, logFile string) (*upstream, error) {
	u := &upstream{dir: filepath.Join(dir, "state.git"), branch: "main", caFile: filepath.Join(dir, "ca.pem"), doors: map[string]door{}}
	if _, err := u.git(nil, "init", "--quiet", "--bare", "--initial-branch=main", u.dir); err != nil {
		return nil, err
	}
	// As the large forges do; what a narrow server does is a test of the fetching itself.
	if err := errors.Join(u.configure("uploadpack.allowFilter", "true"), u.configure("core.fsync", "none")); err != nil {
		return nil, err
	}
	var err error
	if u.log, err = os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666); err != nil {
		return nil, err
	}
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	cert, err := certificate(addr, u.caFile)
	if err != nil {
		return nil, err
	}
	behind := map[string]net.Listener{}
	for scheme, ports := range map[string][2]string{"http": {"8418", "8417"}, "https": {"8428", "8427"}, "ssh": {"8438", "8437"}} {
		l, err := net.Listen("tcp", net.JoinHostPort(addr, ports[1]))
		if err != nil {
			return nil, err
		}
		behind[scheme] = counting{l, &u.out}
		u.doors[scheme] = door{net.JoinHostPort(addr, ports[0]), l.Addr().String()}
	}
	u.forge = &forge{answer: "ok", log: u.log, homes: []string{u.doors["http"].listen, u.doors["https"].listen}, other: u.doors["http"].behind, git: &cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Dir:    u.dir,
		Env:    append(gitEnv(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"),
		Logger: log.New(u.log, "", 0),
		Stderr: u.log,
	}}
	u.server = &http.Server{ErrorLog: log.New(u.log, "", 0), Handler: u.forge}
	go u.server.Serve(behind["http"])
	go u.server.Serve(tls.NewListener(behind["https"], &tls.Config{Certificates: []tls.Certificate{cert}}))
	if u.ssh, err = newSSHServer(dir, u.doors["ssh"].listen, behind["ssh"]); err != nil {
		return nil, err
	}
	go u.ssh.serve()
	return u, u.setWeather()
}

func (u *upstream) close() {
	u.cut()
	u.server.Close()
	u.ssh.close()
	u.log.Close()
}

// configure sets one of the repository's own settings (git-config(1)).
func (u *upstream) configure(key, value string) error {
	_, err := u.git(nil, "config", key, value)
	return err
}

func (u *upstream) git(env []string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Env = gitEnv(append(env, "GIT_DIR="+u.dir)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// commit makes exactly the files of folder a revision and the branch's head. It has the old head as its parent unless it is an orphan.
func (u *upstream) commit(folder, message string, orphan bool) (revision string, err error) {
	u.pushes++
	index := "GIT_INDEX_FILE=" + filepath.Join(u.dir, fmt.Sprintf("index.%d", u.pushes))
	if _, err := u.git([]string{index, "GIT_WORK_TREE=" + folder}, "add", "--all", "--force", "."); err != nil {
		return "", err
	}
	tree, err := u.git([]string{index}, "write-tree")
	if err != nil {
		return "", err
	}
	args := []string{"commit-tree", tree, "-m", message}
	if head := u.head(); head != "" && !orphan {
		args = append(args, "-p", head)
	}
	// A second for each push, so that the same content pushed twice is two revisions.
	date := fmt.Sprintf("@%d +0000", 1_800_000_000+u.pushes)
	if revision, err = u.git([]string{"GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}, args...); err != nil {
		return "", err
	}
	_, err = u.git(nil, "update-ref", heads+u.branch, revision)
	return revision, err
}

// head is the branch's revision, "" if there is no branch.
func (u *upstream) head() string {
	rev, err := u.git(nil, "rev-parse", "--verify", "--quiet", heads+u.branch)
	if err != nil {
		return ""
	}
	return rev
}

// reset makes revision the branch's head again.
func (u *upstream) reset(revision string) error {
	_, err := u.git(nil, "update-ref", heads+u.branch, revision)
	return err
}

// deleteBranch leaves what it had under another name: the repository is not empty.
func (u *upstream) deleteBranch() error {
	if _, err := u.git(nil, "update-ref", "refs/heads/elsewhere", u.head()); err != nil {
		return err
	}
	_, err := u.git(nil, "update-ref", "-d", heads+u.branch)
	return err
}

// rename gives the branch another name.
func (u *upstream) rename(to string) error {
	_, err := u.git(nil, "branch", "-m", u.branch, to)
	u.branch = to
	return err
}

// branches makes n more branches beside ours.
func (u *upstream) branches(n string) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	var refs strings.Builder
	fmt.Fprintf(&refs, "# pack-refs with: peeled fully-peeled sorted \n")
	head := u.head()
	for i := range count {
		fmt.Fprintf(&refs, "%s refs/heads/feature/%06d\n", head, i)
	}
	return os.WriteFile(filepath.Join(u.dir, "packed-refs"), []byte(refs.String()), 0o666)
}

// toxic is one kind of bad weather, in toxiproxy's terms.
type toxic struct {
	Type       string         `json:"type"`
	Stream     string         `json:"stream"`
	Attributes map[string]any `json:"attributes"`
}

// setWeather replaces the proxies by some with the given toxics: no toxic is ever added to or removed from open
// connections, in which toxiproxy can wait for ever. Connections of before are cut.
func (u *upstream) setWeather(ts ...toxic) error {
	u.cut()
	for name, d := range u.doors {
		p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), name, d.listen, d.behind)
		for _, t := range ts {
			b, err := json.Marshal(t)
			if err != nil {
				return err
			}
			if _, err := p.Toxics.AddToxicJson(bytes.NewReader(b)); err != nil {
				return fmt.Errorf("toxic %s: %w", b, err)
			}
		}
		u.weather = append(u.weather, p)
		err := p.Start()
		// A child of ours that has been forked and is not its program yet still has the listener of before.
		for began := time.Now(); errors.Is(err, syscall.EADDRINUSE) && time.Since(began) < 5*time.Second; err = p.Start() {
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cut refuses connections and cuts those there are.
func (u *upstream) cut() {
	for _, p := range u.weather {
		p.Stop()
	}
	u.weather = nil
}

// corruptToxic flips the lowest bit of every Every-th byte of a connection's answers, from byte From on. The first few hundred are HTTP's.
type corruptToxic struct {
	From  int `json:"from"`
	Every int `json:"every"`
}

type passed struct{ bytes int }

// NewState counts a connection's bytes.
func (t *corruptToxic) NewState() any { return &passed{} }

// Pipe runs until the connection ends.
func (t *corruptToxic) Pipe(stub *toxics.ToxicStub) {
	n := stub.State.(*passed)
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			for i := range c.Data {
				if at := n.bytes + i; at >= t.From && (at-t.From)%max(t.Every, 1) == 0 {
					c.Data[i] ^= 1
				}
			}
			n.bytes += len(c.Data)
			stub.Output <- c
		}
	}
}

// stallToxic lets the first After bytes of a connection pass and then swallows everything, the end included.
type stallToxic struct {
	After int `json:"after"`
}

// NewState counts a connection's bytes.
func (t *stallToxic) NewState() any { return &passed{} }

// Pipe runs until the connection is cut.
func (t *stallToxic) Pipe(stub *toxics.ToxicStub) {
	n := stub.State.(*passed)
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			if left := t.After - n.bytes; left > 0 {
				n.bytes += len(c.Data)
				if left < len(c.Data) {
					c = &stream.StreamChunk{Data: c.Data[:left], Timestamp: c.Timestamp}
				}
				stub.Output <- c
			}
		}
	}
}

var registerToxics = sync.OnceFunc(func() {
	toxics.Register("corrupt", new(corruptToxic))
	toxics.Register("stall", new(stallToxic))
})

func init() { registerToxics() }

func TestUpstreamServesAndWeatherStrikes(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), freeAddr()
	u, err := newUpstream(dir, addr, filepath.Join(dir, "git.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	folder := filepath.Join(dir, "good")
	os.MkdirAll(folder, 0o777)
	// Long and incompressible enough for the corruption to hit the pack.
	os.WriteFile(filepath.Join(folder, "greenhouse.yaml"), []byte("pump: off # "+randomText(4000)+"\n"), 0o666)
	rev, err := u.commit(folder, "good", false)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	clone := func() (string, error) {
		n++
		to := filepath.Join(dir, fmt.Sprint("clone", n))
		cmd := exec.Command("git", "-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=1", "clone", "--quiet", "--depth=1", u.url("http"), to)
		cmd.Env = gitEnv()
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		out, err := exec.Command("git", "-C", to, "rev-parse", "HEAD").Output()
		return strings.TrimSpace(string(out)), err
	}
	for _, step := range []struct {
		weather string
		set     func() error
		ok      bool
	}{
		{"clear", func() error { return nil }, true},
		{"cut", func() error { u.cut(); return nil }, false},
		{"stalled", func() error { return u.setWeather(toxic{"stall", "downstream", map[string]any{"after": 0}}) }, false},
		{"stalled in the answer", func() error { return u.setWeather(toxic{"stall", "downstream", map[string]any{"after": 300}}) }, false},
		{"corrupt", func() error {
			return u.setWeather(toxic{"corrupt", "downstream", map[string]any{"from": 350, "every": 61}})
		}, false},
		{"slow", func() error { return u.setWeather(toxic{"latency", "downstream", map[string]any{"latency": 100}}) }, true},
		{"login page", func() error { u.forge.answers("portal"); return u.setWeather() }, false},
		{"401", func() error { u.forge.answers("401"); return nil }, false},
		{"clear again", func() error { u.forge.answers("ok"); return nil }, true},
	} {
		if err := step.set(); err != nil {
			t.Fatalf("%s: %v", step.weather, err)
		}
		got, err := clone()
		if step.ok && (err != nil || got != rev) {
			t.Errorf("%s: clone = %q, %v; want %q", step.weather, got, err, rev)
		}
		if !step.ok && err == nil {
			t.Errorf("%s: clone succeeded", step.weather)
		}
	}
	again, err := u.commit(folder, "the same", false)
	if err != nil || again == rev {
		t.Errorf("the same folder again: %q, %v; want another revision than %q", again, err, rev)
	}
	if err := u.deleteBranch(); err != nil || u.head() != "" {
		t.Errorf("deleteBranch: %v, head %q", err, u.head())
	}
}
