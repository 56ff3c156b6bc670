package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r, w := io.Pipe()
	code := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		code <- run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--speed", "60", "--start-hour", "3"}, w, &stderr)
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("first line %q", line)
	}
	get := func(path string) string {
		resp, err := http.Get(url + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b)
	}
	if got := get("/healthz"); got != `{"status":"ok"}`+"\n" {
		t.Errorf("GET /healthz: %s", got)
	}
	if got := get("/sim"); !strings.Contains(got, `"hour":3.`) && !strings.Contains(got, `"hour":3,`) || !strings.Contains(got, `"speed":60`) {
		t.Errorf("GET /sim: %s", got)
	}
	// One request hangs while the process is told to stop: that must not keep it.
	if resp, err := http.Post(url+"/sim/faults", "", strings.NewReader(`{"kind":"hang"}`)); err != nil || resp.StatusCode != 200 {
		t.Fatalf("POST /sim/faults: %v, %v", resp, err)
	}
	hung := make(chan string, 1)
	go func() { hung <- get("/state") }()
	time.Sleep(50 * time.Millisecond)
	stop()
	select {
	case c := <-code:
		if c != exitFine {
			t.Errorf("exit code %d, stderr %s", c, stderr.String())
		}
	case <-time.After(5 * time.Second):
		t.Fatal("does not stop")
	}
	<-hung
}

func TestMisuse(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		says string // on stdout or stderr
	}{
		{nil, exitMisuse, "serve"},
		{[]string{"help"}, exitFine, "serve"},
		{[]string{"sing"}, exitMisuse, `unknown verb "sing"`},
		{[]string{"serve", "--help"}, exitFine, "/sim/faults"},
		{[]string{"serve", "--speed", "-1", "--start-hour", "24", "--token-file", "/nowhere"}, exitMisuse, "start hour 24"},
		{[]string{"serve", "now"}, exitMisuse, `unexpected argument "now"`},
		{[]string{"serve", "--loud"}, exitMisuse, "loud"},
		{[]string{"serve", "--listen", "127.0.0.1:99999"}, exitNotFine, "cannot listen"},
	} {
		var out bytes.Buffer
		if code := run(context.Background(), tt.args, &out, &out); code != tt.code || !strings.Contains(out.String(), tt.says) {
			t.Errorf("greenhouse %s: exit %d, want %d; it says %s", strings.Join(tt.args, " "), code, tt.code, out.String())
		}
	}
}
