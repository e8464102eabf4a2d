package watchcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchgroup"
	"binnacle/services/apiserver/internal/storage"
)

// revisionWaits holds the callers that wait for a revision.
type revisionWaits struct {
	progressWanted chan struct{} // receives a value when a caller starts to wait

	mu   sync.Mutex // leaf lock, acquired after Cache.mu
	list []*revisionWait
}

// revisionWait is the wait of one caller for a revision.
type revisionWait struct {
	revision int64
	done     chan struct{}
	err      error // why the revision will not be reached; set before done
}

// advance ends the waits whose revision was reached.
func (w *revisionWaits) advance(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = slices.DeleteFunc(w.list, func(wait *revisionWait) bool {
		if wait.revision > revision {
			return false
		}
		close(wait.done)
		return true
	})
}

// fail ends all waits with an error: the revisions will not be reached.
func (w *revisionWaits) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wait := range w.list {
		wait.err = err
		close(wait.done)
	}
	w.list = nil
}

// remove removes a wait whose caller has given up.
func (w *revisionWaits) remove(wait *revisionWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.list, wait); i >= 0 {
		w.list = slices.Delete(w.list, i, i+1)
	}
}

// hasWaiters reports whether a caller waits.
func (w *revisionWaits) hasWaiters() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list) > 0
}

// WaitFor blocks until everything up to a revision has been applied. It returns ErrNotReady if the
// store's revision goes backwards during the wait.
func (c *Cache) WaitFor(ctx context.Context, revision int64) error {
	if c.Revision() >= revision {
		return nil
	}
	wait := &revisionWait{revision: revision, done: make(chan struct{})}
	c.revisionWaits.mu.Lock()
	if c.Revision() >= revision { // advance runs after the revision is stored
		c.revisionWaits.mu.Unlock()
		return nil
	}
	c.revisionWaits.list = append(c.revisionWaits.list, wait)
	c.revisionWaits.mu.Unlock()
	select {
	case c.revisionWaits.progressWanted <- struct{}{}:
	default:
	}
	select {
	case <-wait.done:
		return wait.err
	case <-ctx.Done():
		c.revisionWaits.remove(wait)
		return ctx.Err()
	case <-c.life.Done():
		c.revisionWaits.remove(wait)
		return ErrStopped
	}
}

const (
	// progressAfter is how long to wait for a revision before requesting a progress notification. A
	// change below the root brings its revision without such a request.
	progressAfter = 5 * time.Millisecond
	// progressInterval is the interval of further requests while callers wait.
	progressInterval = 25 * time.Millisecond
)

// requestProgress asks the source for its revision while callers wait for one, until ctx ends.
func (c *Cache) requestProgress(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.revisionWaits.progressWanted:
		}
		for delay := progressAfter; c.revisionWaits.hasWaiters(); delay = progressInterval {
			timer.Reset(delay)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-timer.C:
			}
			if !c.revisionWaits.hasWaiters() {
				break
			}
			if err := c.config.Source.Progress(ctx); err != nil && ctx.Err() == nil {
				c.config.Logger.Debug("failed to request a progress notification", "error", err)
			}
		}
	}
}

// newestTimeout bounds one read of the newest revision.
const newestTimeout = 10 * time.Second

// MostRecent waits until the cache shows everything that was written before the call. It returns
// the newest revision at the time of the call.
func (c *Cache) MostRecent(ctx context.Context) (int64, error) {
	revision, err := c.newest.Get(ctx)
	if err != nil {
		return 0, err
	}
	return revision, c.WaitFor(ctx, revision)
}

// readNewest reads the newest revision of the store, and checks that the store has the history that
// the cache follows. span is the span that requests the read.
func (c *Cache) readNewest(span context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(trace.ContextWithSpan(c.life, trace.SpanFromContext(span)), newestTimeout)
	defer cancel()
	position, incarnation := c.position.get()
	revision, err := c.config.CurrentRevision.VerifyHistory(ctx, position)
	replaced := asReplacedError(err)
	switch {
	case err == nil:
		c.confirmed.Store(true)
	case replaced != nil:
		c.endIncarnation(incarnation, replaced)
		err = ErrNotReady
	case c.life.Err() != nil:
		err = ErrStopped
	case ctx.Err() != nil: // the read itself timed out; callers' contexts are not used
		err = fmt.Errorf("%w: newest revision: %v", storage.ErrUnavailable, err)
	}
	return revision, err
}

// Revision returns the revision up to which all changes of any resource have been applied.
func (s *Store) Revision() int64 { return s.cache.Revision() }

// WaitFor blocks until everything up to a revision has been applied.
func (s *Store) WaitFor(ctx context.Context, revision int64) error {
	start := time.Now()
	defer func() { s.metrics.wait().Observe(time.Since(start).Seconds()) }()
	return s.cache.WaitFor(ctx, revision)
}

// MostRecent waits until the cache shows everything that was written before the call. It returns
// the newest revision at the time of the call.
func (s *Store) MostRecent(ctx context.Context) (int64, error) {
	revision, err := s.cache.newest.Get(ctx)
	if err == nil {
		err = s.WaitFor(ctx, revision)
	}
	if err != nil {
		s.metrics.inconsistent.Add(1)
		return 0, err
	}
	s.metrics.consistent.Add(1)
	return revision, nil
}

// DefaultConfirmEvery is the maximum interval between two confirmations of the store's history.
const DefaultConfirmEvery = 2 * time.Second

// Incarnation returns the number of the history that the cache follows. It increases when the store
// was restored from a backup or replaced. Revisions of different incarnations are not comparable.
func (c *Cache) Incarnation() uint64 { return c.incarnation.Load() }

// readiness reports whether the cache serves requests. It may become false again.
type readiness struct {
	ready atomic.Bool

	mu      sync.Mutex    // leaf lock
	changed chan struct{} // closed while ok
}

// set changes whether the cache serves requests.
func (r *readiness) set(ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready.Swap(ok) == ok {
		return
	}
	if ok {
		close(r.changed)
	} else {
		r.changed = make(chan struct{})
	}
}

// channel returns a channel that is closed while the cache serves requests.
func (r *readiness) channel() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// position is how far the cache has read, with the data that identifies the store's history.
type position struct {
	mu          sync.Mutex // leaf lock, acquired after Cache.mu
	current     storage.Position
	incarnation uint64
}

// get returns the position and its incarnation.
func (p *position) get() (storage.Position, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current, p.incarnation
}

// set replaces the position and its incarnation.
func (p *position) set(at storage.Position, incarnation uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = at
	p.incarnation = incarnation
}

// endIncarnation ends an incarnation. Its watchers terminate, and the cache serves no requests
// until everything is reloaded. Derived data is discarded immediately, the objects when the new
// ones are loaded. Only the first call in an incarnation has an effect.
func (c *Cache) endIncarnation(incarnation uint64, replaced *storage.ReplacedError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.incarnation.Load() != incarnation || c.life.Err() != nil {
		return
	}
	c.ready.set(false)
	c.incarnation.Store(incarnation + 1)
	c.reloading = true
	c.metrics.replacements.Add(1)
	c.config.Logger.Error("etcd revision went backwards (restored backup?); ending all watches and reloading everything",
		"applied", c.Revision(), "known", replaced.KnownRevision, "newest", replaced.NewestRevision, "reason", replaced.Reason)
	c.revision.Store(0)
	c.revisionWaits.fail(ErrNotReady)
	c.historyReads.Forget()
	var wakes []*watchgroup.Wake
	for s := range c.routes.Load().all() {
		wakes = s.endIncarnation(wakes)
	}
	watchgroup.WakeAll(wakes)
	if c.stopFollowing != nil {
		c.stopFollowing()
	}
}

// endIncarnation ends all watchers and discards everything except the objects. The caller holds
// Cache.mu.
func (s *Store) endIncarnation(wakes []*watchgroup.Wake) []*watchgroup.Wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discarded = true
	s.incarnation.Store(s.cache.Incarnation())
	wakes = s.groups.TakeAllWakes(s.log.Next, wakes)
	s.dropRecords(s.log.Len())
	s.log.Restart(0, s.cache.now())
	s.scheduleLostCheck()
	s.dropImages(func(*cachedImage) bool { return true })
	s.live.Scan(func(e *objects.Entry) bool {
		e.Retire()
		return true
	})
	return wakes
}

// Incarnation returns the number of the history that the watcher follows.
func (w *Watcher) Incarnation() uint64 { return w.incarnation }

// confirmHistory checks periodically whether the store still has the followed history, unless other
// reads have confirmed it. It runs until ctx ends.
func (c *Cache) confirmHistory(ctx context.Context) error {
	t := time.NewTicker(c.config.ConfirmEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		if c.confirmed.Swap(false) || !c.Ready() {
			continue
		}
		if _, err := c.newest.Get(ctx); err != nil && ctx.Err() == nil {
			c.config.Logger.Debug("failed to confirm the store's history", "error", err)
		}
		c.confirmed.Store(false)
	}
}

// asReplacedError returns the ReplacedError in err, or nil.
func asReplacedError(err error) *storage.ReplacedError {
	var r *storage.ReplacedError
	if errors.As(err, &r) {
		return r
	}
	return nil
}
