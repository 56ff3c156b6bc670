package status

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"golang.org/x/sys/unix"
)

// Why says in words why somebody who was asked over his socket gave no answer, or what is wrong with a file: no URL and no system
// call, which say nothing to whoever reads this at night.
func Why(err error) (ProcessState, string) {
	var op *net.OpError
	dialled := errors.As(err, &op) && op.Op == "dial"
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT) && dialled:
		return ProcessDead, "it does not run"
	case errors.Is(err, unix.EACCES) && dialled:
		return ProcessUnreachable, "this user may not ask it"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return ProcessSilent, "it runs and does not answer"
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return ProcessDead, "it ended while it was asked"
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // it repeats method and URL
	}
	return ProcessDead, OneLine(err.Error())
}

// OneLine makes one line of an error of several.
func OneLine(s string) string {
	return strings.NewReplacer(":\n", ": ", "\n", "; ").Replace(strings.TrimSpace(s))
}

// Explain puts an error behind what it is about: on the same line, or as a list below it if there are several.
func Explain(about string, err error) string {
	text := strings.TrimSpace(err.Error())
	if strings.Contains(text, "\n") {
		return fmt.Sprintf("%s:\n%s", about, text)
	}
	return fmt.Sprintf("%s: %s", about, text)
}
