// Package fallback holds the configuration that is baked into the image: the device's profile and the state that it is kept
// in when no slot is good. Both are embedded; a board overrides them with files under /usr/share/holdfast.
//
// Here they are bytes; device.LoadProfile gives them their meaning, and chooses between them.
package fallback

import (
	_ "embed"
	"errors"
	"io/fs"
	"path/filepath"

	"holdfast/device/strictyaml"
)

// Dir is where a board's own files are looked for.
const Dir = "/usr/share/holdfast"

// Limit is the size of the largest file that is read, in bytes.
const Limit = 64 << 10

//go:embed profile.yaml
var profile []byte

//go:embed fallback.yaml
var values []byte

// File is one file: how errors call it, and what is in it.
type File struct {
	Name string
	Data []byte
}

// Profile and Values return the embedded profile and the embedded fallback.
func Profile() File { return File{"image/fallback/profile.yaml", profile} }
func Values() File  { return File{"image/fallback/fallback.yaml", values} }

// Override returns the board's own profile.yaml and fallback.yaml in dir; nil stands for a file that is not there.
// A file that cannot be read is nil too, and in the error. Data may be one byte longer than Limit, to be refused for it.
func Override(dir string) (profile, values *File, err error) {
	profile, perr := read(filepath.Join(dir, "profile.yaml"))
	values, verr := read(filepath.Join(dir, "fallback.yaml"))
	return profile, values, errors.Join(perr, verr)
}

func read(path string) (*File, error) {
	data, err := strictyaml.ReadFile(path, Limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &File{path, data}, nil
}
