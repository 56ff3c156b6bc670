package agent

import (
	"context"

	"holdfast/agent/status"
	"holdfast/bootslot/sock"
)

// Client asks the agent over its socket (Handler).
type Client struct{ sock *sock.Client }

// NewClient returns a client for the socket at path; it connects when it is asked something.
func NewClient(path string) *Client { return &Client{sock.NewClient(path, "agent")} }

// Status asks for the agent's own part of the view. wait is the change counter to wait away from; nil for at once.
func (c *Client) Status(ctx context.Context, wait *uint64) (status.Agent, error) {
	return sock.Get[status.Agent](ctx, c.sock, "/v1/status"+sock.Wait(wait), wait != nil)
}

// Reconcile makes the agent look at the device now and, unless r says otherwise, fetch.
func (c *Client) Reconcile(ctx context.Context, r ReconcileRequest) (Reconciling, error) {
	return sock.Post[Reconciling](ctx, c.sock, "/v1/reconcile", r)
}

// Accept makes the agent take a head that does not descend from the one in force, once.
func (c *Client) Accept(ctx context.Context, revision string) error {
	_, err := sock.Post[struct{}](ctx, c.sock, "/v1/accept", AcceptRequest{Revision: revision})
	return err
}
