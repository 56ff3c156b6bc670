package scenario

import (
	"fmt"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"holdfast/bootslot"
	"holdfast/device"
)

// declaredDigest is the digest of what the archive's folder declares in its greenhouse.yaml. It reads plain
// files only: one that is declared in a strange way is the subject of agent/desired's own tests.
func (w *world) declaredDigest(folder string) (string, error) {
	b, err := os.ReadFile(filepath.Join(w.archive, folder, "greenhouse.yaml"))
	if err != nil {
		return "", err
	}
	p, err := device.LoadProfile("")
	if err != nil {
		return "", err
	}
	var declared map[string]yaml.Node
	if err := yaml.Unmarshal(b, &declared); err != nil {
		return "", err
	}
	r := bootslot.Release{Fields: device.Fields{}}
	for _, a := range p.Actuators {
		n := declared[a.Name]
		v, ok := a.Canonical(n.Value)
		if !ok {
			return "", fmt.Errorf("%s/greenhouse.yaml: %s is %q", folder, a.Name, n.Value)
		}
		r.Fields[a.Name] = v
	}
	return string(r.Digest()), nil
}
