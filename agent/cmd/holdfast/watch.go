package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"holdfast/agent/status"
)

const (
	// watchEvery is how often a watcher looks for somebody who does not answer.
	watchEvery = time.Second
	// watchMost is how long it waits for news of those who do: one that is stopped says nothing any more, and that is news, too.
	watchMost = 5 * time.Second
	// watchLeast is the least time between two looks, whatever goes on.
	watchLeast = 200 * time.Millisecond
)

// watchStatus shows the view again whenever it differs in more than time passing; on a terminal it stays in place.
func watchStatus(ctx context.Context, w io.Writer, b *board, how how, show func(io.Writer, status.View) error, text bool) error {
	screen := screen{w: w, inPlace: text && isTerminal(w), gap: text}
	for {
		s := b.sources(ctx, how)
		v := status.Build(s)
		if ctx.Err() != nil {
			return nil
		}
		if err := screen.show(v, show); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.clock.After(watchLeast):
		}
		b.awaitNews(ctx, s)
	}
}

// screen is what a watcher has shown.
type screen struct {
	w       io.Writer
	inPlace bool   // a terminal: one view over the other
	gap     bool   // an empty line between two views
	last    string // in place the text, else the fingerprint
}

// show writes the view if it is news: in place that is another text, seconds that run along included; else only more than time passing. In
// place it is written at once and over what is there, so that nothing flickers.
func (s *screen) show(v status.View, write func(io.Writer, status.View) error) error {
	var text bytes.Buffer
	if err := write(&text, v); err != nil {
		return err
	}
	now := fingerprint(v)
	if s.inPlace {
		now = text.String()
	}
	if now == s.last {
		return nil
	}
	first := s.last == ""
	s.last = now
	out := text.String()
	switch {
	case s.inPlace: // home, each line cleared to its end, and the rest of the screen
		out = "\x1b[H" + strings.ReplaceAll(out, "\n", "\x1b[K\n") + "\x1b[J"
	case !first && s.gap:
		out = "\n" + out
	}
	_, err := io.WriteString(s.w, out)
	return err
}

// awaitNews returns when agent or guard has news since s, or it is time to look again.
func (b *board) awaitNews(ctx context.Context, s status.Sources) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan struct{}, 2)
	wait := watchMost
	if s.Guard != nil {
		go func() {
			_, _ = b.guard.State(ctx, &s.Guard.Change) // an answer or none: it is time to look
			news <- struct{}{}
		}()
	} else {
		wait = watchEvery
	}
	if s.Agent != nil {
		go func() {
			_, _ = b.agent.Status(ctx, &s.Agent.Change)
			news <- struct{}{}
		}()
	} else {
		wait = watchEvery
	}
	select {
	case <-ctx.Done():
	case <-news:
	case <-b.clock.After(wait):
	}
}

// fingerprint is what of a view does not change by time passing alone.
func fingerprint(v status.View) string {
	v.At, v.Summary, v.Details, v.NotFine = time.Time{}, "", nil, nil
	v.DeviceCycles, v.GitCycles, v.Device.SecondsAgo, v.Device.Readings = 0, 0, 0, nil
	v.Git.LastFetch, v.Git.NextInSeconds, v.Git.Running, v.Git.Times = time.Time{}, 0, false, 0
	v.Conditions = slices.Clone(v.Conditions)
	for i := range v.Conditions {
		v.Conditions[i].Message, v.Conditions[i].Since = "", time.Time{}
	}
	v.Checks = slices.Clone(v.Checks)
	for i := range v.Checks {
		v.Checks[i].SinceSeconds, v.Checks[i].Message = 0, ""
	}
	if t := v.Trial; t != nil {
		c := *t
		c.EndsInSeconds = 0
		v.Trial = &c
	}
	if d := v.Decision; d != nil {
		c := *d
		c.Reason, c.WaitSeconds = "", 0
		if a := d.Awaiting; a != nil {
			left := *a
			left.AheadInSeconds = 0
			c.Awaiting = &left
		}
		v.Decision = &c
	}
	if s := v.Suspended; s != nil {
		c := *s
		c.SecondsLeft = 0
		v.Suspended = &c
	}
	b, _ := json.Marshal(v)
	return string(b)
}
