package watchcache

import (
	"context"
	"sync"
	"sync/atomic"

	"binnacle/services/apiserver/internal/cache/valuedict"
	"binnacle/services/apiserver/internal/storage"
)

// Resource describes a resource to the cache.
type Resource struct {
	// Name is the name of the resource and its group, such as "pods" or "deployments.apps".
	Name string
	// Prefix is the prefix of all its keys, such as "/registry/pods/".
	Prefix string
	// Outline, if set, extracts from a value the part that most readers need, encoded like a value.
	// It returns the value itself if it cannot extract it. The outline is read once, instead of the
	// value. Outline must not call the cache.
	Outline func(value []byte) []byte
	// Attributes reads the attributes for selectors from the outline. Its error states why the
	// value is no object. It must not keep parts of value, nor call the cache.
	Attributes func(key string, value []byte) (Attributes, error)
	// Index holds the fields by which lists and watchers are indexed, in addition to namespace and
	// name.
	Index []string
	// Defines, if set, reads from an outline the resource that the value defines. It returns false
	// if the value defines none. It must depend on nothing else, nor keep parts of the value, nor
	// call the cache.
	Defines func(value []byte) (Resource, bool)
	// Packed keeps large values compressed beside their outlines. It suits values that are rarely
	// read and repetitive.
	Packed bool
	// Verbatim keeps values as they are stored, without a shared dictionary.
	Verbatim bool
	// Variant distinguishes definitions of a resource that differ for the cache. A resource with a
	// new variant starts again.
	Variant string
}

// Store is the part of the cache for one resource.
type Store struct {
	resource Resource
	cache    *Cache
	metrics  *storeMetrics
	// pending holds the changes of the current batch, under Cache.mu.
	pending []change

	mu     sync.RWMutex // after Cache.mu; before group.mu and ring.mu
	live   *image       // changed in place; copied for readers
	log    eventLog
	groups groups
	// watchers holds all open watchers.
	watchers map[*Watcher]struct{}
	ended    error // why watchers end; nil while the store is alive
	// next is the store that replaced this one for the same resource.
	next atomic.Pointer[Store]
	// gone means that the resource is no longer in the cache.
	gone atomic.Bool
	// abandoned means that the store shows a discarded history. era counts histories and changes
	// under mu.
	abandoned    bool
	era          atomic.Uint64
	kept         []*keptImage
	dictionaries valuedict.Pool
	// values is the size in bytes of all values of the resource, and coming the size that may be
	// added.
	values, coming atomic.Int64
	bound          atomic.Pointer[kept] // with the most recently used dictionary
	wanted         wantedLabels
	// forgot means that the log dropped records since the last check for lost watchers.
	forgot atomic.Bool

	// published is a copy of live that readers share until the next change.
	published atomic.Pointer[image]
}

// change is an event of a store with its decoded entry.
type change struct {
	key      string
	revision int64
	entry    *Entry // nil for a deletion
}

func newStore(c *Cache, r Resource) *Store {
	return &Store{resource: r, cache: c, metrics: c.metrics.ofStore(&r), live: newImage(r.Index, c.Era())}
}

// Era returns the era of the cache.
func (s *Store) Era() uint64 { return s.cache.Era() }

// Ready reports whether the contents are loaded. Before that the store is empty.
func (s *Store) Ready() bool { return s.cache.Ready() }

// WaitReady blocks until the contents are loaded.
func (s *Store) WaitReady(ctx context.Context) error { return s.cache.WaitReady(ctx) }

// Gone reports whether the resource has left the cache. Its contents do not change any more. It
// stays true.
func (s *Store) Gone() bool { return s.latest().gone.Load() }

// Name returns the name of the resource.
func (s *Store) Name() string { return s.resource.Name }

// Prefix returns the prefix of the keys of the resource.
func (s *Store) Prefix() string { return s.resource.Prefix }

// Variant returns the variant of the resource. A store that replaces this one has another variant.
func (s *Store) Variant() string { return s.resource.Variant }

// Defines reads from an entry the resource that it defines.
func (s *Store) Defines(e *Entry) (Resource, bool) { return s.resource.Defines(e.Outline()) }

// Get returns the newest entry of a key.
func (s *Store) Get(key string) (*Entry, bool) {
	s = s.latest()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live.get(key)
}

// Entry returns an entry of a value that was read from the store directly. It is not part of the
// cache, and its encodings are not kept.
func (s *Store) Entry(kv storage.KeyValue) *Entry {
	return newEntry(&s.resource, nil, kv, s.resource.outline(kv.Value))
}

// Snapshot returns the newest state.
func (s *Store) Snapshot() Snapshot {
	for {
		// The order matters: the image is read after the revision, so it contains everything that
		// the cache had applied at that revision.
		era, revision := s.era.Load(), s.cache.Revision()
		s = s.latest()
		im := s.published.Load()
		if im == nil {
			s.mu.Lock()
			im = s.publish()
			s.mu.Unlock()
		}
		if s.era.Load() == era { // otherwise the revision may belong to another history
			return Snapshot{store: s, image: im, revision: max(revision, im.last)}
		}
	}
}

// follow registers a watcher. The caller holds mu.
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

// apply makes the pending changes visible and returns the wake-ups that are due. The caller holds
// Cache.mu.
func (s *Store) apply(now int64, fired []*wake) []*wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published.Store(nil)
	for _, ch := range s.pending {
		old, _ := s.live.get(ch.key)
		if old == nil && ch.entry == nil {
			continue // deleted before the cache saw it
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

// reset replaces all contents by a loaded state. Watchers lose the changes before revision. The
// caller holds Cache.mu.
func (s *Store) reset(im *image, revision int64, fired []*wake) []*wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	fired = s.groups.fireAll(s.log.next, fired)
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

// end ends all watchers and rejects new ones. The caller holds Cache.mu.
func (s *Store) end(err error, fired []*wake) []*wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return fired
	}
	s.ended = err
	return s.groups.fireAll(s.log.next, fired)
}
