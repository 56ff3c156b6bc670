package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhy(t *testing.T) {
	t.Parallel()
	asked := func(err error) error {
		return fmt.Errorf("the guard does not answer: %w", &url.Error{Op: "Get", URL: "http://guard/v1/effective", Err: err})
	}
	dial := func(err error) error { return asked(&net.OpError{Op: "dial", Net: "unix", Err: err}) }
	for _, tt := range []struct {
		name  string
		err   error
		state ProcessState
		words string
	}{
		{"no socket", dial(unix.ENOENT), ProcessDead, "it does not run"},
		{"nobody listens", dial(unix.ECONNREFUSED), ProcessDead, "it does not run"},
		{"no right", dial(unix.EACCES), ProcessUnreachable, "this user may not ask it"},
		{"stopped", asked(context.DeadlineExceeded), ProcessSilent, "it runs and does not answer"},
		{"killed meanwhile", asked(&net.OpError{Op: "read", Err: unix.ECONNRESET}), ProcessDead, "it ended while it was asked"},
		{"whatever else, without its address", asked(errors.New("odd\nand more")), ProcessDead, "odd; and more"},
		{"a file", &fs.PathError{Op: "open", Path: "/x", Err: unix.EACCES}, ProcessDead, "open /x: permission denied"},
		{"no file", &fs.PathError{Op: "open", Path: "/x", Err: unix.ENOENT}, ProcessDead, "open /x: no such file or directory"},
	} {
		if state, words := Why(tt.err); state != tt.state || words != tt.words {
			t.Errorf("%s: %s, %q; want %s, %q", tt.name, state, words, tt.state, tt.words)
		}
	}
}
