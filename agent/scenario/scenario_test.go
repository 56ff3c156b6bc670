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

// TestScenarios runs every incident, before the tests that are parallel: those count or have short intervals. HOLDFAST_SCENARIO_RACE=1 builds the mains with the race detector,
// HOLDFAST_SCENARIO_KEEP=1 leaves a scenario's folder behind.
func TestScenarios(t *testing.T) {
	if testing.Short() {
		t.Skip("scenarios start processes")
	}
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

// TestScenariosNameTheirIncident: incidents.txt has a line for each report of how this kind of software went wrong elsewhere. A
// scenario names those that it shows; one that none shows says why: "waits: boot slots" or "waits: OS image" for what is not
// built yet, "excluded: " and an item of "Not in this version" in docs/design.md for what will not be.
func TestScenariosNameTheirIncident(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile(filepath.Join(scenarios, "incidents.txt"))
	if err != nil {
		t.Fatal(err)
	}
	design, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(scenarios, "*.txtar"))
	if err != nil || len(files) < 45 {
		t.Fatalf("%d scenarios, want at least 45: %v", len(files), err)
	}
	scripts := map[string]string{}
	for _, f := range files {
		a, err := txtar.ParseFile(f)
		if err != nil {
			t.Fatal(err)
		}
		scripts[filepath.Base(f)] = string(a.Comment)
	}
	waiting, errs := coverage(string(list), scripts, string(design))
	for _, err := range errs {
		t.Error(err)
	}
	t.Logf("these wait:\n%s", strings.Join(waiting, "\n"))
}

// coverage reports what is wrong with the scripts, by file, and with the list of incidents, and which of these wait.
func coverage(list string, scripts map[string]string, design string) (waiting []string, errs []error) {
	_, excluded, _ := strings.Cut(design, "\n## Not in this version\n")
	excluded = strings.ToLower(excluded)
	why := map[string]string{} // by incident: why no scenario shows it; empty if one has to
	for i, line := range strings.Split(strings.TrimSpace(list), "\n") {
		name, reason, _ := strings.Cut(line, ": ")
		if _, twice := why[name]; twice || name == "" {
			errs = append(errs, fmt.Errorf("incidents.txt:%d: %q is there twice, or empty", i+1, name))
		}
		why[name] = reason
		item, is := strings.CutPrefix(reason, "excluded: ")
		switch {
		case reason == "", is && item != "" && strings.Contains(excluded, item):
		case reason == "waits: boot slots", reason == "waits: OS image":
			waiting = append(waiting, line)
		default:
			errs = append(errs, fmt.Errorf("incidents.txt:%d: %s: found %q, allowed are nothing, `waits: boot slots`, `waits: OS image`, "+
				"and `excluded: ` with words of docs/design.md, \"Not in this version\"", i+1, name, reason))
		}
	}
	shown := map[string]bool{}
	for file, script := range scripts {
		names, wrong := lint(file, script)
		for _, err := range wrong {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
		for _, name := range names {
			shown[name] = true
			if reason, known := why[name]; !known || reason != "" {
				errs = append(errs, fmt.Errorf("%s: incident %s is not in incidents.txt, or is said to be shown by none: %s", file, name, reason))
			}
		}
	}
	for name, reason := range why {
		if reason == "" && !shown[name] {
			errs = append(errs, fmt.Errorf("incidents.txt: no scenario has `# incident: %s`, and nothing says why", name))
		}
	}
	return waiting, errs
}

// lint reads the incidents that a scenario names, and reports what its script lacks: its first line says what it shows, its
// second names the incidents.
func lint(file, script string) (names []string, errs []error) {
	if !strings.HasPrefix(script, "# "+file+": ") {
		errs = append(errs, errors.New("the first line is not `# "+file+": what it shows`"))
	}
	incident := false
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "# incident: "); ok {
			incident = true
			if !strings.HasPrefix(v, "none (") || !strings.HasSuffix(v, ")") {
				names = append(names, strings.Split(v, ", ")...)
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
	return names, errs
}

func TestCoverage(t *testing.T) {
	t.Parallel()
	const design = "# x\nmaintenance windows\n## Not in this version\nSigned revisions; reports upstream.\n"
	const list = "o/r#1\no/r#2: waits: boot slots\no/r (v1)#3: excluded: signed revisions\n"
	const good = "# a.txtar: x\n# incident: o/r#1\nboot\n"
	for _, c := range []struct {
		why, list, script string
		want              int // complaints
	}{
		{"all is well", list, good, 0},
		{"ours alone", "o/r#2: waits: OS image\n", "# a.txtar: x\n# incident: none (ours alone)\nboot\n", 0},
		{"an unknown incident", list, "# a.txtar: x\n# incident: o/r#1, o/r#4\nboot\n", 1},
		{"one that waits is shown", list, "# a.txtar: x\n# incident: o/r#1, o/r#2\nboot\n", 1},
		{"one that nobody shows", list + "o/r#4\n", good, 1},
		{"waiting for something else", list + "o/r#4: waits: better days\n", good, 1},
		{"excluded by nobody", list + "o/r#4: excluded: maintenance windows\n", good, 1},
		{"excluded by nothing", list + "o/r#4: excluded: \n", good, 1},
		{"twice", list + "o/r#1\n", good, 1},
		{"no incident, which leaves its own uncovered", list, "# a.txtar: x\nboot\n", 2},
		{"first line", list, "boot\n# incident: o/r#1\nstop agent\n", 2},
		{"a condition", list, "# a.txtar: x\n# incident: o/r#1\n[unix] boot\n", 1},
	} {
		if _, errs := coverage(c.list, map[string]string{"a.txtar": c.script}, design); len(errs) != c.want {
			t.Errorf("%s: %v, want %d complaints", c.why, errs, c.want)
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
