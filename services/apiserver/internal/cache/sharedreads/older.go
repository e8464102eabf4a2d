package sharedreads

import (
	"context"
	"sync"
	"sync/atomic"
	"weak"

	"binnacle/services/apiserver/internal/cache/objects"
)

// maxOlder is how many read values are remembered while a reader holds them.
const maxOlder = 64

// Older shares reads of values that history dropped. Watchers of the same objects often lag by
// the same amount.
type Older struct {
	// read reads the value of a version of an object. It bounds its own duration.
	read func(*objects.Entry) (value []byte, err error)
	made atomic.Uint64

	mu      sync.Mutex // no lock is taken under it
	running map[olderKey]*olderRead
	known   map[olderKey]weak.Pointer[objects.Entry]
}

// olderKey identifies a version of an object.
type olderKey struct {
	key      string
	revision int64
}

// olderRead is a read in progress. entry and err are valid once done is closed.
type olderRead struct {
	done  chan struct{}
	entry *objects.Entry
	err   error
}

// NewOlder returns shared calls of read.
func NewOlder(read func(*objects.Entry) ([]byte, error)) *Older { return &Older{read: read} }

// Count returns the number of reads.
func (o *Older) Count() uint64 { return o.made.Load() }

// Get returns an entry with its value, which it reads. Concurrent callers share the read.
func (o *Older) Get(ctx context.Context, e *objects.Entry) (*objects.Entry, error) {
	k := olderKey{e.Key(), e.Revision}
	o.mu.Lock()
	if p, ok := o.known[k]; ok {
		if known := p.Value(); known != nil {
			o.mu.Unlock()
			return known, nil
		}
	}
	read := o.running[k]
	if read == nil {
		read = &olderRead{done: make(chan struct{})}
		if o.running == nil {
			o.running = map[olderKey]*olderRead{}
			o.known = map[olderKey]weak.Pointer[objects.Entry]{}
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
func (o *Older) complete(k olderKey, e *objects.Entry, read *olderRead) {
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
func (o *Older) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.running)
	clear(o.known)
}

// remember remembers an entry weakly, as long as another reference holds it.
func (o *Older) remember(k olderKey, e *objects.Entry) {
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
