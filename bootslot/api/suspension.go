package api

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"holdfast/device/clock"
)

// BootID names the running boot (random, from /proc/sys/kernel/random/boot_id, see random(4)); "" where the kernel does not tell.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// MaxSuspension bounds what an operator may forget to end: a month.
const MaxSuspension = 31 * 24 * time.Hour

// LoadSuspension reads the suspension that is in force at path and what is left of it; left is 0 if there is none. A file that is
// not understood, of another boot, over, or of more than MaxSuspension is no suspension: what stops the repair must be sure.
func LoadSuspension(path string, ck clock.Clock) (s Suspension, left time.Duration) {
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &s) != nil || s.BootID != BootID() {
		return Suspension{}, 0
	}
	seconds := s.UntilUptimeSeconds - ck.Uptime().Seconds()
	if seconds <= 0 || seconds > MaxSuspension.Seconds() {
		return Suspension{}, 0
	}
	return s, time.Duration(seconds * float64(time.Second))
}
