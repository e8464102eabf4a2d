package overload

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/request"
)

// errNoMemory reports that there was no memory for a body in time, or that a stalled body lost its
// memory to another one. errManyStalled reports that too many requests wait for their bodies.
var (
	errNoMemory    = errors.New("no memory for the body")
	errManyStalled = errors.New("too many requests wait for their bodies")
)

const (
	// stalledAfter is the time in which a body has to fill the memory that it reserved last.
	// After that, the body is rejected if another body waits for memory.
	stalledAfter = 500 * time.Millisecond
	// evictInterval is the interval at which a body that waits for memory looks for stalled bodies.
	evictInterval = 250 * time.Millisecond
)

// bodyBudget is the memory of the bodies of one priority level.
type bodyBudget struct {
	*limit.Queue[string]

	mu sync.Mutex // lock order: before the mutex of Queue
	// arriving lists the bodies that are being received, the oldest first.
	arriving []*reservedBody
}

// reservedBody holds the memory of the body of one request.
type reservedBody struct {
	budget *bodyBudget
	ctx    context.Context
	user   client
	// arrival is the context of receive. It is canceled when the body is rejected.
	arrival context.Context
	reject  context.CancelCauseFunc

	mu       sync.Mutex            // the response may end while the body arrives
	released bool                  // the memory is released for good
	size     int                   // reserved bytes
	claims   []limit.Claim[string] // of size bytes together

	// The mutex of the budget guards the following fields.
	occupied   int       // a copy of size
	reservedAt time.Time // time of the last reservation
	rejected   bool
}

// receive reads the body. The request holds no seats while it waits for the body. receive returns an
// error if there is no memory in time, if the body is stalled while another one waits for memory, if
// too many bodies are stalled, or if the request ends. The handler reports the end of the request.
func (b *reservedBody) receive(w http.ResponseWriter, r *http.Request) (body []byte, err error) {
	b.arrival, b.reject = context.WithCancelCause(b.ctx)
	defer b.reject(nil)
	b.budget.addArriving(b)
	defer b.budget.removeArriving(b)
	err = request.Wait(b.arrival, errManyStalled, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() {
			if cause := context.Cause(ctx); errors.Is(cause, errManyStalled) || errors.Is(cause, errNoMemory) {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now())
			}
		})
		defer stop()
		if body, err = request.ReceiveBody(r, b.reserve); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return b.reserve(len(body))
	})
	return body, err
}

// reserve waits until the body may occupy size bytes.
func (body *reservedBody) reserve(size int) error {
	size = max(size, minBodySize)
	if size <= body.size {
		return nil
	}
	claim, held, ok := body.acquireBytes(size)
	if !ok && body.ctx.Err() != nil {
		return body.ctx.Err()
	}
	if !ok {
		return errNoMemory
	}
	body.mu.Lock()
	ended := body.released
	if !ended {
		body.size = size
		if held {
			body.claims = append(body.claims, claim)
		}
	}
	body.mu.Unlock()
	if ended {
		if held {
			body.budget.Release(claim)
		}
		return errNoMemory
	}
	body.budget.recordSize(body, size)
	return nil
}

// acquireBytes waits for the bytes that the body lacks to occupy size bytes. While it waits, it
// rejects stalled bodies. held reports whether claim must be released: an administrator may be
// admitted without a claim.
//
// A body must leave room for another one of its size. Without that, large bodies whose requests wait
// for a webhook would occupy all memory, and the next large body would block all small ones.
func (body *reservedBody) acquireBytes(size int) (claim limit.Claim[string], held, ok bool) {
	room := min(size, body.budget.Size()/reservedShare)
	if claim, held, ok = body.user.tryAcquire(body.budget.Queue, size-body.size, room); ok {
		return claim, held, true
	}
	ctx, cancel := context.WithTimeout(body.arrival, maxBodyWait(body.arrival))
	defer cancel()
	body.budget.evictStalled(body, claim)
	go func() {
		ticker := time.NewTicker(evictInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				body.budget.evictStalled(body, claim)
			case <-ctx.Done():
				return
			}
		}
	}()
	held = body.budget.Acquire(ctx, claim) == nil
	return claim, held, held
}

// release releases the memory for good.
func (body *reservedBody) release() {
	body.mu.Lock()
	claims := body.claims
	body.claims = nil
	body.released = true
	body.mu.Unlock()
	for _, claim := range claims {
		body.budget.Release(claim)
	}
}

// addArriving adds a body to the bodies that may be evicted.
func (b *bodyBudget) addArriving(body *reservedBody) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body.reservedAt = time.Now()
	b.arriving = append(b.arriving, body)
}

// removeArriving removes a body from the bodies that may be evicted.
func (b *bodyBudget) removeArriving(body *reservedBody) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arriving = slices.DeleteFunc(b.arriving, func(other *reservedBody) bool { return other == body })
}

// recordSize records a new reservation of an arriving body.
func (b *bodyBudget) recordSize(body *reservedBody, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body.occupied = size
	body.reservedAt = time.Now()
}

// evictStalled rejects stalled bodies until r can acquire a claim. It evicts the bodies of
// principals that would hold more than the principal of r, the largest holder first, and younger
// bodies of the same principal. So the oldest body of a principal always completes.
func (b *bodyBudget) evictStalled(body *reservedBody, claim limit.Claim[string]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	shortage, held := b.Shortage(claim) // held is the number of bytes by principal
	entitled := held[body.user.principal] + claim.Cost
	for _, other := range b.arriving {
		if other.rejected { // its memory becomes free soon
			shortage -= other.occupied
			held[other.user.principal] -= other.occupied
		}
	}
	now := time.Now()
	for shortage > 0 {
		victim := b.stalledBody(body, held, entitled, now)
		if victim == nil {
			return
		}
		victim.rejected = true
		victim.reject(errNoMemory)
		shortage -= victim.occupied
		held[victim.user.principal] -= victim.occupied
	}
}

// stalledBody returns the body to evict next in favor of r, nil if there is none. held is the
// memory in bytes by principal. Other principals may hold as much as entitled. The caller holds mu.
func (b *bodyBudget) stalledBody(body *reservedBody, held map[string]int, entitled int, now time.Time) *reservedBody {
	var victim *reservedBody
	arrivedLater := false // other arrived after r
	for _, other := range b.arriving {
		if other == body {
			arrivedLater = true
			continue
		}
		isStalled := !other.rejected && other.occupied > 0 && now.Sub(other.reservedAt) >= stalledAfter
		if !isStalled {
			continue
		}
		evictable := held[other.user.principal] > entitled
		if other.user.principal == body.user.principal {
			evictable = arrivedLater
		}
		if evictable && (victim == nil || held[other.user.principal] > held[victim.user.principal]) {
			victim = other
		}
	}
	return victim
}

// levelBudgets holds the memory of bodies by priority level. Each level has size bytes, so that the
// bodies of one level never delay the bodies of another.
type levelBudgets struct {
	size int
	// maxWaiting is the maximum number of bodies of one principal that wait; 0 means no limit.
	maxWaiting int

	levels sync.Map // *bodyBudget by name
}

// forLevel returns the memory of a level. Requests without flow control share the level "".
func (l *levelBudgets) forLevel(level string) *bodyBudget {
	budget, ok := l.levels.Load(level)
	if !ok {
		budget, _ = l.levels.LoadOrStore(level, &bodyBudget{
			Queue: limit.New[string](limit.Options{Size: l.size, FairShare: true, MaxWaiting: l.maxWaiting}),
		})
	}
	return budget.(*bodyBudget)
}
