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

// labelIndex is the objects that have a label. Which labels are asked for nobody says
// beforehand, so indexes of them are made, and forgotten, by use.
type labelIndex struct {
	valueIndex
	*labelUse
}

// label is the one that it is of.
func (l *labelIndex) label() unique.Handle[string] { return l.name.list[0] }

// labelUse is what an index was good for, of all copies.
type labelUse struct {
	used  atomic.Int64 // when it was last, in nanoseconds of the cache's clock
	saved atomic.Int64 // objects that were not looked at, of which those of long ago count less
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
		w.leave()
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

// leave makes room for one more, in the place of the one that was wanted least.
func (w *wantedLabels) leave() {
	var least unique.Handle[string]
	n := -1
	for label, vain := range w.vain {
		if n < 0 || vain < n {
			least, n = label, vain
		}
	}
	delete(w.vain, least)
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

// byLabel returns the tree that has the fewest objects of those that the selection may go through,
// with the value to look for, and how many have it whose keys begin with prefix.
func (im *image) byLabel(m *matcher, prefix string) (_ *labelIndex, value string, objects int) {
	if len(im.labels) == 0 || im.selectsDamaged(m) {
		return nil, "", 0
	}
	var best *labelIndex
	for i := range m.labels.list {
		t := &m.labels.list[i]
		v, ok := t.fixed()
		if !ok {
			continue
		}
		at := im.labelIndex(t.key)
		if at < 0 {
			continue
		}
		if n := im.labels[at].count(v, prefix); best == nil || n < objects {
			best, value, objects = &im.labels[at], v, n
		}
	}
	return best, value, objects
}

// count is how many objects have the value, of those whose keys begin with prefix.
func (l *labelIndex) count(value, prefix string) int {
	rank := func(key string) int {
		return sort.Search(l.tree.Len(), func(i int) bool {
			e, _ := l.tree.GetAt(i)
			v, _ := l.of(e)
			return v > value || v == value && e.Key() >= key
		})
	}
	return rank(prefixEnd(prefix)) - rank(prefix)
}

// below is ascend for those whose keys begin with prefix.
func (l *labelIndex) below(value, prefix, from string, fn func(*Entry) bool) {
	l.ascend(value, max(prefix, from), func(e *Entry) bool { return strings.HasPrefix(e.Key(), prefix) && fn(e) })
}

// wantLabel counts objects that a selection by labels went through in vain, and makes a tree when
// that is worth it.
func (s Snapshot) wantLabel(m *matcher, vain int) {
	if vain < s.store.cache.cfg.LabelsFrom {
		return
	}
	for i := range m.labels.list {
		t := &m.labels.list[i]
		if _, ok := t.fixed(); ok && !s.store.knowsLabel(t.key) && s.store.wanted.want(t.key, vain, s.Len()) {
			s.store.indexLabel(t.key, worthIndexing*s.Len())
			return
		}
	}
}

// knowsLabel tells whether a label has a tree: a state of before that shows none of it.
func (s *Store) knowsLabel(label unique.Handle[string]) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live.labelIndex(label) >= 0
}

// labelIndex is the place of the tree of a label, or -1.
func (im *image) labelIndex(label unique.Handle[string]) int {
	return slices.IndexFunc(im.labels, func(l labelIndex) bool { return l.label() == label })
}

// roomForLabel is where a tree may be put that would have saved looking at so many objects: behind
// the others, or in the place of one that saved less. It is -1 when all saved more. The caller
// holds mu.
func (s *Store) roomForLabel(worth int) int {
	least := len(s.live.labels)
	if least < mostLabels {
		return least
	}
	least = 0
	for i, l := range s.live.labels {
		if l.saved.Load() < s.live.labels[least].saved.Load() {
			least = i
		}
	}
	if s.live.labels[least].saved.Load() >= int64(worth) {
		return -1
	}
	return least
}

// indexLabel puts the objects that have a label into a tree, from a state that nobody changes;
// what has changed meanwhile is brought after. worth is how many objects were looked at in vain.
func (s *Store) indexLabel(label unique.Handle[string], worth int) {
	s = s.latest()
	s.mu.RLock()
	room := s.roomForLabel(worth)
	s.mu.RUnlock()
	if room < 0 {
		return
	}
	im := s.Snapshot().image
	l := labelIndex{newLabelIndex(label), &labelUse{}}
	l.used.Store(s.cache.now())
	byValue := map[string][]*Entry{} // in the order of keys
	im.entries.Scan(func(e *Entry) bool {
		if v, ok := l.of(e); ok {
			byValue[v] = append(byValue[v], e)
		}
		return true
	})
	for _, v := range slices.Sorted(maps.Keys(byValue)) {
		for _, e := range byValue[v] {
			l.tree.Load(e)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.live
	room = s.roomForLabel(worth)
	if s.abandoned || im.era != live.era || im.loads != live.loads || im.rebound != live.rebound || im.last < s.log.floor || room < 0 || live.labelIndex(label) >= 0 {
		return
	}
	brought := map[string]bool{}
	for seq := s.log.after(im.last); seq < s.log.next; seq++ {
		r := s.log.at(seq)
		e := r.entry
		if e == nil {
			e = r.prev
		}
		if !brought[e.Key()] {
			brought[e.Key()] = true
			was, _ := im.get(e.Key())
			is, _ := live.get(e.Key()) // records may have less
			l.replace(was, is)
		}
	}
	live.labels = append(slices.Clone(live.labels[:room]), append([]labelIndex{l}, live.labels[min(room+1, len(live.labels)):]...)...)
	s.published.Store(nil)
}

// forgetLabels forgets trees that nobody uses. The caller holds mu.
func (s *Store) forgetLabels(now int64) {
	s.wanted.fade()
	for _, l := range s.live.labels {
		l.saved.Store(l.saved.Load() / 2)
	}
	unused := func(l labelIndex) bool { return now-l.used.Load() > int64(labelKeptFor) }
	if slices.ContainsFunc(s.live.labels, unused) {
		s.live.labels = slices.DeleteFunc(slices.Clone(s.live.labels), unused)
		s.published.Store(nil)
	}
}
