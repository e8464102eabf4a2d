package watchcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/btree"

	"binnacle/services/apiserver/internal/memory"
	"binnacle/services/apiserver/internal/storage"
)

// Newest reads the store's newest revision, linearizably. *storage.ReplacedError
// tells that the store's history does not go through a place where the cache was
// before the call.
type Newest interface {
	Confirm(ctx context.Context, at storage.Place) (int64, error)
}

// Older reads a key as it was at a revision, and the store's revision; errors are
// those of storage.Interface.
type Older interface {
	Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error)
}

// Config says how a Cache is made. Source and Newest are required; zero values
// of the rest mean the Default constants, no logging, metrics that nobody sees,
// and the time.
type Config struct {
	Source Source
	Newest Newest
	// Older reads values that history had to give up. Without it, watches that
	// would be told of them end.
	Older Older
	// Root is what all keys begin with.
	Root      string
	Resources []Resource
	// LoadsHistory tells that Source.Load may read an older state, with which
	// history begins: the cache is ready only once it is current.
	LoadsHistory bool
	// Memory bounds what is kept of history, encodings and older states.
	Memory *memory.Budget
	// LogEvents bounds the history of one resource, in changes; 0 does not.
	LogEvents int
	// HistoryBytes bounds the values that are kept for history alone, of all
	// resources together; 0 means what Memory allows.
	HistoryBytes int64
	// LogAge is how long changes are kept within these bounds.
	LogAge time.Duration
	// LabelsFrom is how many objects are looked at in vain, for one list by a label, from which
	// on it counts that they were: what is asked for so, again and again, gets an index.
	LabelsFrom int
	// ConfirmEvery is how often it is looked whether the store went back, when
	// nothing else would show it.
	ConfirmEvery time.Duration
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
	Now          func() time.Time
}

// What zero values in Config mean.
const (
	DefaultRoot   = "/registry/"
	DefaultLogAge = 5 * time.Minute
	// DefaultLabelsFrom is less than a scan that anybody notices.
	DefaultLabelsFrom = 1000
)

func (c Config) complete() (Config, error) {
	if c.Source == nil || c.Newest == nil {
		return c, errors.New("watch cache needs a source of changes and of the newest revision")
	}
	if c.Root == "" {
		c.Root = DefaultRoot
	}
	if c.Memory == nil {
		c.Memory = memory.New(memory.Default, nil)
	}
	if c.HistoryBytes == 0 {
		c.HistoryBytes = c.Memory.Most()
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

// Cache is the image of everything below the root.
type Cache struct {
	cfg      Config
	began    time.Time // what now counts from
	ring     *ring
	plain    *kept        // of entries whose values are kept as they are
	sealed   *kept        // the same, of those that are sealed in the store
	history  *memory.Part // the logs of all stores
	images   *memory.Part
	metrics  *metrics
	pinned   pinned
	routes   atomic.Pointer[routes]
	revision atomic.Int64 // applied to every store
	entries  atomic.Uint64
	started  atomic.Bool
	loaded   chan struct{} // closed once there is a state
	ready    readiness     // that is current
	era      atomic.Uint64 // changed under mu
	position position
	// confirmed tells that the store's history was confirmed of late.
	confirmed atomic.Bool
	life      context.Context
	end       context.CancelFunc
	waits     waits
	reads     reads
	older     olderReads
	// forgotten tells that a log forgot records that a watcher may need.
	forgotten chan struct{}

	loadedOnce sync.Once

	mu    sync.Mutex // first of all
	loads int        // how often everything was loaded
	// reloading: the history of the era before is given up, and nothing of this one
	// is loaded yet. stopFollowing ends the Follow that runs.
	reloading     bool
	stopFollowing context.CancelFunc
	// defined are the stores of resources that entries define, by those entries' keys.
	defined map[string]*Store
	// unclaimed are values whose keys belong to no resource (yet).
	unclaimed btree.Map[string, storage.KeyValue]
	touched   []*Store // scratch of apply
	fired     []*wake  // scratch of apply
}

// New makes a cache. Nothing happens before Run.
func New(cfg Config) (*Cache, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	c := &Cache{cfg: cfg, began: cfg.Now().Add(-1), ring: newRing(cfg.Memory), history: cfg.Memory.History("history"), loaded: make(chan struct{}), defined: map[string]*Store{}}
	c.plain, c.sealed = &kept{ring: c.ring}, &kept{ring: c.ring, sealed: true}
	c.ready.ch = make(chan struct{})
	c.images = cfg.Memory.Cache("images", imagesShare, c.shrinkImages)
	c.life, c.end = context.WithCancel(context.Background())
	c.waits.poke = make(chan struct{}, 1)
	c.forgotten = make(chan struct{}, 1)
	c.metrics = newMetrics(c)
	c.routes.Store(newRoutes())
	for _, r := range cfg.Resources {
		if _, err := c.add(r, 0); err != nil {
			return nil, err
		}
	}
	if err := cfg.Registerer.Register(c.metrics); err != nil {
		return nil, fmt.Errorf("register metrics of the watch cache: %w", err)
	}
	return c, nil
}

// Ready tells whether the cache has been loaded and was current since. It is not
// while everything is loaded anew because the store went back.
func (c *Cache) Ready() bool { return c.ready.ok.Load() }

// WaitReady waits until the cache is ready.
func (c *Cache) WaitReady(ctx context.Context) error {
	select {
	case <-c.ready.wait():
		return nil
	case <-c.life.Done():
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Revision is the revision up to which every change has been applied.
func (c *Cache) Revision() int64 { return c.revision.Load() }

// Store returns the store of a resource, by its name or prefix; nil when there
// is none.
func (c *Cache) Store(nameOrPrefix string) *Store {
	r := c.routes.Load()
	if s := r.named(nameOrPrefix); s != nil {
		return s
	}
	return r.at(nameOrPrefix)
}

// entry makes an entry of a value that the store holds. One that cannot be read is
// kept, so that it can be told of and deleted.
func (c *Cache) entry(s *Store, kv storage.KeyValue) *Entry { return c.named(s, c.unnamed(s, kv)) }

// unnamed is an entry that has no ID yet. What is sealed in the store is kept for itself, so that
// nothing of it is in a text that outlives it.
func (c *Cache) unnamed(s *Store, kv storage.KeyValue) *Entry {
	outline := s.resource.outline(kv.Value)
	k := c.plain
	if kv.Seal != nil {
		k = c.sealed
	}
	e := newEntry(&s.resource, k, kv, outline)
	if s.resource.Packed {
		e.pack(outline)
	} else if !s.resource.Verbatim && !k.sealed {
		s.bind(e, s.values.Load()+s.coming.Add(int64(len(e.stored))))
	}
	return e
}

// named gives an entry its ID, and tells of one that cannot be read.
func (c *Cache) named(s *Store, e *Entry) *Entry {
	e.id |= c.entries.Add(1)
	if err := e.Unreadable(); err != nil && s.metrics.unreadable.Add(1) <= maxUnreadableLogged {
		c.cfg.Logger.Error("Stored value cannot be read", "key", e.Key(), "revision", e.Revision, "error", err)
	}
	return e
}

// maxUnreadableLogged bounds the messages about values of one resource.
const maxUnreadableLogged = 20

// now is the nanoseconds since a time before the cache was made. They pass as time does,
// whatever the wall clock is set to: ages of history are counted by them.
func (c *Cache) now() int64 { return int64(c.cfg.Now().Sub(c.began)) }

// release wakes watchers. No lock that they take may be held.
func release(fired []*wake) {
	for _, wk := range fired {
		wk.release()
	}
}
