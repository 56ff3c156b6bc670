// Package desired turns what a state repository declares for a device, one YAML file, into a validated release. It knows
// no git and no HTTP: bytes come in, a value or all that is wrong with them goes out, so that `holdfast
// validate` gives in a repository's own CI the same answer as the device.
//
// The file names a value for every actuator of the profile, and may have two more keys:
//
//	pump: on
//	door: closed
//	retry: 1
//	image: {version: 1.4.2, url: https://…, sha256: 64 hex digits}
//
// A missing actuator is an error and not "as it is": a file says all that a device is to be, whatever it was before. What
// counts is the text as it is written (package strictyaml); values are canonical when they leave this package, so
// that two ways to write the same thing have one digest.
package desired

import (
	"net/url"
	"regexp"

	"holdfast/bootslot"
	"holdfast/device"
	"holdfast/device/strictyaml"
)

// Limit is the size of the largest declared file, in bytes.
const Limit = 64 << 10

// MaxRetry is the largest number that JavaScript and every JSON reader keep exact: the number is shown by them.
const MaxRetry = 1<<53 - 1

// Declared is what one revision declares for the device.
type Declared struct {
	Release bootslot.Release
	// Retry is the number that lifts marks when it is raised (docs/design.md, "What lifts it"); 0 if the file has
	// none. It is not part of the release, nor of its digest.
	Retry uint64
}

var (
	version = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+~_-]{0,63}$`)
	digest  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Parse reads a declared file for a device of profile p. name is how errors call it. The error is a
// strictyaml.Errors, all problems of the file with line, column, what was found and what is allowed.
func Parse(name string, data []byte, p device.Profile) (Declared, error) {
	root := strictyaml.Parse(name, data, Limit)
	d := Declared{Release: bootslot.Release{Fields: p.ParseFields(root)}}
	d.Retry = uint64(root.Optional("retry").Int(0, 0, MaxRetry))
	if image := root.Optional(bootslot.ImageField); image.Present() {
		m := image.Map()
		d.Release.Image = &bootslot.Image{
			Version: m.Required("version").Text("", "a version of at most 64 letters, digits and .+~_-, such as 1.4.2", version.MatchString),
			URL:     m.Required("url").Text("", "an https:// or http:// URL without user and password", isImageURL),
			SHA256:  m.Required("sha256").Text("", "the sha256 of the file, 64 hex digits in lower case", digest.MatchString),
		}
	}
	if err := root.Err(); err != nil {
		return Declared{}, err
	}
	return d, nil
}

// isImageURL allows a query, for stores that want one; who may fetch is none of the repository's business.
func isImageURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil && u.Fragment == ""
}
