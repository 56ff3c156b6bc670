package boltfile

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"holdfast/tools/faultfs"
)

var long = flag.Bool("long", false, "also what is too long for every day")

// change makes some random changes to a file, as bbolt makes them: buckets in buckets, keys that go, values of many pages.
func change(t *testing.T, db *bolt.DB, r *rand.Rand) {
	t.Helper()
	err := db.Update(func(tx *bolt.Tx) error {
		for range 1 + r.IntN(30) {
			b, err := tx.CreateBucketIfNotExists([]byte{'a' + byte(r.IntN(3))})
			if err == nil && r.IntN(3) == 0 {
				b, err = b.CreateBucketIfNotExists([]byte("nested"))
			}
			if err != nil {
				return err
			}
			key := fmt.Appendf(nil, "%04d", r.IntN(400))
			switch r.IntN(8) {
			case 0, 1:
				err = b.Delete(key)
			case 2:
				err = b.Put(key, make([]byte, r.IntN(20_000)))
			case 3:
				err = tx.DeleteBucket([]byte{'a' + byte(r.IntN(3))})
				if err != nil {
					err = nil // there was none
				}
			default:
				err = b.Put(key, make([]byte, r.IntN(300)))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// made is a file that bbolt has made, of a few pages of each kind.
func made(t *testing.T, path string, changes int) []byte {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, uint64(changes)))
	for range changes {
		change(t, db, r)
		f, err := os.Open(path)
		if err == nil {
			err = errors.Join(CheckFile(f), f.Close())
		}
		if err != nil {
			t.Fatalf("a file that bbolt has made: %v", err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What bbolt makes is let through, whatever was done to it.
func TestWhatBoltMakesIsLetThrough(t *testing.T) {
	t.Parallel()
	n := faultfs.Pick(*long, 30, 150, 2000)
	made(t, filepath.Join(t.TempDir(), "f"), n)
}

// use does with a file what a program does: opens it, reads all of it, writes to it.
func use(path string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, Timeout: time.Second, MaxSize: 64 << 20})
	if err != nil {
		return err
	}
	defer db.Close()
	var walk func(b *bolt.Bucket) error
	walk = func(b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return walk(b.Bucket(k))
			}
			return nil
		})
	}
	for i := range 3 {
		err = db.Update(func(tx *bolt.Tx) error {
			if err := tx.ForEach(func(_ []byte, b *bolt.Bucket) error { return walk(b) }); err != nil {
				return err
			}
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			for k := range 12 {
				err = errors.Join(err, b.Put(fmt.Appendf(nil, "%04d", 13*k+i), make([]byte, 500)), b.Delete(fmt.Appendf(nil, "%04d", 7*k+i)))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// What is let through bbolt can use: it neither panics, nor turns in a circle, nor grows without end. Without the check one flipped bit does each of that.
func TestWhatIsLetThroughBoltCanUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := made(t, filepath.Join(dir, "whole"), 12)
	path := filepath.Join(faultfs.Scratch(t), "f")
	through, held := 0, 0
	try := func(what string, b []byte) {
		if err := Check(bytes.NewReader(b), int64(len(b))); err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v, want ErrDamaged", what, err)
			}
			held++
			return
		}
		through++
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := use(path); err != nil {
			t.Errorf("%s is let through, and bbolt says %v", what, err)
		}
	}
	step := faultfs.Pick(*long, 10_007, 1009, 3) // bits
	used := 0
	for page := 0; page < len(whole); page += 4096 {
		b := bytes.Clone(whole)
		clear(b[page : page+4096])
		if page >= 8192 && Check(bytes.NewReader(b), int64(len(b))) == nil {
			continue // nobody looks at it
		}
		used++
		for at := page * 8; at < (page+4096)*8; at += step {
			b := bytes.Clone(whole)
			b[at/8] ^= 1 << (at % 8)
			try(fmt.Sprintf("a flipped bit, %d.%d", at/8, at%8), b)
		}
		// Where a page begins there is more to break.
		for at := page; at < page+faultfs.Pick(*long, 24, 80, 80); at++ {
			for _, with := range []byte{0x00, 0xFF, whole[at] ^ 1<<(at%8)} {
				b := bytes.Clone(whole)
				b[at] = with
				try(fmt.Sprintf("%#02x at %d", with, at), b)
			}
		}
		for _, size := range []int{64, 512, 4096} {
			for _, with := range []byte{0x00, 0xFF} {
				b := bytes.Clone(whole)
				copy(b[page:], bytes.Repeat([]byte{with}, size))
				try(fmt.Sprintf("%d times %#02x at %d", size, with, page), b)
			}
		}
		try(fmt.Sprintf("cut at %d", page), whole[:page])
		try(fmt.Sprintf("cut at %d", page+17), whole[:page+17])
		// A page that stands in the place of another.
		for other := 0; other < len(whole); other += 4096 {
			if other != page {
				b := bytes.Clone(whole)
				copy(b[page:page+4096], whole[other:other+4096])
				try(fmt.Sprintf("page %d at %d", other/4096, page/4096), b)
			}
		}
	}
	t.Logf("%d pages, of which %d are used; %d let through, %d held back", len(whole)/4096, used, through, held)
	if through == 0 || held == 0 {
		t.Error("that shows nothing")
	}
}

// What is looked at is the state in force, and not the one before it: each page that the last transaction has written.
func TestTheStateInForceIsLookedAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	before := made(t, path, 8)
	for n := range 4 { // the two states take turns on the meta pages
		db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		change(t, db, rand.New(rand.NewPCG(2, uint64(n))))
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := 0
		for page := 8192; page < min(len(before), len(after)); page += 4096 {
			if bytes.Equal(after[page:page+4096], before[page:page+4096]) {
				continue
			}
			changed++
			b := bytes.Clone(after)
			clear(b[page : page+4096])
			if after[page+8] != 0 && Check(bytes.NewReader(b), int64(len(b))) == nil { // not the rest of a value
				t.Errorf("change %d: page %d is not looked at", n, page/4096)
			}
		}
		if changed == 0 {
			t.Errorf("change %d has changed nothing", n)
		}
		before = after
	}
}

func TestADiskThatCannotReadIsNotDamage(t *testing.T) {
	whole := made(t, filepath.Join(t.TempDir(), "f"), 5)
	for n := range 5 {
		if err := Check(&failing{bytes.NewReader(whole), n}, int64(len(whole))); !errors.Is(err, unix.EACCES) || errors.Is(err, ErrDamaged) {
			t.Errorf("read %d fails: %v", n, err)
		}
	}
}

type failing struct {
	*bytes.Reader
	left int
}

func (f *failing) ReadAt(b []byte, at int64) (int, error) {
	if f.left--; f.left < 0 {
		return 0, unix.EACCES
	}
	return f.Reader.ReadAt(b, at)
}

// The lock is waited for, and held by whoever the file was opened for.
func TestOpener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	made(t, path, 3)
	var first, second *os.File
	f, err := Opener(&first, time.Second, false)(path, os.O_RDWR, 0)
	if err != nil || f != first {
		t.Fatal(err)
	}
	if _, err := Opener(&second, 60*time.Millisecond, false)(path, os.O_RDONLY, 0); !errors.Is(err, ErrLocked) {
		t.Errorf("opened again: %v", err)
	}
	if err := LetGo(first); err != nil {
		t.Error(err)
	}
	if f, err := Opener(&second, time.Second, false)(path, os.O_RDWR, 0); err != nil {
		t.Errorf("opened after it was let go of: %v", err)
	} else {
		f.Close()
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Opener(&second, time.Second, false)(path, os.O_RDWR|os.O_CREATE, 0); !errors.Is(err, ErrDamaged) {
		t.Errorf("an empty file, which bbolt would fill: %v", err)
	}
	if _, err := Opener(&second, time.Second, false)(path+"2", os.O_RDWR|os.O_CREATE, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file, which bbolt would make: %v", err)
	}
}
