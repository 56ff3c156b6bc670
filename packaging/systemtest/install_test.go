//go:build system

package systemtest

import (
	"strings"
	"testing"
)

// units are what the package holdfast brings and enables.
const units = "holdfast-guard.socket holdfast-agent.socket holdfast-guard.service holdfast-agent.service"

// fourLines are all that an operator has to write; everything else has its default.
const fourLines = `device:
  url: http://127.0.0.1:8080
repository:
  url: http://git.example.org/state.git
`

// states is what `systemctl COMMAND UNIT…` says of the units, without repetitions.
func (b *board) states(command string) string {
	b.Helper()
	out, _ := b.try("systemctl " + command + " " + units)
	said := map[string]bool{}
	var all []string
	for _, l := range strings.Fields(out) {
		if !said[l] {
			said[l] = true
			all = append(all, l)
		}
	}
	return strings.Join(all, " ")
}

func TestInstall(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.boot()
	b.step("nothing is started before it is configured, and the package says what to do", func() {
		b.want(b.install(built(t, "holdfast"), built(t, "holdfast-greenhouse")),
			"nothing runs yet", "/etc/holdfast/holdfast.yaml", "systemctl start holdfast-guard holdfast-agent", "systemctl enable --now holdfast-greenhouse")
		for range 2 {
			if got := b.states("is-active"); got != "inactive" {
				b.Errorf("the units are %s, want inactive", got)
			}
			if got := b.states("is-enabled"); got != "enabled" {
				b.Errorf("the units are %s, want enabled", got)
			}
			b.reboot() // which asks for a system without a failed unit, too
		}
		if got := b.sh("ls -A /var/lib/holdfast 2>/dev/null || true"); got != "" {
			b.Errorf("there is state already: %s", got)
		}
	})
	b.step("four lines of configuration, and it converges", func() {
		revision := b.up.push("pump: on")
		b.write("/etc/holdfast/holdfast.yaml", fourLines)
		b.sh("systemctl enable --now holdfast-greenhouse")
		b.sh("systemctl start holdfast-guard holdfast-agent")
		v := b.converged(revision)
		if want := version(t, built(t, "holdfast")); v.Guard.Version != want || v.Agent.Version != want {
			b.Errorf("guard %s and agent %s say that they run, want %s of both", v.Guard.Version, v.Agent.Version, want)
		}
		if v.LastVerdict == nil || v.LastVerdict.Kind != "passed" {
			b.Errorf("the last verdict is %+v, want passed: it is no fallback, and has to be tried", v.LastVerdict)
		}
		b.want(b.sh("holdfast status"), "is in force, as declared")
	})
	b.step("the files are whose they should be", func() {
		b.want(b.sh("stat --format='%A %U:%G %n' /etc/holdfast/credentials/git /etc/holdfast/credentials/device /var/lib/holdfast/guard /var/lib/holdfast/agent /run/holdfast /run/holdfast/*.sock"),
			"drwx------ root:root /etc/holdfast/credentials/git", "drwx------ root:root /etc/holdfast/credentials/device",
			"drwxr-x--- holdfast-guard:holdfast /var/lib/holdfast/guard", "drwxr-x--- holdfast-agent:holdfast /var/lib/holdfast/agent",
			"drwxrwxr-t root:holdfast-guard /run/holdfast", "srw-rw---- root:holdfast /run/holdfast/guard.sock", "srw-rw---- root:holdfast /run/holdfast/agent.sock")
	})
	b.step("installing the same version again changes nothing", func() {
		before := b.status()
		b.sh("dpkg --install " + b.carry(built(t, "holdfast")))
		b.converged(before.Effective.Revision)
		b.unmarked()
	})
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	now := version(t, built(t, "holdfast"))
	running := func(version string) {
		b.Helper()
		b.untilStatus("guard and agent are of version "+version, func(v view) bool {
			return v.Guard.Version == version && v.Agent.Version == version
		})
	}
	revision := b.status().Effective.Revision
	b.step("a conffile that was edited, state and configuration survive an upgrade", func() {
		b.sh("echo ours >>/etc/holdfast/check.d/README")
		b.install(nextPackage(t))
		running(nextVersion)
		b.converged(revision)
		b.want(b.sh("cat /etc/holdfast/check.d/README"), "ours")
		b.unmarked()
		b.want(b.sh("/usr/lib/holdfast/previous/holdfast version; /usr/lib/holdfast/previous/holdfast-guard --version"), now)
	})
	b.step("back to the version before", func() {
		b.install(built(t, "holdfast"))
		running(now)
		b.converged(revision)
		b.unmarked()
	})
	b.step("an upgrade over a guard that has to be killed: the new one runs, and goes on doing so", func() {
		b.dropIn("holdfast-guard", "[Service]\nKillSignal=SIGKILL\n")
		b.install(nextPackage(t))
		running(nextVersion)
		// Systemd calls that a failure, and it was none of this version's.
		b.until("the way back has been asked for, and has ended", func() bool { return b.show("holdfast-previous@guard", "ExecMainExitTimestamp") != "" })
		if got := b.show("holdfast-guard", "ExecStart"); strings.Contains(got, "previous") {
			b.Errorf("the guard went back: %s", got)
		}
		b.converged(revision)
		b.sh("rm /etc/systemd/system/holdfast-guard.service.d/test.conf")
		b.install(built(t, "holdfast"))
		running(now)
	})
	b.step("an upgrade in a trial cancels it and marks nobody", func() {
		b.write("/etc/holdfast/holdfast.yaml", slowConfig)
		b.sh("systemctl reload holdfast-guard holdfast-agent")
		revision = b.up.push("pump: on", "fan: on")
		b.untilStatus("a trial runs", func(v view) bool { return v.Phase == "trial" })
		b.install(nextPackage(t))
		running(nextVersion)
		b.converged(revision)
		b.unmarked()
		b.want(b.sh("holdfast history"), "cancelled")
		if got := b.sh("holdfast history"); strings.Contains(got, "inconclusive") || strings.Contains(got, "failed") {
			b.Errorf("the trial was not just cancelled:\n%s", got)
		}
	})
	b.step("a reboot stays with the new version, with no network", func() {
		b.cut()
		b.reboot()
		running(nextVersion)
		b.converged(revision)
		b.moved("fan")
		b.restore()
	})
	b.step("removed: it stops, and configuration and state stay", func() {
		b.sh("apt-get remove --yes holdfast")
		b.want(b.sh("ls /etc/holdfast /var/lib/holdfast/guard /var/lib/holdfast/agent"), "holdfast.yaml", "ledger.db", "clone.db")
		if out, err := b.try("pgrep holdfast"); err == nil {
			b.Errorf("still running: %s", out)
		}
		b.reboot()
	})
	b.step("installed again it goes on where it was", func() {
		b.install(built(t, "holdfast"))
		running(now)
		b.converged(revision)
	})
	b.step("purged: neither is left", func() {
		b.sh("apt-get purge --yes holdfast")
		if out, err := b.try("ls -d /etc/holdfast /var/lib/holdfast /run/holdfast /usr/lib/holdfast /run/systemd/system/holdfast* /etc/systemd/system/*/holdfast-[ag]u* 2>/dev/null"); out != "" {
			b.Errorf("left behind (%v):\n%s", err, out)
		}
		b.reboot()
	})
	b.step("installed after a purge it is new", func() {
		b.want(b.install(built(t, "holdfast")), "nothing runs yet")
		if got := b.states("is-active"); got != "inactive" {
			b.Errorf("the units are %s, want inactive", got)
		}
		b.write("/etc/holdfast/holdfast.yaml", config)
		b.sh("systemctl start holdfast-guard holdfast-agent")
		b.converged(revision)
	})
}

func TestAVersionThatDoesNotStart(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	now := version(t, built(t, "holdfast"))
	revision := b.status().Effective.Revision
	b.step("a guard: the agent keeps the device, and the previous guard comes by itself", func() {
		b.install(next(t, "holdfast", nextVersion, map[string]string{"/usr/sbin/holdfast-guard": failing(t)}))
		b.moved("pump")
		b.until("the previous guard runs", func() bool { v := b.status(); return v.Guard.Alive && v.Guard.Version == now })
		b.want(b.show("holdfast-guard", "ExecStart"), "/usr/lib/holdfast/previous/holdfast-guard")
		b.converged(revision)
		b.unmarked()
		revision = b.up.push("pump: on", "fan: on")
		b.converged(revision)
	})
	b.step("a guard, after a reboot: the same again", func() {
		b.restart()
		b.until("the previous guard runs", func() bool { v := b.status(); return v.Guard.Alive && v.Guard.Version == now })
		b.converged(revision)
	})
	b.step("an agent: the guard keeps the device, and the previous agent comes by the documented command", func() {
		b.install(built(t, "holdfast"))
		b.converged(revision)
		b.install(next(t, "holdfast", nextVersion, map[string]string{"/usr/bin/holdfast": failing(t)}))
		b.until("the agent has been started three times", func() bool { return b.show("holdfast-agent", "NRestarts") >= "3" })
		b.moved("pump")
		b.sh("systemctl start holdfast-previous@agent")
		b.until("the previous agent answers", func() bool {
			out, _ := b.try("/usr/lib/holdfast/previous/holdfast status --oneline")
			return strings.HasPrefix(out, "ok")
		})
	})
}
