package config

import (
	"bytes"
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
	// The copy was valid once: for this program's version, this profile, and if the disk is well. So it is read as strictly.
	c, _, kerr := load(kept, p)
	if kerr != nil {
		return Config{}, false, errors.Join(err, fmt.Errorf("cannot go on with the last valid copy:\n%w", kerr))
	}
	return c, true, fmt.Errorf("going on with the last valid copy, %s, because of:\n%w", kept, err)
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
	if old, err := strictyaml.ReadFile(path, Limit); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := durable.MakeFolder(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// And if power fails now? The old copy is whole, or the new one is: both are valid.
	return durable.Replace(path, data, 0o640)
}
