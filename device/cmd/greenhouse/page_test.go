package main

import (
	"bufio"
	"context"
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

// page is what integrators read.
func page(t *testing.T) []byte {
	t.Helper()
	page, err := os.ReadFile("../../../docs/device-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// blockOf is the code block of the page whose first line ends with name.
func blockOf(t *testing.T, name string) []byte {
	t.Helper()
	for _, lang := range []string{"yaml", "python"} {
		if _, rest, ok := strings.Cut(string(page(t)), "\n```"+lang+" "+name+"\n"); ok {
			text, _, _ := strings.Cut(rest, "\n```\n")
			return []byte(text + "\n")
		}
	}
	t.Fatalf("the page has no %s", name)
	return nil
}

// pageProfile is the profile that the page shows.
func pageProfile(t *testing.T) device.Profile {
	t.Helper()
	p, err := device.ParseProfile("profile.yaml", blockOf(t, "profile.yaml"), "fallback.yaml", blockOf(t, "fallback.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// startShim runs a shim of the page, and returns the folder that it is in and its address. Its token is sesame.
func startShim(t *testing.T, name string) (dir, url string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3, so the page's shims are not run: make deps")
	}
	dir = t.TempDir()
	for file, data := range map[string][]byte{"shim.py": blockOf(t, "shim.py"), "tagged.py": blockOf(t, "tagged.py"), "token": []byte("sesame\n")} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, python, filepath.Join(dir, name), "0")
	cmd.Env = append(os.Environ(), "DEVICE_TOKEN=sesame")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("its first line: %q, %v", line, err)
	}
	return dir, url
}

// What integrators copy from the page works: its profile and fallback are valid, and Holdfast drives its shim. TestContract asks it the rest.
func TestThePageForIntegrators(t *testing.T) {
	p := pageProfile(t)
	dir, url := startShim(t, "tagged.py")
	token := filepath.Join(dir, "token")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
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
}
