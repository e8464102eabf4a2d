package encryption

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/libs/filewatch"
)

const (
	// grace is how long a Set lives on that was replaced: for who began with it.
	grace = 10 * time.Second
	// wellWithin is how long the plugins of a new configuration have to be well, mostly.
	wellWithin = 10 * time.Second
)

// Live has the current Set.
type Live struct {
	file    string
	data    []byte
	builder *Builder
	log     *slog.Logger
	current atomic.Pointer[Set]
	// awaited is the content whose plugins are not well yet; of Run alone.
	awaited []byte
	// following is set while Run follows the file.
	following atomic.Bool

	mu      sync.Mutex // a leaf
	old     map[*Set]*time.Timer
	closing bool
	// reopened is told that what can be read may have changed.
	reopened []chan<- struct{}
}

// Plain seals nothing, and opens nothing that is sealed.
func Plain() *Live { return &Live{} }

// Open reads a configuration file and puts it to work. reload tells that Run is to
// follow it.
func Open(ctx context.Context, file string, reload bool, b *Builder) (*Live, error) {
	c, data, err := Read(file, reload)
	if err != nil {
		return nil, err
	}
	l := &Live{file: file, data: data, builder: b, log: b.Logger, old: map[*Set]*time.Timer{}}
	s, err := b.Build(ctx, c, l.reopen)
	if err != nil {
		return nil, err
	}
	l.current.Store(s)
	return l, nil
}

// Current is the Set; nil when nothing is sealed.
func (l *Live) Current() *Set { return l.current.Load() }

// Following reports whether Run follows the file.
func (l *Live) Following() bool { return l.following.Load() }

// Run follows the file until ctx ends.
func (l *Live) Run(ctx context.Context) error {
	l.following.Store(true)
	defer l.following.Store(false)
	_ = filewatch.FollowUntilTaken(ctx, l.log, l.file, l.data, l.changed) // the context's
	return nil
}

// changed takes a new content of the file. One whose plugins are not well is tried again,
// which is told of once.
func (l *Live) changed(ctx context.Context, data []byte, err error) (done bool) {
	again := err == nil && l.awaited != nil && bytes.Equal(data, l.awaited)
	if err != nil {
		err = unread(l.file, err)
	} else {
		err = l.take(ctx, data)
	}
	if ctx.Err() != nil {
		return true
	}
	l.awaited = nil
	if errors.As(err, new(*notWellError)) {
		l.awaited = data
		if again {
			return false
		}
	}
	l.builder.Metrics.reloaded(l.builder.ServerID, err)
	if err != nil {
		l.log.Error("the configuration of encryption cannot be used; the one before stays", "file", l.file, "tried again", l.awaited != nil, "error", fmt.Errorf("error processing encryption config file %s: %w", l.file, err))
		return l.awaited == nil
	}
	l.log.Info("the configuration of encryption was taken up", "file", l.file)
	return true
}

// take puts a configuration in the place of the current one.
func (l *Live) take(ctx context.Context, data []byte) error {
	c, err := Parse(l.file, data, true)
	if err != nil {
		return err
	}
	next, err := l.builder.Build(ctx, c, l.reopen)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, cmp.Or(l.builder.WellWithin, wellWithin))
	defer cancel()
	if err := next.well(within); err != nil {
		next.Close()
		return err
	}
	if !l.swap(next) {
		next.Close()
		return errClosed
	}
	l.reopen()
	return nil
}

// errClosed tells that a configuration came when nothing is sealed any more.
var errClosed = errors.New("encryption has ended")

// swap puts a Set in the place of the current one, which is closed after its grace; false
// once all were closed, as nobody would close this one.
func (l *Live) swap(next *Set) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	s := l.current.Swap(next)
	l.old[s] = time.AfterFunc(grace, func() {
		l.mu.Lock()
		_, mine := l.old[s]
		delete(l.old, s)
		l.mu.Unlock()
		if mine {
			s.Close()
		}
	})
	return true
}

// reopen tells who keeps what was opened.
func (l *Live) reopen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ch := range l.reopened {
		select {
		case ch <- struct{}{}:
		default: // it is due already
		}
	}
}

// follow returns what is told of each such change.
func (l *Live) follow() <-chan struct{} {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reopened = append(l.reopened, ch)
	return ch
}

// CheckAll tells what is wrong with the plugins of the current Set.
func (l *Live) CheckAll(r *http.Request) error { return l.Current().checkAll(r) }

// Close ends all Sets.
func (l *Live) Close() {
	l.mu.Lock()
	l.closing = true
	old := l.old
	l.old = map[*Set]*time.Timer{}
	l.mu.Unlock()
	for s, timer := range old {
		timer.Stop()
		s.Close()
	}
	if s := l.Current(); s != nil {
		s.Close()
	}
}
