package traced

import (
	"context"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// Timed is a store that measures its calls.
type Timed struct {
	storage.Interface
	// Took is called with the duration of each read and write of a key or prefix.
	Took func(ctx context.Context, d time.Duration)
}

var _ storage.Interface = (*Timed)(nil)

func (s *Timed) elapsed(ctx context.Context, start time.Time) { s.Took(ctx, time.Since(start)) }

// Get implements storage.Interface.
func (s *Timed) Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error) {
	defer s.elapsed(ctx, time.Now())
	return s.Interface.Get(ctx, key, revision)
}

// List implements storage.Interface.
func (s *Timed) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.ListResult, error) {
	defer s.elapsed(ctx, time.Now())
	return s.Interface.List(ctx, prefix, opts)
}

// Create implements storage.Interface.
func (s *Timed) Create(ctx context.Context, key string, value []byte, opts storage.WriteOptions) (int64, error) {
	defer s.elapsed(ctx, time.Now())
	return s.Interface.Create(ctx, key, value, opts)
}

// Update implements storage.Interface.
func (s *Timed) Update(ctx context.Context, key string, value []byte, expected int64, opts storage.WriteOptions) (int64, error) {
	defer s.elapsed(ctx, time.Now())
	return s.Interface.Update(ctx, key, value, expected, opts)
}

// Delete implements storage.Interface.
func (s *Timed) Delete(ctx context.Context, key string, expected int64, preconditions ...storage.Precondition) (int64, error) {
	defer s.elapsed(ctx, time.Now())
	return s.Interface.Delete(ctx, key, expected, preconditions...)
}
