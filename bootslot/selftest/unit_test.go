package selftest

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

func TestUnitActive(t *testing.T) {
	tests := []struct {
		name, systemctl string
		ok              bool
		message         string
	}{
		{"active", `test "$1 $2 $3" = "is-active -- modem.service" && echo active`, true, "modem.service is active"},
		{"failed", "echo failed; exit 3", false, "modem.service is not active: failed"},
		{"unknown", "echo inactive; exit 4", false, "modem.service is not active: inactive"},
		{"no systemd", "echo System has not been booted with systemd >&2; exit 1", false, "modem.service is not active: System has not been booted with systemd"},
		{"hangs", "exec /bin/sleep 300", false, "systemd does not say within 300ms what modem.service is"},
		{"not installed", "", false, "systemctl is not installed here, and without systemd no unit can be active"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			t.Setenv("PATH", folder)
			if tt.systemctl != "" {
				executable(t, filepath.Join(folder, "systemctl"), "#!/bin/sh\n"+tt.systemctl+"\n")
			}
			timeout := time.Minute
			if tt.name == "hangs" {
				timeout = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			got := unitActive(ctx, "modem", "modem.service", timeout)
			if got.ok != tt.ok || got.message != tt.message {
				t.Errorf("unitActive() = %v %q, want %v %q", got.ok, got.message, tt.ok, tt.message)
			}
		})
	}
}
