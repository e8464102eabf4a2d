package encryption

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption/kms"
)

// Converter converts values to their current stored form.
type Converter interface {
	// Convert returns the value in that form, and whether it differs from the stored one. It
	// returns an error if the value cannot be decoded.
	Convert(of schema.GroupResource, stored []byte) (value []byte, converted bool, err error)
}

// values encrypts and decrypts with the current Set.
type values struct {
	live      *Live
	resources *Resources
	converter Converter // nil disables conversion
}

// seal returns the stored form of a value.
func (v *values) seal(ctx context.Context, key string, value []byte) ([]byte, error) {
	gr, ok := v.resources.Of(key)
	if !ok {
		return value, nil
	}
	if c := v.live.Current().of(gr); c != nil {
		return c.Seal(ctx, nil, value, Of{key, gr.String()})
	}
	if isSealed(value) {
		return nil, errLooksSealed
	}
	return value, nil
}

// open returns the plain form of a stored value and its Seal, which is nil for a value that is
// stored plainly.
func (v *values) open(ctx context.Context, key string, revision int64, stored []byte) ([]byte, *storage.Seal) {
	gr, ok := v.resources.Of(key)
	if !ok {
		return stored, nil
	}
	value, seal := v.decrypt(ctx, gr, key, revision, stored)
	if seal != nil && seal.Err != nil {
		return nil, seal
	}
	if v.converter == nil {
		return value, seal
	}
	value, converted, err := v.converter.Convert(gr, value)
	switch {
	case err != nil:
		return nil, &storage.Seal{Stored: stored, Err: &storage.UnreadableError{Key: key, Revision: revision, Undecodable: true, Err: err}}
	case converted:
		return value, &storage.Seal{Stored: stored, Stale: true}
	}
	return value, seal
}

func (v *values) decrypt(ctx context.Context, gr schema.GroupResource, key string, revision int64, stored []byte) ([]byte, *storage.Seal) {
	c := v.live.Current().of(gr)
	if c == nil {
		if !isSealed(stored) {
			return stored, nil
		}
		return nil, unreadable(key, revision, stored, errSealed)
	}
	value, stale, err := c.Open(ctx, stored, Of{key, gr.String()})
	switch {
	case err != nil:
		return nil, unreadable(key, revision, stored, err)
	case isSealed(stored):
		return value, &storage.Seal{Stored: stored, Stale: stale}
	case stale:
		return value, &storage.Seal{Stored: stored, Stale: true}
	}
	return value, nil
}

func unreadable(key string, revision int64, stored []byte, err error) *storage.Seal {
	return &storage.Seal{Stored: stored, Err: &storage.UnreadableError{
		Key: key, Revision: revision, Err: err, Passing: kms.Unavailable(err),
	}}
}

// openKey decrypts the value of a key.
func (v *values) openKey(ctx context.Context, kv *storage.KeyValue) {
	kv.Value, kv.Seal = v.open(ctx, kv.Key, kv.ModRevision, kv.Value)
}

// openBatch decrypts the values of a batch. It does not change the batch, which may be shared.
func (v *values) openBatch(ctx context.Context, b storage.Batch) storage.Batch {
	copied := false
	for i := range b.Events {
		e := &b.Events[i]
		if e.Type == storage.Deleted {
			continue
		}
		value, seal := v.open(ctx, e.Key, e.Revision, e.Value)
		if seal == nil {
			continue
		}
		if !copied {
			b.Events, copied = append([]storage.Event(nil), b.Events...), true
		}
		b.Events[i].Value, b.Events[i].Seal = value, seal
	}
	return b
}
