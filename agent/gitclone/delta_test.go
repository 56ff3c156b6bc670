package gitclone

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// applyDelta does what pack.apply does, without its bounds.
func applyDelta(base, delta []byte) ([]byte, error) {
	size, rest, err := deltaHeader(delta, len(base))
	if err != nil {
		return nil, err
	}
	return patch(base, rest, size)
}

func TestPatch(t *testing.T) {
	base := []byte("0123456789")
	d := func(base, target int, ops ...byte) []byte {
		return append(append(varint(base), varint(target)...), ops...)
	}
	large := bytes.Repeat([]byte{'x'}, 1<<16+300)
	for _, tt := range []struct {
		name        string
		base, delta []byte
		want        string // "": an error
	}{
		{"a piece", base, d(10, 3, 0x91, 4, 3), "456"},
		{"from the beginning", base, d(10, 3, 0x90, 3), "012"},
		{"new bytes", base, d(10, 3, 3, 'a', 'b', 'c'), "abc"},
		{"both", base, d(10, 5, 1, 'a', 0x91, 8, 2, 2, 'b', 'c'), "a89bc"},
		{"64 KiB, which is no length", large, d(len(large), 1<<16, 0x80), string(large[:1<<16])},
		{"of upper bytes alone", large, d(len(large), 256, 0xa2, 1, 1), string(large[:256])},
		{"another base", base, d(11, 3, 0x90, 3), ""},
		{"more than is said", base, d(10, 2, 0x90, 3), ""},
		{"less than is said", base, d(10, 4, 0x90, 3), ""},
		{"behind the end", base, d(10, 3, 0x91, 8, 3), ""},
		{"far behind the end", base, d(10, 1, 0x9f, 255, 255, 255, 255, 1), ""},
		{"as long as can be", base, d(10, 1, 0xff, 255, 255, 255, 255, 255, 255, 255), ""},
		{"no new bytes", base, d(10, 3, 3, 'a', 'b'), ""},
		{"half a piece", base, d(10, 3, 0x91, 4), ""},
		{"zero", base, d(10, 3, 0, 0x90, 3), ""},
		{"no header", base, nil, ""},
		{"half a header", base, []byte{10}, ""},
		{"a header without end", base, bytes.Repeat([]byte{0x8a}, 20), ""},
		{"a promise of 4 TiB", base, append(varint(10), 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), ""},
	} {
		got, err := applyDelta(tt.base, tt.delta)
		if string(got) != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
}

// TestPatchAsGoGit: deltas as go-git makes them give what they were made for, and damaged ones what go-git makes of them.
func TestPatchAsGoGit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = 'a' + byte(r.IntN(4))
		}
		return b
	}
	agree := 0
	for range 2000 {
		base := random(1 + r.IntN(3000))
		target := bytes.Clone(base)
		for range r.IntN(5) {
			at := r.IntN(len(target))
			target = append(append(bytes.Clone(target[:at]), random(1+r.IntN(200))...), target[min(len(target), at+r.IntN(300)):]...)
		}
		delta := packfile.DiffDelta(base, target)
		if got, err := applyDelta(base, delta); err != nil || !bytes.Equal(got, target) {
			t.Fatalf("a delta of %d bytes is not what it was made for: %v", len(delta), err)
		}
		delta[r.IntN(len(delta))] ^= 1 << r.IntN(8)
		got, err := applyDelta(base, delta)
		want, wantErr := packfile.PatchDelta(base, delta)
		if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("a damaged delta %x: %d bytes, %v; go-git: %d bytes, %v", delta, len(got), err, len(want), wantErr)
		}
		if err == nil {
			agree++
		}
	}
	if agree < 50 {
		t.Errorf("only %d damaged deltas still gave something", agree)
	}
}
