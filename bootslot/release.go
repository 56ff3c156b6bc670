package bootslot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"holdfast/device"
)

// ImageField is the name under which the OS image is one more field of a release (docs/design.md, "The OS image").
const ImageField = "image"

// Image names a system image; its identity is SHA256 alone.
type Image struct {
	Version string `json:"version"`
	URL     string `json:"url"`
	SHA256  string `json:"sha256"` // 64 lower-case hex digits, of the whole file
}

// Release is a validated desired state: one canonical value for every actuator of the profile, and perhaps an image.
type Release struct {
	Fields device.Fields `json:"fields"`
	Image  *Image        `json:"image,omitempty"`
}

// Digest is the identity of a release's content: sha256 over its canonical JSON, in lower-case hex. Two revisions
// with the same content have one digest.
type Digest string

// Short is the digest as people see it.
func (d Digest) Short() string { return string(d[:min(12, len(d))]) }

// IsZero reports whether r is no release at all.
func (r Release) IsZero() bool { return len(r.Fields) == 0 && r.Image == nil }

// values is the release as one flat set of fields: the image is one more, by its sha256.
func (r Release) values() device.Fields {
	v := maps.Clone(r.Fields)
	if r.Image != nil {
		if v == nil {
			v = device.Fields{}
		}
		v[ImageField] = r.Image.SHA256
	}
	return v
}

// Digest returns r's digest. The prefix is a version: it changes when the canonical form does.
func (r Release) Digest() Digest {
	b, err := json.Marshal(r.values()) // keys of a map come sorted
	if err != nil {
		panic(err) // a map of strings always marshals
	}
	sum := sha256.Sum256(append([]byte("holdfast-release-1\n"), b...))
	return Digest(hex.EncodeToString(sum[:]))
}

// Equal reports whether r and s have the same content.
func (r Release) Equal(s Release) bool { return maps.Equal(r.values(), s.values()) }

// Contains reports whether r has all of set. A field that set has with no value is one that r must not have: what a release
// took away (an actuator that a new profile no longer knows) is a change like any other, and a mark must be able to hold it.
func (r Release) Contains(set device.Fields) bool {
	v := r.values()
	for field, value := range set {
		if v[field] != value {
			return false
		}
	}
	return true
}

// Changed lists, sorted, the fields in which r differs from base.
func (r Release) Changed(base Release) []string {
	a, b := r.values(), base.values()
	var out []string
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			out = append(out, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}
