package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// board is one demo: its folder, its processes and its git server.
type board struct {
	dir, device, config, holdfast string
	start                         time.Time
	initial                       map[string]string // the device's actuators before anybody wrote to it

	mu    sync.Mutex // of out, told and moved
	out   io.Writer
	told  seen                 // what the narrator has told of, for await
	moved map[string]time.Time // when the demo moved an actuator by hand

	cut          atomic.Bool // the network to the git server is
	http         *http.Server
	guard, agent *process
	// processes in the order of their start
	processes []*process
}

// process is a child in a process group of its own, so that Ctrl-C reaches it only through stop.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

func (b *board) work() string { return filepath.Join(b.dir, "state") }

// say prints one line of the story.
func (b *board) say(who, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.out, "%5.1fs  %-7s %s\n", time.Since(b.start).Seconds(), who, fmt.Sprintf(format, args...))
}

// print prints text as it is, not amid a line.
func (b *board) print(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprint(b.out, text)
}

// publish lets await see what has been told.
func (b *board) publish(s seen) {
	s.putBack = maps.Clone(s.putBack)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = s
}

// sibling finds a binary beside this one, then on PATH.
func sibling(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if path := filepath.Join(filepath.Dir(self), name); isExecutable(path) {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside %s nor on PATH: `make build` makes it", name, self)
	}
	return path, nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// up starts everything: repository, git server, device, guard, agent.
func (b *board) up(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := sibling("holdfast-guard"); err != nil {
		return err
	}
	if b.holdfast, err = sibling("holdfast"); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(b.dir, "logs"), 0o755); err != nil {
		return err
	}
	if err := b.repository(ctx); err != nil {
		return err
	}
	url, err := b.serveGit(ctx)
	if err != nil {
		return err
	}
	if b.device, err = b.startDevice(self); err != nil {
		return err
	}
	var s struct{ Actuators map[string]string }
	if err := b.get(ctx, "/state", &s); err != nil {
		return err
	}
	b.initial = s.Actuators
	b.config = filepath.Join(b.dir, "holdfast.yaml")
	text := fmt.Sprintf(configuration, b.device, url, maxCelsius, fatalCelsius, soakSeconds, filepath.Join(b.dir, "lib"), filepath.Join(b.dir, "run"))
	if err := os.WriteFile(b.config, []byte(text), 0o644); err != nil {
		return err
	}
	return b.startHoldfast()
}

// startHoldfast starts guard and agent. The order does not matter.
func (b *board) startHoldfast() error {
	guard, err := sibling("holdfast-guard")
	if err != nil {
		return err
	}
	if b.guard, err = b.run("guard", nil, guard, "--config", b.config); err != nil {
		return err
	}
	b.agent, err = b.run("agent", nil, b.holdfast, "run", "--config", b.config)
	return err
}

// startDevice starts the simulated greenhouse on a free port and returns its URL.
func (b *board) startDevice(self string) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	_, err = b.run("device", w, self, "serve", "--listen", "127.0.0.1:0", "--speed", fmt.Sprint(speedUp), "--start-hour", "9")
	_ = w.Close() // the child has its own
	if err != nil {
		return "", err
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the greenhouse did not start: %w", err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), nil
}

// run starts a process whose output goes to logs/NAME.log, its stdout to stdout if that is not nil.
func (b *board) run(name string, stdout *os.File, path string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(b.dir, "logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if stdout != nil {
		cmd.Stdout = stdout
	}
	// Of its own group, and it dies with this process however that dies.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	p := &process{name, cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	b.processes = append(b.processes, p)
	return p, nil
}

// stop ends all that was started, the newest first: politely, then for certain.
func (b *board) stop() {
	for i := len(b.processes) - 1; i >= 0; i-- {
		p := b.processes[i]
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
		select {
		case <-p.done:
		case <-time.After(3 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
	if b.http != nil {
		_ = b.http.Close()
	}
}

// git runs git in the working copy, untouched by the user's own configuration.
func (b *board) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = b.work()
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// repository makes the state repository, with an identity of its own, holding what the fallback says.
func (b *board) repository(ctx context.Context) error {
	if err := os.Mkdir(b.work(), 0o755); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"config", "user.name", "Greenhouse Demo"},
		{"config", "user.email", "demo@greenhouse.invalid"},
		{"config", "commit.gpgsign", "false"},
	} {
		if _, err := b.git(ctx, args...); err != nil {
			return err
		}
	}
	_, err := b.commit(ctx, "start with the safe state", state{vent: "on", door: "closed", fan: "off", lamp: "off", pump: "off"})
	return err
}

// state is what the demo declares.
type state struct{ vent, door, fan, lamp, pump string }

func (s state) String() string {
	return fmt.Sprintf("# What this greenhouse is to be. Commit, and Holdfast does it, or undoes it.\nvent: %s\ndoor: %s\nfan: %s\nlamp: %s\npump: %s\n",
		s.vent, s.door, s.fan, s.lamp, s.pump)
}

// commit declares s and returns the revision. Nothing needs to be pushed: the server serves this very repository.
func (b *board) commit(ctx context.Context, message string, s state) (string, error) {
	if err := os.WriteFile(filepath.Join(b.work(), "greenhouse.yaml"), []byte(s.String()), 0o644); err != nil {
		return "", err
	}
	if _, err := b.git(ctx, "add", "--all"); err != nil {
		return "", err
	}
	if _, err := b.git(ctx, "commit", "--quiet", "--message", message); err != nil {
		return "", err
	}
	return b.git(ctx, "rev-parse", "HEAD")
}

// serveGit serves the repository with git's own http-backend (git-http-backend(1)) on a free port and returns its URL. While the network is cut, connections
// are closed without an answer.
func (b *board) serveGit(ctx context.Context) (string, error) {
	exe, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return "", fmt.Errorf("git is needed: %w", err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(exe)), "git-http-backend"),
		Dir:  b.dir,
		Env: []string{"GIT_PROJECT_ROOT=" + b.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=uploadpack.allowFilter", "GIT_CONFIG_VALUE_0=true"},
		Stderr: io.Discard,
	}
	if !isExecutable(backend.Path) {
		return "", fmt.Errorf("%s is needed, and is part of git", backend.Path)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	b.http = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.cut.Load() {
			panic(http.ErrAbortHandler) // closes the connection
		}
		backend.ServeHTTP(w, r)
	})}
	go func() {
		if err := b.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			b.say("git", "the server ended: %v", err)
		}
	}()
	return fmt.Sprintf("http://%s/state/.git", l.Addr()), nil
}

// ask runs the operator's CLI with --json and decodes what it prints. An exit code of 1 says that the board is not fine, which is no error here.
func (b *board) ask(ctx context.Context, v any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.holdfast, append(args, "--json", "--config", b.config)...).Output()
	if len(out) == 0 && err != nil {
		return err
	}
	return json.Unmarshal(out, v)
}

// set moves something on the device by hand, behind Holdfast's back.
func (b *board) set(ctx context.Context, actuator, value string) error {
	body := fmt.Sprintf(`{"actuators":{%q:%q}}`, actuator, value)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.device+"/sim/set", strings.NewReader(body))
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.moved[actuator] = time.Now()
	b.mu.Unlock()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the device answered %s to %s", resp.Status, body)
	}
	return nil
}

// since says for how long an actuator was away until then, if it was the demo that moved it.
func (b *board) since(actuator string, until time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.moved[actuator]
	if !ok {
		return ""
	}
	delete(b.moved, actuator)
	return fmt.Sprintf(" after %v", until.Sub(at).Round(time.Millisecond))
}
