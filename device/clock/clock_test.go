package clock

import (
	"testing"
	"time"
)

func TestBelievable(t *testing.T) {
	for day, want := range map[string]bool{"1970-01-01": false, "2025-12-31": false, "2026-01-01": true, "2050-06-01": true} {
		at, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		if got := Believable(at); got != want {
			t.Errorf("Believable(%s) = %v, want %v", day, got, want)
		}
	}
}
