package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/serving/health"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/fanout"
	"binnacle/services/apiserver/internal/storage/routed"
)

// cluster is an etcd cluster that stores some resources instead of the main one
// (--etcd-servers-overrides). It has its own history, change stream and cache. If it is
// unavailable, only its resources are.
type cluster struct {
	number   int
	servers  []string
	prefixes []string // of the keys that it stores

	metrics   *prometheus.Registry
	store     *etcd.Store
	compactor *etcd.Compactor
	fanout    *fanout.Fanout
	cache     *watchcache.Cache
	alive     health.Check
	allWrites lister.Written
}

// name returns the name of the cluster in health checks and metrics.
func (c *cluster) name() string { return "etcd-override-" + strconv.Itoa(c.number) }

// stream returns the name of its change stream in NATS. Replicas with the same overrides use the
// same stream.
func (c *cluster) stream(id, root string) string {
	name := id + "-" + strings.NewReplacer("/", "-", ".", "-").Replace(strings.Trim(strings.TrimPrefix(c.prefixes[0], root), "/"))
	if len(name) > maxStream {
		sum := sha256.Sum256([]byte(name))
		name = name[:maxStream-2*streamSum-1] + "-" + hex.EncodeToString(sum[:streamSum])
	}
	return name
}

const (
	// maxStream bounds the name of a stream. A longer name ends with streamSum bytes of a hash.
	maxStream = 63
	streamSum = 8
)

// buildOverrideClusters opens the stores of the other clusters, which may be unavailable.
func (p *parts) buildOverrideClusters(context.Context) error {
	p.overrideClusters, p.resourceClusters = p.newOverrideClusters(), map[schema.GroupResource]*cluster{}
	for _, k := range p.catalog.Kinds() { // several kinds may share a prefix
		if c := p.clusterOf(apiset.KeyPrefix(p.root(), k)); c != nil && !k.Virtual {
			p.resourceClusters[k.GroupResource()] = c
		}
	}
	o := p.options.Etcd
	for _, c := range p.overrideClusters {
		c.metrics = prometheus.NewRegistry()
		client, err := etcd.Dial(etcd.DialOptions{Servers: c.servers, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Logger: p.log, Metrics: p.clusterRegisterer(c), Dial: p.egress.To(egress.Etcd), Traces: p.traces.Inner()})
		if err != nil {
			return fmt.Errorf("--etcd-servers-overrides: %w", err)
		}
		p.close = append(p.close, func() { _ = client.Close() })
		if c.store, err = etcd.New(etcd.Config{
			Client: client, Prefix: p.root(), LeaseReuse: time.Duration(o.LeaseReuseSeconds) * time.Second, Logger: p.log, Metrics: p.clusterRegisterer(c),
			Cluster: "etcd-" + strconv.Itoa(c.number+1),
		}); err != nil {
			return err
		}
		c.compactor = &etcd.Compactor{Store: c.store, Interval: o.CompactionInterval, Logger: p.log}
		c.alive = health.Shared(o.ReadyTimeout, etcdCheckTTL, c.store.Ping)
	}
	return nil
}

// clusterRegisterer registers metrics of a cluster under a label that distinguishes it from the
// main one.
func (p *parts) clusterRegisterer(c *cluster) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"etcd_cluster": c.name()}, c.metrics)
}

// gatherer returns the metrics of all clusters.
func (p *parts) gatherer() prometheus.Gatherer {
	if len(p.overrideClusters) == 0 {
		return p.metrics
	}
	all := prometheus.Gatherers{p.metrics}
	for _, c := range p.overrideClusters {
		all = append(all, c.metrics)
	}
	return all
}

// encryptedStore returns the store of encrypted values of all clusters.
func (p *parts) encryptedStore() storage.Interface {
	if len(p.overrideClusters) == 0 {
		return p.store
	}
	r := &routed.Store{Interface: p.store, Others: map[string]storage.Interface{}}
	for _, c := range p.overrideClusters {
		for _, prefix := range c.prefixes {
			r.Others[prefix] = c.store
		}
	}
	return r
}

// buildOverrideCaches creates the change streams and caches of the other clusters.
func (p *parts) buildOverrideCaches(id string, resources []watchcache.Resource) error {
	for _, c := range p.overrideClusters {
		o := p.options.Fanout
		o.ClusterID = c.stream(o.ClusterID, p.root())
		var err error
		if c.fanout, err = fanout.New(fanout.Config{
			Options: o, Alone: len(o.Servers) == 0, Store: c.store, Elector: streamElector{etcd.NewElector(c.store, 0), o.ClusterID}, Root: p.root() + "/", Since: historyOf(c.store, p.log),
			ID: id, Logger: p.log.With("etcd", c.name()), Registerer: p.clusterRegisterer(c),
		}); err != nil {
			return err
		}
		c.fanout.Traced(p.traces)
		if c.cache, err = watchcache.New(watchcache.Config{
			Memory: p.memory, HistoryBytes: int64(p.options.Memory.History), Source: encryption.NewSource(c.fanout, p.encryptionConfig, p.encryptionResources, p.olderVersions), LoadsHistory: true,
			Newest: c.store, Older: p.values, Root: p.root() + "/", Resources: p.resourcesIn(c, resources), Logger: p.log.With("etcd", c.name()), Registerer: p.clusterRegisterer(c),
		}); err != nil {
			return err
		}
	}
	return nil
}

// streamElector is an elector for one stream. An etcd cluster may store the resources of several
// streams.
type streamElector struct {
	fanout.Elector
	stream string
}

// Campaign implements fanout.Elector.
func (o streamElector) Campaign(ctx context.Context, name, id string) (<-chan struct{}, func(), error) {
	return o.Elector.Campaign(ctx, name+"-"+o.stream, id)
}

// resourcesIn returns the resources that a cluster stores; nil is the main cluster.
func (p *parts) resourcesIn(c *cluster, all []watchcache.Resource) (out []watchcache.Resource) {
	for _, r := range all {
		if p.clusterOf(r.Prefix) == c {
			out = append(out, r)
		}
	}
	return out
}

// cacheOf returns the cache of the keys with a prefix.
func (p *parts) cacheOf(prefix string) *watchcache.Cache {
	if c := p.clusterOf(prefix); c != nil {
		return c.cache
	}
	return p.cache
}

// cached returns the cached objects of a resource by its key prefix.
func (p *parts) cached(prefix string) *watchcache.Store { return p.cacheOf(prefix).Store(prefix) }

// overrideCaches returns the caches of the other clusters by the key prefixes that they hold.
func (p *parts) overrideCaches() map[string]*watchcache.Cache {
	out := map[string]*watchcache.Cache{}
	for _, c := range p.overrideClusters {
		for _, prefix := range c.prefixes {
			out[prefix] = c.cache
		}
	}
	return out
}

// overrideTasks returns the tasks of the other clusters. They keep running while a cluster is
// unavailable.
func (p *parts) overrideTasks() (tasks []task.Task) {
	for _, c := range p.overrideClusters {
		tasks = append(tasks,
			task.Task{Name: c.name() + ": fan-out", Run: c.fanout.Run}, task.Task{Name: c.name() + ": watch cache", Run: c.cache.Run},
			task.Task{Name: c.name() + ": compactor", Run: c.compactor.Run},
		)
	}
	return tasks
}

// addOverrideChecks adds health checks of the other clusters, which do not affect the readiness of
// the server.
func (p *parts) addOverrideChecks() {
	for _, c := range p.overrideClusters {
		p.health.AddApart(c.name(), c.alive)
	}
}

// overridesSynced returns an error until the resources of all reachable clusters are loaded.
func (p *parts) overridesSynced(r *http.Request) error {
	for _, c := range p.overrideClusters {
		if !c.cache.Ready() && c.alive(r) == nil {
			return watchcache.ErrNotReady
		}
	}
	return nil
}

// overrideComponents returns the other clusters for componentstatuses.
func (p *parts) overrideComponents() (out []handlers.Component) {
	for _, c := range p.overrideClusters {
		out = append(out, handlers.Component{Name: "etcd-" + strconv.Itoa(c.number+1), Check: etcdCheck(c.store)})
	}
	return out
}

// waitForWrites waits until the cache of a kind has everything that this server wrote. If that
// cache was never loaded, its content is unknown, which is an error.
func (p *parts) waitForWrites(ctx context.Context, k *apiset.Resource) error {
	c := p.clusterOf(k.Prefix)
	switch {
	case c == nil:
		return p.allWrites.Seen(ctx, p.cache)
	case !c.cache.Ready():
		return watchcache.ErrNotReady
	}
	return c.allWrites.Seen(ctx, c.cache)
}

// recordClusterWrite records a revision of the cluster that stores a resource, and returns its
// cache.
func (p *parts) recordClusterWrite(r schema.GroupResource, revision int64) *watchcache.Cache {
	if c := p.resourceClusters[r]; c != nil {
		c.allWrites.Note(c.cache.Era(), revision)
		return c.cache
	}
	p.allWrites.Note(p.cache.Era(), revision)
	return p.cache
}

// fanoutOf returns the change stream of a key.
func (p *parts) fanoutOf(key string) *fanout.Fanout {
	for _, c := range p.overrideClusters {
		for _, prefix := range c.prefixes {
			if strings.HasPrefix(key, prefix) {
				return c.fanout
			}
		}
	}
	return p.fanout
}
