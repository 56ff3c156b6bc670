package gitclone

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	gogit "github.com/go-git/go-git/v5/plumbing/object"
)

func encode(typ plumbing.ObjectType, b []byte) plumbing.EncodedObject {
	o := &plumbing.MemoryObject{}
	o.SetType(typ)
	_, _ = o.Write(b)
	return o
}

// TestParseRevision: as go-git's decoder reads it, which reads it as git does.
func TestParseRevision(t *testing.T) {
	tree, one, two := strings.Repeat("1", 40), strings.Repeat("a", 40), strings.Repeat("B", 40)
	const ada = "Ada Lovelace <ada@example.org> 1700000000 +0130\n"
	for name, text := range map[string]string{
		"root":               "tree " + tree + "\nauthor " + ada + "committer " + ada + "\nsubject\n\nbody\n",
		"merge":              "tree " + tree + "\nparent " + one + "\nparent " + two + "\nauthor " + ada + "committer " + ada + "\nsubject",
		"signed":             "tree " + tree + "\nparent " + one + "\nauthor " + ada + "committer " + ada + "gpgsig -----BEGIN\n \n parent " + two + "\n -----END\n\nsubject\n",
		"a parent too late":  "tree " + tree + "\nauthor " + ada + "parent " + one + "\ncommitter " + ada + "\nsubject\n",
		"in the message":     "tree " + tree + "\nauthor " + ada + "committer " + ada + "\nparent " + one + "\n",
		"no message":         "tree " + tree + "\nparent " + one + "\nauthor " + ada + "committer " + ada,
		"empty message":      "tree " + tree + "\nparent " + one + "\nauthor " + ada + "committer " + ada + "\n",
		"a blank subject":    "tree " + tree + "\nauthor " + ada + "committer " + ada + "\n\nbody\n",
		"nobody":             "tree " + tree + "\n\nsubject\n",
		"a tree, and no end": "tree " + tree,
		"odd names":          "tree " + tree + "\nauthor A<b>c <d> 1 -0130\ncommitter <> 0 +0000\n\ns\n",
		"odd times":          "tree " + tree + "\nauthor A <d> -5 +1400\ncommitter A <d> 99999999999999999999 +0000\n\ns\n",
		"no times":           "tree " + tree + "\nauthor A <d>\ncommitter A <d> x +0000\n\ns\n",
		"no tree":            "parent " + one + "\nauthor " + ada + "\nsubject\n",
		"a short hash":       "tree " + tree[1:] + "\nauthor " + ada + "\nsubject\n",
		"a parent's hash":    "tree " + tree + "\nparent " + one[1:] + "\nauthor " + ada + "\nsubject\n",
		"a long hash":        "tree " + tree + "1\nauthor " + ada + "\nsubject\n",
		"nothing":            "",
	} {
		want := &gogit.Commit{}
		wantErr := want.Decode(encode(plumbing.CommitObject, []byte(text)))
		got, err := parseRevision([]byte(text))
		subject, _, _ := strings.Cut(want.Message, "\n")
		switch {
		case (err != nil) != (wantErr != nil):
			t.Errorf("%s: parseRevision = %+v, %v, go-git says %v", name, got, err, wantErr)
		case err == nil && (got.tree != want.TreeHash || !slices.Equal(got.parents, want.ParentHashes)),
			err == nil && (got.author != want.Author.Name || got.subject != subject),
			err == nil && (!got.authored.Equal(want.Author.When) || got.authored.String() != want.Author.When.String()),
			err == nil && !got.committed.Equal(want.Committer.When):
			t.Errorf("%s: parseRevision = %+v, go-git reads %+v", name, got, want)
		}
	}
}

// TestLookup: each name of a folder is found as go-git's decoder has it, and a folder that is not whole is none.
func TestLookup(t *testing.T) {
	line := func(mode, name string) string { return mode + " " + name + "\x00" + strings.Repeat(name[:1], 20) }
	whole := line("40000", "a folder") + line("100644", "b.yaml") + line("100755", "c c") + line("120000", "d") + line("160000", "e")
	tree := &gogit.Tree{}
	if err := tree.Decode(encode(plumbing.TreeObject, []byte(whole))); err != nil {
		t.Fatal(err)
	}
	for _, e := range tree.Entries {
		got, twin, err := lookup([]byte(whole), e.Name)
		if err != nil || got == nil || got.hash != e.Hash || filemode.FileMode(got.mode) != e.Mode || twin != "" {
			t.Errorf("lookup(%q) = %+v, %q, %v, want %+v", e.Name, got, twin, err, e)
		}
	}
	for _, name := range []string{"", "b", "b.yaml ", "f", "a", "a folde", "c"} {
		if got, _, err := lookup([]byte(whole), name); got != nil || err != nil {
			t.Errorf("lookup(%q) = %+v, %v, want nothing", name, got, err)
		}
	}
	if got, twin, err := lookup([]byte(whole), "B.yml"); got != nil || twin != "b.yaml" || err != nil {
		t.Errorf("lookup of a twin = %+v, %q, %v", got, twin, err)
	}
	for cut := 1; cut < len(whole); cut++ {
		err := tree.Decode(encode(plumbing.TreeObject, []byte(whole[:cut])))
		if _, _, got := lookup([]byte(whole[:cut]), "b.yaml"); (got != nil) != (err != nil) {
			t.Errorf("cut at %d: %v, go-git says %v", cut, got, err)
		}
	}
	for _, bad := range []string{
		whole + line("100644", "b.yaml"), // twice
		line("100649", "b.yaml"), line("", "b.yaml"), line("777777777777", "b.yaml"), "100644 \x00" + strings.Repeat("x", 20),
	} {
		if got, _, err := lookup([]byte(bad), "b.yaml"); err == nil {
			t.Errorf("lookup in %q = %+v, want an error", bad, got)
		}
	}
}

// BenchmarkLookup is for a folder of 10,000 devices: it allocates next to nothing.
func BenchmarkLookup(b *testing.B) {
	var folder []byte
	f := fleet{devices: 10_000}
	for d := range f.devices {
		folder = append(append(append(folder, "100644 "...), f.file(d)[len("devices/"):]...), 0)
		folder = append(folder, make([]byte, 20)...)
	}
	b.ReportAllocs()
	for b.Loop() {
		if e, _, err := lookup(folder, "gh-00007.yaml"); e == nil || err != nil {
			b.Fatal(e, err)
		}
	}
}
