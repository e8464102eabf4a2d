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
	// FairShare keeps a key from holding more units than are free: the first key gets at most half
	// of the units, the second one a quarter, and so on. Another key therefore mostly finds free
	// units.
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
	// MinFree is the number of units that must stay free when the claim is admitted. They are
	// reserved for claims with a smaller MinFree.
	MinFree int
	// NoFairShare exempts the claim from FairShare.
	NoFairShare bool
}

func (c Claim[K]) cost() int { return max(c.Cost, 1) }

// waitingKey identifies a line of waiting claims: claims with the same two keys, in order of
// arrival. A claim whose second key has used up its share does not delay other claims of its first
// key.
type waitingKey[K comparable] struct{ first, second K }

func (c Claim[K]) waitingKey() waitingKey[K] { return waitingKey[K]{c.Key, c.SecondKey} }

func (c Claim[K]) hasSecondKey() bool { return c.SecondKey != *new(K) }

// Queue limits the units in use. A nil Queue has no limit.
type Queue[K comparable] struct {
	options Options

	mu           sync.Mutex // leaf lock
	inUse        int
	heldByKey    map[K]int // units in use by key, if FairShare is set; no value is zero
	waitingByKey map[waitingKey[K]][]*waiter[K]
	keyOrder     []waitingKey[K] // the keys of waitingByKey, in the order in which admitWaiting serves them
	// overdue is a waiter that was bypassed too often, or nil. Only claims with a smaller MinFree
	// may overtake it.
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
	return &Queue[K]{options: o, heldByKey: map[K]int{}, waitingByKey: map[waitingKey[K]][]*waiter[K]{}}
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
	return q.inUse
}

// TryAcquire acquires the units of a claim if they are available now.
func (q *Queue[K]) TryAcquire(claim Claim[K]) bool {
	if q == nil {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tryAcquireLocked(claim)
}

// tryAcquireLocked acquires units like TryAcquire. The caller holds mu.
func (q *Queue[K]) tryAcquireLocked(c Claim[K]) bool {
	if len(q.waitingByKey[c.waitingKey()]) > 0 || q.mustWaitForOverdue(c) || !q.fits(c) {
		return false
	}
	q.markUsed(c)
	return true
}

// Acquire waits until the units of a claim are available and acquires them. It returns an error
// that wraps ErrFull if ctx ends first or MaxWaiting claims with the same keys wait.
func (q *Queue[K]) Acquire(ctx context.Context, claim Claim[K]) error {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	if q.tryAcquireLocked(claim) {
		q.mu.Unlock()
		return nil
	}
	queue := q.waitingByKey[claim.waitingKey()]
	if q.options.MaxWaiting > 0 && len(queue) >= q.options.MaxWaiting {
		q.mu.Unlock()
		return ErrFull
	}
	if len(queue) == 0 {
		q.keyOrder = append(q.keyOrder, claim.waitingKey())
	}
	w := &waiter[K]{claim: claim, admitted: make(chan struct{})}
	q.waitingByKey[claim.waitingKey()] = append(queue, w)
	q.mu.Unlock()
	select {
	case <-w.admitted:
		return nil
	case <-ctx.Done():
	}
	if !q.removeWaiter(w) {
		return nil // admitted at the same time
	}
	return fmt.Errorf("%w: %w", ErrFull, context.Cause(ctx))
}

// Release returns the units of a claim and admits claims that wait.
func (q *Queue[K]) Release(claim Claim[K]) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inUse -= claim.cost()
	if q.options.FairShare {
		q.addHeld(claim, -claim.cost())
	}
	q.admitWaiting()
}

// Shortage returns how many more units must become free before a claim fits under FairShare. The
// number is zero or less if the claim fits now. held is a copy of the number of units that each key
// holds.
func (q *Queue[K]) Shortage(claim Claim[K]) (lacking int, held map[K]int) {
	if q == nil {
		return 0, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.heldByKey[claim.Key] + claim.cost() - q.freeFor(claim), maps.Clone(q.heldByKey)
}

// freeFor returns the number of units that a claim may use. The caller holds mu.
func (q *Queue[K]) freeFor(c Claim[K]) int { return q.options.Size - q.inUse - c.MinFree }

// fits reports whether the units of a claim are available. The caller holds mu.
func (q *Queue[K]) fits(claim Claim[K]) bool {
	n := claim.cost()
	if q.options.FairShare && !claim.NoFairShare {
		n += max(q.heldByKey[claim.Key], q.heldBySecondKey(claim))
	}
	return n <= q.freeFor(claim)
}

// markUsed counts the units of an admitted claim as used. The caller holds mu.
func (q *Queue[K]) markUsed(c Claim[K]) {
	q.inUse += c.cost()
	if q.options.FairShare {
		q.addHeld(c, c.cost())
	}
}

// addHeld adds n to the units of the keys of a claim. The caller holds mu.
func (q *Queue[K]) addHeld(claim Claim[K], units int) {
	add := func(key K) {
		if q.heldByKey[key] += units; q.heldByKey[key] == 0 {
			delete(q.heldByKey, key)
		}
	}
	add(claim.Key)
	if claim.hasSecondKey() {
		add(claim.SecondKey)
	}
}

// heldBySecondKey returns the units of the second key of a claim. The caller holds mu.
func (q *Queue[K]) heldBySecondKey(claim Claim[K]) int {
	if !claim.hasSecondKey() {
		return 0
	}
	return q.heldByKey[claim.SecondKey]
}

// mustWaitForOverdue reports whether a claim must wait behind the overdue waiter. The caller holds
// mu.
func (q *Queue[K]) mustWaitForOverdue(claim Claim[K]) bool {
	return q.overdue != nil && claim.MinFree >= q.overdue.claim.MinFree
}

// admitWaiting admits waiting claims that fit. It serves the lines in turn, and stops when the
// first claim of no line fits. A claim that was bypassed more than maxBypass times becomes overdue,
// unless its keys hold units whose release it may wait for. The caller holds mu.
func (q *Queue[K]) admitWaiting() {
	for unfit := 0; unfit < len(q.keyOrder); { // consecutive lines whose first claim does not fit
		next := q.keyOrder[0]
		copy(q.keyOrder, q.keyOrder[1:])
		q.keyOrder[len(q.keyOrder)-1] = next
		first := q.waitingByKey[next][0]
		if first != q.overdue && q.mustWaitForOverdue(first.claim) {
			unfit++
			continue
		}
		if !q.fits(first.claim) {
			unfit++
			first.bypassed++
			holdsNone := q.heldByKey[first.claim.Key]+q.heldBySecondKey(first.claim) == 0
			if q.overdue == nil && first.bypassed > maxBypass && holdsNone {
				q.overdue = first
			}
			continue
		}
		if first == q.overdue {
			q.overdue = nil
		}
		unfit = 0
		q.markUsed(first.claim)
		close(first.admitted)
		q.setWaiters(next, q.waitingByKey[next][1:])
	}
}

// removeWaiter removes a waiter. It returns false if the waiter was admitted.
func (q *Queue[K]) removeWaiter(w *waiter[K]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.waitingByKey[w.claim.waitingKey()]
	i := slices.Index(queue, w)
	if i < 0 {
		return false
	}
	if q.overdue == w {
		q.overdue = nil
	}
	q.setWaiters(w.claim.waitingKey(), slices.Delete(queue, i, i+1))
	q.admitWaiting() // smaller claims may have waited behind it
	return true
}

// setWaiters replaces the waiters of a line, and removes an empty line. The caller holds mu.
func (q *Queue[K]) setWaiters(key waitingKey[K], queue []*waiter[K]) {
	if len(queue) > 0 {
		q.waitingByKey[key] = queue
		return
	}
	delete(q.waitingByKey, key)
	i := slices.Index(q.keyOrder, key)
	q.keyOrder = slices.Delete(q.keyOrder, i, i+1)
}
