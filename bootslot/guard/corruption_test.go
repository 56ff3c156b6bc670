package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/bootslot"
	"holdfast/tools/faultfs"
)

// TestCorruption: ledger, sidecar or both are damaged in any of their regions, while no guard runs or in the middle of a trial. The guard starts, or goes on; it says
// what it has set aside; it drives the device to last-known-good, or to the fallback if there is no record left; and what is declared then comes true, or is
// held. A mark is lost only with both files.
func TestCorruption(t *testing.T) {
	t.Parallel()
	cfg, scratch := newBench(t, "").cfg, faultfs.Scratch(t)
	first := newBoard(t, cfg, filepath.Join(scratch, "first"), nil)
	first.declare(0, "lamp", "on")
	first.until("lamp=on fails", func() bool { return len(first.g.ledger.Marks) == 1 && first.idle() })
	first.declare(0, "vent", "off")
	first.until("vent=off passes", func() bool { return first.lease().Proven["vent"] == "off" })
	if err := first.g.Close(); err != nil {
		t.Fatal(err)
	}
	whole := map[string][]byte{}
	for _, name := range []string{"ledger.db", "ledger.json"} {
		b, err := os.ReadFile(filepath.Join(first.cfg.GuardFolder(), name))
		if err != nil {
			t.Fatal(err)
		}
		whole[name] = b
	}
	stride := faultfs.Pick(*long, 16384, 4096, 512)
	tried := 0
	for _, names := range [][]string{{"ledger.db"}, {"ledger.json"}, {"ledger.db", "ledger.json"}} {
		for _, kind := range []string{"cut", "zeroed", "flipped"} {
			for at := 0; at < len(whole[names[0]]); at += stride {
				for _, open := range []bool{false, true} {
					what := fmt.Sprintf("%v %s at %d, in a trial: %v", names, kind, at, open)
					tried++
					state := filepath.Join(scratch, "state")
					if err := os.CopyFS(filepath.Join(state, "guard"), os.DirFS(first.cfg.GuardFolder())); err != nil {
						t.Fatal(err)
					}
					spoil := func() {
						for _, name := range names {
							b := bytes.Clone(whole[name])
							from := at % len(b)
							switch kind {
							case "zeroed":
								clear(b[from:min(from+stride, len(b))])
							case "flipped":
								for i := from; i < min(from+stride, len(b)); i++ {
									b[i] ^= 0x55
								}
							}
							f, err := os.OpenFile(filepath.Join(state, "guard", name), os.O_RDWR, 0)
							if err == nil && kind == "cut" {
								err = f.Truncate(int64(from))
							} else if err == nil {
								_, err = f.WriteAt(b, 0)
							}
							if err := errors.Join(err, f.Close()); err != nil {
								t.Fatal(err)
							}
						}
					}
					if !open {
						spoil()
					}
					b := newBoard(t, cfg, state, nil)
					known := b.g.ledger.ID == first.g.ledger.ID
					if (len(names) == 1 || open) && recordJSON(t, b.g.ledger) != recordJSON(t, first.g.ledger) {
						t.Errorf("%s: in force is %s", what, recordJSON(t, b.g.ledger))
					}
					if l, lkg := b.lease(), b.g.ledger.LastKnownGood(b.g.board).Fields; !reflect.DeepEqual(l.Fields, lkg) {
						t.Errorf("%s: driven to %v, want %v", what, l.Fields, lkg)
					}
					b.declare(0, "vent", "off", "pump", "on")
					if open {
						b.until("it is tried", func() bool { return !b.idle() })
						spoil()
					}
					said := map[string]bool{}
					b.until(what+": pump=on passes", func() bool {
						for _, p := range b.g.problems {
							said[p] = true
						}
						return b.lease().Proven["pump"] == "on"
					})
					for _, name := range names {
						_, err := os.Stat(filepath.Join(state, "guard", name+".bad"))
						told := false
						for p := range said {
							told = told || strings.Contains(p, name) && strings.Contains(p, "set aside")
						}
						if (err == nil) != told {
							t.Errorf("%s: %s set aside: %v, told: %v, %v", what, name, err == nil, told, said)
						}
					}
					if !known && len(said) == 0 {
						t.Errorf("%s: nobody says that the record is lost", what)
					}
					if known {
						b.want(what+": lamp=on again", b.wish(0, "vent", "off", "pump", "on", "lamp", "on").Kind, bootslot.Held)
					}
					b.live(time.Second)
					record := recordJSON(t, b.g.ledger)
					b.crash()
					if again := recordJSON(t, b.g.ledger); again != record {
						t.Errorf("%s: the next start finds %s\nwant %s", what, again, record)
					}
					if err := errors.Join(b.g.Close(), os.RemoveAll(state)); err != nil {
						t.Error(err)
					}
					if t.Failed() {
						t.FailNow()
					}
				}
			}
		}
	}
	t.Logf("%d damages", tried)
}
