package watchcache

import (
	"context"
	"time"
)

const (
	// lostEvery is the minimum interval between two checks for watchers that lost their place.
	lostEvery = 500 * time.Millisecond
	// stalledAfter is how long a watcher may be stalled at a position for which history has dropped
	// values that the watcher may hold.
	stalledAfter = 5 * time.Second
)

// stall records since when the owner of a watcher has not called Next.
type stall struct {
	calls uint32
	since int64 // nanoseconds of the cache's clock; 0: never checked
}

// cutLost ends lost watchers after history was dropped, until ctx ends. It is idle while no history
// is dropped.
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

// historyForgotten schedules a check for lost watchers.
func (c *Cache) historyForgotten() {
	select {
	case c.forgotten <- struct{}{}:
	default: // it is due already
	}
}

// cutLost ends watchers whose place is gone and whose owners do not call Next. A client that does
// not read stalls them, and they must not keep the memory of their pending events alive. When
// memory is short, it also ends watchers that have been stalled for a while at a place for which
// history has dropped values. It reports whether it has to check again.
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
		case calls%2 == 1: // it notices by itself, unless it has just checked
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

// place returns the number of the first record that the watcher has not read. It returns false if
// no change has concerned the watcher since it read everything. The caller holds the store's mu.
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

// cut ends the watcher without its owner. It releases what the watcher holds and calls onLost.
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
