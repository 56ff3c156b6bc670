//go:build system

package systemtest

import (
	"strings"
	"testing"
)

// stopAll stops the services and their sockets, which would start them again.
const stopAll = "systemctl stop " + units

func TestDisk(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	revision := b.status().Effective.Revision
	// its state on a disk of its own, which a test can fill
	b.sh(stopAll + `
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
		b.sh(stopAll + "; mount -o remount,ro /var/lib/holdfast; systemctl start holdfast-guard holdfast-agent")
		waiting := b.up.push("pump: on")
		b.moved("pump")
		b.moved("fan")
		if v := b.status(); v.Effective.Revision != revision {
			b.Errorf("on a read-only disk %s is in force", v.Effective.Revision)
		}
		// A service that was started on it has it read-only for as long as it runs.
		b.sh("mount -o remount,rw /var/lib/holdfast; systemctl restart holdfast-guard holdfast-agent")
		b.converged(waiting)
		b.unmarked()
	})
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	revision := b.status().Effective.Revision
	b.step("state that belongs to somebody else is put right by the start", func() {
		b.sh(stopAll + "; chown -R root:root /var/lib/holdfast/*; chmod -R go= /var/lib/holdfast/*; systemctl start holdfast-guard holdfast-agent")
		b.converged(revision)
		b.unmarked()
	})
	b.step("a folder above it that nobody may enter: the device is kept at the fallback, status says why, and a reboot puts it right", func() {
		b.sh(stopAll + "; chmod 700 /var/lib/holdfast; systemctl start holdfast-guard holdfast-agent")
		b.untilStatus("it says what it may not", func(v view) bool { return strings.Contains(strings.Join(v.Problems, "\n"), "permission denied") })
		b.until("the device is driven", func() bool { return b.status().isDriven() })
		b.moved("fan")
		b.reboot()
		b.converged(revision)
		b.unmarked()
	})
	b.step("a file of its own that it may not read: the other one is taken, and the device is kept", func() {
		b.sh(stopAll + "; chown root:root /var/lib/holdfast/guard/ledger.db /var/lib/holdfast/agent/*; chmod 600 /var/lib/holdfast/guard/ledger.db /var/lib/holdfast/agent/*; systemctl start holdfast-guard holdfast-agent")
		b.until("last-known-good is in force", func() bool { v := b.status(); return v.isDriven() && v.Effective.Fields["pump"] == "on" })
		b.moved("fan")
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
		b.moved("fan")
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
		b.moved("fan")
	})
	b.step("broken from the start: it says what is wrong where, and the guard keeps the device that its profile names at the fallback", func() {
		b.sh("apt-get purge --yes holdfast")
		b.write("/etc/holdfast/holdfast.yaml", broken)
		b.install(built(t, "holdfast"))
		b.until("the journal says what is wrong", func() bool {
			out := b.sh("journalctl --no-pager -u holdfast-agent")
			return strings.Contains(out, "/etc/holdfast/holdfast.yaml:3") && strings.Contains(out, "intervall")
		})
		b.until("the guard drives the device to the fallback", func() bool { v := b.status(); return v.Driver == "guard" && b.device()["pump"] == "off" })
		b.moved("pump")
		b.write("/etc/holdfast/holdfast.yaml", config)
		b.sh("systemctl restart holdfast-guard holdfast-agent")
		b.converged(revision)
	})
}
