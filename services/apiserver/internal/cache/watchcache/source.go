package watchcache

import (
	"context"

	"binnacle/services/apiserver/internal/storage"
)

// Source provides one ordered, gapless stream of everything below the root. The cache keeps the
// keys and values, so they must not be parts of larger buffers.
type Source interface {
	// Load reads everything at one revision and passes it to page in the order of the keys. It
	// returns the revision and the identity of the store.
	Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Position, error)
	// Follow delivers the changes after a position in order, until ctx ends, apply fails or the
	// stream is lost. It returns *storage.CompactedError if the revision is no longer kept, and
	// *storage.ReplacedError if the history is another one. Batches may overlap with earlier ones.
	Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error
	// Progress requests a batch that carries the current revision even if nothing changes. It does
	// not wait for the batch.
	Progress(ctx context.Context) error
}
