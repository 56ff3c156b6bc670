package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
)

const scenarios = "../../testdata/scenarios"

// clockFileEnv is spelled out: the release build, which these tests are, has no such name.
const clockFileEnv = "HOLDFAST_TEST_CLOCK_FILE"

// quiet is testscript's T without its verbose mode: our own story is told while it happens, so the log at the end needs
// only the phases and where it failed.
type quiet struct{ *testing.T }

func (q quiet) Run(name string, f func(testscript.T)) {
	q.T.Run(name, func(t *testing.T) { f(quiet{t}) })
}

func (q quiet) Verbose() bool { return false }

func (q quiet) Log(args ...any) {
	if q.Failed() {
		q.T.Log(args...)
	}
}

// TestScenarios runs every incident. HOLDFAST_SCENARIO_RACE=1 builds the mains with the race detector,
// HOLDFAST_SCENARIO_KEEP=1 leaves a scenario's folder behind.
func TestScenarios(t *testing.T) {
	if testing.Short() {
		t.Skip("scenarios start processes")
	}
	t.Parallel()
	for name := range mains {
		if _, err := binary(name); err != nil {
			t.Fatal(err)
		}
	}
	runScenarios(t, scenarios)
}

func runScenarios(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	// The one that takes longest goes first, so that it does not run alone at the end.
	takes := map[string]int{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		takes[f] = guess(string(b))
	}
	slices.SortStableFunc(files, func(a, b string) int { return takes[b] - takes[a] })
	testscript.RunT(quiet{t}, testscript.Params{
		Files:               files,
		WorkdirRoot:         t.TempDir(), // testscript's own stays behind when -run leaves scripts out
		Cmds:                commands(),
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			t := env.T().(quiet).T
			name := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
			a, err := txtar.ParseFile(filepath.Join(dir, name+".txtar"))
			if err != nil {
				return err
			}
			w, err := newWorld(env.WorkDir, newStory(t.Output(), string(a.Comment)))
			if err != nil {
				return err
			}
			env.Values[worldKey{}] = w
			env.Setenv("STATE", w.stateDir())
			env.Setenv("RUN", w.runDir())
			env.Setenv("CONFIG", w.configFile("agent"))
			env.Setenv("LOGS", w.logs())
			env.Setenv("CA_FILE", w.upstream.caFile)
			env.Setenv("KNOWN_HOSTS", w.upstream.ssh.knownHosts)
			env.Defer(func() {
				err := w.check()
				if err != nil {
					t.Error(err)
				}
				if t.Failed() {
					w.story.tell("failed; the ends of the logs:\n%s", w.tails(40))
				}
				w.close()
			})
			return nil
		},
	})
}

// guess is about how long a script takes, in seconds, by what it waits for.
func guess(script string) (seconds int) {
	for line := range strings.Lines(script) {
		var n int
		switch commandOf(line) {
		case "wait-for":
			seconds += 3
			if strings.Contains(line, "marks=") || strings.Contains(line, "verdict=failed") {
				seconds += 10 // a window
			}
		case "steady", "fault":
			seconds++
		case "idle":
			fmt.Sscanf(line, "idle %d cycles", &n)
			seconds += 1 + n/3
		case "bad-fetches", "other-devices", "big-file":
			seconds += 5
		case "stall-network":
			seconds += 30 // until somebody loses patience
		}
	}
	return seconds
}

// builtins of testscript that a scenario must not use: stop and skip end it as passed, kill is for exec's children.
var notInScenarios = []string{"stop", "skip", "kill"}

func TestScenariosNameTheirIncident(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile(filepath.Join(scenarios, "incidents.txt"))
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(strings.TrimSpace(string(list)), "\n")
	files, err := filepath.Glob(filepath.Join(scenarios, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, f := range files {
		a, err := txtar.ParseFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range lint(filepath.Base(f), string(a.Comment), known) {
			t.Errorf("%s: %v", filepath.Base(f), err)
		}
	}
}

// lint reports what a scenario's script lacks: its first line says what it shows, its second names its incidents.
func lint(file, script string, known []string) []error {
	var errs []error
	if !strings.HasPrefix(script, "# "+file+": ") {
		errs = append(errs, errors.New("the first line is not `# "+file+": what it shows`"))
	}
	incident := false
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "# incident: "); ok {
			incident = true
			if strings.HasPrefix(v, "none (") && strings.HasSuffix(v, ")") {
				continue
			}
			for _, name := range strings.Split(v, ", ") {
				if !slices.Contains(known, name) {
					errs = append(errs, errors.New("incident "+name+" is not in incidents.txt"))
				}
			}
		}
		if c := commandOf(line); slices.Contains(notInScenarios, c) {
			errs = append(errs, errors.New(c+" is testscript's own; use crash, freeze or terminate"))
		}
		if strings.HasPrefix(line, "[") {
			errs = append(errs, errors.New("a scenario has no conditions: "+line))
		}
	}
	if !incident {
		errs = append(errs, errors.New("no line `# incident: NAME` or `# incident: none (reason)`"))
	}
	return errs
}

func TestLint(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{
		"# a.txtar: x\n# incident: o/r#1\nboot\n":             0,
		"# a.txtar: x\n# incident: o/r#1, o/r#2\nboot\n":      1,
		"# a.txtar: x\n# incident: none (ours alone)\nboot\n": 0,
		"# a.txtar: x\nboot\n":                                1,
		"boot\n# incident: o/r#1\nstop agent\n":               2,
		"# a.txtar: x\n# incident: o/r#1\n[unix] boot\n":      1,
	} {
		if errs := lint("a.txtar", script, []string{"o/r#1"}); len(errs) != want {
			t.Errorf("lint(%q) = %v, want %d complaints", script, errs, want)
		}
	}
}

// TestReleaseHasNoTestClock: the clock that a file can move is in the binaries of scenarios and in no other.
func TestReleaseHasNoTestClock(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the mains")
	}
	dir := t.TempDir()
	for name := range mains {
		tagged, err := binary(name)
		if err != nil {
			t.Fatal(err)
		}
		release, err := build(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		for bin, want := range map[string]bool{tagged: name != "greenhouse", release: false} {
			b, err := os.ReadFile(bin)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(b), clockFileEnv); got != want && !(name == "greenhouse" && bin == tagged) {
				t.Errorf("%s contains %s: %v, want %v", bin, clockFileEnv, got, want)
			}
		}
	}
}
