package watchcache_test

import (
	"sync"
	"testing"
	"time"
)

// subTest is a test whose cleanups run before the test ends.
type subTest struct {
	*testing.T
	cleanups []func()
}

func (s *subTest) Cleanup(f func()) { s.after(f) }

func (s *subTest) after(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *subTest) cleanup() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// clock is a manual clock.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// lazyChan is a channel that can be closed more than once. Its zero value is open.
type lazyChan struct {
	mu     sync.Mutex
	ch     chan struct{}
	closed bool
}

func (l *lazyChan) get() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ch == nil {
		l.ch = make(chan struct{})
	}
	return l.ch
}

func (l *lazyChan) close() {
	l.get()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.ch)
	}
}
