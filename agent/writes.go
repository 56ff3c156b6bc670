package agent

import (
	"context"
	"errors"
	"sync"

	"holdfast/device"
)

// contract is the device as it is driven (device.Client).
type contract interface {
	State(ctx context.Context) (device.State, error)
	Apply(ctx context.Context, set device.Fields, before func() error) (device.State, error)
}

// Writes stands before a device and remembers how its newest write ended, until one succeeds. A device that does what it is told and answers
// nonsense (204, an empty body, 500) has no drift left to show that by.
type Writes struct {
	contract

	mu    sync.Mutex
	err   error
	times int // in a row
}

// NewWrites returns the device with a memory.
func NewWrites(c contract) *Writes { return &Writes{contract: c} }

// Apply writes, and remembers. A refused value is an answer as it should be, which is told elsewhere; a write that we did not send, or gave
// up, says nothing of the device.
func (w *Writes) Apply(ctx context.Context, set device.Fields, before func() error) (device.State, error) {
	st, err := w.contract.Apply(ctx, set, before)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.err, w.times = nil, 0
	case errors.Is(err, device.ErrStale), errors.As(err, new(*device.RefusedError)), errors.Is(ctx.Err(), context.Canceled):
	default:
		w.err, w.times = err, w.times+1
	}
	return st, err
}

// Last is what went wrong with the newest write and how often in a row it has; "" if it succeeded.
func (w *Writes) Last() (message string, times int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		return "", 0
	}
	return w.err.Error(), w.times
}
