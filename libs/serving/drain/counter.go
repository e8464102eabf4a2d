package drain

import (
	"sync"
	"time"
)

// Class is a class of requests. A drain waits for short requests and ends long ones.
type Class int

// The classes.
const (
	Short Class = iota
	Long
)

// Counter counts the requests in flight, and rejects new ones once it is closed.
type Counter struct {
	mu       sync.Mutex // leaf lock
	closed   bool
	inFlight [2]int           // by class
	drained  [2]chan struct{} // closed when the counter is closed and the count of the class is 0
}

// NewCounter returns an open counter.
func NewCounter() *Counter {
	return &Counter{drained: [2]chan struct{}{make(chan struct{}), make(chan struct{})}}
}

// Enter counts a request. It returns false if the counter is closed.
func (c *Counter) Enter(class Class) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.inFlight[class]++
	return true
}

// Leave ends a request.
func (c *Counter) Leave(class Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight[class]--
	if c.closed && c.inFlight[class] == 0 {
		close(c.drained[class])
	}
}

// Close rejects all later requests.
func (c *Counter) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	for class, n := range c.inFlight {
		if n == 0 {
			close(c.drained[class])
		}
	}
}

// Wait blocks until no request of a class is in flight, or timeout has passed. It returns the number
// of requests in flight. The counter must be closed.
func (c *Counter) Wait(class Class, timeout time.Duration) int {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-c.drained[class]:
		return 0
	case <-timer.C:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.inFlight[class]
	}
}

// IsDrained reports whether no request is in flight. The counter must be closed.
func (c *Counter) IsDrained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight == [2]int{}
}
