package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CredentialsFolder is where a board's secrets are. Only root may enter it: systemd reads them and passes them on (systemd.exec(5), LoadCredential=).
const CredentialsFolder = "/etc/holdfast/credentials"

var errNotPassed = errors.New("systemd has not passed it to this service: it reads " + CredentialsFolder + " when the service starts, so restart it if the file is there by now")

// Locate returns where the file is read that the configuration calls path: there, or, if it is below CredentialsFolder and systemd has passed such files to
// this process, where systemd has put it, as git_token for git/token. An error names it as the configuration does.
func Locate(path string) (string, error) {
	passed := os.Getenv("CREDENTIALS_DIRECTORY")
	name, ok := strings.CutPrefix(path, CredentialsFolder+"/")
	if passed == "" || !ok {
		return path, nil
	}
	at := filepath.Join(passed, strings.ReplaceAll(name, "/", "_"))
	_, err := os.Stat(at)
	var pe *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &fs.PathError{Op: "open", Path: path, Err: errNotPassed}
	case errors.As(err, &pe):
		return "", &fs.PathError{Op: "open", Path: path, Err: pe.Err}
	}
	return at, err
}
