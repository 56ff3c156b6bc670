package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/device"
	"holdfast/device/clock"
)

// blockOf is the code block of docs/device-contract.md whose first line ends with name.
func blockOf(t *testing.T, name string) []byte {
	t.Helper()
	page, err := os.ReadFile("../../../docs/device-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, lang := range []string{"yaml", "python"} {
		if _, rest, ok := strings.Cut(string(page), "\n```"+lang+" "+name+"\n"); ok {
			text, _, _ := strings.Cut(rest, "\n```\n")
			return []byte(text + "\n")
		}
	}
	t.Fatalf("the page has no %s", name)
	return nil
}

// What integrators copy from the page works: its profile and fallback are valid, and its shim is a device.
func TestThePageForIntegrators(t *testing.T) {
	p, err := device.ParseProfile("profile.yaml", blockOf(t, "profile.yaml"), "fallback.yaml", blockOf(t, "fallback.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3, so the page's shim is not run: make deps")
	}
	dir := t.TempDir()
	shim, token := filepath.Join(dir, "shim.py"), filepath.Join(dir, "token")
	for file, data := range map[string][]byte{shim: blockOf(t, "shim.py"), token: []byte("sesame\n")} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, shim, "0")
	cmd.Env = append(os.Environ(), "DEVICE_TOKEN=sesame")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("its first line: %q, %v", line, err)
	}

	client := func(tokenFile string) *device.Client {
		c, err := device.NewClient(device.ClientOptions{URL: url, TokenFile: tokenFile, Profile: p, Clock: clock.New()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := client(token)
	if err := c.Health(ctx); err != nil {
		t.Error(err)
	}
	s, err := c.State(ctx)
	if err != nil || len(device.Unknown(p, s.Actuators)) > 0 || !p.HasReading("temperature") || s.Readings["temperature"] == 0 || s.ObservedAt.IsZero() {
		t.Errorf("state: %+v, %v", s, err)
	}

	// Drift is corrected, and what waits for a change hears of it.
	tag, err := c.WaitState(ctx, "")
	if err != nil || tag == "" {
		t.Fatalf("tag %q, %v", tag, err)
	}
	heard := make(chan string, 1)
	go func() {
		next, err := client("").WaitState(ctx, tag)
		if err != nil {
			next = err.Error()
		}
		heard <- next
	}()
	ck := clock.New()
	d := device.NewDriver(c, p, ck, time.Second)
	r := d.Drive(ctx, func(context.Context) (device.Target, error) {
		return device.Target{Generation: 1, Fields: p.Fallback, ReadAt: ck.Uptime()}, nil
	})
	if !r.Converged() || !slices.Equal(r.Written, []string{"valve"}) {
		t.Errorf("drive: %+v", r)
	}
	select {
	case next := <-heard:
		if next == tag || next == "" || strings.Contains(next, " ") {
			t.Errorf("after a change the tag is %q, before %q", next, tag)
		}
	case <-time.After(10 * time.Second):
		t.Error("what waits for a change did not hear of it")
	}

	// Refusals apply nothing.
	yes := func() error { return nil }
	var refused *device.RefusedError
	if _, err := c.Apply(ctx, device.Fields{"valve": "closed", "heater": "warm"}, yes); !errors.As(err, &refused) || !slices.Equal(refused.Allowed, []string{"on", "off"}) {
		t.Errorf("a value that it does not take: %v", err)
	}
	if _, err := c.Apply(ctx, device.Fields{"valve": "closed", "siren": "on"}, yes); !errors.As(err, &refused) || len(refused.Known) != 2 {
		t.Errorf("an unknown actuator: %v", err)
	}
	var status *device.StatusError
	if _, err := client("").Apply(ctx, device.Fields{"valve": "closed"}, yes); !errors.As(err, &status) || status.Status != 401 {
		t.Errorf("a write without the token: %v", err)
	}
	if s, err := c.State(ctx); err != nil || s.Actuators["valve"] != "open" {
		t.Errorf("after what was refused: %+v, %v", s, err)
	}
}
