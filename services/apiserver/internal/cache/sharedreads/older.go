package sharedreads

import (
	"context"
	"sync"
	"sync/atomic"
	"weak"

	"binnacle/services/apiserver/internal/cache/objects"
)

// maxCached is how many read values are remembered while a reader holds them.
const maxCached = 64

// HistoryReads shares reads of values that history dropped. Watchers of the same objects often lag by
// the same amount.
type HistoryReads struct {
	// read reads the value of a version of an object. It bounds its own duration.
	read func(*objects.Entry) (value []byte, err error)
	made atomic.Uint64

	mu      sync.Mutex // no lock is taken under it
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
func (o *HistoryReads) Count() uint64 { return o.made.Load() }

// Get returns an entry with its value, which it reads. Concurrent callers share the read.
func (o *HistoryReads) Get(ctx context.Context, e *objects.Entry) (*objects.Entry, error) {
	k := versionKey{e.Key(), e.Revision}
	o.mu.Lock()
	if p, ok := o.cached[k]; ok {
		if known := p.Value(); known != nil {
			o.mu.Unlock()
			return known, nil
		}
	}
	read := o.running[k]
	if read == nil {
		read = &historyRead{done: make(chan struct{})}
		if o.running == nil {
			o.running = map[versionKey]*historyRead{}
			o.cached = map[versionKey]weak.Pointer[objects.Entry]{}
		}
		o.running[k] = read
		go o.complete(k, e, read)
	}
	o.mu.Unlock()
	select {
	case <-read.done:
		return read.entry, read.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// complete reads a version and completes the read.
func (o *HistoryReads) complete(k versionKey, e *objects.Entry, read *historyRead) {
	value, err := o.read(e)
	if err == nil {
		read.entry = e.WithValue(value)
	}
	read.err = err
	o.made.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running[k] == read {
		delete(o.running, k)
		if read.entry != nil {
			o.remember(k, read.entry)
		}
	}
	close(read.done)
}

// Forget discards completed and running reads of a discarded history.
func (o *HistoryReads) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.running)
	clear(o.cached)
}

// remember remembers an entry weakly, as long as another reference holds it.
func (o *HistoryReads) remember(k versionKey, e *objects.Entry) {
	if len(o.cached) >= maxCached {
		for k, p := range o.cached {
			if p.Value() == nil {
				delete(o.cached, k)
			}
		}
	}
	if len(o.cached) < maxCached {
		o.cached[k] = weak.Make(e)
	}
}
