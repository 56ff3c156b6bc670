package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"holdfast/device"
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
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// And if power fails now? Until the rename the old copy is whole, and what the temporary file holds is never read;
	// it has one name, so that cuts do not fill the folder. The rename comes after the data is on the disk, so there
	// is never a new name with old or no data. After it, until the folder is synced, either copy may be there: both are valid.
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(tmp) // a full disk wants its bytes back
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
