package watchcache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"binnacle/services/apiserver/internal/storage"
)

// olderTimeout bounds one read of a value that history dropped.
const olderTimeout = 10 * time.Second

// maxOlder is how many read values are remembered while a reader holds them.
const maxOlder = 64

// olderReads shares reads of values that history dropped. Watchers of the same objects often lag by
// the same amount.
type olderReads struct {
	made atomic.Uint64 // for metrics

	mu      sync.Mutex // no lock is taken under it
	running map[olderKey]*olderRead
	known   map[olderKey]weak.Pointer[Entry]
}

type olderKey struct {
	key      string
	revision int64
}

type olderRead struct {
	done  chan struct{}
	entry *Entry
	err   error
}

// readOlder returns an entry of history with its value. If the store does not have it either, the
// error is *storage.CompactedError.
func (c *Cache) readOlder(ctx context.Context, e *Entry) (*Entry, error) {
	if c.cfg.Older == nil {
		return nil, &storage.CompactedError{}
	}
	k := olderKey{e.Key(), e.Revision}
	o := &c.older
	o.mu.Lock()
	if p, ok := o.known[k]; ok {
		if known := p.Value(); known != nil {
			o.mu.Unlock()
			return known, nil
		}
	}
	rd := o.running[k]
	if rd == nil {
		rd = &olderRead{done: make(chan struct{})}
		if o.running == nil {
			o.running, o.known = map[olderKey]*olderRead{}, map[olderKey]weak.Pointer[Entry]{}
		}
		o.running[k] = rd
		go c.runOlder(k, e, rd)
	}
	o.mu.Unlock()
	select {
	case <-rd.done:
		return rd.entry, rd.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Cache) runOlder(k olderKey, e *Entry, rd *olderRead) {
	ctx, cancel := context.WithTimeout(c.life, olderTimeout)
	defer cancel()
	kv, _, err := c.cfg.Older.Get(ctx, k.key, k.revision)
	switch {
	case err == nil && kv.ModRevision == k.revision && kv.CreateRevision == e.CreateRevision:
		rd.entry = e.withoutValue()
		rd.entry.stored = asText(kv.Value)
	case err == nil || errors.Is(err, storage.ErrNotFound) || errors.As(err, new(*storage.UnreadableError)): // not the history that was reported
		rd.err = &storage.CompactedError{}
	default:
		rd.err = err
	}
	c.older.made.Add(1)
	c.older.mu.Lock()
	defer c.older.mu.Unlock()
	if c.older.running[k] == rd {
		delete(c.older.running, k)
		if rd.entry != nil {
			c.older.know(k, rd.entry)
		}
	}
	close(rd.done)
}

// forget discards completed and running reads of a discarded history.
func (o *olderReads) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.running)
	clear(o.known)
}

// know remembers an entry weakly, as long as another reference holds it.
func (o *olderReads) know(k olderKey, e *Entry) {
	if len(o.known) >= maxOlder {
		for k, p := range o.known {
			if p.Value() == nil {
				delete(o.known, k)
			}
		}
	}
	if len(o.known) < maxOlder {
		o.known[k] = weak.Make(e)
	}
}
