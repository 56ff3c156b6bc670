package config

import (
	"regexp"

	"holdfast/device/strictyaml"
)

var stateLine = regexp.MustCompile(`(?m)^state:[ \t]+["']?(/[^"'#\s]+)`)

// StateFolder returns the state folder that the file at path names, whatever else is wrong with the file; the default if it names none. It is
// where the copy of the last valid configuration is looked for, which must be known before the file is understood.
func StateFolder(path string) string {
	data, err := strictyaml.ReadFile(path, Limit)
	if err == nil {
		if m := stateLine.FindSubmatch(data); m != nil {
			return string(m[1])
		}
	}
	return "/var/lib/holdfast"
}
