package guard

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bootslot"
	"holdfast/bootslot/api"
	"holdfast/bootslot/ledger"
	"holdfast/bootslot/sock"
	"holdfast/device"
)

// Restore is part of what a full disk refuses.
func (f *fullDisk) Restore() error {
	if f.err != nil {
		return f.err
	}
	return f.record.Restore()
}

// A configuration that came in a trial is taken over however that ends, and one that came later is not undone by it.
func TestAReloadInATrialIsTakenOverAtItsEnd(t *testing.T) {
	for name, end := range map[string]func(b *bench){
		"rollback": func(b *bench) {
			b.g.mu.Lock()
			defer b.g.mu.Unlock()
			s, err := bootslot.Rollback(b.g.ledger, b.g.board, false, nil, "me", time.Time{})
			if _, err := b.g.commit(s, err, "me"); err != nil {
				b.Fatal(err)
			}
		},
		"not desired any more": func(b *bench) { b.wish(0) },
		"goodbye":              func(b *bench) { b.g.goodbye("stopped") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "")
			b.try(0, "lamp", "on")
			first, second := b.cfg, b.cfg
			first.Guard.Attempts, second.Guard.Attempts = 7, 9
			b.reconfigure(first)
			b.want("attempts in the trial", b.g.board.Attempts, 3)
			end(b)
			b.want("phase", b.g.phase(), api.PhaseIdle)
			b.want("attempts after it", b.g.board.Attempts, 7)
			b.reconfigure(second)
			b.try(0, "fan", "on")
			b.g.goodbye("stopped")
			b.want("attempts after the next trial", b.g.board.Attempts, 9)
		})
	}
}

func TestFoldersChangeOnlyWithARestart(t *testing.T) {
	b := newBench(t, "")
	c := b.cfg
	c.State, c.Run, c.Guard.Attempts = "/elsewhere", "/elsewhere-run", 5
	b.reconfigure(c)
	b.want("state", b.g.cfg.State, b.cfg.State)
	b.want("run", b.g.cfg.Run, b.cfg.Run)
	b.want("attempts", b.g.board.Attempts, 5)
	b.want("problems", len(b.g.problems), 1)
	b.reconfigure(b.cfg)
	b.want("problems when it is put right", len(b.g.problems), 0)
}

// The record cannot be read when the guard starts, because its disk comes late. Nothing that is in it is lost.
func TestARecordThatComesToLight(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.temp = 50
	b.pass(5 * time.Second)
	b.temp = 20
	b.pass(40 * time.Second)
	b.try(0, "fan", "on") // open when the power goes
	marks := len(b.g.ledger.Marks)
	b.want("marks", marks, 1)

	dir := b.cfg.GuardFolder()
	if err := errors.Join(b.g.store.Close(), os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	b.start()
	instance := b.g.instance
	b.want("phase without a record", b.g.phase(), api.PhaseIdle)
	b.want("problems without a record", len(b.g.problems) > 0, true)
	b.pass(3 * time.Second)
	if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
		t.Fatal(err)
	}
	b.pass(10 * time.Second)
	b.want("marks", len(b.g.ledger.Marks), marks)
	b.want("the interrupted attempt", b.g.ledger.Tries[0].Count, 1)
	b.want("phase", b.g.phase(), api.PhaseIdle)
	b.want("another instance", b.g.instance != instance, true)
	b.want("can it be written", b.g.problems["ledger"], "")
	b.pass(40 * time.Second)
	b.want("the marked content", b.wish(0, "lamp", "on").Kind, bootslot.Held)
	b.crash()
	b.want("marks after a crash", len(b.g.ledger.Marks), marks)
}

// The same, and the first to find out is a wish.
func TestARecordThatAWishBringsToLight(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.temp = 50
	b.pass(5 * time.Second)
	b.temp = 20
	b.pass(40 * time.Second)
	dir := b.cfg.GuardFolder()
	if err := errors.Join(b.g.store.Close(), os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	b.start()
	for range 40 { // the disk is asked for every 5 s, in vain
		b.pass(time.Second)
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
		t.Fatal(err)
	}
	b.g.writeErr = "" // so that nobody else looks
	b.want("decision", b.wish(0, "lamp", "on").Kind, bootslot.Refused)
	b.want("marks", len(b.g.ledger.Marks), 1)
	b.want("effective lamp", b.lease().Fields["lamp"], "off")
	b.pass(40 * time.Second)
	b.want("the marked content", b.wish(0, "lamp", "on").Kind, bootslot.Held)
}

// A disk that can be written again is seen with nothing to write, and what is half written is taken back.
func TestADiskThatIsWellAgain(t *testing.T) {
	b := newBench(t, "")
	b.pass(20 * time.Second)
	b.disk.err = unix.ENOSPC
	b.want("decision", b.wish(0, "lamp", "on").Kind, bootslot.Refused)
	b.wish(0) // nothing is desired any more that would have to be written
	b.pass(20 * time.Second)
	b.want("problem", b.g.problems["ledger"] != "", true)
	b.disk.err = nil
	b.pass(6 * time.Second)
	b.want("problem", b.g.problems["ledger"], "")
}

// A disk that stays full fills no log.
func TestAVerdictThatWaitsIsToldOnce(t *testing.T) {
	b := newBench(t, "")
	var log strings.Builder
	b.g.log = slog.New(slog.NewTextHandler(&log, nil))
	b.try(0, "lamp", "on")
	b.temp = 50
	b.disk.err = unix.ENOSPC
	b.pass(time.Minute)
	b.want("lines", strings.Count(log.String(), "verdict not written"), 1)
}

type saysTwice struct{ record }

func (saysTwice) Notices() []string { return []string{"ledger.db cannot be opened for writing"} }

func TestANoticeIsToldOnce(t *testing.T) {
	b := newBench(t, "")
	b.g.store = saysTwice{b.g.store}
	b.pass(20 * time.Second)
	for range 3 {
		b.try(0, "lamp", "on")
		b.wish(0)
	}
	b.want("problems", len(b.g.problems), 1)
}

// What is over is no problem any more: a lost ledger when a slot is good again, a file that was set aside after a day. The history keeps both.
func TestNoticesThatAreOver(t *testing.T) {
	b := newBench(t, "")
	dir := filepath.Join(b.cfg.State, "guard")
	if err := b.g.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ledger.db", "ledger.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("junk"), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	b.start()
	b.pass(20 * time.Second)
	b.want("problems at first", len(b.g.problems), 3)
	b.want("lost", b.g.problems[ledger.Lost], ledger.Lost)
	b.try(0, "lamp", "on")
	b.want("lost in the trial", b.g.problems[ledger.Lost], ledger.Lost)
	for range 60 {
		if b.g.ledger.HasGood() {
			break
		}
		b.pass(tickEvery)
	}
	b.want("active", b.g.ledger.HasGood(), true)
	b.want("lost when a slot is good", b.g.problems[ledger.Lost], "")
	b.want("problems when a slot is good", len(b.g.problems), 2)
	b.clock.up += noticeTime
	b.g.tick()
	b.want("problems after a day", len(b.g.problems), 0)
	events, err := b.g.store.History(0)
	if err != nil {
		t.Fatal(err)
	}
	repaired := 0
	for _, e := range events {
		if e.Kind == bootslot.EventRepaired {
			repaired++
		}
	}
	b.want("in the history", repaired, 3)
}

// The record stays small, whatever the device tells.
func TestEvidenceHasTheProfilesReadingsOnly(t *testing.T) {
	b := newBench(t, "")
	b.try(0, "lamp", "on")
	b.clock.up += time.Second
	b.g.observed(device.State{Actuators: b.state, Readings: map[string]float64{"temperature": 50, "x": 1, "y": 2}}, nil, b.clock.up)
	b.temp = 50
	b.g.settle(bootslot.Failed, bootslot.Evidence{Check: "not-too-hot"})
	m := b.g.ledger.Marks[0]
	b.want("readings during", len(m.During), 1)
	b.want("temperature", m.During["temperature"], 50.0)
}

func TestAStoppingGuardStartsNothing(t *testing.T) {
	b := newBench(t, "")
	b.pass(20 * time.Second)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := b.g.Run(ctx); err != nil {
		t.Fatal(err)
	}
	d := b.wish(0, "lamp", "on")
	b.want("decision", d.Kind, bootslot.Refused)
	b.want("reason", d.Reason, "the guard is stopping")
}

// A peer that never ends its request is let go: half of one is no reason to be kept waiting for ever.
func TestSlowPeersAreLetGo(t *testing.T) {
	t.Parallel()
	b := newBench(t, "")
	dir, err := os.MkdirTemp("", "hf") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := sock.Listen(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- b.g.Serve(ctx, l) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for _, request := range []string{
		"POST /v1/rollback HTTP/1.1\r\nHost: g\r\nContent-Length: 1000\r\n\r\n{",
		"POST /v1/rollback HTTP/1.1\r\nHo",
	} {
		c, err := net.Dial("unix", filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(6 * sock.RequestTime))
		answer, err := io.ReadAll(c)
		if err != nil {
			t.Errorf("%q is still open: %v, %q", request, err, answer)
		}
		if strings.Contains(string(answer), "200 OK") {
			t.Errorf("%q: %q", request, answer)
		}
	}
}
