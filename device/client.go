package device

import (
	"context"
	"time"

	"holdfast/device/clock"
)

// Client speaks the device contract over HTTP/JSON.
type Client struct{}

// ClientOptions say where the device is and how patient to be.
type ClientOptions struct {
	URL       string
	TokenFile string        // bearer token for writes, read anew when it changes; "" for none
	Timeout   time.Duration // per attempt, the answer's body included; default 2 s
	Clock     clock.Clock
}

// RefusedError reports that the device answered 400: nothing was applied. Known or Allowed say what it would take.
type RefusedError struct {
	Message string
	Known   []string // actuators, after an unknown one
	Allowed []string // values, after a value that it does not take
}

func (e *RefusedError) Error() string { return e.Message }

// NewClient returns a client; it does not touch the device. An error is one of configuration.
func NewClient(o ClientOptions) (*Client, error) { return nil, errStub }

// Health asks GET /healthz.
func (c *Client) Health(ctx context.Context) error { return errStub }

// State asks GET /state.
func (c *Client) State(ctx context.Context) (State, error) { return State{}, errStub }

// WaitState asks GET /state?wait=tag: it answers when the state is no longer that of the tag, or after some
// seconds. It returns the new tag, "" from a device that has none (then the caller must not call again at once).
func (c *Client) WaitState(ctx context.Context, tag string) (newTag string, err error) {
	return "", errStub
}

// Apply posts the given keys to /actuators and returns what the device answers. before is called right before each
// attempt goes out, retries included; when it returns an error nothing more is sent and Apply returns that error.
// A *RefusedError means that nothing was applied.
func (c *Client) Apply(ctx context.Context, set Fields, before func() error) (State, error) {
	return State{}, errStub
}
