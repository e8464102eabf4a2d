package serving

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// LongAnswers are the turns in which long answers are made and sent.
type LongAnswers struct{ turns *turns }

// Enter waits for a turn, which Leave ends; without one it fails when ctx ends.
func (a LongAnswers) Enter(ctx context.Context) error { return a.turns.enter(ctx, netip.Addr{}) }

// Leave gives the turn to the next one.
func (a LongAnswers) Leave() { a.turns.leave() }

// LargeRequests are the turns in which large requests are read and worked on. Its zero value
// lets everybody go on.
type LargeRequests struct{ turns *turns }

// NewLargeRequests are so many turns.
func NewLargeRequests(n int) LargeRequests { return LargeRequests{newTurns(n)} }

// Enter waits for a turn of the address that a request came from, which Leave ends; without
// one it fails when the request ends.
func (l LargeRequests) Enter(r *http.Request) error {
	if l.turns == nil {
		return nil
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // or of nobody
	return l.turns.enter(r.Context(), network(from.Addr()))
}

// EnterNow is Enter for who does not wait.
func (l LargeRequests) EnterNow() bool { return l.turns == nil || l.turns.enterNow() }

// Leave gives the turn to the next one.
func (l LargeRequests) Leave() {
	if l.turns != nil {
		l.turns.leave()
	}
}

// turns lets a few work at a time. The others wait, and the addresses they come from
// take turns: many from one address wait for each other mostly.
type turns struct {
	mu      sync.Mutex // a leaf
	free    int
	waiting map[netip.Addr][]chan struct{} // none is empty
	order   []netip.Addr                   // the keys of waiting, the next one first
}

func newTurns(n int) *turns {
	return &turns{free: n, waiting: map[netip.Addr][]chan struct{}{}}
}

// enter waits for a turn, which leave ends.
func (t *turns) enter(ctx context.Context, from netip.Addr) error {
	t.mu.Lock()
	if t.free > 0 { // so nobody waits
		t.free--
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if len(t.waiting[from]) == 0 {
		t.order = append(t.order, from)
	}
	t.waiting[from] = append(t.waiting[from], turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !t.forget(from, turn) {
		t.leave() // it came meanwhile
	}
	return ctx.Err()
}

// enterNow is enter for who does not wait.
func (t *turns) enterNow() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free == 0 {
		return false
	}
	t.free--
	return true
}

// forget takes away who waits; false when it waits no more.
func (t *turns) forget(from netip.Addr, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[from], turn)
	if i < 0 {
		return false
	}
	t.set(from, slices.Delete(t.waiting[from], i, i+1))
	return true
}

// set replaces the queue of an address that is in the order.
func (t *turns) set(from netip.Addr, queue []chan struct{}) {
	if len(queue) > 0 {
		t.waiting[from] = queue
		return
	}
	delete(t.waiting, from)
	i := slices.Index(t.order, from)
	t.order = slices.Delete(t.order, i, i+1)
}

// leave gives the turn to the next address.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	from := t.order[0]
	copy(t.order, t.order[1:])
	t.order[len(t.order)-1] = from
	queue := t.waiting[from]
	close(queue[0])
	t.set(from, queue[1:])
}
