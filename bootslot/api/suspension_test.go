package api

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type standing time.Duration

func (standing) Now() time.Time                       { return time.Time{} }
func (u standing) Uptime() time.Duration              { return time.Duration(u) }
func (standing) After(time.Duration) <-chan time.Time { return nil }

// What stops the repair must be sure: a file that nobody can have meant is no suspension.
func TestLoadSuspension(t *testing.T) {
	path := filepath.Join(t.TempDir(), "suspend")
	for text, want := range map[string]time.Duration{
		`{"untilUptimeSeconds": 160, "bootID": %q}`:     time.Minute,
		`{"untilUptimeSeconds": 100, "bootID": %q}`:     0,
		`{"untilUptimeSeconds": 2678500, "bootID": %q}`: MaxSuspension,
		`{"untilUptimeSeconds": 2678501, "bootID": %q}`: 0,
		`{"untilUptimeSeconds": 1e300, "bootID": %q}`:   0,
		`{"untilUptimeSeconds": -1e300, "bootID": %q}`:  0,
		`{"untilUptimeSeconds": 9.3e9, "bootID": %q}`:   0,
		`{"untilUptimeSeconds": 1e999, "bootID": %q}`:   0,
		`{"untilUptimeSeconds": 160, "bootID": "%q"}`:   0,
		`{"bootID": %q}`: 0, "null %q": 0, "": 0,
	} {
		if err := os.WriteFile(path, fmt.Appendf(nil, text, BootID()), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, left := LoadSuspension(path, standing(100*time.Second)); left != want || (left == 0) != (s == Suspension{}) {
			t.Errorf("%s: %v is left of %+v, want %v", text, left, s, want)
		}
	}
}
