package holdfast_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whatever docs/guarantees.md names as the proof of a promise is there: a test of that package, a scenario, a mutant; and each promise names one.
func TestGuarantees(t *testing.T) {
	page, err := os.ReadFile("docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err = filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(source, -1) {
			tests[filepath.Base(filepath.Dir(path))+"."+string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`([^`]+)`")
	promises := 0
	for i, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 3 || cells[0] == "promise" {
			continue
		}
		promises++
		proofs, mutants, _ := strings.Cut(cells[2], "broken by ")
		if !name.MatchString(proofs) {
			t.Errorf("docs/guarantees.md:%d: no test is named for %q", i+1, cells[0])
		}
		for _, m := range name.FindAllStringSubmatch(proofs, -1) {
			if _, err := os.Stat(filepath.Join("testdata/scenarios", m[1]+".txtar")); err != nil && !tests[m[1]] {
				t.Errorf("docs/guarantees.md:%d: there is no test and no scenario %q", i+1, m[1])
			}
		}
		for _, m := range name.FindAllStringSubmatch(mutants, -1) {
			if _, err := os.Stat(filepath.Join("testdata/mutants", m[1]+".mutant")); err != nil {
				t.Errorf("docs/guarantees.md:%d: there is no mutant %q", i+1, m[1])
			}
		}
	}
	if promises < 20 {
		t.Errorf("docs/guarantees.md: %d promises were found: has the table another shape?", promises)
	}
}
