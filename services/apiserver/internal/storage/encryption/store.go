package encryption

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/storage"
)

// Store is a store of plain values over one of encrypted values.
type Store struct {
	inner  storage.Interface
	values values
}

// NewStore returns a store that decrypts the values of inner and converts them.
func NewStore(inner storage.Interface, live *Live, r *Resources, c Converter) *Store {
	return &Store{inner, values{live, r, c}}
}

var _ storage.Interface = (*Store)(nil)

// Get implements storage.Interface.
func (s *Store) Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error) {
	kv, at, err := s.inner.Get(ctx, key, revision)
	if err != nil {
		return kv, at, err
	}
	s.values.openKey(ctx, &kv)
	return kv, at, kv.Unreadable()
}

// List implements storage.Interface.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.ListResult, error) {
	res, err := s.inner.List(ctx, prefix, opts)
	for i := range res.Items {
		s.values.openKey(ctx, &res.Items[i])
	}
	return res, err
}

// Create implements storage.Interface.
func (s *Store) Create(ctx context.Context, key string, value []byte, opts storage.WriteOptions) (int64, error) {
	sealed, err := s.seal(ctx, key, value)
	if err != nil {
		return 0, err
	}
	return s.inner.Create(ctx, key, sealed, opts)
}

// seal returns the stored form of a value.
func (s *Store) seal(ctx context.Context, key string, value []byte) ([]byte, error) {
	sealed, err := s.values.seal(ctx, key, value)
	if err != nil {
		tracing.Event(ctx, "TransformToStorage failed", attribute.String("err", err.Error()))
		return nil, &storage.SealError{Key: key, Err: err}
	}
	tracing.Event(ctx, "TransformToStorage succeeded")
	return sealed, nil
}

// Update implements storage.Interface.
func (s *Store) Update(ctx context.Context, key string, value []byte, expected int64, opts storage.WriteOptions) (int64, error) {
	sealed, err := s.seal(ctx, key, value)
	if err != nil {
		return 0, err
	}
	tracing.Event(ctx, "Transaction prepared")
	revision, err := s.inner.Update(ctx, key, sealed, expected, opts)
	return revision, s.openConflict(ctx, err)
}

// Delete implements storage.Interface.
func (s *Store) Delete(ctx context.Context, key string, expected int64, while ...storage.Precondition) (int64, error) {
	revision, err := s.inner.Delete(ctx, key, expected, while...)
	return revision, s.openConflict(ctx, err)
}

// openConflict decrypts the current value in a conflict.
func (s *Store) openConflict(ctx context.Context, err error) error {
	var conflict *storage.ConflictError
	if !errors.As(err, &conflict) {
		return err
	}
	live := conflict.Live
	s.values.openKey(ctx, &live)
	return &storage.ConflictError{Live: live}
}

// Watch implements storage.Interface.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (storage.Watcher, error) {
	w, err := s.inner.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	return s.watch(ctx, w), nil
}

// Resume implements storage.Interface.
func (s *Store) Resume(ctx context.Context, prefix string, from storage.Position) (storage.Watcher, error) {
	w, err := s.inner.Resume(ctx, prefix, from)
	if err != nil {
		return nil, err
	}
	return s.watch(ctx, w), nil
}

// Confirm implements storage.Interface.
func (s *Store) Confirm(ctx context.Context, at storage.Position) (int64, error) {
	return s.inner.Confirm(ctx, at)
}

// Revision implements storage.Interface.
func (s *Store) Revision(ctx context.Context) (int64, error) { return s.inner.Revision(ctx) }

// Compact implements storage.Interface.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	return s.inner.Compact(ctx, revision)
}

// watcher decrypts the values that a watch delivers.
type watcher struct {
	storage.Watcher
	batches chan storage.Batch
	stopped chan struct{}
	stop    sync.Once
}

func (s *Store) watch(ctx context.Context, inner storage.Watcher) *watcher {
	w := &watcher{Watcher: inner, batches: make(chan storage.Batch), stopped: make(chan struct{})}
	go func() { // ends with the inner watch, which ends with the context or by Stop
		defer close(w.batches)
		for b := range inner.Batches() {
			select {
			case w.batches <- s.values.openBatch(ctx, b):
			case <-w.stopped:
			case <-ctx.Done():
			}
		}
	}()
	return w
}

// Batches implements storage.Watcher.
func (w *watcher) Batches() <-chan storage.Batch { return w.batches }

// Stop implements storage.Watcher.
func (w *watcher) Stop() {
	w.stop.Do(func() { close(w.stopped) })
	w.Watcher.Stop()
}
