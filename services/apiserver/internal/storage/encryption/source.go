package encryption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
)

// Stream is the source of the watch cache (watchcache.Source).
type Stream interface {
	Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Position, error)
	Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error
	Progress(ctx context.Context) error
}

// Source is a stream of plain values over one of encrypted values.
type Source struct {
	Stream
	codec   valueCodec
	changes <-chan struct{}
	// loadedWith is the Set with which the values in the cache were decrypted.
	loadedWith *Set
	// corruptCount counts the corrupt values since the cache was loaded.
	corruptCount atomic.Int64

	mu sync.Mutex // leaf lock
	// samples holds undecryptable values that may become readable unchanged: one per key that a
	// plugin did not decrypt, and one for all values that needed no plugin.
	samples map[string]*storage.Seal
}

const (
	// maxSamples bounds the retried values, and retryInterval is the interval of retries.
	maxSamples    = 64
	retryInterval = 10 * time.Second
)

// NewSource returns a stream that decrypts the values of inner and converts them.
func NewSource(inner Stream, live *Live, r *Resources, c Converter) *Source {
	return &Source{Stream: inner, codec: valueCodec{live, r, c}, changes: live.subscribeReopened()}
}

// Load implements watchcache.Source.
func (s *Source) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	s.corruptCount.Store(0)
	s.mu.Lock()
	s.samples = map[string]*storage.Seal{}
	s.mu.Unlock()
	loadedWith := s.codec.live.Current()
	ctx = kms.FailFast(ctx)
	position, err := s.Stream.Load(ctx, func(items []storage.KeyValue) error {
		for i := range items {
			s.codec.openKeyValue(ctx, &items[i])
			s.recordCorrupt(items[i].Seal)
		}
		return page(items)
	})
	if err == nil {
		s.loadedWith = loadedWith
	}
	return position, err
}

// errReadable means that a corrupt value has become readable.
var errReadable = fmt.Errorf("values that could not be read are readable now: %w", &storage.CompactedError{})

// Follow implements watchcache.Source. It ends with *storage.ReopenedError if another configuration
// may decrypt less or more than the one with which the cache was loaded. It ends as if history were
// compacted if a value has become readable without a new configuration.
func (s *Source) Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer func() { cancel(nil); <-done }()
	opening := kms.FailFast(inner)
	go func() {
		defer close(done)
		retries := time.NewTicker(retryInterval)
		defer retries.Stop()
		for {
			if err := s.reloadReason(inner); err != nil { // may block: this goroutine does nothing else
				cancel(err)
				return
			}
			select {
			case <-inner.Done():
				return
			case <-s.changes:
			case <-retries.C:
			}
		}
	}()
	err := s.Stream.Follow(inner, from, func(b storage.Batch) error {
		before := s.codec.live.Current()
		b = s.codec.openBatch(opening, b)
		for i := range b.Events {
			s.recordCorrupt(b.Events[i].Seal)
		}
		if s.corruptCount.Load() > 0 && s.codec.live.Current() != before {
			err := &storage.ReopenedError{} // the change may have been checked before this damage was known
			cancel(err)
			return err
		}
		return apply(b)
	})
	cause := context.Cause(inner)
	if ctx.Err() == nil && (errors.Is(cause, errReadable) || errors.As(cause, new(*storage.ReopenedError))) {
		return cause
	}
	return err
}

// recordCorrupt counts a corrupt value. It keeps the value as a sample if a retry may decrypt it.
func (s *Source) recordCorrupt(seal *storage.Seal) {
	if seal == nil || seal.Err == nil {
		return
	}
	s.corruptCount.Add(1)
	var requested *kms.KeyError
	name := ""
	if errors.As(seal.Err.Err, &requested) {
		name = requested.Key
	} else if !seal.Err.Transient {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.samples[name]; !known && len(s.samples) == maxSamples {
		for sample := range s.samples { // permanently lost keys make room for other ones
			delete(s.samples, sample)
			break
		}
	}
	s.samples[name] = seal
}

// reloadReason returns why every value must be decrypted again: its key is no longer available, or
// a corrupt value may be readable now. Nil means that there is no reason.
func (s *Source) reloadReason(ctx context.Context) error {
	now := s.codec.live.Current()
	if now != s.loadedWith {
		if s.corruptCount.Load() > 0 || !now.canDecryptAll(s.loadedWith) {
			return &storage.ReopenedError{}
		}
		s.loadedWith = now // Load does not run while Follow does
	}
	s.mu.Lock()
	samples := maps.Clone(s.samples)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, retryInterval) // leaves time for the other checks
	defer cancel()
	for _, seal := range samples {
		if _, opened := s.codec.openValue(ctx, seal.Err.Key, seal.Err.Revision, seal.Stored); opened == nil || opened.Err == nil {
			return errReadable
		}
	}
	return nil
}
