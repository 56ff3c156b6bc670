package selftest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	maxBody      = 64 << 10
	maxHeader    = 64 << 10
	maxRedirects = 5
)

// get asks for rawURL; an answer of 2xx whose body (the first 64 KiB of it) arrives in time is good. Each request has a connection
// of its own, closed afterwards: what is tested is that the service takes a new one, and nothing is left behind.
func get(ctx context.Context, rawURL string, timeout time.Duration) outcome {
	u, err := url.Parse(rawURL)
	if err != nil {
		return outcome{message: err.Error()}
	}
	// Without userinfo and query: messages end in marks and in the history, secrets do not.
	what := "GET " + (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()

	client := http.Client{
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			// Losing the link may never convict, so a check of this board must not wander off to another host.
			if !strings.EqualFold(req.URL.Hostname(), u.Hostname()) {
				return fmt.Errorf("redirects to another host, %q", req.URL.Hostname())
			}
			if len(via) > maxRedirects {
				return fmt.Errorf("redirects more than %d times", maxRedirects)
			}
			return nil
		},
		Transport: &http.Transport{
			Proxy: nil, // the environment's proxy is not between us and this board
			// ctx ends the request; these two end a dial that the transport goes on with in the background.
			DialContext:            (&net.Dialer{Timeout: timeout + grace}).DialContext,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
			TLSHandshakeTimeout:    timeout + grace,
			// A certificate is judged by the wall clock, and a board without its link wakes up in 1970. No secret is sent and
			// nothing that comes back is used: the question is only whether the service serves.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, nil)
	if err != nil {
		return outcome{message: err.Error()}
	}
	req.Header.Set("User-Agent", "holdfast-guard")
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return outcome{message: what + ": no answer within " + timeout.String()}
		}
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return outcome{message: what + ": " + printable(err.Error())}
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return outcome{message: what + ": " + printable(resp.Status)}
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody)); err != nil {
		if ctx.Err() != nil {
			return outcome{message: what + ": " + printable(resp.Status) + ", but its body does not end within " + timeout.String()}
		}
		return outcome{message: what + ": " + printable(resp.Status) + ", but its body breaks off: " + printable(err.Error())}
	}
	return outcome{ok: true, message: what + ": " + printable(resp.Status)}
}
