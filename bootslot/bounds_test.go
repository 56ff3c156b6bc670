package bootslot

import (
	"fmt"
	"testing"

	"holdfast/device"
)

// Contents that were interrupted once each are remembered, but not for ever: the record is as small after a thousand as after the last 64.
func TestTriesAreBounded(t *testing.T) {
	b := Board{Fallback: Release{Fields: device.Fields{"dial": "0"}}, Attempts: 3}
	facts := Facts{Rest: RestFacts{AtRest: true}, Waited: breakerMax}
	l := NewLedger("id")
	for i := range 1000 {
		w := Wish{Release: Release{Fields: device.Fields{"dial": fmt.Sprint(i + 1)}}}
		d, s := Admit(l, b, w, facts)
		if s == nil || d.Kind != Trying {
			t.Fatalf("content %d: %s %s", i, d.Kind, d.Reason)
		}
		l = Settle(s.Ledger, b, Inconclusive, Evidence{}).Ledger
		if want := min(i+1, 64); len(l.Tries) != want {
			t.Fatalf("%d tries after %d contents, want %d", len(l.Tries), i+1, want)
		}
	}
	if newest := l.Tries[63].Digest; newest != (Release{Fields: device.Fields{"dial": "1000"}}).Digest() {
		t.Errorf("the newest content is not the last of the list")
	}
}
