package watchcache

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/valuedict"
	"binnacle/services/apiserver/internal/cache/watchgroup"
	"binnacle/services/apiserver/internal/storage"
)

// ResourceConfig describes a resource to the cache.
type ResourceConfig struct {
	// Name is the name of the resource and its group, such as "pods" or "deployments.apps".
	Name string
	// Prefix is the prefix of all its keys, such as "/registry/pods/".
	Prefix string
	// Summary, if set, extracts from a value the part that most readers need, encoded like a value.
	// It returns the value itself if it cannot extract it. The summary is read once, instead of the
	// value. Summary must not call the cache.
	Summary func(value []byte) []byte
	// Attributes reads the attributes for selectors from the summary. Its error states why the
	// value is no object. It must not keep parts of value, nor call the cache.
	Attributes func(key string, value []byte) (attributes.Attributes, error)
	// Index holds the fields by which lists and watchers are indexed, in addition to namespace and
	// name.
	Index []string
	// DefinedResource, if set, reads from a summary the resource that the value defines. It
	// returns false if the value defines none. It must depend on nothing else, nor keep parts of
	// the value, nor call the cache.
	DefinedResource func(value []byte) (ResourceConfig, bool)
	// Packed keeps large values compressed beside their summaries. It suits values that are rarely
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
	resource ResourceConfig
	cache    *Cache
	metrics  *storeMetrics
	// pending holds the changes of the current batch, under Cache.mu.
	pending []change

	mu     sync.RWMutex   // after Cache.mu; before group.mu and ring.mu
	live   *objects.Image // changed in place; copied for readers
	log    objects.Log
	groups watchgroup.Groups
	// watchers holds all open watchers.
	watchers map[*Watcher]struct{}
	ended    error // why watchers end; nil while the store is alive
	// replacement is the store that replaced this one for the same resource.
	replacement atomic.Pointer[Store]
	// gone means that the resource is no longer in the cache.
	gone atomic.Bool
	// discarded means that the store shows a discarded history. incarnation counts histories and
	// changes under mu.
	discarded    bool
	incarnation  atomic.Uint64
	cachedImages []*cachedImage
	packer       *objects.Packer
	// values is the size in bytes of all values of the resource, and pendingBytes the size that may
	// be added.
	values, pendingBytes atomic.Int64
	labelMisses          objects.LabelMisses
	// lostCheckDue means that the log dropped records since the last check for lost watchers.
	lostCheckDue atomic.Bool

	// published is a copy of live that readers share until the next change.
	published atomic.Pointer[objects.Image]
}

// change is an event of a store with its decoded entry.
type change struct {
	key      string
	revision int64
	entry    *objects.Entry // nil for a deletion
}

// newStore returns an empty store of a resource.
func newStore(c *Cache, r ResourceConfig) *Store {
	return &Store{
		resource: r,
		cache:    c,
		metrics:  c.metrics.newStoreMetrics(&r),
		live:     c.newImage(&r, c.Incarnation()),
		packer:   objects.NewPacker(c.ring),
	}
}

// newImage returns an empty image of a resource in an incarnation.
func (c *Cache) newImage(r *ResourceConfig, incarnation uint64) *objects.Image {
	return objects.NewImage(objects.ImageOptions{Prefix: r.Prefix, Index: r.Index, Incarnation: incarnation, Now: c.now})
}

// Incarnation returns the incarnation of the cache.
func (s *Store) Incarnation() uint64 { return s.cache.Incarnation() }

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

// DefinedResource reads from an entry the resource that it defines.
func (s *Store) DefinedResource(e *objects.Entry) (ResourceConfig, bool) {
	return s.resource.DefinedResource(e.Summary())
}

// Get returns the newest entry of a key.
func (s *Store) Get(key string) (*objects.Entry, bool) {
	s = s.latest()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live.Get(key)
}

// Entry returns an entry of a value that was read from the store directly. It is not part of the
// cache, and its encodings are not kept.
func (s *Store) Entry(kv storage.KeyValue) *objects.Entry {
	return objects.NewEntry(kv, s.resource.Prefix, s.resource.summaryOf(kv.Value), s.resource.Attributes, nil)
}

// Snapshot returns the newest state.
func (s *Store) Snapshot() Snapshot {
	for {
		// The order matters: the image is read after the revision, so it contains everything that
		// the cache had applied at that revision.
		incarnation, revision := s.incarnation.Load(), s.cache.Revision()
		s = s.latest()
		im := s.published.Load()
		if im == nil {
			s.mu.Lock()
			im = s.publish()
			s.mu.Unlock()
		}
		if s.incarnation.Load() == incarnation { // otherwise the revision may belong to another history
			return Snapshot{store: s, image: im, revision: max(revision, im.Last)}
		}
	}
}

// publish returns the image that readers share. The caller holds mu.
func (s *Store) publish() *objects.Image {
	im := s.published.Load()
	if im == nil {
		im = s.live.Copy()
		s.published.Store(im)
	}
	return im
}

// apply makes the pending changes visible and returns the wake-ups that are due. The caller holds
// Cache.mu.
func (s *Store) apply(now int64, wakes []*watchgroup.Wake) []*watchgroup.Wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published.Store(nil)
	for _, applied := range s.pending {
		old, _ := s.live.Get(applied.key)
		if old == nil && applied.entry == nil {
			continue // deleted before the cache saw it
		}
		if old != nil && applied.entry != nil {
			applied.entry.ShareText(old)
		}
		if applied.entry != nil {
			applied.entry.RecordPrevious(old)
		}
		s.live.Replace(old, applied.entry)
		s.live.Last = applied.revision
		r := &objects.Record{Revision: applied.revision, AppliedAt: now, Entry: applied.entry, Prev: old}
		seq := s.log.Next
		s.dropExpired(now)
		s.log.Append(r)
		s.cache.history.Add(r.Size())
		s.dropColdEncodings()
		wakes = s.groups.TakeWakes(r, seq, s.resource.Index, wakes)
	}
	s.values.Store(s.live.Stored)
	s.pendingBytes.Store(0)
	s.metrics.received.Add(uint64(len(s.pending)))
	clear(s.pending)
	s.pending = s.pending[:0]
	return wakes
}

// reset replaces all contents by a loaded state. Watchers lose the changes before revision. The
// caller holds Cache.mu.
func (s *Store) reset(image *objects.Image, revision int64, wakes []*watchgroup.Wake) []*watchgroup.Wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	wakes = s.groups.TakeAllWakes(s.log.Next, wakes)
	s.dropRecords(s.log.Len())
	s.log.Restart(revision, s.cache.now())
	s.discarded = false
	s.scheduleLostCheck()
	s.releaseRemoved(s.live, image)
	s.live = image
	s.values.Store(image.Stored)
	s.pendingBytes.Store(0)
	s.published.Store(nil)
	s.dropImages(func(*cachedImage) bool { return true })
	s.metrics.initializations.Add(1)
	return wakes
}

// terminate terminates all watchers and rejects new ones. The caller holds Cache.mu.
func (s *Store) terminate(err error, wakes []*watchgroup.Wake) []*watchgroup.Wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return wakes
	}
	s.ended = err
	return s.groups.TakeAllWakes(s.log.Next, wakes)
}

// rebindBatch is how many entries are replaced under one lock.
const rebindBatch = 256

// worthKeeping is how many times its own memory a dictionary must save. A dictionary of values that
// have nothing in common any more saves as much as it takes.
const worthKeeping = 2

// compactDictionaries releases unused memory of the dictionaries. It also empties the dictionary
// that saves least, if it blocks a new one and is not worth keeping.
func (s *Store) compactDictionaries() {
	blocking := s.packer.Compact(s.values.Load())
	if len(blocking) == 0 {
		return
	}
	saved := map[*valuedict.Dictionary]int64{} // only dictionaries in use
	image := s.Snapshot().image
	image.Scan(func(e *objects.Entry) bool {
		if dict := e.Dictionary(); dict != nil && slices.Contains(blocking, dict) {
			saved[dict] += int64(e.Size() - e.ValueMemory())
		}
		return true
	})
	var least *valuedict.Dictionary
	for dict, n := range saved {
		if least == nil || n < saved[least] {
			least = dict
		}
	}
	if least == nil || saved[least] >= worthKeeping*least.Bytes() {
		return
	}
	var bound []*objects.Entry
	image.Scan(func(e *objects.Entry) bool {
		if e.Dictionary() == least {
			bound = append(bound, e)
		}
		return true
	})
	for len(bound) > 0 {
		n := min(rebindBatch, len(bound))
		s.replaceDictionary(bound[:n])
		bound = bound[n:]
	}
}

// replaceDictionary replaces entries by equal ones with another dictionary. Entries that the log
// refers to stay until the log drops them.
func (s *Store) replaceDictionary(entries []*objects.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.discarded || s.ended != nil {
		return
	}
	s.live.Rebinds++
	for _, e := range entries {
		if current, _ := s.live.Get(e.Key()); current != e || s.log.Reaches(e.Revision) {
			continue
		}
		rebound := e.Verbatim(s.cache.plainEncoding)
		s.packer.Pack(rebound, s.live.Stored)
		s.live.Replace(e, rebound)
		e.DropEncodings() // a running load may put it back
		s.cache.pinned.Add(e)
	}
	s.published.Store(nil)
}

const (
	// warmEvents is how many changes ago an object must have been replaced for its encodings to be
	// dropped. Watchers that lag more encode again.
	warmEvents = 256
	// minLogEvents is how many records stay in a log regardless of their age.
	minLogEvents = 100
)

// dropExpired drops records that are too old, and one more if the log is full. The caller holds mu.
func (s *Store) dropExpired(now int64) {
	n := 0
	if maximum := s.cache.config.LogEvents; maximum > 0 {
		n = max(0, s.log.Len()+1-maximum)
	}
	for s.log.Len()-n > minLogEvents && now-s.log.Record(s.log.First+uint64(n)).AppliedAt > int64(s.cache.config.LogAge) {
		n++
	}
	s.dropRecords(n)
}

// dropRecords drops the n oldest records. The versions that they kept alive lose their encodings.
// The caller holds mu.
func (s *Store) dropRecords(n int) {
	if n == 0 {
		return
	}
	bytes := s.log.Bytes
	for range n {
		r := s.log.Evict()
		s.cache.releaseEntry(r.Prev)
		r.RetireTombstones()
		s.chargeImages(r)
	}
	s.cache.history.Add(s.log.Bytes - bytes)
	s.scheduleLostCheck()
}

// scheduleLostCheck schedules a check for watchers whose position was dropped. The caller holds mu.
func (s *Store) scheduleLostCheck() {
	if len(s.watchers) > 0 && !s.lostCheckDue.Swap(true) {
		s.cache.scheduleLostCheck()
	}
}

// releaseRemoved releases the entries of an image that its replacement does not contain. The caller
// holds mu.
func (s *Store) releaseRemoved(before, after *objects.Image) {
	before.Scan(func(e *objects.Entry) bool {
		if remaining, _ := after.Get(e.Key()); remaining != e {
			s.cache.releaseEntry(e)
		}
		return true
	})
}

// cleanUp does the periodic work that needs no change: it drops old records and releases memory.
func (s *Store) cleanUp(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired(now)
	s.log.Shrink()
	s.dropImages(func(k *cachedImage) bool { return s.isStale(k, now) })
	s.dropUnusedLabels(now)
}

// dropColdEncodings drops the encodings of versions that were replaced a while
// ago. The caller holds mu and has appended a record.
func (s *Store) dropColdEncodings() {
	if s.log.Len() <= warmEvents {
		return
	}
	s.log.Record(s.log.Next - 1 - warmEvents).DropEncodings()
}

// discardHistory drops the log of a store that is no longer used.
func (s *Store) discardHistory() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropRecords(s.log.Len())
	s.log.Shrink()
	s.dropImages(func(*cachedImage) bool { return true })
}

// summaryOf returns the summary of a value.
func (r *ResourceConfig) summaryOf(value []byte) []byte {
	if r.Summary == nil {
		return value
	}
	return r.Summary(value)
}
