package selftest

import (
	"strings"
	"testing"
)

func TestFreeDisk(t *testing.T) {
	folder := t.TempDir()
	if got := freeDisk(folder, 1); !got.ok || got.value == nil || *got.value < 1 || !strings.HasPrefix(got.message, folder+" has ") {
		t.Errorf("freeDisk(%s, 1) = %+v, want OK with the bytes free", folder, got)
	}
	if got := freeDisk(folder, 1<<62); got.ok || got.value == nil || !strings.HasSuffix(got.message, "free, less than 4398046511104.0 MiB") {
		t.Errorf("freeDisk(%s, 1<<62) = %+v, want not OK", folder, got)
	}
	if got := freeDisk(folder+"/none", 1); got.ok || got.value != nil || !strings.Contains(got.message, "no such file") {
		t.Errorf("freeDisk(missing folder) = %+v, want not OK: no such file", got)
	}
	if got := compareFree("/x", 16<<20, 16<<20); !got.ok || got.message != "/x has 16.0 MiB free" {
		t.Errorf("compareFree(exactly enough) = %+v, want OK", got)
	}
}
