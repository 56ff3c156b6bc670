package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"holdfast/agent"
	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/api"
)

// steady is what a fault of the repository must leave as it is.
type steady struct {
	revision string // declared, "" for none
	files    map[string]fileState
}

// waitSteady waits until all is well and nothing is under way, and remembers how it stands.
func (w *world) waitSteady(more []string) (err error) {
	w.steady.revision = w.upstream.head()
	err = w.waitFor(append([]string{"git=ok", "declared=" + w.steady.revision, "decision=same", "drift=none", "driver=agent", "fine=yes"}, more...), waitLimit())
	if err != nil {
		return err
	}
	w.countWrites()
	w.steady.files, err = w.filesNow()
	return err
}

// unmoved reports what is not as it was when it was steady, and writes to the device since then or since count-writes.
func (w *world) unmoved(v status.View) error {
	errs := []error{w.writes([]string{"0"})}
	declared, decision := "", bootslot.DecisionKind("")
	if v.Declared != nil {
		declared = v.Declared.Revision
	}
	if v.Decision != nil {
		decision = v.Decision.Kind
	}
	if declared != w.steady.revision {
		errs = append(errs, fmt.Errorf("revision %q is declared, want %q", declared, w.steady.revision))
	}
	if v.Phase != api.PhaseIdle || decision != "" && decision != bootslot.Same {
		errs = append(errs, fmt.Errorf("the phase is %s, the decision %q: there was nothing to try", v.Phase, decision))
	}
	return errors.Join(errs...)
}

// fault waits for a state of the repository, with these texts in its message or advice, and demands that `holdfast status` tells of it as it
// is to, and that nothing else has come of it.
func (w *world) fault(args []string) error {
	if len(args) == 0 {
		return errors.New("fault KIND [TEXT…]")
	}
	kind, says := args[0], args[1:]
	if err := w.waitFor([]string{"git=" + kind}, waitLimit()); err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		v, text, err := w.status()
		if err != nil {
			return err
		}
		again, _, err := w.status()
		if err != nil {
			return err
		}
		g, unsaid := v.Git, []string(nil)
		for _, t := range says {
			if !strings.Contains(g.Message+"; "+g.Advice, t) {
				unsaid = append(unsaid, t)
			}
		}
		switch {
		case g.State == kind && len(unsaid) == 0 && g.Times == again.Git.Times && g.Message == again.Git.Message:
			w.story.note("%s", strings.Join(about(text, g), "\n"))
			if err := oneLine(text, g, says); err != nil {
				return err
			}
			if err := w.idle([]string{"1", "cycles"}); err != nil { // what was to come of it has come
				return err
			}
			if v, _, err = w.status(); err != nil {
				return err
			}
			return w.unmoved(v)
		case time.Since(began) > waitLimit():
			return fmt.Errorf("the repository is %s: %s; %s: want %s, and %q said", g.State, g.Message, g.Advice, kind, unsaid)
		}
	}
}

// status is what `holdfast status` says, as JSON and for people.
func (w *world) status() (v status.View, text string, err error) {
	out, errOut, _ := w.holdfast("status", "--json", "--config", w.configFile("agent"))
	if err := json.Unmarshal(out, &v); err != nil {
		return v, "", fmt.Errorf("holdfast status --json: %w: %s%s", err, out, errOut)
	}
	out, _, _ = w.holdfast("status", "--config", w.configFile("agent"))
	return v, string(out), nil
}

// about are the lines of a status that tell of the repository's state; those that only go on with what a file has wrong are left out.
func about(text string, g status.Git) (lines []string) {
	message, _, _ := strings.Cut(g.Message, "\n")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "      ") {
			continue
		}
		for _, sign := range []string{"the repository", "epository:", g.State + " since", message, g.Advice} {
			if sign != "" && strings.Contains(line, sign) {
				lines = append(lines, strings.TrimSpace(line))
				break
			}
		}
	}
	return lines
}

// oneLine reports why a status does not tell of a fault in one line, which says all there is to say.
func oneLine(text string, g status.Git, says []string) error {
	lines := about(text, g)
	if len(lines) != 1 {
		return fmt.Errorf("%d lines of the status are about %s, not one: %q\n%s", len(lines), g.State, lines, text)
	}
	times := "(1 try)"
	if g.Times != 1 {
		times = fmt.Sprintf("(%d tries)", g.Times)
	}
	var errs []error
	if alarm := g.State != status.GitOffline; strings.HasPrefix(lines[0], "! ") != alarm {
		errs = append(errs, fmt.Errorf("it is an alarm: %v, want %v", !alarm, alarm))
	}
	for _, part := range append([]string{g.State + " since " + g.Since.Format(time.DateTime), times, g.Advice}, says...) {
		if part == "" || !strings.Contains(lines[0], part) {
			errs = append(errs, fmt.Errorf("it does not say %q", part))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the status says %q:\n%w", lines[0], err)
	}
	return nil
}

// fetch asks for a fetch and waits until it has ended.
func (w *world) fetch() (s status.Agent, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit())
	defer cancel()
	c := agent.NewClient(filepath.Join(w.runDir(), "agent.sock"))
	asked, err := c.Reconcile(ctx, agent.ReconcileRequest{})
	for ; err == nil && s.GitCycles < asked.Fetch; time.Sleep(5 * time.Millisecond) {
		s, err = c.Status(ctx, nil)
	}
	return s, err
}

// badFetches makes N fetches of which each goes wrong at another place, and demands of each that it changes nothing. Whenever there is no
// place left, and the fetch is whole, the same content is pushed as a new revision.
func (w *world) badFetches(ts *testscript.TestScript, how string, n int) error {
	defer w.upstream.forge.set(func() { w.upstream.forge.spoil = spoil{} })
	told := map[string]bool{}
	for i, place := 0, 0; i < n; place++ {
		w.upstream.forge.set(func() {
			// Each end of a packet twice: the answer ends there, or the connection.
			w.upstream.forge.spoil = spoil{how: how, packets: place / 2, abort: place%2 == 1, at: place * 5}
		})
		s, err := w.fetch()
		if err != nil {
			return err
		}
		if s.Git.State == status.GitOK {
			if how != "cut" || place < 6 {
				return fmt.Errorf("%s at place %d: the fetch went well", how, place)
			}
			w.story.note("%d places to cut a fetch at", place)
			if err := errors.Join(w.waitSteady(nil), w.push(ts, []string{w.pushed}, true, false)); err != nil {
				return err
			}
			place = -1
			continue
		}
		i++
		if k := s.Git.State; k != "offline" && k != "protocol" && (k != "too-large" || how == "cut") {
			return fmt.Errorf("%s at place %d: %s: %s", how, place, k, s.Git.Message)
		}
		if err := w.compareFiles(w.steady.files, untouched); err != nil {
			return fmt.Errorf("%s at place %d: %w", how, place, err)
		}
		if !told[s.Git.State+s.Git.Message] {
			told[s.Git.State+s.Git.Message] = true
			if err := w.fault([]string{s.Git.State, s.Git.Message}); err != nil {
				return fmt.Errorf("%s at place %d: %w", how, place, err)
			}
		}
	}
	return nil
}

// cutPowerWhile boots, and cuts the power while a process writes the file that is to take the place of name. Should the process have been
// faster, all is as it was for another try.
func (w *world) cutPowerWhile(name string) error {
	at := w.inState(files[name])
	old, err := os.Stat(at)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	replacing := func() (began, ended bool) {
		_, err := os.Stat(at + ".new")
		now, e := os.Stat(at)
		return err == nil, e != nil || !os.SameFile(old, now)
	}
	for range 20 {
		if err := os.Remove(at + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := w.boot(); err != nil {
			return err
		}
		for start := time.Now(); ; {
			if began, ended := replacing(); began || ended {
				break
			}
			if time.Since(start) > waitLimit() {
				return fmt.Errorf("nobody replaces %s", name)
			}
		}
		if err := w.signal("agent", syscall.SIGSTOP); err != nil {
			return err
		}
		began, ended := replacing()
		if err := w.powerCut(); err != nil || began && !ended {
			return err
		}
		w.story.note("%s was replaced too soon, once more", name)
		if err := os.WriteFile(at, content, 0o600); err != nil {
			return err
		}
		if old, err = os.Stat(at); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s was always replaced too soon", name)
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.Local)
	gone := status.Git{State: "branch-gone", Since: at, Times: 3, Message: "there is no branch main", Advice: "create it"}
	good := "  ! the repository: branch-gone since 2026-05-01 12:00:00 (3 tries): there is no branch main; create it\n"
	for name, tt := range map[string]struct {
		text string
		want string // part of the complaint
	}{
		"good":           {"1111111 is in force\n" + good + "\n  repository    head 1111111\n", ""},
		"none":           {"1111111 is in force\n", "0 lines"},
		"twice":          {good + "  · repository: create it\n", "2 lines"},
		"not a fault":    {strings.Replace(good, "!", "·", 1), "an alarm: false, want true"},
		"no advice":      {strings.Replace(good, "; create it", "", 1), "create it"},
		"not since when": {strings.Replace(good, " since 2026-05-01 12:00:00", "", 1), "since"},
		"not how often":  {strings.Replace(good, " (3 tries)", "", 1), "3 tries"},
		"not what":       {strings.Replace(good, "branch main", "thing", 1), "branch main"},
	} {
		err := oneLine(tt.text, gone, []string{"branch main"})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want a complaint with %q", name, err, tt.want)
		}
	}
}
