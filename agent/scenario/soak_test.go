package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	began := s.p.now()
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
		if s.p.now()-began > limit {
			return fmt.Errorf("not at rest %v after the storm: %s", limit, why)
		}
	}
	s.slowest = max(s.slowest, s.p.now()-began)
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
	before := s.total()
	logged := s.logged()
	seq := s.book.seq
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
	after := s.total()
	for _, who := range []string{"agent", "guard"} {
		if n := after[who].written - before[who].written; n != 0 {
			return fmt.Errorf("in %v of calm the %s wrote %d bytes to the disk", long, who, n)
		}
	}
	now, err := s.w.filesNow()
	switch {
	case err != nil:
		return err
	case !maps.Equal(files, now):
		return fmt.Errorf("in %v of calm a file changed: %v, then %v", long, files, now)
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

// look reads ledger and history, if the guard is there, and checks all that must always hold.
func (s *soak) look() error {
	if s.w.procs["guard"].state() != "running" {
		return nil
	}
	g, err := ask[api.State](s, "guard", "/v1/state")
	if err != nil {
		return nil // it has just been started
	}
	events, err := ask[[]bootslot.Event](s, "guard", "/v1/history?last=300")
	if err != nil {
		return nil // nor can it be read while the disk cannot be opened
	}
	if len(events) > 0 && events[0].Seq > s.book.seq+1 {
		if events, err = ask[[]bootslot.Event](s, "guard", "/v1/history"); err != nil {
			return err
		}
	}
	changed, err := s.book.read(events)
	if err != nil {
		return err
	}
	old := s.ledger
	s.ledger = g.Ledger
	return s.compareLedgers(old, g.Ledger, changed)
}

// compareLedgers checks that no mark was lost between two looks. changed are the digests that have been last-known-good in between.
func (s *soak) compareLedgers(old, l bootslot.Ledger, changed map[bootslot.Digest]bool) error {
	if old.ID != "" && (l.ID != old.ID || l.Generation < old.Generation) {
		return fmt.Errorf("the ledger went from %.8s generation %d to %.8s generation %d", old.ID, old.Generation, l.ID, l.Generation)
	}
	if len(l.Marks) > 256 {
		return fmt.Errorf("%d marks", len(l.Marks))
	}
	now := map[bootslot.Digest]bool{l.LastKnownGood(board).Digest(): true}
	for _, m := range l.Marks {
		for _, d := range slices.Concat(m.Candidates, m.OperatorDeclared) {
			now[d] = true
		}
	}
	for _, m := range old.Marks {
		for _, d := range slices.Concat(m.Candidates, m.OperatorDeclared) {
			if !now[d] && !changed[d] {
				return fmt.Errorf("the mark %d of %s (%v) is lost", m.ID, d.Short(), m.Set)
			}
		}
	}
	if lkg := l.Slots[l.Active]; lkg.Status == bootslot.SlotGood && lkg.Proven && bad(lkg.Release.Fields) {
		return fmt.Errorf("%v is proven, though the battery never held with it", lkg.Release.Fields)
	}
	return nil
}

// bad says which contents the battery cannot take.
func bad(f device.Fields) bool { return f["lamp"] == "on" && f["pump"] == "on" }

// push declares fields.
func (s *soak) push(message string, f device.Fields, number uint64) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&b, "%s: %s\n", name, f[name])
	}
	if number > 0 {
		fmt.Fprintf(&b, "retry: %d\n", number)
		s.number = max(s.number, number)
	}
	if err := s.write("greenhouse.yaml", b.String()); err != nil {
		return err
	}
	s.broken = false
	rev, err := s.commit(message, false)
	if err != nil {
		return err
	}
	s.tell("%.8s declares %v retry %d", rev, f, number)
	s.contents = append(s.contents, f)
	s.book.numbers[rev] = number
	return nil
}

func (s *soak) write(name, text string) error {
	path := filepath.Join(s.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// commit makes the folder a revision that declares what the newest one did, unless the caller says otherwise.
func (s *soak) commit(message string, orphan bool) (string, error) {
	rev, err := s.w.upstream.commit(s.folder, message, orphan)
	if !s.broken {
		s.book.numbers[rev] = s.book.numbers[s.declared]
		s.declared = rev
	}
	return rev, err
}

// content is a random one.
func (s *soak) content(wanted func(device.Fields) bool) device.Fields {
	for {
		f := device.Fields{}
		for _, name := range []string{"pump", "fan", "vent", "lamp"} {
			f[name] = []string{"off", "on"}[s.r.IntN(2)]
		}
		f["door"] = []string{"closed", "open"}[s.r.IntN(2)]
		if wanted(f) {
			return f
		}
	}
}

func good(f device.Fields) bool { return !bad(f) }

func (s *soak) wellBattery() error {
	return s.w.battery.set([]string{"sags-with", "lamp=on", "pump=on"})
}

// operator runs a command as somebody on the board would. That it is refused, or nobody answers, is part of the weather.
func (s *soak) operator(args ...string) error {
	if _, msg, err := s.w.holdfast(append(args, "--config", s.w.configFile("agent"))...); err != nil {
		s.tell("holdfast %s: %v: %s", strings.Join(args, " "), err, strings.TrimSpace(string(msg)))
		s.counts["commands that were refused"]++
	}
	return nil
}

// minutes is a random time.
func (s *soak) minutes(lo, hi float64) time.Duration {
	return time.Duration((lo + s.r.Float64()*(hi-lo)) * float64(time.Minute))
}

// weatherKind is something that can happen.
type weatherKind struct {
	name   string
	weight float64
	harsh  bool
	do     func(*soak) error
}

var kinds = []weatherKind{
	{"another device's commit", 30, false, func(s *soak) error {
		s.nextOther++
		if err := s.write(fmt.Sprintf("devices/gh-%02d/greenhouse.yaml", s.r.IntN(40)), fmt.Sprintf("pump: off # %d\n", s.nextOther)); err != nil {
			return err
		}
		_, err := s.commit("another device", false)
		return err
	}},
	{"a good change", 8, false, func(s *soak) error { return s.push("good", s.content(good), 0) }},
	{"a bad change", 5, false, func(s *soak) error { return s.push("bad", s.content(bad), 0) }},
	{"a bad change, soon mended", 4, false, func(s *soak) error {
		if err := s.push("bad", s.content(bad), 0); err != nil {
			return err
		}
		return s.later(s.minutes(0.1, 30), "a bad change, soon mended", func() error { return s.push("the fix", s.content(good), 0) })
	}},
	{"an old content again", 4, false, func(s *soak) error { return s.push("again", s.contents[s.r.IntN(len(s.contents))], 0) }},
	{"a raised retry", 3, false, func(s *soak) error {
		return s.push("retry", s.contents[max(0, len(s.contents)-1-s.r.IntN(3))], s.number+1)
	}},
	{"an old retry put back", 1, false, func(s *soak) error {
		return s.push("retry again", s.contents[s.r.IntN(len(s.contents))], s.r.Uint64N(s.number+1))
	}},
	{"a broken file", 1.5, false, func(s *soak) error {
		if err := s.write("greenhouse.yaml", "pump: perhaps\n"); err != nil {
			return err
		}
		s.broken = true
		_, err := s.commit("broken", false)
		return err
	}},
	{"holdfast retry", 1.5, false, func(s *soak) error { return s.operator("retry") }},
	{"holdfast rollback", 1.5, false, func(s *soak) error { return s.operator("rollback") }},
	{"holdfast rollback --to fallback", 0.5, false, func(s *soak) error { return s.operator("rollback", "--to", "fallback") }},
	{"suspend", 1, false, func(s *soak) error {
		args := []string{"suspend", "--for", "2h"}
		if s.r.IntN(3) == 0 {
			args = append(args, "--repair")
		}
		if err := s.operator(args...); err != nil {
			return err
		}
		return s.later(s.minutes(5, 130), "suspend", func() error { return s.operator("resume") })
	}},
	{"a rewritten history", 0.7, false, func(s *soak) error {
		_, err := s.commit("rewritten", true)
		return err
	}},
	{"no branch", 0.5, false, func(s *soak) error {
		head := s.w.upstream.head()
		if head == "" {
			return nil
		}
		if err := s.w.upstream.deleteBranch(); err != nil {
			return err
		}
		return s.later(s.minutes(5, 60), "no branch", func() error {
			if s.w.upstream.head() != "" {
				return nil // somebody has pushed meanwhile
			}
			return s.w.upstream.reset(head)
		})
	}},

	{"a cut network", 4, false, func(s *soak) error { return s.network(s.minutes(2, 180), "a cut network", true) }},
	{"a long cut network", 0.4, false, func(s *soak) error {
		return s.network(s.minutes(600, 2880), "a long cut network", true)
	}},
	{"a slow network", 2, false, func(s *soak) error {
		return s.network(s.minutes(60, 240), "a slow network", false, toxic{"latency", "downstream", map[string]any{"latency": 200}},
			toxic{"bandwidth", "downstream", map[string]any{"rate": 4}})
	}},
	{"a corrupting network", 2, false, func(s *soak) error {
		return s.network(s.minutes(30, 240), "a corrupting network", false, toxic{"corrupt", "downstream", map[string]any{"from": 350, "every": 61}})
	}},
	{"a stalling network", 1, false, func(s *soak) error {
		return s.network(s.minutes(30, 240), "a stalling network", false, toxic{"stall", "downstream", map[string]any{"after": s.r.IntN(700)}})
	}},
	{"a broken forge", 2, false, func(s *soak) error {
		s.w.upstream.forge.answers([]string{"portal", "500", "401", "404"}[s.r.IntN(4)])
		return s.later(s.minutes(15, 120), "a broken forge", func() error { s.w.upstream.forge.answers("ok"); return nil })
	}},

	{"drift", 10, false, func(s *soak) error {
		f := s.content(func(device.Fields) bool { return true })
		name := slices.Sorted(maps.Keys(f))[s.r.IntN(len(f))]
		return s.bench("POST", "/sim/set", fmt.Sprintf(`{"actuators": {%q: %q}}`, name, f[name]))
	}},
	{"a device that errs", 2, false, func(s *soak) error {
		faults := []string{`{"kind": "hang"}`, `{"kind": "hang", "on": "write", "applied": true}`, `{"kind": "drop"}`, `{"kind": "status", "status": 500}`,
			`{"kind": "status", "status": 503, "on": "write"}`, `{"kind": "delay", "delay": "200ms"}`, `{"kind": "malformed"}`, `{"kind": "refuse", "actuator": "lamp", "value": "on"}`,
			`{"kind": "refuse", "actuator": "fan"}`, `{"kind": "ignore", "actuator": "vent"}`, `{"kind": "echo", "actuator": "door", "value": "ajar"}`}
		if err := s.bench("POST", "/sim/faults", faults[s.r.IntN(len(faults))]); err != nil {
			return err
		}
		return s.later(s.minutes(1, 15), "a device that errs", func() error { return s.bench("DELETE", "/sim/faults", "") })
	}},
	{"a device that restarts", 2, false, func(s *soak) error {
		if err := s.kill("greenhouse"); err != nil {
			return err
		}
		return s.later(s.minutes(0.1, 20), "a device that restarts", func() error { return s.start("greenhouse") })
	}},
	{"a sick battery", 1, false, func(s *soak) error {
		if err := s.w.battery.set([]string{[]string{"sags", "gone"}[s.r.IntN(2)]}); err != nil {
			return err
		}
		return s.later(s.minutes(1, 90), "a sick battery", s.wellBattery)
	}},
	{"a battery that sickens in a trial", 1, false, func(s *soak) error {
		if s.lasts("a sick battery") {
			return nil
		}
		if in, err := s.inTrial(); err != nil || !in {
			return err
		}
		if err := s.w.battery.set([]string{"sags"}); err != nil {
			return err
		}
		return s.later(s.minutes(15, 60), "a sick battery", s.wellBattery)
	}},
	{"another wall clock", 2, false, func(s *soak) error {
		wall := []time.Duration{0, -30 * time.Minute, 26 * time.Hour, -450_000 * time.Hour, 90_000 * time.Hour}[s.r.IntN(5)]
		return s.w.setClock(wall, s.w.uptime)
	}},
	{"SIGHUP", 1, false, func(s *soak) error {
		for _, who := range []string{"agent", "guard"} {
			if s.w.procs[who].state() == "running" {
				if err := s.w.signal(who, syscall.SIGHUP); err != nil {
					return err
				}
			}
		}
		return nil
	}},

	{"a killed process", 4, true, func(s *soak) error {
		who := s.either()
		if err := s.kill(who); err != nil {
			return err
		}
		return s.later(s.minutes(0.1, 60), "a killed process", func() error { return s.start(who) })
	}},
	{"an upgrade", 2, true, func(s *soak) error {
		who := s.either()
		if s.w.procs[who].state() != "running" {
			return nil
		}
		s.account(who)
		if err := s.w.end(who, syscall.SIGTERM); err != nil {
			return err
		}
		return s.start(who)
	}},
	{"a stopped process", 1, true, func(s *soak) error {
		who := s.either()
		if s.w.procs[who].state() != "running" {
			return nil
		}
		how := []string{who}
		if moment := []string{"", beforeWrite, afterRead}[s.r.IntN(3)]; moment != "" {
			how = append(how, moment)
		}
		if err := s.w.freeze(how); err != nil {
			return err
		}
		return s.later(s.minutes(1, 8), "a stopped process", func() error {
			if s.w.procs[who].state() == "dead" {
				s.w.recorders[who].arm("")
				return nil
			}
			return s.w.thaw(who)
		})
	}},
	{"an interrupted trial", 3, true, func(s *soak) error {
		if in, err := s.inTrial(); err != nil || !in {
			return err
		}
		who := []string{"guard", "agent", "greenhouse", "everything"}[s.r.IntN(4)]
		s.tell("%s dies in the trial", who)
		if who == "everything" {
			if err := s.cutPower(); err != nil {
				return err
			}
		} else if err := s.kill(who); err != nil {
			return err
		}
		return s.later(s.minutes(0.1, 12), "an interrupted trial", func() error { return s.start(processNames...) })
	}},
	{"a power cut", 2, true, func(s *soak) error {
		if err := s.cutPower(); err != nil {
			return err
		}
		return s.later(s.minutes(0.1, 30), "a power cut", func() error { return s.start(processNames...) })
	}},
	{"a lost clone", 1, true, func(s *soak) error { return s.damage("agent", "clone.db") }},
	{"a damaged ledger.db", 0.5, true, func(s *soak) error { return s.damage("guard", "ledger.db") }},
	{"a damaged ledger.json", 0.5, true, func(s *soak) error { return s.damage("guard", "ledger.json") }},
	{"a full disk", 1, true, func(s *soak) error { return s.fullDisk() }},
}

// bench does something to the device, if it runs. One that does not forgets all of it anyway.
func (s *soak) bench(method, path, body string) error {
	if s.w.procs["greenhouse"].state() == "dead" {
		return nil
	}
	return s.w.sim(method, path, body)
}

// inTrial declares something new and waits for its trial, for half an hour at most.
func (s *soak) inTrial() (bool, error) {
	if s.offline > 0 {
		return false, nil
	}
	if err := s.push("to be tried", s.content(func(f device.Fields) bool { return !f.Equal(s.contents[len(s.contents)-1]) }), s.number+1); err != nil {
		return false, err
	}
	for began := s.p.now(); s.p.now()-began < 30*time.Minute; {
		if err := s.live(s.p.now() + time.Minute); err != nil {
			return false, err
		}
		if s.w.procs["guard"].state() != "running" {
			continue
		}
		if g, err := ask[api.State](s, "guard", "/v1/state"); err == nil && g.Phase == api.PhaseTrial {
			return true, nil
		}
	}
	return false, nil
}

func (s *soak) either() string { return []string{"agent", "guard"}[s.r.IntN(2)] }

// network sets the weather of the link.
func (s *soak) network(long time.Duration, what string, cut bool, toxics ...toxic) error {
	for _, other := range []string{"a cut network", "a long cut network", "a slow network", "a corrupting network", "a stalling network"} {
		if s.lasts(other) {
			return nil
		}
	}
	if what == "a long cut network" {
		s.offline = s.p.now() + long
	}
	if cut {
		s.w.upstream.cut()
	} else if err := s.w.upstream.setWeather(toxics...); err != nil {
		return err
	}
	return s.later(long, what, func() error { s.offline = 0; return s.w.upstream.setWeather() })
}

// start starts those that are not running.
func (s *soak) start(names ...string) error {
	for _, who := range names {
		if s.w.procs[who].state() != "dead" {
			continue
		}
		if err := s.w.start(who); err != nil {
			return err
		}
		s.births[who]++
	}
	return nil
}

// kill is kill -9.
func (s *soak) kill(who string) error {
	if s.w.procs[who].state() == "dead" {
		return nil
	}
	s.account(who)
	return s.w.end(who, syscall.SIGKILL)
}

func (s *soak) cutPower() error {
	for _, who := range processNames {
		if s.w.procs[who].state() != "dead" {
			s.account(who)
		}
	}
	return s.w.powerCut()
}

// damage kills a process, does something to its file and starts it.
func (s *soak) damage(who, file string) error {
	if err := s.kill(who); err != nil {
		return err
	}
	how := []string{"truncate", "flip", "zero", "junk", "empty", "delete"}[s.r.IntN(6)]
	s.tell("%s: %s", file, how)
	var err error
	if how == "delete" {
		err = s.w.delete(file)
	} else {
		err = s.w.corrupt(file, how)
	}
	if err != nil {
		return err
	}
	if file == "ledger.db" {
		s.book.seq = 0 // the history begins anew
	}
	return s.start(who)
}

// fullDisk moves the board's files to a disk that is full for a while, and back. Power is off meanwhile; what is written there is memory and does not count.
func (s *soak) fullDisk() error {
	move := func(from, to string) error {
		out, err := exec.Command("cp", "-a", from+"/agent", from+"/guard", to).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	d, err := newDisk(s.w.stateDir(), "16M")
	if errors.Is(err, errNoNamespaces) && os.Getenv("CI") != "true" {
		s.counts["left out: "+err.Error()]++
		return nil
	} else if err != nil {
		return err
	}
	if err := s.cutPower(); err != nil {
		return err
	}
	if err := move(s.w.stateDir(), d.root()); err != nil {
		return err
	}
	s.w.disk = d
	if err := s.start(processNames...); err != nil {
		return err
	}
	if err := d.fill(); err != nil {
		return err
	}
	return s.later(s.minutes(5, 60), "a full disk", func() error {
		if err := d.free(); err != nil {
			return err
		}
		if err := s.live(s.p.now() + s.minutes(5, 20)); err != nil {
			return err
		}
		if err := s.cutPower(); err != nil {
			return err
		}
		for _, part := range []string{"agent", "guard"} {
			if err := os.RemoveAll(filepath.Join(s.w.stateDir(), part)); err != nil {
				return err
			}
		}
		if err := move(d.root(), s.w.stateDir()); err != nil {
			return err
		}
		s.w.disk = nil
		d.close()
		return s.start(processNames...)
	})
}
