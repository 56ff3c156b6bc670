package bootslot

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
)

// unknown are the fields of a part of the ledger that a newer schema has and this code does not know. They are kept as they are, as long as the
// part itself is: an older guard that may write the ledger must not take away what the newer one relies on. A release, an image and a
// baseline have no such fields: they are what digests and trials are made of, so a schema that adds to them must raise MinWriter.
type unknown map[string]json.RawMessage

// marshal writes v, a struct without methods of its own, with u.
func (u unknown) marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil || len(u) == 0 {
		return b, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	for k, raw := range u {
		m[k] = raw
	}
	return json.Marshal(m)
}

// unmarshal reads b into v, a pointer to a struct without methods of its own, and returns what v has no field for; nil if there is nothing.
func unmarshal(b []byte, v any) (unknown, error) {
	if err := json.Unmarshal(b, v); err != nil {
		return nil, err
	}
	var m unknown
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	t := reflect.TypeOf(v).Elem()
	for i := range t.NumField() {
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		maps.DeleteFunc(m, func(k string, _ json.RawMessage) bool { return strings.EqualFold(k, key) }) // as json reads them
	}
	if len(m) == 0 {
		return nil, nil
	}
	return m, nil
}

// The same types without their methods, so that JSON does not recurse.
type (
	plainLedger    Ledger
	plainSlot      Slot
	plainMark      Mark
	plainTry       Try
	plainGrant     Grant
	plainTrial     Trial
	plainReturning Returning
)

// MarshalJSON writes what is known and what is not.
func (l Ledger) MarshalJSON() ([]byte, error) { return l.unknown.marshal(plainLedger(l)) }

// UnmarshalJSON reads what is known and keeps the rest.
func (l *Ledger) UnmarshalJSON(b []byte) (err error) {
	var p plainLedger
	p.unknown, err = unmarshal(b, &p)
	*l = Ledger(p)
	return err
}

// MarshalJSON writes what is known and what is not.
func (s Slot) MarshalJSON() ([]byte, error) { return s.unknown.marshal(plainSlot(s)) }

// UnmarshalJSON reads what is known and keeps the rest.
func (s *Slot) UnmarshalJSON(b []byte) (err error) {
	var p plainSlot
	p.unknown, err = unmarshal(b, &p)
	*s = Slot(p)
	return err
}

// MarshalJSON writes what is known and what is not.
func (m Mark) MarshalJSON() ([]byte, error) { return m.unknown.marshal(plainMark(m)) }

// UnmarshalJSON reads what is known and keeps the rest.
func (m *Mark) UnmarshalJSON(b []byte) (err error) {
	var p plainMark
	p.unknown, err = unmarshal(b, &p)
	*m = Mark(p)
	return err
}

// MarshalJSON writes what is known and what is not.
func (t Try) MarshalJSON() ([]byte, error) { return t.unknown.marshal(plainTry(t)) }

// UnmarshalJSON reads what is known and keeps the rest.
func (t *Try) UnmarshalJSON(b []byte) (err error) {
	var p plainTry
	p.unknown, err = unmarshal(b, &p)
	*t = Try(p)
	return err
}

// MarshalJSON writes what is known and what is not.
func (g Grant) MarshalJSON() ([]byte, error) { return g.unknown.marshal(plainGrant(g)) }

// UnmarshalJSON reads what is known and keeps the rest.
func (g *Grant) UnmarshalJSON(b []byte) (err error) {
	var p plainGrant
	p.unknown, err = unmarshal(b, &p)
	*g = Grant(p)
	return err
}

// MarshalJSON writes what is known and what is not.
func (t Trial) MarshalJSON() ([]byte, error) { return t.unknown.marshal(plainTrial(t)) }

// UnmarshalJSON reads what is known and keeps the rest.
func (t *Trial) UnmarshalJSON(b []byte) (err error) {
	var p plainTrial
	p.unknown, err = unmarshal(b, &p)
	*t = Trial(p)
	return err
}

// MarshalJSON writes what is known and what is not.
func (r Returning) MarshalJSON() ([]byte, error) { return r.unknown.marshal(plainReturning(r)) }

// UnmarshalJSON reads what is known and keeps the rest.
func (r *Returning) UnmarshalJSON(b []byte) (err error) {
	var p plainReturning
	p.unknown, err = unmarshal(b, &p)
	*r = Returning(p)
	return err
}
