package gitclone

import (
	"bytes"
	"crypto/sha1"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// FuzzUnpack: no pack makes it panic, or give out an object under a hash that is not its own.
func FuzzUnpack(f *testing.F) {
	small := []byte("pump: on\n")
	h := plumbing.ComputeHash(plumbing.BlobObject, small)
	w := newPack(3)
	at := w.object(plumbing.BlobObject, int64(len(small)), nil, small)
	delta := append(append(varint(len(small)), varint(5)...), 0x90, 5)
	back := w.Len() - at
	w.object(plumbing.OFSDeltaObject, int64(len(delta)), []byte{byte(back)}, delta)
	w.object(plumbing.REFDeltaObject, int64(len(delta)), h[:], delta)
	_ = w.done()
	f.Add(w.Bytes())
	o := Options{MaxPackBytes: 1 << 16, MaxMemoryBytes: 1 << 16, MaxFileBytes: 1 << 12, MaxObjects: 50}.withDefaults()
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 20 { // a sum that fits, or nothing would get far
			sum := sha1.Sum(b[:len(b)-20])
			b = append(bytes.Clone(b[:len(b)-20]), sum[:]...)
		}
		p, err := unpack(bytes.NewReader(b), o, nil)
		if err != nil {
			return
		}
		for _, want := range []plumbing.ObjectType{plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject} {
			_, _ = p.get(plumbing.ZeroHash, want)
		}
		if p.kept < 0 || p.kept > o.MaxMemoryBytes+1<<12 {
			t.Errorf("accounts for %d bytes", p.kept)
		}
		for h, i := range p.known {
			typ := p.entries[i].typ
			if b, err := p.get(h, typ); err == nil && plumbing.ComputeHash(typ, b) != h {
				t.Errorf("%s has other content", h)
			}
		}
	})
}
