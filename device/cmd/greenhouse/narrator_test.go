package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/device/clock"
	"holdfast/device/greenhouse"
)

// seeing is a view of a board whose processes live.
func seeing(t *testing.T, text string) view {
	t.Helper()
	v := view{Phase: "idle"}
	v.Guard.Alive, v.Agent.Alive = true, true
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestADecisionIsToldOnceItStands(t *testing.T) {
	const held = `{"declared":{"revision":"bbbbbbbbb","digest":"2"},"decision":{"kind":"held","retryNumber":1,"held":[{"field":"lamp","keep":"off"}]}}`
	for _, tt := range []struct {
		name  string
		views []string // each stands for two seconds
		says  []string // what is told of each; "" for nothing
	}{
		{"the first state is adopted, which is told by its event", []string{
			`{"declared":{"revision":"aaaaaaaaa","digest":"1"},"decision":{"kind":"same"}}`,
		}, []string{""}},
		{"held, and the same content again", []string{
			held, strings.Replace(held, "bbbbbbbbb", "ccccccccc", 1),
		}, []string{"held at last-known-good: lamp=off; a line `retry: 1`", "ccccccc declares the same content: held, not tried again"}},
		{"held, and not any more", []string{
			held, `{"declared":{"revision":"ddddddddd","digest":"3"},"decision":{"kind":"same"}}`,
		}, []string{"held at", "nothing is held any more"}},
		{"a pause", []string{
			`{"declared":{"revision":"eeeeeeeee","digest":"4"},"decision":{"kind":"refused","reason":"a pause of 2s is left"}}`,
		}, []string{"eeeeeee is not tried yet: a pause of 2s is left"}},
		{"a baseline is waited for", []string{
			`{"declared":{"revision":"eeeeeeeee","digest":"4"},"decision":{"kind":"baseline","reason":"not held"}}`,
			`{"declared":{"revision":"eeeeeeeee","digest":"4"},"decision":{"kind":"baseline","reason":"not held"}}`,
			`{"declared":{"revision":"eeeeeeeee","digest":"4"},"decision":{"kind":"baseline","reason":"not held"}}`,
		}, []string{"", "", "eeeeeee is tried as soon as the checks hold before it: not held"}},
		{"the guard is dead: what it would decide is not told", []string{strings.Replace(held, "{", `{"guard":{"alive":false},`, 1)}, []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d decisions
			at := time.Unix(0, 0)
			for i, text := range tt.views {
				v := seeing(t, text)
				got := d.next(v, at)
				at = at.Add(2 * time.Second)
				got += d.next(v, at)
				if got != tt.says[i] && (tt.says[i] == "" || !strings.HasPrefix(got, tt.says[i])) {
					t.Errorf("view %d: %q, want %q", i, got, tt.says[i])
				}
				if again := d.next(v, at); again != "" {
					t.Errorf("view %d: told twice: %q", i, again)
				}
			}
		})
	}
}

func TestTheGitErrorIsToldWithItsText(t *testing.T) {
	var out bytes.Buffer
	n := narrator{b: &board{out: &out, start: time.Now()}}
	for _, text := range []string{
		`{"git":{"state":"ok","remoteRevision":"a"}}`,
		`{"git":{"state":"file-invalid","message":"greenhouse.yaml:5:7: pump: found \"perhaps\"\ngreenhouse.yaml:6: lamp: missing","advice":"mend the file","remoteRevision":"b"}}`,
		`{"git":{"state":"file-invalid","message":"greenhouse.yaml:5:7: pump: found \"perhaps\"\ngreenhouse.yaml:6: lamp: missing","advice":"mend the file","remoteRevision":"b"}}`,
		`{"git":{"state":"ok","remoteRevision":"c"}}`,
	} {
		n.tellGit(seeing(t, text))
	}
	got := out.String()
	for _, want := range []string{`pump: found "perhaps"`, "lamp: missing", "mend the file", "can be read again"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q stands %d times in:\n%s", want, strings.Count(got, want), got)
		}
	}
}

// Nobody would see a door that is put back within milliseconds, but the device is told again what it was told last.
func TestDriftIsToldFromTheWrites(t *testing.T) {
	g, err := greenhouse.New(greenhouse.Options{Clock: clock.New()})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(g.Handler())
	defer srv.Close()
	var out bytes.Buffer
	b := &board{out: &out, start: time.Now(), device: srv.URL, moved: map[string]time.Time{}}
	n := narrator{b: b, written: map[string]string{"door": "closed"}, seen: seen{putBack: map[string]int{}}}
	write := func(body string) {
		resp, err := srv.Client().Post(srv.URL+"/actuators", "application/json", strings.NewReader(body))
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		n.readWrites(context.Background())
	}
	write(`{"vent":"on","lamp":"on"}`) // what is to be, for the first time
	write(`{"vent":"off"}`)            // a change
	if out.Len() > 0 {
		t.Errorf("no drift, but it is told: %s", out.String())
	}
	if err := b.set(context.Background(), "door", "open"); err != nil {
		t.Fatal(err)
	}
	write(`{"door":"closed"}`)
	if got := out.String(); !strings.Contains(got, "door had been moved, and is back at closed after") || n.seen.putBack["door"] != 1 {
		t.Errorf("drift that was corrected: %q, %v", got, n.seen.putBack)
	}
}

func TestWhatIsTyped(t *testing.T) {
	var out bytes.Buffer
	b := &board{out: &out, dir: t.TempDir(), start: time.Now()}
	err := b.obey(context.Background(), strings.NewReader("cut\n\nsing\nhelp\nquit\n"))
	if err != errQuit {
		t.Errorf("quit: %v", err)
	}
	if !b.cut.Load() {
		t.Error("cut: the network is still there")
	}
	for _, want := range []string{`"sing" is not known`, "--allow-empty -m again", "kill -9"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not told: %s", want, out.String())
		}
	}
	// That nothing more is typed ends nothing.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := b.obey(ctx, strings.NewReader("restore\n")); err != context.DeadlineExceeded || b.cut.Load() {
		t.Errorf("restore, and then nothing: %v, cut %v", err, b.cut.Load())
	}
}
