package backends

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// lineWriter is a deliverer that writes one line per event to a log.
type lineWriter struct {
	out output

	// reportLost is called for postponed lines that could not be written.
	reportLost func(lines int, err error)

	groups writeGroups

	// alive ends flushTimeout after beginShutdown, by endWaits. It limits waits for a reader of the log.
	alive        context.Context
	endWaits     context.CancelFunc
	shutdown     sync.Once
	flushTimeout time.Duration

	// longLock serializes long lines, so that a short line waits for at most one of them. Lock order: before
	// lock.
	longLock   writeLock
	lock       writeLock // lock order: before that of groups; held during reportLost
	buf        []byte
	torn       bool // the log ends with an incomplete line
	writeAhead *writeAhead
	postponed  int         // number of lines in writeAhead
	timer      *time.Timer // writes the postponed lines if no other write does
	armed      bool
	closed     bool // no more lines may be postponed
}

func newLineWriter() *lineWriter {
	l := &lineWriter{reportLost: func(int, error) {}, writeAhead: newMemoryWriteAhead(), flushTimeout: defaultFlushTimeout}
	l.alive, l.endWaits = context.WithCancel(context.Background())
	return l
}

const (
	// maxPostpone is how long a postponed line waits for the next write.
	maxPostpone = 10 * time.Millisecond
	// minEventWait is the minimum time that an event waits for the log. maxEventWait is the maximum for a
	// request without a deadline.
	minEventWait = time.Second
	maxEventWait = time.Minute
)

// withDeadline returns the context in which an event of a request waits for a pipe or standard output, whose
// reader may be slow. It ends with the request's deadline, not with its cancellation. Writes to a file have no
// limit.
func (l *lineWriter) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case l.lock.sem == nil:
		return context.Background(), func() {}
	case l.alive.Err() != nil:
		return context.WithTimeout(context.Background(), minEventWait)
	}
	now := time.Now()
	at, ok := ctx.Deadline()
	if !ok {
		at = now.Add(maxEventWait)
	}
	if least := now.Add(minEventWait); at.Before(least) {
		at = least
	}
	return context.WithDeadline(l.alive, at)
}

// beginShutdown ends alive after flushTimeout.
func (l *lineWriter) beginShutdown() {
	l.shutdown.Do(func() { time.AfterFunc(l.flushTimeout, l.endWaits) })
}

// postpone stores a line for the next write, or for maxPostpone. It returns false if the line must be written
// now.
func (l *lineWriter) postpone(ctx context.Context, line []byte) bool {
	if l.lock.acquire(ctx) != nil {
		return false
	}
	defer l.lock.release()
	if l.closed || !l.writeAhead.add(line) {
		return false
	}
	l.postponed++
	switch {
	case l.armed:
	case l.timer == nil:
		l.timer = time.AfterFunc(maxPostpone, l.flushPostponed)
	default:
		l.timer.Reset(maxPostpone)
	}
	l.armed = true
	return true
}

// flushPostponed writes the postponed lines.
func (l *lineWriter) flushPostponed() {
	ctx, release := l.withDeadline(context.Background())
	defer release()
	if l.lock.acquire(ctx) != nil {
		l.timer.Reset(maxPostpone) // try again
		return
	}
	defer l.lock.release()
	_, _ = l.writeAll(ctx, nil)
}

// bufferPostponed puts the postponed lines into the buffer and returns their number. The caller holds lock.
func (l *lineWriter) bufferPostponed() (early int) {
	l.buf = l.buf[:0]
	if l.torn {
		l.buf = append(l.buf, '\n')
	}
	l.buf = append(l.buf, l.writeAhead.waiting()...)
	early, l.postponed = l.postponed, 0
	return early
}

// deliver writes events after the postponed lines. Concurrent calls share one write.
func (l *lineWriter) deliver(ctx context.Context, events [][]byte) (lost int, err error) {
	if len(events) != 1 {
		if err := l.lock.acquire(ctx); err != nil {
			return len(events), err
		}
		defer l.lock.release()
		return l.writeAll(ctx, events)
	}
	if len(events[0]) >= maxPooled {
		return l.deliverLong(ctx, events)
	}
	r, at, first := l.groups.join(events[0])
	switch {
	case l.lock.sem != nil:
		if first {
			go l.writeGroup(l.groups.contextFor(r), r)
		}
		select {
		case <-r.done:
			return r.result(at)
		case <-ctx.Done():
			l.groups.leave(r)
			return 1, errNotRead
		}
	case first:
		runtime.Gosched() // lets requests that end now join the group
		return l.writeGroup(ctx, r)
	}
	<-r.done
	return r.result(at)
}

// deliverLong is deliver for one long line.
func (l *lineWriter) deliverLong(ctx context.Context, line [][]byte) (lost int, err error) {
	if err := l.longLock.acquire(ctx); err != nil {
		return len(line), err
	}
	defer l.longLock.release()
	if err := l.lock.acquire(ctx); err != nil {
		return len(line), err
	}
	defer l.lock.release()
	return l.writeAll(ctx, line)
}

// writeGroup writes a group of lines and returns the result of the first.
func (l *lineWriter) writeGroup(ctx context.Context, r *writeGroup) (lost int, err error) {
	err = l.lock.acquire(ctx)
	waiting := l.groups.start(r)
	if err != nil {
		return l.groups.finish(r, waiting, len(r.lines), err)
	}
	lost, err = l.writeAll(ctx, r.lines)
	l.lock.release()
	return l.groups.finish(r, waiting, lost, err)
}

// writeAll writes the postponed lines and events. The caller holds lock.
func (l *lineWriter) writeAll(ctx context.Context, events [][]byte) (lost int, err error) {
	if len(events) == 0 { // called by the timer
		l.armed = false
	}
	for i := 0; (i < len(events) || l.postponed > 0) && err == nil; {
		from, early := i, l.bufferPostponed()
		own := l.buf
		long := early == 0 && !l.torn && len(events[i]) >= maxPooled
		if long { // a long line is not copied
			l.buf = append(events[i], '\n')
			i++
		}
		for ; i < len(events) && (i == from && early == 0 || len(l.buf)+len(events[i]) < maxPooled); i++ {
			l.buf = append(append(l.buf, events[i]...), '\n')
		}
		var whole int
		whole, err = l.write(ctx)
		if l.writeAhead.clear(); long {
			l.buf = own
		}
		if err != nil {
			if n := early - min(whole, early); n > 0 {
				l.reportLost(n, err)
			}
			lost = len(events) - from - min(max(whole-early, 0), i-from)
		}
	}
	if cap(l.buf) > 2*maxWriteAhead {
		l.buf = nil
	}
	return lost, err
}

// write writes the buffer and returns the number of complete lines.
func (l *lineWriter) write(ctx context.Context) (whole int, err error) {
	n, err := l.out.write(ctx, l.buf)
	wrote := l.buf[:n]
	if n > 0 {
		whole = bytes.Count(wrote, []byte("\n"))
		if l.torn {
			whole-- // the newline that ends a torn line
		}
		l.torn = wrote[n-1] != '\n'
	}
	return whole, err
}

// close writes the postponed lines and closes the log. A write to a pipe takes at most flushTimeout.
func (l *lineWriter) close() error {
	l.beginShutdown()
	ctx, release := l.withDeadline(context.Background())
	defer release()
	if err := l.lock.acquire(ctx); err != nil {
		return err // a write is still in progress
	}
	defer l.lock.release()
	if l.closed = true; l.timer != nil {
		l.timer.Stop()
	}
	_, err := l.writeAll(ctx, nil)
	if l.writeAhead.close != nil {
		err = errors.Join(err, l.writeAhead.close())
	}
	return errors.Join(err, l.out.Close())
}
