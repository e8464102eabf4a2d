package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"binnacle/libs/node"
)

// bodies is room for bodies, in bytes: each user has as many as are free. Who finds
// none waits, behind others of the same user.
type bodies struct {
	room *slots

	mu      sync.Mutex // before that of room
	waiting map[string][]*waitingBody
	order   []string // the keys of waiting, the next one first
	// first was passed often enough: nobody else comes in before it.
	first *waitingBody
	// arriving are the bodies that arrive, the oldest first.
	arriving []*reservedBody
}

type waitingBody struct {
	user   client
	size   int
	held   bool
	turn   chan struct{}
	passed int // how often there was no room for it when somebody left
}

// maxPassed is how often smaller ones come in before one for which there was no room.
const maxPassed = 16

func newBodies(size int) *bodies {
	return &bodies{room: newSlots(size), waiting: map[string][]*waitingBody{}}
}

// share is what one user may have while nobody else has anything.
func (b *bodies) share() int { return (b.room.size - b.room.reserved) / 2 }

// enterNow is enter for who does not wait.
func (b *bodies) enterNow(u client, size int) (leave func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting[u.principal]) > 0 || b.closed(u) {
		return nil, false
	}
	held, ok := b.room.enter(u, size)
	return b.leaving(u, size, held), ok
}

// enter waits for room, for a part of the request's time, and returns what gives it
// back.
func (b *bodies) enter(ctx context.Context, u client, size int) (leave func(), ok bool) {
	return b.enterPressing(ctx, u, size, nil)
}

// enterPressing is enter that calls press, if set, now and then while it waits.
func (b *bodies) enterPressing(ctx context.Context, u client, size int, press func()) (leave func(), ok bool) {
	b.mu.Lock()
	queue := b.waiting[u.principal]
	if len(queue) == 0 {
		if !b.closed(u) {
			if held, ok := b.room.enter(u, size); ok {
				b.mu.Unlock()
				return b.leaving(u, size, held), true
			}
		}
		b.order = append(b.order, u.principal)
	}
	if len(queue) >= maxWaitingBodies {
		b.mu.Unlock()
		return nil, false
	}
	w := &waitingBody{user: u, size: size, turn: make(chan struct{})}
	b.waiting[u.principal] = append(queue, w)
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, bodyWait(ctx))
	defer cancel()
	var tick <-chan time.Time
	if press != nil {
		ticker := time.NewTicker(pressEvery)
		defer ticker.Stop()
		tick = ticker.C
		press()
	}
	for {
		select {
		case <-tick:
			press()
			continue
		case <-w.turn:
		case <-ctx.Done():
			if b.forget(w) {
				return nil, false
			}
		}
		return b.leaving(u, size, w.held), true
	}
}

func (b *bodies) leaving(u client, size int, held bool) func() {
	return func() {
		if held {
			b.leave(u, size)
		}
	}
}

// leave gives room back.
func (b *bodies) leave(u client, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.room.leave(u, size)
	b.admit()
}

// closed tells that a user has to wait behind the first. The caller holds mu.
func (b *bodies) closed(u client) bool {
	return b.first != nil && !suiteService(u.User) && !u.InGroup(node.Group)
}

// admit lets in who waits and finds room now: users take turns. One that others passed often is the
// first, unless it waits for what its user has himself. The caller holds mu.
func (b *bodies) admit() {
	for refused := 0; refused < len(b.order); {
		name := b.order[0]
		b.order = append(b.order[1:], name)
		w := b.waiting[name][0]
		if w != b.first && b.closed(w.user) {
			refused++
			continue
		}
		held, ok := b.room.enter(w.user, w.size)
		if !ok {
			refused++
			if w.passed++; b.first == nil && w.passed > maxPassed && !b.room.holds(w.user) {
				b.first = w
			}
			continue
		}
		if w == b.first {
			b.first = nil
		}
		refused, w.held = 0, held
		close(w.turn)
		b.set(name, b.waiting[name][1:])
	}
}

// forget takes away who waits; false when it waits no more.
func (b *bodies) forget(w *waitingBody) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.waiting[w.user.principal]
	i := slices.Index(queue, w)
	if i < 0 {
		return false
	}
	if b.first == w {
		b.first = nil
	}
	b.set(w.user.principal, slices.Delete(queue, i, i+1))
	b.admit() // it may have stood before smaller ones
	return true
}

// set replaces the queue of a user who is in the order.
func (b *bodies) set(name string, queue []*waitingBody) {
	if len(queue) > 0 {
		b.waiting[name] = queue
		return
	}
	delete(b.waiting, name)
	b.order = slices.DeleteFunc(b.order, func(s string) bool { return s == name })
}
