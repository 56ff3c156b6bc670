package holdfast_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers are the packages from top to bottom (docs/design.md, "Where things live"): an import points down this list, never up. A row
// stands for the packages below it as well, if those have no row of their own.
var layers = []struct{ path, why string }{
	{"agent/cmd/holdfast", "the daemon and the CLI are put together last"},
	{"agent/scenario", "test-only; it runs the binaries"},
	{"agent", "the loop knows git and the guard's socket"},
	{"agent/status", "the view is built from what others say"},
	{"agent/gitclone", "git ends here"},
	{"agent/gitclone/boltstore", "storage for go-git"},
	{"agent/desired", "knows no git and no HTTP"},
	{"bootslot/cmd/holdfast-guard", "the guard depends on nothing of the agent's"},
	{"bootslot/guard", "the guard's loop"},
	{"bootslot/selftest", "measures, decides nothing"},
	{"bootslot/ledger", "stores, decides nothing"},
	{"bootslot/api", "what the guard's socket speaks"},
	{"bootslot/sock", "what the sockets of both processes have in common"},
	{"bootslot/config", "the one configuration file"},
	{"bootslot/journal", "what kinds of events there are, and how they are logged"},
	{"bootslot/boot", "the boot loader's slots"},
	{"bootslot", "pure values and functions"},
	{"device/cmd/greenhouse", "the simulator knows the contract only"},
	{"device/greenhouse", "the simulator"},
	{"device/dashboard", "the digital twin"},
	{"device", "the contract"},
	{"image/fallback", "the baked-in configuration"},
	{"device/boltfile", "what bbolt may be trusted with"},
	{"device/strictyaml", "how YAML is read"},
	{"device/durable", "how small files are replaced"},
	{"device/clock", "time"},
}

// onlyIn lists which packages may import a library, and why nobody else.
var onlyIn = []struct {
	library string
	in      []string
	why     string
}{
	{"github.com/go-git/", []string{"agent/gitclone", "agent/gitclone/boltstore"}, "git is hostile input: it ends where it is verified"},
	{"go.etcd.io/bbolt", []string{"agent/gitclone/boltstore", "bootslot/ledger", "device/boltfile"}, "who writes to disk is known: one store a process"},
	{"github.com/spf13/cobra", []string{"agent/cmd/holdfast"}, "the guard stays small"},
	{"github.com/Shopify/toxiproxy", []string{"agent/scenario"}, "for tests alone"},
	{"github.com/hanwen/go-fuse", []string{"tools/faultfs"}, "for tests alone"},
}

// The record is the guard's: nobody else opens it for writing. What others may call only reads.
func TestOnlyTheGuardWritesTheLedger(t *testing.T) {
	forbidden := regexp.MustCompile(`\bledger\.(Open|Store)\b`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "bootslot/guard/") {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && forbidden.Match(b) {
			t.Errorf("%s opens the ledger for writing; only bootslot/guard may (docs/design.md, rule 1)", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// rank is a package's row in layers, -1 if it has none.
func rank(path string) int {
	best := -1
	for i, l := range layers {
		if (path == l.path || strings.HasPrefix(path, l.path+"/")) && (best < 0 || len(l.path) > len(layers[best].path)) {
			best = i
		}
	}
	return best
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		path, ours := strings.CutPrefix(p.ImportPath, "holdfast/")
		if !ours || strings.HasPrefix(path, "tools") {
			continue
		}
		from := rank(path)
		if from < 0 {
			t.Errorf("%s has no row in layers: say what it is for, there and in docs/design.md", path)
			continue
		}
		for _, imp := range p.Imports {
			if to, ok := strings.CutPrefix(imp, "holdfast/"); ok && rank(to) <= from && to != path && !strings.HasPrefix(to, layers[from].path+"/") {
				t.Errorf("%s (%s) imports %s (%s): imports point down", path, layers[from].why, to, layers[max(rank(to), 0)].why)
			}
		}
		if strings.HasPrefix(path, "bootslot") || strings.HasPrefix(path, "device") {
			for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
				if strings.HasPrefix(imp, "holdfast/agent") {
					t.Errorf("%s imports %s: the rollback layer and the device never know the agent", path, imp)
				}
			}
		}
	}
}

func TestLibrariesStayInTheirPackages(t *testing.T) {
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, "holdfast/")
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for _, o := range onlyIn {
				if strings.HasPrefix(imp, o.library) && !slices.Contains(o.in, path) {
					t.Errorf("%s imports %s, which only %v may: %s", path, imp, o.in, o.why)
				}
			}
		}
	}
}

// build builds a release binary, stripped or not, and returns its path.
func build(t *testing.T, pkg string, strip bool) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(pkg))
	args := []string{"build", "-trimpath", "-o", out}
	if strip {
		args = append(args, "-ldflags=-s -w")
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, b)
	}
	return out
}

// reason is a package, with all below it, that a binary may not link, and why.
type reason struct{ pkg, why string }

// small checks what a binary links, by package and by symbol, and its size, stripped, in bytes.
func small(t *testing.T, pkg string, limit int64, packages, symbols []reason) {
	t.Helper()
	deps, err := exec.Command("go", "list", "-deps", pkg).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, no := range packages {
		for dep := range strings.FieldsSeq(string(deps)) {
			if strings.HasPrefix(dep, no.pkg) {
				t.Errorf("%s links %s (%s)", pkg, dep, no.why)
			}
		}
	}
	names, err := exec.Command("go", "tool", "nm", build(t, pkg, false)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(names, []byte("net/http.(*Server).Serve\n")) {
		t.Fatalf("the symbols of %s cannot be read", pkg)
	}
	for _, no := range symbols {
		if bytes.Contains(names, []byte(no.pkg)) {
			t.Errorf("%s links %s (%s)", pkg, no.pkg, no.why)
		}
	}
	info, err := os.Stat(build(t, pkg, true))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, stripped: %.1f MiB", pkg, float64(info.Size())/(1<<20))
	if info.Size() > limit {
		t.Errorf("%s is %d bytes stripped, more than %d", pkg, info.Size(), limit)
	}
}

// What may not be linked into the guard: each would be more to go wrong in the one process that must not.
func TestTheGuardIsSmall(t *testing.T) {
	small(t, "./bootslot/cmd/holdfast-guard", 10<<20, []reason{
		{"github.com/go-git/", "git"}, {"holdfast/agent", "the other layer"},
		{"github.com/spf13/", "a CLI library"}, {"github.com/alecthomas/", "a CLI library"},
		{"text/template", "it defeats dead-code elimination"}, {"html/template", "pages"}, {"golang.org/x/crypto/ssh", "a remote shell"},
		{"github.com/prometheus/", "metrics"}, {"net/http/pprof", "a debugging server"}, {"testing", "tests"},
	}, []reason{ // net/http brings TLS for the client
		{"crypto/tls.(*Conn).serverHandshake", "a TLS server"}, {"net/http.(*Server).ServeTLS", "a TLS server"},
	})
}

// What may not be linked into the agent, which is resident for years: each was, and took a megabyte or three.
func TestTheAgentIsSmall(t *testing.T) {
	small(t, "./agent/cmd/holdfast", 11<<20, []reason{
		{"github.com/go-git/go-git/v5/plumbing/object", "OpenPGP, and a diff"}, {"github.com/ProtonMail/", "OpenPGP"}, {"github.com/cloudflare/", "its curves"},
		{"github.com/go-git/go-git/v5/plumbing/transport", "clients that are not used"}, {"golang.org/x/crypto/ssh/agent", "a person's keys"},
		{"html/template", "pages"}, {"github.com/prometheus/", "metrics"}, {"net/http/pprof", "a debugging server"}, {"testing", "tests"},
	}, []reason{
		{"text/template.(*Template).Execute", "it looks methods up by name, and so keeps all of every type"},
	})
}
