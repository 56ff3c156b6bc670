package faultfs

import (
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// sector is what a disk writes whole or not at all, in bytes.
const sector = 512

// Depth says how many of the states in which power can leave a disk are looked at.
type Depth struct {
	All    int // with as many changes that are not durable yet, or fewer, each subset of them is lost
	Torn   int // in as many places, evenly spread, the newest write is torn
	Random int // beside the systematic ones, so many at each point in which anything may be lost or torn
}

// Image is what a power cut left on the disk.
type Image struct {
	After int    // calls that had been made, as in FS.Len
	Left  string // what was not durable yet, and what of it is there
	Key   uint64 // of the content: two images that are alike have the same
	files map[string][]byte
	dirs  []string
}

func (i Image) String() string { return fmt.Sprintf("power cut after call %d: %s", i.After, i.Left) }

// Write makes dir hold the image, and nothing else.
func (i Image) Write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, d := range append([]string{""}, i.dirs...) {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for name, data := range i.files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o640); err != nil {
			return err
		}
	}
	return nil
}

// Crashes yields, for each point of the log from the first from calls on, the states in which power can leave the disk there; at one point no two that are
// alike. The same log yields the same states.
func Crashes(log []Op, from int, d Depth) iter.Seq[Image] {
	return func(yield func(Image) bool) {
		random := rand.New(rand.NewPCG(uint64(len(log)), uint64(from)))
		s := state{names: map[string]int{}, data: map[int][]byte{}}
		for n := 0; ; n++ {
			if n >= from && !s.images(n, d, random, yield) {
				return
			}
			if n == len(log) {
				return
			}
			s.apply(log[n])
		}
	}
}

// change is a call whose effect need not be durable.
type change struct {
	op     Op
	sure   bool // it is, but lies over one that need not be
	doomed bool // no later sync makes it so (of names, which the file system keeps itself, one does)
}

func (c change) ofNames() bool {
	return c.op.Kind == Create || c.op.Kind == Mkdir || c.op.Kind == Rename || c.op.Kind == Remove
}

// touches reports whether one of two changes lies over the other.
func (c change) touches(o change) bool {
	if c.ofNames() != o.ofNames() {
		return false
	}
	if !c.ofNames() {
		return c.op.File == o.op.File
	}
	for _, p := range []string{c.op.Path, c.op.To} {
		if p != "" && (p == o.op.Path || p == o.op.To) {
			return true
		}
	}
	return false
}

// state is a disk at one point: what is durable, and what is not yet.
type state struct {
	names   map[string]int // path → file; 0: a folder
	data    map[int][]byte // never changed in place
	pending []change
}

func (s *state) apply(op Op) {
	switch op.Kind {
	case Create, Mkdir, Rename, Remove, Write, Truncate:
		if !op.Failed {
			s.pending = append(s.pending, change{op: op})
		}
	case Sync, SyncFolder:
		for i := range s.pending {
			c := &s.pending[i]
			of := !c.ofNames() && op.Kind == Sync && c.op.File == op.File ||
				c.ofNames() && op.Kind == SyncFolder && (parent(c.op.Path) == op.Path || c.op.To != "" && parent(c.op.To) == op.Path)
			switch {
			case !of || c.sure || c.doomed:
			case !op.Failed:
				c.sure = true
			case !c.ofNames():
				c.doomed = true
			}
		}
		s.fold()
	}
}

func parent(p string) string {
	if d := path.Dir(p); d != "." {
		return d
	}
	return ""
}

// fold makes those changes part of what is durable that are sure and lie over nothing that is not.
func (s *state) fold() {
	var left []change
	for _, c := range s.pending {
		if c.sure && !slices.ContainsFunc(left, c.touches) {
			s.names, s.data = merge(s.names, s.data, c.op, nil)
			continue
		}
		left = append(left, c)
	}
	s.pending = left
}

// merge does op to names and data; of a write only the sectors that keep says, nil for all.
func merge(names map[string]int, data map[int][]byte, op Op, keep func(i int) bool) (map[string]int, map[int][]byte) {
	switch op.Kind {
	case Create, Mkdir:
		names[op.Path] = op.File
	case Remove:
		delete(names, op.Path)
	case Rename:
		delete(names, op.Path)
		names[op.To] = op.File
	case Truncate:
		data[op.File] = resized(data[op.File], op.Size)
	case Write:
		d := slices.Clone(data[op.File])
		for i, from := 0, int64(0); from < int64(len(op.Data)); i++ {
			to := min((op.Off+from)/sector*sector+sector-op.Off, int64(len(op.Data)))
			if keep == nil || keep(i) {
				d = written(d, op.Data[from:to], op.Off+from)
			}
			from = to
		}
		data[op.File] = d
	}
	return names, data
}

func sectors(op Op) int {
	if op.Kind != Write || len(op.Data) == 0 {
		return 1
	}
	return int((op.Off+int64(len(op.Data))-1)/sector - op.Off/sector + 1)
}

// pick says what of one change is there: all, nothing, or some of its sectors.
type pick struct {
	there bool
	keep  func(i int) bool
	what  string
}

var (
	all  = pick{there: true, what: "+"}
	none = pick{what: "-"}
)

// images yields the states in which power can leave the disk now; false if nobody wants any more.
func (s *state) images(after int, d Depth, random *rand.Rand, yield func(Image) bool) bool {
	var open []int // in pending
	for i, c := range s.pending {
		if !c.sure {
			open = append(open, i)
		}
	}
	n := len(open)
	seen := map[uint64]bool{}
	try := func(picks []pick) bool {
		i := s.image(after, open, picks)
		if seen[i.Key] {
			return true
		}
		seen[i.Key] = true
		return yield(i)
	}
	picks := make([]pick, n)
	set := func(f func(i int) pick) bool {
		for i := range picks {
			picks[i] = f(i)
		}
		return try(picks)
	}
	choose := func(there bool) pick {
		if there {
			return all
		}
		return none
	}
	if n <= d.All {
		for bits := range 1 << n {
			if !set(func(i int) pick { return choose(bits>>i&1 == 1) }) {
				return false
			}
		}
	}
	for k := range n {
		for _, f := range []func(i int) bool{
			func(i int) bool { return i <= k }, func(i int) bool { return i > k }, func(i int) bool { return i == k }, func(i int) bool { return i != k },
		} {
			if !set(func(i int) pick { return choose(f(i)) }) {
				return false
			}
		}
	}
	// The newest write is torn, from either end; what came before it is there, or not.
	if n > 0 {
		k := sectors(s.pending[open[n-1]].op)
		for at := 1; at < k; at += max(1, k/max(1, d.Torn)) {
			if d.Torn == 0 {
				break
			}
			for _, t := range []pick{
				{true, func(i int) bool { return i < at }, fmt.Sprintf("<%d", at)},
				{true, func(i int) bool { return i >= at }, fmt.Sprintf("≥%d", at)},
			} {
				for _, before := range []pick{all, none} {
					if !set(func(i int) pick {
						if i == n-1 {
							return t
						}
						return before
					}) {
						return false
					}
				}
			}
		}
		for range d.Random {
			if !set(func(i int) pick {
				switch k := sectors(s.pending[open[i]].op); random.IntN(4) {
				case 0:
					return all
				case 1:
					return none
				default:
					mask := random.Uint64()
					return pick{k > 1 || mask&1 == 1, func(i int) bool { return mask>>(i%64)&1 == 1 }, fmt.Sprintf("&%x", mask)}
				}
			}) {
				return false
			}
		}
	}
	if n == 0 {
		return set(nil)
	}
	return true
}

var seed = maphash.MakeSeed()

func (s *state) image(after int, open []int, picks []pick) Image {
	names, data := maps.Clone(s.names), maps.Clone(s.data)
	var left []string
	at := 0
	for i, c := range s.pending {
		p := all
		if at < len(open) && open[at] == i {
			p = picks[at]
			at++
			left = append(left, p.what+c.op.String())
		}
		if p.there {
			names, data = merge(names, data, c.op, p.keep)
		}
	}
	img := Image{After: after, Left: strings.Join(left, ", "), files: map[string][]byte{}}
	if len(left) == 0 {
		img.Left = "all of it is durable"
	}
	var h maphash.Hash
	h.SetSeed(seed)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		number := names[name]
		// A folder sorts before what is in it; what is in a folder that is not there is not there.
		if p := parent(name); p != "" && !slices.Contains(img.dirs, p) {
			continue
		}
		fmt.Fprintf(&h, "%q %v %d\n", name, number == 0, len(data[number]))
		if number == 0 {
			img.dirs = append(img.dirs, name)
			continue
		}
		img.files[name] = data[number]
		h.Write(data[number])
	}
	img.Key = h.Sum64()
	return img
}
