package backends

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// lines implements deliverer.
type lines struct {
	to outlet

	// lost is told of early lines that could not be written.
	lost func(lines int, err error)

	rounds rounds

	// life ends when what waits to be written at the end of the server is given up, by die,
	// which is so long after ends.
	life   context.Context
	die    context.CancelFunc
	ending sync.Once
	flush  time.Duration

	// long is held, before lock, by who writes a long line: no two of them are ahead of a
	// short one.
	long    lock
	lock    lock // before that of rounds; lost is called under it
	buf     []byte
	torn    bool // what was written last is not a whole line
	pending *pending
	kept    int         // lines of pending
	timer   *time.Timer // that writes them, if nothing else does
	armed   bool
	over    bool // nobody waits for the timer any more
}

func newLines() *lines {
	l := &lines{lost: func(int, error) {}, pending: inMemory(), flush: flushTime}
	l.life, l.die = context.WithCancel(context.Background())
	return l
}

const (
	// earlyTime is how long what nobody waits for may wait for the next write.
	earlyTime = 10 * time.Millisecond
	// leastTime is how long an event may wait whose request has no time left, and mostTime one
	// whose request may last.
	leastTime = time.Second
	mostTime  = time.Minute
)

// bound is how long an event of a request waits for a log that somebody has to read: as long
// as the request may take, whether or not its client is there still. A file is waited for.
func (l *lines) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case l.lock.place == nil:
		return context.Background(), func() {}
	case l.life.Err() != nil:
		return context.WithTimeout(context.Background(), leastTime)
	}
	now := time.Now()
	at, ok := ctx.Deadline()
	if !ok {
		at = now.Add(mostTime)
	}
	if least := now.Add(leastTime); at.Before(least) {
		at = least
	}
	return context.WithDeadline(l.life, at)
}

// ends has what waits given up after flush.
func (l *lines) ends() { l.ending.Do(func() { time.AfterFunc(l.flush, l.die) }) }

// keep has a line written with the next one, or soon; false when it has to be written now.
func (l *lines) keep(ctx context.Context, line []byte) bool {
	if l.lock.take(ctx) != nil {
		return false
	}
	defer l.lock.give()
	if l.over || !l.pending.add(line) {
		return false
	}
	l.kept++
	switch {
	case l.armed:
	case l.timer == nil:
		l.timer = time.AfterFunc(earlyTime, l.late)
	default:
		l.timer.Reset(earlyTime)
	}
	l.armed = true
	return true
}

// late writes what came early and nothing else came behind.
func (l *lines) late() {
	ctx, release := l.bound(context.Background())
	defer release()
	if l.lock.take(ctx) != nil {
		l.timer.Reset(earlyTime) // what came early waits still
		return
	}
	defer l.lock.give()
	_, _ = l.all(ctx, nil)
}

// begin puts what came early into the buffer. The caller holds the lock.
func (l *lines) begin() (early int) {
	l.buf = l.buf[:0]
	if l.torn {
		l.buf = append(l.buf, '\n')
	}
	l.buf = append(l.buf, l.pending.lines()...)
	early, l.kept = l.kept, 0
	return early
}

// deliver writes lines, many at once, after those that came early.
func (l *lines) deliver(ctx context.Context, events [][]byte) (lost int, err error) {
	if len(events) != 1 {
		if err := l.lock.take(ctx); err != nil {
			return len(events), err
		}
		defer l.lock.give()
		return l.all(ctx, events)
	}
	if len(events[0]) >= maxPooled {
		return l.alone(ctx, events)
	}
	r, at, first := l.rounds.join(events[0])
	switch {
	case l.lock.place != nil:
		if first {
			go l.round(l.rounds.while(r), r)
		}
		select {
		case <-r.done:
			return r.of(at)
		case <-ctx.Done():
			l.rounds.leave(r)
			return 1, errNotTaken
		}
	case first:
		runtime.Gosched() // others that end just now come along
		return l.round(ctx, r)
	}
	<-r.done
	return r.of(at)
}

// alone is deliver for a long line.
func (l *lines) alone(ctx context.Context, line [][]byte) (lost int, err error) {
	if err := l.long.take(ctx); err != nil {
		return len(line), err
	}
	defer l.long.give()
	if err := l.lock.take(ctx); err != nil {
		return len(line), err
	}
	defer l.lock.give()
	return l.all(ctx, line)
}

// round writes what has come together meanwhile. It returns what became of the first line.
func (l *lines) round(ctx context.Context, r *round) (lost int, err error) {
	err = l.lock.take(ctx)
	waiting := l.rounds.begin(r)
	if err != nil {
		return l.rounds.end(r, waiting, len(r.lines), err)
	}
	lost, err = l.all(ctx, r.lines)
	l.lock.give()
	return l.rounds.end(r, waiting, lost, err)
}

// all is deliver for who holds the lock.
func (l *lines) all(ctx context.Context, events [][]byte) (lost int, err error) {
	if len(events) == 0 { // the timer
		l.armed = false
	}
	for i := 0; (i < len(events) || l.kept > 0) && err == nil; {
		from, early := i, l.begin()
		own := l.buf
		long := early == 0 && !l.torn && len(events[i]) >= maxPooled
		if long { // it is not copied
			l.buf = append(events[i], '\n')
			i++
		}
		for ; i < len(events) && (i == from && early == 0 || len(l.buf)+len(events[i]) < maxPooled); i++ {
			l.buf = append(append(l.buf, events[i]...), '\n')
		}
		var whole int
		whole, err = l.write(ctx)
		if l.pending.written(); long {
			l.buf = own
		}
		if err != nil {
			if n := early - min(whole, early); n > 0 {
				l.lost(n, err)
			}
			lost = len(events) - from - min(max(whole-early, 0), i-from)
		}
	}
	if cap(l.buf) > 2*maxPending {
		l.buf = nil
	}
	return lost, err
}

// write writes what has been gathered, and tells how many lines of it are whole.
func (l *lines) write(ctx context.Context) (whole int, err error) {
	n, err := l.to.write(ctx, l.buf)
	wrote := l.buf[:n]
	if n > 0 {
		whole = bytes.Count(wrote, []byte("\n"))
		if l.torn {
			whole-- // the one that ends what was torn
		}
		l.torn = wrote[n-1] != '\n'
	}
	return whole, err
}

// close writes what waits, which takes no longer than flush where somebody has to read.
func (l *lines) close() error {
	l.ends()
	ctx, release := l.bound(context.Background())
	defer release()
	if err := l.lock.take(ctx); err != nil {
		return err // somebody writes still
	}
	defer l.lock.give()
	if l.over = true; l.timer != nil {
		l.timer.Stop()
	}
	_, err := l.all(ctx, nil)
	if l.pending.close != nil {
		err = errors.Join(err, l.pending.close())
	}
	return errors.Join(err, l.to.Close())
}
