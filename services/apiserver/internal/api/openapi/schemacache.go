package openapi

import (
	"sync"

	"binnacle/services/apiserver/internal/api/openapi/typefacts"
)

// SchemaCache caches what the documents of one group have in common while they are built together:
// definitions of custom resources with several versions. It is safe for concurrent use. The zero
// value is for a single document.
type SchemaCache struct {
	// facts returns the facts of Go types, which it reads once for the documents of all groups. It
	// is nil if only one document is built.
	facts func() (*typefacts.Facts, error)

	mu     sync.Mutex
	cached map[any]any
}

// Memoize returns the result of open, which it calls once per key. open must be fast, because it is
// called with a lock.
func (r *SchemaCache) Memoize(key any, open func() any) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.cached[key]
	if !ok {
		if r.cached == nil {
			r.cached = map[any]any{}
		}
		v = open()
		r.cached[key] = v
	}
	return v
}

// typeFacts returns the facts of Go types.
func (r *SchemaCache) typeFacts() (*typefacts.Facts, error) {
	if r.facts == nil {
		return typefacts.Read()
	}
	return r.facts()
}

// groupCaches returns the same SchemaCache for consecutive entries of one group. It keeps only the
// cache of the last group.
type groupCaches struct {
	facts func() (*typefacts.Facts, error)
	group string // of last
	last  *SchemaCache
}

func newGroupCaches() *groupCaches { return &groupCaches{facts: sync.OnceValues(typefacts.Read)} }

// cacheFor returns the cache for an entry. Entries of a group must follow each other.
func (r *groupCaches) cacheFor(e *entry) *SchemaCache {
	if r.last == nil || e.group != "" && e.group != r.group {
		r.group = e.group
		r.last = &SchemaCache{facts: r.facts}
	}
	return r.last
}
