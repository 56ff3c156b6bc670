package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"

	"holdfast/device"
	"holdfast/device/durable"
	"holdfast/device/strictyaml"
)

// Load reads the file at path. A valid one is copied to kept (only if it differs, atomically; "" for nowhere). A broken
// or missing one yields the kept copy together with the error, which is for the log and status. usable is false when there is
// neither. An error beside the configuration at path itself says that it could not be copied.
func Load(path, kept string, p device.Profile) (c Config, usable bool, err error) {
	c, data, err := load(path, p)
	if err == nil {
		if kept != "" {
			if err = keep(kept, data); err != nil {
				err = fmt.Errorf("%s is in use, but cannot keep a copy: %w", path, err)
			}
		}
		return c, true, err
	}
	if kept == "" {
		return Config{}, false, err
	}
	c, kerr := LoadCopy(kept, p)
	if kerr != nil {
		return Config{}, false, errors.Join(err, fmt.Errorf("cannot go on with the last valid copy:\n%w", kerr))
	}
	return c, true, fmt.Errorf("going on with the last valid copy, %s, because of:\n%w", kept, err)
}

// LoadCopy reads a copy that Load has kept. It was valid once: for that program's version, that profile, and if the disk is well. So it is read as strictly; and
// as one digit more or less is valid, too, it says itself what it was.
func LoadCopy(path string, p device.Profile) (Config, error) {
	b, err := strictyaml.ReadFile(path, Limit+len(seal(nil)))
	if err != nil {
		return Config{}, err
	}
	data, _, _ := bytes.Cut(b, []byte(sealWords))
	if !bytes.Equal(b, seal(data)) {
		return Config{}, fmt.Errorf("%s: it is not what was kept: its checksum is missing or wrong", path)
	}
	return Parse(path, data, p)
}

const sealWords = "\n# A copy, for when the original is broken. sha256 of it: "

// seal is the form of a copy.
func seal(data []byte) []byte {
	return fmt.Appendf(bytes.Clone(data), "%s%x\n", sealWords, sha256.Sum256(data))
}

func load(path string, p device.Profile) (Config, []byte, error) {
	data, err := strictyaml.ReadFile(path, Limit)
	if err != nil {
		return Config{}, nil, err
	}
	c, err := Parse(path, data, p)
	return c, data, err
}

// keep stores data at path, if that does not hold it yet: the flash of a board wears out.
func keep(path string, data []byte) error {
	data = seal(data)
	if old, err := strictyaml.ReadFile(path, len(data)); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := durable.MakeFolder(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// And if power fails now? The old copy is whole, or the new one is: both are valid.
	return durable.Replace(path, data, 0o640)
}
