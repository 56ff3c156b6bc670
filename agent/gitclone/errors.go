package gitclone

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"

	"holdfast/device/clock"
)

// Kind sorts what can go wrong with the state repository into words that status, logs and scenarios share. It is an
// error itself, so that errors.Is(err, gitclone.ErrOffline) works.
type Kind string

// The vocabulary. Words are added, never changed.
const (
	ErrOffline          Kind = "offline"           // nobody answers, or the link breaks or stalls
	ErrAuthOrNotFound   Kind = "auth-or-not-found" // forges answer alike to a bad token and a wrong name
	ErrHostKey          Kind = "host-key"          // SSH: not one of the known hosts' keys
	ErrCertificate      Kind = "certificate-or-clock"
	ErrBranchGone       Kind = "branch-gone"
	ErrRepositoryEmpty  Kind = "repository-empty"
	ErrHistoryRewritten Kind = "history-rewritten" // the head does not descend from the revision in force
	ErrFileMissing      Kind = "file-missing"
	ErrFileInvalid      Kind = "file-invalid" // Options.Validate says no
	ErrNotAFile         Kind = "not-a-file"   // a link, a submodule, a folder or an LFS pointer
	ErrTooLarge         Kind = "too-large"
	ErrStore            Kind = "store"    // this board's own disk
	ErrProtocol         Kind = "protocol" // not git's: a captive portal, a proxy's page, damage on the way
)

// Error is the word itself.
func (k Kind) Error() string { return string(k) }

// Error is what Fetch returns: which kind, what happened, and what a person can do. It never holds a credential.
type Error struct {
	Kind   Kind
	Advice string
	Err    error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return string(e.Kind)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrOffline) work.
func (e *Error) Is(target error) bool { k, ok := target.(Kind); return ok && k == e.Kind }

// KindOf returns an error's kind, or "" if it has none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// advice is what a person can do, by kind.
var advice = map[Kind]string{
	ErrOffline:          "check link, name resolution and the server; the last valid state stays in force",
	ErrAuthOrNotFound:   "check repository.url and the token or key; servers answer alike when one may not see a repository and when there is none",
	ErrHostKey:          "the server showed a key that is not in knownHostsFile; if it was changed on purpose, add the new line there",
	ErrCertificate:      "check this board's clock, then the server's certificate and repository.caFile",
	ErrBranchGone:       "create the branch again or change repository.branch",
	ErrRepositoryEmpty:  "push a first revision",
	ErrHistoryRewritten: "if this is meant: 'holdfast accept %s'",
	ErrFileMissing:      "add the file to the repository or change repository.path",
	ErrFileInvalid:      "mend the file; 'holdfast validate FILE' gives the same answer",
	ErrNotAFile:         "commit the file itself: links, submodules, folders and LFS pointers are not followed",
	ErrTooLarge:         "make the file or the repository smaller",
	ErrStore:            "check the disk that holds the clone: space, permissions, read-only",
	ErrProtocol:         "something other than a git server answers, or the data is damaged on its way: captive portal, proxy, wrong URL",
}

func fail(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Advice: advice[k], Err: fmt.Errorf(format, args...)}
}

var (
	errStalled     = errors.New("the server has stopped sending")
	errTooSlow     = errors.New("the server sends too slowly")
	errUnavailable = errors.New("the server is not available")
	errTimeout     = errors.New("out of time")
	errRedirect    = errors.New("redirected to another server")
	errNotGit      = errors.New("the answer is not git's")
	errBytes       = errors.New("more bytes than allowed")
	errHostKey     = errors.New("host key not accepted")
	errAuth        = errors.New("not allowed, or no such repository")
	errSays        = errors.New("the server says") // in git's own words; what follows is the server's
	errCaps        = errors.New("more than allowed")
	errStep        = errors.New("a step is out of time")
)

// classify sorts an error of the network or of go-git, which loses types on its way up. What cannot be told apart from
// a bad link is offline, and what is plainly not git's is protocol. The cause is flattened into text that is short,
// printable and without credentials: a server chooses part of it.
func classify(doing string, err error, now time.Time, redact func(string) string) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	k, text := kindOf(err), err.Error()
	if u := (*url.Error)(nil); errors.As(err, &u) { // doing tells the URL
		text = strings.Replace(text, u.Error(), u.Err.Error(), 1)
	}
	e := fail(k, "cannot %s: %s", doing, clean(redact(text)))
	if k == ErrCertificate && !clock.Believable(now) {
		e.Advice = fmt.Sprintf("this board's clock says %s; no certificate is valid then. Set the clock", now.UTC().Format(time.DateOnly))
	}
	return e
}

// clean makes one printable line of at most 300 bytes of what a stranger wrote.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}

// sort is the kind of any error; "" of none.
func sort(err error) Kind {
	if err == nil {
		return ""
	}
	if k := KindOf(err); k != "" {
		return k
	}
	return kindOf(err)
}

func kindOf(err error) Kind {
	var (
		verify *tls.CertificateVerificationError
		record tls.RecordHeaderError
		unknow x509.UnknownAuthorityError
		host   x509.HostnameError
		cert   x509.CertificateInvalidError
		netErr net.Error
		text   = err.Error()
	)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.Is(err, errHostKey):
		return ErrHostKey
	case errors.As(err, &verify), errors.As(err, &unknow), errors.As(err, &host), errors.As(err, &cert):
		return ErrCertificate
	case errors.Is(err, errBytes):
		return ErrTooLarge
	case errors.Is(err, errAuth), has("unable to authenticate", "no supported methods remain", "dubious ownership"):
		return ErrAuthOrNotFound
	case errors.Is(err, errNotGit), errors.Is(err, errRedirect), errors.Is(err, errSays), errors.As(err, &record),
		has("HTTP response to HTTPS client"):
		return ErrProtocol
	case errors.Is(err, errStep), errors.Is(err, errStalled), errors.Is(err, errTooSlow), errors.Is(err, errTimeout), errors.Is(err, errUnavailable),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &netErr):
		return ErrOffline
	case has("unexpected EOF", "connection reset", "broken pipe", "EOF"):
		return ErrOffline // go-git formats the cause away in places
	}
	return ErrProtocol
}
