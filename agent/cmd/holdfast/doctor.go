package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/ledger"
	"holdfast/bootslot/selftest"
	"holdfast/device/clock"
)

// finding is one thing that was examined.
type finding struct {
	Check string       `json:"check"`
	State findingState `json:"state"`
	Says  string       `json:"says"`
	Fix   string       `json:"fix,omitempty"` // what to do about it
}

// findingState is how it stands with what was examined.
type findingState string

const (
	foundProblem findingState = "problem" // the safety net may fail, or has
	foundWarning findingState = "warning" // it holds, and has less to hold on to
	foundUnknown findingState = "unknown" // it cannot be told from here
	foundFine    findingState = "ok"
)

// examined is what `holdfast doctor --json` says.
type examined struct {
	Fine     bool      `json:"fine"` // no problem was found
	Findings []finding `json:"findings"`
}

func newDoctor(where *place) *cobra.Command {
	var asJSON bool
	var folders string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for everything that could make the safety net fail, and say how to mend it",
		Long: `Examine everything that the safety net stands on, and say of each what was found and what to do:
both processes, their units and sockets, rights, the state folder and its disk, the record and its
second copy, the clone, configuration, checks, the device, the clock, the repository and the files with
credentials, what is held, the hardware watchdog, the log. It changes nothing. Run it as root: what
this user may not see is told as unknown.

problem: the safety net may fail, or has. warning: it holds, and has less to hold on to. unknown: it
cannot be told.

With --json: fine, findings (each with check, state, says, fix).

Exit code 0: no problem was found. 1: there is one. 2: misuse.`,
		Example: "  holdfast doctor",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := where.open()
			d := examination{b: &b, system: "/", folders: filepath.SplitList(folders), systemctl: systemctl}
			found := d.examine(cmd.Context())
			e := examined{Fine: !slices.ContainsFunc(found, func(f finding) bool { return f.State == foundProblem }), Findings: found}
			var err error
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), e)
			} else {
				showExamined(newPrinter(cmd.OutOrStdout()), e)
			}
			if err == nil && !e.Fine {
				err = errNotFine
			}
			return err
		},
	}
	jsonFlag(c, &asJSON)
	c.Flags().StringVar(&folders, "check-dirs", checkFolders, "`folders` of executable checks, used when the guard does not answer")
	return c
}

// examination is one run.
type examination struct {
	b       *board
	system  string // the root of /sys, /dev and /var/log: another one in tests
	folders []string
	// systemctl asks systemd, and is not called where that does not run.
	systemctl func(ctx context.Context, args ...string) (string, error)

	s     status.Sources
	v     status.View
	found []finding

	runtimeWatchdog string // of systemd, "" if it does not say
}

func (d *examination) add(state findingState, check, fix, format string, args ...any) {
	d.found = append(d.found, finding{check, state, fmt.Sprintf(format, args...), fix})
}

// examine looks at everything, the worst first in what it returns.
func (d *examination) examine(ctx context.Context) []finding {
	d.s = d.b.sources(ctx, thoroughly)
	d.v = status.Build(d.s)
	if g := d.s.Guard; g != nil && len(g.CheckFolders) > 0 {
		d.folders = g.CheckFolders
	}
	units, runtimeWatchdog := d.askSystemd(ctx)
	d.runtimeWatchdog = runtimeWatchdog
	for _, look := range []func(){d.processes, d.service, func() { d.units(units) }, d.sockets, d.ownProblems, d.stateFolder, d.record, d.slots, d.marks, d.device, d.checks, d.checkFiles,
		d.suspension, d.wallClock, d.repository, d.credentials, d.watchdog, d.log, d.bootGate} {
		look()
	}
	order := []findingState{foundProblem, foundWarning, foundUnknown, foundFine}
	slices.SortStableFunc(d.found, func(a, b finding) int { return slices.Index(order, a.State) - slices.Index(order, b.State) })
	return d.found
}

func (d *examination) processes() {
	for _, p := range []struct {
		name, start, without string
		status.Process
	}{
		{"guard", "holdfast-guard", "no change is judged or undone, and nothing new is tried", d.v.Guard},
		{"agent", "holdfast run", "nothing is fetched, and nobody but the guard keeps the device", d.v.Agent},
	} {
		switch p.State {
		case status.ProcessAlive:
			d.add(foundFine, p.name, "", "alive, pid %d, %s", p.PID, p.Version)
		case status.ProcessUnreachable:
			d.add(foundUnknown, p.name, cmp.Or(d.s.Access, "run as root"), "%s", strings.TrimPrefix(p.Words(), "is "))
		case status.ProcessSilent:
			d.add(foundProblem, p.name, "find out what it waits for, then kill it; the service manager starts it anew", "%s: %s", strings.TrimPrefix(p.Words(), "is "), p.without)
		default:
			d.add(foundProblem, p.name, "start it: "+p.start, "%s: %s", strings.TrimPrefix(p.Words(), "is "), p.without)
		}
	}
	if g, a := d.v.Guard, d.v.Agent; g.Alive && a.Alive && g.Version != a.Version {
		d.add(foundWarning, "versions", "install both of one version; they work together meanwhile", "the guard is %s, the agent %s", g.Version, a.Version)
	}
}

// service finds out whether somebody starts agent and guard anew.
func (d *examination) service() {
	if !d.hasSystemd() {
		d.add(foundUnknown, "service manager", "", "systemd does not run here: whether somebody starts agent and guard anew cannot be told")
		return
	}
	for name, p := range map[string]status.Process{"guard": d.v.Guard, "agent": d.v.Agent} {
		if !p.Alive {
			continue
		}
		cgroup, err := os.ReadFile(filepath.Join(d.system, "proc", strconv.Itoa(p.PID), "cgroup"))
		switch {
		case err != nil:
			d.add(foundUnknown, "service manager", "", "whether the %s is a service cannot be told: %v", name, err)
		case !strings.Contains(string(cgroup), ".service"):
			d.add(foundWarning, "service manager", "run it as a service with Restart=always", "the %s was started by hand: nobody starts it anew when it ends", name)
		default:
			d.add(foundFine, "service manager", "", "the %s is a service", name)
		}
	}
}

func (d *examination) hasSystemd() bool {
	_, err := os.Stat(filepath.Join(d.system, "run/systemd/system"))
	return err == nil
}

// systemctl asks systemd. It needs no bus for root, and is bounded: a manager that hangs is told as that.
func systemctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

// unitProperties are what is asked of a unit (systemctl(1), show; org.freedesktop.systemd1(5)).
const unitProperties = "Id,LoadState,UnitFileState,ActiveState,SubState,Result,ConditionResult,NRestarts,WatchdogUSec,NeedDaemonReload,DropInPaths"

// unit is what systemd says of one.
type unit map[string]string

// askSystemd returns what systemd says of the units that there are, by name, and its RuntimeWatchdogSec; nothing where it does not run.
func (d *examination) askSystemd(ctx context.Context) (units map[string]unit, runtimeWatchdog string) {
	if !d.hasSystemd() {
		return nil, ""
	}
	out, err := d.systemctl(ctx, "show", "--property="+unitProperties, "--", "holdfast-guard.service", "holdfast-agent.service", "holdfast-guard.socket", "holdfast-agent.socket")
	if err != nil {
		d.add(foundUnknown, "units", "run as root", "systemd does not say how they are: %v", err)
		return nil, ""
	}
	units = map[string]unit{}
	for block := range strings.SplitSeq(strings.TrimSpace(out), "\n\n") {
		u := unit{}
		for line := range strings.SplitSeq(block, "\n") {
			key, value, _ := strings.Cut(line, "=")
			u[key] = value
		}
		if u["LoadState"] != "not-found" {
			units[u["Id"]] = u
		}
	}
	out, err = d.systemctl(ctx, "show", "--property=RuntimeWatchdogUSec", "--value")
	if err == nil {
		runtimeWatchdog = strings.TrimSpace(out)
	}
	return units, runtimeWatchdog
}

// units looks whether systemd starts agent and guard at each boot and whenever they end, and whether they are what is installed.
func (d *examination) units(units map[string]unit) {
	if len(units) == 0 {
		return // somebody else starts them; whether they live is told already
	}
	for _, who := range []string{"guard", "agent"} {
		name := "holdfast-" + who + ".service"
		u, there := units[name]
		well := true
		not := func(state findingState, fix, format string, args ...any) {
			well = false
			d.add(state, name, fix, format, args...)
		}
		look := "journalctl -u " + name + " -n 50 says why"
		switch {
		case !there || u["LoadState"] != "loaded" && u["LoadState"] != "masked":
			not(foundProblem, "install the package again: apt install --reinstall holdfast", "it cannot be loaded: nobody starts the %s", who)
			continue
		case u["LoadState"] == "masked":
			not(foundProblem, "systemctl unmask "+name+" && systemctl enable --now "+name, "it is masked: nobody starts the %s", who)
			continue
		case u["UnitFileState"] != "enabled":
			not(foundProblem, "systemctl enable "+name, "it is %s: after the next boot there is no %s", cmp.Or(u["UnitFileState"], "not enabled"), who)
		}
		switch active, sub := u["ActiveState"], u["SubState"]; {
		case active == "failed":
			not(foundProblem, look+". Then systemctl reset-failed "+name+" && systemctl start "+name, "systemd has given it up: %s", cmp.Or(u["Result"], "it failed"))
		case strings.HasPrefix(sub, "auto-restart"):
			not(foundProblem, look+". The version before: systemctl start holdfast-previous@"+who, "it ends again and again, and waits to be started anew; so far %s times", cmp.Or(u["NRestarts"], "some"))
		case active == "inactive" && u["ConditionResult"] == "no":
			not(foundProblem, "write /etc/holdfast/holdfast.yaml, then systemctl start "+name, "it was not started: there is no configuration")
		case active == "inactive":
			not(foundProblem, "systemctl start "+name, "somebody has stopped it: there is no %s until the next boot", who)
		case active == "activating":
			not(foundWarning, look, "it is still starting")
		case u["NRestarts"] != "" && u["NRestarts"] != "0":
			not(foundWarning, look, "it has ended by itself, and was started anew, %s times", u["NRestarts"])
		}
		if strings.Contains(u["DropInPaths"], "/"+name+".d/previous.conf") {
			not(foundWarning, "upgrade to a version that starts; the next boot, too, tries the installed one", "the %s runs the binary from before the last upgrade: the installed one did not start", who)
		}
		if w := u["WatchdogUSec"]; w == "0" || w == "infinity" {
			not(foundWarning, "take WatchdogSec= out of the drop-in that sets it: systemctl cat "+name, "it has no WatchdogSec=: a hung %s is not started anew", who)
		}
		if u["NeedDaemonReload"] == "yes" {
			not(foundWarning, "systemctl daemon-reload && systemctl restart "+name, "its files were changed since it was loaded")
		}
		if well {
			d.add(foundFine, name, "", "enabled and active")
		}
		socket := "holdfast-" + who + ".socket"
		if s, there := units[socket]; !there || s["ActiveState"] != "active" || s["UnitFileState"] != "enabled" {
			d.add(foundWarning, socket, "systemctl enable "+socket+" && systemctl restart "+socket+" "+name, "it is %s: while the %s restarts, whoever asks is refused",
				cmp.Or(map[bool]string{true: "not enabled"}[there && s["ActiveState"] == "active"], "not active"), who)
		}
	}
}

func (d *examination) sockets() {
	run := d.b.config.Run
	fi, err := os.Stat(run)
	if err != nil {
		d.add(foundProblem, "run folder", "install -d -g holdfast -m 2770 "+run+", at each boot", "%v", pathless(run, err))
		return
	}
	if fi.Mode().Perm()&0o002 != 0 && fi.Mode()&fs.ModeSticky == 0 {
		d.add(foundProblem, "run folder", "chmod o-w "+run, "anybody may write to %s, and so put a socket of their own there", run)
	} else {
		d.add(foundFine, "run folder", "", "%s, of the %s", run, groupOf(fi))
	}
	for name, path := range map[string]string{"guard": d.b.config.GuardSocket(), "agent": d.b.config.AgentSocket()} {
		fi, err := os.Stat(path)
		switch {
		case err != nil: // that nobody answers is told already
		case fi.Mode().Perm()&0o060 != 0o060:
			d.add(foundWarning, name+"'s socket", "chmod g+rw "+path, "its group may not use %s", path)
		case fi.Mode().Perm()&0o006 != 0:
			d.add(foundProblem, name+"'s socket", "chmod o-rw "+path, "anybody may operate through %s", path)
		default:
			d.add(foundFine, name+"'s socket", "", "root and the %s may operate", groupOf(fi))
		}
	}
}

// ownProblems are what agent, guard and this command have to say of their own means.
func (d *examination) ownProblems() {
	for _, p := range d.v.Problems {
		fix := "see the log of the process that says so"
		switch {
		case d.s.NoLedger && strings.HasPrefix(p, "ledger: "):
			d.add(foundWarning, "ledger", "start the guard: it makes one", "there is none yet: the fallback is in force")
			continue
		case strings.Contains(p, "configuration"), strings.Contains(p, "last valid copy"), strings.Contains(p, d.b.config.State+"/"+"guard/config.yaml"):
			fix = "mend the configuration file, then send SIGHUP to both processes"
		case strings.HasPrefix(p, "clone: "), strings.Contains(p, "the clone"):
			fix = "it is fetched anew by itself; if it stays, look at the disk"
		case strings.Contains(p, "set aside"):
			fix = "nothing: it was rebuilt. Look at the disk if it happens again"
		case strings.Contains(p, "does not take the agent's"):
			fix = "start the guard with --agent-user and the agent's user"
		}
		who, text, ok := strings.Cut(p, ": ")
		if !ok || strings.ContainsAny(who, " /\n") {
			who, text = "own means", p
		}
		d.add(foundProblem, who, fix, "%s", text)
	}
}

// The file systems that forget with the power (statfs(2), linux/magic.h).
var forgetful = map[int64]string{unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs"}

func (d *examination) stateFolder() {
	dir := d.b.config.State
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		d.add(foundProblem, "state folder", "create it: the guard needs "+d.b.config.GuardFolder()+", the agent "+d.b.config.AgentFolder(), "%s: %v", dir, err)
		return
	}
	well := true
	not := func(state findingState, fix, format string, args ...any) {
		well = false
		d.add(state, "state folder", fix, format, args...)
	}
	if name, ok := forgetful[int64(st.Type)]; ok {
		not(foundProblem, "put it on a disk: 'state:' in "+d.b.config.State, "%s is on %s: marks, slots and clone are gone with each boot", dir, name)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		not(foundProblem, "mount it read-write, once the disk is known to be sound: dmesg says why it is not", "%s is read-only: nothing can be recorded, so nothing new is tried", dir)
	}
	free, floor := int64(st.Bavail)*int64(st.Bsize), d.b.config.Guard.DiskFloor
	switch {
	case free < floor:
		not(foundProblem, "make room, or lower guard.diskFloor", "%s free on %s, and below %s nothing new is tried", mebibytes(free), dir, mebibytes(floor))
	case free < 2*floor:
		not(foundWarning, "make room", "%s free on %s, not much above the floor of %s below which nothing new is tried", mebibytes(free), dir, mebibytes(floor))
	}
	if st.Files > 0 && st.Ffree < 100 {
		not(foundProblem, "remove files", "the file system of %s has room for %d more files only", dir, st.Ffree)
	}
	for _, f := range []string{dir, d.b.config.GuardFolder(), d.b.config.AgentFolder()} {
		if fi, err := os.Stat(f); err == nil && fi.Mode().Perm()&0o002 != 0 && fi.Mode()&fs.ModeSticky == 0 {
			not(foundProblem, "chmod o-w "+f, "anybody may write to %s", f)
		}
	}
	for _, f := range []string{d.b.config.GuardFolder(), d.b.config.AgentFolder()} {
		bad, _ := filepath.Glob(filepath.Join(f, "*.bad"))
		for _, b := range bad {
			not(foundWarning, "look at it, then remove it", "%s was damaged once and set aside", b)
		}
	}
	if well {
		d.add(foundFine, "state folder", "", "%s, %s free", dir, mebibytes(free))
	}
}

// record compares the two copies of the guard's record.
func (d *examination) record() {
	side, serr := ledger.ReadSidecar(d.b.config.LedgerJSON())
	fix := "restart the guard: it rewrites the worse copy from the better one"
	if g := d.s.Guard; g != nil {
		switch {
		case errors.Is(serr, fs.ErrPermission):
			d.add(foundUnknown, "record", cmp.Or(d.s.Access, "run as root"), "its second copy cannot be looked at: %v", serr)
		case serr != nil:
			d.add(foundProblem, "record", fix, "its second copy, %s, cannot be read: %s", d.b.config.LedgerJSON(), why(serr))
		case side.ID != g.Ledger.ID || side.Generation < g.Ledger.Generation:
			d.add(foundProblem, "record", fix, "its second copy, %s, is of generation %d and the guard's of %d", d.b.config.LedgerJSON(), side.Generation, g.Ledger.Generation)
		default:
			d.add(foundFine, "record", "", "both copies are there, generation %d", side.Generation)
		}
		if !g.Ledger.Writable() {
			d.add(foundProblem, "record", "install the newer guard", "only a newer guard may write it (schema %d, this one has %d)", g.Ledger.MinWriter, bootslot.Schema)
		}
		return
	}
	if d.s.NoLedger {
		return
	}
	main, _, merr := ledger.ReadDB(d.b.config.LedgerDB(), 1)
	switch {
	case errors.Is(merr, fs.ErrPermission) || errors.Is(serr, fs.ErrPermission):
		d.add(foundUnknown, "record", cmp.Or(d.s.Access, "run as root"), "it cannot be looked at: permission denied")
	case errors.Is(merr, ledger.ErrLocked):
		d.add(foundUnknown, "record", "", "the guard has it open and does not answer; its second copy is of generation %d", side.Generation)
	case merr != nil && serr != nil:
		d.add(foundProblem, "record", "start the guard: it goes on with the fallback, and what git declares is tried anew", "neither copy can be read: %s; %s", why(merr), why(serr))
	case merr != nil:
		d.add(foundProblem, "record", "start the guard: it restores it from the second copy", "%s cannot be read: %s", d.b.config.LedgerDB(), why(merr))
	case serr != nil:
		d.add(foundProblem, "record", "start the guard: it rewrites it", "its second copy, %s, cannot be read: %s", d.b.config.LedgerJSON(), why(serr))
	case main.ID != side.ID || main.Generation != side.Generation:
		d.add(foundWarning, "record", "start the guard: the newer one wins and the other is rewritten", "the two copies differ: generation %d in %s, %d in %s", main.Generation,
			d.b.config.LedgerDB(), side.Generation, d.b.config.LedgerJSON())
	default:
		d.add(foundFine, "record", "", "both copies are there, generation %d", main.Generation)
	}
}

func (d *examination) slots() {
	if !d.v.LedgerKnown {
		d.add(foundUnknown, "way back", cmp.Or(d.s.Access, ""), "the ledger cannot be read")
		return
	}
	switch {
	case d.v.Active == "":
		d.add(foundWarning, "way back", "nothing: the first release that passes becomes last-known-good", "no slot is good: only the fallback can be gone back to")
	case d.v.Previous == nil:
		d.add(foundWarning, "way back", "nothing: the next release that passes leaves one", "there is no previous release: 'holdfast rollback' can only go to the fallback. A failed trial goes back to %s all the same", d.v.LastKnownGood.Name())
	default:
		d.add(foundFine, "way back", "", "a failed trial goes back to %s, 'holdfast rollback' to %s", d.v.LastKnownGood.Name(), shortRevision(d.v.Previous.Revision))
	}
}

// streakLimit is from how many trials in a row without a pass the next one waits longer (docs/design.md, "Breaker").
const streakLimit = 3

func (d *examination) marks() {
	if dec := d.v.Decision; dec != nil && len(dec.Marks) > 0 {
		names := heldNames(dec.Held)
		d.add(foundWarning, "held", fmt.Sprintf("declare another value, or %s in the declared file, or 'holdfast retry'; 'holdfast why %s' says why", d.retryWords(), names[0]),
			"%s: not as declared", strings.Join(names, ", "))
	}
	if n := len(d.v.Marks); n >= bootslot.MaxMarks*3/4 {
		d.add(foundWarning, "marks", "clear up what is declared: each mark is of a content that failed", "%d of %d: beyond that the oldest that is not declared is dropped", n, bootslot.MaxMarks)
	}
	l := d.s.Ledger
	if d.s.Guard != nil {
		l = &d.s.Guard.Ledger
	}
	if l != nil && l.Streak >= streakLimit {
		d.add(foundWarning, "breaker", "'holdfast retry', once the cause is found", "%d trials in a row have not passed: the next one waits longer each time", l.Streak)
	}
}

func (d *examination) retryWords() string {
	declared := uint64(0)
	if d.v.Declared != nil {
		declared = d.v.Declared.Retry
	}
	return bootslot.RetryWords(declared, d.v.Decision.RetryNumber)
}

func (d *examination) device() {
	dev := d.v.Device
	switch {
	case !dev.Answers && d.v.Driver == "" && dev.SeenBy == "":
		d.add(foundUnknown, "device", cmp.Or(d.s.Access, ""), "nobody who may be asked has seen it")
		return
	case !dev.Answers:
		d.add(foundProblem, "device", "check the device, its power and "+d.b.config.Device.URL, "it does not answer: %s", cmp.Or(dev.Error, "no answer"))
		return
	}
	well := true
	not := func(state findingState, fix, format string, args ...any) {
		well = false
		d.add(state, "device", fix, format, args...)
	}
	for _, f := range slices.Sorted(maps.Keys(dev.Refused)) {
		not(foundProblem, "'holdfast why "+f+"'", "it refuses the value of %s: %s", f, dev.Refused[f])
	}
	for _, f := range dev.NonConvergent {
		not(foundProblem, "'holdfast why "+f+"'", "%s reads back otherwise after each write", f)
	}
	for _, f := range dev.Contended {
		not(foundWarning, "find who else writes to it", "%s is contended: somebody else keeps changing it", f)
	}
	if dev.WriteErrors > 1 {
		not(foundProblem, "look at the device: it does not keep to the contract", "it has not taken a write as it should, %d times in a row: %s", dev.WriteErrors, dev.WriteError)
	}
	if len(dev.Unknown) > 0 {
		not(foundWarning, "nothing, or add them to the profile", "it has actuators that its profile does not know, left alone: %s", strings.Join(dev.Unknown, ", "))
	}
	if well {
		d.add(foundFine, "device", "", "it answers at %s", d.b.config.Device.URL)
	}
}

func (d *examination) checks() {
	if !d.v.Guard.Alive {
		d.add(foundUnknown, "checks", "start the guard, or 'holdfast selftest'", "the guard does not answer")
		return
	}
	var failing []string
	required, configured := 0, 0
	for _, c := range d.v.Checks {
		if !c.Required {
			continue
		}
		required++
		if !bootslot.BuiltIn(c.Name) {
			configured++
		}
		if c.Name == bootslot.AgentAlive && !d.v.Agent.Alive {
			continue // told already
		}
		if c.Known && !c.OK || !c.Known && !strings.HasSuffix(c.Name, selftest.FatalSuffix) {
			failing = append(failing, c.Name)
		}
	}
	if len(failing) > 0 && d.v.Trial == nil {
		d.add(foundProblem, "baseline", "'holdfast selftest' shows what they measure", "they do not hold now, so that in a trial they would convict nothing: %s", strings.Join(failing, ", "))
	} else if len(failing) == 0 {
		d.add(foundFine, "baseline", "", "all %d required checks hold", required)
	}
	if configured == 0 {
		d.add(foundWarning, "checks", "configure some: guard.checks, or executable files in check.d", "only the built-in ones judge a change: that the device answers, takes the values, and the agent lives")
	}
}

func (d *examination) checkFiles() {
	ignored := selftest.Ignored(d.folders)
	for _, file := range slices.Sorted(maps.Keys(ignored)) {
		if strings.Contains(ignored[file], fs.ErrPermission.Error()) { // for this user: the guard says in its log what it cannot look at
			d.add(foundUnknown, "check.d", "run as root", "%s cannot be looked at: permission denied", file)
			continue
		}
		fix := "make it what a check is, or remove it; then send SIGHUP to the guard"
		switch {
		case strings.Contains(ignored[file], "not executable"):
			fix = "chmod +x " + file + ", then send SIGHUP to the guard"
		case strings.Contains(ignored[file], "anybody may write"):
			fix = "chmod o-w " + file + ", then send SIGHUP to the guard"
		}
		d.add(foundProblem, "check.d", fix, "%s is no check: %s", file, ignored[file])
	}
}

func (d *examination) suspension() {
	if s := d.v.Suspended; s != nil {
		what := "nothing new is tried"
		if s.Repair {
			what = "nothing new is tried, and nobody puts the device back"
		}
		d.add(foundWarning, "suspended", "'holdfast resume'", "for another %s%s: %s", span(s.SecondsLeft), map[bool]string{true: "", false: ", by " + s.Who}[s.Who == ""], what)
	}
}

func (d *examination) wallClock() {
	now := d.s.Now
	newest := time.Time{}
	for _, e := range d.s.History {
		if e.At.After(newest) {
			newest = e.At
		}
	}
	switch {
	case !clock.Believable(now):
		d.add(foundWarning, "clock", "set it: a time server, or a clock with a battery. Nothing but certificates depends on it", "it says %s, which cannot be", now.Local().Format(time.DateTime))
	case newest.After(now.Add(time.Minute)):
		d.add(foundWarning, "clock", "find out which of the two was right. Nothing is ordered by it", "it says %s, and the history has an event of %s", now.Local().Format(time.DateTime), newest.Local().Format(time.DateTime))
	default:
		d.add(foundFine, "clock", "", "%s", now.Local().Format(time.DateTime))
	}
}

func (d *examination) repository() {
	g := d.v.Git
	last := "there was no good fetch since the agent started"
	if !g.LastFetch.IsZero() {
		last = "the last good fetch was at " + status.Wall(g.LastFetch)
	}
	switch g.State {
	case status.GitUnknown:
		d.add(foundUnknown, "repository", "", "no fetch has ended since the agent started, or the agent does not answer")
	case status.GitOK:
		d.add(foundFine, "repository", "", "%s answers; %s", d.b.config.Repository.URL, last)
	case status.GitOffline:
		d.add(foundWarning, "repository", "check the link. What is in force is kept meanwhile", "offline since %s; %s", status.Wall(g.Since), last)
	default:
		d.add(foundProblem, "repository", cmp.Or(g.Advice, "see the message"), "%s since %s: %s; %s", g.State, status.Wall(g.Since), g.Message, last)
	}
	if !d.v.CloneKnown {
		d.add(foundProblem, "clone", "it is fetched anew by itself", "what is declared cannot be read")
	}
}

// credentials looks at the files that hold secrets, and at those that tell whom to trust.
func (d *examination) credentials() {
	c := d.b.config
	ok := 0
	for _, f := range []struct {
		key, path string
		secret    bool
	}{{"device.tokenFile", c.Device.TokenFile, true}, {"repository.tokenFile", c.Repository.TokenFile, true}, {"repository.sshKeyFile", c.Repository.SSHKeyFile, true},
		{"repository.knownHostsFile", c.Repository.KnownHostsFile, false}, {"repository.caFile", c.Repository.CAFile, false}} {
		if f.path == "" {
			continue
		}
		fi, err := os.Stat(f.path)
		switch {
		case errors.Is(err, fs.ErrPermission):
			d.add(foundUnknown, "credentials", "run as root", "%s: %v", f.key, err)
		case err != nil:
			d.add(foundProblem, "credentials", "create it, or take "+f.key+" out of the configuration", "%s: %v", f.key, err)
		case f.secret && fi.Mode().Perm()&0o004 != 0 && !inClosedFolder(f.path):
			d.add(foundProblem, "credentials", "chmod o-r "+f.path, "anybody may read %s (%s)", f.path, f.key)
		case f.secret && fi.Mode().Perm()&0o044 != 0:
			d.add(foundWarning, "credentials", "chmod go-r "+f.path+", if both services can read it then", "others than its owner may read %s (%s): the %s", f.path, f.key, groupOf(fi))
		case fi.Mode().Perm()&0o002 != 0:
			d.add(foundProblem, "credentials", "chmod o-w "+f.path, "anybody may write to %s (%s)", f.path, f.key)
		default:
			ok++
		}
	}
	if ok > 0 {
		d.add(foundFine, "credentials", "", "%d files, none readable by others", ok)
	}
}

// inClosedFolder reports whether no stranger gets as far as path, whatever its own mode.
func inClosedFolder(path string) bool {
	for dir := filepath.Dir(path); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if fi, err := os.Stat(dir); err == nil && fi.Mode().Perm()&0o001 == 0 {
			return true
		}
	}
	return false
}

// watchdog looks for the hardware's (Documentation/watchdog/sysfs.rst): a kernel that hangs is reset by nothing else.
func (d *examination) watchdog() {
	dogs, _ := filepath.Glob(filepath.Join(d.system, "sys/class/watchdog/watchdog*"))
	if len(dogs) == 0 {
		d.add(foundWarning, "hardware watchdog", "enable the board's watchdog driver, then RuntimeWatchdogSec= in systemd's system.conf", "there is none: a board whose kernel hangs stays as it is until somebody comes")
		return
	}
	read := func(dog, name string) string {
		b, _ := os.ReadFile(filepath.Join(dog, name))
		return strings.TrimSpace(string(b))
	}
	feeds := d.runtimeWatchdog != "" && d.runtimeWatchdog != "0" && d.runtimeWatchdog != "infinity"
	for _, dog := range dogs {
		name := cmp.Or(read(dog, "identity"), filepath.Base(dog))
		switch state := read(dog, "state"); {
		case state == "active" && feeds:
			d.add(foundFine, "hardware watchdog", "", "%s, it bites after %s s; systemd feeds it", name, cmp.Or(read(dog, "timeout"), "?"))
		case state == "active":
			d.add(foundFine, "hardware watchdog", "", "%s, it bites after %s s", name, cmp.Or(read(dog, "timeout"), "?"))
		case state == "inactive":
			d.add(foundWarning, "hardware watchdog", "RuntimeWatchdogSec=30s in /etc/systemd/system.conf, then systemctl daemon-reexec", "%s is there, and nobody has started it", name)
		case feeds: // a kernel without CONFIG_WATCHDOG_SYSFS
			d.add(foundFine, "hardware watchdog", "", "%s; systemd feeds it, RuntimeWatchdogSec=%s", name, d.runtimeWatchdog)
		case d.runtimeWatchdog != "":
			d.add(foundWarning, "hardware watchdog", "RuntimeWatchdogSec=30s in /etc/systemd/system.conf, then systemctl daemon-reexec", "%s is there, and systemd does not feed it", name)
		default:
			d.add(foundUnknown, "hardware watchdog", "", "%s is there; whether it runs cannot be told", name)
		}
	}
}

// log looks whether what the processes said survives a boot (journald.conf(5), Storage=).
func (d *examination) log() {
	has := func(path string) bool {
		entries, err := os.ReadDir(filepath.Join(d.system, path))
		return err == nil && len(entries) > 0
	}
	switch {
	case has("var/log/journal"):
		d.add(foundFine, "log", "", "the journal is kept over a boot")
	case has("run/log/journal"):
		d.add(foundWarning, "log", "mkdir -p /var/log/journal && systemctl restart systemd-journald", "the journal is gone with each boot. The history in the ledger stays")
	default:
		d.add(foundUnknown, "log", "", "there is no journal here: where the processes log to cannot be told")
	}
}

// bootGate is what can be told of the boot loader: nothing, until this board has boot slots that Holdfast knows.
func (d *examination) bootGate() {
	d.add(foundUnknown, "boot gate", "", "this version knows no boot slots: what the boot loader does with a system that does not start cannot be told")
}

// pathless is an error of a path without the path, which is named already.
func pathless(path string, err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return path + ": " + pe.Err.Error()
	}
	return err.Error()
}

func mebibytes(n int64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// groupOf names a file's group.
func groupOf(fi fs.FileInfo) string {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return "group"
	}
	return groupName(st.Gid)
}

func groupName(gid uint32) string {
	id := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(id); err == nil {
		return "group " + g.Name
	}
	return "group " + id
}

var findingPaint = map[findingState]paint{foundProblem: red, foundWarning: yellow, foundUnknown: faint, foundFine: green}

func showExamined(p printer, e examined) {
	count := map[findingState]int{}
	for _, f := range e.Findings {
		count[f.State]++
	}
	var parts []string
	for _, of := range []struct {
		state     findingState
		one, many string
	}{{foundProblem, "problem", "problems"}, {foundWarning, "warning", "warnings"}, {foundUnknown, "unknown", "unknown"}} {
		switch n := count[of.state]; n {
		case 0:
		case 1:
			parts = append(parts, "1 "+of.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, of.many))
		}
	}
	summary, c := "Nothing was found that could make the safety net fail", green
	if !e.Fine {
		summary, c = "The safety net may fail", red
	}
	if len(parts) > 0 {
		summary += ": " + strings.Join(parts, ", ")
	}
	p.line("%s", p.paint(c, summary+"."))
	widest := 0
	for _, f := range e.Findings {
		widest = max(widest, len(f.Check))
	}
	for _, f := range e.Findings {
		name := fmt.Sprintf("%-*s  ", widest, shown(f.Check))
		p.paragraph("  "+p.paint(findingPaint[f.State], fmt.Sprintf("%-8s", f.State))+" "+painted(name), plain, strings.ReplaceAll(f.Says, "\n", "; "))
		if f.Fix != "" && f.State != foundFine {
			p.paragraph(painted(strings.Repeat(" ", len("  problem  ")+len(name)))+"> ", faint, f.Fix)
		}
	}
}
