//go:build system

package systemtest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestOffline(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	revision := b.status().Effective.Revision
	b.step("a reboot with no network: the device is driven to last-known-good", func() {
		b.cut()
		b.reboot()
		b.until("the pump is on again, which the greenhouse forgets", func() bool { return b.device()["pump"] == "on" })
		b.converged(revision)
		b.moved("fan")
		if got := b.show("network-online.target", "ActiveState"); got != "inactive" {
			b.Errorf("network-online.target is %s: something waits for a network", got)
		}
		b.untilStatus("it knows that it is offline", func(v view) bool { return v.Git.State == "offline" })
	})
	b.step("the cable is back: what was declared meanwhile comes true", func() {
		revision = b.up.push("pump: on", "fan: on")
		b.restore()
		b.sh("holdfast reconcile || true")
		b.converged(revision)
	})
	b.write("/etc/holdfast/holdfast.yaml", slowConfig)
	b.sh("systemctl reload holdfast-guard holdfast-agent")
	for i, end := range []struct {
		what string
		do   func()
	}{{"powered off", b.poweroff}, {"without power", b.powerCut}} {
		b.step(end.what+" in a trial, and on again: nobody is blamed, and it is tried once more", func() {
			revision = b.up.push("pump: on", "fan: "+[]string{"off", "on"}[i])
			b.untilStatus("the trial runs", func(v view) bool { return v.Phase == "trial" })
			end.do()
			b.boot()
			b.converged(revision)
			b.unmarked()
		})
	}
}

func TestABadRevision(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	good := b.status().Effective.Revision
	bad := b.up.push("pump: on", "lamp: on")
	b.step("it is undone, marked, and the device is kept at what was good", func() {
		b.untilStatus("the trial runs, and the lamp is on", func(v view) bool { return v.Phase == "trial" && v.Device.Observed["lamp"] == "on" })
		v := b.untilStatus("the lamp is marked", func(v view) bool { return len(v.Marks) == 1 && v.Phase == "idle" })
		if m := v.Marks[0]; m.Check != "lamp-is-off" || m.Set["lamp"] != "on" || len(m.Set) != 1 {
			b.Errorf("the mark is %+v, want one of lamp: on, by lamp-is-off", m)
		}
		b.converged(good)
	})
	b.step("the journal tells it, by field, and explains it", func() {
		failed := "HOLDFAST_VERDICT=failed HOLDFAST_CHECK=lamp-is-off HOLDFAST_FIELD_LAMP=1 HOLDFAST_REVISION=" + bad
		for _, fields := range []string{"HOLDFAST_EVENT=trial HOLDFAST_REVISION=" + bad, "HOLDFAST_EVENT=failed " + failed} {
			if got := len(b.journal(fields)); got != 1 {
				b.Errorf("journalctl %s finds %d entries, want 1", fields, got)
			}
		}
		plain, explained := b.sh("journalctl --no-pager --quiet "+failed), b.sh("journalctl --no-pager --quiet -x "+failed)
		if len(explained) < 3*len(plain) {
			b.Errorf("journalctl -x explains nothing:\n%s", explained)
		}
	})
	b.step("the questions of the pages are answered, as they are written there", func() {
		b.moved("lamp")
		b.cut()
		b.sh("systemctl restart holdfast-agent") // one with a connection waits for that first
		b.untilStatus("it knows that it is offline", func(v view) bool { return v.Git.State == "offline" })
		b.restore()
		b.sh("holdfast reconcile || true")
		b.untilStatus("it reads the repository again", func(v view) bool { return v.Git.State == "ok" })
		mark := fmt.Sprint("HOLDFAST_MARK_", b.status().Marks[0].ID)
		for _, line := range journalLines(b.T) {
			// the examples' revision and mark, and this board's
			line = regexp.MustCompile(`HOLDFAST_REVISION=[0-9a-f]{40}`).ReplaceAllString(line, "HOLDFAST_REVISION="+bad)
			line = regexp.MustCompile(`HOLDFAST_MARK_\d+`).ReplaceAllString(line, mark)
			out := b.sh(line)
			found := out != "" && !strings.HasPrefix(out, "-- No entries --")
			if quiet := strings.Contains(line, "-p err"); quiet == found { // a board that is well has nothing that needs somebody
				b.Errorf("%s\n%s", line, out)
			}
		}
	})
	b.step("idle, the journal stays silent", func() {
		b.converged(good)
		cycles := b.status().DeviceCycles
		b.until("what the step before has stirred up is over", func() bool { return b.status().DeviceCycles >= cycles+5 })
		before := len(b.journal("-t holdfast -t holdfast-guard"))
		cycles += 5
		b.until("forty cycles have gone by", func() bool { return b.status().DeviceCycles >= cycles+40 })
		if after := b.journal("-t holdfast -t holdfast-guard"); len(after) != before {
			b.Errorf("%d new lines in forty idle cycles: %v", len(after)-before, after[before:])
		}
	})
}

// A stopped or killed process is started again, meanwhile the other keeps the device, and nobody is blamed.
func TestStoppedAndKilled(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	b.dropIn("holdfast-agent", "[Service]\nWatchdogSec=3s\n")
	b.dropIn("holdfast-guard", "[Service]\nWatchdogSec=3s\n")
	b.write("/etc/holdfast/holdfast.yaml", slowConfig)
	b.sh("systemctl restart holdfast-guard holdfast-agent")
	revision := b.status().Effective.Revision
	fan := "off"
	for _, signal := range []string{"STOP", "KILL"} {
		for _, name := range []string{"agent", "guard"} {
			unit := "holdfast-" + name
			hit := func() {
				b.Helper()
				pid, restarts := b.show(unit, "MainPID"), b.show(unit, "NRestarts")
				b.sh("systemctl kill --kill-whom=main --signal=" + signal + " " + unit)
				b.moved("pump")
				b.until(unit+" has been started again", func() bool {
					return b.show(unit, "NRestarts") != restarts && b.show(unit, "MainPID") != pid && b.show(unit, "ActiveState") == "active"
				})
				if got := b.show(unit, "Result"); got != "success" {
					b.Errorf("%s: %s", unit, got)
				}
			}
			b.step(fmt.Sprintf("SIG%s of the %s before a trial", signal, name), func() {
				hit()
				b.converged(revision)
			})
			b.step(fmt.Sprintf("SIG%s of the %s in a trial, and after it", signal, name), func() {
				fan = map[string]string{"on": "off", "off": "on"}[fan]
				revision = b.up.push("pump: on", "fan: "+fan)
				b.untilStatus("the trial runs", func(v view) bool { return v.Phase == "trial" })
				hit()
				b.converged(revision)
				b.unmarked()
				hit()
				b.converged(revision)
			})
		}
	}
	b.step("the watchdog did it, and says so", func() {
		out := b.sh("journalctl --no-pager -u holdfast-agent -u holdfast-guard")
		b.want(out, "holdfast-agent.service: Watchdog timeout", "holdfast-guard.service: Watchdog timeout", "goroutine ")
	})
}

// A device that hangs and a network that is dead are no reason to restart anything.
func TestTheWatchdogIsPatient(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	b.dropIn("holdfast-agent", "[Service]\nWatchdogSec=3s\n")
	b.dropIn("holdfast-guard", "[Service]\nWatchdogSec=3s\n")
	b.sh("systemctl restart holdfast-guard holdfast-agent")
	revision := b.status().Effective.Revision
	b.converged(revision)
	unmoved := func(what string) {
		b.Helper()
		for _, unit := range []string{"holdfast-agent", "holdfast-guard"} {
			if got := b.show(unit, "NRestarts"); got != "0" {
				b.Errorf("%s: %s was restarted %s times", what, unit, got)
			}
		}
	}
	// for longer than three watchdogs
	wait := func() { time.Sleep(11 * time.Second) }
	b.step("the device hangs", func() {
		b.sh("systemctl kill --kill-whom=main --signal=STOP holdfast-greenhouse")
		wait()
		unmoved("the device hangs")
		b.sh("systemctl kill --kill-whom=main --signal=CONT holdfast-greenhouse")
		b.converged(revision)
	})
	b.step("the cable is out, and then the server takes connections and says nothing", func() {
		b.cut()
		wait()
		b.restore()
		b.up.hang.Store(true)
		wait()
		b.up.hang.Store(false)
		unmoved("the network is dead")
		b.converged(revision)
		b.unmarked()
	})
}

func TestSockets(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	revision := b.status().Effective.Revision
	b.step("services are stopped and started in both orders", func() {
		for _, order := range []string{"holdfast-guard holdfast-agent", "holdfast-agent holdfast-guard"} {
			for _, u := range strings.Fields(order) {
				b.sh("systemctl stop " + u + ".socket " + u)
			}
			for _, u := range strings.Fields(order) {
				b.sh("systemctl start " + u)
			}
			b.converged(revision)
			b.moved("fan")
		}
		b.unmarked()
	})
	b.step("whoever asks starts what is stopped", func() {
		b.sh("systemctl start holdfast-guard.socket holdfast-agent.socket")
		b.sh("systemctl stop holdfast-agent holdfast-guard")
		b.sh("holdfast status --json || true")
		b.until("both run", func() bool { return b.states("is-active") == "active" })
		b.converged(revision)
	})
	b.step("a guard that was stopped as docs/installing.md says stays so, and the agent keeps the device", func() {
		b.sh("systemctl stop 'holdfast-guard.*'")
		b.moved("pump")
		if got := b.show("holdfast-guard", "ActiveState"); got != "inactive" {
			b.Errorf("the guard is %s", got)
		}
		b.sh("systemctl start holdfast-guard")
		b.converged(revision)
	})
	b.step("nobody is refused while they restart", func() {
		cmd := exec.Command("nsenter", "--target", fmt.Sprint(b.leader), "--all", "--root", "--wd", "--", "sh", "-c",
			"while [ ! -e /run/enough ]; do holdfast slots --json >/dev/null || echo slots: refused; holdfast reconcile --no-wait >/dev/null || echo reconcile: refused; done")
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		out, err := os.Create(b.dir + "/refused")
		if err != nil {
			b.Fatal(err)
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		for range 5 {
			b.sh("systemctl restart holdfast-guard; systemctl restart holdfast-agent")
		}
		b.sh("touch /run/enough")
		cmd.Wait()
		if text, _ := os.ReadFile(out.Name()); len(text) > 0 {
			b.Errorf("somebody was refused:\n%s", text)
		}
		b.converged(revision)
		b.unmarked()
	})
}

// dropIn changes a unit as `systemctl edit` does.
func (b *board) dropIn(unit, text string) {
	b.Helper()
	b.write("/etc/systemd/system/"+unit+".service.d/test.conf", text)
	b.sh("systemctl daemon-reload")
}

// journalLines are the lines of journalctl in the blocks of a shell in docs/journal.md and docs/installing.md.
func journalLines(t *testing.T) []string {
	t.Helper()
	var lines []string
	for _, page := range []string{"../../docs/journal.md", "../../docs/installing.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllString(string(text), -1) {
			for _, line := range strings.Split(block, "\n") {
				if strings.HasPrefix(line, "journalctl ") {
					lines, found = append(lines, line), found+1
				}
			}
		}
		if found == 0 {
			t.Fatalf("%s asks the journal nothing", page)
		}
	}
	return lines
}
