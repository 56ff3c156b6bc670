package gitclone

import (
	"context"
	"fmt"
	"testing"
)

// BenchmarkPoll is a poll that finds nothing new: go test -bench=Poll -benchmem ./agent/gitclone
func BenchmarkPoll(b *testing.B) {
	r := newRepo(b)
	r.set("pump: on\n")
	_, url := r.serve()
	c := openClone(b, options(b, url))
	mustFetch(b, c)
	var down int64
	for b.Loop() {
		f, err := c.Fetch(context.Background())
		if err != nil || f.Changed {
			b.Fatalf("Fetch = %+v, %v", f, err)
		}
		down += f.BytesDown
	}
	b.ReportMetric(float64(down)/float64(b.N), "B-down/op")
}

// BenchmarkChange is a change of one file in a fleet, fetched and published; the time of git's own push is not in it.
func BenchmarkChange(b *testing.B) {
	for _, devices := range []int{1, 1000} {
		b.Run(fmt.Sprintf("devices=%d", devices), func(b *testing.B) {
			r := newRepo(b)
			for i := range devices {
				r.write(fmt.Sprintf("devices/gh-%05d.yaml", i), fmt.Sprintf("pump: on\nfan: off\nvent: off\nlamp: on\ndoor: closed # %d\n", i))
			}
			r.push("fleet")
			_, url := r.serve()
			o := options(b, url)
			o.File = "devices/gh-00000.yaml"
			c := openClone(b, o)
			mustFetch(b, c)
			var down int64
			n := 0
			for b.Loop() {
				b.StopTimer()
				r.write(o.File, fmt.Sprintf("pump: off # %d\n", n))
				r.push("change")
				n++
				b.StartTimer()
				f, err := c.Fetch(context.Background())
				if err != nil || !f.Changed {
					b.Fatalf("Fetch = %+v, %v", f, err)
				}
				down += f.BytesDown
			}
			b.ReportMetric(float64(down)/float64(b.N), "B-down/op")
		})
	}
}
