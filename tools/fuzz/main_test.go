package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/x_test.go": "package a\n\nfunc FuzzOne(f *testing.F) {\n}\n\n// func FuzzNot(f *testing.F)\nfunc FuzzTwo(f *testing.F) {}\n",
		"a/x.go":      "package a\n\nfunc FuzzThree(f *testing.F) {}\n",
		"b/y_test.go": "package b\n\nfunc FuzzFour(f *testing.F) {}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := find(dir)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if want := []target{{a, "FuzzOne"}, {a, "FuzzTwo"}, {b, "FuzzFour"}}; err != nil || len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("find = %v, %v; want %v", got, err, want)
	}
}

func TestProgress(t *testing.T) {
	n, found := progress("fuzz: elapsed: 0s, gathering baseline coverage: 0/5 completed\nfuzz: elapsed: 3s, execs: 100 (33/sec), new interesting: 2 (total: 7)\n" +
		"fuzz: elapsed: 5s, execs: 250 (75/sec), new interesting: 3 (total: 8)\nPASS\n")
	if n != 250 || found != 3 {
		t.Errorf("progress = %d, %d; want 250, 3", n, found)
	}
	if n, _ := progress("FAIL\n"); n != 0 {
		t.Errorf("progress of nothing = %d", n)
	}
}
