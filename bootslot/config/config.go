// Package config reads the one configuration file, /etc/holdfast/holdfast.yaml, of which agent and guard each take their
// part (docs/design.md, "Configuration"). It is strict and complains once, completely. A broken file never stops a
// process that has run before: Load falls back to the copy it keeps of the last valid one.
package config

import (
	"path/filepath"
	"slices"
	"time"

	"holdfast/device"
)

// Config is the whole file with its defaults filled in.
type Config struct {
	Device     Device
	Repository Repository
	Guard      Guard
	State      string // folder, default /var/lib/holdfast
	Run        string // folder, default /run/holdfast
}

// Device says where the device is. Interval is that of the agent's device loop, and of the guard's while there is nothing to find out.
type Device struct {
	URL       string
	TokenFile string
	Interval  time.Duration // default 8 s
	Timeout   time.Duration // per request, default 2 s
}

// Repository says where the declared state is.
type Repository struct {
	URL            string
	Path           string        // default greenhouse.yaml
	Branch         string        // default main
	Interval       time.Duration // default 30 s
	History        string        // fast-forward (default) or follow
	TokenFile      string
	SSHKeyFile     string
	KnownHostsFile string
	CAFile         string
}

// Guard says how a trial is judged.
type Guard struct {
	Window    time.Duration   // default 60 s; at least 3 device intervals + 2 soaks
	Soak      time.Duration   // default 15 s
	Interval  time.Duration   // between two samples, default 1 s
	Attempts  int             // default 3
	Recover   time.Duration   // default 10 min
	Pauses    []time.Duration // default 1, 5, 15 min
	Hold      string          // fields (default) or release
	DiskFloor int64           // bytes free below which no trial starts, default 16 MiB
	Checks    []Check
}

// Check is one configured check. Exactly one of Reading, HTTP, Command, Unit, FreeDisk is set.
type Check struct {
	Name    string
	Wanted  bool          // reports only; the default is required
	Soak    time.Duration // 0: the guard's; else no shorter than that
	Timeout time.Duration // default 5 s

	Reading  string // a reading within Min and Max; beyond FatalMin or FatalMax three times in a row convicts at once
	Min      *float64
	Max      *float64
	FatalMin *float64
	FatalMax *float64

	HTTP     string   // a URL that answers 2xx; host is this board or the device if required
	Command  []string // exits 0
	Unit     string   // a systemd unit that is active
	FreeDisk string   // a folder with at least MinFree bytes free
	MinFree  int64
}

// BuiltIn are the names of the checks that are always there; a configured one has another name.
var BuiltIn = []string{"device-answers", "device-converged", "agent-alive"}

// Default is what the guard works with when no configuration was ever valid: the profile's address and the defaults.
func Default(p device.Profile) Config {
	return Config{
		Device: Device{URL: p.Address, Interval: 8 * time.Second, Timeout: 2 * time.Second},
		Repository: Repository{
			Path: "greenhouse.yaml", Branch: "main", Interval: 30 * time.Second, History: "fast-forward",
		},
		Guard: Guard{
			Window: time.Minute, Soak: 15 * time.Second, Interval: time.Second, Attempts: 3, Recover: 10 * time.Minute,
			Pauses: slices.Clone(pauses), Hold: "fields", DiskFloor: 16 << 20,
		},
		State: "/var/lib/holdfast",
		Run:   "/run/holdfast",
	}
}

var pauses = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

// The sockets speak HTTP/JSON; agent and guard each listen on their own.
func (c Config) AgentSocket() string { return filepath.Join(c.Run, "agent.sock") }
func (c Config) GuardSocket() string { return filepath.Join(c.Run, "guard.sock") }

// One process of each kind at a time has the lock on its file.
func (c Config) AgentLock() string { return filepath.Join(c.Run, "agent.lock") }
func (c Config) GuardLock() string { return filepath.Join(c.Run, "guard.lock") }

// SuspendFile says how long both processes leave the device alone; the run folder is gone after a boot, and the file with it.
func (c Config) SuspendFile() string { return filepath.Join(c.Run, "suspend") }

// The guard's files: only the guard writes into this folder.
func (c Config) GuardFolder() string     { return filepath.Join(c.State, "guard") }
func (c Config) LedgerDB() string        { return filepath.Join(c.State, "guard", "ledger.db") }
func (c Config) LedgerJSON() string      { return filepath.Join(c.State, "guard", "ledger.json") }
func (c Config) GuardConfigCopy() string { return filepath.Join(c.State, "guard", "config.yaml") }

// The agent's files: only the agent writes into this folder.
func (c Config) AgentFolder() string     { return filepath.Join(c.State, "agent") }
func (c Config) CloneDB() string         { return filepath.Join(c.State, "agent", "clone.db") }
func (c Config) Spool() string           { return filepath.Join(c.State, "agent", "spool") }
func (c Config) AgentConfigCopy() string { return filepath.Join(c.State, "agent", "config.yaml") }
