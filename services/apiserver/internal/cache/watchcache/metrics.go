package watchcache

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/cache/objects"
)

// storeMetrics holds the counters of a store. They are read when metrics are scraped, so a change
// needs no lookup.
type storeMetrics struct {
	// received counts changes. The cache makes each of them visible to watchers at once, so it is also the
	// number of dispatched ones.
	received, initializations, terminated   atomic.Uint64
	consistent, inconsistent, corruptValues atomic.Uint64
	returned                                atomic.Uint64
	stored                                  storedLists
	// forgottenEarly counts changes that left history before the retention limit, reduced the large
	// values that were removed from it. Both save memory.
	forgottenEarly, reduced atomic.Uint64
	// byIndex holds the tree of keys first, then the indexed fields in the order of
	// ResourceConfig.Index.
	byIndex []indexMetrics
	// wait is created on first use: it is large, and most resources are idle.
	wait func() prometheus.Observer
}

// revisionModulus limits the exported revision to 15 digits, which a float64 represents exactly.
const revisionModulus = 1e15

// storedLists counts lists that were read from the store.
type storedLists struct{ lists, fetched, evaluated, returned atomic.Uint64 }

// add counts a list.
func (l *storedLists) add(fetched, returned int) {
	l.lists.Add(1)
	l.fetched.Add(uint64(fetched))
	l.evaluated.Add(uint64(fetched))
	l.returned.Add(uint64(returned))
}

// ListedFromStore records a list that was read from the store instead of the cache: how many
// objects were fetched, and how many of them were returned.
func (s *Store) ListedFromStore(fetched, returned int) { s.metrics.stored.add(fetched, returned) }

// indexMetrics counts the lists that used one index, and the objects that they inspected.
type indexMetrics struct{ lists, fetched atomic.Uint64 }

// newStoreMetrics returns the counters of a resource.
func (m *metrics) newStoreMetrics(r *ResourceConfig) *storeMetrics {
	return &storeMetrics{
		byIndex: make([]indexMetrics, len(r.Index)+1),
		wait:    sync.OnceValue(func() prometheus.Observer { return m.wait.WithLabelValues(r.Name) }),
	}
}

// removeStore removes the metrics of a resource that left the cache.
func (m *metrics) removeStore(s *Store) { m.wait.DeleteLabelValues(s.resource.Name) }

// countList counts a list that used an index, and the objects that it inspected and returned.
func (m *storeMetrics) countList(index, fetched, returned int) {
	position := index - objects.NoIndex // 0 for the tree of keys, which is NoIndex
	used := &m.byIndex[position]
	used.lists.Add(1)
	used.fetched.Add(uint64(fetched))
	m.returned.Add(uint64(returned))
}

// metrics exports the cache to Prometheus under the names of Kubernetes.
type metrics struct {
	cache *Cache
	wait  *prometheus.HistogramVec
	// replacements of the store under the cache
	replacements atomic.Uint64
	// progress notifications of the source without changes
	progress atomic.Uint64

	received, dispatched, initializations, terminated     *prometheus.Desc
	consistent, corruptValues                             *prometheus.Desc
	lists, fetched, returned                              *prometheus.Desc
	revision, capacity, grown, shrunk                     *prometheus.Desc
	encodingBytes, encodings, evicted, logBytes           *prometheus.Desc
	watchers, groups, pinned, images                      *prometheus.Desc
	historySeconds, forgottenEarly, reduced, historyReads *prometheus.Desc
	replaced, corruptObjects                              *prometheus.Desc
	objects, storageEvents, bookmarks                     *prometheus.Desc
	storedLists, storedFetched, storedEvaluated           *prometheus.Desc
	storedReturned, valueBytes, retainedValueBytes        *prometheus.Desc
}

// newMetrics describes the metrics of a cache.
func newMetrics(cache *Cache) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &metrics{
		cache: cache,
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_watch_cache_read_wait_seconds",
			Help:    "[ALPHA] Time in seconds that reads waited for the watch cache to become fresh, by resource.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3},
		}, []string{"resource"}),
		received: desc("apiserver_watch_cache_events_received_total", "[ALPHA] Changes that the watch cache received.", "resource"),
		dispatched: desc("apiserver_watch_cache_events_dispatched_total",
			"[ALPHA] Changes that the watch cache made visible to watchers.", "resource"),
		initializations: desc("apiserver_watch_cache_initializations_total",
			"[ALPHA] Number of times the watch cache was loaded.", "resource"),
		terminated: desc("apiserver_terminated_watchers_total", "[ALPHA] Watchers that ended because they were too slow.", "resource"),
		consistent: desc("apiserver_watch_cache_consistent_read_total",
			"[ALPHA] Consistent reads from the watch cache.", "resource", "success", "fallback"),
		corruptValues: desc("binnacle_watch_cache_unreadable_values_total",
			"Stored values that could not be decoded when they were received.", "resource"),
		corruptObjects: desc("binnacle_watch_cache_damaged_objects", "Stored objects that cannot be decrypted or decoded.", "resource"),
		lists: desc("apiserver_cache_list_total",
			"[ALPHA] LIST requests served from the watch cache.", "resource_prefix", "index"),
		fetched: desc("apiserver_cache_list_fetched_objects_total",
			"[ALPHA] Objects read from the watch cache for LIST requests.", "resource_prefix", "index"),
		returned: desc("apiserver_cache_list_returned_objects_total",
			"[ALPHA] Objects returned from the watch cache for LIST requests.", "resource_prefix"),
		revision: desc("apiserver_watch_cache_resource_version",
			"[ALPHA] Revision of the watch cache, its 15 least significant digits.", "resource"),
		capacity: desc("watch_cache_capacity", "[ALPHA] Capacity of the watch cache in changes.", "resource"),
		grown: desc("watch_cache_capacity_increase_total",
			"[ALPHA] Number of times the capacity of the watch cache grew.", "resource"),
		shrunk: desc("watch_cache_capacity_decrease_total",
			"[ALPHA] Number of times the capacity of the watch cache shrank.", "resource"),
		encodingBytes: desc("binnacle_watch_cache_encoding_bytes", "Memory in bytes of cached encodings of objects."),
		encodings:     desc("binnacle_watch_cache_encodings", "Cached encodings of objects."),
		evicted: desc("binnacle_watch_cache_encodings_evicted_total",
			"Cached encodings evicted to stay within the memory limit."),
		watchers: desc("binnacle_watch_cache_watchers", "Watchers of a resource.", "resource"),
		groups: desc("binnacle_watch_cache_watcher_groups",
			"Groups of watchers of a resource with the same name, namespace or field value.", "resource"),
		logBytes: desc("binnacle_watch_cache_history_bytes", "Memory in bytes used only by history."),
		historySeconds: desc("binnacle_watch_cache_history_seconds",
			"Age in seconds of the oldest change in the history of a resource, up to the retention limit.",
			"resource"),
		forgottenEarly: desc("binnacle_watch_cache_history_forgotten_early_total",
			"Changes removed from history before the retention limit because of memory.", "resource"),
		reduced: desc("binnacle_watch_cache_history_reduced_total",
			"Large values removed from history because of memory. They are read from the store when needed.",
			"resource"),
		historyReads: desc("binnacle_watch_cache_history_reads_total", "Reads of values that were removed from history."),
		images: desc("binnacle_watch_cache_images_bytes",
			"Upper bound of the memory in bytes of older snapshots kept for further pages of lists."),
		replaced: desc("binnacle_watch_cache_store_replaced_total",
			"Number of times the store was found to be restored from a backup or replaced."),
		objects: desc("apiserver_storage_objects", "[STABLE] Stored objects, by resource.", "resource"),
		storageEvents: desc("apiserver_storage_events_received_total",
			"[ALPHA] Changes received from etcd or from other replicas, by resource.", "resource"),
		bookmarks: desc("etcd_bookmark_counts",
			"[ALPHA] Progress notifications without changes from the source, which all resources share.",
			"resource"),
		storedLists: desc("apiserver_storage_list_total", "[ALPHA] Lists read from the store, by resource.", "resource"),
		storedFetched: desc("apiserver_storage_list_fetched_objects_total",
			"[ALPHA] Objects read from the store for lists.", "resource"),
		storedEvaluated: desc("apiserver_storage_list_evaluated_objects_total",
			"[ALPHA] Objects read from the store and matched against the selectors of a list.", "resource"),
		storedReturned: desc("apiserver_storage_list_returned_objects_total",
			"[ALPHA] Objects read from the store that lists returned.", "resource"),
		valueBytes: desc("binnacle_watch_cache_value_bytes", "Size in bytes of the stored values of objects.", "resource"),
		retainedValueBytes: desc("binnacle_watch_cache_value_kept_bytes",
			"Memory in bytes used by the values of objects. Shared parts are kept once.", "resource"),
		pinned: desc("binnacle_watch_cache_pinned_bytes",
			"Estimated memory in bytes of object versions that have left the watch cache but are still referenced by responses and watches."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.wait.Describe(ch)
	for _, d := range []*prometheus.Desc{
		m.received, m.dispatched, m.initializations, m.terminated, m.consistent, m.corruptValues,
		m.lists, m.fetched, m.returned, m.revision, m.capacity, m.grown, m.shrunk,
		m.encodingBytes, m.encodings, m.evicted, m.logBytes,
		m.watchers, m.groups, m.pinned, m.images,
		m.historySeconds, m.forgottenEarly, m.reduced, m.historyReads, m.replaced, m.corruptObjects,
		m.objects, m.storageEvents, m.bookmarks, m.storedLists,
		m.storedFetched, m.storedEvaluated, m.storedReturned, m.valueBytes, m.retainedValueBytes,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.wait.Collect(out)
	for s := range m.cache.routes.Load().all() {
		m.collectStore(out, s)
	}
	size, count, evicted := m.cache.ring.Stats()
	gauge(out, m.encodingBytes, float64(size))
	gauge(out, m.encodings, float64(count))
	counter(out, m.evicted, evicted)
	gauge(out, m.logBytes, float64(m.cache.history.Used()))
	counter(out, m.replaced, m.replacements.Load())
	counter(out, m.historyReads, m.cache.historyReads.Count())
	gauge(out, m.images, float64(m.cache.images.Used()))
	gauge(out, m.pinned, float64(m.cache.pinned.Bytes()))
}

// collectStore emits the metrics of one resource.
func (m *metrics) collectStore(out chan<- prometheus.Metric, store *Store) {
	name, counters := store.resource.Name, store.metrics
	counter(out, m.received, counters.received.Load(), name)
	counter(out, m.dispatched, counters.received.Load(), name)
	counter(out, m.initializations, counters.initializations.Load(), name)
	counter(out, m.terminated, counters.terminated.Load(), name)
	counter(out, m.consistent, counters.consistent.Load(), name, "true", "false")
	counter(out, m.consistent, counters.inconsistent.Load(), name, "false", "false")
	counter(out, m.corruptValues, counters.corruptValues.Load(), name)
	prefix := store.metricPrefix()
	for i := range counters.byIndex {
		index := ""
		if i > 0 {
			index = "f:" + store.resource.Index[i-1]
		}
		counter(out, m.lists, counters.byIndex[i].lists.Load(), prefix, index)
		counter(out, m.fetched, counters.byIndex[i].fetched.Load(), prefix, index)
	}
	counter(out, m.returned, counters.returned.Load(), prefix)
	gauge(out, m.revision, float64(store.cache.Revision()%revisionModulus), name)
	counter(out, m.storageEvents, counters.received.Load(), name)
	gauge(out, m.bookmarks, float64(m.progress.Load()), name)
	counter(out, m.storedLists, counters.stored.lists.Load(), name)
	counter(out, m.storedFetched, counters.stored.fetched.Load(), name)
	counter(out, m.storedEvaluated, counters.stored.evaluated.Load(), name)
	counter(out, m.storedReturned, counters.stored.returned.Load(), name)
	store.mu.RLock()
	count := store.live.Len()
	capacity, grown, shrunk := store.log.Capacity(), store.log.Grown, store.log.Shrunk
	groups, watchers := store.groups.Stats()
	corruptObjects := store.live.CorruptCount()
	stored, retained := store.live.Stored, store.live.Memory
	depth := min(time.Duration(store.cache.now()-store.log.FloorAt), store.cache.config.LogAge)
	store.mu.RUnlock()
	gauge(out, m.objects, float64(count), name)
	gauge(out, m.historySeconds, depth.Seconds(), name)
	counter(out, m.forgottenEarly, counters.forgottenEarly.Load(), name)
	counter(out, m.reduced, counters.reduced.Load(), name)
	gauge(out, m.capacity, float64(capacity), name)
	counter(out, m.grown, grown, name)
	counter(out, m.shrunk, shrunk, name)
	gauge(out, m.corruptObjects, float64(corruptObjects), name)
	gauge(out, m.valueBytes, float64(stored), name)
	gauge(out, m.retainedValueBytes, float64(retained), name)
	gauge(out, m.watchers, float64(watchers), name)
	gauge(out, m.groups, float64(groups), name)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, v uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// metricPrefix returns the prefix below the root with its first and without its last slash.
func (s *Store) metricPrefix() string {
	belowRoot := strings.TrimPrefix(s.resource.Prefix, strings.TrimSuffix(s.cache.config.Root, "/"))
	return strings.TrimSuffix(belowRoot, "/")
}
