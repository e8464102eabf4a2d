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
func newStores(ctx context.Context, b *base, options *config.Options, catalogs *catalogs, auditor *audit.Auditor) (*stores, error) {
	main, err := newMainStore(ctx, b, &options.Etcd)
	if err != nil {
		return nil, err
	}
	s := &stores{
		mainStore:           main,
		root:                b.root,
		encryptionResources: encryption.NewResources(b.root+"/", catalogs.stored()),
		olderVersions:       olderversions.New(catalogs.catalog, catalogs.codec),
	}
	if s.overrideClusters, err = openClusters(b, &options.Etcd, catalogs); err != nil {
		return nil, err
	}
	s.resourceClusters = s.overrideClusters.resources(catalogs)
	if s.encryptionConfig, err = newEncryption(ctx, b, &options.Encryption); err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%s:%d", b.host, b.port)
	if s.fanout, err = fanout.New(fanout.Config{
		Options:    options.Fanout,
		Store:      main.store,
		Elector:    main.elector,
		Root:       b.root + "/",
		Since:      fanout.SinceLastCompaction(main.store, b.log),
		ID:         id,
		Logger:     b.log,
		Registerer: b.metrics,
	}); err != nil {
		return nil, err
	}
	s.fanout.Traced(b.traces)
	b.lifetime.inBackground("fan-out", s.fanout.Run)
	for _, other := range s.overrideClusters {
		if err := other.follow(b, options.Fanout, id); err != nil {
			return nil, err
		}
	}
	encrypted := withAuditTimes(s.overrideClusters.route(main.store), auditor)
	s.values = s.withTraces(encryption.NewStore(encrypted, s.encryptionConfig, s.encryptionResources, s.olderVersions), b.traces)
	return s, nil
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
	for _, c := range s.overrideClusters {
		for _, prefix := range c.prefixes {
			if strings.HasPrefix(key, prefix) {
				return c.fanout
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
func newMainStore(ctx context.Context, b *base, etcdOptions *config.EtcdOptions) (*mainStore, error) {
	if etcdOptions.Backend == config.BackendMemory {
		s := memstore.New()
		b.lifetime.onClose(s.Close)
		b.lifetime.inBackground("compactor", func(ctx context.Context) error { return s.CompactEvery(ctx, etcdOptions.CompactionInterval) })
		return &mainStore{store: s}, nil
	}
	m := &mainStore{}
	connection, err := m.connect(ctx, b, etcdOptions)
	if err != nil {
		return nil, err
	}
	connection.Prefix = b.root
	connection.LeaseReuse = time.Duration(etcdOptions.LeaseReuseSeconds) * time.Second
	connection.Logger = b.log
	connection.Metrics = b.metrics
	s, err := etcd.New(connection)
	if err != nil {
		return nil, err
	}
	m.store = s
	m.elector = etcd.NewElector(s, 0)
	b.lifetime.inBackground("compactor", (&etcd.Compactor{Store: s, Interval: etcdOptions.CompactionInterval, Logger: b.log}).Run)
	if len(etcdOptions.Servers) > 0 {
		b.lifetime.inBackground("etcd monitor", (&etcd.Monitor{Ping: s.Ping, Endpoints: etcdOptions.Servers, Logger: b.log}).Run)
	}
	return m, nil
}

// connect connects to the etcd servers, or starts the embedded etcd.
func (m *mainStore) connect(ctx context.Context, b *base, etcdOptions *config.EtcdOptions) (c etcd.Config, err error) {
	if len(etcdOptions.Servers) > 0 {
		c.Client, err = etcd.Dial(etcd.DialOptions{
			Servers:  etcdOptions.Servers,
			CAFile:   etcdOptions.CAFile,
			CertFile: etcdOptions.CertFile,
			KeyFile:  etcdOptions.KeyFile,
			Logger:   b.log,
			Metrics:  b.metrics,
			Dial:     b.egress.DialerFor(egress.Etcd),
			Traces:   b.traces.ChildrenOnly(),
		})
		if err != nil {
			return c, fmt.Errorf("--etcd-servers: %w", err)
		}
		b.lifetime.onClose(func() { _ = c.Client.Close() })
		return c, nil
	}
	m.etcd, err = embedded.Start(ctx, embedded.Options{
		DataDir:      etcdOptions.DataDir,
		QuotaBytes:   etcdOptions.Embedded.QuotaBytes,
		ListenClient: etcdOptions.Embedded.ListenClientURL,
		CertFile:     etcdOptions.Embedded.CertFile,
		KeyFile:      etcdOptions.Embedded.KeyFile,
		ClientCAFile: etcdOptions.Embedded.TrustedCAFile,
		Logger:       b.log,
		Metrics:      b.metrics,
	})
	if err != nil {
		return c, err
	}
	b.lifetime.onClose(m.etcd.Stop)
	b.lifetime.inBackground("embedded etcd", m.watchEtcd)
	b.lifetime.inBackground("embedded etcd's maintenance", m.etcd.Maintain)
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
func newEncryption(ctx context.Context, b *base, options *config.EncryptionOptions) (*encryption.Live, error) {
	metrics, err := encryption.NewMetrics(b.metrics)
	if err != nil {
		return nil, err
	}
	if options.ConfigFile == "" {
		return encryption.NewIdentity(), nil
	}
	live, err := encryption.Open(ctx, options.ConfigFile, options.Reload, &encryption.Builder{
		KMSv1:    b.gates.Enabled(features.KMSv1),
		ServerID: b.identity,
		Wait: func(ctx context.Context, wait func(context.Context) error) error {
			return request.Wait(ctx, status.ManyWait(), wait)
		},
		Logger:  b.log,
		Metrics: metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	b.lifetime.onClose(live.Close)
	if options.Reload {
		b.lifetime.inBackground("encryption configuration", live.Run)
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
func openClusters(b *base, etcdOptions *config.EtcdOptions, catalogs *catalogs) (clusters, error) {
	prefixesByServers := etcdOptions.OverridePrefixes(catalogs.stored(), func(of schema.GroupResource) {
		b.log.Warn("--etcd-servers-overrides names a resource that is not stored, or that shares the storage of another resource",
			"resource", of.String())
	})
	var out clusters
	for _, servers := range slices.SortedFunc(maps.Keys(prefixesByServers), func(a, b string) int {
		return strings.Compare(prefixesByServers[a][0], prefixesByServers[b][0])
	}) {
		other := &cluster{
			number: len(out), servers: strings.Split(servers, ";"), prefixes: prefixesByServers[servers],
			metrics: prometheus.NewRegistry(),
		}
		if err := other.open(b, etcdOptions); err != nil {
			return nil, err
		}
		out = append(out, other)
	}
	return out, nil
}

// open opens the store of the cluster.
func (c *cluster) open(b *base, etcdOptions *config.EtcdOptions) error {
	client, err := etcd.Dial(etcd.DialOptions{
		Servers:  c.servers,
		CAFile:   etcdOptions.CAFile,
		CertFile: etcdOptions.CertFile,
		KeyFile:  etcdOptions.KeyFile,
		Logger:   b.log,
		Metrics:  c.registerer(),
		Dial:     b.egress.DialerFor(egress.Etcd),
		Traces:   b.traces.ChildrenOnly(),
	})
	if err != nil {
		return fmt.Errorf("--etcd-servers-overrides: %w", err)
	}
	b.lifetime.onClose(func() { _ = client.Close() })
	if c.store, err = etcd.New(etcd.Config{
		Client:     client,
		Prefix:     b.root,
		LeaseReuse: time.Duration(etcdOptions.LeaseReuseSeconds) * time.Second,
		Logger:     b.log,
		Metrics:    c.registerer(),
		Cluster:    "etcd-" + strconv.Itoa(c.number+1),
	}); err != nil {
		return err
	}
	b.lifetime.inBackground(c.name()+": compactor", (&etcd.Compactor{
		Store:    c.store,
		Interval: etcdOptions.CompactionInterval,
		Logger:   b.log,
	}).Run)
	c.alive = health.Shared(etcdOptions.ReadyTimeout, etcdCheckTTL, c.store.Ping)
	return nil
}

// registerer returns the registerer for metrics of the cluster. It adds a label that distinguishes
// them from the metrics of the main store.
func (c *cluster) registerer() prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"etcd_cluster": c.name()}, c.metrics)
}

// follow creates the change stream of the cluster. id identifies this replica.
func (c *cluster) follow(b *base, o fanout.Options, id string) (err error) {
	// The name depends only on the overrides, so that replicas with the same overrides use the same
	// stream.
	o.ClusterID = fanout.StreamName(o.ClusterID, strings.TrimPrefix(c.prefixes[0], b.root))
	log := b.log.With("etcd", c.name())
	if c.fanout, err = fanout.New(fanout.Config{
		Options:    o,
		Alone:      len(o.Servers) == 0,
		Store:      c.store,
		Elector:    fanout.StreamElector{Elector: etcd.NewElector(c.store, 0), Stream: o.ClusterID},
		Root:       b.root + "/",
		Since:      fanout.SinceLastCompaction(c.store, b.log),
		ID:         id,
		Logger:     log,
		Registerer: c.registerer(),
	}); err != nil {
		return err
	}
	c.fanout.Traced(b.traces)
	b.lifetime.inBackground(c.name()+": fan-out", c.fanout.Run)
	return nil
}

// clusters are the etcd clusters of --etcd-servers-overrides.
type clusters []*cluster

// forPrefix returns the cluster that stores the keys with a prefix, or nil if the main store does.
func (l clusters) forPrefix(prefix string) *cluster {
	for _, c := range l {
		if slices.Contains(c.prefixes, prefix) {
			return c
		}
	}
	return nil
}

// resources returns the cluster of each resource that the clusters store.
func (l clusters) resources(catalogs *catalogs) map[schema.GroupResource]*cluster {
	out := map[schema.GroupResource]*cluster{}
	for _, k := range catalogs.catalog.Kinds() { // several kinds may share a prefix
		if other := l.forPrefix(apiset.KeyPrefix(catalogs.root, k)); other != nil && !k.Virtual {
			out[k.GroupResource()] = other
		}
	}
	return out
}

// caches returns the watch caches of the clusters by the key prefixes of their resources.
func (l clusters) caches() map[string]*watchcache.Cache {
	out := map[string]*watchcache.Cache{}
	for _, c := range l {
		for _, prefix := range c.prefixes {
			out[prefix] = c.cache
		}
	}
	return out
}

// route returns a store that routes each key to the cluster that stores it, and all other keys to
// main.
func (l clusters) route(main storage.Interface) storage.Interface {
	if len(l) == 0 {
		return main
	}
	r := &routed.Store{Interface: main, ByPrefix: map[string]storage.Interface{}}
	for _, c := range l {
		for _, prefix := range c.prefixes {
			r.ByPrefix[prefix] = c.store
		}
	}
	return r
}

// gatherer returns a gatherer for the metrics of the server, in main, and those of all clusters.
func (l clusters) gatherer(main *prometheus.Registry) prometheus.Gatherer {
	if len(l) == 0 {
		return main
	}
	all := prometheus.Gatherers{main}
	for _, c := range l {
		all = append(all, c.metrics)
	}
	return all
}

// addChecks adds a health check of each cluster. They do not affect the readiness of the server.
func (l clusters) addChecks(h *health.Registry) {
	for _, c := range l {
		h.AddInformational(c.name(), c.alive)
	}
}

// synced returns an error until the resources of all reachable clusters are loaded.
func (l clusters) synced(r *http.Request) error {
	for _, c := range l {
		if !c.cache.Ready() && c.alive(r) == nil {
			return watchcache.ErrNotReady
		}
	}
	return nil
}

// components returns the components for the clusters in componentstatuses.
func (l clusters) components() (out []componentstatus.Component) {
	for _, c := range l {
		out = append(out, componentstatus.Etcd("etcd-"+strconv.Itoa(c.number+1), c.store))
	}
	return out
}
