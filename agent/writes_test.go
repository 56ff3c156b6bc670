package agent

import (
	"context"
	"errors"
	"testing"

	"holdfast/device"
)

// answering is a device whose writes end as they are told to.
type answering struct{ err error }

func (a *answering) State(context.Context) (device.State, error) { return device.State{}, nil }
func (a *answering) Apply(context.Context, device.Fields, func() error) (device.State, error) {
	return device.State{}, a.err
}

func TestWrites(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		ends  []error
		want  string
		times int
	}{
		{"none yet", t.Context(), nil, "", 0},
		{"well", t.Context(), []error{nil}, "", 0},
		{"answered 204", t.Context(), []error{errors.New("204"), errors.New("204 again")}, "204 again", 2},
		{"then well", t.Context(), []error{errors.New("204"), nil}, "", 0},
		{"a refusal is an answer, and no success", t.Context(), []error{errors.New("500"), &device.RefusedError{Message: "no"}}, "500", 1},
		{"not sent", t.Context(), []error{device.ErrStale}, "", 0},
		{"given up by us", gone, []error{context.Canceled}, "", 0},
	} {
		d := &answering{}
		w := NewWrites(d)
		for _, d.err = range tt.ends {
			if _, err := w.Apply(tt.ctx, nil, nil); !errors.Is(err, d.err) {
				t.Errorf("%s: Apply gives %v, want %v", tt.name, err, d.err)
			}
		}
		if got, times := w.Last(); got != tt.want || times != tt.times {
			t.Errorf("%s: %q, %d times; want %q, %d times", tt.name, got, times, tt.want, tt.times)
		}
	}
}
