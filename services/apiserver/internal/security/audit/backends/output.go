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

// errNotRead reports that the reader of the log, such as a process at the other end of a pipe, did
// not read an event in time.
var errNotRead = errors.New("the reader of the audit log does not read")

// output is the destination of lines. Its methods must not be called concurrently.
type output interface {
	// write writes p as io.Writer does. If the reader of a pipe does not read, write blocks until
	// ctx is canceled, and then returns errNotRead.
	write(ctx context.Context, p []byte) (n int, err error)
	io.Closer
}

// pipe is a log that is a named pipe or a device. It is not rotated.
type pipe struct {
	path string
	file *os.File
}

// readerPollInterval is the interval at which waitForReader tries to open the pipe.
const readerPollInterval = 10 * time.Millisecond

// write implements output. The first call opens the pipe, and waits until it has a reader. When ctx
// is canceled, a write deadline in the past interrupts the write.
func (p *pipe) write(ctx context.Context, text []byte) (written int, err error) {
	if p.file == nil {
		if p.file, err = p.waitForReader(ctx); err != nil {
			return 0, err
		}
	}
	f := p.file
	if err := f.SetWriteDeadline(time.Time{}); err != nil {
		return f.Write(text) // a device, which needs no reader
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = f.SetWriteDeadline(time.Unix(1, 0)) // f supports deadlines, as the first call showed
	})
	written, err = f.Write(text)
	if !stop() {
		<-interrupted // the deadline must not change after the next call has reset it
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errNotRead
	}
	return written, err
}

// waitForReader opens the pipe for writing, once it has a reader. Until then, opening it without
// blocking fails with ENXIO.
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
// not be set to non-blocking, because that would affect the other processes. A blocked write can
// therefore not be interrupted: if it takes too long, write returns while a goroutine is still
// writing. The next call of write waits for that goroutine.
type sharedOutput struct {
	output    io.Writer
	abandoned chan writeResult // receives the result of the write that is still in progress, or nil
}

// writeResult is the result of a write.
type writeResult struct {
	text    []byte // the text to write
	written int    // the number of bytes of text that were written
	err     error
}

// stoppedMidLine reports whether the write stopped in the middle of a line.
func (r writeResult) stoppedMidLine() bool { return r.written > 0 && r.text[r.written-1] != '\n' }

// write implements output. It first waits for the previous write, if that is still in progress. If
// the previous write failed in the middle of a line, write terminates that line first. n does not
// count this newline.
func (s *sharedOutput) write(ctx context.Context, lines []byte) (n int, err error) {
	var newline []byte
	if s.abandoned != nil {
		select {
		case result := <-s.abandoned:
			s.abandoned = nil
			if result.stoppedMidLine() {
				newline = []byte("\n")
			}
		case <-ctx.Done():
			return 0, errNotRead
		}
	}
	text := slices.Concat(newline, lines)
	done := make(chan writeResult, 1)
	go func() {
		n, err := s.output.Write(text)
		done <- writeResult{text, n, err}
	}()
	select {
	case result := <-done:
		return max(0, result.written-len(newline)), result.err
	case <-ctx.Done():
		s.abandoned = done
		return 0, errNotRead
	}
}

// Close implements io.Closer. It does nothing, because other processes use the output.
func (s *sharedOutput) Close() error { return nil }

// rotatedFile is a log file that is rotated when it is full. lumberjack puts the time in
// milliseconds into the name of a rotated file, and overwrites a file that has the same name.
// Rotations must therefore be at least a millisecond apart.
type rotatedFile struct {
	lumberjack.Logger
	maxSize int64 // maximum size of a file in bytes
	size    int64 // size of the current file in bytes, as lumberjack counts it
	opened  bool  // whether lumberjack has opened the file
	// lastRotation is the Unix time in milliseconds directly after the last rotation.
	lastRotation int64
}

// write implements output. It ignores ctx, because a file needs no reader.
func (r *rotatedFile) write(_ context.Context, p []byte) (int, error) {
	after := r.size + int64(len(p))
	// When lumberjack opens the file, it also rotates if the file would become exactly full.
	rotates := after > r.maxSize || !r.opened && after == r.maxSize
	if rotates {
		for time.Now().UnixMilli() == r.lastRotation {
			time.Sleep(time.Millisecond / 10)
		}
		r.size = 0
	}
	n, err := r.Logger.Write(p)
	r.size += int64(n)
	r.opened = true
	if rotates {
		r.lastRotation = time.Now().UnixMilli()
	}
	return n, err
}
