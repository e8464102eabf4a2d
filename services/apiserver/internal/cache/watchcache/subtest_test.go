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

// Cleanup registers f to be called by cleanup.
func (s *subTest) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// cleanup calls the registered functions, the last one first.
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

// Now returns the time of the clock.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// advance moves the clock forward.
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// lazyChan is a channel that can be closed more than once. Its zero value is open.
type lazyChan struct {
	mu      sync.Mutex
	channel chan struct{}
	closed  bool
}

// get returns the channel.
func (l *lazyChan) get() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.channel == nil {
		l.channel = make(chan struct{})
	}
	return l.channel
}

// close closes the channel unless it is closed.
func (l *lazyChan) close() {
	l.get()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.channel)
	}
}
