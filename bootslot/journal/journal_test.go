package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	_ "unsafe" // for the name of journald's socket

	_ "github.com/coreos/go-systemd/v22/journal"
)

//go:linkname journalSocket github.com/coreos/go-systemd/v22/journal.journalSocket
var journalSocket string

// TestMain lets the test binary be a service whose log is tested.
func TestMain(m *testing.M) {
	if socket := os.Getenv("JOURNAL_TEST_SOCKET"); socket != "" {
		journalSocket = socket
		log := slog.New(New(os.Stderr, "holdfast-guard"))
		if c := os.Getenv("JOURNAL_TEST_COMMAND"); c != "" {
			log.Info("to nobody") // kills, unless SIGPIPE is asked for
			log.Info("and again")
			out, _ := exec.Command("grep", "^SigIgn:", "/proc/self/status").Output()
			fmt.Printf("alive %s", out)
			return
		}
		if os.Getenv("JOURNAL_TEST_KIND") == "" {
			log.Info("nothing special")
		} else {
			log.Warn("failed", "event", Failed, "generation", 7, "revision", "4b3f", "fields", "lamp,door-lock", "check", "not-too-hot", "declared", Only("0123"),
				"message", "too hot\nby far", "mark", uint64(7))
		}
		return
	}
	os.Exit(m.Run())
}

// In a line of text there is nothing of kinds and fields of the journal.
func TestText(t *testing.T) {
	for _, tt := range []struct {
		args []any
		want string
	}{
		{nil, `level=INFO msg="the message"`},
		{[]any{"event", Failed, "field", "lamp"}, `level=INFO msg="the message" field=lamp`},
		{[]any{"field", "lamp", "event", Failed, "declared", Only("0123")}, `level=INFO msg="the message" field=lamp`},
		{[]any{"event", "of another kind"}, `level=INFO msg="the message" event="of another kind"`},
	} {
		var b bytes.Buffer
		slog.New(New(&b, "x")).Info("the message", tt.args...)
		if _, got, _ := strings.Cut(b.String(), " "); got != tt.want+"\n" {
			t.Errorf("%v: %q, want %q", tt.args, got, tt.want)
		}
	}
}

func TestEntry(t *testing.T) {
	type fields = map[string]string
	for _, tt := range []struct {
		name     string
		level    slog.Level
		args     []any
		message  string
		priority int
		want     fields
	}{
		{"no kind", slog.LevelInfo, nil, "m", 6, fields{}},
		{"no kind, warning", slog.LevelWarn, nil, "m", 4, fields{}},
		{"no kind, error", slog.LevelError, []any{"error", errors.New("no room")}, `m: error="no room"`, 3, fields{"HOLDFAST_ERROR": "no room"}},
		{"the kind's priority", slog.LevelInfo, []any{"event", Unhealthy, "check", "a"}, "m: check=a", 2,
			fields{"HOLDFAST_EVENT": "unhealthy", "MESSAGE_ID": kinds[Unhealthy].id, "HOLDFAST_CHECK": "a"}},
		{"a verdict", slog.LevelInfo, []any{"event", Passed, "generation", uint64(3)}, "m: generation=3", 5,
			fields{"HOLDFAST_EVENT": "passed", "HOLDFAST_VERDICT": "passed", "MESSAGE_ID": kinds[Passed].id, "HOLDFAST_GENERATION": "3"}},
		{"a kind that is not known here", slog.LevelWarn, []any{"event", Kind("of-a-newer-ledger")}, "m", 4, fields{"HOLDFAST_EVENT": "of-a-newer-ledger"}},
		{"one field", slog.LevelInfo, []any{"field", "lamp"}, "m: field=lamp", 6, fields{"HOLDFAST_FIELD": "lamp", "HOLDFAST_FIELD_LAMP": "1"}},
		{"one of a list", slog.LevelInfo, []any{"fields", "lamp"}, "m: fields=lamp", 6,
			fields{"HOLDFAST_FIELDS": "lamp", "HOLDFAST_FIELD": "lamp", "HOLDFAST_FIELD_LAMP": "1"}},
		{"several", slog.LevelInfo, []any{"fields", []string{"lamp", "door-lock2"}}, `m: fields="[lamp door-lock2]"`, 6,
			fields{"HOLDFAST_FIELDS": "lamp,door-lock2", "HOLDFAST_FIELD_LAMP": "1", "HOLDFAST_FIELD_DOOR_LOCK2": "1"}},
		{"none", slog.LevelInfo, []any{"fields", "", "marks", Marks(nil)}, `m: fields=""`, 6, fields{}},
		{"marks", slog.LevelInfo, []any{"held", Only("lamp"), "marks", Marks([]uint64{3, 12})}, "m", 6,
			fields{"HOLDFAST_HELD": "lamp", "HOLDFAST_FIELD": "lamp", "HOLDFAST_FIELD_LAMP": "1", "HOLDFAST_MARKS": "3,12", "HOLDFAST_MARK_3": "1", "HOLDFAST_MARK_12": "1"}},
		{"a group", slog.LevelInfo, []any{slog.Group("slot", "name", "A", "after", time.Second)}, "m: slot.name=A slot.after=1s", 6,
			fields{"HOLDFAST_SLOT_NAME": "A", "HOLDFAST_SLOT_AFTER": "1s"}},
	} {
		r := slog.NewRecord(time.Now(), tt.level, "m", 0)
		r.Add(tt.args...)
		var attrs []slog.Attr
		r.Attrs(func(a slog.Attr) bool { attrs = append(attrs, a); return true })
		message, priority, got := entry(tt.level, r.Message, attrs)
		if message != tt.message || int(priority) != tt.priority || !maps.Equal(got, tt.want) {
			t.Errorf("%s: %q, %d, %v\nwant %q, %d, %v", tt.name, message, priority, got, tt.message, tt.priority, tt.want)
		}
	}
}

// service runs this binary as a service whose stderr is what stream says, and returns what it wrote there.
func service(t *testing.T, socket, stream, kind string) string {
	t.Helper()
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(stderr.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if stream == "journal" {
		stream = fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"JOURNAL_TEST_SOCKET=" + socket, "JOURNAL_TEST_KIND=" + kind, "JOURNAL_STREAM=" + stream}
	cmd.Stderr = stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(stderr.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What a service logs comes to journald with all its fields, and to stderr when that is no journal or the journal does not take it.
func TestJournal(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	receive := func() map[string]string {
		t.Helper()
		b := make([]byte, 64<<10)
		if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(b)
		if err != nil {
			return nil
		}
		return decode(t, b[:n])
	}

	if said := service(t, socket, "journal", "failed"); said != "" {
		t.Errorf("stderr has %q as well", said)
	}
	got := receive()
	for name, want := range map[string]string{
		"MESSAGE":  `failed: generation=7 revision=4b3f fields=lamp,door-lock check=not-too-hot message="too hot\nby far" mark=7`,
		"PRIORITY": "4", "MESSAGE_ID": kinds[Failed].id, "SYSLOG_IDENTIFIER": "holdfast-guard",
		"HOLDFAST_EVENT": "failed", "HOLDFAST_VERDICT": "failed", "HOLDFAST_GENERATION": "7", "HOLDFAST_REVISION": "4b3f", "HOLDFAST_FIELDS": "lamp,door-lock",
		"HOLDFAST_FIELD_LAMP": "1", "HOLDFAST_FIELD_DOOR_LOCK": "1", "HOLDFAST_CHECK": "not-too-hot", "HOLDFAST_DECLARED": "0123",
		"HOLDFAST_MESSAGE": "too hot\nby far", "HOLDFAST_MARK": "7", "HOLDFAST_MARK_7": "1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("nobody knows of %v", got)
	}

	text := `level=WARN msg=failed generation=7 revision=4b3f fields=lamp,door-lock check=not-too-hot message="too hot\nby far" mark=7` + "\n"
	for name, how := range map[string][2]string{
		"a journal that does not listen":    {socket + "-of-nobody", "journal"},
		"no journal":                        {socket, ""},
		"stderr was redirected":             {socket, "1:1"},
		"an environment that says nonsense": {socket, "nonsense"},
	} {
		if said := service(t, how[0], how[1], "failed"); !strings.HasSuffix(said, text) {
			t.Errorf("%s: stderr has %q, want %q", name, said, text)
		}
		if got := receive(); got != nil {
			t.Errorf("%s: journald got %v", name, got)
		}
	}
	if service(t, socket, "journal", ""); receive()["PRIORITY"] != "6" {
		t.Error("a record without a kind does not come with its level")
	}
}

// With journald stopped there is nobody at the other end of stderr: the process goes on, and its commands are as they were.
func TestNobodyReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"JOURNAL_TEST_SOCKET=/nowhere", "JOURNAL_TEST_COMMAND=1", "PATH=" + os.Getenv("PATH")}
	cmd.Stderr = w
	out, err := cmd.Output()
	w.Close()
	said, mask, _ := strings.Cut(string(out), " SigIgn:")
	ignored, perr := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
	if err != nil || said != "alive" || perr != nil || ignored&(1<<(syscall.SIGPIPE-1)) != 0 {
		t.Errorf("%v, %q", err, out)
	}
}

// decode reads journald's native protocol.
func decode(t *testing.T, b []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		name, value, short := bytes.Cut(line, []byte("="))
		if !short {
			n := binary.LittleEndian.Uint64(rest)
			value, rest = rest[8:8+n], rest[8+n+1:]
		}
		if _, twice := out[string(name)]; twice {
			t.Errorf("%s is there twice", name)
		}
		out[string(name)], b = string(value), rest
	}
	return out
}

func TestWith(t *testing.T) {
	var b bytes.Buffer
	h := (&handler{instead: text(&b)}).WithAttrs([]slog.Attr{slog.Int("a", 1)}).WithGroup("g").WithAttrs([]slog.Attr{slog.Int("b", 2)})
	of := h.(*handler)
	if len(of.attrs) != 2 || of.attrs[0].Key != "a" || of.attrs[1].Key != "g.b" || of.prefix != "g." {
		t.Errorf("%+v", of)
	}
	r := slog.NewRecord(time.Time{}, slog.LevelInfo, "m", 0)
	r.Add("c", 3)
	if err := of.instead.Handle(context.Background(), r); err != nil || b.String() != "level=INFO msg=m a=1 g.b=2 g.c=3\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	if h.Enabled(context.Background(), slog.LevelDebug) || !h.Enabled(context.Background(), slog.LevelInfo) {
		t.Error("the journal gets what a log of text does not")
	}
}
