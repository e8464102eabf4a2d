package encryption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/services/apiserver/internal/encryption/kms"
	"binnacle/services/apiserver/internal/storage"
)

// Stream is what the watch cache is fed by (watchcache.Source).
type Stream interface {
	Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Place, error)
	Follow(ctx context.Context, from storage.Place, apply func(storage.Batch) error) error
	Progress(ctx context.Context) error
}

// Source is a stream of plain values over one of sealed ones.
type Source struct {
	Stream
	values  values
	changes <-chan struct{}
	// shown is the Set by which what the cache has was opened.
	shown *Set
	// damaged counts values since the cache was loaded that could not be opened.
	damaged atomic.Int64

	mu sync.Mutex // a leaf
	// samples are some of them that may open later as they are: one for each key that a
	// plugin did not open, and one for all that needed none.
	samples map[string]*storage.Seal
}

const (
	// maxSamples bounds what is tried again, and tryEvery is how often.
	maxSamples = 64
	tryEvery   = 10 * time.Second
)

// NewSource returns a stream that decrypts the values of inner and converts them.
func NewSource(inner Stream, live *Live, r *Resources, c Converter) *Source {
	return &Source{Stream: inner, values: values{live, r, c}, changes: live.follow()}
}

// Load implements watchcache.Source.
func (s *Source) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Place, error) {
	s.damaged.Store(0)
	s.mu.Lock()
	s.samples = map[string]*storage.Seal{}
	s.mu.Unlock()
	shown := s.values.live.Current()
	ctx = kms.Impatient(ctx)
	place, err := s.Stream.Load(ctx, func(items []storage.KeyValue) error {
		for i := range items {
			s.values.openKey(ctx, &items[i])
			s.note(items[i].Seal)
		}
		return page(items)
	})
	if err == nil {
		s.shown = shown
	}
	return place, err
}

// errReadable tells that a value which could not be read is readable now.
var errReadable = fmt.Errorf("values that could not be read are readable now: %w", &storage.CompactedError{})

// Follow implements watchcache.Source. It ends with *storage.ReopenedError when another
// configuration may open less or more than the one by which the cache was loaded, and as if
// history was gone when a value has become readable without one.
func (s *Source) Follow(ctx context.Context, from storage.Place, apply func(storage.Batch) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer func() { cancel(nil); <-done }()
	opening := kms.Impatient(inner)
	go func() {
		defer close(done)
		again := time.NewTicker(tryEvery)
		defer again.Stop()
		for {
			if err := s.outdated(inner); err != nil { // which may wait: nothing else does
				cancel(err)
				return
			}
			select {
			case <-inner.Done():
				return
			case <-s.changes:
			case <-again.C:
			}
		}
	}()
	err := s.Stream.Follow(inner, from, func(b storage.Batch) error {
		before := s.values.live.Current()
		b = s.values.openBatch(opening, b)
		for i := range b.Events {
			s.note(b.Events[i].Seal)
		}
		if s.damaged.Load() > 0 && s.values.live.Current() != before {
			err := &storage.ReopenedError{} // the change may have been looked at before this damage was known
			cancel(err)
			return err
		}
		return apply(b)
	})
	if cause := context.Cause(inner); ctx.Err() == nil && (errors.Is(cause, errReadable) || errors.As(cause, new(*storage.ReopenedError))) {
		return cause
	}
	return err
}

// note counts values that cannot be opened.
func (s *Source) note(seal *storage.Seal) {
	if seal == nil || seal.Err == nil {
		return
	}
	s.damaged.Add(1)
	var asked *kms.KeyError
	name := ""
	if errors.As(seal.Err.Err, &asked) {
		name = asked.Key
	} else if !seal.Err.Passing {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.samples[name]; !known && len(s.samples) == maxSamples {
		for any := range s.samples { // keys that are lost for good leave room for others
			delete(s.samples, any)
			break
		}
	}
	s.samples[name] = seal
}

// outdated returns why every value has to be decrypted again: what opened it is not there
// any more, or what did not open may do so now. Nil means that it has not.
func (s *Source) outdated(ctx context.Context) error {
	now := s.values.live.Current()
	if now != s.shown {
		if s.damaged.Load() > 0 || !now.covers(s.shown) {
			return &storage.ReopenedError{}
		}
		s.shown = now // Load does not run while Follow does
	}
	s.mu.Lock()
	samples := maps.Clone(s.samples)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, tryEvery) // it has other things to look at
	defer cancel()
	for _, seal := range samples {
		if _, opened := s.values.open(ctx, seal.Err.Key, seal.Err.Revision, seal.Stored); opened == nil || opened.Err == nil {
			return errReadable
		}
	}
	return nil
}
