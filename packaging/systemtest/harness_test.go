//go:build system

package systemtest

import "testing"

func TestABoardBoots(t *testing.T) {
	b := newBoard(t)
	b.boot()
	t.Log(b.sh("systemctl is-system-running; systemctl list-units --no-legend | wc -l; ps 2>/dev/null; cat /etc/hosts; bash -c 'exec 3<>/dev/tcp/git.example.org/80; printf \"GET /state.git/info/refs HTTP/1.0\\r\\n\\r\\n\" >&3; head -1 <&3'"))
	b.cut()
	t.Log(b.try("timeout 5 bash -c 'exec 3<>/dev/tcp/git.example.org/80; printf \"GET /state.git/info/refs HTTP/1.0\\r\\n\\r\\n\" >&3; head -1 <&3'"))
	b.reboot()
	b.restore()
	t.Log(b.sh("journalctl --list-boots | wc -l"), len(b.journal("-b -u systemd-journald")))
	b.poweroff()
}
