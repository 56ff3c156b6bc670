package gitclone

import (
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
