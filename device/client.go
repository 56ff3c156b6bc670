package device

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/go-retryablehttp"

	"holdfast/device/clock"
)

const (
	defaultTimeout = 2 * time.Second // of one attempt, when ClientOptions.Timeout is 0

	// maxBody bounds an answer, in bytes. A greenhouse's state is under 1 KiB.
	maxBody = 64 << 10

	// A device is asked once more, soon: a loop with an interval of seconds has its own next cycle, and
	// a sick device must neither hold up the heartbeat nor be able to (Retry-After is capped to retryWaitMax).
	retryMax     = 1
	retryWaitMin = 200 * time.Millisecond
	retryWaitMax = time.Second

	// longPoll is the longest that a device keeps GET /state?wait= open.
	longPoll = 25 * time.Second
	// notWaiting is how soon an unchanged tag comes from a device that knows tags but does not wait.
	notWaiting = time.Second

	// maxToken bounds the token file, in bytes.
	maxToken = 4 << 10
)

// TagHeader carries the state's tag in the answer to GET /state. It is opaque, and changes when an actuator does (or
// when the device restarts); readings, which always move, do not change it.
const TagHeader = "Holdfast-Tag"

// Client speaks the device contract over HTTP/JSON (docs/design.md, "The device contract").
//
// It trusts the device with nothing: each attempt has a time-out that includes the answer's body, answers are bounded,
// redirects and the environment's proxies are not followed, and what comes back must at least be JSON with actuators. What it does not know
// it leaves alone, so that a device may be newer than its agent. It is safe for use by several goroutines.
type Client struct {
	base      *url.URL
	tokenFile string
	locate    func(string) (string, error)
	timeout   time.Duration
	order     []string
	clock     clock.Clock
	http      *retryablehttp.Client
}

// ClientOptions say where the device is and how patient to be.
type ClientOptions struct {
	URL       string // http or https, with an optional path that goes before the contract's
	TokenFile string // bearer token for writes, read anew for each; "" for none
	// Locate says where the file called TokenFile really is, with an error that names it as that; nil: there.
	Locate  func(path string) (string, error)
	Timeout time.Duration // per attempt, the answer's body included; default 2 s
	Clock   clock.Clock   // for WaitState alone: attempts and pauses between them run on the Go runtime's timers
	// Profile, if given, orders the keys of a write: JSON says that order means nothing, but a simple device
	// moves its actuators in the order in which it reads them. Without it keys go out sorted.
	Profile Profile
}

// RefusedError reports that the device answered 400: nothing was applied. Known or Allowed say what it would take.
type RefusedError struct {
	Message string
	Known   []string // actuators, after an unknown one
	Allowed []string // values, after a value that it does not take
}

func (e *RefusedError) Error() string { return e.Message }

// StatusError reports an answer with a status that is neither 200 nor a refusal. The device is alive, so that
// what it says about one field need not be said about the others.
type StatusError struct {
	Status  int    // HTTP
	Message string // the answer's "error", or the beginning of its body; may be empty
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("the device answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// errTooLong is the cause of an attempt that was ended by its time-out.
var errTooLong = errors.New("attempt timed out")

// NewClient returns a client; it does not touch the device. An error is one of configuration.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("device URL: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("device URL %q: the scheme must be http or https", o.URL)
	case u.Host == "":
		return nil, fmt.Errorf("device URL %q: no host", o.URL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("device URL %q: only scheme, host, port and path are allowed", u.Redacted())
	case o.Timeout < 0:
		return nil, fmt.Errorf("device time-out %s: must be positive", o.Timeout)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Locate == nil {
		o.Locate = func(path string) (string, error) { return path, nil }
	}
	c := &Client{base: u, tokenFile: o.TokenFile, locate: o.Locate, timeout: o.Timeout, clock: o.Clock}
	for _, a := range o.Profile.Actuators {
		c.order = append(c.order, a.Name)
	}
	c.http = &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     attempts{newTransport()},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		RetryMax:     retryMax,
		RetryWaitMin: retryWaitMin,
		RetryWaitMax: retryWaitMax,
		CheckRetry:   checkRetry,
		Backoff: func(lo, hi time.Duration, n int, resp *http.Response) time.Duration {
			return max(lo, min(hi, retryablehttp.DefaultBackoff(lo, hi, n, resp)))
		},
		// Without it the last answer would be thrown away, and with it what the device says about its 500.
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return c, nil
}

// newTransport returns a transport for one device nearby. There is no proxy on purpose: one that stands in the
// environment is for the way upstream, and must not come between a board and the device on its own wire.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext,
		MaxIdleConns:           2,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxBody,
	}
}

// attempt is what the transport has to know of a request; it travels in the request's context.
type attempt struct {
	timeout time.Duration
	retries bool
	before  func() error // nil for a read

	stopped error // what before said, once it said no
	last    error // how the attempt before went wrong, nil if it had an answer
}

type attemptKey struct{}

// attempts gives each attempt its time-out and asks before it goes out. It sits below the retries, the only place that
// every attempt passes, and reads the whole answer, so that a body that trickles in is cut off like a head that does not come.
type attempts struct{ next http.RoundTripper }

func (t attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	at := req.Context().Value(attemptKey{}).(*attempt)
	if at.before != nil {
		if err := at.before(); err != nil {
			at.stopped = err
			if req.Body != nil {
				_ = req.Body.Close() // a RoundTripper must
			}
			return nil, err
		}
	}
	// The dial is inside the time-out too: what before allowed is over, one way or the other, after it.
	ctx, cancel := context.WithTimeoutCause(req.Context(), at.timeout, errTooLong)
	defer cancel()
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err == nil {
		err = readAll(resp)
	}
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		err = fmt.Errorf("no answer within %s", at.timeout)
	}
	at.last = err
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 500 {
		at.last = &StatusError{Status: resp.StatusCode}
	}
	return resp, nil
}

// errTooBig is an answer that is no device's.
var errTooBig = fmt.Errorf("the answer is longer than %d KiB", maxBody>>10)

// readAll replaces the answer's body by its bytes.
func readAll(resp *http.Response) error {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return err
	}
	if len(b) > maxBody {
		return errTooBig
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

// checkRetry lets a request be tried again after a connection that failed, a time-out, 429 and 5xx (but 501). 400 is
// an answer, and what before forbids stays forbidden.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	at := ctx.Value(attemptKey{}).(*attempt)
	if !at.retries || at.stopped != nil || errors.Is(err, errTooBig) {
		return false, err
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// do sends one request, retries included, and returns the status and body of the answer.
func (c *Client) do(ctx context.Context, method, path string, body []byte, header http.Header, at *attempt) (*http.Response, []byte, error) {
	u := *c.base
	path, query, _ := strings.Cut(path, "?")
	u = *u.JoinPath(path)
	u.RawQuery = query
	var raw any // an untyped nil means no body; a nil []byte would be one of length 0
	if body != nil {
		raw = body
	}
	req, err := retryablehttp.NewRequestWithContext(context.WithValue(ctx, attemptKey{}, at), method, u.String(), raw)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "holdfast")

	resp, err := c.http.Do(req)
	switch {
	case at.stopped != nil && at.last != nil:
		return nil, nil, fmt.Errorf("%w; the attempt before it: %w", at.stopped, toldError{at.last})
	case at.stopped != nil:
		return nil, nil, at.stopped
	case err != nil:
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // it repeats the method and the URL
		}
		return nil, nil, fmt.Errorf("%s %s: %w", method, u.Redacted(), toldError{err})
	}
	b, err := io.ReadAll(resp.Body) // from memory, see readAll
	if err != nil {
		return nil, nil, err
	}
	return resp, b, nil
}

// failure turns an answer other than 200 into an error.
func (c *Client) failure(resp *http.Response, body []byte) error {
	var a struct {
		Error          string
		Known, Allowed []string
	}
	if err := json.Unmarshal(body, &a); err != nil && a.Error == "" {
		a.Error = string(body) // as from something that is not a device: a proxy's page
	}
	for _, l := range [][]string{a.Known, a.Allowed} {
		for i := range l {
			l[i] = printable(l[i])
		}
	}
	msg := strings.TrimSpace(printable(a.Error))
	switch code := resp.StatusCode; {
	case code == http.StatusBadRequest:
		if msg == "" {
			msg = "the device answered 400 and no reason"
		}
		return &RefusedError{Message: msg, Known: a.Known, Allowed: a.Allowed}
	case code == http.StatusUnauthorized && c.tokenFile == "":
		return &StatusError{code, "it wants a token, and no token file is configured (device.tokenFile)"}
	case code == http.StatusUnauthorized:
		return &StatusError{code, "it does not take the token in " + c.tokenFile}
	case code >= 300 && code < 400:
		return &StatusError{code, "it redirects, which is not followed: set device.url to where it is"}
	default:
		return &StatusError{code, msg}
	}
}

// toldError is an error of the transport, whose text may quote what the device sent.
type toldError struct{ error }

func (e toldError) Error() string { return printable(e.error.Error()) }
func (e toldError) Unwrap() error { return e.error }

// printable makes text of the device fit for a log line: one line, at most 300 characters.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	if r := []rune(s); len(r) > 300 {
		return string(r[:300]) + "…"
	}
	return s
}

// Health asks GET /healthz.
func (c *Client) Health(ctx context.Context) error {
	resp, body, err := c.do(ctx, http.MethodGet, "healthz", nil, nil, &attempt{timeout: c.timeout, retries: true})
	if err != nil {
		return fmt.Errorf("cannot ask the device's health: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("cannot ask the device's health: %w", c.failure(resp, body))
	}
	var a struct{ Status string }
	if err := json.Unmarshal(body, &a); err != nil {
		return fmt.Errorf("cannot read the device's health: %w", err)
	}
	if a.Status != "ok" {
		return fmt.Errorf("the device says that its health is %q", printable(a.Status))
	}
	return nil
}

// State asks GET /state. It is tried at most twice; an answer without actuators is an error, a reading that is not a number is left out.
func (c *Client) State(ctx context.Context) (State, error) {
	resp, body, err := c.do(ctx, http.MethodGet, "state", nil, nil, &attempt{timeout: c.timeout, retries: true})
	if err != nil {
		return State{}, fmt.Errorf("cannot read the device's state: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return State{}, fmt.Errorf("cannot read the device's state: %w", c.failure(resp, body))
	}
	s, err := parseState(body)
	if err != nil {
		return State{}, fmt.Errorf("cannot read the device's state: %w", err)
	}
	return s, nil
}

// WaitState asks GET /state?wait=tag: it answers when the state is no longer that of the tag, or after some
// seconds (25 at most). It returns the new tag (TagHeader), "" from a device that has none or that does not wait (then
// the caller must not call again at once). With the tag "" it answers at once. It is not retried: a hint that is lost is
// made up for by the next cycle.
func (c *Client) WaitState(ctx context.Context, tag string) (newTag string, err error) {
	start := c.clock.Uptime()
	resp, body, err := c.do(ctx, http.MethodGet, "state?wait="+url.QueryEscape(tag), nil, nil,
		&attempt{timeout: c.timeout + longPoll})
	if err != nil {
		return "", fmt.Errorf("cannot wait for the device's state: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("cannot wait for the device's state: %w", c.failure(resp, body))
	}
	newTag = resp.Header.Get(TagHeader)
	if newTag == tag && c.clock.Uptime()-start < notWaiting {
		return "", nil
	}
	return newTag, nil
}

// Apply posts the given keys to /actuators and returns what the device answers. before is called right before each
// attempt goes out, retries included; when it returns an error nothing more is sent and Apply returns that error (wrapped, with
// how it went, if an earlier attempt did go out). A *RefusedError means that nothing was applied; after any other error the device may or
// may not have applied some of it, and only reading the state can tell.
func (c *Client) Apply(ctx context.Context, set Fields, before func() error) (State, error) {
	header := http.Header{"Content-Type": {"application/json"}}
	if c.tokenFile != "" {
		// Read for each write: a token is replaced rarely, but then in a file and not by a restart.
		token, err := c.token()
		if err != nil {
			return State{}, fmt.Errorf("cannot write to the device: %w", err)
		}
		header.Set("Authorization", "Bearer "+token)
	}
	at := &attempt{timeout: c.timeout, retries: true, before: before}
	resp, body, err := c.do(ctx, http.MethodPost, "actuators", marshalOrdered(set, c.order), header, at)
	if at.stopped != nil {
		return State{}, err
	}
	if err != nil {
		return State{}, fmt.Errorf("cannot write to the device: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		err := c.failure(resp, body)
		var refused *RefusedError
		if errors.As(err, &refused) {
			return State{}, err
		}
		return State{}, fmt.Errorf("cannot write to the device: %w", err)
	}
	s, err := parseState(body)
	if err != nil {
		return State{}, fmt.Errorf("cannot read the device's answer to a write: %w", err)
	}
	return s, nil
}

// token reads the bearer token: one line of printable characters without spaces.
func (c *Client) token() (string, error) {
	file, err := c.locate(c.tokenFile)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	bad := func(r rune) bool { return r <= ' ' || r > '~' }
	if token == "" || len(b) > maxToken || strings.ContainsFunc(token, bad) {
		return "", fmt.Errorf("token file %s: not one line of at most %d printable characters", c.tokenFile, maxToken)
	}
	return token, nil
}

// marshalOrdered is set as a JSON object: first the keys that order names, in its order, then the others sorted.
func marshalOrdered(set Fields, order []string) []byte {
	keys := make([]string, 0, len(set))
	for _, k := range order {
		if _, ok := set[k]; ok {
			keys = append(keys, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(order, k) {
			keys = append(keys, k)
		}
	}
	text := func(s string) []byte {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err) // a string always marshals
		}
		return b
	}
	b := []byte{'{'}
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, text(k)...)
		b = append(b, ':')
		b = append(b, text(set[k])...)
	}
	return append(b, '}')
}

// parseState reads the answer to GET /state or POST /actuators. Keys that are not known are ignored, and one odd value
// does not make the rest unreadable: a reading that is null or no number is left out, rather than taken for 0; an
// actuator that is null counts as missing, and one that is no string ("pump": true) keeps its JSON text, which a profile may know as
// a synonym and is drift otherwise.
func parseState(body []byte) (State, error) {
	var raw struct {
		ObservedAt json.RawMessage            `json:"observedAt"`
		Readings   map[string]json.RawMessage `json:"readings"`
		Actuators  map[string]json.RawMessage `json:"actuators"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return State{}, fmt.Errorf("the answer is not the contract's JSON: %w", err)
	}
	if raw.Actuators == nil {
		return State{}, errors.New("the answer has no actuators")
	}
	s := State{Readings: make(map[string]float64, len(raw.Readings)), Actuators: make(map[string]string, len(raw.Actuators))}
	_ = json.Unmarshal(raw.ObservedAt, &s.ObservedAt) // shown, never compared: a device without a clock leaves it zero
	for name, v := range raw.Readings {
		// ParseFloat would take "NaN" and "Infinity", but JSON has no such numbers, and the text is checked JSON by now.
		f, err := strconv.ParseFloat(string(v), 64)
		if err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			s.Readings[printable(name)] = f
		}
	}
	for name, v := range raw.Actuators {
		var text string
		if err := json.Unmarshal(v, &text); err != nil {
			text = string(v)
		} else if string(v) == "null" {
			continue
		}
		s.Actuators[printable(name)] = printable(text) // a name of the profile has nothing that would be changed
	}
	return s, nil
}
