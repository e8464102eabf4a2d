package watchcache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/sorted"
	"binnacle/services/apiserver/internal/cache/encodings"
	"binnacle/services/apiserver/internal/cache/memory"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/sharedreads"
	"binnacle/services/apiserver/internal/cache/watchgroup"
	"binnacle/services/apiserver/internal/storage"
)

// RevisionReader reads the newest revision of the store linearizably. It returns
// *storage.ReplacedError if the store's history does not contain a position that the cache had
// reached before the call.
type RevisionReader interface {
	VerifyHistory(ctx context.Context, at storage.Position) (int64, error)
}

// HistoryReader reads a key as of a revision, and the store's current revision. Its errors are
// those of storage.Interface.
type HistoryReader interface {
	Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error)
}

// Config configures a Cache. Source and CurrentRevision are required. Zero values of the other
// fields mean the Default constants, no logging, unregistered metrics and the wall clock.
type Config struct {
	Source          Source
	CurrentRevision RevisionReader
	// HistoryReader reads values that history has dropped. Without it, watches that need such a
	// value end.
	HistoryReader HistoryReader
	// Root is the prefix of all keys.
	Root      string
	Resources []ResourceConfig
	// LoadsHistory means that Source.Load may read an older state, at which history starts. The
	// cache becomes ready only when it is current.
	LoadsHistory bool
	// Memory bounds the memory for history, encodings and older states.
	Memory *memory.Budget
	// LogEvents bounds the history of one resource, in changes. 0 means no bound.
	LogEvents int
	// HistoryBytes bounds the values that only history keeps, for all resources together. 0 means
	// the limit of Memory.
	HistoryBytes int64
	// LogAge is how long changes are kept within these bounds.
	LogAge time.Duration
	// LabelsFrom is how many objects a list by a label must inspect without a match before they are
	// counted. Labels that are listed repeatedly get an index.
	LabelsFrom int
	// ConfirmEvery is the interval of checks whether the store's revision went backwards while
	// nothing else would show it.
	ConfirmEvery time.Duration
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
	Now          func() time.Time
}

// Defaults for zero values in Config.
const (
	DefaultRoot   = "/registry/"
	DefaultLogAge = 5 * time.Minute
	// DefaultLabelsFrom is below the cost of a scan that users notice.
	DefaultLabelsFrom = 1000
)

// complete validates the configuration and sets defaults.
func (c Config) complete() (Config, error) {
	if c.Source == nil || c.CurrentRevision == nil {
		return c, errors.New("watch cache needs a source of changes and of the newest revision")
	}
	if c.Root == "" {
		c.Root = DefaultRoot
	}
	if c.Memory == nil {
		c.Memory = memory.New(memory.Default, nil)
	}
	if c.HistoryBytes == 0 {
		c.HistoryBytes = c.Memory.PartLimit()
	}
	if c.LogAge == 0 {
		c.LogAge = DefaultLogAge
	}
	if c.LabelsFrom == 0 {
		c.LabelsFrom = DefaultLabelsFrom
	}
	if c.ConfirmEvery == 0 {
		c.ConfirmEvery = DefaultConfirmEvery
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, nil
}

// Cache is the in-memory image of all keys below the root.
type Cache struct {
	config         Config
	clockOrigin    time.Time // the origin of now
	ring           *encodings.Ring
	plainEncoding  *objects.ValueEncoding // for entries whose values are kept as stored
	sealedEncoding *objects.ValueEncoding // the same for values that the store encrypts
	history        *memory.Quota          // the logs of all stores
	images         *memory.Quota
	metrics        *metrics
	pinned         objects.PinnedValues
	routes         atomic.Pointer[routes]
	revision       atomic.Int64 // applied to every store
	entries        atomic.Uint64
	started        atomic.Bool
	loaded         chan struct{} // closed once a state is loaded
	ready          readiness     // set once the state is current
	incarnation    atomic.Uint64 // changed under mu
	position       position
	// confirmed means that the store's history was confirmed recently.
	confirmed     atomic.Bool
	life          context.Context // ends when Run ends
	cancelLife    context.CancelFunc
	revisionWaits revisionWaits
	newest        *sharedreads.Newest
	historyReads  *sharedreads.HistoryReads
	// lostCheck signals that a log dropped records that a watcher may need.
	lostCheck chan struct{}

	loadedOnce sync.Once

	mu    sync.Mutex // before all other locks
	loads int        // how often the full state was loaded
	// reloading means that the history of the previous incarnation is discarded and the current
	// incarnation is not loaded yet. stopFollowing ends the running Follow.
	reloading     bool
	stopFollowing context.CancelFunc
	// defined holds the stores of resources that entries define, by the keys of those entries.
	defined map[string]*Store
	// unclaimed holds values whose keys belong to no known resource.
	unclaimed     sorted.Map[string, storage.KeyValue]
	changedStores []*Store           // scratch of apply
	wakes         []*watchgroup.Wake // scratch of apply
}

// New returns a cache. It does nothing before Run.
func New(cfg Config) (*Cache, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	cache := &Cache{
		config:      cfg,
		clockOrigin: cfg.Now().Add(-1),
		ring:        encodings.NewRing(cfg.Memory),
		history:     cfg.Memory.History("history"),
		loaded:      make(chan struct{}),
		unclaimed:   sorted.NewMap[string, storage.KeyValue](),
		defined:     map[string]*Store{},
	}
	cache.plainEncoding = objects.NewValueEncoding(cache.ring, false)
	cache.sealedEncoding = objects.NewValueEncoding(cache.ring, true)
	cache.ready.changed = make(chan struct{})
	cache.images = cfg.Memory.Cache("images", imagesShare, cache.shrinkImages)
	cache.life, cache.cancelLife = context.WithCancel(context.Background())
	cache.newest = sharedreads.NewNewest(cache.readNewest)
	cache.historyReads = sharedreads.NewHistoryReads(cache.readDroppedFromStore)
	cache.revisionWaits.progressWanted = make(chan struct{}, 1)
	cache.lostCheck = make(chan struct{}, 1)
	cache.metrics = newMetrics(cache)
	cache.routes.Store(&routes{sorted.NewMap[string, *Store](), sorted.NewMap[string, *Store]()})
	for _, r := range cfg.Resources {
		if _, err := cache.addResource(r, 0); err != nil {
			return nil, err
		}
	}
	if err := cfg.Registerer.Register(cache.metrics); err != nil {
		return nil, fmt.Errorf("register metrics of the watch cache: %w", err)
	}
	return cache, nil
}

// Ready reports whether the cache has been loaded and has been current since. It is false while the
// cache reloads because the store's revision went backwards.
func (c *Cache) Ready() bool { return c.ready.ready.Load() }

// WaitReady blocks until the cache is ready.
func (c *Cache) WaitReady(ctx context.Context) error {
	select {
	case <-c.ready.channel():
		return nil
	case <-c.life.Done():
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Revision returns the revision up to which all changes have been applied.
func (c *Cache) Revision() int64 { return c.revision.Load() }

// Store returns the store of a resource by its name or prefix, or nil if there is none.
func (c *Cache) Store(nameOrPrefix string) *Store {
	r := c.routes.Load()
	if s := r.withName(nameOrPrefix); s != nil {
		return s
	}
	return r.withPrefix(nameOrPrefix)
}

// makeEntry returns the entry of a stored value. A corrupt value gets an entry too, so that it
// can be reported and deleted.
func (c *Cache) makeEntry(s *Store, kv storage.KeyValue) *objects.Entry {
	return c.assignID(s, c.decodeEntry(s, kv))
}

// decodeEntry returns an entry without an ID. A value that the store encrypts is kept separately,
// so that no part of it is in a shared text that outlives it.
func (c *Cache) decodeEntry(s *Store, kv storage.KeyValue) *objects.Entry {
	summary := s.resource.summaryOf(kv.Value)
	k := c.plainEncoding
	if kv.Seal != nil {
		k = c.sealedEncoding
	}
	e := objects.NewEntry(kv, s.resource.Prefix, summary, s.resource.Attributes, k)
	if s.resource.Packed {
		e.Compress(summary)
	} else if !s.resource.Verbatim && kv.Seal == nil {
		s.packer.Pack(e, s.values.Load()+s.pendingBytes.Add(int64(e.ValueMemory())))
	}
	return e
}

// assignID assigns the entry its ID, and logs an entry that cannot be read.
func (c *Cache) assignID(s *Store, e *objects.Entry) *objects.Entry {
	e.AssignID(c.entries.Add(1))
	if err := e.Corrupt(); err != nil && s.metrics.corruptValues.Add(1) <= maxCorruptLogged {
		c.config.Logger.Error("Stored value cannot be read", "key", e.Key(), "revision", e.Revision, "error", err)
	}
	return e
}

// maxCorruptLogged bounds the log messages about corrupt values of one resource.
const maxCorruptLogged = 20

// releaseEntry records that the cache does not refer to an entry any more. The entry may be nil.
func (c *Cache) releaseEntry(e *objects.Entry) {
	e.Retire()
	c.pinned.Add(e)
}

// now returns the nanoseconds since a time before the cache was created. It is monotonic, so
// changes of the wall clock do not affect the age of history.
func (c *Cache) now() int64 { return int64(c.config.Now().Sub(c.clockOrigin)) }

// routes maps keys to stores. It is replaced, never changed. A replacement shares what does not
// differ, because thousands of resources may be added one by one.
type routes struct{ byName, byPrefix sorted.Map[string, *Store] }

// copy returns routes that can be changed until they are published. The caller holds Cache.mu.
func (r *routes) copy() *routes { return &routes{r.byName.Copy(), r.byPrefix.Copy()} }

// with returns routes that also contain a store.
func (r *routes) with(s *Store) *routes {
	n := r.copy()
	n.byName.Set(s.resource.Name, s)
	n.byPrefix.Set(s.resource.Prefix, s)
	return n
}

// without returns routes that do not contain a store.
func (r *routes) without(s *Store) *routes {
	n := r.copy()
	n.byName.Delete(s.resource.Name)
	n.byPrefix.Delete(s.resource.Prefix)
	return n
}

// withName returns the store of a resource, or nil.
func (r *routes) withName(name string) *Store {
	s, _ := r.byName.Get(name)
	return s
}

// withPrefix returns the store with a prefix, or nil.
func (r *routes) withPrefix(prefix string) *Store {
	s, _ := r.byPrefix.Get(prefix)
	return s
}

// all iterates over the stores in the order of their names.
func (r *routes) all() iter.Seq[*Store] {
	return func(yield func(*Store) bool) {
		r.byName.Scan(func(_ string, s *Store) bool { return yield(s) })
	}
}

// overlaps reports whether a resource would share its name or keys with another.
func (r *routes) overlaps(res *ResourceConfig) bool {
	if r.withName(res.Name) != nil {
		return true
	}
	for i := range res.Prefix {
		if res.Prefix[i] == '/' && r.withPrefix(res.Prefix[:i+1]) != nil {
			return true
		}
	}
	below := false
	r.byPrefix.Ascend(res.Prefix, func(prefix string, _ *Store) bool {
		below = strings.HasPrefix(prefix, res.Prefix)
		return false
	})
	return below
}

// storeOfKey returns the store of a key below root, or nil.
func (r *routes) storeOfKey(root, key string) *Store {
	for end := len(root); end < len(key); {
		i := strings.IndexByte(key[end:], '/')
		if i < 0 {
			return nil
		}
		end += i + 1
		if s := r.withPrefix(key[:end]); s != nil {
			return s
		}
	}
	return nil
}

// Source provides one ordered, gapless stream of everything below the root. The cache keeps the
// keys and values, so they must not be parts of larger buffers.
type Source interface {
	// Load reads everything at one revision and passes it to page in the order of the keys. It
	// returns the revision and the identity of the store.
	Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Position, error)
	// Follow delivers the changes after a position in order, until ctx ends, apply fails or the
	// stream is lost. It returns *storage.CompactedError if the revision is no longer kept, and
	// *storage.ReplacedError if the store has another history. Batches may overlap with earlier
	// ones.
	Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error
	// Progress requests a batch that carries the current revision even if nothing changes. It does
	// not wait for the batch.
	Progress(ctx context.Context) error
}

// Errors without details.
var (
	// ErrNotReady: the cache is not loaded, or is reloading.
	ErrNotReady = errors.New("watch cache is not loaded")
	// ErrClosed: the watcher was closed by its owner.
	ErrClosed = errors.New("watcher is closed")
	// ErrStopped: the cache ended, or the resource was removed from it.
	ErrStopped = errors.New("watch cache of the resource is stopped")

	errReplaced = errors.New("the store was restored to an older revision")
)

// ExpiredError reports that a revision is older than the kept history.
type ExpiredError struct {
	// Revision is the lost position.
	Revision int64
	// OldestRevision is the oldest revision from which history is complete.
	OldestRevision int64
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("too old resource version: %d (%d)", e.Revision, e.OldestRevision)
}

// DuplicateError reports that two resources claim the same name or prefix.
type DuplicateError struct{ Name, Prefix string }

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("resource %q or prefix %q is in the watch cache already", e.Name, e.Prefix)
}
