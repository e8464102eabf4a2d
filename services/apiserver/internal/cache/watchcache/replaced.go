package watchcache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// DefaultConfirmEvery is the maximum interval between two confirmations of the store's history.
const DefaultConfirmEvery = 2 * time.Second

// Era returns the number of the history that the cache follows. It grows when the store was
// replaced by an older or another one. Revisions of different eras are not comparable.
func (c *Cache) Era() uint64 { return c.era.Load() }

// readiness is whether the cache may answer. It can change both ways.
type readiness struct {
	ok atomic.Bool

	mu sync.Mutex    // no lock is taken under it
	ch chan struct{} // closed while ok
}

func (r *readiness) set(ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ok.Swap(ok) == ok {
		return
	}
	if ok {
		close(r.ch)
	} else {
		r.ch = make(chan struct{})
	}
}

func (r *readiness) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ch
}

// position is how far the cache has read, with the data that identifies the store's history.
type position struct {
	mu    sync.Mutex // after Cache.mu; no lock is taken under it
	place storage.Position
	era   uint64
}

func (p *position) get() (storage.Position, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.place, p.era
}

func (p *position) set(place storage.Position, era uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.place, p.era = place, era
}

// replaced ends an era. Its watchers end, and the cache does not answer until everything is
// reloaded. Derived data is discarded at once, the objects when the new ones are loaded. Only the
// first call in an era has an effect.
func (c *Cache) replaced(era uint64, why *storage.ReplacedError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.era.Load() != era || c.life.Err() != nil {
		return
	}
	c.ready.set(false)
	c.era.Store(era + 1)
	c.reloading = true
	c.metrics.replacements.Add(1)
	c.cfg.Logger.Error("etcd revision went backwards (restored backup?); ending all watches and reloading everything",
		"applied", c.Revision(), "known", why.Known, "newest", why.Newest, "proof", why.Why)
	c.revision.Store(0)
	c.waits.fail(ErrNotReady)
	c.older.forget()
	var fired []*wake
	for s := range c.routes.Load().all() {
		fired = s.abandon(fired)
	}
	release(fired)
	if c.stopFollowing != nil {
		c.stopFollowing()
	}
}

// abandon ends all watchers and discards everything except the objects. The caller holds Cache.mu.
func (s *Store) abandon(fired []*wake) []*wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned = true
	s.era.Store(s.cache.Era())
	fired = s.groups.fireAll(s.log.next, fired)
	s.forget(s.log.len())
	s.log.restart(0, s.cache.now())
	s.lookForLost()
	s.dropImages(func(*keptImage) bool { return true })
	s.live.entries.Scan(func(e *Entry) bool {
		s.cache.ring.retire(e)
		return true
	})
	return fired
}

// Era returns the number of the history that the watcher follows.
func (w *Watcher) Era() uint64 { return w.era }

// confirm checks periodically whether the store still has the followed history, unless other reads
// have confirmed it. It runs until ctx ends.
func (c *Cache) confirm(ctx context.Context) error {
	t := time.NewTicker(c.cfg.ConfirmEvery)
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
		if _, err := c.newest(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Debug("The store's history could not be confirmed", "error", err)
		}
		c.confirmed.Store(false)
	}
}

// replacement returns the proof in err that the store was replaced, or nil.
func replacement(err error) *storage.ReplacedError {
	var r *storage.ReplacedError
	if errors.As(err, &r) {
		return r
	}
	return nil
}
