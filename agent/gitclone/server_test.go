package gitclone

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gitEnv makes git the same everywhere: no configuration but the repository's, one identity, one clock.
func gitEnv() []string {
	return append(os.Environ(),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_TERMINAL_PROMPT=0", "HOME=/nonexistent",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_AUTHOR_DATE=2026-11-30T12:00:00Z",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org", "GIT_COMMITTER_DATE=2026-11-30T12:00:00Z",
	)
}

// repo is a state repository: a bare one that is served, and a worktree that pushes to it.
type repo struct {
	t    testing.TB
	bare string
	work string
}

func newRepo(t testing.TB) *repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: make deps")
	}
	dir := t.TempDir()
	r := &repo{t, filepath.Join(dir, "state.git"), filepath.Join(dir, "work")}
	r.run(dir, "git", "init", "-q", "--bare", "-b", "main", r.bare)
	r.run(dir, "git", "clone", "-q", r.bare, r.work)
	r.run(r.work, "git", "checkout", "-q", "-B", "main")
	return r
}

func (r *repo) run(dir, name string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, gitEnv()
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, errb.String())
	}
	return strings.TrimSpace(out.String())
}

func (r *repo) git(args ...string) string { r.t.Helper(); return r.run(r.work, "git", args...) }

func (r *repo) write(name, content string) {
	r.t.Helper()
	p := filepath.Join(r.work, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// push records all of the worktree, forces it to the server, and returns the revision.
func (r *repo) push(subject string) string {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", subject)
	r.git("push", "-q", "-f", "origin", "HEAD:main")
	return r.git("rev-parse", "HEAD")
}

// set writes greenhouse.yaml and pushes it.
func (r *repo) set(content string) string {
	r.t.Helper()
	r.write("greenhouse.yaml", content)
	return r.push("set " + strings.TrimSpace(content))
}

// server serves repositories by git http-backend, with a hook in front.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	front    func(http.ResponseWriter, *http.Request, http.Handler) // nil: straight through
	requests []string
}

// serve serves the folder that holds the repository; the URL is that of the repository.
func (r *repo) serve() (*server, string) {
	r.t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		r.t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env: append([]string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.bare), "GIT_HTTP_EXPORT_ALL=1",
			"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "HOME=/nonexistent"}, "PATH="+os.Getenv("PATH")),
		Stderr: io.Discard,
	}
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, what(q))
		front := s.front
		s.mu.Unlock()
		if front != nil {
			front(w, q, backend)
			return
		}
		backend.ServeHTTP(w, q)
	}))
	r.t.Cleanup(s.Close)
	return s, s.URL + "/state.git"
}

// what names a request: GET, LS-REFS, or POST for one for a pack.
func what(q *http.Request) string {
	if q.Method != http.MethodPost {
		return q.Method + " " + q.URL.Path
	}
	b, _ := io.ReadAll(q.Body)
	q.Body = io.NopCloser(bytes.NewReader(b))
	if bytes.Contains(b, []byte("command=ls-refs")) {
		return "LS-REFS " + q.URL.Path
	}
	return q.Method + " " + q.URL.Path
}

func (s *server) setFront(f func(http.ResponseWriter, *http.Request, http.Handler)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.front = f
}

// count returns how many requests of a method there were, and forgets them.
func (s *server) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if strings.HasPrefix(r, method+" ") {
			n++
		}
	}
	s.requests = nil
	return n
}
