package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// upstream is the state repository: bare, served by a real git http-backend, reached through a proxy that is the weather.
type upstream struct {
	dir    string // the bare repository
	url    string // through the proxy
	answer atomic.Value
	log    *os.File

	server  *http.Server
	backend string // address of the server behind the proxy
	listen  string // address of the proxy
	weather *toxiproxy.Proxy
	pushes  int
}

const branch = "refs/heads/main"

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
	u := &upstream{dir: filepath.Join(dir, "state.git"), listen: net.JoinHostPort(addr, "8418")}
	u.url = "http://" + u.listen + "/state.git"
	u.answer.Store("ok")
	if _, err := u.git(nil, "init", "--quiet", "--bare", "--initial-branch=main", u.dir); err != nil {
		return nil, err
	}
	// As the large forges do; what a narrow server does is a test of the fetching itself.
	for _, kv := range []string{"uploadpack.allowFilter=true", "core.fsync=none"} {
		k, v, _ := strings.Cut(kv, "=")
		if _, err := u.git(nil, "config", k, v); err != nil {
			return nil, err
		}
	}
	var err error
	if u.log, err = os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666); err != nil {
		return nil, err
	}
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "8417"))
	if err != nil {
		return nil, err
	}
	u.backend = l.Addr().String()
	u.server = &http.Server{ErrorLog: log.New(u.log, "", 0), Handler: u.handler(&cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Dir:    u.dir,
		Env:    append(gitEnv(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"),
		Logger: log.New(u.log, "", 0),
		Stderr: u.log,
	})}
	go u.server.Serve(l)
	return u, u.setWeather()
}

func (u *upstream) close() {
	u.weather.Stop()
	u.server.Close()
	u.log.Close()
}

// handler puts the answers of a broken forge before git, and logs.
func (u *upstream) handler(git http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := u.answer.Load().(string)
		fmt.Fprintf(u.log, "%s %s %s: %s\n", time.Now().Format("15:04:05.000"), r.Method, r.URL.RequestURI(), answer)
		switch answer {
		case "ok":
			// net/http/cgi refuses chunked bodies, which a client may send.
			body, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
			git.ServeHTTP(w, r)
		case "portal":
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<!DOCTYPE html><title>Welcome to Barn WiFi</title><form>Please log in</form>")
		default:
			var code int
			fmt.Sscan(answer, &code)
			if code == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
			}
			http.Error(w, http.StatusText(code), code)
		}
	})
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
	_, err = u.git(nil, "update-ref", branch, revision)
	return revision, err
}

// head is the branch's revision, "" if there is no branch.
func (u *upstream) head() string {
	rev, err := u.git(nil, "rev-parse", "--verify", "--quiet", branch)
	if err != nil {
		return ""
	}
	return rev
}

// reset makes revision the branch's head again.
func (u *upstream) reset(revision string) error {
	_, err := u.git(nil, "update-ref", branch, revision)
	return err
}

// deleteBranch leaves what it had under another name: the repository is not empty.
func (u *upstream) deleteBranch() error {
	if _, err := u.git(nil, "update-ref", "refs/heads/elsewhere", u.head()); err != nil {
		return err
	}
	_, err := u.git(nil, "update-ref", "-d", branch)
	return err
}

// toxic is one kind of bad weather, in toxiproxy's terms.
type toxic struct {
	Type       string         `json:"type"`
	Stream     string         `json:"stream"`
	Attributes map[string]any `json:"attributes"`
}

// setWeather replaces the proxy by one with the given toxics: no toxic is ever added to or removed from open
// connections, in which toxiproxy can wait for ever. Connections of before are cut.
func (u *upstream) setWeather(ts ...toxic) error {
	u.cut()
	logger := zerolog.Nop()
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), logger), "upstream", u.listen, u.backend)
	for _, t := range ts {
		b, err := json.Marshal(t)
		if err != nil {
			return err
		}
		if _, err := p.Toxics.AddToxicJson(bytes.NewReader(b)); err != nil {
			return fmt.Errorf("toxic %s: %w", b, err)
		}
	}
	u.weather = p
	return p.Start()
}

// cut refuses connections and cuts those there are.
func (u *upstream) cut() {
	if u.weather != nil {
		u.weather.Stop()
	}
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
		cmd := exec.Command("git", "-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=1", "clone", "--quiet", "--depth=1", u.url, to)
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
		{"login page", func() error { u.answer.Store("portal"); return u.setWeather() }, false},
		{"401", func() error { u.answer.Store("401"); return nil }, false},
		{"clear again", func() error { u.answer.Store("ok"); return nil }, true},
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
