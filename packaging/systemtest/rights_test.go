//go:build system

package systemtest

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// exposure is what `systemd-analyze security` says at most, of 10.
var exposure = map[string]float64{"holdfast-agent": 1.5, "holdfast-guard": 1.9, "holdfast-greenhouse": 1.5}

func TestRights(t *testing.T) {
	t.Parallel()
	b := newInstalled(t)
	revision := b.status().Effective.Revision
	b.step("whoever is in the group holdfast operates, and another user is told of the group", func() {
		b.sh("useradd --groups holdfast olga && useradd otto")
		for _, do := range []string{"holdfast status", "holdfast history", "holdfast reconcile", "holdfast suspend --for 1m", "holdfast resume", "holdfast slots"} {
			if out, err := b.as("olga", do); err != nil {
				b.Errorf("olga, %s: %v\n%s", do, err, out)
			}
		}
		b.want(b.sh("holdfast history"), "olga")
		for _, do := range []string{"holdfast status", "holdfast suspend --for 1m", "holdfast rollback --to fallback"} {
			out, err := b.as("otto", do)
			if err == nil {
				b.Errorf("otto, %s: allowed\n%s", do, out)
			}
			b.want(out, "group holdfast")
		}
		b.converged(revision)
	})
	b.step("credentials are root's, and each service is given its own", func() {
		b.up.token = "s3cret"
		b.write("/etc/holdfast/credentials/git/token", "s3cret\n")
		b.sh("chmod 600 /etc/holdfast/credentials/git/token")
		b.write("/etc/holdfast/holdfast.yaml", strings.Replace(config, "state.git\n", "state.git\n  tokenFile: /etc/holdfast/credentials/git/token\n", 1))
		b.sh("systemctl restart holdfast-guard holdfast-agent")
		revision = b.up.push("pump: on", "fan: on")
		b.converged(revision)
		for unit, want := range map[string]bool{"holdfast-agent": true, "holdfast-guard": false} {
			out := b.sh("ls /run/credentials/" + unit + ".service 2>/dev/null || true")
			if got := strings.Contains(out, "git_token"); got != want {
				b.Errorf("%s sees the token: %v, want %v (%s)", unit, got, want, out)
			}
		}
		if out, err := b.as("holdfast-guard", "cat /etc/holdfast/credentials/git/token /run/credentials/holdfast-agent.service/git_token"); strings.Contains(out, "s3cret") {
			b.Errorf("the guard's user can read the token: %v", err)
		}
	})
	b.step("the device's token is given to both", func() {
		b.write("/etc/greenhouse.token", "0pen") // the simulator's own
		b.dropIn("holdfast-greenhouse", "[Service]\nExecStart=\nExecStart=/usr/bin/greenhouse serve --token-file /etc/greenhouse.token\n")
		b.sh("systemctl restart holdfast-greenhouse")
		b.untilStatus("nobody may move it", func(v view) bool { return len(v.NotFine) > 0 })
		b.sh("cp /etc/greenhouse.token /etc/holdfast/credentials/device/token; chmod 600 /etc/holdfast/credentials/device/token; sed -i 's,^device:,&\\n  tokenFile: /etc/holdfast/credentials/device/token,' /etc/holdfast/holdfast.yaml")
		b.sh("systemctl restart holdfast-guard holdfast-agent")
		b.converged(revision)
		b.sh("systemctl stop holdfast-agent.socket holdfast-agent")
		b.moved("pump") // by the guard alone
		b.sh("systemctl start holdfast-agent")
		b.converged(revision)
	})
	b.step("hardened", func() {
		for unit, most := range exposure {
			out := b.sh("systemd-analyze security --no-pager " + unit + ".service | tail -1")
			m := regexp.MustCompile(`level for \S+: ([0-9.]+)`).FindStringSubmatch(out)
			if m == nil {
				b.Fatalf("systemd-analyze security %s: %s", unit, out)
			}
			got, err := strconv.ParseFloat(m[1], 64)
			if err != nil || got > most {
				b.Errorf("%s: exposure %v (%v), want %v at most", unit, got, err, most)
			}
			b.Logf("%s: exposure %v", unit, got)
		}
	})
}
