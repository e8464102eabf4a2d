package watchcache

import (
	"context"
	"time"
)

const (
	// lostEvery is the least time between two looks for watchers that have lost
	// their place.
	lostEvery = 500 * time.Millisecond
	// stalledAfter is how long a watcher may be held up while history has to give
	// up values that it may hold.
	stalledAfter = 5 * time.Second
)

// stall is since when a watcher's owner has not called Next.
type stall struct {
	calls uint32
	since int64 // nanoseconds of the cache's clock; 0: never looked at
}

// cutLost looks for lost watchers after history was forgotten, until ctx ends.
// Nothing runs while no history is.
func (c *Cache) cutLost(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.forgotten:
		}
		again := false
		for s := range c.routes.Load().all() {
			again = s.cutLost() || again
		}
		if again {
			c.historyForgotten()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lostEvery):
		}
	}
}

// historyForgotten lets lost watchers be looked for.
func (c *Cache) historyForgotten() {
	select {
	case c.forgotten <- struct{}{}:
	default: // it is due already
	}
}

// cutLost ends the watchers whose place is gone and whose owners do not ask: they
// are held up by a client that does not read, and must not hold up the memory of
// what they were about to say. When memory is short, so are those that have been
// held up for a while at a place of which history has given up values. It returns
// whether it has to look again.
func (s *Store) cutLost() (again bool) {
	if !s.forgot.Swap(false) {
		return false
	}
	now := s.cache.now()
	var lost []*Watcher
	s.mu.RLock()
	for w := range s.watchers {
		at, behind := w.place()
		calls := w.calls.Load()
		switch gone := w.era != s.era.Load() || at < s.log.first && w.after < s.log.floor; {
		case !behind || w.expired.Load() || !gone && at >= s.log.unreduced:
		case calls%2 == 1: // it finds out itself, unless it has just looked
			again = true
		case gone || w.stalled.calls == calls && w.stalled.since != 0 && now-w.stalled.since >= int64(stalledAfter):
			lost = append(lost, w)
		default:
			again = true
			if w.stalled.calls != calls || w.stalled.since == 0 {
				w.stalled = stall{calls, now}
			}
		}
	}
	s.mu.RUnlock()
	for _, w := range lost {
		w.cut()
	}
	if again {
		s.forgot.Store(true)
	}
	return again
}

// place is the number of the first record that the watcher has not read; false
// when nothing has concerned it since it read everything. The caller holds the
// store's mu.
func (w *Watcher) place() (seq uint64, behind bool) {
	seq = w.cursor.Load()
	if wk := w.armed.Load(); wk != nil {
		if w.group.armed(wk) {
			return 0, false
		}
		seq = wk.seq
	}
	return seq, true
}

// cut ends the watcher without its owner: what it holds is released, and whoever
// writes for it is told.
func (w *Watcher) cut() {
	w.telling.Lock()
	defer w.telling.Unlock()
	if w.closed.Load() || w.expired.Swap(true) {
		return
	}
	if w.era == w.store.era.Load() {
		w.store.metrics.terminated.Add(1)
	}
	w.initial.Store(nil)
	if w.onLost != nil {
		w.onLost()
	}
}
