package boltstore

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

const killEnv = "HOLDFAST_KILL_TEST"

// publishForEver is the process that gets killed.
func publishForEver(path string) {
	s, _, err := Open(path, Options{})
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		if err := publish(s, i); err != nil {
			fmt.Println("update:", err)
			os.Exit(1)
		}
		fmt.Println("published") // killed from here on
	}
}

func publish(s *Store, i int) error {
	doc := fmt.Sprintf("pump: on # %d %d\n", os.Getpid(), i)
	return s.Update(func(tx *Tx) error {
		h, err := tx.SetEncodedObject(blob(doc))
		return errors.Join(err,
			tx.PruneObjects(map[plumbing.Hash]bool{h: true}),
			tx.SetReference(plumbing.NewHashReference("refs/heads/main", h)),
			tx.SetShallow([]plumbing.Hash{h}),
			tx.Put("document", []byte(doc)))
	})
}

// TestKilledAtRandom: whenever the process dies, the next one finds one publish, whole, and needs nothing done by hand.
// (A kill does not lose what the kernel has; what a power cut can do is argued in store.go.)
func TestKilledAtRandom(t *testing.T) {
	if path := os.Getenv(killEnv); path != "" {
		publishForEver(path)
	}
	path := filepath.Join(t.TempDir(), "clone.db")
	for i := range 25 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAtRandom$")
		cmd.Env = append(os.Environ(), killEnv+"="+path, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || line != "published\n" {
			t.Fatalf("child %d says %q, %v", i, line, err)
		}
		time.Sleep(rand.N(4 * time.Millisecond)) // anywhere in what follows: the point of the test
		_ = cmd.Process.Kill()
		_ = cmd.Wait()

		s, aside, err := Open(path, Options{})
		if err != nil || aside != nil {
			t.Fatalf("after kill %d: Open = %v, set aside %v", i, err, aside)
		}
		doc, err := s.Value("document")
		if err != nil {
			t.Fatalf("after kill %d: %v", i, err)
		}
		h := plumbing.ComputeHash(plumbing.BlobObject, doc)
		ref, err1 := s.Reference("refs/heads/main")
		sh, err2 := s.Shallow()
		if err := errors.Join(err1, err2, s.HasEncodedObject(h)); err != nil || ref.Hash() != h || len(sh) != 1 || sh[0] != h {
			t.Fatalf("after kill %d: parts of two publishes: %v, ref %v, shallow %v, want %s", i, err, ref, sh, h)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
