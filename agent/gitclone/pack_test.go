package gitclone

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// packWriter writes packs that no git would.
type packWriter struct{ bytes.Buffer }

func newPack(count uint32) *packWriter {
	w := &packWriter{}
	w.WriteString("PACK")
	_ = binary.Write(w, binary.BigEndian, uint32(2))
	_ = binary.Write(w, binary.BigEndian, count)
	return w
}

// object writes an object whose header claims size; extra goes between header and content (a delta's base).
func (w *packWriter) object(typ plumbing.ObjectType, size int64, extra, content []byte) int {
	at := w.Len()
	b := byte(typ)<<4 | byte(size&15)
	size >>= 4
	for size > 0 {
		w.WriteByte(b | 0x80)
		b = byte(size & 0x7f)
		size >>= 7
	}
	w.WriteByte(b)
	w.Write(extra)
	z := zlib.NewWriter(w)
	_, _ = z.Write(content)
	_ = z.Close()
	return at
}

func (w *packWriter) done() *bytes.Reader {
	sum := sha1.Sum(w.Bytes())
	w.Write(sum[:])
	return bytes.NewReader(w.Bytes())
}

func varint(n int) []byte {
	var b []byte
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

// TestHostilePacks: each is refused with bounded memory, whatever it claims.
func TestHostilePacks(t *testing.T) {
	o := Options{MaxPackBytes: 1 << 20, MaxMemoryBytes: 4 << 20, MaxFileBytes: 64 << 10, MaxObjects: 1000}.withDefaults()
	zeros := make([]byte, 3<<20)
	small := []byte("pump: on\n")
	ref := func(content []byte) []byte { h := plumbing.ComputeHash(plumbing.BlobObject, content); return h[:] }
	tests := []struct {
		name string
		pack func() *bytes.Reader
		kind Kind // "" if it may be read, but not hold what is asked for
	}{
		{"claims a million objects", func() *bytes.Reader { return newPack(1_000_000).done() }, ErrTooLarge},
		{"claims an object of 1 TiB", func() *bytes.Reader {
			w := newPack(1)
			w.object(plumbing.TreeObject, 1<<40, nil, small)
			return w.done()
		}, ErrTooLarge},
		{"inflates for ever", func() *bytes.Reader {
			w := newPack(20)
			for range 20 {
				w.object(plumbing.BlobObject, int64(len(zeros)), nil, zeros)
			}
			return w.done()
		}, ErrTooLarge},
		{"needs more memory than allowed", func() *bytes.Reader {
			w := newPack(3)
			for i := range 3 {
				w.object(plumbing.TreeObject, int64(len(zeros)-i), nil, zeros[i:])
			}
			return w.done()
		}, ErrTooLarge},
		{"content longer than claimed", func() *bytes.Reader {
			w := newPack(1)
			w.object(plumbing.BlobObject, 3, nil, small)
			return w.done()
		}, ErrProtocol},
		{"content shorter than claimed", func() *bytes.Reader {
			w := newPack(1)
			w.object(plumbing.BlobObject, 300, nil, small)
			return w.done()
		}, ErrProtocol},
		{"delta that grows without end", func() *bytes.Reader {
			w := newPack(2)
			w.object(plumbing.BlobObject, int64(len(small)), nil, small)
			delta := append(append(varint(len(small)), varint(1<<40)...), 0x90, 9)
			w.object(plumbing.REFDeltaObject, int64(len(delta)), ref(small), delta)
			return w.done()
		}, ""},
		{"tree delta that grows without end", func() *bytes.Reader {
			w := newPack(2)
			w.object(plumbing.TreeObject, int64(len(small)), nil, small)
			h := plumbing.ComputeHash(plumbing.TreeObject, small)
			delta := append(append(varint(len(small)), varint(1<<40)...), 0x90, 9)
			w.object(plumbing.REFDeltaObject, int64(len(delta)), h[:], delta)
			return w.done()
		}, ErrTooLarge},
		{"delta against itself", func() *bytes.Reader {
			w := newPack(1)
			delta := append(append(varint(9), varint(9)...), 0x90, 9)
			w.object(plumbing.REFDeltaObject, int64(len(delta)), ref(small), delta)
			return w.done()
		}, ""},
		{"delta header that does not end", func() *bytes.Reader {
			w := newPack(2)
			w.object(plumbing.TreeObject, int64(len(small)), nil, small)
			h := plumbing.ComputeHash(plumbing.TreeObject, small)
			delta := bytes.Repeat([]byte{0xff}, 40)
			w.object(plumbing.REFDeltaObject, int64(len(delta)), h[:], delta)
			return w.done()
		}, ErrProtocol},
		{"a long chain of deltas, last things first", func() *bytes.Reader {
			const n = 900
			contents := [][]byte{[]byte("0000000000000000")}
			w := newPack(n + 1)
			for i := range n {
				next := bytes.Clone(contents[i])
				copy(next, fmt.Sprint(i))
				contents = append(contents, next)
			}
			for i := n; i > 0; i-- {
				delta := append(append(append(varint(16), varint(16)...), 16), contents[i]...)
				h := plumbing.ComputeHash(plumbing.TreeObject, contents[i-1])
				w.object(plumbing.REFDeltaObject, int64(len(delta)), h[:], delta)
			}
			w.object(plumbing.TreeObject, 16, nil, contents[0])
			return w.done()
		}, ""},
		{"wrong sum", func() *bytes.Reader {
			w := newPack(1)
			w.object(plumbing.BlobObject, int64(len(small)), nil, small)
			r := w.done()
			b := w.Bytes()
			b[len(b)-1] ^= 1
			return r
		}, ErrProtocol},
		{"unknown type", func() *bytes.Reader {
			w := newPack(1)
			w.object(5, int64(len(small)), nil, small)
			return w.done()
		}, ErrProtocol},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.pack()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p, err := unpack(r, o, nil)
			for _, want := range []plumbing.ObjectType{plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject} {
				if err == nil {
					_, err = p.get(plumbing.NewHash(strings.Repeat("1", 40)), want)
					if want != plumbing.BlobObject && err == plumbing.ErrObjectNotFound {
						err = nil
					}
				}
			}
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("it holds what nobody put in")
			}
			if k := classify("", err, o.Now(), func(s string) string { return s }).Kind; tt.kind != "" && k != tt.kind {
				t.Errorf("got %v (%s), want %s", err, k, tt.kind)
			}
			if n := int64(after.TotalAlloc - before.TotalAlloc); n > 8*o.MaxMemoryBytes {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}

// TestLargeFileElsewhere: a file that is too large to keep is read past, and ours is found behind it.
func TestLargeFileElsewhere(t *testing.T) {
	r, _, c, _ := started(t, func(o *Options) { o.MaxMemoryBytes = 256 << 10; o.MaxFileBytes = 64 << 10 })
	big := make([]byte, 300<<10)
	rng := rand.NewChaCha8([32]byte{})
	_, _ = rng.Read(big)
	r.write("firmware/a.bin", string(big))
	big[0] ^= 1
	r.write("firmware/b.bin", string(big)) // sent as a delta
	two := r.set("pump: off\n")
	mustFetch(t, c)
	wantDesired(t, c, two, "pump: off\n")
}

// TestDeltas: a repository whose folders and files come as deltas.
func TestDeltas(t *testing.T) {
	r := newRepo(t)
	name := func(i int) string { return fmt.Sprintf("devices/gh-%04d/greenhouse.yaml", i) }
	for i := range 60 {
		r.write(name(i), fmt.Sprintf("pump: on\nfan: off\nvent: off\n# %d\n%s", i, strings.Repeat("# padding to make a delta worth while\n", 20)))
	}
	one := r.push("fleet")
	r.run(r.bare, "git", "repack", "-adfq", "--depth=50", "--window=50")
	_, url := r.serve()
	for _, i := range []int{0, 31, 59} {
		o := options(t, url)
		o.File = name(i)
		c := openClone(t, o)
		mustFetch(t, c)
		if d, _, _ := c.Desired(); d.Revision != one || !strings.Contains(string(d.Data), fmt.Sprintf("# %d\n", i)) {
			t.Errorf("Desired = %+v", d)
		}
	}
}
