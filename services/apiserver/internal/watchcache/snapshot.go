package watchcache

import (
	"slices"
	"strings"
)

// Snapshot is all objects of a resource at one revision. It is immutable, and
// reading it takes no lock. It keeps alive the objects that it shows.
type Snapshot struct {
	store    *Store
	image    *image
	revision int64
}

// Revision is the store's revision that the snapshot shows.
func (s Snapshot) Revision() int64 { return s.revision }

// Variant is that of the resource which is shown: fields that it does not have are empty.
func (s Snapshot) Variant() string { return s.store.Variant() }

// Changed is the revision of the newest change of the resource that the snapshot
// shows.
func (s Snapshot) Changed() int64 { return s.image.last }

// Version names what a snapshot of a resource shows. It can be compared.
type Version struct {
	era     uint64
	load    int
	changed int64
}

// Version is the same for two snapshots of a resource only if they show the same
// objects.
func (s Snapshot) Version() Version { return Version{s.image.era, s.image.loads, s.image.last} }

// Len is the number of objects.
func (s Snapshot) Len() int { return s.image.entries.Len() }

// Get returns the entry of a key.
func (s Snapshot) Get(key string) (*Entry, bool) { return s.image.get(key) }

// Ascend goes through the entries whose keys begin with prefix and are not
// before from, in the order of their keys, until fn returns false.
func (s Snapshot) Ascend(prefix, from string, fn func(*Entry) bool) {
	if strings.HasPrefix(s.store.resource.Prefix, prefix) { // spares looking at each key
		s.image.entries.Ascend(&Entry{compact: ofKey(from)}, fn)
		return
	}
	s.image.entries.Ascend(&Entry{compact: ofKey(max(prefix, from))}, func(e *Entry) bool {
		return strings.HasPrefix(e.Key(), prefix) && fn(e)
	})
}

// Count is the number of entries that Ascend would go through.
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

// prefixEnd is the first key after all that begin with prefix. Keys are text,
// in which the byte 0xff does not occur.
func prefixEnd(prefix string) string { return prefix + "\xff" }

// Indexed goes through the entries whose indexed field has a value, in the
// order of their keys, until fn returns false. It returns false when the
// resource has no index of the field.
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

// Select goes through the entries that are selected and not before from, in the
// order of their keys, until fn returns false. It looks at no more than it has
// to: one object, an index, the objects that have a label, a namespace, or all.
func (s Snapshot) Select(sel Selection, from string, fn func(*Entry) bool) {
	m := sel.matcher()
	fetched, returned, index := s.selectFrom(m, from, fn)
	s.store.metrics.list(index, fetched, returned)
	if index == noIndex {
		s.wantLabel(m, fetched-returned)
	}
}

// Unreadable goes through the objects that cannot be read and may be of a selection, as far as
// their keys tell, and are not before from, in the order of those, until fn returns false. It
// looks at no others.
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

// Known tells whether of each object some version can be read.
func (s *Store) Known() bool {
	known := true
	s.Snapshot().Unreadable(Selection{}, "", func(e *Entry) bool {
		known = e.damage.readable != nil
		return known
	})
	return known
}

// noIndex stands for the tree of keys where the position of an index is told.
const noIndex = -1

// selectAll is selectFrom that tells whether Pause let it go on.
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
