package scenario

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// mains are the binaries that scenarios run, by the name of their process in a scenario.
var mains = map[string]string{
	"agent":      "agent/cmd/holdfast",
	"guard":      "bootslot/cmd/holdfast-guard",
	"greenhouse": "device/cmd/greenhouse",
}

// raceBuild says that the mains are built with the race detector. It makes everything some four times slower.
var raceBuild = os.Getenv("HOLDFAST_SCENARIO_RACE") == "1"

// binDir is where TestMain has the mains built.
var binDir string

var builds sync.Map // name to func() (string, error)

// binary builds a main with the test clock, once per run, and returns its path.
func binary(name string) (string, error) {
	f, _ := builds.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		args := []string{"-tags", "holdfast_testclock"}
		if raceBuild {
			args = append(args, "-race")
		}
		return build(binDir, name, args...)
	}))
	return f.(func() (string, error))()
}

// build builds a main into dir and returns its path.
func build(dir, name string, args ...string) (string, error) {
	pkg, ok := mains[name]
	if !ok {
		return "", fmt.Errorf("%q is no process of a scenario", name)
	}
	bin := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.Command("go", append(append([]string{"build", "-o", bin}, args...), "./"+pkg)...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", pkg, err, out)
	}
	return bin, nil
}

// sideBySide is how many scenarios run at once: they wait most of their time, so many more than there are cores.
func sideBySide() string {
	if raceBuild {
		return "6"
	}
	return "16"
}

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", sideBySide()); err != nil {
			panic(err) // the testing package has had this flag since Go 1.0
		}
	}
	dir, err := os.MkdirTemp("", "holdfast-bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // for asMember
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// spawner starts all processes from one thread that lives as long as the tests do: a process asks to be killed
// when the thread that started it ends (PR_SET_PDEATHSIG), so a test run that is killed leaves nothing behind.
var spawner = sync.OnceValue(func() chan<- func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range c {
			f()
		}
	}()
	return c
})

func startCmd(cmd *exec.Cmd) error {
	err := make(chan error)
	spawner() <- func() { err <- cmd.Start() }
	return <-err
}

// process is a running one of the scenario's processes.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    *os.File
	exited chan struct{} // closed after waitErr is set
	err    error         // how it ended

	mu       sync.Mutex
	frozen   bool
	expected bool // a verb ended it
}

// startProcess starts argv with its output appended to logFile.
func startProcess(name, logFile string, env []string, argv ...string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.Command(argv[0], argv[1:]...), log: log, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, env
	p.cmd.Dir = filepath.Dir(logFile)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := startCmd(p.cmd); err != nil {
		log.Close()
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	fmt.Fprintf(log, "--- %s: pid %d started at %s\n", name, p.cmd.Process.Pid, time.Now().Format("15:04:05.000"))
	go func() {
		p.err = p.cmd.Wait()
		fmt.Fprintf(log, "--- %s: pid %d ended at %s: %v\n", name, p.cmd.Process.Pid, time.Now().Format("15:04:05.000"), p.cmd.ProcessState)
		log.Close()
		close(p.exited)
	}()
	return p, nil
}

// signal sends sig to this process alone, by its id.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch sig {
	case syscall.SIGSTOP:
		p.frozen = true
	case syscall.SIGCONT:
		p.frozen = false
	case syscall.SIGKILL, syscall.SIGTERM:
		p.expected = true
	}
	return p.cmd.Process.Signal(sig)
}

// end sends sig and waits until the process is gone.
func (p *process) end(sig syscall.Signal, limit time.Duration) error {
	if err := p.signal(sig); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	select {
	case <-p.exited:
	case <-time.After(limit):
		return fmt.Errorf("%s is still there %v after %v", p.name, limit, sig)
	}
	// One that has just been started may not have come so far as to take the signal itself.
	byItself := p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() && p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == sig
	if sig == syscall.SIGTERM && p.err != nil && !byItself {
		return fmt.Errorf("%s was told to stop and ended with %w", p.name, p.err)
	}
	return nil
}

// state is running, frozen or dead.
func (p *process) state() string {
	if p == nil {
		return "dead"
	}
	select {
	case <-p.exited:
		return "dead"
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen {
		return "frozen"
	}
	return "running"
}

// gone reports that the process ended although no verb told it to.
func (p *process) gone() error {
	select {
	case <-p.exited:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.expected {
		return nil
	}
	return fmt.Errorf("%s ended by itself: %v", p.name, p.cmd.ProcessState)
}
