package watchcache

import (
	"sync"
	"sync/atomic"

	"binnacle/services/apiserver/internal/phrases"
	"binnacle/services/apiserver/internal/storage"
)

// Resource says what the cache has to know of a resource.
type Resource struct {
	// Name is that of the resource and its group, such as "pods" or
	// "deployments.apps".
	Name string
	// Prefix is what all its keys begin with, such as "/registry/pods/".
	Prefix string
	// Outline, if set, reads from a value the part that most readers look at, in the
	// form of a value; the value itself where it cannot tell. It is read instead of the
	// value, once. It must not call the cache.
	Outline func(value []byte) []byte
	// Attributes reads what selectors look at, from the outline; its error is why the
	// value is no object. It must not keep parts of value, nor call the cache.
	Attributes func(key string, value []byte) (Attributes, error)
	// Index are the fields by whose values lists and watchers are indexed, in
	// addition to namespace and name.
	Index []string
	// Defines, if set, reads from an outline the resource that the value defines;
	// false when it defines none. It must depend on nothing else, nor keep parts of
	// the value, nor call the cache.
	Defines func(value []byte) (Resource, bool)
	// Packed keeps large values compressed, beside their outlines: they are read seldom,
	// and say much the same again and again.
	Packed bool
	// Verbatim keeps values as they are stored, not by what they have in common.
	Verbatim bool
	// Variant tells definitions of a resource apart that differ in what the cache has
	// to know. The resource begins anew with another one.
	Variant string
}

// Store is one resource's part of the cache.
type Store struct {
	resource Resource
	cache    *Cache
	metrics  *storeMetrics
	// pending are the changes of the batch at hand, under Cache.mu.
	pending []change

	mu     sync.RWMutex // after Cache.mu; before group.mu and ring.mu
	live   *image       // changed in place; copied for readers
	log    eventLog
	groups groups
	// watchers are all that have not been closed.
	watchers map[*Watcher]struct{}
	ended    error // why watchers end; nil while the store is alive
	// next is the store of the same resource that has taken this one's place.
	next atomic.Pointer[Store]
	// gone: the cache has no such resource any more.
	gone atomic.Bool
	// abandoned: what the store shows is of a history that is given up. era counts
	// those; it changes under mu.
	abandoned bool
	era       atomic.Uint64
	kept      []*keptImage
	shelf     phrases.Shelf
	// values is how many bytes the values of the resource have, and coming how many may be added.
	values, coming atomic.Int64
	bound          atomic.Pointer[kept] // with the book that was used last
	wanted         wantedLabels
	// forgot tells that the log forgot records since lost watchers were looked
	// for.
	forgot atomic.Bool

	// published is a copy of live that readers share until the next change.
	published atomic.Pointer[image]
}

// change is an event that belongs to a store, with its entry already made.
type change struct {
	key      string
	revision int64
	entry    *Entry // nil for a deletion
}

func newStore(c *Cache, r Resource) *Store {
	return &Store{resource: r, cache: c, metrics: c.metrics.ofStore(&r), live: newImage(r.Index, c.Era())}
}

// Era is that of the cache.
func (s *Store) Era() uint64 { return s.cache.Era() }

// Ready tells whether what is shown was loaded: before, nothing is there.
func (s *Store) Ready() bool { return s.cache.Ready() }

// Gone tells that the cache has the resource no more: nothing follows what it shows of it.
// It is so for good.
func (s *Store) Gone() bool { return s.latest().gone.Load() }

// Name is the resource's name.
func (s *Store) Name() string { return s.resource.Name }

// Prefix is what the resource's keys begin with.
func (s *Store) Prefix() string { return s.resource.Prefix }

// Variant is that of the resource, which is another one in the store that takes this one's place.
func (s *Store) Variant() string { return s.resource.Variant }

// Defines reads from an entry of the resource what it defines.
func (s *Store) Defines(e *Entry) (Resource, bool) { return s.resource.Defines(e.Outline()) }

// Get returns the newest entry of a key.
func (s *Store) Get(key string) (*Entry, bool) {
	s = s.latest()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live.get(key)
}

// Entry makes an entry of a value that was read from the store itself. It is
// not part of the cache, and its encodings are not kept.
func (s *Store) Entry(kv storage.KeyValue) *Entry {
	return newEntry(&s.resource, nil, kv, s.resource.outline(kv.Value))
}

// Snapshot returns the newest state.
func (s *Store) Snapshot() Snapshot {
	for {
		// In this order: whatever revision the cache has applied is in the image
		// that is read after it.
		era, revision := s.era.Load(), s.cache.Revision()
		s = s.latest()
		im := s.published.Load()
		if im == nil {
			s.mu.Lock()
			im = s.publish()
			s.mu.Unlock()
		}
		if s.era.Load() == era { // else the revision may be of another history
			return Snapshot{store: s, image: im, revision: max(revision, im.last)}
		}
	}
}

// follow takes a watcher up. The caller holds mu.
func (s *Store) follow(w *Watcher) {
	if s.watchers == nil {
		s.watchers = map[*Watcher]struct{}{}
	}
	s.watchers[w] = struct{}{}
}

// publish returns the image that readers share. The caller holds mu.
func (s *Store) publish() *image {
	im := s.published.Load()
	if im == nil {
		im = s.live.copy()
		s.published.Store(im)
	}
	return im
}

// apply makes the pending changes visible and returns the awakenings that are
// due. The caller holds Cache.mu.
func (s *Store) apply(now int64, fired []*wake) []*wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published.Store(nil)
	for _, ch := range s.pending {
		old, _ := s.live.get(ch.key)
		if old == nil && ch.entry == nil {
			continue // deleted before it was ever seen
		}
		if old != nil && ch.entry != nil {
			ch.entry.share(&old.compact)
		}
		if ch.entry != nil {
			ch.entry.follows(old)
		}
		s.live.replace(old, ch.entry)
		s.live.last = ch.revision
		r := &record{revision: ch.revision, at: now, entry: ch.entry, prev: old}
		seq := s.log.next
		s.makeRoom(now)
		s.log.append(r)
		s.cache.history.Add(r.size())
		s.cool()
		fired = s.groups.concern(r, seq, s.resource.Index, fired)
	}
	s.values.Store(s.live.stored)
	s.coming.Store(0)
	s.metrics.received.Add(uint64(len(s.pending)))
	clear(s.pending)
	s.pending = s.pending[:0]
	return fired
}

// reset replaces everything by a loaded state. What happened before revision
// is lost to watchers. The caller holds Cache.mu.
func (s *Store) reset(im *image, revision int64, fired []*wake) []*wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	fired = s.groups.everybody(s.log.next, fired)
	s.forget(s.log.len())
	s.log.restart(revision, s.cache.now())
	s.abandoned = false
	s.lookForLost()
	s.leave(s.live, im)
	s.live = im
	s.values.Store(im.stored)
	s.coming.Store(0)
	s.published.Store(nil)
	s.dropImages(func(*keptImage) bool { return true })
	s.metrics.initializations.Add(1)
	return fired
}

// end lets all watchers end and refuses new ones. The caller holds Cache.mu.
func (s *Store) end(err error, fired []*wake) []*wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return fired
	}
	s.ended = err
	return s.groups.everybody(s.log.next, fired)
}
