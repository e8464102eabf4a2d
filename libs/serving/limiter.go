package serving

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// LongAnswers limits how many large responses are encoded and encrypted at a time.
type LongAnswers struct{ limiter *fairLimiter }

// Enter waits for a permit, which Leave releases. Permits are shared fairly by the address of the
// request's connection in ctx. It fails when ctx ends.
func (a LongAnswers) Enter(ctx context.Context) error {
	var from netip.Addr
	if c, ok := ctx.Value(connKey{}).(*limitedConn); ok {
		from = c.from
	}
	return a.limiter.acquire(ctx, from)
}

// Leave releases a permit.
func (a LongAnswers) Leave() { a.limiter.release() }

// LargeRequests limits how many large requests are read and processed at a time. The zero value has
// no limit.
type LargeRequests struct{ limiter *fairLimiter }

// NewLargeRequests returns a limit of n permits.
func NewLargeRequests(n int) LargeRequests { return LargeRequests{newFairLimiter(n)} }

// Enter waits for a permit, which Leave releases. Permits are shared fairly by the address of the
// request. It fails when the request ends.
func (l LargeRequests) Enter(r *http.Request) error {
	if l.limiter == nil {
		return nil
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // a zero address if it cannot be parsed
	return l.limiter.acquire(r.Context(), Network(from.Addr()))
}

// EnterFirst is like Enter, but takes precedence over all other waiters. It is meant for requests
// that hold something that other requests wait for.
func (l LargeRequests) EnterFirst(r *http.Request) error {
	if l.limiter == nil {
		return nil
	}
	return l.limiter.acquireFirst(r.Context())
}

// EnterNow takes a permit if one is free. It reports whether it did.
func (l LargeRequests) EnterNow() bool { return l.limiter == nil || l.limiter.tryAcquire() }

// Leave releases a permit.
func (l LargeRequests) Leave() {
	if l.limiter != nil {
		l.limiter.release()
	}
}

// fairLimiter is a concurrency limit. Waiters are served round-robin by address, so that many
// requests of one address mostly wait for each other.
type fairLimiter struct {
	mu       sync.Mutex // a leaf
	free     int
	waiting  map[netip.Addr][]chan struct{} // no queue is empty
	order    []netip.Addr                   // the keys of waiting in the order of service
	priority []chan struct{}                // waiters that precede all others
}

func newFairLimiter(n int) *fairLimiter {
	return &fairLimiter{free: n, waiting: map[netip.Addr][]chan struct{}{}}
}

// acquire waits for a permit, which release returns.
func (t *fairLimiter) acquire(ctx context.Context, from netip.Addr) error {
	permit := make(chan struct{})
	t.mu.Lock()
	if t.free > 0 { // so the queues are empty
		t.free--
		t.mu.Unlock()
		return nil
	}
	if len(t.waiting[from]) == 0 {
		t.order = append(t.order, from)
	}
	t.waiting[from] = append(t.waiting[from], permit)
	t.mu.Unlock()
	return t.wait(ctx, permit, func() bool {
		i := slices.Index(t.waiting[from], permit)
		if i >= 0 {
			t.setQueue(from, slices.Delete(t.waiting[from], i, i+1))
		}
		return i >= 0
	})
}

// acquireFirst is acquire with precedence over all waiters of acquire.
func (t *fairLimiter) acquireFirst(ctx context.Context) error {
	permit := make(chan struct{})
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	t.priority = append(t.priority, permit)
	t.mu.Unlock()
	return t.wait(ctx, permit, func() bool {
		i := slices.Index(t.priority, permit)
		if i >= 0 {
			t.priority = slices.Delete(t.priority, i, i+1)
		}
		return i >= 0
	})
}

// wait waits until permit is closed or ctx ends. cancel removes the waiter from its queue, and
// returns false if the permit was already granted. It is called under mu.
func (t *fairLimiter) wait(ctx context.Context, permit chan struct{}, cancel func() bool) error {
	select {
	case <-permit:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	canceled := cancel()
	t.mu.Unlock()
	if !canceled {
		t.release()
	}
	return ctx.Err()
}

// tryAcquire takes a permit if one is free.
func (t *fairLimiter) tryAcquire() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free == 0 {
		return false
	}
	t.free--
	return true
}

// setQueue replaces the queue of an address in order.
func (t *fairLimiter) setQueue(from netip.Addr, queue []chan struct{}) {
	if len(queue) > 0 {
		t.waiting[from] = queue
		return
	}
	delete(t.waiting, from)
	i := slices.Index(t.order, from)
	t.order = slices.Delete(t.order, i, i+1)
}

// release passes the permit to the next waiter: a priority waiter, or one of the next address.
func (t *fairLimiter) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.priority) > 0 {
		close(t.priority[0])
		t.priority = slices.Delete(t.priority, 0, 1)
		return
	}
	if len(t.order) == 0 {
		t.free++
		return
	}
	from := t.order[0]
	copy(t.order, t.order[1:])
	t.order[len(t.order)-1] = from
	queue := t.waiting[from]
	close(queue[0])
	t.setQueue(from, queue[1:])
}
