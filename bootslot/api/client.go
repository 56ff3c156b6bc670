package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"holdfast/bootslot"
	"holdfast/bootslot/sock"
)

// What the guard's socket has in common with the agent's.
type (
	StatusError = sock.StatusError
	Error       = sock.Error
)

// ErrSilent reports that the guard cannot be reached at all, or does not answer in time.
var ErrSilent = sock.ErrSilent

const (
	DeadlineHeader = sock.DeadlineHeader
	LongPoll       = sock.LongPoll
)

// Client asks the guard over its socket.
type Client struct{ sock *sock.Client }

// NewClient returns a client for the socket at path; it connects when it is asked something.
func NewClient(path string) *Client { return &Client{sock.NewClient(path, "guard")} }

// Effective asks what the device is to be now. wait is the generation to wait away from; nil for at once.
func (c *Client) Effective(ctx context.Context, wait *uint64) (Lease, error) {
	return sock.Get[Lease](ctx, c.sock, "/v1/effective"+sock.Wait(wait), wait != nil)
}

// Trial asks for a release.
func (c *Client) Trial(ctx context.Context, r TrialRequest) (bootslot.Decision, error) {
	return sock.Post[bootslot.Decision](ctx, c.sock, "/v1/trials", r)
}

// Heartbeat tells the guard that the agent drives.
func (c *Client) Heartbeat(ctx context.Context, h Heartbeat) error {
	_, err := sock.Post[struct{}](ctx, c.sock, "/v1/heartbeat", h)
	return err
}

// State asks for all that the guard knows. wait is the change counter to wait away from; nil for at once.
func (c *Client) State(ctx context.Context, wait *uint64) (State, error) {
	return sock.Get[State](ctx, c.sock, "/v1/state"+sock.Wait(wait), wait != nil)
}

// historyPage is how many events are asked for at once: all ten thousand would take the guard some 60 MB for a moment.
const historyPage = 500

// History asks for the last n events, oldest first; 0 for all.
func (c *Client) History(ctx context.Context, n int) ([]bootslot.Event, error) {
	var pages [][]bootslot.Event
	got, before := 0, uint64(0)
	for {
		ask := historyPage
		if n > 0 {
			ask = min(ask, n-got)
		}
		page, err := sock.Get[[]bootslot.Event](ctx, c.sock, fmt.Sprintf("/v1/history?last=%d&before=%d", ask, before), false)
		if err != nil {
			return nil, err
		}
		if before > 0 && len(page) > 0 && page[len(page)-1].Seq >= before {
			// A guard that does not know pages says the same again: it is asked for all at once.
			return sock.Get[[]bootslot.Event](ctx, c.sock, "/v1/history?last="+strconv.Itoa(n), false)
		}
		pages = append(pages, page)
		got += len(page)
		if len(page) < ask || got == n || page[0].Seq <= 1 {
			slices.Reverse(pages)
			return slices.Concat(pages...), nil
		}
		before = page[0].Seq
	}
}

// SelfTest has every check measured now, and waits for that.
func (c *Client) SelfTest(ctx context.Context) ([]Check, error) {
	return sock.Get[[]Check](ctx, c.sock, "/v1/selftest", true)
}

// Retry grants the declared content one more trial.
func (c *Client) Retry(ctx context.Context) (Lease, error) {
	return sock.Post[Lease](ctx, c.sock, "/v1/retry", struct{}{})
}

// Rollback goes back to the previous release, or to the fallback.
func (c *Client) Rollback(ctx context.Context, r RollbackRequest) (Lease, error) {
	return sock.Post[Lease](ctx, c.sock, "/v1/rollback", r)
}

// Suspend stops trials for a while, and with r.Repair the repair as well.
func (c *Client) Suspend(ctx context.Context, r SuspendRequest) (Suspension, error) {
	return sock.Post[Suspension](ctx, c.sock, "/v1/suspend", r)
}

// Resume ends a suspension.
func (c *Client) Resume(ctx context.Context) (Lease, error) {
	return sock.Post[Lease](ctx, c.sock, "/v1/resume", struct{}{})
}
