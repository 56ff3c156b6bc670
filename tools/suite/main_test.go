package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCount(t *testing.T) {
	const in = `{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":2.5}
{"Action":"output","Package":"p","Test":"TestAway","Output":"=== RUN   TestAway\n"}
{"Action":"output","Package":"p","Test":"TestAway","Output":"    a_test.go:3: needs git: make deps\n"}
{"Action":"skip","Package":"p","Test":"TestAway"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"fail","Package":"p"}
`
	var out bytes.Buffer
	r := count(strings.NewReader(in), &out, false)
	if r.passed != 1 || r.failed != 2 || len(r.skipped) != 1 || !strings.Contains(r.skipped[0], "needs git: make deps") {
		t.Errorf("count = %+v", r)
	}
	if got := out.String(); got != "got 1, want 2\n" {
		t.Errorf("printed %q, want the failure alone", got)
	}
	out.Reset()
	count(strings.NewReader(in), &out, true)
	if got := out.String(); got != "   2.5 s  TestGood\ngot 1, want 2\n" {
		t.Errorf("with times: printed %q", got)
	}
}
