package config

import (
	"os"
	"path/filepath"
	"regexp"

	"holdfast/device/strictyaml"
)

var stateLine = regexp.MustCompile(`(?m)^state:[ \t]+["']?(/[^"'#\s]+)`)

// StateEnv names the environment variable that says where the state folder is when the file cannot: a board whose state is elsewhere sets it in both
// units, or loses its copy of the configuration, and with it its ledger, together with the file.
const StateEnv = "HOLDFAST_STATE"

// StateFolder returns the state folder that the file at path names, whatever else is wrong with the file; else what StateEnv says, else the default.
// It is where the copy of the last valid configuration is looked for, which must be known before the file is understood.
func StateFolder(path string) string {
	data, err := strictyaml.ReadFile(path, Limit)
	if err == nil {
		// As YAML, however it is spelled; where the file is none, the line as people write it.
		if dir := strictyaml.Parse(path, data, Limit).Optional("state").Text("", "", isPath); dir != "" {
			return dir
		}
		if m := stateLine.FindSubmatch(data); m != nil {
			return string(m[1])
		}
	}
	if dir := os.Getenv(StateEnv); filepath.IsAbs(dir) {
		return dir
	}
	return "/var/lib/holdfast"
}
