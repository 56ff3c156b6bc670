package scenario

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// battery is what feeds the greenhouse, measured on the board itself: the check of that name in the template asks it over HTTP. What
// it can take is the scenario's weather, so a change is good or bad without waiting for a sun to set.
type battery struct {
	url    string
	server *http.Server
	device knobs

	mu    sync.Mutex
	rule  string            // holds, sags, sags-with, gone
	loads map[string]string // sags-with: fields that are too much together
	last  map[string]string // newest state of the device
}

func newBattery(addr string, device knobs) (*battery, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	b := &battery{url: "http://" + addr, device: device, rule: "holds"}
	b.server = &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(b.serve)}
	go b.server.Serve(l)
	return b, nil
}

func (b *battery) close() { b.server.Close() }

func (b *battery) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.rule {
	case "gone":
		panic(http.ErrAbortHandler)
	case "sags":
		http.Error(w, "10.9 V", http.StatusServiceUnavailable)
		return
	case "sags-with":
		if s, err := b.device.within(300 * time.Millisecond).state(); err == nil {
			b.last = s
		}
		all := true
		for field, v := range b.loads {
			all = all && b.last[field] == v
		}
		if all {
			http.Error(w, "11.2 V", http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "12.6 V")
}

// set takes the words of the verb battery.
func (b *battery) set(args []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(args) == 1 && (args[0] == "holds" || args[0] == "sags" || args[0] == "gone"):
		b.rule = args[0]
	case len(args) > 1 && args[0] == "sags-with":
		b.rule, b.loads = args[0], map[string]string{}
		for _, a := range args[1:] {
			field, v, ok := strings.Cut(a, "=")
			if !ok {
				return fmt.Errorf("%q is not FIELD=VALUE", a)
			}
			b.loads[field] = v
		}
	default:
		return fmt.Errorf("battery holds|sags|gone|sags-with FIELD=VALUE…, got %q", args)
	}
	return nil
}
