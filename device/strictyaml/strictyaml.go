// Package strictyaml reads YAML as Holdfast wants it written: one document, plain keys, no surprises. The state file, the
// profile, the fallback and the configuration are all read through it, so that one rule holds for all of them: every
// problem is reported, all at once, each as FILE:LINE:COLUMN with what was found and what is allowed.
package strictyaml
