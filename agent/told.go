package agent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/agent/gitclone"
	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/bootslot/journal"
	"holdfast/device"
)

// told says each change once. What has been said is remembered here, so that a state that lasts for a year is one line.
type told struct {
	mode      string
	silent    bool
	silentAt  time.Duration
	decision  *bootslot.Decision
	revision  string // of the wish that was decided on
	away      bool   // the device does not answer
	awayAt    time.Duration
	failing   string          // what goes wrong with a device that answers
	drifted   map[string]bool // fields, said to have drifted
	target    device.Fields   // of the newest cycle that drove
	refused   map[string]string
	diverging []string
	contended map[string]time.Duration // fields said to be contended, by when they last were
	unknown   []string
	offlineAt time.Duration
	stored    []gitclone.Notice
}

// drives says who drives to what, and whether the guard answers.
func (j *told) drives(ctx context.Context, log *slog.Logger, act Action, m Memory, now time.Duration, err error) {
	if m.Silent != j.silent {
		if m.Silent {
			_, why := status.Why(err)
			log.WarnContext(ctx, "guard silent", "event", journal.GuardSilent, "error", why)
			j.silentAt = now
		} else {
			log.InfoContext(ctx, "guard answers", "event", journal.GuardAnswers, "after", (now - j.silentAt).Round(time.Second).String())
		}
		j.silent = m.Silent
	}
	if act.Drives != j.mode {
		if j.mode != "" || act.Drives != status.DrivesEffective {
			log.InfoContext(ctx, "driving", "event", journal.Driver, "to", act.Drives, "why", act.Why, "generation", act.Generation)
		}
		j.mode = act.Drives
	}
}

// decided says what the guard answers to what is declared, and reports whether it is news. Its reason counts down seconds, and so is none.
func (j *told) decided(ctx context.Context, log *slog.Logger, d bootslot.Decision, w status.Declared) (news bool) {
	old := j.decision
	j.decision = &d
	if old != nil && j.revision == w.Revision && old.Kind == d.Kind && old.Digest == d.Digest && slices.Equal(old.Held, d.Held) {
		return false
	}
	j.revision = w.Revision
	kind := journal.Decision
	if len(d.Held) > 0 {
		kind = journal.Held
	}
	args := []any{"event", kind, "decision", d.Kind, "revision", w.Revision, "declared", w.Digest.Short()}
	if d.Reason != "" {
		args = append(args, "reason", d.Reason)
	}
	if len(d.Held) > 0 {
		var held []string
		for _, h := range d.Held {
			held = append(held, h.Field)
		}
		args = append(args, "held", strings.Join(held, ","), "retry", d.RetryNumber, "marks", journal.Marks(d.Marks))
	}
	log.InfoContext(ctx, "decision changed", args...)
	return true
}

// desired says that git declares something else than before.
func (j *told) desired(ctx context.Context, log *slog.Logger, old *status.Declared, p parsed) {
	switch {
	case p.problem != "":
		log.WarnContext(ctx, "declared state not usable", "event", journal.DeclaredUnusable, "error", p.problem)
	case p.declared == nil:
	case old == nil || old.Digest != p.declared.Digest || old.Retry != p.declared.Retry:
		log.InfoContext(ctx, "desired release changed", "event", journal.Declared, "revision", p.declared.Revision, "declared", p.declared.Digest.Short(), "subject", p.declared.Subject)
	default:
		log.InfoContext(ctx, "revision advanced, same content", "event", journal.SameContent, "revision", p.declared.Revision, "subject", p.declared.Subject)
	}
}

// storage says what the clone has to report of its own file.
func (j *told) storage(ctx context.Context, log *slog.Logger, now []gitclone.Notice) {
	for _, n := range now {
		if slices.Contains(j.stored, n) {
			continue
		}
		kind := journal.Storage
		if n.Unwritten() {
			kind = journal.CannotWrite
		}
		log.WarnContext(ctx, "storage", "event", kind, "message", n.Text)
	}
	j.stored = now
}

// saw says what is new about the device. target is what the cycle drove to, nil if nobody drives.
func (j *told) saw(ctx context.Context, log *slog.Logger, r device.Report, target device.Fields, now time.Duration) {
	if r.Answered == j.away {
		j.away = !r.Answered
		if j.away {
			log.WarnContext(ctx, "device does not answer", "event", journal.DeviceAway, "error", r.Error)
			j.awayAt = now
		} else {
			log.InfoContext(ctx, "device answers", "event", journal.DeviceBack, "after", (now - j.awayAt).Round(time.Second).String())
		}
	}
	if !r.Answered {
		return
	}
	if failing := r.Error; failing != j.failing {
		if failing != "" && j.failing == "" {
			log.WarnContext(ctx, "device not driven", "event", journal.NotDriven, "error", failing)
		} else if failing == "" {
			log.InfoContext(ctx, "device driven again", "event", journal.DrivenAgain)
		}
		j.failing = failing
	}
	if j.drifted == nil {
		j.drifted = map[string]bool{}
	}
	for _, d := range r.Drift {
		switch {
		case j.target != nil && target != nil && j.target[d.Field] != d.Want:
			log.InfoContext(ctx, "field to change", "event", journal.Change, "field", d.Field, "want", d.Want, "got", d.Got, "generation", r.Generation)
		case !j.drifted[d.Field] && !j.fought(d.Field, r):
			// One that is contended is told as that, and not each time; one that lasts is told once.
			log.InfoContext(ctx, "device drifted", "event", journal.Drift, "field", d.Field, "want", d.Want, "got", d.Got, "generation", r.Generation)
		}
		j.drifted[d.Field] = true
	}
	if target != nil {
		j.target = target
	}
	left := map[string]bool{}
	for _, d := range r.Left {
		left[d.Field] = true
	}
	var corrected []string
	for _, field := range slices.Sorted(maps.Keys(j.drifted)) {
		if left[field] {
			continue
		}
		if !j.fought(field, r) {
			corrected = append(corrected, field)
		}
		delete(j.drifted, field)
	}
	if len(corrected) > 0 {
		log.InfoContext(ctx, "device as it is to be", "event", journal.Corrected, "fields", strings.Join(corrected, ","), "generation", r.Generation)
	}
	for _, field := range slices.Sorted(maps.Keys(r.Refused)) {
		if _, said := j.refused[field]; !said {
			log.WarnContext(ctx, "value refused", "event", journal.Refused, "field", field, "error", r.Refused[field])
		}
	}
	for _, field := range slices.Sorted(maps.Keys(j.refused)) {
		if _, still := r.Refused[field]; !still {
			log.InfoContext(ctx, "value no longer refused", "event", journal.RefusedOver, "field", field)
		}
	}
	j.refused = r.Refused
	appear(ctx, log, &j.diverging, r.NonConvergent, "field does not converge", journal.NonConvergent, "field converges", journal.NonConvergentOver)
	if j.contended == nil {
		j.contended = map[string]time.Duration{}
	}
	for _, field := range r.Contended {
		if _, said := j.contended[field]; !said {
			log.WarnContext(ctx, "field contended", "event", journal.Contended, "field", field)
		}
		j.contended[field] = now
	}
	for _, field := range slices.Sorted(maps.Keys(j.contended)) {
		if now-j.contended[field] >= calmTime {
			log.InfoContext(ctx, "field no longer contended", "event", journal.ContendedOver, "field", field)
			delete(j.contended, field)
		}
	}
	appear(ctx, log, &j.unknown, r.Unknown, "unknown actuator left alone", journal.UnknownActuator, "unknown actuator gone", journal.UnknownActuatorOver)
}

// calmTime is how long nobody must have contended a field for the log to say so: whoever turns a knob now and then is one event.
const calmTime = 5 * time.Minute

// fought reports whether a field is contended, or was not long ago.
func (j *told) fought(field string, r device.Report) bool {
	_, said := j.contended[field]
	return said || slices.Contains(r.Contended, field)
}

// appear says which names are new in a list, and which are gone.
func appear(ctx context.Context, log *slog.Logger, old *[]string, now []string, came string, begins journal.Kind, went string, ends journal.Kind) {
	for _, f := range now {
		if !slices.Contains(*old, f) {
			log.WarnContext(ctx, came, "event", begins, "field", f)
		}
	}
	for _, f := range *old {
		if !slices.Contains(now, f) {
			log.InfoContext(ctx, went, "event", ends, "field", f)
		}
	}
	*old = now
}

// fetched says that the repository is in another state than before, and for how long it was in the last.
func (j *told) fetched(ctx context.Context, log *slog.Logger, old, now status.Git, at time.Duration) {
	if old.State != now.State {
		switch {
		case now.State == status.GitOK && old.State != status.GitUnknown:
			log.InfoContext(ctx, "repository answers", "event", journal.RepositoryAnswers, "after", (at - j.offlineAt).Round(time.Second).String())
		case now.State == status.GitOffline:
			log.InfoContext(ctx, "offline", "event", journal.Offline, "error", now.Message)
		case now.State != status.GitOK:
			log.WarnContext(ctx, "repository unusable", "event", journal.RepositoryUnusable, "kind", now.State, "error", now.Message, "advice", now.Advice)
		}
		if now.State != status.GitOK && (old.State == status.GitOK || old.State == status.GitUnknown) {
			j.offlineAt = at
		}
	} else if now.State != status.GitOK && now.State != status.GitOffline && now.Message != old.Message {
		log.WarnContext(ctx, "repository unusable", "event", journal.RepositoryUnusable, "kind", now.State, "error", now.Message, "advice", now.Advice)
	}
	for _, n := range now.Notices {
		if !slices.Contains(old.Notices, n) {
			log.WarnContext(ctx, "repository", "event", journal.RepositoryNotice, "notice", n)
		}
	}
}
