package gitclone

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for in, want := range map[string]struct{ safe, user, password, path string }{
		"https://git.example.org/a/state.git":          {"https://git.example.org/a/state.git", "", "", "/a/state.git"},
		"https://ada:s%40fe@git.example.org:443/a%20b": {"https://git.example.org/a%20b", "ada", "s@fe", "/a b"},
		"http://git.example.org:8080/state.git/":       {"http://git.example.org:8080/state.git/", "", "", "/state.git/"},
		"HTTP://[fe80::1]:80/state.git":                {"http://[fe80::1]/state.git", "", "", "/state.git"},
		"ssh://git.example.org/~ada/state.git":         {"ssh://git.example.org/~ada/state.git", "git", "", "/~ada/state.git"},
		"ssh://ada@git.example.org:2222/srv/state.git": {"ssh://git.example.org:2222/srv/state.git", "ada", "", "/srv/state.git"},
		"git@git.example.org:greenhouses/state.git":    {"ssh://git.example.org/greenhouses/state.git", "git", "", "greenhouses/state.git"},
		"git.example.org:/srv/state.git":               {"ssh://git.example.org/srv/state.git", "git", "", "/srv/state.git"},
		"file:///srv/state.git/../other.git":           {"file:///srv/other.git", "", "", "/srv/other.git"},
		"/srv/state.git":                               {"file:///srv/state.git", "", "", "/srv/state.git"},
		"/srv/with:colon/state.git":                    {"file:///srv/with:colon/state.git", "", "", "/srv/with:colon/state.git"},
		"https://git.example.org/state.git?a=b":        {"https://git.example.org/state.git?a=b", "", "", "/state.git"},
	} {
		r, err := newRemote(Options{URL: in})
		if err != nil || r.safeURL() != want.safe || r.user != want.user || r.password != want.password || r.url.Path != want.path {
			t.Errorf("newRemote(%q) = %+v, %v, want %+v", in, r, err, want)
		}
	}
	for _, in := range []string{
		"", "gopher://example.org/x", "http://us%er:hunter2@exa mple.org/x", "http:///hunter2", "https://hunter2.example.org",
		"http://example.org:hunter2/x", "ssh://example.org", "git@example.org:", ":hunter2", "git@:hunter2",
	} {
		r, err := newRemote(Options{URL: in})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("newRemote(%q) = %+v, %v, want an error that does not repeat it", in, r, err)
		}
	}
}

// A service reads its secrets where systemd has put them, and calls them as the configuration does.
func TestFilesThatAreElsewhere(t *testing.T) {
	dir := t.TempDir()
	put := func(name, data string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("token", "s3cret\n")
	put("hosts", "")
	put("ca", "none")
	put("key", "none")
	locate := func(path string) (string, error) {
		if name, ok := strings.CutPrefix(path, "/secrets/"); ok {
			return filepath.Join(dir, name), nil
		}
		return "", fmt.Errorf("open %s: not passed", path)
	}
	for _, folder := range []string{"/secrets", "/nowhere"} {
		r, err := newRemote(Options{URL: "https://git.example.org/state.git", TokenFile: folder + "/token", CAFile: folder + "/ca", SSHKeyFile: folder + "/key",
			KnownHostsFile: folder + "/hosts", Locate: locate})
		if err != nil {
			t.Fatal(err)
		}
		_, token, terr := r.basicAuth()
		_, cerr := r.makeHTTP()
		_, kerr := r.dialSSH(t.Context())
		hosts, herr := r.knownHosts()
		if folder == "/secrets" {
			if token != "s3cret" || terr != nil || herr != nil || hosts[0] != dir+"/hosts" {
				t.Errorf("token %q, %v; hosts %q, %v", token, terr, hosts, herr)
			}
			for err, want := range map[error]string{cerr: "there is no certificate in caFile /secrets/ca", kerr: "cannot read sshKeyFile /secrets/key: ssh: no key found"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %s", err, want)
				}
			}
			continue
		}
		for name, err := range map[string]error{"token": terr, "ca": cerr, "key": kerr, "hosts": herr} {
			if err == nil || !strings.Contains(err.Error(), "open /nowhere/"+name+": not passed") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
