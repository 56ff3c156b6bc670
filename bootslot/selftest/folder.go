package selftest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"holdfast/bootslot/config"
)

// folderPrefix comes before the file's name in the name of a check that is an executable file.
const folderPrefix = "check.d/"

// scan finds the executable checks in folders, and why other files there are none. The same name is the same check: an earlier
// folder overrides a later one, and in one folder required overrides wanted. A link to /dev/null overrides and is no check: so an
// operator turns off what a package brought. Any other file that is ignored overrides nothing.
func scan(folders []string) (found []config.Check, ignored map[string]string) {
	ignored = map[string]string{}
	checks := map[string]*config.Check{} // nil: turned off
	for _, folder := range folders {
		for _, kind := range []string{"required", "wanted"} {
			here := filepath.Join(folder, kind)
			entries, err := os.ReadDir(here)
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					ignored[here] = err.Error()
				}
				continue
			}
			if reason := untrusted(here); reason != "" && len(entries) > 0 {
				ignored[here] = reason
				continue
			}
			for _, e := range entries {
				name, file := e.Name(), filepath.Join(here, e.Name())
				if leftover(name) {
					continue
				}
				if _, ok := checks[name]; ok {
					continue
				}
				if to, err := os.Readlink(file); err == nil && to == os.DevNull {
					checks[name] = nil
					continue
				}
				if reason := noCheck(file); reason != "" {
					ignored[file] = reason
					continue
				}
				checks[name] = &config.Check{Name: folderPrefix + name, Wanted: kind == "wanted", Command: []string{file}}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if c := checks[name]; c != nil {
			found = append(found, *c)
		}
	}
	return found, ignored
}

// Ignored lists the files in folders that look like checks and are none, with why. It answers for the user who asks: a file may be his, and not the guard's.
func Ignored(folders []string) map[string]string {
	_, ignored := scan(folders)
	return ignored
}

// leftover reports names that editors and dpkg leave behind.
func leftover(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || strings.Contains(name, ".dpkg-") || strings.Contains(name, ".ucf-")
}

// noCheck says why file is not run, "" if it is.
func noCheck(file string) string {
	fi, err := os.Stat(file)
	name := filepath.Base(file)
	switch {
	case err != nil:
		return err.Error()
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "its name cannot be shown: it is the check's name in logs, marks and status"
	case !fi.Mode().IsRegular():
		return "not a regular file"
	case fi.Mode()&0o111 == 0:
		return "not executable"
	}
	return untrusted(file)
}

// untrusted says why somebody else could put what they like into path, which the guard runs as its own user.
func untrusted(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return "its owner cannot be read"
	}
	return distrust(fi.Mode(), st.Uid, uint32(os.Geteuid()))
}

func distrust(mode fs.FileMode, owner, self uint32) string {
	switch {
	case mode&0o002 != 0:
		return "anybody may write to it"
	case owner != 0 && owner != self:
		return fmt.Sprintf("it belongs to user %d, who is neither root nor the guard's", owner)
	}
	return ""
}
