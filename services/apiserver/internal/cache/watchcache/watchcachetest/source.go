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

	mu      sync.Mutex      // no lock is taken under it
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
	var at storage.Position
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

// Follow implements watchcache.Source.
func (s *Source) Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error {
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
