package config

import (
	"os"
	"path/filepath"
	"testing"
)

// Where the state is must be known before a configuration is understood, and be where it says, however that is spelled.
func TestStateFolder(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		{"plain", fourLines + "state: /s\n", "/s"},
		{"with a blank", fourLines + "state: '/s t'\n", "/s t"},
		{"with a #", fourLines + "state: /s#t # the card\n", "/s#t"},
		{"as JSON", `{"device": {"url": "http://a"}, "state": "/s"}`, "/s"},
		{"on the next line", "state:\n  /s\n", "/s"},
		{"in a file that is no YAML", "device: [\nstate: \"/s\"\n", "/s"},
		{"beside a wrong key", "state: /s\nstat: /t\n", "/s"},
		{"a relative one", "state: s\n", "/elsewhere"},
		{"none", fourLines, "/elsewhere"},
	} {
		t.Setenv(StateEnv, "/elsewhere")
		path := filepath.Join(t.TempDir(), "holdfast.yaml")
		if err := os.WriteFile(path, []byte(tt.data), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := StateFolder(path); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
