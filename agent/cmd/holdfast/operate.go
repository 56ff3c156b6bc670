package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/agent"
	"holdfast/agent/status"
	"holdfast/bootslot/api"
)

// told makes an error of a request that changes something one for people: it says whether anything was changed.
func (b *board) told(err error) error {
	var se *api.StatusError
	var op *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &se) && se.Status == http.StatusForbidden:
		return fmt.Errorf("not allowed: %s", se.Message)
	case errors.As(err, &se) && se.Status == http.StatusRequestTimeout:
		return fmt.Errorf("nothing was changed: %s", se.Message)
	case errors.As(err, &se):
		return errors.New(se.Message)
	case errors.As(err, &op) && op.Op == "dial": // it never got there
		return b.unasked(err)
	case errors.Is(err, api.ErrSilent):
		// It may have been begun, and a guard that knows no deadline begins it even now.
		return fmt.Errorf("no answer: the guard was asked and then it did not say whether it is done (%s). "+
			"One that comes back later refuses what it had not begun in time (an older guard may still do it); see 'holdfast history'", why(err))
	}
	return err
}

// unasked makes an error of a question that comes before the change, or of the connection, one for people.
func (b *board) unasked(err error) error {
	var se *api.StatusError
	state, words := whether(err, b.config.GuardLock())
	switch {
	case err == nil:
		return nil
	case errors.As(err, &se):
		return b.told(err)
	case state == status.ProcessUnreachable:
		return fmt.Errorf("nothing was changed: the guard is not reachable (%s), and only it may change the ledger; %s", words, access(b.config.GuardSocket()))
	}
	return fmt.Errorf("nothing was changed: the guard does not answer (%s), and only it may change the ledger", words)
}

// poke makes the agent look again at once. Without it the next cycle does.
func (b *board) poke(ctx context.Context) (alive bool) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, err := b.agent.Reconcile(ctx, agent.ReconcileRequest{NoFetch: true})
	return err == nil
}

// confirmed asks whoever sits at a terminal whether to go on. Nobody else can be asked: a script means what it says.
func confirmed(cmd *cobra.Command) bool {
	in, out := cmd.InOrStdin(), cmd.OutOrStdout()
	if !isTerminal(in) || !isTerminal(out) {
		return true
	}
	fmt.Fprint(out, "Go on? [y/N] ")
	answer, _ := bufio.NewReader(in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return true
	}
	newPrinter(out).line("Nothing was changed.")
	return false
}

// warn says on the way what was wrong with the configuration; the verb goes on.
func (b *board) warn(p printer) {
	for _, s := range b.problems {
		p.item("holdfast:", s)
	}
}

// agentNote says that what was granted waits for an agent.
func agentNote(p printer, alive bool) {
	if !alive {
		p.line("The agent does not answer: nothing is tried until it runs, for it alone knows what is declared.")
	}
}
