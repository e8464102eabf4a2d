// Package routed is a store that distributes keys over several stores: some prefixes to others, the
// rest to the main one. Each store has its own revisions. Requests without a key go to the main
// store alone, and so do reads across several prefixes.
package routed

import (
	"context"
	"slices"
	"strings"

	"binnacle/services/apiserver/internal/storage"
)

// Store is a routed store. It is immutable.
type Store struct {
	// Interface is the main store.
	storage.Interface
	// ByPrefix hold the keys that start with these prefixes. The prefixes end with a slash and do
	// not overlap.
	ByPrefix map[string]storage.Interface
}

var _ storage.Interface = (*Store)(nil)

// storeFor returns the store of a key, or of all keys that start with a prefix.
func (s *Store) storeFor(key string) storage.Interface {
	end := 0 // of the prefix that is looked up
	for {
		i := strings.IndexByte(key[end:], '/')
		if i < 0 {
			return s.Interface
		}
		end += i + 1
		if other := s.ByPrefix[key[:end]]; other != nil {
			return other
		}
	}
}

// checkablePreconditions returns the preconditions that the store of a key can check: no
// transaction spans several stores.
func (s *Store) checkablePreconditions(key string, preconditions []storage.Precondition) []storage.Precondition {
	target := s.storeFor(key)
	isElsewhere := func(p storage.Precondition) bool { return s.storeFor(p.Key) != target }
	if !slices.ContainsFunc(preconditions, isElsewhere) {
		return preconditions
	}
	return slices.DeleteFunc(slices.Clone(preconditions), isElsewhere)
}

// Get implements storage.Interface.
func (s *Store) Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error) {
	return s.storeFor(key).Get(ctx, key, revision)
}

// List implements storage.Interface.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.ListResult, error) {
	return s.storeFor(prefix).List(ctx, prefix, opts)
}

// Create implements storage.Interface.
func (s *Store) Create(ctx context.Context, key string, value []byte, opts storage.WriteOptions) (int64, error) {
	opts.Preconditions = s.checkablePreconditions(key, opts.Preconditions)
	return s.storeFor(key).Create(ctx, key, value, opts)
}

// Update implements storage.Interface.
func (s *Store) Update(ctx context.Context, key string, value []byte, expected int64, opts storage.WriteOptions) (int64, error) {
	opts.Preconditions = s.checkablePreconditions(key, opts.Preconditions)
	return s.storeFor(key).Update(ctx, key, value, expected, opts)
}

// Delete implements storage.Interface.
func (s *Store) Delete(ctx context.Context, key string, expected int64, preconditions ...storage.Precondition) (int64, error) {
	return s.storeFor(key).Delete(ctx, key, expected, s.checkablePreconditions(key, preconditions)...)
}

// Watch implements storage.Interface.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (storage.Watcher, error) {
	return s.storeFor(prefix).Watch(ctx, prefix, after)
}

// Resume implements storage.Interface.
func (s *Store) Resume(ctx context.Context, prefix string, from storage.Position) (storage.Watcher, error) {
	return s.storeFor(prefix).Resume(ctx, prefix, from)
}
