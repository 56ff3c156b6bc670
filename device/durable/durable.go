// Package durable replaces small files so that power can fail at any instant and leave either the old or the new content.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Replace makes data the content of the file at path, with mode perm. When it returns nil the content is on the disk.
//
// And if power fails now? Before the rename the old file is whole, beside a temporary one that the next Replace overwrites. The temporary
// file is synced before the rename, so that the name never points at content that is not there yet; the folder is synced after it, so
// that the rename itself is not lost behind what the caller does next.
func Replace(path string, data []byte, perm os.FileMode) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // it may be half written, and take room on a full disk
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes the names in a folder durable: those that were created, renamed or removed before.
func SyncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("cannot sync the folder %s: %w", path, err)
	}
	return nil
}

// MakeFolder makes the folder at path, with mode perm, and those above it that are missing.
//
// And if power fails now? What is stored in a folder is no safer than the folder's name, so that is made durable before anything can be in it; and at each
// call, as whoever made it may have been killed before he came to that.
func MakeFolder(path string, perm os.FileMode) error {
	parent := filepath.Dir(path)
	err := os.Mkdir(path, perm)
	if errors.Is(err, fs.ErrNotExist) && parent != path {
		if err := MakeFolder(parent, perm); err != nil {
			return err
		}
		err = os.Mkdir(path, perm)
	}
	if errors.Is(err, fs.ErrExist) {
		if info, err := os.Stat(path); err != nil {
			return err
		} else if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR}
		}
		if err := SyncFolder(parent); !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil // it is somebody else's, who made it
	}
	if err != nil {
		return err
	}
	return SyncFolder(parent)
}

// SetAside renames a bad file to path.bad, replacing an older one, so that it can be looked at and is never in the way. It returns the new name.
//
// And if power fails now? The bad file is found again under its old name and set aside once more.
func SetAside(path string) (string, error) {
	bad := path + ".bad"
	if err := os.Rename(path, bad); err != nil {
		return "", err
	}
	return bad, SyncFolder(filepath.Dir(path))
}
