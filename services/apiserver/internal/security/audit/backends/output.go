package backends

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
)

// errNotRead reports that the reader of the log did not read an event in time.
var errNotRead = errors.New("the reader of the audit log does not read")

// output is the destination of lines. Its methods must not be called concurrently.
type output interface {
	// write writes p as io.Writer does. If the reader of a pipe does not read, write blocks until
	// ctx ends and returns errNotRead.
	write(ctx context.Context, p []byte) (n int, err error)
	io.Closer
}

// pipe is a log that is a named pipe or a device. It is not rotated.
type pipe struct {
	path string
	file *os.File
}

// readerPollInterval is the interval at which open checks for a reader.
const readerPollInterval = 10 * time.Millisecond

// write implements output. The first call opens the pipe, which waits for a reader.
func (p *pipe) write(ctx context.Context, text []byte) (n int, err error) {
	if p.file == nil {
		if p.file, err = p.waitForReader(ctx); err != nil {
			return 0, err
		}
	}
	f := p.file
	if err := f.SetWriteDeadline(time.Time{}); err != nil {
		return f.Write(text) // a device, which needs no reader
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = f.SetWriteDeadline(time.Unix(1, 0)) // f supports deadlines, as the first call showed
	})
	n, err = f.Write(text)
	if !stop() {
		<-ended
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errNotRead
	}
	return n, err
}

// waitForReader waits until the pipe has a reader.
func (p *pipe) waitForReader(ctx context.Context) (*os.File, error) {
	for {
		f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
		if !errors.Is(err, syscall.ENXIO) {
			return f, err
		}
		timer := time.NewTimer(readerPollInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, errNotRead
		}
	}
}

// Close implements io.Closer.
func (p *pipe) Close() error {
	f := p.file
	p.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// sharedOutput is an output that other processes also write to, such as standard output. It must
// therefore not be set to non-blocking. A write that takes too long is abandoned but continues, and
// the next write waits for it.
type sharedOutput struct {
	out       io.Writer
	abandoned chan writeResult // result of the abandoned write; nil if there is none
}

// writeResult is the result of a write.
type writeResult struct {
	text []byte
	n    int
	err  error
}

// write implements output. It first waits for an abandoned write, and ends a line that this write
// left incomplete.
func (s *sharedOutput) write(ctx context.Context, lines []byte) (n int, err error) {
	torn := 0
	if s.abandoned != nil {
		select {
		case result := <-s.abandoned:
			s.abandoned = nil
			if result.n > 0 && result.text[result.n-1] != '\n' {
				torn = 1
			}
		case <-ctx.Done():
			return 0, errNotRead
		}
	}
	text := slices.Concat([]byte("\n")[:torn], lines)
	done := make(chan writeResult, 1)
	go func() {
		n, err := s.out.Write(text)
		done <- writeResult{text, n, err}
	}()
	select {
	case result := <-done:
		return max(0, result.n-torn), result.err
	case <-ctx.Done():
		s.abandoned = done
		return 0, errNotRead
	}
}

// Close implements io.Closer. It does nothing, because other processes use the output.
func (s *sharedOutput) Close() error { return nil }

// rotatedFile is a log file that is rotated when it is full. lumberjack names a rotated file by the
// millisecond and overwrites an older one of the same name, so rotations must be a millisecond
// apart.
type rotatedFile struct {
	lumberjack.Logger
	maxSize int64 // maximum size of a file in bytes
	size    int64 // size of the current file in bytes, as lumberjack counts it
	opened  bool  // lumberjack has opened the file
	// lastRotation is the Unix time in milliseconds directly after the last rotation.
	lastRotation int64
}

// write implements output. It ignores ctx, because a file needs no reader.
func (r *rotatedFile) write(_ context.Context, p []byte) (int, error) {
	after := r.size + int64(len(p))
	full := after > r.maxSize || !r.opened && after == r.maxSize // lumberjack rotates one byte earlier when it opens the file
	if full {
		for time.Now().UnixMilli() == r.lastRotation {
			time.Sleep(time.Millisecond / 10)
		}
		r.size = 0
	}
	n, err := r.Logger.Write(p)
	r.size += int64(n)
	r.opened = true
	if full {
		r.lastRotation = time.Now().UnixMilli()
	}
	return n, err
}
