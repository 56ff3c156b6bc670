package gitclone

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// source gives out objects by hash. What it gives is hashed here before it is believed.
type source interface {
	get(h plumbing.Hash, want plumbing.ObjectType) (plumbing.EncodedObject, error)
}

// proof is a chain from a revision to our file, each link hashed: the revision, the folders on the way, the file.
type proof struct {
	commit  *object.Commit
	objects []plumbing.EncodedObject // all of the chain, and nothing else
	data    []byte                   // the file
	notice  string                   // something a person should read about it
}

// prove walks from the revision to the file and believes nothing that does not have the hash by which it was asked for.
func prove(src source, revision plumbing.Hash, file string, maxFile int64) (*proof, error) {
	p := &proof{}
	load := func(h plumbing.Hash, want plumbing.ObjectType) (plumbing.EncodedObject, error) {
		o, err := src.get(h, want)
		if KindOf(err) == ErrTooLarge && want == plumbing.BlobObject {
			return nil, fail(ErrTooLarge, "%s in revision %s is too large: %w", file, short(revision), err)
		}
		if KindOf(err) != "" {
			return nil, err
		}
		if err != nil {
			return nil, fail(ErrProtocol, "the server did not send %s %s: %w", want, h, err)
		}
		if o.Type() != want {
			return nil, fail(ErrProtocol, "the server sent a %s as %s %s", o.Type(), want, h)
		}
		b, err := content(o)
		if err != nil {
			return nil, fail(ErrProtocol, "cannot read %s %s: %w", want, h, err)
		}
		if got := plumbing.ComputeHash(want, b); got != h {
			return nil, fail(ErrProtocol, "%s %s has the content of %s", want, h, got)
		}
		p.objects = append(p.objects, o)
		return o, nil
	}

	o, err := load(revision, plumbing.CommitObject)
	if err != nil {
		return nil, err
	}
	p.commit = &object.Commit{}
	if err := p.commit.Decode(o); err != nil {
		return nil, fail(ErrProtocol, "cannot read revision %s: %w", revision, err)
	}
	at := p.commit.TreeHash
	parts := strings.Split(file, "/")
	for i, name := range parts {
		o, err := load(at, plumbing.TreeObject)
		if err != nil {
			return nil, err
		}
		tree := &object.Tree{}
		if err := tree.Decode(o); err != nil {
			return nil, fail(ErrProtocol, "cannot read folder %s: %w", at, err)
		}
		entry, err := entryOf(tree, name)
		if err != nil {
			return nil, err
		}
		here, last, twin := path.Join(parts[:i+1]...), i == len(parts)-1, twinOf(tree, name)
		if twin != "" {
			p.notice = fmt.Sprintf("%+q, which looks like %s, is another name and is not read", twin, here)
		}
		switch {
		case entry == nil:
			if twin != "" {
				return nil, fail(ErrFileMissing, "there is no %s in revision %s, but %+q, which is another name", here, short(revision), twin)
			}
			return nil, fail(ErrFileMissing, "there is no %s in revision %s", here, short(revision))
		case entry.Mode == filemode.Symlink:
			return nil, fail(ErrNotAFile, "%s is a symbolic link in revision %s", here, short(revision))
		case entry.Mode == filemode.Submodule:
			return nil, fail(ErrNotAFile, "%s is a submodule in revision %s", here, short(revision))
		case last && entry.Mode == filemode.Dir:
			return nil, fail(ErrNotAFile, "%s is a folder in revision %s", here, short(revision))
		case last && entry.Mode != filemode.Regular && entry.Mode != filemode.Executable && entry.Mode != filemode.Deprecated:
			return nil, fail(ErrNotAFile, "%s has mode %s in revision %s", here, entry.Mode, short(revision))
		case !last && entry.Mode != filemode.Dir:
			return nil, fail(ErrFileMissing, "%s is not a folder in revision %s", here, short(revision))
		}
		at = entry.Hash
	}
	if o, err = load(at, plumbing.BlobObject); err != nil {
		return nil, err
	}
	if o.Size() > maxFile {
		return nil, fail(ErrTooLarge, "%s has %d bytes in revision %s, %d are allowed", file, o.Size(), short(revision), maxFile)
	}
	if p.data, err = content(o); err != nil {
		return nil, fail(ErrProtocol, "cannot read %s: %w", file, err)
	}
	if bytes.HasPrefix(p.data, []byte("version https://git-lfs.github.com/spec/")) {
		return nil, fail(ErrNotAFile, "%s is an LFS pointer in revision %s", file, short(revision))
	}
	return p, nil
}

// entryOf finds a name byte for byte. Two entries of one name are damage or malice: git never makes them.
func entryOf(t *object.Tree, name string) (*object.TreeEntry, error) {
	var found *object.TreeEntry
	for i := range t.Entries {
		if t.Entries[i].Name != name {
			continue
		}
		if found != nil {
			return nil, fail(ErrProtocol, "a folder has two entries %q", name)
		}
		found = &t.Entries[i]
	}
	return found, nil
}

// twinOf is another name in the folder that differs from name only in what the eye may miss: whoever changes the wrong one
// of the two would wait in vain.
func twinOf(t *object.Tree, name string) string {
	for i := range t.Entries {
		if other := t.Entries[i].Name; other != name && looksLike(other, name) {
			return other
		}
	}
	return ""
}

// looksLike reports whether two names are the same but for case, accents and how they are composed, and YAML's suffix.
func looksLike(a, b string) bool {
	a, b = longSuffix(a), longSuffix(b)
	for {
		x, n := letter(a)
		y, m := letter(b)
		if a, b = a[n:], b[m:]; x != y || n == 0 {
			return x == y
		}
	}
}

func longSuffix(name string) string {
	if rest, ok := strings.CutSuffix(name, ".yml"); ok {
		return rest + ".yaml"
	}
	return name
}

// letter is a name's first letter and its length: in lower case, and the same for all that are not ASCII or have accents.
func letter(s string) (r rune, size int) {
	r, size = utf8.DecodeRuneInString(s)
	if size == 0 {
		return 0, 0
	}
	if r > unicode.MaxASCII {
		r = utf8.RuneError
	}
	for {
		accent, n := utf8.DecodeRuneInString(s[size:])
		if !unicode.Is(unicode.Mn, accent) {
			return unicode.ToLower(r), size
		}
		r, size = utf8.RuneError, size+n
	}
}

// validPath reports whether a path can name a file in a repository.
func validPath(p string) bool {
	if p == "" || p != path.Clean(p) || strings.HasPrefix(p, "/") || strings.ContainsRune(p, 0) {
		return false
	}
	parts := strings.Split(p, "/")
	return len(parts) <= maxDepth && !slices.Contains(parts, "..") && !slices.Contains(parts, ".")
}

const maxDepth = 32 // folders

func content(o plumbing.EncodedObject) ([]byte, error) {
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

func short(h plumbing.Hash) string { return h.String()[:12] }
