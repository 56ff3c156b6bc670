//go:build deb

package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// stub stands in for systemctl: it notes what it was asked; a unit whose state is in /state/UNIT is in that, others run.
const stub = `#!/bin/sh
case "$*" in *preset* | *enable* | *disable* | *mask*) exec /usr/bin/systemctl "$@" ;; esac # links are made without a manager
echo "$*" >>/asked
for unit; do :; done
case "$*" in
show*) cat "/state/$unit" 2>/dev/null || echo running ;;
is-active*) cat "/state/$unit" 2>/dev/null || echo active ;;
esac
`

// not is what `!` is not: under `set -e` a command that is not to succeed, and does, ends the script.
const not = `not() { if "$@"; then return 1; fi; }
`

// A board as a tree: packages come and go in a chroot, as when an image is built, and then with a service manager that only takes notes.
func TestScripts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a chroot")
	}
	cmd := exec.Command("systemtest/root.sh")
	cmd.Stderr = os.Stderr
	tree, err := cmd.Output()
	if err != nil {
		t.Fatal("systemtest/root.sh: ", err)
	}
	root := t.TempDir()
	run(t, "", "tar", "-C", root, "-xf", strings.TrimSpace(string(tree)))
	old, greenhouse := packages(t, "holdfast", runtime.GOARCH)[0], packages(t, "holdfast-greenhouse", runtime.GOARCH)[0]
	run(t, "", "cp", old, filepath.Join(root, "old.deb"))
	run(t, "", "cp", greenhouse, filepath.Join(root, "greenhouse.deb"))
	// The next one differs in its version, and in what its programs and its conffile say.
	next := t.TempDir()
	run(t, "", "dpkg-deb", "--raw-extract", old, next)
	run(t, next, "sed", "-i", "s/^Version: .*/Version: 9999.1/", "DEBIAN/control")
	for _, program := range []string{"usr/bin/holdfast", "usr/sbin/holdfast-guard"} {
		if err := os.WriteFile(filepath.Join(next, program), []byte("#!/bin/sh\necho "+program+" 9999.1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "", "dpkg-deb", "--root-owner-group", "-Znone", "--build", next, filepath.Join(root, "next.deb"))
	if err := os.MkdirAll(filepath.Join(root, "stub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"systemctl": stub, "sleep": "#!/bin/sh\necho \"sleep $*\" >>/asked\n"} {
		if err := os.WriteFile(filepath.Join(root, "stub", name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	for _, step := range []struct{ what, script string }{
		{"installed, nothing is configured, and it says what to do next", `
			dpkg -i /old.deb >/said; grep "nothing runs yet" /said; grep "systemctl start holdfast-guard holdfast-agent" /said
			getent passwd holdfast-guard holdfast-agent; getent group holdfast; not test -e /etc/holdfast/holdfast.yaml
			for unit in multi-user.target.wants/holdfast-guard.service multi-user.target.wants/holdfast-agent.service \
				sockets.target.wants/holdfast-guard.socket sockets.target.wants/holdfast-agent.socket; do test -L /etc/systemd/system/$unit; done
			test "$(stat -c '%a %U' /etc/holdfast/credentials)" = "700 root"`},
		{"the programs run", `
			holdfast version; holdfast-guard --version; holdfast validate /usr/share/doc/holdfast/examples/fallback.yaml`},
		{"configured, and installed once more: nothing is kept as previous, an edit of a conffile survives, and it says so", `
			echo "device:" >/etc/holdfast/holdfast.yaml; echo "# edited" >>/etc/holdfast/check.d/README
			mkdir -p /var/lib/holdfast/guard; echo record >/var/lib/holdfast/guard/ledger.db
			dpkg -i /old.deb >/said; grep "holdfast status" /said; not grep "nothing runs yet" /said
			tail -1 /etc/holdfast/check.d/README | grep "# edited"; not test -e /usr/lib/holdfast/previous`},
		{"a unit that was disabled stays so", `
			systemctl disable holdfast-agent.service; dpkg -i /old.deb
			not test -L /etc/systemd/system/multi-user.target.wants/holdfast-agent.service; systemctl enable holdfast-agent.service`},
		{"upgraded: the old programs are kept, state and configuration too; what an interrupted upgrade left behind is no obstacle", `
			mkdir -p /usr/lib/holdfast/previous; echo half >/usr/lib/holdfast/previous/.new
			sha256sum </usr/bin/holdfast >/old.sum; dpkg --force-confold -i /next.deb; test "$(holdfast version)" = "usr/bin/holdfast 9999.1"
			sha256sum </usr/lib/holdfast/previous/holdfast | cmp - /old.sum; /usr/lib/holdfast/previous/holdfast-guard --version; not test -e /usr/lib/holdfast/previous/.new
			grep record /var/lib/holdfast/guard/ledger.db; grep device: /etc/holdfast/holdfast.yaml; tail -1 /etc/holdfast/check.d/README | grep "# edited"`},
		{"installed once more, the way back stays", `
			dpkg -i /next.deb; sha256sum </usr/lib/holdfast/previous/holdfast | cmp - /old.sum`},
		{"downgraded", `
			dpkg --force-confold -i /old.deb; sha256sum </usr/bin/holdfast | cmp - /old.sum; test "$(/usr/lib/holdfast/previous/holdfast version)" = "usr/bin/holdfast 9999.1"
			grep record /var/lib/holdfast/guard/ledger.db`},
		{"interrupted in the middle, it is finished later", `
			mv /usr/bin/systemd-sysusers /tmp/; not dpkg --force-confold -i /next.deb; mv /tmp/systemd-sysusers /usr/bin/; dpkg --configure -a
			dpkg-query -W -f '${Status}' holdfast | grep "install ok installed"`},
		{"removed: state and configuration stay, the previous programs go", `
			dpkg -r holdfast; grep record /var/lib/holdfast/guard/ledger.db; grep device: /etc/holdfast/holdfast.yaml; grep "# edited" /etc/holdfast/check.d/README
			not test -e /usr/lib/holdfast; not test -e /usr/bin/holdfast`},
		{"installed again, it goes on", `
			dpkg -i /old.deb >/said; not grep "nothing runs yet" /said; grep record /var/lib/holdfast/guard/ledger.db; not test -L /etc/systemd/system/holdfast-guard.service`},
		{"purged: nothing of it stays but the users", `
			dpkg -P holdfast; not test -e /etc/holdfast; not test -e /var/lib/holdfast; not test -e /run/holdfast; getent passwd holdfast-guard
			test -z "$(find / -xdev -path /proc -prune -o -name '*holdfast*' -print | grep -v '^/var/lib/dpkg\|^/var/cache')"`},
		{"installed after a purge, it is new", `
			dpkg -i /old.deb >/said; grep "nothing runs yet" /said; not grep "# edited" /etc/holdfast/check.d/README`},
		{"purged where the state is a file system of its own", `
			mkdir -p /var/lib/holdfast; mount -t tmpfs tmpfs /var/lib/holdfast; touch /var/lib/holdfast/.x; dpkg -P holdfast
			test -d /var/lib/holdfast; test -z "$(ls -A /var/lib/holdfast)"; umount /var/lib/holdfast; rmdir /var/lib/holdfast`},
		{"the greenhouse is started by nobody, and goes again", `
			dpkg -i /greenhouse.deb >/said; grep "systemctl enable --now" /said; not test -L /etc/systemd/system/multi-user.target.wants/holdfast-greenhouse.service
			dpkg -i /greenhouse.deb; dpkg -r holdfast-greenhouse; dpkg -P holdfast-greenhouse; not test -e /usr/bin/greenhouse`},

		// From here on a service manager runs, that is to say one that takes notes.
		{"installed, sockets and services are asked for; systemd knows that they are not configured", `
			mkdir -p /run/systemd/system /state; dpkg -i /old.deb; grep "^.*restart holdfast-agent.service holdfast-guard.service$" /asked`},
		{"an upgrade restarts both at once, and a version in whose place the previous one ran has its turn", `
			mkdir -p /run/systemd/system/holdfast-guard.service.d; touch /run/systemd/system/holdfast-guard.service.d/previous.conf
			touch /etc/holdfast/holdfast.yaml; : >/asked; dpkg -i /next.deb
			grep -c "restart" /asked | grep -x 1; grep "restart holdfast-agent.service holdfast-guard.service$" /asked; grep daemon-reload /asked; not grep " stop" /asked
			not test -e /run/systemd/system/holdfast-guard.service.d/previous.conf`},
		{"a version that does not run is not kept in place of one that did", `
			sha256sum </usr/lib/holdfast/previous/holdfast | cmp - /old.sum; echo activating >/state/holdfast-agent.service; echo failed >/state/holdfast-guard.service
			dpkg -i /old.deb; rm /state/*; for p in holdfast holdfast-guard; do not grep 9999.1 /usr/lib/holdfast/previous/$p; done
			mkdir -p /run/systemd/system/holdfast-agent.service.d; dpkg -i /next.deb; touch /run/systemd/system/holdfast-agent.service.d/previous.conf; dpkg -i /old.deb
			not grep 9999.1 /usr/lib/holdfast/previous/holdfast; grep 9999.1 /usr/lib/holdfast/previous/holdfast-guard`},
		{"back to the previous guard by hand, once", `
			: >/asked; /usr/lib/holdfast/use-previous guard; grep -x "ExecStart=/usr/lib/holdfast/previous/holdfast-guard --agent-user holdfast-agent" /run/systemd/system/holdfast-guard.service.d/previous.conf
			tail -1 /asked | grep "restart holdfast-guard.service"; not grep sleep /asked
			: >/asked; /usr/lib/holdfast/use-previous guard | grep already; not grep restart /asked; test -e /run/systemd/system/holdfast-guard.service.d/previous.conf`},
		{"a previous guard that fails, too: after a pause the installed one", `
			: >/asked; echo failed >/state/holdfast-guard.service; /usr/lib/holdfast/use-previous guard
			not test -e /run/systemd/system/holdfast-guard.service.d/previous.conf; grep "sleep 60" /asked; tail -1 /asked | grep "restart holdfast-guard.service"
			/usr/lib/holdfast/use-previous guard; test -e /run/systemd/system/holdfast-guard.service.d/previous.conf; rm /run/systemd/system/holdfast-guard.service.d/previous.conf`},
		{"no previous guard: by hand that is an error, by itself a pause", `
			rm -r /usr/lib/holdfast/previous; : >/asked; /usr/lib/holdfast/use-previous guard; grep "sleep 60" /asked; tail -1 /asked | grep "restart holdfast-guard.service"
			rm /state/*; : >/asked; not /usr/lib/holdfast/use-previous guard; not grep restart /asked`},
		{"the agent, and nonsense", `
			mkdir -p /usr/lib/holdfast/previous; cp /usr/bin/holdfast /usr/lib/holdfast/previous/; /usr/lib/holdfast/use-previous agent
			grep -x "ExecStart=/usr/lib/holdfast/previous/holdfast run" /run/systemd/system/holdfast-agent.service.d/previous.conf; not /usr/lib/holdfast/use-previous greenhouse`},
		{"removed, the sockets stop first, or they would start the services again", `
			: >/asked; dpkg -r holdfast; grep stop /asked | head -1 | grep "holdfast-guard.socket holdfast-agent.socket"; grep -c stop /asked | grep -x 3
			not test -e /run/systemd/system/holdfast-agent.service.d; test -e /etc/holdfast/holdfast.yaml`},
	} {
		cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
			"mount -t proc proc \"$1/proc\" && exec chroot \"$1\" sh -eux -c \"$2\"", "sh", root, not+step.script)
		cmd.Env = []string{"PATH=/stub:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", step.what, err, out.String())
		}
	}
}
