package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"holdfast/bootslot"
	"holdfast/bootslot/sock"
	"holdfast/device/clock"
)

// ErrSilent reports that the guard cannot be reached at all, or does not answer in time.
var ErrSilent = errors.New("the guard does not answer")

// StatusError is an answer of the guard that is not 2xx.
type StatusError struct {
	Status  int
	Message string
}

func (e *StatusError) Error() string { return e.Message }

// LongPoll is how long a question with wait may stay open.
const LongPoll = sock.LongPoll

// answerTime is how long the guard may take for anything that does not wait.
const answerTime = 3 * time.Second

// DeadlineHeader carries the uptime in seconds after which a POST must not be carried out any more: whoever sent it has stopped waiting. A guard that
// was stopped and goes on finds such requests in its socket's queue.
const DeadlineHeader = "Holdfast-Deadline"

// maxAnswer bounds an answer's size in bytes.
const maxAnswer = 16 << 20

// Client asks the guard over its socket.
type Client struct {
	http  *http.Client
	clock clock.Clock
}

// NewClient returns a client for the socket at path; it connects when it is asked something.
func NewClient(path string) *Client {
	return &Client{clock: clock.New(), http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		MaxIdleConns: 4, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
	}}}
}

// Effective asks what the device is to be now. wait is the generation to wait away from; nil for at once.
func (c *Client) Effective(ctx context.Context, wait *uint64) (Lease, error) {
	var l Lease
	return l, c.do(ctx, http.MethodGet, "/v1/effective"+waitFor(wait), wait != nil, nil, &l)
}

// Trial asks for a release.
func (c *Client) Trial(ctx context.Context, r TrialRequest) (bootslot.Decision, error) {
	var d bootslot.Decision
	return d, c.do(ctx, http.MethodPost, "/v1/trials", false, r, &d)
}

// Heartbeat tells the guard that the agent drives.
func (c *Client) Heartbeat(ctx context.Context, h Heartbeat) error {
	return c.do(ctx, http.MethodPost, "/v1/heartbeat", false, h, nil)
}

// State asks for all that the guard knows. wait is the change counter to wait away from; nil for at once.
func (c *Client) State(ctx context.Context, wait *uint64) (State, error) {
	var s State
	return s, c.do(ctx, http.MethodGet, "/v1/state"+waitFor(wait), wait != nil, nil, &s)
}

// History asks for the last n events, oldest first; 0 for all.
func (c *Client) History(ctx context.Context, n int) ([]bootslot.Event, error) {
	var e []bootslot.Event
	return e, c.do(ctx, http.MethodGet, "/v1/history?last="+strconv.Itoa(n), false, nil, &e)
}

// Retry grants the declared content one more trial.
func (c *Client) Retry(ctx context.Context) (Lease, error) {
	var l Lease
	return l, c.do(ctx, http.MethodPost, "/v1/retry", false, struct{}{}, &l)
}

// Rollback goes back to the previous release, or to the fallback.
func (c *Client) Rollback(ctx context.Context, r RollbackRequest) (Lease, error) {
	var l Lease
	return l, c.do(ctx, http.MethodPost, "/v1/rollback", false, r, &l)
}

// Suspend stops trials for a while, and with r.Repair the repair as well.
func (c *Client) Suspend(ctx context.Context, r SuspendRequest) (Suspension, error) {
	var s Suspension
	return s, c.do(ctx, http.MethodPost, "/v1/suspend", false, r, &s)
}

// Resume ends a suspension.
func (c *Client) Resume(ctx context.Context) (Lease, error) {
	var l Lease
	return l, c.do(ctx, http.MethodPost, "/v1/resume", false, struct{}{}, &l)
}

func waitFor(n *uint64) string {
	if n == nil {
		return ""
	}
	return "?wait=" + strconv.FormatUint(*n, 10)
}

func (c *Client) do(ctx context.Context, method, path string, waits bool, in, out any) error {
	limit := answerTime
	if waits {
		limit += LongPoll
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://guard"+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(DeadlineHeader, strconv.FormatFloat((c.clock.Uptime()+limit).Seconds(), 'f', 3, 64))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}
	if resp.StatusCode >= 300 {
		var e Error
		if json.Unmarshal(b, &e) != nil || e.Message == "" {
			e.Message = fmt.Sprintf("the guard answered %s", resp.Status)
		}
		return &StatusError{resp.StatusCode, e.Message}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("the guard's answer to %s %s is not understood: %w", method, path, err)
	}
	return nil
}
