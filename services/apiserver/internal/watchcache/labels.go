package watchcache

import (
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/tidwall/btree"
)

const (
	// worthIndexing is how many objects that were not wanted are looked at, for each that there
	// is, until those that have a label are put into a tree: making that costs about as much.
	worthIndexing = 10
	// mostLabels is how many labels of a resource have a tree, mostWanted how many are counted.
	mostLabels, mostWanted = 4, 64
	// labelKeptFor is how long a tree is kept after it was last used.
	labelKeptFor = 5 * time.Minute
)

// labelIndex is the objects that have a label, by its value and by their keys. Which labels are
// asked for nobody says beforehand, so trees are made, and forgotten, by use.
type labelIndex struct {
	label unique.Handle[string]
	tree  *btree.BTreeG[indexed]
	used  *atomic.Int64 // in nanoseconds of the cache's clock; of all copies
}

// wantedLabels counts what was looked at in vain for objects that have a label.
type wantedLabels struct {
	mu   sync.Mutex // a leaf
	vain map[unique.Handle[string]]int
}

// want counts, and tells whether a tree is worth its making.
func (w *wantedLabels) want(label unique.Handle[string], vain, objects int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.vain[label]; !ok && len(w.vain) >= mostWanted {
		clear(w.vain)
	}
	if w.vain == nil {
		w.vain = map[unique.Handle[string]]int{}
	}
	if w.vain[label] += vain; w.vain[label] < worthIndexing*objects {
		return false
	}
	delete(w.vain, label)
	return true
}

// fade has what was counted long ago count less.
func (w *wantedLabels) fade() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for label := range w.vain {
		w.vain[label] /= 2
	}
	maps.DeleteFunc(w.vain, func(_ unique.Handle[string], n int) bool { return n == 0 })
}

// fixed tells whether a term is for one value.
func (t *labelTerm) fixed() bool { return len(t.values) == 1 && !t.negated }

// byLabel returns the tree that has the fewest objects of those that the selection may go through,
// with the value to look for.
func (im *image) byLabel(m *matcher) (_ *labelIndex, value string, objects int) {
	if len(im.labels) == 0 || im.damaged > 0 && !m.Readable { // which are selected whatever their labels
		return nil, "", 0
	}
	var best *labelIndex
	for i := range m.labels {
		t := &m.labels[i]
		at := slices.IndexFunc(im.labels, func(l labelIndex) bool { return l.label == t.key })
		if at < 0 || !t.fixed() {
			continue
		}
		v := t.values[0].Value()
		if n := im.labels[at].count(v); best == nil || n < objects {
			best, value, objects = &im.labels[at], v, n
		}
	}
	return best, value, objects
}

// count is how many objects have the value.
func (l *labelIndex) count(value string) int {
	rank := func(beyond func(string) bool) int {
		return sort.Search(l.tree.Len(), func(i int) bool {
			it, _ := l.tree.GetAt(i)
			return beyond(it.value)
		})
	}
	return rank(func(v string) bool { return v > value }) - rank(func(v string) bool { return v >= value })
}

// ascend is Snapshot.Ascend for the objects that have the value.
func (l *labelIndex) ascend(value, prefix, from string, fn func(*Entry) bool) {
	l.tree.Ascend(indexed{value, &Entry{Key: max(prefix, from)}}, func(it indexed) bool {
		return it.value == value && strings.HasPrefix(it.entry.Key, prefix) && fn(it.entry)
	})
}

// replace puts entry in the place of old; either may be nil.
func (l *labelIndex) replace(old, entry *Entry) {
	was, had := old.label(l.label)
	is, has := entry.label(l.label)
	if had && (!has || was != is) {
		l.tree.Delete(indexed{was, old})
	}
	if has {
		l.tree.Set(indexed{is, entry})
	}
}

// label is the value of a label of an entry, which may be nil.
func (e *Entry) label(label unique.Handle[string]) (string, bool) {
	if e != nil {
		for i := range e.Labels.pairs {
			if e.Labels.pairs[i].key == label {
				return e.Labels.pairs[i].value.Value(), true
			}
		}
	}
	return "", false
}

// wantLabel counts objects that a selection by labels went through in vain, and makes a tree when
// that is worth it.
func (s Snapshot) wantLabel(m *matcher, vain int) {
	if vain < s.store.cache.cfg.LabelsFrom || len(s.image.labels) >= mostLabels {
		return
	}
	for i := range m.labels {
		t := &m.labels[i]
		known := slices.ContainsFunc(s.image.labels, func(l labelIndex) bool { return l.label == t.key })
		if t.fixed() && !known && s.store.wanted.want(t.key, vain, s.Len()) {
			s.store.indexLabel(t.key)
			return
		}
	}
}

// indexLabel puts the objects that have a label into a tree, from a state that nobody changes;
// what has changed meanwhile is brought after.
func (s *Store) indexLabel(label unique.Handle[string]) {
	s = s.latest()
	im := s.Snapshot().image
	l := labelIndex{label, newTree(), &atomic.Int64{}}
	l.used.Store(s.cache.now())
	byValue := map[string][]*Entry{} // in the order of keys
	im.entries.Scan(func(e *Entry) bool {
		if v, ok := e.label(label); ok {
			byValue[v] = append(byValue[v], e)
		}
		return true
	})
	for _, v := range slices.Sorted(maps.Keys(byValue)) {
		for _, e := range byValue[v] {
			l.tree.Load(indexed{v, e})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.live
	if im.era != live.era || im.loads != live.loads || im.last < s.log.floor || len(live.labels) >= mostLabels ||
		slices.ContainsFunc(live.labels, func(l labelIndex) bool { return l.label == label }) {
		return
	}
	brought := map[string]bool{}
	for seq := s.log.after(im.last); seq < s.log.next; seq++ {
		r := s.log.at(seq)
		e := r.entry
		if e == nil {
			e = r.prev
		}
		if !brought[e.Key] {
			brought[e.Key] = true
			was, _ := im.get(e.Key)
			is, _ := live.get(e.Key) // records may have less
			l.replace(was, is)
		}
	}
	live.labels = append(slices.Clip(live.labels), l)
	s.published.Store(nil)
}

// forgetLabels forgets trees that nobody uses. The caller holds mu.
func (s *Store) forgetLabels(now int64) {
	s.wanted.fade()
	unused := func(l labelIndex) bool { return now-l.used.Load() > int64(labelKeptFor) }
	if slices.ContainsFunc(s.live.labels, unused) {
		s.live.labels = slices.DeleteFunc(slices.Clone(s.live.labels), unused)
		s.published.Store(nil)
	}
}
