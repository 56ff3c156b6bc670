package scenario

import (
	"os"
	"path/filepath"

	"holdfast/agent/desired"
	"holdfast/device"
)

// declaredDigest is the digest of what the archive's folder declares in its greenhouse.yaml.
func (w *world) declaredDigest(folder string) (string, error) {
	name := filepath.Join(w.archive, folder, "greenhouse.yaml")
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	p, err := device.LoadProfile("")
	if err != nil {
		return "", err
	}
	d, err := desired.Parse(name, b, p)
	return string(d.Release.Digest()), err
}
