package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// docs/configuration.md has a row for each key that Parse reads and for no other, with the default that the example file shows.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	lines, _, _ := strings.Cut(rest, "```")
	if c, err := Parse("docs/configuration.md", []byte(lines), greenhouse(t)); err != nil || c.Repository.URL == "" {
		t.Errorf("the page's first example: %v", err)
	}
	rows := map[string]string{} // key to default
	word := regexp.MustCompile("`([^`]+)`")
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.SplitN(strings.Trim(line, "|"), "|", 3)
		if len(cells) != 3 || !strings.HasPrefix(cells[0], " `") {
			continue
		}
		for _, m := range word.FindAllStringSubmatch(cells[0], -1) {
			rows[m[1]] = strings.Trim(cells[1], " `")
		}
	}

	source, err := os.ReadFile("parse.go")
	if err != nil {
		t.Fatal(err)
	}
	// Maps and lists of the file are read by these functions; a check's keys stand in the page's second table, by themselves.
	prefix, keys := "", map[string]bool{}
	reads := regexp.MustCompile(`^func (\w+)|(\w+)\.(?:Required|Optional)\("(\w+)"\)|range \[\]string\{(.*)\} \{$`)
	for _, line := range strings.Split(string(source), "\n") {
		for _, m := range reads.FindAllStringSubmatch(line, -1) {
			switch {
			case m[1] != "":
				prefix = map[string]string{"Parse": "device.", "parseRepository": "repository.", "parseGuard": "guard."}[m[1]]
			case m[2] == "root":
				keys[m[3]] = true
			case m[3] != "":
				keys[prefix+m[3]] = true
			default:
				for _, k := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(m[4], -1) {
					keys[prefix+k[1]] = true
				}
			}
		}
	}
	for _, section := range []string{"device", "repository", "guard"} {
		if !keys[section] {
			t.Errorf("parse.go reads no %q: has it another shape?", section)
		}
		delete(keys, section)
	}
	for k := range keys {
		if _, there := rows[k]; !there {
			t.Errorf("docs/configuration.md has no row for %s, which is read", k)
		}
	}
	for k := range rows {
		if !keys[k] {
			t.Errorf("docs/configuration.md has a row for %s, which is not read", k)
		}
	}

	data, err := os.ReadFile("../../packaging/holdfast.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var example yaml.Node
	if err := yaml.Unmarshal(data, &example); err != nil {
		t.Fatal(err)
	}
	shown := 0
	var walk func(prefix string, m *yaml.Node)
	walk = func(prefix string, m *yaml.Node) {
		for i := 0; i < len(m.Content); i += 2 {
			k, v := prefix+m.Content[i].Value, m.Content[i+1]
			if v.Kind == yaml.MappingNode {
				walk(k+".", v)
				continue
			}
			shown++
			line := strings.Split(string(data), "\n")[v.Line-1][v.Column-1:]
			def, _, _ := strings.Cut(line, " #")
			if got := rows[k]; got != strings.TrimSpace(def) && got != "required" {
				t.Errorf("docs/configuration.md says that the default of %s is %q, packaging/holdfast.yaml says %q", k, got, strings.TrimSpace(def))
			}
		}
	}
	walk("", example.Content[0])
	if shown < 15 {
		t.Errorf("%d defaults were found in packaging/holdfast.yaml", shown)
	}
}
