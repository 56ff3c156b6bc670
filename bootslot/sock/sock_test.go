package sock

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "guard.lock")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("4711\nleft behind by a killed one"), 0o644); err != nil {
		t.Fatal(err)
	}
	if Held(path) || Held(path+".gone") {
		t.Error("a file that was left behind, or none, is taken for a lock")
	}
	first, err := Lock(path, "guard")
	if err != nil {
		t.Fatalf("a file that was left behind is no lock: %v", err)
	}
	var running RunningError
	if _, err := Lock(path, "guard"); !errors.As(err, &running) || running.PID != os.Getpid() || !strings.Contains(err.Error(), "another guard is running") {
		t.Errorf("the second one gets %v, want RunningError with %d", err, os.Getpid())
	}
	if !Held(path) {
		t.Error("the lock is not seen")
	}
	first.Close()
	if Held(path) {
		t.Error("a lock that is gone is seen")
	}
	again, err := Lock(path, "guard")
	if err != nil {
		t.Fatalf("after the first one has gone: %v", err)
	}
	again.Close()
	if _, err := Lock(filepath.Join(path, "no", "folder"), "guard"); err == nil || errors.As(err, &running) {
		t.Errorf("no folder: %v", err)
	}
}

// The socket of a dead process is no obstacle, and who asks is known by the kernel's word.
func TestWhoAsks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	l, err := Listen(path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v; want 0660", info.Mode(), err)
	}
	srv := Server(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid, ok := UID(r)
		if !ok || uid != uint32(os.Getuid()) {
			t.Errorf("uid %d, %v; want %d", uid, ok, os.Getuid())
		}
		_, _ = io.WriteString(w, Who(r))
	}))
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(b), "200 OK") {
		t.Errorf("%s, %v", b, err)
	}
	srv.Close()
	<-served
}
