package selftest

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"
)

// freeDisk measures how many bytes anybody but root may still write to the file system of folder. It cannot be
// ended: on a dead disk the kernel answers when it likes (Runner then says that the check is stuck).
func freeDisk(folder string, minFree int64) outcome {
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil {
		return outcome{message: fmt.Sprintf("free space of %s cannot be read: %v", folder, err)}
	}
	return compareFree(folder, int64(st.Bavail)*cmp.Or(int64(st.Frsize), int64(st.Bsize)), minFree)
}

func compareFree(folder string, free, minFree int64) outcome {
	v := float64(free)
	if free < minFree {
		return outcome{value: &v, message: fmt.Sprintf("%s has %s free, less than %s", folder, mebibytes(free), mebibytes(minFree))}
	}
	return outcome{ok: true, value: &v, message: fmt.Sprintf("%s has %s free", folder, mebibytes(free))}
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
