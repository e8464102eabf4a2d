package traced

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/storage"
)

// Store is a store that makes spans, under the names that Kubernetes has for them, and
// tells how long it takes.
type Store struct {
	storage.Interface
	// Wrote, if set, is told of the revisions that traced requests wrote, and when the
	// store said so.
	Wrote func(ctx context.Context, key string, revision int64, at time.Time)
	// Took, if set, is told how long the store had for what was asked.
	Took func(ctx context.Context, d time.Duration)
}

var _ storage.Interface = (*Store)(nil)

// operation is one that runs.
type operation struct {
	store *Store
	ctx   context.Context
	span  tracing.Span
	begin time.Time
}

func (s *Store) start(ctx context.Context, name, key string) (context.Context, operation) {
	inner, span := tracing.Start(ctx, name, func() []attribute.KeyValue { return []attribute.KeyValue{attribute.String("key", key)} })
	return inner, operation{s, ctx, span, time.Now()}
}

// end ends a span. What somebody else was quicker with is an answer, no failure.
func (o operation) end(err error) {
	if o.store.Took != nil {
		o.store.Took(o.ctx, time.Since(o.begin))
	}
	span := o.span
	var conflict *storage.ConflictError
	var exists *storage.ExistsError
	var premise *storage.PremiseError
	if !errors.Is(err, storage.ErrNotFound) && !errors.As(err, &conflict) && !errors.As(err, &exists) && !errors.As(err, &premise) {
		span.Fail(err)
	}
	span.End()
}

func (s *Store) wrote(ctx context.Context, key string, revision int64, err error) {
	if err == nil && s.Wrote != nil {
		s.Wrote(ctx, key, revision, time.Now())
	}
}

// Get implements storage.Interface.
func (s *Store) Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error) {
	inner, op := s.start(ctx, "Get etcd3", key)
	kv, at, err := s.Interface.Get(inner, key, revision)
	op.end(err)
	return kv, at, err
}

// List implements storage.Interface.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.ListResult, error) {
	inner, op := s.start(ctx, "List(recursive=true) etcd3", prefix)
	res, err := s.Interface.List(inner, prefix, opts)
	op.end(err)
	return res, err
}

// Create implements storage.Interface.
func (s *Store) Create(ctx context.Context, key string, value []byte, opts storage.WriteOptions) (int64, error) {
	inner, op := s.start(ctx, "Create etcd3", key)
	revision, err := s.Interface.Create(inner, key, value, opts)
	op.end(err)
	s.wrote(ctx, key, revision, err)
	return revision, err
}

// Update implements storage.Interface.
func (s *Store) Update(ctx context.Context, key string, value []byte, expected int64, opts storage.WriteOptions) (int64, error) {
	inner, op := s.start(ctx, "GuaranteedUpdate etcd3", key)
	revision, err := s.Interface.Update(inner, key, value, expected, opts)
	op.end(err)
	s.wrote(ctx, key, revision, err)
	return revision, err
}

// Delete implements storage.Interface.
func (s *Store) Delete(ctx context.Context, key string, expected int64, while ...storage.Premise) (int64, error) {
	inner, op := s.start(ctx, "Delete etcd3", key)
	revision, err := s.Interface.Delete(inner, key, expected, while...)
	op.end(err)
	s.wrote(ctx, key, revision, err)
	return revision, err
}
