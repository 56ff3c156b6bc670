package scenario

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/device"
)

// book follows the history and checks what must hold in it, whatever the weather: under one retry number a content gets one conclusive trial
// and a bounded number of others, and none once it is marked.
type book struct {
	seq      uint64
	numbers  map[string]uint64 // retry number by revision
	contents map[bootslot.Digest]device.Fields
	marked   map[bootslot.Digest]leave  // by candidate: the leave under which it failed for good
	grants   map[bootslot.Digest]int    // `holdfast retry`, by declared content
	open     leave                      // of the newest trial
	tries    map[try]int                // trials that were not cancelled
	ended    map[try]int                // conclusive ones
	verdicts map[bootslot.EventKind]int // events, by kind
}

// leave is what a content may be tried under: its retry number, and how many times an operator has asked.
type leave struct {
	number uint64
	grants int
}

// try is a candidate under one leave.
type try struct {
	candidate bootslot.Digest
	leave     leave
}

func newBook() book {
	b := book{numbers: map[string]uint64{}, contents: map[bootslot.Digest]device.Fields{}, marked: map[bootslot.Digest]leave{},
		grants: map[bootslot.Digest]int{}, tries: map[try]int{}, ended: map[try]int{}, verdicts: map[bootslot.EventKind]int{}}
	for i := range 1 << 5 {
		f := device.Fields{}
		for bit, name := range []string{"pump", "fan", "vent", "lamp", "door"} {
			values := []string{"off", "on"}
			if name == "door" {
				values = []string{"closed", "open"}
			}
			f[name] = values[i>>bit&1]
		}
		b.contents[bootslot.Release{Fields: f}.Digest()] = f
	}
	return b
}

// read takes the events that are new, and returns the digests that became last-known-good in them.
func (b *book) read(events []bootslot.Event) (changed map[bootslot.Digest]bool, err error) {
	changed = map[bootslot.Digest]bool{}
	for _, e := range events {
		if e.Seq <= b.seq {
			continue
		}
		b.seq = e.Seq
		b.verdicts[e.Kind] += max(1, e.Count)
		if err := b.event(e, changed); err != nil {
			return nil, fmt.Errorf("event %d: %w (%+v)", e.Seq, err, e)
		}
	}
	return changed, nil
}

func (b *book) event(e bootslot.Event, changed map[bootslot.Digest]bool) error {
	const attempts = 3
	if e.Kind == bootslot.EventTrial {
		b.open = leave{b.numbers[e.Revision], b.grants[e.Declared]}
	}
	this := try{e.Digest, b.open} // for a verdict: what is asked for while a trial runs is for the next one
	mark := func() { b.marked[e.Digest] = b.open }
	switch e.Kind {
	case bootslot.EventRetry:
		b.grants[e.Declared]++
	case bootslot.EventTrial:
		if b.contents[e.Digest] == nil {
			return fmt.Errorf("a trial of what nobody can have declared")
		}
		if m, ok := b.marked[e.Digest]; ok && b.open.number <= m.number && b.open.grants <= m.grants {
			return fmt.Errorf("it had failed under %+v and is tried again under %+v", m, b.open)
		}
		if b.tries[this]++; b.tries[this] > attempts+1 {
			return fmt.Errorf("trial number %d", b.tries[this])
		}
	case bootslot.EventKind(bootslot.Cancelled):
		b.tries[this]--
		if e.Mark != 0 {
			mark()
		}
	case bootslot.EventKind(bootslot.Inconclusive):
		if e.Mark != 0 {
			mark()
			delete(b.tries, this)
		}
	case bootslot.EventKind(bootslot.Passed), bootslot.EventStands:
		if b.ended[this]++; b.ended[this] > 1 && e.Kind == bootslot.EventStands {
			return fmt.Errorf("conclusive trial number %d", b.ended[this])
		}
		delete(b.tries, this)
		if e.Kind == bootslot.EventStands {
			mark()
			break
		}
		fallthrough
	case bootslot.EventAdopted, bootslot.EventRollback:
		changed[e.Digest] = true
		delete(b.marked, e.Digest)
		b.ended[this] = 0
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
	// The history is a moment newer than the ledger, so what it told last time counts as well.
	old, was := s.ledger, s.changed
	s.ledger, s.changed = g.Ledger, maps.Clone(changed)
	maps.Copy(changed, was)
	return s.compareLedgers(old, g.Ledger, changed)
}

// compareLedgers checks that no mark was lost between two looks. changed are the digests that have been last-known-good in between.
func (s *soak) compareLedgers(old, l bootslot.Ledger, changed map[bootslot.Digest]bool) error {
	// The generation of a write that failed is used up for as long as that guard lives, and no longer.
	back := l.Generation < old.Generation && !s.full
	s.full = s.full && s.lasts("a full disk")
	if old.ID != "" && (l.ID != old.ID || back) {
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

// costs are what a process has used.
type costs struct {
	written int           // bytes of the page cache that were made dirty: from Linux 6.16 on whole folios, several times what reaches the disk
	cpu     time.Duration // of all threads
}

func (c costs) plus(d costs) costs { return costs{c.written + d.written, c.cpu + d.cpu} }

// costsOf reads what a running process has used so far (proc(5)).
func (s *soak) costsOf(who string) (c costs) {
	if s.w.procs[who].state() == "dead" {
		return costs{}
	}
	c.written = s.w.procField(s.t, who, "io", "write_bytes")
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.w.procs[who].cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	words := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	for _, i := range []int{11, 12} { // utime, stime, in hundredths of a second
		ticks, _ := strconv.Atoi(words[i])
		c.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	return c
}

// account keeps what a process has used that is about to end.
func (s *soak) account(who string) { s.spent[who] = s.spent[who].plus(s.costsOf(who)) }

// total is what each process has used in all its lives.
func (s *soak) total() map[string]costs {
	out := map[string]costs{}
	for _, who := range []string{"agent", "guard"} {
		out[who] = s.spent[who].plus(s.costsOf(who))
	}
	return out
}

// logged is how long the logs of agent and guard are, in bytes.
func (s *soak) logged() (n int64) {
	for _, who := range []string{"agent", "guard"} {
		if i, err := os.Stat(filepath.Join(s.w.logs(), who+".log")); err == nil {
			n += i.Size()
		}
	}
	return n
}

// usage is what a process holds at one moment.
type usage struct {
	birth                          int // which of its lives this is
	goroutines, threads, rss, peak int // rss and peak in kB
	files, sockets                 int // that are open
}

// sample is a board at rest.
type sample struct {
	at    time.Duration
	procs map[string]usage
	sizes map[string]int64 // of files, in bytes; others are all in the state folder besides
}

var watchedFiles = []string{"ledger.db", "ledger.json", "clone.db"}

// sample looks at a board at rest for some minutes, and takes the least of what it holds: a connection that is just being closed is not held.
func (s *soak) sample() (sample, error) {
	m := sample{procs: map[string]usage{}, sizes: map[string]int64{}}
	for i := range 10 {
		if err := s.live(s.p.now() + time.Minute); err != nil {
			return m, err
		}
		for _, who := range []string{"agent", "guard"} {
			_, goroutines, err := s.p.waitOf(who)
			if err != nil {
				return m, err
			}
			dir := fmt.Sprintf("/proc/%d/fd", s.w.procs[who].cmd.Process.Pid)
			fds, err := os.ReadDir(dir)
			if err != nil {
				return m, err
			}
			sockets := 0
			for _, fd := range fds {
				if to, _ := os.Readlink(filepath.Join(dir, fd.Name())); strings.HasPrefix(to, "socket:") {
					sockets++
				}
			}
			u := usage{birth: s.births[who], goroutines: goroutines, files: len(fds) - sockets, sockets: sockets, threads: s.w.procField(s.t, who, "status", "Threads"),
				rss: s.w.procField(s.t, who, "status", "VmRSS"), peak: s.w.procField(s.t, who, "status", "VmHWM")}
			if old := m.procs[who]; i > 0 {
				u.goroutines, u.rss = min(u.goroutines, old.goroutines), min(u.rss, old.rss)
				u.files, u.sockets = min(u.files, old.files), min(u.sockets, old.sockets)
			}
			m.procs[who] = u
		}
	}
	m.at = s.p.now()
	err := filepath.WalkDir(s.w.stateDir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		name := d.Name()
		if !slices.Contains(watchedFiles, name) {
			name = "others"
			m.sizes["number of files"]++
		}
		m.sizes[name] += info.Size()
		return err
	})
	return m, err
}

// row is a line of the report.
type row struct {
	sample
	costs               map[string]costs
	verdicts            map[bootslot.EventKind]int
	generation          uint64
	marks               int
	cycles, corrections int
	fetches             int64
	logged              int64
}

func (s *soak) row() {
	r := row{sample: s.calms[len(s.calms)-1], costs: s.total(), verdicts: maps.Clone(s.book.verdicts), marks: len(s.ledger.Marks), generation: s.ledger.Generation, logged: s.logged(),
		fetches: s.p.asked["upstream"].Load()}
	for _, who := range []string{"agent", "guard"} {
		reads, writes := s.w.recorders[who].counts()
		if who == "agent" {
			r.cycles = reads
		}
		r.corrections += writes
	}
	s.rows = append(s.rows, r)
}

// calmsTable is every sample, for a run that failed.
func (s *soak) calmsTable() string {
	var b strings.Builder
	for _, m := range s.calms {
		fmt.Fprintf(&b, "day %6.2f  agent %+v  guard %+v  %v\n", m.at.Hours()/24, m.procs["agent"], m.procs["guard"], m.sizes)
	}
	return b.String()
}

// report tells what was counted.
func (s *soak) report(took time.Duration) {
	var b strings.Builder
	line := func(what string, of func(row) any) {
		fmt.Fprintf(&b, "| %-32s |", what)
		for _, r := range s.rows {
			fmt.Fprintf(&b, " %9v |", of(r))
		}
		b.WriteByte('\n')
	}
	line("day", func(r row) any { return fmt.Sprintf("%.2f", r.at.Hours()/24) })
	line("agent's device cycles", func(r row) any { return r.cycles })
	line("requests to the repository", func(r row) any { return r.fetches })
	line("writes to the device", func(r row) any { return r.corrections })
	for _, k := range []bootslot.EventKind{bootslot.EventTrial, "passed", bootslot.EventStands, bootslot.EventEnvironment, "inconclusive", "cancelled",
		bootslot.EventRollback, bootslot.EventRetry, bootslot.EventRepaired} {
		line("history: "+string(k), func(r row) any { return r.verdicts[k] })
	}
	line("generation", func(r row) any { return r.generation })
	line("marks", func(r row) any { return r.marks })
	line("log of both, kB", func(r row) any { return r.logged / 1000 })
	for _, who := range []string{"agent", "guard"} {
		line(who+": lives", func(r row) any { return r.procs[who].birth })
		line(who+": dirtied for the disk, kB", func(r row) any { return r.costs[who].written / 1000 })
		line(who+": CPU, s", func(r row) any { return fmt.Sprintf("%.1f", r.costs[who].cpu.Seconds()) })
		line(who+": resident, kB", func(r row) any { return r.procs[who].rss })
		line(who+": peak of this life, kB", func(r row) any { return r.procs[who].peak })
		line(who+": goroutines", func(r row) any { return r.procs[who].goroutines })
		line(who+": threads", func(r row) any { return r.procs[who].threads })
		line(who+": open sockets", func(r row) any { return r.procs[who].sockets })
		line(who+": other open files", func(r row) any { return r.procs[who].files })
	}
	for _, f := range append(watchedFiles, "others") {
		line(f+", bytes", func(r row) any { return r.sizes[f] })
	}
	s.t.Logf("%.2f days in %v, passing over %v in %d steps\n%s", s.day(), took.Round(time.Second), s.p.passed.Round(time.Minute), s.p.steps, b.String())
	s.t.Logf("from storm to rest at most %v; %d calms; what happened: %v", s.slowest.Round(time.Minute), len(s.calms), s.counts)
}

// compare fails if something has grown: from the early to the late calms of one life of a process, or in the files from the first third to the last.
func (s *soak) compare(t *testing.T) {
	n := len(s.calms)
	if n < 6 {
		t.Errorf("%d calms are too few to compare", n)
		return
	}
	for _, who := range []string{"agent", "guard"} {
		lives := map[int][]usage{}
		for _, m := range s.calms {
			lives[m.procs[who].birth] = append(lives[m.procs[who].birth], m.procs[who])
		}
		for birth, us := range lives {
			if len(us) < 4 {
				continue
			}
			us = us[1:] // the first is its warming up
			early, late := us[:len(us)/2], us[len(us)/2:]
			for _, g := range []struct {
				what string
				of   func(usage) int
				more float64 // is no growth
			}{
				// Idle connections, with two goroutines each: up to two to the device and two between the processes, and, for 90 s of real time, those of
				// the client before the newest SIGHUP.
				{"goroutines", func(u usage) int { return u.goroutines }, 8},
				{"sockets", func(u usage) int { return u.sockets }, 4},
				{"other files", func(u usage) int { return u.files }, 0},
				{"kB resident", func(u usage) int { return u.rss }, 0.15 * float64(median(early, func(u usage) int { return u.rss }))},
			} {
				if a, b := median(early, g.of), median(late, g.of); float64(b-a) > g.more {
					t.Errorf("life %d of the %s: %d %s in its first calms, %d in its last", birth, who, a, g.what, b)
				}
			}
		}
	}
	first, last := s.calms[:n/3], s.calms[n-n/3:]
	for f, most := range map[string]int64{"ledger.db": 2 << 20, "ledger.json": s.explained(), "clone.db": 1 << 20, "others": 4 << 20, "number of files": 12} {
		of := func(m sample) int64 { return m.sizes[f] }
		if a, b := median(first, of), median(last, of); b > most {
			t.Errorf("%s: %d at first, %d at last, more than %d", f, a, b, most)
		}
	}
	if n := s.book.verdicts[bootslot.EventTrial]; n < 5 {
		t.Errorf("with %d trials it proves nothing: %v", n, s.book.verdicts)
	}
}

// explained is how long the record may be for what it holds, in bytes.
func (s *soak) explained() int64 {
	n := 1200 + 350*len(s.ledger.Tries)
	for _, m := range s.ledger.Marks {
		n += 500 + 75*(len(m.Candidates)+len(m.Declared)+len(m.OperatorDeclared))
	}
	return int64(n)
}

// median is the middle one of what of says.
func median[T any, N cmp.Ordered](all []T, of func(T) N) N {
	var ns []N
	for _, v := range all {
		ns = append(ns, of(v))
	}
	slices.Sort(ns)
	return ns[len(ns)/2]
}
