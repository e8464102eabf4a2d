package openapi

import "sync"

// Reading keeps what schemas are read from while documents are made of them that read the same: the
// group versions of one group. Its methods may be called at the same time.
type Reading struct {
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

// readings give each group one, for entries that come group by group; what was read for those before
// is not kept.
type readings struct {
	group string
	last  *Reading
}

func (r *readings) of(e *entry) *Reading {
	if r.last == nil || e.group != "" && e.group != r.group {
		r.group, r.last = e.group, &Reading{}
	}
	return r.last
}
