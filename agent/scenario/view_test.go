package scenario

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/bootslot"
)

// A place is where in `holdfast status --json` a key's value stands, and how what stands there is called in a scenario.
type place struct {
	path string
	// yes and no are what true, or anything, and false, or nothing, are called; "" for the value itself.
	yes, no string
}

// places is the one table to adapt when the shape of `holdfast status --json` changes (agent/status, View). A key of the
// second table has a NAME after its dot, which is appended to the path: effective.lamp.
var places = map[string]place{
	"phase":         {path: "phase"}, // idle, trial, returning
	"trial":         {"trial", "running", none},
	"fields":        {path: "trial.changed"},
	"attempt":       {path: "trial.attempt"},
	"exempt":        {path: "trial.exempt"},
	"verdict":       {path: "lastVerdict.kind"},
	"check":         {path: "lastVerdict.check"},
	"verdict-says":  {path: "lastVerdict.message"},
	"marks":         {path: "marks"}, // compared with a number, a list is its length
	"cause":         {path: "marks.-1.cause"},
	"held":          {path: "decision.held"},
	"decision":      {path: "decision.kind"},
	"reason":        {path: "decision.reason"},
	"retry-number":  {path: "decision.retryNumber"},
	"mixed":         {"decision.mixed", "yes", "no"},
	"effective":     {path: "effective.source"}, // last-known-good, candidate, fallback
	"active":        {path: "active"},           // A, B, none
	"previous":      {"previous", "yes", none},
	"returning":     {"returning", "yes", "no"},
	"spent":         {path: "spent"},
	"git":           {path: "git.state"}, // ok, offline, unknown, or the kind of the error
	"agent":         {"agent.alive", "alive", "dead"},
	"guard":         {"guard.alive", "alive", "dead"},
	"driver":        {path: "driver"}, // agent, guard, nobody
	"unhealthy":     {path: "unhealthy"},
	"suspended":     {"suspended", "yes", "no"},
	"answers":       {"device.answers", "yes", "no"},
	"drift":         {path: "device.drift"},
	"contended":     {path: "device.contended"},
	"nonconvergent": {path: "device.nonConvergent"},
	"refused":       {path: "device.refused"},
	"unknown":       {path: "device.unknown"},
	"declared":      {path: "declared.revision"},
	"problems":      {path: "problems"},
	"fine":          {"fine", "yes", "no"},
	"summary":       {path: "summary"},
}

var placesOfFields = map[string]string{
	"effective": "effective.fields",
	"active":    "lastKnownGood.fields",
	"previous":  "previous.release.fields",
	"declared":  "declared.fields",
}

// none is what a key without a value is.
const none = "none"

// condition is one KEY=VALUE of a scenario.
type condition struct{ key, op, value string }

// parseConditions reads KEY=VALUE, KEY!=VALUE, KEY~PART and KEY>=N.
func parseConditions(args []string) ([]condition, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("no KEY=VALUE to look for")
	}
	var cs []condition
	for _, a := range args {
		i := strings.IndexAny(a, "=!~>")
		if i <= 0 {
			return nil, fmt.Errorf("%q is not KEY=VALUE, KEY!=VALUE, KEY~PART or KEY>=N", a)
		}
		c := condition{key: a[:i], op: a[i : i+1], value: a[i+1:]}
		if c.op == "!" || c.op == ">" {
			rest, ok := strings.CutPrefix(c.value, "=")
			if !ok {
				return nil, fmt.Errorf("%q is not KEY=VALUE, KEY!=VALUE, KEY~PART or KEY>=N", a)
			}
			c.op, c.value = c.op+"=", rest
		}
		if err := c.known(); err != nil {
			return nil, err
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// known reports a misspelt key at once, not after a minute of waiting for it.
func (c condition) known() error {
	head, _, dotted := strings.Cut(c.key, ".")
	switch {
	case dotted && (head == "" || head == "device" || head == "process"):
		return nil
	case dotted && placesOfFields[head] != "":
		return nil
	case !dotted && places[c.key] != place{}:
		return nil
	}
	return fmt.Errorf("%q is no key; see places in view_test.go", c.key)
}

// needs says what has to be asked to answer the condition: device, process or status.
func (c condition) needs() string {
	head, _, _ := strings.Cut(c.key, ".")
	if head == "device" || head == "process" {
		return head
	}
	return "status"
}

// view is what a scenario can see at one moment.
type view struct {
	status  any               // decoded JSON, nil if the CLI gave none
	device  map[string]string // actuators and readings, nil if it does not answer
	process map[string]string
	errs    []string
}

// get returns the value of a key as text: a list comma-separated, an absent one none.
func (v view) get(key string) (text string, length int) {
	head, name, dotted := strings.Cut(key, ".")
	switch {
	case head == "device" && dotted:
		if s, ok := v.device[name]; ok {
			return s, -1
		}
		return none, -1
	case head == "process" && dotted:
		return v.process[name], -1
	case head == "" && dotted:
		return render(lookup(v.status, name))
	case dotted:
		return render(lookup(v.status, placesOfFields[head]+"."+name))
	}
	p := places[key]
	at := lookup(v.status, p.path)
	if p.yes == "" {
		return render(at)
	}
	if at == nil || at == false {
		return p.no, -1
	}
	return p.yes, -1
}

func lookup(v any, path string) any {
	for _, k := range strings.Split(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[k]
		case []any:
			i, err := strconv.Atoi(k)
			if i < 0 {
				i += len(at)
			}
			if err != nil || i < 0 || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

func render(v any) (text string, length int) {
	switch v := v.(type) {
	case nil:
		return none, -1
	case string:
		if v == "" {
			return none, -1
		}
		return v, -1
	case bool:
		if v {
			return "yes", -1
		}
		return "no", -1
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), -1
	case []any:
		if len(v) == 0 {
			return none, 0
		}
		var parts []string
		for _, e := range v {
			s, _ := render(e)
			parts = append(parts, s)
		}
		sort.Strings(parts)
		return strings.Join(parts, ","), len(v)
	case map[string]any:
		// An entry of a list is known by its name, a set of fields by its keys.
		for _, k := range []string{"name", "field", "digest"} {
			if s, ok := v[k].(string); ok {
				return s, -1
			}
		}
		var keys []string
		for k := range v {
			keys = append(keys, k)
		}
		if len(keys) == 0 {
			return none, 0
		}
		sort.Strings(keys)
		return strings.Join(keys, ","), len(keys)
	}
	return fmt.Sprint(v), -1
}

// holds reports whether c is true, and what there is instead.
func (c condition) holds(v view) (ok bool, got string) {
	got, length := v.get(c.key)
	want := c.value
	number, err := strconv.ParseFloat(want, 64)
	if err == nil && got == none && (length == 0 || c.key == "marks") {
		got = "0"
	} else if err == nil && length >= 0 {
		got = strconv.Itoa(length)
	}
	switch c.op {
	case "=":
		return got == want || sortedList(want) == got, got
	case "!=":
		return got != want, got
	case "~":
		return strings.Contains(got, want), got
	}
	n, e := strconv.ParseFloat(got, 64)
	return err == nil && e == nil && n >= number, got
}

func sortedList(s string) string {
	parts := strings.Split(s, ",")
	sort.Strings(parts)
	return strings.Join(parts, ",")
}

// missing lists the conditions that do not hold.
func missing(cs []condition, v view) []string {
	var out []string
	for _, c := range cs {
		if ok, got := c.holds(v); !ok {
			out = append(out, fmt.Sprintf("%s is %q, not %s%s", c.key, got, c.op, c.value))
		}
	}
	return out
}

func needStatus(cs []condition) bool {
	for _, c := range cs {
		if c.needs() == "status" {
			return true
		}
	}
	return false
}

// news changes when guard or agent have something new to tell.
func (w *world) news() string {
	var b strings.Builder
	for sock, path := range map[string]string{"guard": "/v1/state", "agent": "/v1/status"} {
		var s struct {
			PID    int    `json:"pid"`
			Change uint64 `json:"change"`
		}
		if body, err := overSocket(w.path("run", sock+".sock"), 300*time.Millisecond, "GET", path, ""); err == nil {
			json.Unmarshal(body, &s)
		}
		fmt.Fprintf(&b, "%s %d %d\n", sock, s.PID, s.Change)
	}
	lines := strings.Split(b.String(), "\n")
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// look asks for what the conditions need; the CLI, which is a process, only if all that comes cheaper is as it should be, or
// if everything is asked for.
func (w *world) look(cs []condition, everything bool) view {
	v := view{process: map[string]string{}}
	for _, who := range processNames {
		v.process[who] = w.procs[who].state()
	}
	need := map[string]bool{}
	for _, c := range cs {
		need[c.needs()] = true
	}
	if need["device"] {
		var err error
		if v.device, err = w.device.state(); err != nil {
			v.errs = append(v.errs, "device: "+err.Error())
		}
	}
	var cheap []condition
	for _, c := range cs {
		if c.needs() != "status" {
			cheap = append(cheap, c)
		}
	}
	if everything || need["status"] && len(missing(cheap, v)) == 0 {
		// Exit code 1 says that something is not fine, which scenarios are about; the JSON comes all the same.
		out, errOut, err := w.holdfast("status", "--json", "--config", w.configFile("agent"))
		if e := json.Unmarshal(out, &v.status); e != nil {
			v.errs = append(v.errs, fmt.Sprintf("holdfast status --json: %v, %v: %s%s", err, e, out, errOut))
		}
	}
	return v
}

func (v view) String() string {
	var b strings.Builder
	for _, e := range v.errs {
		fmt.Fprintln(&b, e)
	}
	fmt.Fprintln(&b, "processes:", v.process)
	if v.device != nil {
		fmt.Fprintln(&b, "device:", v.device)
	}
	if v.status != nil {
		j, _ := json.MarshalIndent(v.status, "", "  ")
		fmt.Fprintf(&b, "status: %s\n", j)
	}
	return b.String()
}

// historyTrials counts the trials of a digest, declared or candidate, in `holdfast history --json`.
func historyTrials(history []byte, digest string) (int, error) {
	var events []bootslot.Event
	if err := json.Unmarshal(history, &events); err != nil {
		return 0, fmt.Errorf("holdfast history --json: %w: %.300s", err, history)
	}
	n := 0
	for _, e := range events {
		if e.Kind == bootslot.EventTrial && (string(e.Digest) == digest || string(e.Declared) == digest) {
			n += max(e.Count, 1)
		}
	}
	return n, nil
}

func TestConditions(t *testing.T) {
	t.Parallel()
	var status any
	if err := json.Unmarshal([]byte(`{"trial":{"changed":["lamp","fan"]},"marks":[{"digest":"a"},{"digest":"b"}],"agent":{"alive":true},"guard":{"alive":false},
		"effective":{"source":"candidate","fields":{"lamp":"on"}},"decision":{"reason":"pause: 3 s left","held":[{"field":"lamp"}]}}`), &status); err != nil {
		t.Fatal(err)
	}
	v := view{status: status, device: map[string]string{"lamp": "on", "temperature": "21.5"}, process: map[string]string{"agent": "dead"}}
	for cond, want := range map[string]bool{
		"trial=running":   true,
		"trial=none":      false,
		"fields=fan,lamp": true,
		"fields=lamp,fan": true,
		"fields=lamp":     false,
		"marks=2":         true,
		"marks=1":         false,
		"marks>=2":        true,
		"held=none":       false,
		"held=lamp":       true, "agent=alive": true, "guard=dead": true, "suspended=no": true,
		"effective=candidate":       true,
		"effective.lamp=on":         true,
		"effective.lamp!=off":       true,
		"active=none":               true,
		"reason~pause":              true,
		"returning=no":              true,
		"unhealthy=none":            true,
		"device.lamp=on":            true,
		"device.temperature>=21":    true,
		"device.door=none":          true,
		"process.agent=dead":        true,
		".effective.fields.lamp=on": true,
		".marks.-1.digest=b":        true,
	} {
		cs, err := parseConditions([]string{cond})
		if err != nil {
			t.Errorf("parseConditions(%q): %v", cond, err)
			continue
		}
		if ok, got := cs[0].holds(v); ok != want {
			t.Errorf("%s holds: %v (it is %q), want %v", cond, ok, got, want)
		}
	}
	for _, bad := range []string{"trail=running", "trial", "=x", "held.lamp=on", "marks>1"} {
		if _, err := parseConditions([]string{bad}); err == nil {
			t.Errorf("parseConditions(%q) reports nothing", bad)
		}
	}
}
