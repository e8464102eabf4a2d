package encryption

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
)

// Store is a store of plain values over one of encrypted values.
type Store struct {
	inner storage.Interface
	codec valueCodec
}

// NewStore returns a store that decrypts the values of inner and converts them.
func NewStore(inner storage.Interface, live *Live, r *Resources, c Converter) *Store {
	return &Store{inner, valueCodec{live, r, c}}
}

var _ storage.Interface = (*Store)(nil)

// Get implements storage.Interface.
func (s *Store) Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error) {
	kv, at, err := s.inner.Get(ctx, key, revision)
	if err != nil {
		return kv, at, err
	}
	s.codec.openKeyValue(ctx, &kv)
	return kv, at, kv.Corrupt()
}

// List implements storage.Interface.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.ListResult, error) {
	res, err := s.inner.List(ctx, prefix, opts)
	for i := range res.Items {
		s.codec.openKeyValue(ctx, &res.Items[i])
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
	sealed, err := s.codec.sealValue(ctx, key, value)
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
func (s *Store) Delete(ctx context.Context, key string, expected int64, preconditions ...storage.Precondition) (int64, error) {
	revision, err := s.inner.Delete(ctx, key, expected, preconditions...)
	return revision, s.openConflict(ctx, err)
}

// openConflict decrypts the current value in a conflict.
func (s *Store) openConflict(ctx context.Context, err error) error {
	var conflict *storage.ConflictError
	if !errors.As(err, &conflict) {
		return err
	}
	live := conflict.Live
	s.codec.openKeyValue(ctx, &live)
	return &storage.ConflictError{Live: live}
}

// Watch implements storage.Interface.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (storage.Watcher, error) {
	w, err := s.inner.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	return s.newWatcher(ctx, w), nil
}

// Resume implements storage.Interface.
func (s *Store) Resume(ctx context.Context, prefix string, from storage.Position) (storage.Watcher, error) {
	w, err := s.inner.Resume(ctx, prefix, from)
	if err != nil {
		return nil, err
	}
	return s.newWatcher(ctx, w), nil
}

// VerifyHistory implements storage.Interface.
func (s *Store) VerifyHistory(ctx context.Context, at storage.Position) (int64, error) {
	return s.inner.VerifyHistory(ctx, at)
}

// Revision implements storage.Interface.
func (s *Store) Revision(ctx context.Context) (int64, error) { return s.inner.Revision(ctx) }

// Compact implements storage.Interface.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	return s.inner.Compact(ctx, revision)
}

// decryptingWatcher decrypts the values that a watch delivers.
type decryptingWatcher struct {
	storage.Watcher
	batches chan storage.Batch
	stopped chan struct{}
	stop    sync.Once
}

// newWatcher returns a watcher that decrypts the batches of inner.
func (s *Store) newWatcher(ctx context.Context, inner storage.Watcher) *decryptingWatcher {
	w := &decryptingWatcher{Watcher: inner, batches: make(chan storage.Batch), stopped: make(chan struct{})}
	go func() { // ends with the inner watch, which ends with the context or by Stop
		defer close(w.batches)
		for b := range inner.Batches() {
			select {
			case w.batches <- s.codec.openBatch(ctx, b):
			case <-w.stopped:
			case <-ctx.Done():
			}
		}
	}()
	return w
}

// Batches implements storage.Watcher.
func (w *decryptingWatcher) Batches() <-chan storage.Batch { return w.batches }

// Stop implements storage.Watcher.
func (w *decryptingWatcher) Stop() {
	w.stop.Do(func() { close(w.stopped) })
	w.Watcher.Stop()
}

// Converter converts values to their current stored form.
type Converter interface {
	// Convert returns the value in that form, and whether it differs from the stored one. It
	// returns an error if the value cannot be decoded.
	Convert(of schema.GroupResource, stored []byte) (value []byte, converted bool, err error)
}

// valueCodec encrypts and decrypts with the current Set.
type valueCodec struct {
	live      *Live
	resources *Resources
	converter Converter // nil disables conversion
}

// sealValue returns the stored form of a value.
func (v *valueCodec) sealValue(ctx context.Context, key string, value []byte) ([]byte, error) {
	gr, ok := v.resources.ForKey(key)
	if !ok {
		return value, nil
	}
	if c := v.live.Current().forResource(gr); c != nil {
		return c.Seal(ctx, nil, value, ValueContext{key, gr.String()})
	}
	if isSealed(value) {
		return nil, errLooksSealed
	}
	return value, nil
}

// openValue returns the plain form of a stored value and its Seal, which is nil for a value that is
// stored plainly.
func (v *valueCodec) openValue(ctx context.Context, key string, revision int64, stored []byte) ([]byte, *storage.Seal) {
	gr, ok := v.resources.ForKey(key)
	if !ok {
		return stored, nil
	}
	value, seal := v.decryptValue(ctx, gr, key, revision, stored)
	if seal != nil && seal.Err != nil {
		return nil, seal
	}
	if v.converter == nil {
		return value, seal
	}
	value, converted, err := v.converter.Convert(gr, value)
	switch {
	case err != nil:
		return nil, &storage.Seal{
			Stored: stored,
			Err:    &storage.CorruptObjectError{Key: key, Revision: revision, Undecodable: true, Err: err},
		}
	case converted:
		return value, &storage.Seal{Stored: stored, Stale: true}
	}
	return value, seal
}

// decryptValue returns the plain value of a stored one, or the reason why it is corrupt.
func (v *valueCodec) decryptValue(
	ctx context.Context,
	groupResource schema.GroupResource,
	key string,
	revision int64,
	stored []byte,
) ([]byte, *storage.Seal) {
	c := v.live.Current().forResource(groupResource)
	if c == nil {
		if !isSealed(stored) {
			return stored, nil
		}
		return nil, corruptSeal(key, revision, stored, errSealed)
	}
	value, stale, err := c.Open(ctx, stored, ValueContext{key, groupResource.String()})
	switch {
	case err != nil:
		return nil, corruptSeal(key, revision, stored, err)
	case isSealed(stored):
		return value, &storage.Seal{Stored: stored, Stale: stale}
	case stale:
		return value, &storage.Seal{Stored: stored, Stale: true}
	}
	return value, nil
}

// corruptSeal returns the Seal of a value that cannot be read because of err.
func corruptSeal(key string, revision int64, stored []byte, err error) *storage.Seal {
	return &storage.Seal{
		Stored: stored,
		Err: &storage.CorruptObjectError{
			Key:       key,
			Revision:  revision,
			Err:       err,
			Transient: kms.Unavailable(err),
		},
	}
}

// openKeyValue decrypts the value of kv in place.
func (v *valueCodec) openKeyValue(ctx context.Context, kv *storage.KeyValue) {
	kv.Value, kv.Seal = v.openValue(ctx, kv.Key, kv.ModRevision, kv.Value)
}

// openBatch decrypts the values of a batch. It does not change the batch, which may be shared.
func (v *valueCodec) openBatch(ctx context.Context, batch storage.Batch) storage.Batch {
	copied := false
	for i := range batch.Events {
		e := &batch.Events[i]
		if e.Type == storage.Deleted {
			continue
		}
		value, seal := v.openValue(ctx, e.Key, e.Revision, e.Value)
		if seal == nil {
			continue
		}
		if !copied {
			batch.Events = append([]storage.Event(nil), batch.Events...)
			copied = true
		}
		batch.Events[i].Value = value
		batch.Events[i].Seal = seal
	}
	return batch
}
