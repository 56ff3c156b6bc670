package main

import (
	"context"
	"errors"
	"fmt"

	"holdfast/bootslot/api"
)

// told makes an error of the guard one for people: a verb that changes something either did it or says that it did not.
func told(err error) error {
	var se *api.StatusError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &se) && se.Status == 403:
		return fmt.Errorf("not allowed: %s", se.Message)
	case errors.As(err, &se):
		return errors.New(se.Message)
	case errors.Is(err, api.ErrSilent):
		return fmt.Errorf("nothing was changed: the guard does not answer (%s), and only it may change the ledger", why(err))
	}
	return err
}

// poke makes the agent look again at once. Without it the next cycle does.
func (b *board) poke(ctx context.Context) (alive bool) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return b.agent.Reconcile(ctx) == nil
}

// warn says on the way what was wrong with the configuration; the verb goes on.
func (b *board) warn(p printer) {
	for _, s := range b.problems {
		p.line("holdfast: %s", s)
	}
}

// agentNote says that what was granted waits for an agent.
func agentNote(p printer, alive bool) {
	if !alive {
		p.line("The agent does not answer: nothing is tried until it runs, for it alone knows what is declared.")
	}
}
