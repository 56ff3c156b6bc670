package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"holdfast/device/clock"
	"holdfast/device/greenhouse"
)

const serveHelp = `Usage: greenhouse serve [flags]

Simulates a greenhouse that speaks Holdfast's device contract until it is told to stop (SIGTERM). Its only line on
stdout is "listening on http://HOST:PORT", once it answers. It forgets everything when it stops.

`

const benchHelp = `
The device:
  GET /healthz, GET /state[?wait=TAG], POST /actuators (with --token-file: Authorization: Bearer …)

The test bench, on the simulator only:
  POST /reset                  what a power cut does: actuators off and closed, climate at its start
  GET  /sim                    seed, speed, hour, weather, the true climate
  GET  /sim/writes             accepted writes: how many, and the last 1000 (?since=N)
  POST /sim/set                move things by hand, e.g.
    curl -d '{"temperature":30, "actuators":{"vent":"on", "lamp":"dim", "door":null}}' URL/sim/set
  GET, POST, DELETE /sim/faults[?id=N]   list, switch on, switch off. Each may have "count" (times) and "for" ("30s"), e.g.
    curl -d '{"kind":"hang", "on":"write", "applied":true}' URL/sim/faults
    hang, drop                   "on":"health", "read" or "write", default all; "applied":true does a write's work all the same
    status                       the same, with "status":503
    delay                        the same, with "delay":"12s"
    malformed, huge              half an answer; "bytes" of answer, default 16 MiB. "on" as above
    refuse                       "actuator":"lamp", "value":"on" (default: any value): 400
    echo                         "actuator":"lamp", "value":"dim": stores that instead of what is written
    ignore                       "actuator":"lamp": says yes and does nothing
    stick, silent                "reading":"temperature", "at":21 (default: as it is now); left out
    creep                        "reading":"temperature", "perHour":5: off by more and more, per simulated hour
`

// serve runs the simulator until ctx ends.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("greenhouse serve", flag.ContinueOnError)
	fs.SetOutput(stderr)
	listen := fs.String("listen", "127.0.0.1:8080", "`address` to answer on; port 0 takes a free one")
	o := greenhouse.Options{Clock: clock.New()}
	fs.Uint64Var(&o.Seed, "seed", 1, "`number` that chooses the weather")
	fs.Float64Var(&o.Speed, "speed", 1, "simulated time per real time, 0 to 3600")
	fs.Float64Var(&o.StartHour, "start-hour", 12, "simulated `hour` of the day at the start, 0 to under 24")
	fs.StringVar(&o.TokenFile, "token-file", "", "`file` with the bearer token that a write needs; read anew for each")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), serveHelp)
		fs.PrintDefaults()
		fmt.Fprint(fs.Output(), benchHelp)
	}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitFine
	case err != nil:
		return exitMisuse
	case fs.NArg() > 0:
		fmt.Fprintf(stderr, "greenhouse serve: unexpected argument %q\n", fs.Arg(0))
		return exitMisuse
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	g, err := greenhouse.New(o)
	if err != nil {
		fmt.Fprintf(stderr, "greenhouse serve: %v\n", err)
		return exitMisuse
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		fmt.Fprintf(stderr, "greenhouse serve: cannot listen: %v\n", err)
		return exitNotFine
	}
	fmt.Fprintf(stdout, "listening on http://%s\n", l.Addr())
	srv := &http.Server{
		Handler:           g.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		// No WriteTimeout: long-polls and simulated hanging are meant to last. They end with ctx.
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		log.Error("server ended", "error", err)
		return exitNotFine
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := srv.Shutdown(last); err != nil {
		_ = srv.Close() // a client that keeps its request open is cut off, as by a real device
	}
	return exitFine
}
