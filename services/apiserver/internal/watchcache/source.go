package watchcache

import (
	"context"
	"fmt"
	"sync"

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

// pageSize is the number of values that are read at a time.
const pageSize = 500

// StorageSource is the stream straight from the store.
type StorageSource struct {
	store storage.Interface
	root  string

	mu      sync.Mutex      // nothing is taken while it is held
	watcher storage.Watcher // of the Follow that runs
}

var _ Source = (*StorageSource)(nil)

// NewStorageSource makes a source of what is below root in a store.
func NewStorageSource(store storage.Interface, root string) *StorageSource {
	return &StorageSource{store: store, root: root}
}

// Load implements Source. The next page is read while one is handed over.
func (s *StorageSource) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Place, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type read struct {
		res storage.ListResult
		err error
	}
	pages := make(chan read, 1)
	go func() {
		defer close(pages)
		opts := storage.ListOptions{Limit: pageSize}
		for {
			res, err := s.store.List(ctx, s.root, opts)
			select {
			case pages <- read{res, err}:
			case <-ctx.Done():
				return
			}
			if err != nil || !res.More || len(res.Items) == 0 {
				return
			}
			opts.From = res.Items[len(res.Items)-1].Key + "\x00"
			if opts.Revision == 0 {
				opts.Revision = res.Revision
			}
		}
	}()
	var at storage.Place
	for p := range pages {
		if p.err != nil {
			return at, fmt.Errorf("list %s: %w", s.root, p.err)
		}
		if at.Revision == 0 {
			at.Revision, at.Store = p.res.Revision, p.res.Store
		}
		if err := page(p.res.Items); err != nil {
			return at, err
		}
	}
	return at, ctx.Err()
}

// Follow implements Source.
func (s *StorageSource) Follow(ctx context.Context, from storage.Place, apply func(storage.Batch) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := s.store.Resume(ctx, s.root, from)
	if err != nil {
		return fmt.Errorf("watch %s after %d: %w", s.root, from.Revision, err)
	}
	defer w.Stop()
	s.setWatcher(w)
	defer s.setWatcher(nil)
	for b := range w.Batches() {
		if err := apply(b); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.Err(); err != nil {
		return fmt.Errorf("watch %s: %w", s.root, err)
	}
	return fmt.Errorf("watch %s: %w", s.root, storage.ErrUnavailable)
}

// Progress implements Source. Without a running watch there is nobody to ask.
func (s *StorageSource) Progress(ctx context.Context) error {
	s.mu.Lock()
	w := s.watcher
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.Progress(ctx)
}

func (s *StorageSource) setWatcher(w storage.Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher = w
}
