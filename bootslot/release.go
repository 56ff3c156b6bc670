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

// values is the release as one flat set of fields, to be read only: the image is one more, by its sha256.
func (r Release) values() device.Fields {
	if r.Image == nil {
		return r.Fields
	}
	v := maps.Clone(r.Fields)
	if v == nil {
		v = device.Fields{}
	}
	v[ImageField] = r.Image.SHA256
	return v
}

// Digest returns r's digest. The prefix is a version: it changes when the canonical form does.
func (r Release) Digest() Digest {
	sum := sha256.Sum256(r.canonical())
	return Digest(hex.EncodeToString(sum[:]))
}

// canonical is the prefix and what json.Marshal makes of the values: keys in order, no blanks. It is written out here because a model of some
// million states asks for it in every one, and nearly all of json.Marshal's time is reflection.
func (r Release) canonical() []byte {
	v := r.values()
	b := append(make([]byte, 0, 256), "holdfast-release-1\n"...)
	if v == nil {
		return append(b, "null"...)
	}
	var few [16]string
	keys := few[:0]
	for k := range v {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(append(appendJSON(b, k), ':'), v[k])
	}
	return append(b, '}')
}

// appendJSON appends s as json.Marshal writes it.
func appendJSON(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			q, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string always marshals
			}
			return append(b, q...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
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
