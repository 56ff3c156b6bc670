//go:build system

package systemtest

import (
	"strings"
	"testing"
)

func TestDisk(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	revision := b.status().Effective.Revision
	// its state on a disk of its own, which a test can fill
	b.sh(`systemctl stop holdfast-agent.socket holdfast-guard.socket holdfast-agent holdfast-guard
cp -a /var/lib/holdfast /var/tmp/state
mount -t tmpfs -o size=40m,mode=755 tmpfs /var/lib/holdfast
cp -a /var/tmp/state/. /var/lib/holdfast
systemctl start holdfast-guard holdfast-agent`)
	b.converged(revision)
	b.step("full: the device is kept, and nothing is tried", func() {
		b.sh("head -c 100M /dev/zero >/var/lib/holdfast/ballast 2>/dev/null || true")
		waiting := b.up.push("pump: on", "fan: on")
		b.untilStatus("it says so", func(v view) bool { return len(v.NotFine) > 0 || len(v.Problems) > 0 })
		b.sh("systemctl restart holdfast-guard holdfast-agent")
		b.moved("pump")
		if v := b.status(); v.Effective.Revision != revision {
			b.Errorf("on a full disk %s is in force", v.Effective.Revision)
		}
		b.sh("rm /var/lib/holdfast/ballast")
		b.converged(waiting)
		revision = waiting
	})
	b.step("read-only: the device is kept, also by processes that start", func() {
		b.sh("mount -o remount,ro /var/lib/holdfast")
		b.sh("systemctl restart holdfast-guard holdfast-agent")
		waiting := b.up.push("pump: on")
		b.moved("pump")
		b.moved("fan")
		if v := b.status(); v.Effective.Revision != revision {
			b.Errorf("on a read-only disk %s is in force", v.Effective.Revision)
		}
		b.sh("mount -o remount,rw /var/lib/holdfast")
		b.converged(waiting)
		b.unmarked()
	})
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	revision := b.status().Effective.Revision
	b.step("state that belongs to somebody else is put right by the start", func() {
		b.sh("systemctl stop holdfast-agent.socket holdfast-guard.socket holdfast-agent holdfast-guard; chown -R root:root /var/lib/holdfast; chmod -R go= /var/lib/holdfast")
		b.sh("systemctl start holdfast-guard holdfast-agent")
		b.converged(revision)
		b.unmarked()
	})
	b.step("a file in it that cannot be read stops nobody", func() {
		b.sh("systemctl stop holdfast-agent.socket holdfast-guard.socket holdfast-agent holdfast-guard; chown root:root /var/lib/holdfast/guard/* /var/lib/holdfast/agent/*; chmod 600 /var/lib/holdfast/guard/* /var/lib/holdfast/agent/*")
		b.sh("systemctl start holdfast-guard holdfast-agent")
		b.until("the device is as declared", func() bool { return b.status().isDriven() })
		b.kept()
	})
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	revision := b.status().Effective.Revision
	broken := strings.Replace(config, "interval: 1s", "intervall: 1s", 1)
	b.step("broken: the last valid one is in force, also after a reboot", func() {
		b.write("/etc/holdfast/holdfast.yaml", broken)
		b.sh("systemctl reload holdfast-guard holdfast-agent")
		b.untilStatus("it says what is wrong", func(v view) bool { return strings.Contains(strings.Join(v.Problems, "\n"), "intervall") })
		b.kept()
		b.reboot()
		b.converged(revision)
		b.untilStatus("it says what is wrong", func(v view) bool { return strings.Contains(strings.Join(v.Problems, "\n"), "intervall") })
		revision = b.up.push("pump: on", "fan: on")
		b.converged(revision)
	})
	b.step("gone: the same", func() {
		b.sh("rm /etc/holdfast/holdfast.yaml")
		b.reboot()
		b.converged(revision)
		b.kept()
	})
	b.step("broken from the start: it says so", func() {
		b.sh("apt-get purge --yes holdfast")
		b.write("/etc/holdfast/holdfast.yaml", broken)
		b.install(built(t, "holdfast"))
		b.try("systemctl start holdfast-guard holdfast-agent")
		b.until("the journal says what is wrong", func() bool {
			return strings.Contains(b.sh("journalctl --no-pager -u holdfast-agent"), "intervall")
		})
		b.write("/etc/holdfast/holdfast.yaml", config)
		b.sh("systemctl restart holdfast-guard holdfast-agent")
		b.converged(revision)
	})
}
