package api

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"holdfast/bootslot"
)

// The history comes in pages, so that a small board's guard never has all of it in memory; from a guard that knows no pages it comes at once.
func TestHistoryComesInPages(t *testing.T) {
	for _, tt := range []struct {
		name       string
		events, n  int
		knowsPages bool
		want       int   // events
		asked      []int // how many were asked for each time; 0: all
	}{
		{"a page", 3, 0, true, 3, []int{historyPage}},
		{"exactly a page", historyPage, 0, true, historyPage, []int{historyPage}},
		{"three pages", 2*historyPage + 7, 0, true, 2*historyPage + 7, []int{historyPage, historyPage, historyPage}},
		{"the last few of many", 5000, 20, true, 20, []int{20}},
		{"the last of more than a page", 5000, historyPage + 3, true, historyPage + 3, []int{historyPage, 3}},
		{"none", 0, 0, true, 0, []int{historyPage}},
		{"a guard that knows no pages", 2 * historyPage, 0, false, 2 * historyPage, []int{historyPage, historyPage, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "hf") // a socket's path must stay short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			l, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			var asked []int
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				last, _ := strconv.Atoi(r.URL.Query().Get("last"))
				before, _ := strconv.Atoi(r.URL.Query().Get("before"))
				asked = append(asked, last)
				if before == 0 || !tt.knowsPages {
					before = tt.events + 1
				}
				events := []bootslot.Event{}
				for seq := max(1, before-last); seq < before; seq++ {
					if last > 0 {
						events = append(events, bootslot.Event{Seq: uint64(seq)})
					}
				}
				for seq := 1; seq < before && last == 0; seq++ {
					events = append(events, bootslot.Event{Seq: uint64(seq)})
				}
				json.NewEncoder(w).Encode(events)
			})}
			go srv.Serve(l)
			t.Cleanup(func() { srv.Close() })
			events, err := NewClient(filepath.Join(dir, "s")).History(t.Context(), tt.n)
			if err != nil || len(events) != tt.want || !slices.Equal(asked, tt.asked) {
				t.Fatalf("%d events, %v, asked for %v; want %d, asked for %v", len(events), err, asked, tt.want, tt.asked)
			}
			for i, e := range events {
				if want := uint64(tt.events - tt.want + i + 1); e.Seq != want {
					t.Fatalf("event %d is number %d, want %d", i, e.Seq, want)
				}
			}
		})
	}
}
