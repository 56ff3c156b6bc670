package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gopkg.in/yaml.v3"

	"holdfast/device/clock"
)

// template is the configuration of every scenario: intervals short enough for a test, long enough that a machine
// which runs eight of these at once does not decide a verdict (a step there takes 0.6 s at worst). A config.yaml in the archive is laid over it.
const template = `
device: {interval: 700ms, timeout: 1s}
repository: {interval: 1s}
guard:
  window: 10s
  soak: 2s
  interval: 250ms
  recover: 12s
  pauses: [2s, 4s, 6s]
  diskFloor: 1MiB
  checks: [{name: battery, http: "$BATTERY"}]
`

// processNames in the order in which they start.
var processNames = []string{"greenhouse", "guard", "agent"}

// world is everything that one scenario has for itself.
type world struct {
	dir     string // short: a socket's path must stay below 108 bytes
	archive string // where testscript unpacked the scenario's files
	addr    string
	story   *story

	upstream  *upstream
	recorders map[string]*recorder // by process
	device    knobs
	battery   *battery
	procs     map[string]*process
	disk      *disk
	deviceLog *os.File

	clockDir     string        // where the clock file is
	wall, uptime time.Duration // offsets in it
	countedFrom  map[string]int
	stateFiles   map[string]fileState // count-files
	traffic      int64                // count-traffic
	steady       steady
	pushed       string // the newest folder
	speed        string
	binary       func(who string) (string, error) // which build of the mains it runs
}

// freeAddr is an address in 127.0.0.0/8 that no outgoing connection of this machine uses, so that a port on it stays free
// while a process or a proxy is down.
func freeAddr() string {
	for {
		a := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
		l, err := net.Listen("tcp", a+":8080")
		if err == nil {
			l.Close()
			return a
		}
	}
}

func randomText(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[rand.IntN(36)]
	}
	return string(b)
}

func newWorld(archive string, st *story) (w *world, err error) {
	w = &world{archive: archive, addr: freeAddr(), story: st, binary: binary, procs: map[string]*process{}, recorders: map[string]*recorder{}, countedFrom: map[string]int{}}
	if w.dir, err = os.MkdirTemp("/tmp", "hf"); err != nil {
		return nil, err
	}
	w.clockDir = w.dir
	if err := os.Chmod(w.dir, 0o755); err != nil { // a member of the group comes in here, see asMember
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for _, d := range []string{w.logs(), w.stateDir(), w.path("git")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	if w.deviceLog, err = os.Create(filepath.Join(w.logs(), "device.log")); err != nil {
		return nil, err
	}
	if w.upstream, err = newUpstream(w.path("git"), w.addr, filepath.Join(w.logs(), "git.log")); err != nil {
		return nil, err
	}
	w.device = knobs{url: "http://" + w.addr + ":8080"}
	if w.battery, err = newBattery(w.addr+":8083", w.device); err != nil {
		return nil, err
	}
	for who, port := range map[string]string{"agent": "8081", "guard": "8082"} {
		if w.recorders[who], err = newRecorder(who, net.JoinHostPort(w.addr, port), w.device.url, w.deviceLog, st.note,
			func() *process { return w.procs[who] }); err != nil {
			return nil, err
		}
	}
	w.reboot()
	overlay, err := os.ReadFile(filepath.Join(archive, "config.yaml"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, who := range []string{"agent", "guard"} {
		b, err := w.config(who, overlay)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(w.configFile(who), b, 0o644); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}
func (w *world) logs() string                 { return w.path("log") }
func (w *world) runDir() string               { return w.path("run") }
func (w *world) stateDir() string             { return w.path("state") }
func (w *world) clockFile() string            { return filepath.Join(w.clockDir, "clock") }
func (w *world) configFile(who string) string { return w.path(who + ".yaml") }
func (w *world) inState(elem ...string) string { // as the harness reaches it
	root := w.stateDir()
	if w.disk != nil {
		root = w.disk.root()
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// config is the file for one process: the template, the scenario's own part over it, and this world's addresses.
func (w *world) config(who string, overlay []byte) ([]byte, error) {
	all := map[string]any{}
	addresses := fmt.Sprintf("device: {url: 'http://%s'}\nrepository: {url: '%s'}\nstate: %s\nrun: %s\n",
		w.recorders[who].addr, w.upstream.url("http"), w.stateDir(), w.runDir())
	places := strings.NewReplacer("$DEVICE", "http://"+w.recorders[who].addr, "$BATTERY", w.battery.url, "$WORK", w.archive,
		"$HTTPS", w.upstream.url("https"), "$CA_FILE", w.upstream.caFile,
		"$SSH_KEY", w.upstream.ssh.keyFile, "$SSH", w.upstream.url("ssh"), "$KNOWN_HOSTS", w.upstream.ssh.knownHosts)
	for _, part := range []string{template, addresses, string(overlay)} {
		var m map[string]any
		part = places.Replace(part)
		if err := yaml.Unmarshal([]byte(part), &m); err != nil {
			return nil, fmt.Errorf("config.yaml: %w", err)
		}
		layOver(all, m)
	}
	return yaml.Marshal(all)
}

func layOver(under, over map[string]any) {
	for k, v := range over {
		if m, ok := v.(map[string]any); ok {
			if u, ok := under[k].(map[string]any); ok {
				layOver(u, m)
				continue
			}
		}
		under[k] = v
	}
}

// setClock replaces the clock file by rename: a reader sees the old offsets or the new ones.
func (w *world) setClock(wall, uptime time.Duration) error {
	w.wall, w.uptime = wall, uptime
	tmp := w.clockFile() + ".new"
	if err := os.WriteFile(tmp, fmt.Appendf(nil, "%s %s\n", wall, uptime), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, w.clockFile())
}

// reboot makes uptime start anew.
func (w *world) reboot() error { return w.setClock(w.wall, 10*time.Second-clock.System{}.Uptime()) }

// start starts a process that is not running.
func (w *world) start(who string) error {
	if !slices.Contains(processNames, who) {
		return fmt.Errorf("%q is no process: %s", who, strings.Join(processNames, ", "))
	}
	if w.procs[who].state() != "dead" {
		return fmt.Errorf("%s is running", who)
	}
	if err := w.check(); err != nil {
		return err
	}
	bin, err := w.binary(who)
	if err != nil {
		return err
	}
	for d, mode := range map[string]fs.FileMode{w.runDir(): 0o770, w.inState("agent"): 0o750, w.inState("guard"): 0o750} {
		if err := w.install(d, mode); err != nil && !errors.Is(err, syscall.EROFS) {
			return err
		}
	}
	var argv []string
	switch who {
	case "agent":
		argv = w.onDisk(bin, "run", "--config", w.configFile(who))
	case "guard":
		argv = w.onDisk(bin, "--config", w.configFile(who), "--check-dirs", filepath.Join(w.archive, "check.d"))
	case "greenhouse":
		argv = []string{bin, "serve", "--listen", w.addr + ":8080", "--seed", "1", "--speed", w.deviceSpeed()}
	}
	p, err := startProcess(who, filepath.Join(w.logs(), who+".log"), w.env(), argv...)
	if err != nil {
		return err
	}
	w.procs[who] = p
	if who != "greenhouse" {
		return nil
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		_, err := w.device.send("GET", "/healthz", nil)
		if err == nil {
			return nil
		}
		if err := p.gone(); err != nil {
			return err
		}
		if time.Since(began) > 20*time.Second {
			return fmt.Errorf("the greenhouse does not answer: %w", err)
		}
	}
}

// members is the group that may operate a world that root has made.
const members = 4711

// hasMembers reports whether somebody else can be a member: that takes root, and no disk of the scenario's own, where root alone is known.
func (w *world) hasMembers() bool { return os.Getuid() == 0 && w.disk == nil }

// install makes a folder as the README has it: what is in it belongs to the group.
func (w *world) install(dir string, mode fs.FileMode) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, mode); err != nil || !w.hasMembers() {
		return err
	}
	return errors.Join(os.Chown(dir, 0, members), os.Chmod(dir, mode|fs.ModeSetgid))
}

func (w *world) deviceSpeed() string {
	if w.speed != "" {
		return w.speed
	}
	return "1"
}

func (w *world) onDisk(argv ...string) []string {
	if w.disk != nil {
		return w.disk.enter(argv...)
	}
	return argv
}

func (w *world) env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TMPDIR=" + w.dir, clockFileEnv + "=" + w.clockFile(),
		"GORACE=atexit_sleep_ms=0 halt_on_error=1", "GOTRACEBACK=all"}
}

// boot starts everything that is not running.
func (w *world) boot() error {
	for _, who := range processNames {
		if w.procs[who].state() == "dead" {
			if err := w.start(who); err != nil {
				return err
			}
		}
	}
	return nil
}

// end ends a process with sig and waits.
func (w *world) end(who string, sig syscall.Signal) error {
	p := w.procs[who]
	if p.state() == "dead" {
		if p != nil && p.gone() != nil {
			return p.gone()
		}
		return fmt.Errorf("%s is not running", who)
	}
	return p.end(sig, 20*time.Second)
}

// powerCut kills everything, the device included. The run folder is a tmpfs on a board; the state folder stays as it is.
func (w *world) powerCut() error {
	for _, p := range w.procs { // all at once, then wait
		if p.state() != "dead" {
			p.signal(syscall.SIGKILL)
		}
	}
	for _, p := range w.procs {
		<-p.exited
	}
	if err := os.RemoveAll(w.runDir()); err != nil {
		return err
	}
	return w.reboot()
}

// check reports a process that ended by itself, and one that asked a server that it does not know.
func (w *world) check() error {
	errs := []error{w.upstream.forge.astray()}
	for _, who := range processNames {
		if p := w.procs[who]; p != nil {
			errs = append(errs, p.gone())
		}
	}
	return errors.Join(errs...)
}

// holdfast runs the CLI.
func (w *world) holdfast(args ...string) (stdout, stderr []byte, err error) {
	return w.cli(w.archive, nil, args...)
}

// asMember runs the CLI as a member of the group, who has no right to anything else.
func (w *world) asMember(args ...string) (stdout, stderr []byte, err error) {
	return w.cli(w.dir, &syscall.Credential{Uid: 65534, Gid: members}, args...)
}

func (w *world) cli(dir string, who *syscall.Credential, args ...string) (stdout, stderr []byte, err error) {
	bin, err := w.binary("agent")
	if err != nil {
		return nil, nil, err
	}
	argv := w.onDisk(append([]string{bin}, args...)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = w.env(), dir, &syscall.SysProcAttr{Credential: who}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.Bytes(), errOut.Bytes(), err
}

// close ends what the scenario started. The folder goes too.
func (w *world) close() {
	for _, p := range w.procs {
		if p.state() != "dead" {
			p.signal(syscall.SIGKILL)
		}
		<-p.exited
	}
	for _, r := range w.recorders {
		r.close()
	}
	if w.battery != nil {
		w.battery.close()
	}
	if w.upstream != nil {
		w.upstream.close()
	}
	if w.disk != nil {
		w.disk.close()
	}
	if w.deviceLog != nil {
		w.deviceLog.Close()
	}
	if os.Getenv("HOLDFAST_SCENARIO_KEEP") == "1" {
		w.story.tell("kept: %s", w.dir)
		return
	}
	os.RemoveAll(w.dir)
}

// tails is the end of every log, for a scenario that failed.
func (w *world) tails(n int) string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(w.logs(), "*.log"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil || len(data) == 0 {
			continue
		}
		lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		left := max(0, len(lines)-n)
		fmt.Fprintf(&b, "=== %s (%d lines before)\n%s\n", filepath.Base(f), left, strings.Join(lines[left:], "\n"))
	}
	return b.String()
}
