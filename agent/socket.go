package agent

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"holdfast/bootslot/api"
	"holdfast/bootslot/journal"
	"holdfast/bootslot/sock"
)

// Handler serves the agent's socket:
//
//	GET  /v1/status?wait=CHANGE → status.Agent; with wait, once its change counter is another one (or after 25 s)
//	POST /v1/reconcile          ReconcileRequest → 202, Reconciling: fetch and look at the device now
//	POST /v1/accept             AcceptRequest → 202: take a head that does not descend from the one in force, once
//
// An error is a status of 400 and above with api.Error, as at the guard's socket.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		if s := r.URL.Query().Get("wait"); s != "" {
			n, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				sock.Answer(w, http.StatusBadRequest, api.Error{Message: "wait is not a change counter"})
				return
			}
			a.mu.Lock()
			now, next := a.changes.n, a.changes.c
			a.mu.Unlock()
			if now == n {
				select {
				case <-next:
				case <-r.Context().Done():
				case <-a.o.Clock.After(sock.LongPoll):
				}
			}
		}
		sock.Answer(w, http.StatusOK, a.Status())
	})
	mux.HandleFunc("POST /v1/reconcile", func(w http.ResponseWriter, r *http.Request) {
		var in ReconcileRequest
		if err := sock.Read(r, &in); err != nil && !errors.Is(err, io.EOF) { // nothing means everything
			sock.Answer(w, http.StatusBadRequest, api.Error{Message: "the request is not understood: " + err.Error()})
			return
		}
		what := "asked to fetch now"
		if in.NoFetch {
			what = "asked to look at the device now"
		}
		a.o.Log.InfoContext(r.Context(), what, "event", journal.Reconcile, "who", sock.Who(r))
		sock.Answer(w, http.StatusAccepted, a.Reconcile(!in.NoFetch))
	})
	mux.HandleFunc("POST /v1/accept", func(w http.ResponseWriter, r *http.Request) {
		var in AcceptRequest
		if err := sock.Read(r, &in); err != nil {
			sock.Answer(w, http.StatusBadRequest, api.Error{Message: "the request is not understood: " + err.Error()})
			return
		}
		if err := a.o.Clone.Accept(in.Revision); err != nil {
			sock.Answer(w, http.StatusBadRequest, api.Error{Message: err.Error()})
			return
		}
		a.o.Log.InfoContext(r.Context(), "revision accepted by an operator", "event", journal.Accepted, "revision", in.Revision, "who", sock.Who(r))
		a.FetchNow()
		sock.Answer(w, http.StatusAccepted, struct{}{})
	})
	return sock.Handler(mux, maxRequest)
}

// maxRequest bounds a request's body in bytes.
const maxRequest = 4 << 10

// ReconcileRequest is `holdfast reconcile`.
type ReconcileRequest struct {
	NoFetch bool `json:"noFetch,omitempty"` // look at the device only
}

// Reconciling says which fetch and which cycle answer a request: both begin after it. They are over when status.Agent's gitCycles and endedCycle have
// come to these numbers.
type Reconciling struct {
	Fetch uint64 `json:"fetch,omitempty"` // 0: none was asked for
	Cycle uint64 `json:"cycle,omitempty"`
}

// AcceptRequest is `holdfast accept`.
type AcceptRequest struct {
	Revision string `json:"revision"` // 40 hex digits
}
