package limit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// maxBypass is how many times smaller claims may overtake one that waits.
const maxBypass = 16

// ErrFull is wrapped by the errors of claims that were not admitted: too many claims of the key
// wait, or the context ended first.
var ErrFull = errors.New("too many requests in progress")

// Options configures a Queue.
type Options struct {
	// Size is the number of units. Zero or less means no limit.
	Size int
	// FairShare keeps a key from holding more units than are free: the first key gets at most half of
	// the units, the second one a quarter, and so on. Another key therefore mostly finds free units.
	FairShare bool
	// MaxWaiting is the maximum number of waiting claims with the same keys. Zero means no limit.
	MaxWaiting int
}

// Claim is a request for units. The caller passes an equal value to Release.
type Claim[K comparable] struct {
	// Key is the client that the units count for.
	Key K
	// SecondKey is a second key that the units count for, unless it is zero. Both keys have their
	// share.
	SecondKey K
	// Cost is the number of units. Zero counts as one.
	Cost int
	// MinFree is the number of units that must stay free when the claim is admitted. They are reserved
	// for claims with a smaller MinFree.
	MinFree int
	// NoFairShare exempts the claim from FairShare.
	NoFairShare bool
}

func (c Claim[K]) cost() int { return max(c.Cost, 1) }

// line identifies the claims that wait in order of arrival: those with the same keys. A claim whose
// second key has used up its share does not delay those of its first key.
type line[K comparable] struct{ key, also K }

func (c Claim[K]) line() line[K] { return line[K]{c.Key, c.SecondKey} }

func (c Claim[K]) hasSecondKey() bool { return c.SecondKey != *new(K) }

// Queue limits the units in use. A nil Queue has no limit.
type Queue[K comparable] struct {
	options Options

	mu      sync.Mutex // leaf lock
	used    int
	held    map[K]int // units by key if they are shared; no value is zero
	waiting map[line[K]][]*waiter[K]
	order   []line[K] // the lines of waiting, the next one first
	// overdue is a waiter that was bypassed too often, or nil. Only claims with a smaller MinFree may
	// overtake it.
	overdue *waiter[K]
}

// waiter is a claim that waits. admitted is closed when the claim has its units.
type waiter[K comparable] struct {
	claim    Claim[K]
	admitted chan struct{}
	bypassed int // how many times it did not fit after a release
}

// New returns a Queue, or nil if Size is not positive.
func New[K comparable](o Options) *Queue[K] {
	if o.Size <= 0 {
		return nil
	}
	return &Queue[K]{options: o, held: map[K]int{}, waiting: map[line[K]][]*waiter[K]{}}
}

// Size returns the number of units, or 0 if there is no limit.
func (q *Queue[K]) Size() int {
	if q == nil {
		return 0
	}
	return q.options.Size
}

// InUse returns the number of units in use.
func (q *Queue[K]) InUse() int {
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}

// TryAcquire acquires the units of a claim if they are available now.
func (q *Queue[K]) TryAcquire(c Claim[K]) bool {
	if q == nil {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tryAcquire(c)
}

// tryAcquire acquires units like TryAcquire. The caller holds mu.
func (q *Queue[K]) tryAcquire(c Claim[K]) bool {
	if len(q.waiting[c.line()]) > 0 || q.blocked(c) || !q.fits(c) {
		return false
	}
	q.use(c)
	return true
}

// Acquire waits until the units of a claim are available and acquires them. It returns an error that
// wraps ErrFull if ctx ends first or MaxWaiting claims with the same keys wait.
func (q *Queue[K]) Acquire(ctx context.Context, c Claim[K]) error {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	if q.tryAcquire(c) {
		q.mu.Unlock()
		return nil
	}
	queue := q.waiting[c.line()]
	if q.options.MaxWaiting > 0 && len(queue) >= q.options.MaxWaiting {
		q.mu.Unlock()
		return ErrFull
	}
	if len(queue) == 0 {
		q.order = append(q.order, c.line())
	}
	w := &waiter[K]{claim: c, admitted: make(chan struct{})}
	q.waiting[c.line()] = append(queue, w)
	q.mu.Unlock()
	select {
	case <-w.admitted:
		return nil
	case <-ctx.Done():
	}
	if !q.cancel(w) {
		return nil // admitted at the same time
	}
	return fmt.Errorf("%w: %w", ErrFull, context.Cause(ctx))
}

// Release returns the units of a claim and admits claims that wait.
func (q *Queue[K]) Release(c Claim[K]) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used -= c.cost()
	if q.options.FairShare {
		q.addHeld(c, -c.cost())
	}
	q.admit()
}

// Shortage returns how many more units must become free before a shared claim fits, which is zero or
// less if it fits now, and a copy of the number of units that each key holds.
func (q *Queue[K]) Shortage(c Claim[K]) (lacking int, held map[K]int) {
	if q == nil {
		return 0, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held[c.Key] + c.cost() - q.free(c), maps.Clone(q.held)
}

// free returns the number of units that a claim may use. The caller holds mu.
func (q *Queue[K]) free(c Claim[K]) int { return q.options.Size - q.used - c.MinFree }

// fits reports whether the units of a claim are available. The caller holds mu.
func (q *Queue[K]) fits(c Claim[K]) bool {
	n := c.cost()
	if q.options.FairShare && !c.NoFairShare {
		n += max(q.held[c.Key], q.heldAlso(c))
	}
	return n <= q.free(c)
}

// use counts the units of an admitted claim as used. The caller holds mu.
func (q *Queue[K]) use(c Claim[K]) {
	q.used += c.cost()
	if q.options.FairShare {
		q.addHeld(c, c.cost())
	}
}

// addHeld adds n to the units of the keys of a claim. The caller holds mu.
func (q *Queue[K]) addHeld(c Claim[K], n int) {
	add := func(key K) {
		if q.held[key] += n; q.held[key] == 0 {
			delete(q.held, key)
		}
	}
	add(c.Key)
	if c.hasSecondKey() {
		add(c.SecondKey)
	}
}

// heldAlso returns the units of the second key of a claim. The caller holds mu.
func (q *Queue[K]) heldAlso(c Claim[K]) int {
	if !c.hasSecondKey() {
		return 0
	}
	return q.held[c.SecondKey]
}

// blocked reports whether a claim must wait behind the overdue waiter. The caller holds mu.
func (q *Queue[K]) blocked(c Claim[K]) bool {
	return q.overdue != nil && c.MinFree >= q.overdue.claim.MinFree
}

// admit admits the waiting claims that fit, one line after the other. A claim that was bypassed too
// often becomes overdue, unless it waits for units of its own keys. The caller holds mu.
func (q *Queue[K]) admit() {
	for rejected := 0; rejected < len(q.order); { // until the first claim of no line fits
		next := q.order[0]
		copy(q.order, q.order[1:])
		q.order[len(q.order)-1] = next
		first := q.waiting[next][0]
		if first != q.overdue && q.blocked(first.claim) {
			rejected++
			continue
		}
		if !q.fits(first.claim) {
			rejected++
			first.bypassed++
			holdsNone := q.held[first.claim.Key]+q.heldAlso(first.claim) == 0
			if q.overdue == nil && first.bypassed > maxBypass && holdsNone {
				q.overdue = first
			}
			continue
		}
		if first == q.overdue {
			q.overdue = nil
		}
		rejected = 0
		q.use(first.claim)
		close(first.admitted)
		q.setQueue(next, q.waiting[next][1:])
	}
}

// cancel removes a waiter. It returns false if the waiter was admitted.
func (q *Queue[K]) cancel(w *waiter[K]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.waiting[w.claim.line()]
	i := slices.Index(queue, w)
	if i < 0 {
		return false
	}
	if q.overdue == w {
		q.overdue = nil
	}
	q.setQueue(w.claim.line(), slices.Delete(queue, i, i+1))
	q.admit() // smaller claims may have waited behind it
	return true
}

// setQueue replaces the waiters of a line. The caller holds mu.
func (q *Queue[K]) setQueue(l line[K], queue []*waiter[K]) {
	if len(queue) > 0 {
		q.waiting[l] = queue
		return
	}
	delete(q.waiting, l)
	i := slices.Index(q.order, l)
	q.order = slices.Delete(q.order, i, i+1)
}
