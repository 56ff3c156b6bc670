package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

// The configuration of the soak: one device cycle a minute, so that a month is 43,200 of them, and the rest in the proportions of the defaults.
// The device's time-out alone is real time.
const soakConfig = `
device: {interval: 60s, timeout: 500ms}
repository: {interval: 15m}
guard: {window: 10m, soak: 2m, interval: 60s, recover: 20m, pauses: [5m, 15m, 30m], attempts: 3}
`

// TestSoak plays days of random weather against the production mains, and measures what grows. `make soak` plays a month; what runs with every
// `make scenarios` is one day. SOAK_DAYS and SOAK_SEED choose others.
//
// The days are made of storms, in which something happens every few minutes, and of calms, in which nothing does. In the first and the last third
// agent and guard are never killed, so that what they lose has days to add up; in the second nobody is spared.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: make soak")
	}
	days, seed := 1.0, uint64(1)
	if v := os.Getenv("SOAK_DAYS"); v != "" {
		var err error
		if days, err = strconv.ParseFloat(v, 64); err != nil || days <= 0 {
			t.Fatalf("SOAK_DAYS=%q is not a number of days", v)
		}
	} else {
		t.Parallel()
	}
	if v := os.Getenv("SOAK_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("SOAK_SEED=%q is not a number", v)
		}
	}
	s := newSoak(t, time.Duration(days*24*float64(time.Hour)), seed)
	t.Logf("%v days, seed %d", days, seed)
	began := time.Now()
	if err := s.play(); err != nil {
		t.Errorf("day %.2f, seed %d: %v\nthe last of the story:\n%s\n%s", s.day(), seed, err, s.story, s.w.tails(60))
	}
	s.report(time.Since(began))
	if !t.Failed() {
		s.compare(t)
		if t.Failed() {
			t.Logf("all calms:\n%s", s.calmsTable())
		}
	}
}

// soak is a board, its weather and what is known of both.
type soak struct {
	t      *testing.T
	w      *world
	p      *pacer
	r      *rand.Rand
	length time.Duration
	story  *tail
	folder string // what is in the repository

	book      book
	contents  []device.Fields // that were declared, in order
	declared  string          // newest valid revision
	broken    bool            // the file in the folder is
	number    uint64          // highest retry: that was ever pushed
	offline   time.Duration   // the network stays cut until then
	due       []change        // what ends the weather that there is
	ledger    bootslot.Ledger
	full      bool                     // the disk has been since the newest look
	changed   map[bootslot.Digest]bool // what was last-known-good in the newest part of the history
	nextOther int

	spent   map[string]costs // of processes that have ended, by name
	births  map[string]int
	writes  map[string]int
	counts  map[string]int // what happened, by name
	slowest time.Duration  // from the end of a storm to calm
	calms   []sample
	rows    []row
}

// change is something that is to happen at a simulated time.
type change struct {
	at   time.Duration
	what string
	do   func() error
}

// tail keeps the last lines that are written to it.
type tail struct{ lines []string }

func (t *tail) Write(b []byte) (int, error) {
	t.lines = append(t.lines, strings.TrimRight(string(b), "\n"))
	if len(t.lines) > 120 {
		t.lines = slices.Delete(t.lines, 0, len(t.lines)-100)
	}
	return len(b), nil
}

func (t *tail) String() string { return strings.Join(t.lines, "\n") }

func newSoak(t *testing.T, length time.Duration, seed uint64) *soak {
	s := &soak{t: t, length: length, r: rand.New(rand.NewPCG(seed, 0)), story: &tail{}, folder: t.TempDir(), book: newBook(), spent: map[string]costs{},
		births: map[string]int{}, writes: map[string]int{}, counts: map[string]int{}}
	archive := t.TempDir()
	if err := os.WriteFile(filepath.Join(archive, "config.yaml"), []byte(soakConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.w, err = newWorld(archive, newStory(s.story, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.w.close)
	// Clock and logs lie in memory, where a write costs the disk nothing: what is counted is what Holdfast itself writes.
	memory, err := os.MkdirTemp("/dev/shm", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(memory) })
	for _, who := range processNames {
		if err := os.Symlink(filepath.Join(memory, who+".log"), filepath.Join(s.w.logs(), who+".log")); err != nil {
			t.Fatal(err)
		}
	}
	if s.p, err = newPacer(s.w, memory); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *soak) day() float64 { return s.p.now().Hours() / 24 }

func (s *soak) tell(format string, args ...any) {
	s.w.story.tell("day %6.3f  %s", s.day(), fmt.Sprintf(format, args...))
}

// harsh reports whether processes may be killed now: not in the first and not in the last third.
func (s *soak) harsh() bool {
	now := s.p.now()
	return now > s.length/3 && now < s.length*2/3
}

// play is the whole of it.
func (s *soak) play() error {
	// The battery is too weak for lamp and pump together, in sun and rain.
	if err := s.wellBattery(); err != nil {
		return err
	}
	if err := s.push("the first", device.Fields{"pump": "on", "fan": "off", "vent": "on", "lamp": "off", "door": "closed"}, 0); err != nil {
		return err
	}
	if err := s.start(processNames...); err != nil {
		return err
	}
	if err := s.calm(time.Hour); err != nil {
		return err
	}
	// In fair weather a good change passes and a bad one is undone. In storms that is left to chance, and in a single day chance may not come to it.
	for _, fair := range []struct {
		message string
		of      func(device.Fields) bool
	}{{"good", good}, {"bad", bad}} {
		if err := s.push(fair.message, s.content(fair.of), 0); err != nil {
			return err
		}
		if err := s.calm(40 * time.Minute); err != nil {
			return err
		}
	}
	if s.book.verdicts["passed"] == 0 || s.book.verdicts[bootslot.EventStands] == 0 {
		return fmt.Errorf("in fair weather: %v", s.book.verdicts)
	}
	s.row()
	every := min(5*24*time.Hour, s.length)
	for next := every; s.p.now() < s.length; {
		if err := s.storm(s.between(40*time.Minute, s.length/30, 5*time.Hour)); err != nil {
			return err
		}
		if err := s.calm(s.between(40*time.Minute, s.length/60, 3*time.Hour)); err != nil {
			return err
		}
		if s.p.now() >= next {
			s.row()
			s.t.Logf("day %.1f: %d calms, %v", s.day(), len(s.calms), s.book.verdicts)
			next += every
		}
	}
	return nil
}

// between is a random time from lo to hi, and not more than most.
func (s *soak) between(lo, hi, most time.Duration) time.Duration {
	lo = min(lo, most)
	hi = max(min(hi, most), lo)
	return lo + time.Duration(s.r.Float64()*float64(hi-lo))
}

// live lets time pass, and ends the weather whose time has come.
func (s *soak) live(until time.Duration) error {
	for {
		slices.SortStableFunc(s.due, func(a, b change) int { return int(a.at - b.at) })
		if len(s.due) == 0 || s.due[0].at > until {
			return s.p.until(until)
		}
		if err := s.p.until(s.due[0].at); err != nil {
			return err
		}
		if err := s.end(0); err != nil {
			return err
		}
	}
}

// end ends the weather number i of those that wait.
func (s *soak) end(i int) error {
	c := s.due[i]
	s.due = slices.Delete(s.due, i, i+1)
	s.tell("%s is over", c.what)
	if err := c.do(); err != nil {
		return fmt.Errorf("the end of %s: %w", c.what, err)
	}
	return nil
}

// later ends the weather called what after a while.
func (s *soak) later(after time.Duration, what string, do func() error) error {
	s.due = append(s.due, change{s.p.now() + after, what, do})
	return nil
}

func (s *soak) lasts(what string) bool {
	return slices.ContainsFunc(s.due, func(c change) bool { return c.what == what })
}

// storm is weather for so long; at its end all of it is over, a cut network perhaps aside.
func (s *soak) storm(long time.Duration) error {
	end := s.p.now() + long
	for {
		at := s.p.now() + time.Duration(s.r.ExpFloat64()*float64(8*time.Minute))
		if at > end {
			break
		}
		if err := s.live(at); err != nil {
			return err
		}
		if err := s.happen(); err != nil {
			return err
		}
		if err := s.look(); err != nil {
			return err
		}
	}
	if err := s.live(end); err != nil {
		return err
	}
	for i := 0; i < len(s.due); {
		if s.due[i].what == "a long cut network" {
			i++
			continue
		}
		if err := s.end(i); err != nil {
			return err
		}
	}
	if s.broken && s.offline == 0 { // somebody mends the repository
		return s.push("mended", s.contents[len(s.contents)-1], 0)
	}
	return nil
}

// happen lets one thing happen, chosen by its weight.
func (s *soak) happen() error {
	var sum float64
	var can []weatherKind
	for _, k := range kinds {
		if !k.harsh || s.harsh() {
			can, sum = append(can, k), sum+k.weight
		}
	}
	at := s.r.Float64() * sum
	for _, k := range can {
		if at -= k.weight; at > 0 {
			continue
		}
		if s.lasts(k.name) {
			return nil
		}
		s.tell("%s", k.name)
		s.counts[k.name]++
		if err := k.do(s); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		return nil
	}
	return nil
}

// calm waits until the board has come to rest, and then proves for so long that nothing happens: nothing is written, logged or sent, and the device is as it is to be.
func (s *soak) calm(long time.Duration) error {
	storm := s.p.now()
	const limit = 14 * time.Hour // all attempts with the longest pauses, and the environment besides
	var last string
	for same := 0; same < 6; {
		if err := s.live(s.p.now() + time.Minute); err != nil {
			return err
		}
		why, changes, err := s.unrest()
		if err != nil {
			return err
		}
		if changes != last || why != "" {
			same, last = 0, changes
		} else {
			same++
		}
		if s.p.now()-storm > limit {
			return fmt.Errorf("not at rest %v after the storm: %s", limit, why)
		}
	}
	s.slowest = max(s.slowest, s.p.now()-storm)
	if err := s.look(); err != nil {
		return err
	}
	if err := s.atRest(); err != nil {
		return err
	}
	for i := range s.due { // a network that is still cut stays so
		s.due[i].at = max(s.due[i].at, s.p.now()+long+time.Hour)
	}
	generation, effective := s.ledger.Generation, s.ledger.LastKnownGood(board)
	files, err := s.w.filesNow()
	if err != nil {
		return err
	}
	before, logged, seq, began := s.total(), s.logged(), s.book.seq, s.p.now()
	cycles, _ := s.w.recorders["agent"].counts()
	if err := s.live(s.p.now() + long); err != nil {
		return err
	}
	held, err := s.sample()
	if err != nil {
		return err
	}
	if err := s.look(); err != nil {
		return err
	}
	if err := s.atRest(); err != nil {
		return err
	}
	now, _ := s.w.recorders["agent"].counts()
	if n, want := now-cycles, int((s.p.now()-began)/time.Minute); n < want*9/10 || n > want*11/10 {
		return fmt.Errorf("in %d minutes of calm the agent made %d cycles", want, n)
	}
	after := s.total()
	for _, who := range []string{"agent", "guard"} {
		if n := after[who].written - before[who].written; n != 0 {
			return fmt.Errorf("in %v of calm the %s wrote %d bytes to the disk", long, who, n)
		}
	}
	touched, err := s.w.filesNow()
	switch {
	case err != nil:
		return err
	case !maps.Equal(files, touched):
		return fmt.Errorf("in %v of calm a file changed: %v, then %v", long, files, touched)
	case s.logged() != logged:
		return fmt.Errorf("in %v of calm %d bytes were logged", long, s.logged()-logged)
	case s.book.seq != seq || s.ledger.Generation != generation || !s.ledger.LastKnownGood(board).Equal(effective):
		return fmt.Errorf("in %v of calm the ledger went from generation %d to %d, the history from %d to %d", long, generation, s.ledger.Generation, seq, s.book.seq)
	}
	s.calms = append(s.calms, held)
	return nil
}

// board is the fixed part of the rules.
var board = func() bootslot.Board {
	p, err := device.LoadProfile("")
	if err != nil {
		panic(err) // our own files
	}
	return bootslot.Board{Fallback: bootslot.Release{Fields: p.Fallback}}
}()

// ask asks a process on its socket.
func ask[T any](s *soak, who, path string) (v T, err error) {
	b, err := overSocket(s.w.path("run", who+".sock"), 10*time.Second, "GET", path, "")
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	return v, err
}

// unrest says why the board is not at rest, "" if it is; changes differ when it has something new to tell.
func (s *soak) unrest() (why, changes string, err error) {
	g, err := ask[api.State](s, "guard", "/v1/state")
	if err != nil {
		return "", "", err
	}
	a, err := ask[status.Agent](s, "agent", "/v1/status")
	if err != nil {
		return "", "", err
	}
	changes = fmt.Sprint(g.PID, g.Change, a.PID, a.Change)
	if a.Git.State == "history-rewritten" && s.offline == 0 {
		s.counts["accept"]++
		if _, msg, err := s.w.holdfast("accept", a.Git.RemoteRevision, "--config", s.w.configFile("agent")); err != nil {
			return "", "", fmt.Errorf("accept: %w: %s", err, msg)
		}
		return "a rewritten history", changes, nil
	}
	switch {
	case g.Phase != api.PhaseIdle:
		why = "the phase is " + string(g.Phase)
	case g.Suspended != nil:
		why = "suspended"
	case !g.Answers || len(g.Drift) > 0:
		why = fmt.Sprintf("the device answers %v, drift %v", g.Answers, g.Drift)
	case g.Driver != "agent":
		why = "driven by " + g.Driver
	case s.offline == 0 && (a.Git.State != status.GitOK || a.Declared == nil || a.Declared.Revision != s.w.upstream.head()):
		why = fmt.Sprintf("git is %s", a.Git.State)
	case s.offline > 0 && a.Declared == nil: // the clone was lost meanwhile, and nothing is declared until the network is back
	case g.Decision == nil || g.Wish == nil || a.Declared == nil || g.Wish.Revision != a.Declared.Revision:
		why = "the guard does not know what is declared"
	case g.Decision.Kind != bootslot.Same && g.Decision.Kind != bootslot.Held:
		why = fmt.Sprintf("the decision is %s: %s", g.Decision.Kind, g.Decision.Reason)
	case a.Drives != status.DrivesEffective || a.Report == nil || !a.Report.Converged():
		why = fmt.Sprintf("the agent drives %s, %s", a.Drives, a.Why)
	}
	return why, changes, nil
}

// atRest reports whether the device is what the guard says that it is to be, and status says so.
func (s *soak) atRest() error {
	why, _, err := s.unrest()
	if err == nil && why != "" {
		err = fmt.Errorf("not at rest any more: %s", why)
	}
	if err != nil {
		return err
	}
	g, err := ask[api.State](s, "guard", "/v1/state")
	if err != nil {
		return err
	}
	is, err := s.w.device.state()
	if err != nil {
		return err
	}
	for f, want := range g.Lease.Fields {
		if is[f] != want {
			return fmt.Errorf("%s is %s and is to be %s", f, is[f], want)
		}
	}
	if want := s.ledger.LastKnownGood(board).Fields; !want.Equal(g.Lease.Fields) {
		return fmt.Errorf("at rest %v is effective and not %v", g.Lease.Fields, want)
	}
	return nil
}
