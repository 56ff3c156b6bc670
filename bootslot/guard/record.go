package guard

import (
	"context"
	"errors"
	"fmt"
	"holdfast/bootslot"
	"holdfast/bootslot/journal"
	"holdfast/bootslot/ledger"
	"log/slog"
	"strings"
	"time"
)

// record is the part of the ledger's store that the guard needs.
type record interface {
	Save(bootslot.Step) error
	SaveRaw([]byte, []bootslot.Event) error
	Restore() error
	Append(...bootslot.Event) error
	History(n int) ([]bootslot.Event, error)
	HistoryBefore(before uint64, n int) ([]bootslot.Event, error)
	Raw() []byte
	Notices() []string
	Close() error
}

// verdict is a settlement that waits to be written.
type verdict struct {
	verdict  bootslot.Verdict
	evidence bootslot.Evidence
}

func (g *Guard) notices(notices []string) {
	for _, n := range notices {
		if g.problems[n] != "" {
			continue // a disk that stays as it is says the same at each attempt
		}
		g.log.Warn("storage", "event", journal.Storage, "message", n)
		g.problems[n], g.noticed[n] = n, g.clock.Uptime()
		if err := g.store.Append(bootslot.Event{Generation: g.ledger.Generation, At: g.clock.Now(), Kind: bootslot.EventRepaired, Message: n}); err != nil {
			g.log.Warn("history not written", "event", journal.CannotWrite, "error", err)
		}
	}
}

// forgetNotices withdraws what is over: a loss of the ledger when a slot is good again, everything else after a day.
func (g *Guard) forgetNotices(now time.Duration) {
	for n, at := range g.noticed {
		if now-at > noticeTime || n == ledger.Lost && g.ledger.HasGood() {
			delete(g.noticed, n)
			g.problem(n, "")
		}
	}
}

// boot settles a trial that was interrupted. Until that is written last-known-good is in force, and nothing is admitted.
func (g *Guard) boot() {
	if g.ledger.Trial == nil {
		return
	}
	if !g.ledger.Writable() {
		raw, open, err := bootslot.SettleForeign(g.store.Raw())
		if err == nil && open {
			err = g.store.SaveRaw(raw, nil)
		}
		if err != nil {
			g.log.Error("the trial of a newer guard's ledger cannot be settled", "event", journal.VerdictUnwritten, "error", err)
		}
		g.ledger.Trial = nil // never effective here, written or not
		g.ledger.Generation++
		return
	}
	s := bootslot.Boot(g.ledger, g.board, g.clock.Now())
	g.conclude(*s, bootslot.Inconclusive, bootslot.Evidence{Message: s.Events[0].Message})
}

// save stores a step and, once it is stored, makes it the guard's record. If it cannot be stored the record stays, but for its generation, which is
// never used twice: what failed may stand in one of the two files already.
func (g *Guard) save(s bootslot.Step) error {
	err := g.store.Save(s)
	if n := g.store.Notices(); len(n) > 0 {
		g.notices(n)
	}
	g.genSince = g.clock.Uptime()
	if g.takeFound(err) {
		return err
	}
	if err != nil {
		g.ledger.Generation = s.Ledger.Generation
		g.writeFailed(err)
		return err
	}
	g.ledger = s.Ledger
	g.writeErr = ""
	g.problem("ledger", "")
	for _, e := range s.Events {
		g.logEvent(e)
	}
	return nil
}

// takeFound goes on with the record that came to light when the files could be read at last, if err says so: what was decided without it is void, and a
// trial that is open in it was interrupted.
func (g *Guard) takeFound(err error) bool {
	var found *ledger.FoundError
	if !errors.As(err, &found) {
		return false
	}
	now := g.clock.Uptime()
	g.log.Warn("another record is in force", "event", journal.RecordFound, "generation", found.Ledger.Generation)
	// Its generations are not those of the record before, so the leases of that are another run's.
	g.ledger, g.instance, g.unwritten, g.writeErr = found.Ledger, newInstance(), nil, ""
	g.problem("ledger", "")
	g.settled, g.genSince = now, now
	g.boot()
	g.enter(now)
	return true
}

// restore finds out whether the disk can be written again, and takes back what is half written.
func (g *Guard) restore() {
	err := g.store.Restore()
	if n := g.store.Notices(); len(n) > 0 {
		g.notices(n)
	}
	switch {
	case g.takeFound(err):
	case err != nil:
		g.writeFailed(err)
	default:
		g.writeErr = ""
		g.problem("ledger", "")
	}
}

func (g *Guard) writeFailed(err error) {
	g.writeErr = err.Error()
	g.retryAt = g.clock.Uptime() + writeRetry
	g.problem("ledger", "the ledger cannot be written: "+err.Error())
}

// noticeTime is how long status shows that a file was set aside or rebuilt, which is over and done with; the history keeps it.
const noticeTime = 24 * time.Hour

// writeRetry is the pause between two attempts to write a record: a full disk is not mended by hammering it.
const writeRetry = 5 * time.Second

func (g *Guard) logEvent(e bootslot.Event) {
	args := []any{"event", journal.Kind(e.Kind), "generation", e.Generation}
	for _, a := range []struct {
		key, value string
	}{{"revision", e.Revision}, {"digest", e.Digest.Short()}, {"slot", string(e.Slot)}, {"fields", strings.Join(e.Fields, ",")},
		{"check", e.Check}, {"who", e.Who}, {"message", e.Message}} {
		if a.value != "" {
			args = append(args, a.key, a.value)
		}
	}
	if e.Declared != "" {
		args = append(args, "declared", journal.Only(e.Declared.Short()))
	}
	if e.Mark != 0 {
		args = append(args, "mark", e.Mark)
	}
	if e.Attempt != 0 {
		args = append(args, "attempt", e.Attempt)
	}
	level := slog.LevelInfo
	switch e.Kind {
	case bootslot.EventKind(bootslot.Failed), bootslot.EventKind(bootslot.Inconclusive), bootslot.EventEnvironment, bootslot.EventRollback, bootslot.EventMarkDropped:
		level = slog.LevelWarn // something was undone, or could not be judged
	}
	g.log.Log(context.Background(), level, string(e.Kind), args...)
}

// settle ends the open trial. If that cannot be written, last-known-good is in force all the same and the verdict is tried again; a pass that
// cannot be recorded is none.
func (g *Guard) settle(v bootslot.Verdict, ev bootslot.Evidence) {
	ev.At = g.clock.Now()
	if ev.During == nil {
		ev.During = g.readings()
	}
	g.conclude(bootslot.Settle(g.ledger, g.board, v, ev), v, ev)
}

// conclude stores a settlement.
func (g *Guard) conclude(s bootslot.Step, v bootslot.Verdict, ev bootslot.Evidence) {
	now := g.clock.Uptime()
	if err := g.save(s); errors.As(err, new(*ledger.FoundError)) {
		return // that trial never was
	} else if err != nil {
		if v == bootslot.Passed {
			v, ev = bootslot.Inconclusive, bootslot.Evidence{Message: "it passed, but that could not be recorded"}
		}
		if g.unwritten == nil { // said once, however often it is tried again
			g.log.Error("verdict not written, going back to last-known-good", "event", journal.VerdictUnwritten, "verdict", v, "error", err)
		}
		g.unwritten = &verdict{v, ev}
	} else {
		g.unwritten = nil
	}
	g.trialEnded(now)
	g.enter(now)
}

// closeReturning ends the phase after a failed trial.
func (g *Guard) closeReturning(held bool) {
	ev := bootslot.Evidence{At: g.clock.Now(), Message: g.recovery.Message(), During: g.readings()}
	if held {
		ev.Message = fmt.Sprintf("%s holds on last-known-good", g.ledger.Returning.Check)
	}
	if g.save(bootslot.CloseReturning(g.ledger, g.board, held, ev)) == nil {
		g.enter(g.clock.Uptime())
	}
}

// record logs an event that changes nothing in the ledger, and puts it into the history.
func (g *Guard) record(e bootslot.Event) {
	e.Generation, e.At = g.ledger.Generation, g.clock.Now()
	g.logEvent(e)
	if err := g.store.Append(e); err != nil {
		g.log.Warn("history not written", "event", journal.CannotWrite, "error", err)
	}
}
