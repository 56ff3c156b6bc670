package selftest

import (
	"context"
	"errors"
	"os/exec"
	"time"
)

// unitActive asks systemd whether unit is active.
//
// It asks through systemctl. The D-Bus library would be linked into a guard that has to stay small, with a connection to keep
// alive and its own ways to hang; systemctl comes with every systemd, finds the manager by its private socket even
// when the bus is down, and is held to the check's timeout like any command.
func unitActive(ctx context.Context, name, unit string, timeout time.Duration) outcome {
	output, err := run(ctx, name, []string{"systemctl", "is-active", "--", unit})
	said := printable(output)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return outcome{ok: true, message: unit + " is " + said}
	case errors.Is(err, exec.ErrNotFound):
		return outcome{message: "systemctl is not installed here, and without systemd no unit can be active"}
	case !errors.As(err, &exit):
		return outcome{message: "systemctl cannot be run: " + err.Error()}
	case ctx.Err() != nil:
		return outcome{message: "systemd does not say within " + timeout.String() + " what " + unit + " is"}
	}
	return outcome{message: unit + " is not active: " + said}
}
