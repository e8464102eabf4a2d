package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"binnacle/libs/node"
)

// byteBudget is a budget of bytes with a fair queue. Each principal may hold as many bytes as are free.
// A request that finds none waits behind other requests of its principal.
type byteBudget struct {
	fair *fairBudget

	mu      sync.Mutex // lock order: before that of fair
	waiting map[string][]*byteWaiter
	order   []string // the keys of waiting, the next one first
	// prioritized is a waiter that has been bypassed maxBypass times. Only nodes and the suite's services
	// are admitted before it.
	prioritized *byteWaiter
	// arriving lists the bodies that are being received, the oldest first.
	arriving []*reservedBody
}

type byteWaiter struct {
	user     client
	size     int
	held     bool
	admitted chan struct{}
	bypassed int // how often it did not fit when bytes were released
}

// maxBypass is how many times other requests may overtake one that waits for bytes.
const maxBypass = 16

func newByteBudget(size int) *byteBudget {
	return &byteBudget{fair: newFairBudget(size), waiting: map[string][]*byteWaiter{}}
}

// maxShare returns the number of bytes that one principal may hold while no other holds any.
func (b *byteBudget) maxShare() int { return (b.fair.size - b.fair.reserved) / 2 }

// tryAcquire is acquire without a wait.
func (b *byteBudget) tryAcquire(u client, size int) (leave func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting[u.principal]) > 0 || b.blocked(u) {
		return nil, false
	}
	held, ok := b.fair.tryAcquire(u, size)
	return b.releaser(u, size, held), ok
}

// acquire waits for bytes for at most maxBodyWait. release returns the bytes to the budget.
func (b *byteBudget) acquire(ctx context.Context, u client, size int) (leave func(), ok bool) {
	return b.acquireEvicting(ctx, u, size, nil)
}

// acquireEvicting is acquire that calls evict, if set, at once and every evictInterval while it waits.
func (b *byteBudget) acquireEvicting(ctx context.Context, u client, size int, evict func()) (leave func(), ok bool) {
	b.mu.Lock()
	queue := b.waiting[u.principal]
	if len(queue) == 0 {
		if !b.blocked(u) {
			if held, ok := b.fair.tryAcquire(u, size); ok {
				b.mu.Unlock()
				return b.releaser(u, size, held), true
			}
		}
		b.order = append(b.order, u.principal)
	}
	if len(queue) >= maxWaiters {
		b.mu.Unlock()
		return nil, false
	}
	w := &byteWaiter{user: u, size: size, admitted: make(chan struct{})}
	b.waiting[u.principal] = append(queue, w)
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, maxBodyWait(ctx))
	defer cancel()
	var tick <-chan time.Time
	if evict != nil {
		ticker := time.NewTicker(evictInterval)
		defer ticker.Stop()
		tick = ticker.C
		evict()
	}
	for {
		select {
		case <-tick:
			evict()
			continue
		case <-w.admitted:
		case <-ctx.Done():
			if b.cancel(w) {
				return nil, false
			}
		}
		return b.releaser(u, size, w.held), true
	}
}

// releaser returns a function that releases acquired bytes, if the request holds any.
func (b *byteBudget) releaser(u client, size int, held bool) func() {
	return func() {
		if held {
			b.release(u, size)
		}
	}
}

// release returns bytes and admits waiting requests.
func (b *byteBudget) release(u client, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fair.release(u, size)
	b.admit()
}

// blocked reports whether a client must wait behind the prioritized waiter. The caller holds mu.
func (b *byteBudget) blocked(u client) bool {
	return b.prioritized != nil && !isSuiteService(u.User) && !u.InGroup(node.Group)
}

// admit admits the waiters that fit now, one principal after the other. A waiter that was bypassed too
// often becomes the prioritized one, unless it waits for bytes of its own principal. The caller
// holds mu.
func (b *byteBudget) admit() {
	for refused := 0; refused < len(b.order); {
		name := b.order[0]
		b.order = append(b.order[1:], name)
		w := b.waiting[name][0]
		if w != b.prioritized && b.blocked(w.user) {
			refused++
			continue
		}
		held, ok := b.fair.tryAcquire(w.user, w.size)
		if !ok {
			refused++
			if w.bypassed++; b.prioritized == nil && w.bypassed > maxBypass && !b.fair.holds(w.user) {
				b.prioritized = w
			}
			continue
		}
		if w == b.prioritized {
			b.prioritized = nil
		}
		refused, w.held = 0, held
		close(w.admitted)
		b.setQueue(name, b.waiting[name][1:])
	}
}

// cancel removes a waiter. It returns false if the waiter was admitted already.
func (b *byteBudget) cancel(w *byteWaiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.waiting[w.user.principal]
	i := slices.Index(queue, w)
	if i < 0 {
		return false
	}
	if b.prioritized == w {
		b.prioritized = nil
	}
	b.setQueue(w.user.principal, slices.Delete(queue, i, i+1))
	b.admit() // smaller requests may have waited behind it
	return true
}

// setQueue replaces the queue of a principal in order. The caller holds mu.
func (b *byteBudget) setQueue(name string, queue []*byteWaiter) {
	if len(queue) > 0 {
		b.waiting[name] = queue
		return
	}
	delete(b.waiting, name)
	b.order = slices.DeleteFunc(b.order, func(s string) bool { return s == name })
}
