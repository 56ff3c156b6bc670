//go:build system

package systemtest

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// upstream is a board's state repository, served by git's own http-backend (git-http-backend(1)) at http://git.example.org/state.git.
type upstream struct {
	t      *testing.T
	work   string      // a work tree; its greenhouse.yaml is what is declared
	token  string      // if not empty, the password that a request must carry
	hang   atomic.Bool // requests are taken, and never answered
	pushes int
}

func newUpstream(t *testing.T, dir, addr string) *upstream {
	t.Helper()
	u := &upstream{t: t, work: filepath.Join(dir, "work")}
	bare := filepath.Join(dir, "state.git")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	u.git("init", "--quiet", "--bare", "--initial-branch=main", bare)
	u.git("-C", bare, "config", "uploadpack.allowFilter", "true")
	u.git("clone", "--quiet", bare, u.work)
	u.git("-C", u.work, "config", "push.default", "current")
	exe, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(exe)), "git-http-backend"), Dir: bare,
		Env:    append(gitEnv(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"),
		Logger: log.New(logFile, "", 0), Stderr: logFile,
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ErrorLog: log.New(logFile, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u.hang.Load() {
			<-r.Context().Done()
			return
		}
		if _, password, _ := r.BasicAuth(); u.token != "" && password != u.token {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close(); logFile.Close() })
	return u
}

// gitEnv keeps git away from the configuration of whoever runs the tests.
func gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Operator", "GIT_AUTHOR_EMAIL=operator@example.org", "GIT_COMMITTER_NAME=Operator", "GIT_COMMITTER_EMAIL=operator@example.org",
	}
}

// env is gitEnv with a clock: a second for each push, beginning alike for every board, so that the first revision of all is one and the same.
func (u *upstream) env() []string {
	date := fmt.Sprintf("@%d +0000", 1_800_000_000+u.pushes)
	return append(gitEnv(), "GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date)
}

func (u *upstream) git(args ...string) string {
	u.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = u.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// declared is the file of a greenhouse that has all as the fallback has it, but for what is written as "lamp: on".
func declared(settings ...string) string {
	values := map[string]string{"pump": "off", "fan": "off", "vent": "on", "lamp": "off", "door": "closed"}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, ": ")
		values[key] = value
	}
	var text strings.Builder
	for _, key := range []string{"pump", "fan", "vent", "lamp", "door", "retry"} {
		if v, ok := values[key]; ok {
			fmt.Fprintf(&text, "%s: %s\n", key, v)
		}
	}
	return text.String()
}

// push declares settings and returns the revision.
func (u *upstream) push(settings ...string) string {
	u.t.Helper()
	if err := os.WriteFile(filepath.Join(u.work, "greenhouse.yaml"), []byte(declared(settings...)), 0o644); err != nil {
		u.t.Fatal(err)
	}
	u.pushes++
	u.git("-C", u.work, "add", "greenhouse.yaml")
	u.git("-C", u.work, "commit", "--quiet", "--allow-empty", "--message", "declare "+strings.Join(settings, ", "))
	u.git("-C", u.work, "push", "--quiet", "origin", "HEAD:main")
	return u.git("-C", u.work, "rev-parse", "HEAD")
}
