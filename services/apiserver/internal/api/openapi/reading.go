package openapi

import (
	"sync"

	"binnacle/services/apiserver/internal/api/openapi/typefacts"
)

// Reading caches the sources of schemas while documents from the same sources are built: those of
// one group's versions. It is safe for concurrent use.
type Reading struct {
	// facts returns the facts of types, read once for the documents of all groups. It is nil if
	// only one document is built.
	facts func() (*typefacts.Facts, error)

	mu   sync.Mutex
	kept map[any]any
}

// Once returns the result of open for a key. It calls open once per key. open must be fast.
func (r *Reading) Once(key any, open func() any) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.kept[key]
	if !ok {
		if r.kept == nil {
			r.kept = map[any]any{}
		}
		v = open()
		r.kept[key] = v
	}
	return v
}

// typeFacts returns the facts of types.
func (r *Reading) typeFacts() (*typefacts.Facts, error) {
	if r.facts == nil {
		return typefacts.Read()
	}
	return r.facts()
}

// readings returns one Reading per group, for entries that are grouped. It drops the Reading of the
// previous group.
type readings struct {
	facts func() (*typefacts.Facts, error)
	group string
	last  *Reading
}

func newReadings() *readings { return &readings{facts: sync.OnceValues(typefacts.Read)} }

func (r *readings) of(e *entry) *Reading {
	if r.last == nil || e.group != "" && e.group != r.group {
		r.group, r.last = e.group, &Reading{facts: r.facts}
	}
	return r.last
}
