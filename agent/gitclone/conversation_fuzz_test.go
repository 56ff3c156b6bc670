package gitclone

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
)

var recording = flag.Bool("record", false, "write the conversations of testdata/fuzz anew, with this machine's git")

// The repository of the recorded conversations: one device of a small fleet, whose file was changed in between twice.
const (
	talkFile   = "devices/a/greenhouse.yaml"
	talkStored = "testdata/stored.pack" // all of the older revision, as depth 1 brings it
)

// talkOptions are bounds that a few KiB can break.
func talkOptions() Options {
	return Options{URL: "http://git.example.org/state.git", File: talkFile, MaxPackBytes: 128 << 10, MaxMemoryBytes: 256 << 10, MaxFileBytes: 32 << 10,
		MaxAdvertisementBytes: 64 << 10, MaxObjects: 500, Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}.withDefaults()
}

// talker is a server that says what it was given: over HTTP an answer for each request, over a stream all for one process after the other.
type talker struct {
	hello, refs []byte
	packs       [][]byte // the last one is repeated
	chunk       int      // bytes that come at once; 0: all
	endless     bool     // an answer is followed by its end, again and again
	asked       int      // packs
	bodies      []*trickle
}

// trickle is what a talker says.
type trickle struct {
	b       []byte
	at      int
	chunk   int
	endless bool
	taken   int
}

// enough is how much of an answer nobody may read.
const enough = 8 << 20

func (r *trickle) Read(p []byte) (int, error) {
	if r.at == len(r.b) && r.endless && len(r.b) > 0 && r.taken < enough {
		r.at = max(0, len(r.b)-16)
	}
	if r.at == len(r.b) {
		return 0, io.EOF
	}
	n := len(p)
	if r.chunk > 0 {
		n = min(n, r.chunk)
	}
	n = copy(p[:n], r.b[r.at:])
	r.at += n
	r.taken += n
	return n, nil
}

func (s *talker) say(parts ...[]byte) *trickle {
	r := &trickle{b: bytes.Join(parts, nil), chunk: s.chunk, endless: s.endless}
	s.bodies = append(s.bodies, r)
	return r
}

func (s *talker) pack() []byte {
	p := s.packs[min(s.asked, len(s.packs)-1)]
	s.asked++
	return p
}

// RoundTrip is the talker over HTTP.
func (s *talker) RoundTrip(req *http.Request) (*http.Response, error) {
	what, kind := s.hello, "advertisement"
	if req.Method == http.MethodPost {
		kind = "result"
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if what = s.refs; !bytes.Contains(b, []byte("command=ls-refs")) {
			what = s.pack()
		}
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/x-git-upload-pack-" + kind}}, Body: io.NopCloser(s.say(what)), Request: req}, nil
}

// start is the talker at the other end of a pipe.
func (s *talker) start() (*process, error) {
	refs := s.refs
	if s.asked > 0 { // the head is read once
		refs = nil
	}
	return &process{in: nopWriter{}, out: newPktReader(s.say(s.hello, refs, s.pack()), nil), stderr: &tail{max: 1 << 10}, kill: func() {}, drain: func() {}, end: func() {}}, nil
}

type nopWriter struct{}

func (nopWriter) Write(b []byte) (int, error) { return len(b), nil }
func (nopWriter) Close() error                { return nil }

// talk is one conversation with s.
func talk(s *talker, stream bool, stored source, old plumbing.Hash) (head plumbing.Hash, st *staged, err error) {
	r, err := newRemote(talkOptions())
	if err != nil {
		panic(err)
	}
	q := question{old: old, stored: stored}
	ctx := context.Background()
	if !stream {
		c, err := newHTTPClient(r.o, nil)
		if err != nil {
			panic(err)
		}
		c.Transport, r.http = s, c
		return r.converse(ctx, q)
	}
	c := &conversation{remote: r, line: &streamLine{start: s.start}}
	if err = c.hello(ctx); err == nil && c.v2 {
		err = c.lsRefs(ctx)
	}
	if err != nil || c.head.IsZero() {
		return c.head, nil, err
	}
	st, err = r.climb(ctx, c, q, false)
	return c.head, st, err
}

// object40 is git's hash of an object, worked out here.
func object40(typ plumbing.ObjectType, content []byte) plumbing.Hash {
	return sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", typ, len(content), content))
}

// wantProven follows the chain from the head to the document by itself.
func wantProven(t *testing.T, st *staged, head plumbing.Hash) {
	t.Helper()
	want, parts := head, strings.Split(talkFile, "/")
	for i, o := range st.objects {
		if object40(o.typ, o.content) != want {
			t.Fatalf("object %d of the proof is not %s", i, want)
		}
		switch {
		case i == 0:
			line, _, _ := strings.Cut(string(o.content), "\n")
			b, err := hex.DecodeString(strings.TrimPrefix(line, "tree "))
			if err != nil || len(b) != 20 {
				t.Fatalf("the revision begins with %q", line)
			}
			want = plumbing.Hash(b)
		case i <= len(parts):
			_, rest, ok := bytes.Cut(o.content, []byte(" "+parts[i-1]+"\x00"))
			if !ok || len(rest) < 20 {
				t.Fatalf("folder %d has no %s", i, parts[i-1])
			}
			want = plumbing.Hash(rest[:20])
		case i != len(st.objects)-1 || !bytes.Equal(o.content, st.desired.Data):
			t.Fatalf("the proof has %d objects, and ends with %q", len(st.objects), o.content)
		}
	}
	if len(st.objects) != len(parts)+2 || st.desired.Revision != head.String() || st.head != head {
		t.Errorf("%d objects prove %s of %s", len(st.objects), st.desired.Revision, head)
	}
}

// fitForLogs checks a text that a server has a part in.
func fitForLogs(t *testing.T, s string) {
	t.Helper()
	if len(s) > 1000 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("not fit for a log: %q", s)
	}
}

// kinds is the whole vocabulary.
var kinds = []Kind{ErrOffline, ErrAuthOrNotFound, ErrHostKey, ErrCertificate, ErrBranchGone, ErrRepositoryEmpty, ErrHistoryRewritten, ErrFileMissing, ErrFileInvalid, ErrNotAFile,
	ErrTooLarge, ErrStore, ErrProtocol}

// FuzzConversation: whatever a server says, in whatever pieces, a conversation ends with an error of the vocabulary or with exactly the document that hashes prove under the head, which
// descends from the revision in force; it reads no more than is allowed, and keeps no more.
func FuzzConversation(f *testing.F) {
	pkt := func(lines ...string) []byte {
		var b []byte
		for _, l := range lines {
			if len(l) > 4 || l == "" {
				l = fmt.Sprintf("%04x%s", len(l)+4, l)
			}
			b = append(b, l...)
		}
		return b
	}
	// Lines of up to 4 bytes are marks.
	add := func(hello, refs, pack []byte, old bool) {
		for _, endless := range []bool{false, true} {
			for _, stream := range []bool{false, true} {
				f.Add(hello, refs, pack, pack, pack, pack, pack, old, stream, uint8(1), endless)
			}
		}
	}
	head := strings.Repeat("1", 40)
	v2, refs := pkt("version 2\n", "fetch=shallow filter\n", "0000"), pkt(head+" refs/heads/main\n", "0000")
	v0 := pkt(head+" refs/heads/main\x00shallow side-band-64k thin-pack\n", "0000")
	none := newPack(0)
	_ = none.done()
	for _, pack := range [][]byte{pkt("0000"), pkt("0001"), pkt("packfile\n", "\x02progress"), pkt("packfile\n", "\x01"), pkt("packfile\n", "\x03\x1b[2J\u202e"), pkt("NAK\n", "\x02\x1b"), pkt("shallow " + head),
		pkt("packfile\n", "\x01"+none.String(), "0000"), pkt("NAK\n", "\x01"+none.String(), "0000"), pkt("ERR \x1b[2J"), []byte("\x1b[2J"), pkt("acknowledgments\n", "ready\n", "0001")} {
		add(v2, refs, pack, true)
		add(v0, nil, pack, true)
	}
	for _, hello := range [][]byte{pkt("# service=git-upload-pack\n", "0000"), pkt("version 2\n"), pkt("version 1\n"), pkt("ERR \x1b[2J\u202e no such repository\n"), pkt(head + " refs/heads/other\n"), pkt("shallow " + head),
		pkt("version 2\n", "object-format=\x1b[2J\n", "0000"), pkt(strings.Repeat("0", 40)+" capabilities^{}\x00\n", "0000"), pkt("version 2\n", "agent=x\n", "0000")} {
		add(hello, pkt("0001"), nil, false)
	}
	stored, err := os.ReadFile(talkStored)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, hello, refs, one, two, three, four, five []byte, has, stream bool, chunk uint8, endless bool) {
		known, revision := source(nil), plumbing.ZeroHash
		if has {
			known, revision = older(t, stored)
		}
		var outcomes [2]string
		for i, chunk := range []int{0, int(chunk)%7 + 1} {
			s := &talker{hello: hello, refs: refs, packs: [][]byte{one, two, three, four, five}, chunk: chunk, endless: endless}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			head, st, err := talk(s, stream, known, revision)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
			for _, r := range s.bodies {
				if r.taken > enough/2 {
					t.Errorf("%d bytes of an answer were read", r.taken)
				}
			}
			if len(s.bodies) > 40 {
				t.Errorf("%d requests", len(s.bodies))
			}
			outcomes[i] = fmt.Sprint(head, err)
			switch {
			case err != nil:
				e := classify("fetch", err, talkOptions().Now(), func(s string) string { return s })
				if !slices.Contains(kinds, e.Kind) || e.Advice == "" {
					t.Errorf("the error %v is of kind %q", err, e.Kind)
				}
				fitForLogs(t, e.Error())
				fitForLogs(t, e.Advice)
			case st != nil:
				wantProven(t, st, head)
				fitForLogs(t, st.desired.Author+st.desired.Subject+strings.Join(st.notices, ""))
				if kept := kept(st); kept > talkOptions().MaxMemoryBytes {
					t.Errorf("%d bytes were kept", kept)
				}
				if has && !bytes.Contains(st.objects[0].content, []byte("\nparent "+revision.String()+"\n")) && head != revision {
					t.Errorf("%s is taken, and its parent is not %s: %q", head, revision, st.objects[0].content)
				}
				outcomes[i] += fmt.Sprintf(" %+v", st.desired)
			}
		}
		if outcomes[0] != outcomes[1] && !endless { // an endless answer has its limits where its pieces end
			t.Errorf("at once: %s\nin pieces: %s", outcomes[0], outcomes[1])
		}
	})
}

func kept(st *staged) (n int64) {
	for _, o := range st.objects {
		n += int64(len(o.content))
	}
	return n
}

// conversationFiles are what git's own server said, for FuzzConversation to change.
const conversationFiles = "testdata/fuzz/FuzzConversation/recorded-"

// TestRecordedConversations: each record, unchanged, brings the document. With -record they are made anew.
func TestRecordedConversations(t *testing.T) {
	if *recording {
		recordConversations(t)
	}
	files, err := filepath.Glob(conversationFiles + "*")
	if err != nil || len(files) < 12 {
		t.Fatalf("there are %d recorded conversations, %v: go test -run TestRecordedConversations -record", len(files), err)
	}
	stored, err := os.ReadFile(talkStored)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := &talker{}
		var said [][]byte
		for line := range strings.Lines(string(b)) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "[]byte("); ok {
				v, err := strconv.Unquote(strings.TrimSuffix(text, ")"))
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				said = append(said, []byte(v))
			}
		}
		s.hello, s.refs, s.packs = said[0], said[1], said[2:]
		known, old := older(t, stored)
		if strings.Contains(file, "-fresh") {
			known, old = nil, plumbing.ZeroHash
		}
		head, st, err := talk(s, strings.Contains(file, "-stream"), known, old)
		if strings.Contains(file, "-rewritten") {
			if st != nil || sort(err) != ErrHistoryRewritten && !strings.HasSuffix(file, "-cut") {
				t.Errorf("%s: %s, %+v, %v", file, head, st, err)
			}
			continue
		}
		if err != nil || st == nil || !strings.HasPrefix(string(st.desired.Data), "pump: off\n") {
			t.Errorf("%s: %s, %+v, %v", file, head, st, err)
			continue
		}
		wantProven(t, st, head)
	}
}

// older is what is stored of the revision before, and its hash.
func older(t testing.TB, pack []byte) (source, plumbing.Hash) {
	t.Helper()
	p, err := unpack(bytes.NewReader(pack), talkOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range p.entries {
		if e.typ == plumbing.CommitObject {
			return p, e.hash
		}
	}
	t.Fatal("no revision is stored")
	return nil, plumbing.ZeroHash
}

func recordConversations(t *testing.T) {
	r := newRepo(t)
	for _, device := range []string{"a", "b", "c"} {
		r.write("devices/"+device+"/greenhouse.yaml", "pump: on\nfan: off\n# "+device+strings.Repeat(" something to be a change of\n#", 9)+"\n")
	}
	one := r.push("one")
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte(r.git("rev-list", "--objects", "--no-object-names", one)), 0o600); err != nil {
		t.Fatal(err)
	}
	pack := list + ".pack"
	r.run(r.work, "sh", "-c", "git pack-objects -q --stdout <"+list+" >"+pack)
	stored, err := os.ReadFile(pack)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(conversationFiles), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(talkStored, stored, 0o644); err != nil {
		t.Fatal(err)
	}
	r.write(talkFile, "pump: off\nfan: off\n# a"+strings.Repeat(" something to be a change of\n#", 9)+"\n")
	r.push("two")
	recordFrom(t, r, stored, "fresh", "old")
	r.git("checkout", "-q", "--orphan", "rewritten")
	r.push("another beginning")
	r.push("and a step from there")
	recordFrom(t, r, stored, "rewritten")
}

// recordFrom records one conversation for each kind of server, protocol and way, about what is stored.
func recordFrom(t *testing.T, r *repo, stored []byte, from ...string) {
	for _, filters := range []string{"true", "false"} {
		r.run(r.bare, "git", "config", "uploadpack.allowFilter", filters)
		for _, version := range []string{"v2", "v0"} {
			for _, from := range from {
				srv, url := r.serve()
				said := make([][]byte, 2)
				srv.setFront(func(w http.ResponseWriter, q *http.Request, next http.Handler) {
					kind := what(q)
					if version == "v0" {
						q.Header.Del("Git-Protocol")
					}
					rec := httptest.NewRecorder()
					next.ServeHTTP(rec, q)
					switch body := rec.Body.Bytes(); {
					case strings.HasPrefix(kind, "GET"):
						said[0] = body
					case strings.HasPrefix(kind, "LS-REFS"):
						said[1] = body
					default:
						said = append(said, body)
					}
					maps.Copy(w.Header(), rec.Header())
					w.WriteHeader(rec.Code)
					_, _ = w.Write(rec.Body.Bytes())
				})
				o := talkOptions()
				o.URL = url
				remote, err := newRemote(o)
				if err != nil {
					t.Fatal(err)
				}
				q := question{}
				if from != "fresh" {
					q.stored, q.old = older(t, stored)
				}
				if _, st, err := remote.converse(t.Context(), q); (st != nil) != (from != "rewritten") || sort(err) != map[string]Kind{"rewritten": ErrHistoryRewritten}[from] {
					t.Fatalf("%s, filters %s, %s: %v", version, filters, from, err)
				}
				if len(said) > 7 {
					t.Fatalf("%d packs", len(said)-2)
				}
				for len(said) < 7 {
					said = append(said, nil)
				}
				for _, way := range []string{"http", "stream", "http-cut"} {
					if way == "http-cut" { // each request is answered with the first pack, which has less than all of the history
						if from != "rewritten" {
							continue
						}
						for i := range said[3:] {
							said[3+i] = said[2]
						}
					}
					if way == "stream" && version == "v0" && (filters == "true" || from == "fresh") {
						continue // a stream of the older protocol says whether objects may be asked for by hash, and is asked otherwise; one fresh record stays
					}
					if way == "stream" {
						said[0] = bytes.TrimPrefix(said[0], []byte("001e# service=git-upload-pack\n0000"))
					}
					text := "go test fuzz v1\n"
					for _, b := range said {
						text += fmt.Sprintf("[]byte(%q)\n", b)
					}
					text += fmt.Sprintf("bool(%v)\nbool(%v)\nbyte('\\x02')\nbool(false)\n", from != "fresh", way == "stream")
					name := conversationFiles + strings.Join([]string{version, map[string]string{"true": "filters", "false": "plain"}[filters], from, way}, "-")
					if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// TestMemoryIsBoundedOverAllPacks: a server that gives each object on the way in a pack of its own, with ballast that is allowed in one, may not give it in each.
func TestMemoryIsBoundedOverAllPacks(t *testing.T) {
	stored, err := os.ReadFile(talkStored)
	if err != nil {
		t.Fatal(err)
	}
	src, head := older(t, stored)
	proof, err := prove(src, head, talkFile, 1<<20)
	if err != nil || len(proof.objects) != 5 {
		t.Fatalf("%d objects, %v", len(proof.objects), err)
	}
	for ballast, allowed := range map[int]bool{0: true, 40 << 10: true, 100 << 10: false} {
		s := &talker{hello: []byte("000eversion 2\n0019fetch=shallow filter\n0000"), refs: fmt.Appendf(nil, "003d%s refs/heads/main\n0000", head)}
		for i, o := range proof.objects {
			w := newPack(2)
			w.object(o.typ, int64(len(o.content)), nil, o.content)
			w.object(plumbing.TreeObject, int64(ballast), nil, bytes.Repeat([]byte{byte(i)}, ballast))
			_ = w.done()
			s.packs = append(s.packs, fmt.Appendf(nil, "000dpackfile\n%04x\x01%s0000", w.Len()+5, w.Bytes()))
		}
		// Where it is too much, the next way is tried, for which this server has nothing.
		if _, st, err := talk(s, false, nil, plumbing.ZeroHash); (err == nil) != allowed || (st != nil) != allowed {
			t.Errorf("with %d bytes more in each pack: %+v, %v", ballast, st, err)
		}
	}
}
