package traced

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/storage"
)

// Store is a store that creates spans, under the names of Kubernetes.
type Store struct {
	storage.Interface
	// Root is the prefix of keys that spans omit.
	Root string
	// Wrote, if set, is called after each successful write, with its revision and the time at which
	// the store confirmed it.
	Wrote func(ctx context.Context, key string, revision int64, at time.Time)
}

var _ storage.Interface = (*Store)(nil)

// operation is a call of the store.
type operation struct {
	store *Store
	ctx   context.Context
	span  tracing.Span
	key   string
	// size is the number of bytes of the encoded object.
	size int
}

// start starts the span of an operation on a key.
func (s *Store) start(ctx context.Context, name, key string) (context.Context, operation) {
	v := storedValue(ctx)
	inner, span := tracing.StartAt(ctx, name, v.Begin, func() []attribute.KeyValue {
		out := []attribute.KeyValue{
			attribute.String("audit-id", request.FromContext(ctx).TracedID),
			attribute.String("key", strings.TrimPrefix(key, s.Root)),
		}
		if v.Type != "" {
			out = append(out, attribute.String("type", v.Type), attribute.String("resource", v.Resource))
		}
		return out
	})
	return inner, operation{store: s, ctx: ctx, span: span, key: key}
}

// startWrite is start for a write of a value.
func (s *Store) startWrite(ctx context.Context, name, key string, value []byte) (context.Context, operation) {
	inner, op := s.start(ctx, name, key)
	op.size = len(value)
	if v := storedValue(ctx); !v.End.IsZero() {
		op.span.EventAt("About to Encode", v.Begin)
		op.span.EventAt("Encode succeeded", v.End, attribute.Int("len", len(value)))
	}
	return inner, op
}

// endWrite adds the events of a write and ends its span. answerEvents are added if the store
// responded. A conflict is a response too (see isConflict).
func (o operation) endWrite(revision int64, err error, answerEvents ...string) {
	if err != nil && !isConflict(err) {
		o.span.Event("Txn call failed", attribute.String("err", err.Error()))
	} else {
		for _, event := range answerEvents {
			o.span.Event(event)
		}
	}
	if err == nil {
		// Kubernetes decodes the stored object at this point.
		o.span.Event("decode succeeded", attribute.Int("len", o.size))
	}
	o.finish(err)
	if err == nil && o.store.Wrote != nil {
		o.store.Wrote(o.ctx, o.key, revision, time.Now())
	}
}

// finish ends the span. It records an error as a failure unless it is a conflict (see isConflict).
func (o operation) finish(err error) {
	if !isConflict(err) {
		o.span.Fail(err)
	}
	o.span.End()
}

// isConflict reports whether an error means that the store has another state than the caller
// expected, for example because of an earlier write. For spans, this is a response, not a failure.
func isConflict(err error) bool {
	var conflict *storage.ConflictError
	var exists *storage.ExistsError
	var precondition *storage.PreconditionError
	return errors.Is(err, storage.ErrNotFound) ||
		errors.As(err, &conflict) ||
		errors.As(err, &exists) ||
		errors.As(err, &precondition)
}

// Get implements storage.Interface.
func (s *Store) Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error) {
	inner, op := s.start(ctx, "Get etcd3", key)
	kv, at, err := s.Interface.Get(inner, key, revision)
	op.finish(err)
	return kv, at, err
}

// List implements storage.Interface.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.ListResult, error) {
	inner, op := s.start(ctx, "List(recursive=true) etcd3", prefix)
	res, err := s.Interface.List(inner, prefix, opts)
	op.finish(err)
	return res, err
}

// Create implements storage.Interface.
func (s *Store) Create(ctx context.Context, key string, value []byte, opts storage.WriteOptions) (int64, error) {
	inner, op := s.startWrite(ctx, "Create etcd3", key, value)
	revision, err := s.Interface.Create(inner, key, value, opts)
	op.endWrite(revision, err, "Txn call succeeded")
	return revision, err
}

// Update implements storage.Interface.
func (s *Store) Update(ctx context.Context, key string, value []byte, expected int64, opts storage.WriteOptions) (int64, error) {
	inner, op := s.startWrite(ctx, "GuaranteedUpdate etcd3", key, value)
	op.span.Event("initial value restored")
	revision, err := s.Interface.Update(inner, key, value, expected, opts)
	op.endWrite(revision, err, "Txn call completed", "Transaction committed")
	return revision, err
}

// Delete implements storage.Interface.
func (s *Store) Delete(ctx context.Context, key string, expected int64, preconditions ...storage.Precondition) (int64, error) {
	inner, op := s.start(ctx, "Delete etcd3", key)
	revision, err := s.Interface.Delete(inner, key, expected, preconditions...)
	op.finish(err)
	if err == nil && s.Wrote != nil {
		s.Wrote(ctx, key, revision, time.Now())
	}
	return revision, err
}
