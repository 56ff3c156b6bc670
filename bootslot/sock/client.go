package sock

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

	"holdfast/device/clock"
)

// ErrSilent reports that a process cannot be reached at all, or does not answer in time.
var ErrSilent = errors.New("it does not answer")

// Error is the body of every answer that is not 2xx.
type Error struct {
	Message string `json:"error"`
}

// StatusError is an answer that is not 2xx.
type StatusError struct {
	Status  int
	Message string
}

func (e *StatusError) Error() string { return e.Message }

// DeadlineHeader carries the uptime in seconds after which a POST must not be carried out any more: whoever sent it has stopped waiting. A process that
// was stopped and goes on finds such requests in its socket's queue.
const DeadlineHeader = "Holdfast-Deadline"

// answerTime is how long a process may take for anything that does not wait.
const answerTime = 3 * time.Second

// maxAnswer bounds an answer's size in bytes.
const maxAnswer = 16 << 20

// Client asks a process over its socket.
type Client struct {
	who   string
	http  *http.Client
	clock clock.Clock
}

// NewClient returns a client for the socket at path, on which who ("agent", "guard") answers. It connects when it is asked something.
func NewClient(path, who string) *Client {
	return &Client{who: who, clock: clock.New(), http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		MaxIdleConns: 4, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
	}}}
}

// Wait is the query of a question that waits until something is not n any more; "" for nil, which is at once.
func Wait(n *uint64) string {
	if n == nil {
		return ""
	}
	return "?wait=" + strconv.FormatUint(*n, 10)
}

// Get asks; with waits the answer may take as long as LongPoll.
func Get[T any](ctx context.Context, c *Client, path string, waits bool) (out T, err error) {
	limit := answerTime
	if waits {
		limit += LongPoll
	}
	err = c.do(ctx, http.MethodGet, path, limit, nil, &out)
	return out, err
}

// Post asks for a change. An answer without a body is the zero value.
func Post[T any](ctx context.Context, c *Client, path string, in any) (out T, err error) {
	err = c.do(ctx, http.MethodPost, path, answerTime, in, &out)
	return out, err
}

func (c *Client) do(ctx context.Context, method, path string, limit time.Duration, in, out any) error {
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
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.who+path, body)
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
			e.Message = fmt.Sprintf("the %s answered %s", c.who, resp.Status)
		}
		return &StatusError{resp.StatusCode, e.Message}
	}
	if resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("the %s's answer to %s %s is not understood: %w", c.who, method, path, err)
	}
	return nil
}
