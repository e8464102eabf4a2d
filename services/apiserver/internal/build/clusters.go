package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/serving/health"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/rest/componentstatus"
	"binnacle/services/apiserver/internal/storage"
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
	fanout    *fanout.Fanout
	cache     *watchcache.Cache
	alive     health.Check
	allWrites lister.WriteBarrier
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

// openClusters opens the stores of --etcd-servers-overrides in the order of their key prefixes. They
// may be unavailable.
func openClusters(b *base, o *config.EtcdOptions, c *catalogs) (clusters, error) {
	by := overridePrefixes(b, o, c)
	var out clusters
	for _, servers := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return strings.Compare(by[a][0], by[b][0]) }) {
		other := &cluster{number: len(out), servers: strings.Split(servers, ";"), prefixes: by[servers], metrics: prometheus.NewRegistry()}
		if err := other.open(b, o); err != nil {
			return nil, err
		}
		out = append(out, other)
	}
	return out, nil
}

// open opens the store.
func (c *cluster) open(b *base, o *config.EtcdOptions) error {
	client, err := etcd.Dial(etcd.DialOptions{Servers: c.servers, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Logger: b.log, Metrics: c.registerer(), Dial: b.egress.To(egress.Etcd), Traces: b.traces.Inner()})
	if err != nil {
		return fmt.Errorf("--etcd-servers-overrides: %w", err)
	}
	b.life.onClose(func() { _ = client.Close() })
	if c.store, err = etcd.New(etcd.Config{
		Client: client, Prefix: b.root, LeaseReuse: time.Duration(o.LeaseReuseSeconds) * time.Second, Logger: b.log, Metrics: c.registerer(),
		Cluster: "etcd-" + strconv.Itoa(c.number+1),
	}); err != nil {
		return err
	}
	b.life.inBackground(c.name()+": compactor", (&etcd.Compactor{Store: c.store, Interval: o.CompactionInterval, Logger: b.log}).Run)
	c.alive = health.Shared(o.ReadyTimeout, etcdCheckTTL, c.store.Ping)
	return nil
}

// registerer registers metrics of the cluster under a label that distinguishes it from the main one.
func (c *cluster) registerer() prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"etcd_cluster": c.name()}, c.metrics)
}

// follow creates the change stream of the cluster. id identifies this replica.
func (c *cluster) follow(b *base, o fanout.Options, id string) (err error) {
	o.ClusterID = c.stream(o.ClusterID, b.root)
	log := b.log.With("etcd", c.name())
	if c.fanout, err = fanout.New(fanout.Config{
		Options: o, Alone: len(o.Servers) == 0, Store: c.store, Elector: streamElector{etcd.NewElector(c.store, 0), o.ClusterID}, Root: b.root + "/", Since: fanout.SinceLastCompaction(c.store, b.log),
		ID: id, Logger: log, Registerer: c.registerer(),
	}); err != nil {
		return err
	}
	c.fanout.Traced(b.traces)
	b.life.inBackground(c.name()+": fan-out", c.fanout.Run)
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

// clusters are the etcd clusters of --etcd-servers-overrides.
type clusters []*cluster

// of returns the cluster that stores the keys of a prefix; nil is the main cluster.
func (l clusters) of(prefix string) *cluster {
	for _, c := range l {
		if slices.Contains(c.prefixes, prefix) {
			return c
		}
	}
	return nil
}

// resources maps the resources that the clusters store to them.
func (l clusters) resources(c *catalogs) map[schema.GroupResource]*cluster {
	out := map[schema.GroupResource]*cluster{}
	for _, k := range c.catalog.Kinds() { // several kinds may share a prefix
		if other := l.of(apiset.KeyPrefix(c.root, k)); other != nil && !k.Virtual {
			out[k.GroupResource()] = other
		}
	}
	return out
}

// caches returns the caches of the clusters by the key prefixes that they hold.
func (l clusters) caches() map[string]*watchcache.Cache {
	out := map[string]*watchcache.Cache{}
	for _, c := range l {
		for _, prefix := range c.prefixes {
			out[prefix] = c.cache
		}
	}
	return out
}

// above returns a store that writes the objects of the clusters to them, and others to main.
func (l clusters) above(main storage.Interface) storage.Interface {
	if len(l) == 0 {
		return main
	}
	r := &routed.Store{Interface: main, Others: map[string]storage.Interface{}}
	for _, c := range l {
		for _, prefix := range c.prefixes {
			r.Others[prefix] = c.store
		}
	}
	return r
}

// gatherer returns the metrics of the server and of all clusters.
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

// addChecks adds health checks of the clusters, which do not affect the readiness of the server.
func (l clusters) addChecks(h *health.Registry) {
	for _, c := range l {
		h.AddApart(c.name(), c.alive)
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

// components returns the clusters for componentstatuses.
func (l clusters) components() (out []componentstatus.Component) {
	for _, c := range l {
		out = append(out, componentstatus.Etcd("etcd-"+strconv.Itoa(c.number+1), c.store))
	}
	return out
}
