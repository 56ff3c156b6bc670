package selftest

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/device/clock"
)

func TestFolders(t *testing.T) {
	etc, usr := t.TempDir(), t.TempDir()
	const script = "#!/bin/sh\nexit 0\n"
	executable(t, usr+"/required/modem", script)
	executable(t, usr+"/required/pump", script)
	executable(t, usr+"/wanted/rssi", script)
	executable(t, usr+"/required/off", script)
	executable(t, usr+"/required/loose", script)
	executable(t, usr+"/required/lowered", script)
	executable(t, usr+"/required/twice", script)
	executable(t, usr+"/wanted/twice", script)

	executable(t, etc+"/required/modem", script) // overrides
	executable(t, etc+"/wanted/lowered", script) // overrides, and demotes
	write(t, etc+"/required/loose", script, 0o757)
	write(t, etc+"/required/README", "how to", 0o644)
	write(t, etc+"/required/pump", script, 0o644) // no check, overrides nothing
	executable(t, etc+"/required/\x1b[2J", script)
	executable(t, etc+"/required/.hidden", script)
	executable(t, etc+"/required/modem~", script)
	executable(t, etc+"/required/modem.dpkg-old", script)
	executable(t, etc+"/required/x.dpkg-dist", script)
	if err := os.MkdirAll(etc+"/required/folder", 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"off": os.DevNull, "linked": usr + "/required/pump", "dangling": "/no/such/file"} {
		if err := os.Symlink(to, filepath.Join(etc, "required", link)); err != nil {
			t.Fatal(err)
		}
	}

	folders := []string{etc, usr, filepath.Join(etc, "no-such-folder")}
	checks, ignored := scan(folders)
	if told := Ignored(folders); !maps.Equal(told, ignored) {
		t.Errorf("Ignored tells %v, want %v", told, ignored)
	}
	var got []string
	for _, c := range checks {
		got = append(got, strings.NewReplacer(etc, "/etc", usr, "/usr").Replace(fmt.Sprint(c.Name, " ", c.Command, " wanted=", c.Wanted)))
	}
	want := []string{
		"check.d/linked [/etc/required/linked] wanted=false",
		"check.d/loose [/usr/required/loose] wanted=false",
		"check.d/lowered [/etc/wanted/lowered] wanted=true",
		"check.d/modem [/etc/required/modem] wanted=false",
		"check.d/pump [/usr/required/pump] wanted=false",
		"check.d/rssi [/usr/wanted/rssi] wanted=true",
		"check.d/twice [/usr/required/twice] wanted=false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("scan() found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var why []string
	for _, file := range slices.Sorted(maps.Keys(ignored)) {
		why = append(why, strings.TrimPrefix(file, etc)+": "+strings.ReplaceAll(ignored[file], etc, ""))
	}
	wantWhy := []string{
		"/required/\x1b[2J: its name cannot be shown: it is the check's name in logs, marks and status",
		"/required/README: not executable",
		"/required/dangling: stat /required/dangling: no such file or directory",
		"/required/folder: not a regular file",
		"/required/loose: anybody may write to it",
		"/required/pump: not executable",
	}
	if !slices.Equal(why, wantWhy) {
		t.Errorf("scan() ignored\n%s\nwant\n%s", strings.Join(why, "\n"), strings.Join(wantWhy, "\n"))
	}
}

func TestFolderThatAnybodyMayWriteTo(t *testing.T) {
	folder := t.TempDir()
	executable(t, folder+"/required/x", "#!/bin/sh\n")
	if err := os.Chmod(folder+"/required", 0o777); err != nil {
		t.Fatal(err)
	}
	checks, ignored := scan([]string{folder})
	if len(checks) != 0 || ignored[folder+"/required"] != "anybody may write to it" {
		t.Errorf("scan() = %+v, ignored %v; want no check", checks, ignored)
	}
}

func TestDistrust(t *testing.T) {
	tests := []struct {
		name        string
		mode        fs.FileMode
		owner, self uint32
		want        string
	}{
		{"root's, and the guard is root", 0o755, 0, 0, ""},
		{"root's, and the guard is not", 0o755, 0, 990, ""},
		{"the guard's own", 0o755, 990, 990, ""},
		{"somebody else's", 0o755, 1000, 990, "it belongs to user 1000, who is neither root nor the guard's"},
		{"somebody else's, and the guard is root", 0o755, 1000, 0, "it belongs to user 1000, who is neither root nor the guard's"},
		{"anybody may write", 0o757, 0, 0, "anybody may write to it"},
	}
	for _, tt := range tests {
		if got := distrust(tt.mode, tt.owner, tt.self); got != tt.want {
			t.Errorf("%s: distrust(%v, %d, %d) = %q, want %q", tt.name, tt.mode, tt.owner, tt.self, got, tt.want)
		}
	}
}

func TestIgnoredFileIsLoggedOnce(t *testing.T) {
	folder := t.TempDir()
	write(t, folder+"/required/x", "#!/bin/sh\n", 0o644)
	var log bytes.Buffer
	r := New(Options{Folders: []string{folder}, Log: slog.New(slog.NewTextHandler(&log, nil)), Clock: clock.NewProcess()})
	r.Reload(nil)
	if got := strings.Count(log.String(), "not executable"); got != 1 {
		t.Errorf("an ignored file is in the log %d times after two looks, want 1:\n%s", got, log.String())
	}
	if err := os.Chmod(folder+"/required/x", 0o755); err != nil {
		t.Fatal(err)
	}
	r.Reload(nil)
	if got := r.Checks(); len(got) != 1 || got[0] != (Check{Name: "check.d/x", Required: true, Limit: "exit status 0 of " + folder + "/required/x"}) {
		t.Errorf("after chmod +x and Reload: Checks() = %+v, want check.d/x", got)
	}
}
