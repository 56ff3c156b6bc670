package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLocate(t *testing.T) {
	passed := t.TempDir()
	for _, name := range []string{"git_token", "device_a_b", "device_a_c"} {
		write(t, filepath.Join(passed, name), name)
	}
	for _, tt := range []struct{ name, directory, path, want, err string }{
		{"a file of its own", passed, "/etc/greenhouse/token", "/etc/greenhouse/token", ""},
		{"no service", "", "/etc/holdfast/credentials/git/token", "/etc/holdfast/credentials/git/token", ""},
		{"a service", passed, "/etc/holdfast/credentials/git/token", passed + "/git_token", ""},
		{"a folder more", passed, "/etc/holdfast/credentials/device/a/b", passed + "/device_a_b", ""},
		{"a name that only begins alike", passed, "/etc/holdfast/credentials-old/git/token", "/etc/holdfast/credentials-old/git/token", ""},
		{"the folder", passed, "/etc/holdfast/credentials", "/etc/holdfast/credentials", ""},
		{"not passed", passed, "/etc/holdfast/credentials/git/key", "", "open /etc/holdfast/credentials/git/key: systemd has not passed it to this service"},
		{"no folder at all", passed + "/git_token", "/etc/holdfast/credentials/git/key", "", "open /etc/holdfast/credentials/git/key: not a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("CREDENTIALS_DIRECTORY", tt.directory)
			got, err := Locate(tt.path)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("Locate(%q) = %q, %v; want %q, %q", tt.path, got, err, tt.want, tt.err)
			}
			if err == nil && got != tt.path {
				if _, err := os.ReadFile(got); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
