package watchcache

import (
	"context"

	"binnacle/services/apiserver/internal/storage"
)

// Source gives the cache one ordered, gapless stream of everything below the
// root. The cache keeps keys and values that it is given, so they must not be
// parts of larger buffers.
type Source interface {
	// Load reads everything at one revision and hands it to page in the order of
	// the keys. It returns the revision, and the name of the store.
	Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Place, error)
	// Follow delivers what happened after a place, in order, until ctx ends,
	// apply fails or the stream is lost. When the revision is no longer kept, it
	// returns *storage.CompactedError, when the history is another one
	// *storage.ReplacedError. Batches may overlap with what was delivered before.
	Follow(ctx context.Context, from storage.Place, apply func(storage.Batch) error) error
	// Progress asks for a batch that carries the current revision, even when
	// nothing changes. It does not wait for it.
	Progress(ctx context.Context) error
}
