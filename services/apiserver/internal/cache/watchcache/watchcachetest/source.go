// Package watchcachetest feeds watch caches in tests. In the server, the fan-out feeds them.
package watchcachetest

import (
	"context"
	"fmt"
	"sync"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// pageSize is the number of values per page.
const pageSize = 500

// Source streams directly from the store.
type Source struct {
	store storage.Interface
	root  string

	mu      sync.Mutex      // leaf lock
	watcher storage.Watcher // of the running Follow
}

var _ watchcache.Source = (*Source)(nil)

// NewSource returns a source of the keys below root in a store.
func NewSource(store storage.Interface, root string) *Source {
	return &Source{store: store, root: root}
}

// Load implements watchcache.Source. It reads the next page while the caller processes one.
func (s *Source) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := make(chan listedPage, 1)
	go s.list(ctx, pages)
	var position storage.Position
	for p := range pages {
		if p.err != nil {
			return position, fmt.Errorf("list %s: %w", s.root, p.err)
		}
		if position.Revision == 0 {
			position.Revision = p.result.Revision
			position.Store = p.result.Store
		}
		if err := page(p.result.Items); err != nil {
			return position, err
		}
	}
	return position, ctx.Err()
}

// listedPage is a page of a list, or the error that ends the list.
type listedPage struct {
	result storage.ListResult
	err    error
}

// list sends all pages at one revision, and closes the channel after the last one.
func (s *Source) list(ctx context.Context, pages chan<- listedPage) {
	defer close(pages)
	opts := storage.ListOptions{Limit: pageSize}
	for {
		result, err := s.store.List(ctx, s.root, opts)
		select {
		case pages <- listedPage{result: result, err: err}:
		case <-ctx.Done():
			return
		}
		if err != nil || !result.HasMore || len(result.Items) == 0 {
			return
		}
		opts.StartKey = result.Items[len(result.Items)-1].Key + "\x00"
		if opts.Revision == 0 {
			opts.Revision = result.Revision
		}
	}
}

// Follow implements watchcache.Source.
func (s *Source) Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watcher, err := s.store.Resume(ctx, s.root, from)
	if err != nil {
		return fmt.Errorf("watch %s after %d: %w", s.root, from.Revision, err)
	}
	defer watcher.Stop()
	s.setWatcher(watcher)
	defer s.setWatcher(nil)
	for b := range watcher.Batches() {
		if err := apply(b); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := watcher.Err(); err != nil {
		return fmt.Errorf("watch %s: %w", s.root, err)
	}
	return fmt.Errorf("watch %s: %w", s.root, storage.ErrUnavailable)
}

// Progress implements watchcache.Source. It does nothing without a running watch.
func (s *Source) Progress(ctx context.Context) error {
	s.mu.Lock()
	w := s.watcher
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.Progress(ctx)
}

func (s *Source) setWatcher(w storage.Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher = w
}
