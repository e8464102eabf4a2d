package backends

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"time"
)

// errNotTaken is why an event is lost that whoever reads the log does not take in time.
var errNotTaken = errors.New("the audit log is not read, and takes nothing more")

// outlet is where lines are written to. Its calls must not overlap.
type outlet interface {
	// write is io.Writer's, but for ends: a log that somebody has to read, and does not,
	// takes nothing more until ctx ends.
	write(ctx context.Context, p []byte) (n int, err error)
	io.Closer
}

// pipe is a log that somebody reads, or a device. It is not rotated.
type pipe struct {
	path string
	file *os.File
}

// readerTime is how often it is looked whether somebody has come who reads.
const readerTime = 10 * time.Millisecond

func (p *pipe) write(ctx context.Context, b []byte) (n int, err error) {
	if p.file == nil {
		if p.file, err = p.open(ctx); err != nil {
			return 0, err
		}
	}
	f := p.file
	if err := f.SetWriteDeadline(time.Time{}); err != nil {
		return f.Write(b) // a device, that does not wait for anybody
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = f.SetWriteDeadline(time.Unix(1, 0)) // which can be set
	})
	n, err = f.Write(b)
	if !stop() {
		<-ended
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errNotTaken
	}
	return n, err
}

// open waits until somebody reads.
func (p *pipe) open(ctx context.Context) (*os.File, error) {
	for {
		f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
		if !errors.Is(err, syscall.ENXIO) {
			return f, err
		}
		timer := time.NewTimer(readerTime)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, errNotTaken
		}
	}
}

// Close implements io.Closer.
func (p *pipe) Close() error {
	f := p.file
	if p.file = nil; f == nil {
		return nil
	}
	return f.Close()
}

// shared is what others write to as well, such as standard output, so that it cannot be asked
// not to wait. A write that takes too long is left behind, and the next one comes after it.
type shared struct {
	to   io.Writer
	late chan written // of the write that was left behind, nil for none
}

// written is what became of a write.
type written struct {
	text []byte
	n    int
	err  error
}

func (s *shared) write(ctx context.Context, b []byte) (n int, err error) {
	torn := 0
	if s.late != nil {
		select {
		case w := <-s.late:
			if s.late = nil; w.n > 0 && w.text[w.n-1] != '\n' {
				torn = 1
			}
		case <-ctx.Done():
			return 0, errNotTaken
		}
	}
	text := slices.Concat([]byte("\n")[:torn], b)
	done := make(chan written, 1)
	go func() {
		n, err := s.to.Write(text)
		done <- written{text, n, err}
	}()
	select {
	case w := <-done:
		return max(0, w.n-torn), w.err
	case <-ctx.Done():
		s.late = done
		return 0, errNotTaken
	}
}

// Close implements io.Closer: it is others' as well.
func (s *shared) Close() error { return nil }
