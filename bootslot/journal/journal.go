// Package journal is how agent and guard log: to systemd's journal with a field for everything that a person may look for, or, where stderr is not the
// journal, as text. A record that tells an event names its kind:
//
//	log.WarnContext(ctx, "field contended", "event", journal.Contended, "field", field)
//
// which is HOLDFAST_EVENT=contended and HOLDFAST_FIELD=lamp in the journal, with the message id and the priority of that kind (kinds.go), and nothing in
// the text. docs/journal.md is the interface, packaging/holdfast.catalog what `journalctl -x` says.
package journal

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"
)

// New returns the handler of a process whose log goes to w: the journal if that is what w is, else text. identifier is the process's name.
//
// A log that nobody reads any more is no reason to end. With journald stopped a write to stderr raises SIGPIPE, which kills a Go process that does not ask
// for it, whatever systemd's IgnoreSIGPIPE= says. It is asked for, and not ignored, as commands would inherit that.
func New(w io.Writer, identifier string) slog.Handler {
	if w == io.Writer(os.Stderr) {
		signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
		if is, err := journal.StderrIsJournalStream(); is && err == nil {
			return &handler{identifier: identifier, instead: text(w)}
		}
	}
	return text(w)
}

// Only is a value for a field of the journal, and for no line of text.
type Only string

// Marks lists marks by their numbers.
func Marks(ids []uint64) Only {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = strconv.FormatUint(id, 10)
	}
	return Only(strings.Join(list, ","))
}

// shown reports whether an attribute is for people, too.
func shown(a slog.Attr) bool {
	switch a.Value.Any().(type) {
	case Kind, Only:
		return false
	}
	return true
}

func text(w io.Writer) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if !shown(a) {
			return slog.Attr{}
		}
		return a
	}})
}

// attributes writes only what a record has besides time, level and message.
func attributes(w io.Writer) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if !shown(a) || a.Key == slog.LevelKey || a.Key == slog.MessageKey {
			return slog.Attr{}
		}
		return a
	}})
}

// handler sends each record to the journal.
type handler struct {
	identifier string
	prefix     string // of the groups
	attrs      []slog.Attr
	instead    slog.Handler // gets what the journal does not take
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.instead = h.instead.WithAttrs(attrs)
	n.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		n.attrs = append(n.attrs, slog.Attr{Key: h.prefix + a.Key, Value: a.Value})
	}
	return &n
}

func (h *handler) WithGroup(name string) slog.Handler {
	n := *h
	n.instead = h.instead.WithGroup(name)
	n.prefix += name + "."
	return &n
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, slog.Attr{Key: h.prefix + a.Key, Value: a.Value})
		return true
	})
	message, priority, fields := entry(r.Level, r.Message, attrs)
	fields["SYSLOG_IDENTIFIER"] = h.identifier
	if err := journal.Send(message, priority, fields); err != nil {
		return h.instead.Handle(ctx, r) // journald is being restarted, say: what goes to stderr waits in its stream
	}
	return nil
}

// entry is a record as the journal has it.
func entry(level slog.Level, msg string, attrs []slog.Attr) (message string, priority journal.Priority, fields map[string]string) {
	fields = map[string]string{}
	switch {
	case level >= slog.LevelError:
		priority = journal.PriErr
	case level >= slog.LevelWarn:
		priority = journal.PriWarning
	case level >= slog.LevelInfo:
		priority = journal.PriInfo
	default:
		priority = journal.PriDebug
	}
	for _, a := range attrs {
		k, ok := a.Value.Any().(Kind)
		if !ok {
			add(fields, a)
			continue
		}
		fields["HOLDFAST_EVENT"] = string(k)
		if of, ok := kinds[k]; ok {
			fields["MESSAGE_ID"], priority = of.id, of.priority
		}
		if k.verdict() {
			fields["HOLDFAST_VERDICT"] = string(k)
		}
	}

	// A line of `journalctl` says as much as one of text.
	var line bytes.Buffer
	plain := slog.NewRecord(time.Time{}, level, "", 0)
	plain.AddAttrs(attrs...)
	_ = attributes(&line).Handle(context.Background(), plain) // a buffer takes everything
	message = msg
	if rest := strings.TrimSpace(line.String()); rest != "" {
		message += ": " + rest
	}
	return message, priority, fields
}

// several are the attributes that list things, and the field of one such thing.
var several = map[string]string{"field": "FIELD", "fields": "FIELD", "held": "FIELD", "mark": "MARK", "marks": "MARK"}

// add adds the fields of an attribute. A field of the journal is matched as a whole, so each thing of a list has one of its own, HOLDFAST_FIELD_LAMP=1; if
// it is the only one it is HOLDFAST_FIELD=lamp as well.
func add(fields map[string]string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		for _, in := range v.Group() {
			add(fields, slog.Attr{Key: a.Key + "." + in.Key, Value: in.Value})
		}
		return
	}
	text := v.String()
	if list, ok := v.Any().([]string); ok {
		text = strings.Join(list, ",")
	}
	if text == "" {
		return
	}
	fields["HOLDFAST_"+fieldName(a.Key)] = text
	one, ok := several[a.Key]
	if !ok {
		return
	}
	things := strings.Split(text, ",")
	for _, thing := range things {
		fields["HOLDFAST_"+one+"_"+fieldName(thing)] = "1"
	}
	if len(things) == 1 {
		fields["HOLDFAST_"+one] = text
	}
}

// fieldName is s as a part of a field's name: of A-Z, 0-9 and _ (systemd.journal-fields(7)).
func fieldName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, s)
}

// Kinds are all kinds of events, sorted.
func Kinds() []Kind { return slices.Sorted(maps.Keys(kinds)) }
