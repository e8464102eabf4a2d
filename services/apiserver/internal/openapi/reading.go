package openapi

import (
	"sync"

	"binnacle/services/apiserver/internal/openapi/typefacts"
)

// Reading keeps what schemas are read from while documents are made of them that read the same: the
// group versions of one group. Its methods may be called at the same time.
type Reading struct {
	// facts are those of types, read once for documents of all groups; nil where one alone is made.
	facts func() (*typefacts.Facts, error)

	mu   sync.Mutex
	kept map[any]any
}

// Once returns what open returned for a key, which is called once for each and is to be short.
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

// typeFacts are what the source says of types.
func (r *Reading) typeFacts() (*typefacts.Facts, error) {
	if r.facts == nil {
		return typefacts.Read()
	}
	return r.facts()
}

// readings give each group one, for entries that come group by group; what was read for those before
// is not kept.
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
