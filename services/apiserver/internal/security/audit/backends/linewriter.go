package backends

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// lineWriter is a deliverer that writes one line per event to a log.
type lineWriter struct {
	output output
	// hasReader reports whether the output is a pipe or standard output, whose reader may be slow.
	hasReader bool

	// waitCtx limits waits for a reader of the log. endWaits cancels it, flushTimeout after
	// beginShutdown.
	waitCtx      context.Context
	endWaits     context.CancelFunc
	shutdown     sync.Once
	flushTimeout time.Duration

	lock       chan struct{} // of capacity 1; guards the following fields
	buffer     []byte
	incomplete bool // the log ends with an incomplete line
}

func newLineWriter() *lineWriter {
	l := &lineWriter{lock: make(chan struct{}, 1), flushTimeout: defaultFlushTimeout}
	l.waitCtx, l.endWaits = context.WithCancel(context.Background())
	return l
}

const (
	// minEventWait is the minimum time that an event waits for the log. maxEventWait is the maximum
	// for a request without a deadline.
	minEventWait = time.Second
	maxEventWait = time.Minute
)

// withDeadline returns the context in which an event of a request waits for a reader. It ends with
// the request's deadline, not with its cancellation. Writes to a file have no limit.
func (l *lineWriter) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case !l.hasReader:
		return context.Background(), func() {}
	case l.waitCtx.Err() != nil:
		return context.WithTimeout(context.Background(), minEventWait)
	}
	now := time.Now()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = now.Add(maxEventWait)
	}
	if earliest := now.Add(minEventWait); deadline.Before(earliest) {
		deadline = earliest
	}
	return context.WithDeadline(l.waitCtx, deadline)
}

// beginShutdown cancels waitCtx after flushTimeout.
func (l *lineWriter) beginShutdown() {
	l.shutdown.Do(func() { time.AfterFunc(l.flushTimeout, l.endWaits) })
}

// acquireLock waits for the lock, at most until ctx ends.
func (l *lineWriter) acquireLock(ctx context.Context) error {
	select {
	case l.lock <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errNotRead
	}
}

func (l *lineWriter) releaseLock() { <-l.lock }

// deliver writes the lines of events, several of them with one write.
func (l *lineWriter) deliver(ctx context.Context, events [][]byte) (lost int, err error) {
	if err := l.acquireLock(ctx); err != nil {
		return len(events), err
	}
	defer l.releaseLock()
	for i := 0; i < len(events); {
		from := i
		l.buffer = l.buffer[:0]
		if l.incomplete {
			l.buffer = append(l.buffer, '\n')
		}
		for ; i < len(events) && (i == from || len(l.buffer)+len(events[i]) < maxPooledBuffer); i++ {
			l.buffer = append(append(l.buffer, events[i]...), '\n')
		}
		if written, err := l.write(ctx); err != nil {
			return len(events) - from - written, err
		}
	}
	if cap(l.buffer) > 2*maxPooledBuffer {
		l.buffer = nil
	}
	return 0, nil
}

// write writes the buffer and returns the number of complete lines. The caller holds the lock.
func (l *lineWriter) write(ctx context.Context) (complete int, err error) {
	n, err := l.output.write(ctx, l.buffer)
	if n > 0 {
		complete = bytes.Count(l.buffer[:n], []byte("\n"))
		if l.incomplete {
			complete-- // the newline that ends a torn line
		}
		l.incomplete = l.buffer[n-1] != '\n'
	}
	return complete, err
}

// close closes the log. It waits at most flushTimeout for a write to a pipe.
func (l *lineWriter) close() error {
	l.beginShutdown()
	ctx, release := l.withDeadline(context.Background())
	defer release()
	if err := l.acquireLock(ctx); err != nil {
		return err // a write is still in progress
	}
	defer l.releaseLock()
	return l.output.Close()
}
