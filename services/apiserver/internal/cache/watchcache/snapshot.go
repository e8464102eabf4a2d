package watchcache

import (
	"unique"

	"binnacle/services/apiserver/internal/cache/objects"
)

// Snapshot holds all objects of a resource at one revision. It is immutable, and reading it takes
// no lock. It keeps its objects alive.
type Snapshot struct {
	store    *Store
	image    *objects.Image
	revision int64
}

// Revision returns the revision of the store that the snapshot shows.
func (s Snapshot) Revision() int64 { return s.revision }

// Variant returns the variant of the resource. Fields that the variant does not have are empty.
func (s Snapshot) Variant() string { return s.store.Variant() }

// LastChangeRevision returns the revision of the newest change of the resource in the snapshot.
func (s Snapshot) LastChangeRevision() int64 { return s.image.Last }

// Version returns the version of the snapshot. It is equal for two snapshots of a resource only if
// they show the same objects.
func (s Snapshot) Version() objects.Version { return s.image.Version() }

// Len returns the number of objects.
func (s Snapshot) Len() int { return s.image.Len() }

// Get returns the entry of a key.
func (s Snapshot) Get(key string) (*objects.Entry, bool) { return s.image.Get(key) }

// Select calls fn for the selected entries that are not before from, in the order of their keys,
// until fn returns false. It inspects as little as possible: one object, an index of a field or a
// label, a namespace, or all objects.
func (s Snapshot) Select(sel objects.Selection, from string, fn func(*objects.Entry) bool) {
	m := sel.Compile()
	inspected, returned, index := s.image.Select(m, from, fn)
	s.store.metrics.countList(index, inspected, returned)
	if index == objects.NoIndex {
		s.countLabelMisses(m, inspected-returned)
	}
}

// HasReadableVersions reports whether every object has a readable version, current or former.
func (s *Store) HasReadableVersions() bool {
	readable := true
	s.Snapshot().SelectCorrupt(objects.Selection{}, "", func(e *objects.Entry) bool {
		readable = e.LastReadable() != nil
		return readable
	})
	return readable
}

// selectAll calls fn for all selected entries like Select, but records no metrics. It returns false
// if Pause stopped it before it visited all of them.
func (s Snapshot) selectAll(m *objects.Matcher, from string, fn func(*objects.Entry) bool) (completed bool) {
	completed = true
	if m.Pause == nil {
		s.image.Select(m, from, fn)
		return completed
	}
	pausing := *m
	pausing.Pause = func() bool {
		completed = m.Pause()
		return completed
	}
	s.image.Select(&pausing, from, fn)
	return completed
}

// Ascend calls fn for the entries whose keys start with prefix and are not before from, in the
// order of their keys, until fn returns false.
func (s Snapshot) Ascend(prefix, from string, fn func(*objects.Entry) bool) {
	s.image.Ascend(prefix, from, fn)
}

// Count returns the number of entries that Ascend would visit.
func (s Snapshot) Count(prefix, from string) int { return s.image.Count(prefix, from) }

// SelectCorrupt calls fn for corrupt objects that may be selected, judged by their keys, and
// that are not before from. It visits them in the order of their keys until fn returns false, and
// inspects no readable objects.
func (s Snapshot) SelectCorrupt(sel objects.Selection, from string, fn func(*objects.Entry) bool) {
	s.image.SelectCorrupt(sel, from, fn)
}

// InspectedCount returns the number of entries that a selection must visit, or maximum if there are
// more.
func (s Snapshot) InspectedCount(sel objects.Selection, maximum int) int {
	return s.image.InspectedCount(sel, maximum)
}

// countLabelMisses counts the objects that a selection by labels inspected without a match, and
// builds an index when that is worthwhile.
func (s Snapshot) countLabelMisses(m *objects.Matcher, misses int) {
	if misses < s.store.cache.config.LabelsFrom {
		return
	}
	for label := range m.FixedLabels() {
		if s.store.hasLabelIndex(label) {
			continue
		}
		if total := s.store.labelMisses.Add(label, misses, s.Len()); total > 0 {
			s.store.indexLabel(label, total)
			return
		}
	}
}

// hasLabelIndex reports whether a label has an index. An older snapshot may not show it yet.
func (s *Store) hasLabelIndex(label unique.Handle[string]) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live.HasLabelIndex(label)
}

// indexLabel builds an index of the objects that have a label from an immutable state, then adds
// concurrent changes. misses is how many objects were inspected without a match.
func (s *Store) indexLabel(label unique.Handle[string], misses int) {
	s = s.latest()
	s.mu.RLock()
	slot := s.live.LabelSlot(misses)
	s.mu.RUnlock()
	if slot < 0 { // no slot is free
		return
	}
	image := s.Snapshot().image
	labelIndex := image.NewLabelIndex(label)
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.live
	slot = live.LabelSlot(misses)
	if s.discarded || !image.SameLoad(live) || image.Last < s.log.Floor || slot < 0 || live.HasLabelIndex(label) {
		return
	}
	updated := map[string]bool{}
	for seq := s.log.FirstAfter(image.Last); seq < s.log.Next; seq++ {
		r := s.log.Record(seq)
		e := r.Entry
		if e == nil {
			e = r.Prev
		}
		if !updated[e.Key()] {
			updated[e.Key()] = true
			before, _ := image.Get(e.Key())
			current, _ := live.Get(e.Key()) // log records may have lost their value (see Log.Reduce)
			labelIndex.Replace(before, current)
		}
	}
	live.SetLabelIndex(slot, labelIndex)
	s.published.Store(nil)
}

// dropUnusedLabels removes unused indexes. The caller holds mu.
func (s *Store) dropUnusedLabels(now int64) {
	s.labelMisses.Decay()
	if s.live.DropUnusedLabels(now) {
		s.published.Store(nil)
	}
}
