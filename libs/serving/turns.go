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

// Enter waits for a turn of the address that the request of ctx came from, or of nobody's, which Leave
// ends; without one it fails when ctx ends.
func (a LongAnswers) Enter(ctx context.Context) error {
	var from netip.Addr
	if c, ok := ctx.Value(belowKey{}).(*turnConn); ok {
		from = c.from
	}
	return a.turns.enter(ctx, from)
}

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
	return l.turns.enter(r.Context(), Network(from.Addr()))
}

// EnterFirst is Enter for who has what others wait for meanwhile: it is the next one.
func (l LargeRequests) EnterFirst(r *http.Request) error {
	if l.turns == nil {
		return nil
	}
	return l.turns.enterFirst(r.Context())
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
	first   []chan struct{}                // who go before all of them
}

func newTurns(n int) *turns {
	return &turns{free: n, waiting: map[netip.Addr][]chan struct{}{}}
}

// enter waits for a turn, which leave ends.
func (t *turns) enter(ctx context.Context, from netip.Addr) error {
	turn := make(chan struct{})
	t.mu.Lock()
	if t.free > 0 { // so nobody waits
		t.free--
		t.mu.Unlock()
		return nil
	}
	if len(t.waiting[from]) == 0 {
		t.order = append(t.order, from)
	}
	t.waiting[from] = append(t.waiting[from], turn)
	t.mu.Unlock()
	return t.wait(ctx, turn, func() bool {
		i := slices.Index(t.waiting[from], turn)
		if i >= 0 {
			t.set(from, slices.Delete(t.waiting[from], i, i+1))
		}
		return i >= 0
	})
}

// enterFirst is enter before all who have come by it.
func (t *turns) enterFirst(ctx context.Context) error {
	turn := make(chan struct{})
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	t.first = append(t.first, turn)
	t.mu.Unlock()
	return t.wait(ctx, turn, func() bool {
		i := slices.Index(t.first, turn)
		if i >= 0 {
			t.first = slices.Delete(t.first, i, i+1)
		}
		return i >= 0
	})
}

// wait waits for a turn that was asked for. forget takes it back, under mu; it is false when the turn
// has come.
func (t *turns) wait(ctx context.Context, turn chan struct{}, forget func() bool) error {
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	forgotten := forget()
	t.mu.Unlock()
	if !forgotten {
		t.leave()
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

// leave gives the turn to who goes first, or to the next address.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.first) > 0 {
		close(t.first[0])
		t.first = slices.Delete(t.first, 0, 1)
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
	t.set(from, queue[1:])
}
