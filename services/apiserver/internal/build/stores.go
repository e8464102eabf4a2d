package build

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/libs/serving/health"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/olderversions"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/componentstatus"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
	"binnacle/services/apiserver/internal/storage/fanout"
	"binnacle/services/apiserver/internal/storage/memstore"
	"binnacle/services/apiserver/internal/storage/routed"
	"binnacle/services/apiserver/internal/storage/traced"
)

// stores holds the stores of all objects and the streams of their changes.
type stores struct {
	*mainStore
	root string // prefix of all keys
	// overrideClusters are etcd clusters that store some resources instead of the main store.
	// resourceClusters maps each of these resources to its cluster.
	overrideClusters clusters
	resourceClusters map[schema.GroupResource]*cluster
	fanout           *fanout.Fanout // change stream of the main store
	// values is the store of all objects in all clusters, with decrypted values.
	values              storage.Interface
	encryptionConfig    *encryption.Live
	encryptionResources *encryption.Resources
	olderVersions       *olderversions.Converter
}

// newStores opens the stores and creates their change streams. auditor may be nil.
func newStores(ctx context.Context, base *base, options *config.Options, catalogs *catalogs, auditor *audit.Auditor) (*stores, error) {
	main, err := newMainStore(ctx, base, &options.Etcd)
	if err != nil {
		return nil, err
	}
	result := &stores{
		mainStore:           main,
		root:                base.root,
		encryptionResources: encryption.NewResources(base.root+"/", catalogs.stored()),
		olderVersions:       olderversions.New(catalogs.catalog, catalogs.codec),
	}
	if result.overrideClusters, err = openClusters(base, &options.Etcd, catalogs); err != nil {
		return nil, err
	}
	result.resourceClusters = result.overrideClusters.resources(catalogs)
	if result.encryptionConfig, err = newEncryption(ctx, base, &options.Encryption); err != nil {
		return nil, err
	}
	replicaID := fmt.Sprintf("%s:%d", base.host, base.port)
	if result.fanout, err = fanout.New(fanout.Config{
		Options:    options.Fanout,
		Store:      main.store,
		Elector:    main.elector,
		Root:       base.root + "/",
		Since:      fanout.SinceLastCompaction(main.store, base.log),
		ID:         replicaID,
		Logger:     base.log,
		Registerer: base.metrics,
	}); err != nil {
		return nil, err
	}
	result.fanout.Traced(base.traces)
	base.lifetime.inBackground("fan-out", result.fanout.Run)
	for _, other := range result.overrideClusters {
		if err := other.follow(base, options.Fanout, replicaID); err != nil {
			return nil, err
		}
	}
	encrypted := withAuditTimes(result.overrideClusters.route(main.store), auditor)
	result.values = result.withTraces(encryption.NewStore(encrypted, result.encryptionConfig, result.encryptionResources, result.olderVersions), base.traces)
	return result, nil
}

// withAuditTimes returns a store that adds the duration of its operations to audit events. It
// returns s if auditor is nil.
func withAuditTimes(s storage.Interface, auditor *audit.Auditor) storage.Interface {
	if auditor == nil {
		return s
	}
	return &traced.Timed{
		Interface: s,
		Took:      func(ctx context.Context, d time.Duration) { audit.FromContext(ctx).AddDuration(audit.Store, d) },
	}
}

// withTraces returns a store that creates a span for each operation of values, and announces writes
// to the change stream for its spans. It returns values if traces is nil.
func (s *stores) withTraces(values storage.Interface, traces *tracing.Provider) storage.Interface {
	if traces == nil {
		return values
	}
	return &traced.Store{Interface: values, Root: s.root, Wrote: func(ctx context.Context, key string, revision int64, at time.Time) {
		s.fanoutOf(key).AnnounceWrite(ctx, key, revision, at)
	}}
}

// fanoutOf returns the change stream that contains the changes of a key.
func (s *stores) fanoutOf(key string) *fanout.Fanout {
	for _, other := range s.overrideClusters {
		for _, prefix := range other.prefixes {
			if strings.HasPrefix(key, prefix) {
				return other.fanout
			}
		}
	}
	return s.fanout
}

// decrypted returns a change stream with decrypted values in the storage version.
func (s *stores) decrypted(changes *fanout.Fanout) *encryption.Source {
	return encryption.NewSource(changes, s.encryptionConfig, s.encryptionResources, s.olderVersions)
}

// objectStore is the interface of the main store.
type objectStore interface {
	storage.Interface
	Ping(ctx context.Context) error
	History(ctx context.Context) (oldest, newest int64, err error)
}

// mainStore is the store of all resources that no other cluster stores (--etcd-servers-overrides).
type mainStore struct {
	store   objectStore
	elector fanout.Elector   // nil for the memory store
	etcd    *embedded.Server // nil for external etcd and for the memory store
}

// newMainStore opens the main store.
func newMainStore(ctx context.Context, base *base, etcdOptions *config.EtcdOptions) (*mainStore, error) {
	if etcdOptions.Backend == config.BackendMemory {
		store := memstore.New()
		base.lifetime.onClose(store.Close)
		base.lifetime.inBackground("compactor", func(ctx context.Context) error { return store.CompactEvery(ctx, etcdOptions.CompactionInterval) })
		return &mainStore{store: store}, nil
	}
	result := &mainStore{}
	connection, err := result.connect(ctx, base, etcdOptions)
	if err != nil {
		return nil, err
	}
	connection.Prefix = base.root
	connection.LeaseReuse = time.Duration(etcdOptions.LeaseReuseSeconds) * time.Second
	connection.Logger = base.log
	connection.Metrics = base.metrics
	store, err := etcd.New(connection)
	if err != nil {
		return nil, err
	}
	result.store = store
	result.elector = etcd.NewElector(store, 0)
	base.lifetime.inBackground("compactor", (&etcd.Compactor{Store: store, Interval: etcdOptions.CompactionInterval, Logger: base.log}).Run)
	if len(etcdOptions.Servers) > 0 {
		base.lifetime.inBackground("etcd monitor", (&etcd.Monitor{Ping: store.Ping, Endpoints: etcdOptions.Servers, Logger: base.log}).Run)
	}
	return result, nil
}

// connect connects to the etcd servers, or starts the embedded etcd.
func (m *mainStore) connect(ctx context.Context, base *base, etcdOptions *config.EtcdOptions) (c etcd.Config, err error) {
	if len(etcdOptions.Servers) > 0 {
		c.Client, err = etcd.Dial(etcd.DialOptions{
			Servers:  etcdOptions.Servers,
			CAFile:   etcdOptions.CAFile,
			CertFile: etcdOptions.CertFile,
			KeyFile:  etcdOptions.KeyFile,
			Logger:   base.log,
			Metrics:  base.metrics,
			Dial:     base.egress.DialerFor(egress.Etcd),
			Traces:   base.traces.ChildrenOnly(),
		})
		if err != nil {
			return c, fmt.Errorf("--etcd-servers: %w", err)
		}
		base.lifetime.onClose(func() { _ = c.Client.Close() })
		return c, nil
	}
	m.etcd, err = embedded.Start(ctx, embedded.Options{
		DataDir:      etcdOptions.DataDir,
		QuotaBytes:   etcdOptions.Embedded.QuotaBytes,
		ListenClient: etcdOptions.Embedded.ListenClientURL,
		CertFile:     etcdOptions.Embedded.CertFile,
		KeyFile:      etcdOptions.Embedded.KeyFile,
		ClientCAFile: etcdOptions.Embedded.TrustedCAFile,
		Logger:       base.log,
		Metrics:      base.metrics,
	})
	if err != nil {
		return c, err
	}
	base.lifetime.onClose(m.etcd.Stop)
	base.lifetime.inBackground("embedded etcd", m.watchEtcd)
	base.lifetime.inBackground("embedded etcd's maintenance", m.etcd.Maintain)
	return m.etcd.Config(), nil
}

// watchEtcd waits until ctx is canceled. If the embedded etcd stops before, it returns an error,
// which stops the server.
func (m *mainStore) watchEtcd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-m.etcd.Err():
		return fmt.Errorf("embedded etcd: %w", errors.Join(errors.New("stopped"), err))
	}
}

// newEncryption reads the encryption configuration. Without a file, nothing is encrypted.
func newEncryption(ctx context.Context, base *base, options *config.EncryptionOptions) (*encryption.Live, error) {
	metrics, err := encryption.NewMetrics(base.metrics)
	if err != nil {
		return nil, err
	}
	if options.ConfigFile == "" {
		return encryption.NewIdentity(), nil
	}
	live, err := encryption.Open(ctx, options.ConfigFile, options.Reload, &encryption.Builder{
		KMSv1:    base.gates.Enabled(features.KMSv1),
		ServerID: base.identity,
		Wait: func(ctx context.Context, wait func(context.Context) error) error {
			return request.Wait(ctx, status.ManyWait(), wait)
		},
		Logger:  base.log,
		Metrics: metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	base.lifetime.onClose(live.Close)
	if options.Reload {
		base.lifetime.inBackground("encryption configuration", live.Run)
	}
	return live, nil
}

// cluster is an etcd cluster that stores some resources instead of the main store
// (--etcd-servers-overrides). It has its own history, change stream and watch cache. If it is
// unavailable, only its resources are unavailable.
type cluster struct {
	number   int // index in clusters
	servers  []string
	prefixes []string // of the keys that it stores

	metrics   *prometheus.Registry
	store     *etcd.Store
	fanout    *fanout.Fanout
	cache     *watchcache.Cache
	alive     health.Check
	allWrites lister.WriteBarrier
}

// name returns the name of the cluster in health checks and metrics.
func (c *cluster) name() string { return "etcd-override-" + strconv.Itoa(c.number) }

// openClusters opens the clusters of --etcd-servers-overrides in the order of their key prefixes.
// It does not fail if they are unavailable.
func openClusters(base *base, etcdOptions *config.EtcdOptions, catalogs *catalogs) (clusters, error) {
	prefixesByServers := etcdOptions.OverridePrefixes(catalogs.stored(), func(resource schema.GroupResource) {
		base.log.Warn("--etcd-servers-overrides names a resource that is not stored, or that shares the storage of another resource",
			"resource", resource.String())
	})
	var opened clusters
	for _, servers := range slices.SortedFunc(maps.Keys(prefixesByServers), func(a, base string) int {
		return strings.Compare(prefixesByServers[a][0], prefixesByServers[base][0])
	}) {
		other := &cluster{
			number: len(opened), servers: strings.Split(servers, ";"), prefixes: prefixesByServers[servers],
			metrics: prometheus.NewRegistry(),
		}
		if err := other.open(base, etcdOptions); err != nil {
			return nil, err
		}
		opened = append(opened, other)
	}
	return opened, nil
}

// open opens the store of the cluster.
func (c *cluster) open(base *base, etcdOptions *config.EtcdOptions) error {
	client, err := etcd.Dial(etcd.DialOptions{
		Servers:  c.servers,
		CAFile:   etcdOptions.CAFile,
		CertFile: etcdOptions.CertFile,
		KeyFile:  etcdOptions.KeyFile,
		Logger:   base.log,
		Metrics:  c.registerer(),
		Dial:     base.egress.DialerFor(egress.Etcd),
		Traces:   base.traces.ChildrenOnly(),
	})
	if err != nil {
		return fmt.Errorf("--etcd-servers-overrides: %w", err)
	}
	base.lifetime.onClose(func() { _ = client.Close() })
	if c.store, err = etcd.New(etcd.Config{
		Client:     client,
		Prefix:     base.root,
		LeaseReuse: time.Duration(etcdOptions.LeaseReuseSeconds) * time.Second,
		Logger:     base.log,
		Metrics:    c.registerer(),
		Cluster:    "etcd-" + strconv.Itoa(c.number+1),
	}); err != nil {
		return err
	}
	base.lifetime.inBackground(c.name()+": compactor", (&etcd.Compactor{
		Store:    c.store,
		Interval: etcdOptions.CompactionInterval,
		Logger:   base.log,
	}).Run)
	c.alive = health.Shared(etcdOptions.ReadyTimeout, etcdCheckTTL, c.store.Ping)
	return nil
}

// registerer returns the registerer for metrics of the cluster. It adds a label that distinguishes
// them from the metrics of the main store.
func (c *cluster) registerer() prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"etcd_cluster": c.name()}, c.metrics)
}

// follow creates the change stream of the cluster. replicaID identifies this replica.
func (c *cluster) follow(base *base, fanoutOptions fanout.Options, replicaID string) (err error) {
	// The name depends only on the overrides, so that replicas with the same overrides use the same
	// stream.
	fanoutOptions.ClusterID = fanout.StreamName(fanoutOptions.ClusterID, strings.TrimPrefix(c.prefixes[0], base.root))
	log := base.log.With("etcd", c.name())
	if c.fanout, err = fanout.New(fanout.Config{
		Options:    fanoutOptions,
		Store:      c.store,
		Elector:    fanout.StreamElector{Elector: etcd.NewElector(c.store, 0), Stream: fanoutOptions.ClusterID},
		Root:       base.root + "/",
		Since:      fanout.SinceLastCompaction(c.store, base.log),
		ID:         replicaID,
		Logger:     log,
		Registerer: c.registerer(),
	}); err != nil {
		return err
	}
	c.fanout.Traced(base.traces)
	base.lifetime.inBackground(c.name()+": fan-out", c.fanout.Run)
	return nil
}

// clusters are the etcd clusters of --etcd-servers-overrides.
type clusters []*cluster

// forPrefix returns the cluster that stores the keys with a prefix, or nil if the main store does.
func (c clusters) forPrefix(prefix string) *cluster {
	for _, other := range c {
		if slices.Contains(other.prefixes, prefix) {
			return other
		}
	}
	return nil
}

// resources returns the cluster of each resource that the clusters store.
func (c clusters) resources(catalogs *catalogs) map[schema.GroupResource]*cluster {
	out := map[schema.GroupResource]*cluster{}
	for _, kind := range catalogs.catalog.Kinds() { // several kinds may share a prefix
		if other := c.forPrefix(apiset.KeyPrefix(catalogs.root, kind)); other != nil && !kind.Virtual {
			out[kind.GroupResource()] = other
		}
	}
	return out
}

// caches returns the watch caches of the clusters by the key prefixes of their resources.
func (c clusters) caches() map[string]*watchcache.Cache {
	out := map[string]*watchcache.Cache{}
	for _, other := range c {
		for _, prefix := range other.prefixes {
			out[prefix] = other.cache
		}
	}
	return out
}

// route returns a store that routes each key to the cluster that stores it, and all other keys to
// main.
func (c clusters) route(main storage.Interface) storage.Interface {
	if len(c) == 0 {
		return main
	}
	routes := &routed.Store{Interface: main, ByPrefix: map[string]storage.Interface{}}
	for _, other := range c {
		for _, prefix := range other.prefixes {
			routes.ByPrefix[prefix] = other.store
		}
	}
	return routes
}

// gatherer returns a gatherer for the metrics of the server, in main, and those of all clusters.
func (c clusters) gatherer(main *prometheus.Registry) prometheus.Gatherer {
	if len(c) == 0 {
		return main
	}
	all := prometheus.Gatherers{main}
	for _, other := range c {
		all = append(all, other.metrics)
	}
	return all
}

// addChecks adds a health check of each cluster. They do not affect the readiness of the server.
func (c clusters) addChecks(registry *health.Registry) {
	for _, other := range c {
		registry.AddInformational(other.name(), other.alive)
	}
}

// synced returns an error until the resources of all reachable clusters are loaded.
func (c clusters) synced(r *http.Request) error {
	for _, other := range c {
		if !other.cache.Ready() && other.alive(r) == nil {
			return watchcache.ErrNotReady
		}
	}
	return nil
}

// components returns the components for the clusters in componentstatuses.
func (c clusters) components() (out []componentstatus.Component) {
	for _, other := range c {
		out = append(out, componentstatus.Etcd("etcd-"+strconv.Itoa(other.number+1), other.store))
	}
	return out
}
