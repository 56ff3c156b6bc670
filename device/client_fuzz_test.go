package device

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"holdfast/device/clock"
)

// liar is a device that answers each request with what it was given for it, byte for byte, and hangs up.
type liar struct {
	mu      sync.Mutex
	answers [][]byte // the last one is repeated
	asked   []string // METHOD PATH
	posts   [][]byte // the bodies of the writes
	taken   []int64  // bytes that were taken of each answer
	serving sync.WaitGroup
}

func (l *liar) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	l.serving.Go(func() {
		defer ours.Close()
		req, err := http.ReadRequest(bufio.NewReader(ours))
		if err != nil {
			return
		}
		body, _ := io.ReadAll(req.Body)
		l.mu.Lock()
		answer := l.answers[min(len(l.asked), len(l.answers)-1)]
		l.asked = append(l.asked, req.Method+" "+req.URL.Path)
		if req.Method == http.MethodPost {
			l.posts = append(l.posts, body)
		}
		l.mu.Unlock()
		n, _ := ours.Write(answer)
		l.mu.Lock()
		l.taken = append(l.taken, int64(n))
		l.mu.Unlock()
	})
	return theirs, nil
}

// fit reports whether text may be shown on a terminal, in one line of some length.
func fit(s string) bool {
	return len(s) < 4<<10 && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// FuzzDevice: whatever a device answers, the driver writes nothing but declared values to fields that have drifted, asks no more often than it may, reads no more than
// it may, and what it tells of it is fit for logs and terminals. The answers are to GET /state, to the write, and to whatever comes after; raw ones are sent as they
// are, the others as the body of a whole answer.
func FuzzDevice(f *testing.F) {
	whole := `{"observedAt":"2026-01-01T00:00:00Z","readings":{"temperature":20.5},"actuators":{"pump":"off","fan":"off","vent":"on","lamp":"off","door":"closed"}}`
	moved := strings.Replace(whole, `"lamp":"off"`, `"lamp":"on","heater":"on"`, 1)
	raw := func(head, body string) []byte {
		return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", head, len(body), body)
	}
	f.Add(false, uint16(200), []byte(whole), []byte("{}"), []byte("{}"))
	f.Add(false, uint16(200), []byte(moved), []byte(whole), []byte(whole))
	f.Add(false, uint16(200), []byte(moved), []byte(moved), []byte(`{"actuators":{"lamp":null,"\u001b[2J":"on","pump":true},"readings":{"\u001b]0;":1,"a":1e308,"b":null,"c":"1"}}`))
	f.Add(true, uint16(0), raw("200 OK", moved), raw("400 Bad Request", `{"error":"no \u001b[2J","allowed":["\u202e"],"known":null}`), raw("200 OK", whole))
	f.Add(true, uint16(0), raw("200 OK", moved), raw("500 \x1b[2J", "\x1b"), raw("200 OK", moved))
	f.Add(true, uint16(0), []byte("HTTP/1.1 200 OK\r\n\x1b[2J: x\r\nContent-Length: 5\r\n\r\n{}"), []byte(""), []byte("\x1b[2J"))
	f.Add(true, uint16(0), []byte("HTTP/1.1 200 OK\r\n\x1b[2J\r\n\r\n{}"), []byte("HTTP/\x1b[2J"), []byte("HTTP/1.1 \x1b[2J\r\n\r\n"))
	f.Add(true, uint16(0), []byte("x"), []byte(strings.Repeat("\x92", 4000)), []byte{}) // net/http quotes it whole
	f.Add(true, uint16(0), raw("301 Moved\r\nLocation: http://\u009b.example.org/\x1b", ""), raw("101 Switching Protocols", ""), raw("100 Continue", ""))
	f.Add(true, uint16(0), raw("200 OK\r\nTransfer-Encoding: chunked", "fffffff\r\n"+whole), []byte("HTTP/1.1 200 \x9b2J\r\n\r\n"), raw("503 X\r\nRetry-After: 9999999", ""))
	f.Add(false, uint16(200), []byte(`{"actuators":{"x":"`+strings.Repeat("y", 200<<10)+`"}}`), []byte("{}"), []byte("{}"))
	p, err := LoadProfile("")
	if err != nil {
		f.Fatal(err)
	}
	ck := clock.New()
	f.Fuzz(func(t *testing.T, asIs bool, status uint16, first, second, third []byte) {
		l := &liar{answers: [][]byte{first, second, third}}
		if !asIs {
			for i := range l.answers {
				l.answers[i] = raw(fmt.Sprintf("%03d Status", status%1000), string(l.answers[i]))
			}
		}
		c, err := NewClient(ClientOptions{URL: "http://device", Profile: p})
		if err != nil {
			t.Fatal(err)
		}
		transport := c.http.HTTPClient.Transport.(attempts).next.(*http.Transport)
		transport.DialContext = l.dial
		c.http.RetryWaitMin, c.http.RetryWaitMax = 0, 0
		want := p.Fallback.Clone()
		r := NewDriver(c, p, ck, 0).Drive(t.Context(), func(context.Context) (Target, error) {
			return Target{Generation: 7, Fields: want, ReadAt: ck.Uptime()}, nil
		})
		transport.CloseIdleConnections()
		l.serving.Wait()

		// Twice for each question; before and after the writes, all at once and one by one.
		if most := 2 * (2 + 1 + len(want)); len(l.asked) > most {
			t.Errorf("%d requests in one cycle, want %d at most: %q", len(l.asked), most, l.asked)
		}
		for _, a := range l.asked {
			if a != "GET /state" && a != "POST /actuators" {
				t.Errorf("asked for %s", a)
			}
		}
		for _, body := range l.posts {
			var set map[string]string
			if err := json.Unmarshal(body, &set); err != nil || len(set) == 0 {
				t.Errorf("written %q: %v", body, err)
			}
			for k, v := range set {
				if want[k] != v || !has(r.Drift, k) {
					t.Errorf("written %s=%s; to be is %q, and the drift %v", k, v, want[k], r.Drift)
				}
			}
		}
		for _, n := range l.taken {
			if n > 2*maxBody+8<<10 {
				t.Errorf("%d bytes of an answer were read", n)
			}
		}
		if r.Answered != (r.Observed != nil) || r.Converged() && len(r.Left)+len(Diff(p, want, r.Observed.Actuators)) > 0 {
			t.Errorf("the report is at odds with itself: %+v", r)
		}
		for _, name := range r.Unknown {
			if _, known := p.Actuator(name); known {
				t.Errorf("unknown is %q", name)
			}
		}
		texts := slices.Concat([]string{r.Error}, r.Unknown, r.Written, r.NonConvergent, r.Contended, slices.Collect(maps.Keys(r.Refused)), slices.Collect(maps.Values(r.Refused)))
		if s := r.Observed; s != nil {
			texts = slices.AppendSeq(slices.AppendSeq(slices.AppendSeq(texts, maps.Keys(s.Actuators)), maps.Values(s.Actuators)), maps.Keys(s.Readings))
			for name, v := range s.Readings {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Errorf("the reading %q is %v", name, v)
				}
			}
		}
		for _, d := range slices.Concat(r.Drift, r.Left) {
			texts = append(texts, d.Field, d.Got, d.Want)
		}
		for _, s := range texts {
			if !fit(s) {
				t.Errorf("told: %q", s)
			}
		}
		if b, err := json.Marshal(r); err != nil || len(b) > 16*maxBody {
			t.Errorf("the report has %d bytes, %v", len(b), err)
		}
	})
}
