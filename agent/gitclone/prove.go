package gitclone

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
)

// source gives out objects by hash. What it gives is hashed here before it is believed, and not written to.
// plumbing.ErrObjectNotFound if it has none.
type source interface {
	get(h plumbing.Hash, want plumbing.ObjectType) ([]byte, error)
}

// proof is a chain from a revision to our file, each link hashed: the revision, the folders on the way, the file.
type proof struct {
	revision revision
	objects  []object // all of the chain, and nothing else
	data     []byte   // the file
	notices  []string // what a person should read about it
}

// maxListing is from how many bytes of names and hashes on, which are 1500 devices', a folder of the chain is told of.
const maxListing = 64 << 10

// prove walks from the revision to the file and believes nothing that does not have the hash by which it was asked for.
func prove(src source, head plumbing.Hash, file string, maxFile int64) (*proof, error) {
	p := &proof{}
	load := func(h plumbing.Hash, want plumbing.ObjectType) ([]byte, error) {
		b, err := src.get(h, want)
		if KindOf(err) == ErrTooLarge && want == plumbing.BlobObject {
			return nil, fail(ErrTooLarge, "%s in revision %s is too large: %w", file, short(head), err)
		}
		if KindOf(err) != "" {
			return nil, err
		}
		if err != nil {
			return nil, fail(ErrProtocol, "the server did not send %s %s: %w", want, h, err)
		}
		if got := plumbing.ComputeHash(want, b); got != h {
			return nil, fail(ErrProtocol, "%s %s has the content of %s", want, h, got)
		}
		p.objects = append(p.objects, object{want, h, b})
		return b, nil
	}

	b, err := load(head, plumbing.CommitObject)
	if err != nil {
		return nil, err
	}
	if p.revision, err = parseRevision(b); err != nil {
		return nil, fail(ErrProtocol, "cannot read revision %s: %w", head, err)
	}
	at := p.revision.tree
	parts := strings.Split(file, "/")
	for i, name := range parts {
		if b, err = load(at, plumbing.TreeObject); err != nil {
			return nil, err
		}
		if len(b) > maxListing {
			// In coarse steps, so that it is not news with each device that comes to it.
			p.notices = append(p.notices, fmt.Sprintf("folder %s has more than %d KiB of names, which this device must fetch and store to prove its own file; "+
				"folders of about a hundred files cost it 4", "/"+path.Join(parts[:i]...), len(b)/maxListing*maxListing>>10))
		}
		entry, twin, err := lookup(b, name)
		if err != nil {
			return nil, fail(ErrProtocol, "cannot read folder %s: %w", at, err)
		}
		here, last := path.Join(parts[:i+1]...), i == len(parts)-1
		if twin != "" {
			p.notices = append(p.notices, fmt.Sprintf("%+q, which looks like %s, is another name and is not read", twin, here))
		}
		if entry == nil && twin != "" {
			return nil, fail(ErrFileMissing, "there is no %s in revision %s, but %+q, which is another name", here, short(head), twin)
		}
		if entry == nil {
			return nil, fail(ErrFileMissing, "there is no %s in revision %s", here, short(head))
		}
		switch kind := entry.mode & modeKind; {
		case kind == modeLink:
			return nil, fail(ErrNotAFile, "%s is a symbolic link in revision %s", here, short(head))
		case kind == modeSubmodule:
			return nil, fail(ErrNotAFile, "%s is a submodule in revision %s", here, short(head))
		case last && kind == modeFolder:
			return nil, fail(ErrNotAFile, "%s is a folder in revision %s", here, short(head))
		case last && kind != modeFile:
			return nil, fail(ErrNotAFile, "%s has mode %o in revision %s", here, entry.mode, short(head))
		case !last && kind != modeFolder:
			return nil, fail(ErrFileMissing, "%s is not a folder in revision %s", here, short(head))
		}
		at = entry.hash
	}
	if p.data, err = load(at, plumbing.BlobObject); err != nil {
		return nil, err
	}
	if int64(len(p.data)) > maxFile {
		return nil, fail(ErrTooLarge, "%s has %d bytes in revision %s, %d are allowed", file, len(p.data), short(head), maxFile)
	}
	if bytes.HasPrefix(p.data, []byte("version https://git-lfs.github.com/spec/")) {
		return nil, fail(ErrNotAFile, "%s is an LFS pointer in revision %s", file, short(head))
	}
	return p, nil
}

// looksLike reports whether two names are the same but for case, accents and how they are composed, and YAML's suffix.
func looksLike(a, b string) bool {
	a, b = longSuffix(a), longSuffix(b)
	// What is plainly the same, without a look at what follows: most names of a folder begin alike.
	for len(a) > 1 && len(b) > 1 && a[0] == b[0] && a[0]|a[1]|b[1] < utf8.RuneSelf {
		a, b = a[1:], b[1:]
	}
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

func short(h plumbing.Hash) string { return h.String()[:12] }
