package watchcache

import (
	"slices"
	"strings"
)

// Snapshot holds all objects of a resource at one revision. It is immutable, and reading it takes
// no lock. It keeps its objects alive.
type Snapshot struct {
	store    *Store
	image    *image
	revision int64
}

// Revision returns the revision of the store that the snapshot shows.
func (s Snapshot) Revision() int64 { return s.revision }

// Variant returns the variant of the resource. Fields that the variant does not have are empty.
func (s Snapshot) Variant() string { return s.store.Variant() }

// Changed returns the revision of the newest change of the resource in the snapshot.
func (s Snapshot) Changed() int64 { return s.image.last }

// Version identifies the contents of a snapshot of a resource. It is comparable.
type Version struct {
	era     uint64
	load    int
	changed int64
}

// Version returns the version of the snapshot. It is equal for two snapshots of a resource only if
// they show the same objects.
func (s Snapshot) Version() Version { return Version{s.image.era, s.image.loads, s.image.last} }

// Len returns the number of objects.
func (s Snapshot) Len() int { return s.image.entries.Len() }

// Get returns the entry of a key.
func (s Snapshot) Get(key string) (*Entry, bool) { return s.image.get(key) }

// Ascend calls fn for the entries whose keys begin with prefix and are not before from, in the
// order of their keys, until fn returns false.
func (s Snapshot) Ascend(prefix, from string, fn func(*Entry) bool) {
	if strings.HasPrefix(s.store.resource.Prefix, prefix) { // avoids a check of each key
		s.image.entries.Ascend(&Entry{compact: ofKey(from)}, fn)
		return
	}
	s.image.entries.Ascend(&Entry{compact: ofKey(max(prefix, from))}, func(e *Entry) bool {
		return strings.HasPrefix(e.Key(), prefix) && fn(e)
	})
}

// Count returns the number of entries that Ascend would visit.
func (s Snapshot) Count(prefix, from string) int {
	start := 0
	if from > prefix || !strings.HasPrefix(s.store.resource.Prefix, prefix) {
		start = s.image.rank(max(prefix, from))
	}
	end := s.image.entries.Len()
	if !strings.HasPrefix(s.store.resource.Prefix, prefix) {
		end = s.image.rank(prefixEnd(prefix))
	}
	return max(0, end-start)
}

// prefixEnd returns the first key after all keys that begin with prefix. Keys are text, in which
// the byte 0xff does not occur.
func prefixEnd(prefix string) string { return prefix + "\xff" }

// Indexed calls fn for the entries whose indexed field has a value, in the order of their keys,
// until fn returns false. It returns false if the resource has no index of the field.
func (s Snapshot) Indexed(field, value string, fn func(*Entry) bool) bool {
	i := slices.Index(s.store.resource.Index, field)
	if i < 0 {
		return false
	}
	s.ascendIndex(i, value, "", fn)
	return true
}

func (s Snapshot) ascendIndex(i int, value, from string, fn func(*Entry) bool) {
	s.image.indexes[i].ascend(value, from, fn)
}

// Select calls fn for the selected entries that are not before from, in the order of their keys,
// until fn returns false. It inspects as little as possible: one object, an index of a field or a
// label, a namespace, or all objects.
func (s Snapshot) Select(sel Selection, from string, fn func(*Entry) bool) {
	m := sel.matcher()
	fetched, returned, index := s.selectFrom(m, from, fn)
	s.store.metrics.list(index, fetched, returned)
	if index == noIndex {
		s.wantLabel(m, fetched-returned)
	}
}

// Unreadable calls fn for unreadable objects that may be selected, judged by their keys, and that
// are not before from. It visits them in the order of their keys until fn returns false, and
// inspects no readable objects.
func (s Snapshot) Unreadable(sel Selection, from string, fn func(*Entry) bool) {
	if s.image.damage() == 0 {
		return
	}
	m := sel.matcher()
	prefix := s.store.resource.Prefix
	if m.Namespace != "" {
		prefix += m.Namespace + "/"
	}
	s.image.damaged.Ascend(&Entry{compact: ofKey(max(prefix, from))}, func(e *Entry) bool {
		return strings.HasPrefix(e.Key(), prefix) && (!m.named(e) || fn(e))
	})
}

// Known reports whether some version of each object can be read.
func (s *Store) Known() bool {
	known := true
	s.Snapshot().Unreadable(Selection{}, "", func(e *Entry) bool {
		known = e.damage.readable != nil
		return known
	})
	return known
}

// noIndex denotes the tree of keys in place of the position of an index.
const noIndex = -1

// selectAll is selectFrom that also reports whether Pause let it finish.
func (s Snapshot) selectAll(m *matcher, from string, fn func(*Entry) bool) (whole bool) {
	if whole = true; m.Pause == nil {
		s.selectFrom(m, from, fn)
		return whole
	}
	own := *m
	own.Pause = func() bool {
		whole = m.Pause()
		return whole
	}
	s.selectFrom(&own, from, fn)
	return whole
}

func (s Snapshot) selectFrom(m *matcher, from string, fn func(*Entry) bool) (fetched, returned, index int) {
	visit := func(e *Entry) bool {
		if fetched++; fetched%lookedAtOnce == 0 && m.Pause != nil && !m.Pause() {
			return false
		}
		if !m.matches(e) {
			return true
		}
		returned++
		return fn(e)
	}
	prefix := s.store.resource.Prefix
	if m.Namespace != "" {
		prefix += m.Namespace + "/"
		if m.Name != "" {
			if e, ok := s.Get(prefix + m.Name); ok && e.Key() >= from {
				visit(e)
			}
			return fetched, returned, noIndex
		}
	} else if m.Name != "" {
		if e, ok := s.Get(prefix + m.Name); ok && e.Namespace() == "" {
			if e.Key() >= from {
				visit(e)
			}
			return fetched, returned, noIndex
		}
	}
	if i, value, ok := m.indexed(s.store.resource.Index); ok && !s.image.selectsDamaged(m) {
		s.ascendIndex(i, value, from, visit)
		return fetched, returned, i
	}
	if l, value, _ := s.image.byLabel(m, prefix); l != nil {
		l.used.Store(s.store.cache.now())
		l.below(value, prefix, from, visit)
		l.saved.Add(int64(max(0, s.Count(prefix, from)-fetched)))
	} else {
		s.Ascend(prefix, from, visit)
	}
	return fetched, returned, noIndex
}
