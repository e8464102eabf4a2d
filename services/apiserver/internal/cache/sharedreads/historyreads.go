package sharedreads

import (
	"context"
	"sync"
	"sync/atomic"
	"weak"

	"binnacle/services/apiserver/internal/cache/objects"
)

// maxCached is how many read values are cached while a reader holds them.
const maxCached = 64

// HistoryReads shares reads of values that history dropped. Watchers of the same objects often lag
// by the same amount.
type HistoryReads struct {
	// read reads the value of a version of an object. It bounds its own duration.
	read  func(*objects.Entry) (value []byte, err error)
	count atomic.Uint64

	mu      sync.Mutex // leaf lock
	running map[versionKey]*historyRead
	cached  map[versionKey]weak.Pointer[objects.Entry]
}

// versionKey identifies a version of an object.
type versionKey struct {
	key      string
	revision int64
}

// historyRead is a read in progress. entry and err are valid once done is closed.
type historyRead struct {
	done  chan struct{}
	entry *objects.Entry
	err   error
}

// NewHistoryReads returns shared calls of read.
func NewHistoryReads(read func(*objects.Entry) ([]byte, error)) *HistoryReads {
	return &HistoryReads{read: read}
}

// Count returns the number of reads.
func (h *HistoryReads) Count() uint64 { return h.count.Load() }

// Get returns an entry with its value, which it reads. Concurrent callers share the read.
func (h *HistoryReads) Get(ctx context.Context, e *objects.Entry) (*objects.Entry, error) {
	key := versionKey{e.Key(), e.Revision}
	h.mu.Lock()
	if p, ok := h.cached[key]; ok {
		if entry := p.Value(); entry != nil {
			h.mu.Unlock()
			return entry, nil
		}
	}
	read := h.running[key]
	if read == nil {
		read = &historyRead{done: make(chan struct{})}
		if h.running == nil {
			h.running = map[versionKey]*historyRead{}
			h.cached = map[versionKey]weak.Pointer[objects.Entry]{}
		}
		h.running[key] = read
		go h.complete(key, e, read)
	}
	h.mu.Unlock()
	select {
	case <-read.done:
		return read.entry, read.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// complete reads a version and completes the read.
func (h *HistoryReads) complete(key versionKey, entry *objects.Entry, read *historyRead) {
	value, err := h.read(entry)
	if err == nil {
		read.entry = entry.WithValue(value)
	}
	read.err = err
	h.count.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running[key] == read {
		delete(h.running, key)
		if read.entry != nil {
			h.cacheEntry(key, read.entry)
		}
	}
	close(read.done)
}

// Forget discards completed and running reads of a discarded history.
func (h *HistoryReads) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.running)
	clear(h.cached)
}

// cacheEntry caches an entry weakly, as long as another reference holds it.
func (h *HistoryReads) cacheEntry(k versionKey, e *objects.Entry) {
	if len(h.cached) >= maxCached {
		for k, p := range h.cached {
			if p.Value() == nil {
				delete(h.cached, k)
			}
		}
	}
	if len(h.cached) < maxCached {
		h.cached[k] = weak.Make(e)
	}
}
