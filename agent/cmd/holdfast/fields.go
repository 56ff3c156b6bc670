package main

import (
	"fmt"
	"slices"
	"strings"

	"holdfast/agent/status"
	"holdfast/bootslot"
	"holdfast/device"
)

// fieldRow is one field side by side: what is declared (or what else it is compared with), what is to be, what is.
type fieldRow struct {
	Field     string `json:"field"`
	Declared  string `json:"declared,omitempty"` // "" if nothing is
	Effective string `json:"effective"`
	Observed  string `json:"observed,omitempty"` // as the device spells it; "" if it does not tell
	Same      bool   `json:"same"`
	// HeldBy is the mark that holds it, 0 if none does.
	HeldBy uint64   `json:"heldBy,omitempty"`
	Notes  []string `json:"notes,omitempty"` // what is odd about it

	held, drifted bool
}

// fieldRows compares field by field. left is what is declared, or what else is to be compared.
func fieldRows(p device.Profile, v status.View, left namedRelease) (rows []fieldRow) {
	for _, name := range status.FieldNames(p, v.Effective.Fields) {
		r := fieldRow{Field: name, Declared: left.Fields[name], Effective: v.Effective.Fields[name], Observed: v.Device.Observed[name]}
		note := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
		got := r.Observed
		if a, ok := p.Actuator(name); ok {
			if canonical, ok := a.Canonical(got); ok {
				got = canonical
			}
		}
		r.Same = (r.Declared == r.Effective || left.Fields == nil) && got == r.Effective
		if v.Decision != nil && left.Name == "declared" {
			for _, h := range v.Decision.Held {
				if h.Field == name {
					r.held, r.HeldBy = true, h.Mark
					note("%s", heldNote(v, h))
				}
			}
		}
		if v.Trial != nil && slices.Contains(v.Trial.Changed, name) {
			note("on trial")
		}
		if slices.ContainsFunc(v.Device.Drift, func(d device.Drift) bool { return d.Field == name }) {
			r.drifted = true
			note("drifted")
		}
		if msg, ok := v.Device.Refused[name]; ok {
			note("refused: %s", msg)
		}
		if slices.Contains(v.Device.NonConvergent, name) {
			note("does not converge")
		}
		if slices.Contains(v.Device.Contended, name) {
			note("contended")
		}
		rows = append(rows, r)
	}
	if img := v.Effective.Image; img != nil || left.Image != nil {
		// The device does not tell it. Who names none has no opinion.
		same := left.Image == nil || img != nil && img.SHA256 == left.Image.SHA256
		rows = append(rows, fieldRow{Field: bootslot.ImageField, Declared: imageText(left.Image), Effective: imageText(img), Same: same})
	}
	return rows
}

// heldNote says what holds a field, and the check that it was for.
func heldNote(v status.View, h bootslot.HeldField) string {
	if h.Mark == 0 {
		return "held: its file is not ready"
	}
	note := fmt.Sprintf("held by mark %d", h.Mark)
	if i := slices.IndexFunc(v.Marks, func(m bootslot.Mark) bool { return m.ID == h.Mark }); i >= 0 {
		switch m := v.Marks[i]; {
		case m.Cause == bootslot.CauseOperator:
			note += ": rolled back"
		case m.Check != "":
			note += ": " + m.Check
		}
	}
	return note
}

// showFieldRows writes one line per field. What is effective is only to be while nobody is at work.
func showFieldRows(p printer, left string, v status.View, fields []fieldRow) {
	effective := "effective"
	if v.NobodyKeeps() {
		effective = "to be"
	}
	rows := [][]cell{{{"", faint}, {left, faint}, {effective, faint}, {"device", faint}}}
	for _, r := range fields {
		declared, got := cell{text: orDash(r.Declared)}, cell{text: r.Observed}
		if got.text == "" && r.Field != bootslot.ImageField {
			got.text = "?"
		}
		if r.held {
			declared.paint = yellow
		}
		if r.drifted {
			got.paint = red
		}
		rows = append(rows, []cell{{text: r.Field}, declared, {orDash(r.Effective), bold}, got, {strings.Join(r.Notes, "; "), yellow}})
	}
	p.table("  ", rows)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func heldNames(held []bootslot.HeldField) []string {
	var names []string
	for _, h := range held {
		names = append(names, h.Field)
	}
	return names
}

func imageText(i *bootslot.Image) string {
	if i == nil {
		return ""
	}
	return i.Version
}
