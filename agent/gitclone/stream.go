package gitclone

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
)

// streamLine is git-upload-pack at the other end of a pipe: over SSH, or run here for a local path. It must be started
// anew for each pack, over SSH on the same connection.
type streamLine struct {
	start func() (*process, error) // it lives as long as the conversation, whatever request it is started for
	hang  func()                   // up: ends what start left open for the next; may be nil
	now   *process
	kill  atomic.Pointer[func()]
}

// process is a git-upload-pack that runs.
type process struct {
	in     io.WriteCloser
	out    *pktReader
	stderr *tail
	kill   func() // of now, for another goroutine
	drain  func() // waits until all of stderr has come
	end    func()
}

// gitProtocol is how v2 is asked for where there are no headers.
const gitProtocolName, gitProtocolValue = "GIT_PROTOCOL", "version=2"

func (l *streamLine) stream() bool { return true }

func (l *streamLine) forget() {}

func (l *streamLine) abort() {
	if f := l.kill.Load(); f != nil {
		(*f)()
	}
}

func (l *streamLine) close() {
	l.end()
	if l.hang != nil {
		l.hang()
	}
}

func (l *streamLine) end() {
	if l.now != nil {
		l.now.end()
		l.now = nil
	}
}

func (l *streamLine) hello(context.Context) (*pktReader, error) {
	l.end()
	p, err := l.start()
	if err != nil {
		return nil, err
	}
	l.now = p
	l.kill.Store(&p.kill)
	if _, err := p.out.r.Peek(1); errors.Is(err, io.EOF) {
		p.drain()
		if said := clean(p.stderr.String()); said != "" {
			return nil, fail(ErrAuthOrNotFound, "the server says: %s", said)
		}
		return nil, io.ErrUnexpectedEOF
	}
	return p.out, nil
}

func (l *streamLine) ask(_ context.Context, request []byte) (*pktReader, error) {
	if _, err := l.now.in.Write(request); err != nil {
		return nil, err
	}
	return l.now.out, nil
}

// startLocal runs git-upload-pack on a local path.
func (r *remote) startLocal(ctx context.Context) (*process, error) {
	path := r.url.Path
	if _, err := os.Stat(path); err != nil {
		return nil, fail(ErrAuthOrNotFound, "no repository at %s: %w", path, err)
	}
	cmd := exec.CommandContext(ctx, "git", "upload-pack", path)
	cmd.Env = append(os.Environ(), gitProtocolName+"="+gitProtocolValue)
	cmd.WaitDelay = stopGrace
	p := &process{stderr: &tail{max: 1 << 10}}
	cmd.Stderr = p.stderr
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fail(ErrAuthOrNotFound, "a repository on a local path needs git itself: %w", err)
	}
	p.out = newPktReader(&counted{out, &r.link}, nil)
	p.kill = func() { _ = cmd.Process.Kill() }
	p.end = sync.OnceFunc(func() {
		_ = p.in.Close() // it ends by itself, or
		_ = out.Close()  // over what it cannot write
		_ = cmd.Wait()
	})
	p.drain = p.end
	return p, nil
}

// counted counts what comes.
type counted struct {
	r    io.Reader
	link *link
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.link.down.Add(int64(n))
	return n, err
}

// tail keeps the first bytes of what a stranger writes.
type tail struct {
	mu  sync.Mutex
	max int
	b   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[:min(len(p), t.max-len(t.b))]...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
