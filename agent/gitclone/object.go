package gitclone

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// object is a git object whose content has been hashed, and is not written to any more.
//
// Objects are read here and where they lie. A folder of 10,000 devices has 400 KB, of which go-git's decoder would make
// four times as much to find one name; and it would link OpenPGP into a process that is resident for years.
type object struct {
	typ     plumbing.ObjectType
	hash    plumbing.Hash
	content []byte
}

// revision is what is needed of a git commit. Times are their makers', zero if they cannot be read.
type revision struct {
	tree      plumbing.Hash
	parents   []plumbing.Hash
	author    string
	authored  time.Time
	committed time.Time
	subject   string // first line of the message
}

// parseRevision reads a git commit. What decides, tree and parents, is read as git does: from the first line, and from
// those right after it.
func parseRevision(b []byte) (r revision, err error) {
	next := func(key string) (value string, ok bool) {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		value, ok = strings.CutPrefix(string(line), key+" ")
		if ok {
			b = rest
		}
		return value, ok
	}
	value, _ := next("tree")
	h, _, ok := parseHash(value)
	if !ok {
		return r, errors.New("it does not begin with a tree")
	}
	r.tree = h
	for {
		value, ok := next("parent")
		if !ok {
			break
		}
		if h, _, ok = parseHash(value); !ok {
			return r, errors.New("a parent has no hash")
		}
		r.parents = append(r.parents, h)
	}
	value, _ = next("author")
	r.author, r.authored = signature(value)
	value, _ = next("committer")
	_, r.committed = signature(value)
	_, message, _ := bytes.Cut(b, []byte("\n\n"))
	if bytes.HasPrefix(b, []byte("\n")) {
		message = b[1:]
	}
	message, _, _ = bytes.Cut(message, []byte("\n"))
	r.subject = string(message)
	return r, nil
}

// signature reads who and when: Ada <ada@example.org> 1700000000 +0100
func signature(s string) (name string, when time.Time) {
	open, end := strings.LastIndexByte(s, '<'), strings.LastIndexByte(s, '>')
	if open < 0 || end < open {
		return "", when
	}
	clock, zone, _ := strings.Cut(strings.TrimPrefix(s[end+1:], " "), " ")
	if seconds, err := strconv.ParseInt(clock, 10, 64); err == nil {
		when = time.Unix(seconds, 0).UTC()
		if t, err := time.Parse("-0700", zone); err == nil {
			_, offset := t.Zone()
			when = when.In(time.FixedZone("", offset))
		}
	}
	return strings.TrimSpace(s[:open]), when
}

// treeEntry is what a folder says of one name.
type treeEntry struct {
	mode uint32
	hash plumbing.Hash
}

// Kinds of entry: the upper bits of a mode.
const (
	modeKind      = 0o170000
	modeFolder    = 0o040000
	modeFile      = 0o100000
	modeLink      = 0o120000
	modeSubmodule = 0o160000
)

// lookup finds a name in a folder, byte for byte; nil if it is not there. It reads all of the folder: two entries of one
// name are damage or malice, since git never makes them; and twin is another name that differs only in what the eye may
// miss, for whoever changes the wrong one of the two would wait in vain.
func lookup(folder []byte, name string) (found *treeEntry, twin string, err error) {
	for len(folder) > 0 {
		mode, rest, ok := bytes.Cut(folder, []byte(" "))
		entry, rest, ok2 := bytes.Cut(rest, []byte{0})
		kind, err := strconv.ParseUint(string(mode), 8, 32)
		if !ok || !ok2 || err != nil || len(entry) == 0 || len(rest) < len(plumbing.ZeroHash) {
			return nil, "", fmt.Errorf("it is damaged after %q", clean(string(folder[:min(len(folder), 40)])))
		}
		switch {
		case string(entry) == name && found != nil:
			return nil, "", fmt.Errorf("it has two entries %q", clean(name))
		case string(entry) == name:
			found = &treeEntry{uint32(kind), plumbing.Hash(rest[:len(plumbing.ZeroHash)])}
		case twin == "" && looksLike(string(entry), name):
			twin = string(entry)
		}
		folder = rest[len(plumbing.ZeroHash):]
	}
	return found, twin, nil
}
