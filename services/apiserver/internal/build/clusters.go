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

// cluster is an etcd beside the main one, which keeps some resources: with a history, a
// stream of changes and a cache of its own. When it is gone, its resources are.
type cluster struct {
	number   int
	servers  []string
	prefixes []string // of the keys that it keeps

	metrics      *prometheus.Registry
	store        *etcd.Store
	compactor    *etcd.Compactor
	fanout       *fanout.Fanout
	cache        *watchcache.Cache
	alive        health.Check
	acknowledged lister.Written
}

// name is that of its health check and its metrics.
func (c *cluster) name() string { return "etcd-override-" + strconv.Itoa(c.number) }

// stream names the suite's stream of its changes, the same in every replica that has it
// keep the same resources.
func (c *cluster) stream(id, root string) string {
	name := id + "-" + strings.NewReplacer("/", "-", ".", "-").Replace(strings.Trim(strings.TrimPrefix(c.prefixes[0], root), "/"))
	if len(name) > maxStream {
		sum := sha256.Sum256([]byte(name))
		name = name[:maxStream-2*streamSum-1] + "-" + hex.EncodeToString(sum[:streamSum])
	}
	return name
}

const (
	// maxStream bounds the name of a stream, streamSum is how many bytes tell long ones
	// apart.
	maxStream = 63
	streamSum = 8
)

// buildOthers opens the stores of other clusters. They need not be there.
func (p *parts) buildOthers(context.Context) error {
	p.others, p.keepers = p.otherClusters(), map[schema.GroupResource]*cluster{}
	for _, k := range p.catalog.Kinds() { // several may share a place
		if c := p.keptBy(apiset.KeyPrefix(p.root(), k)); c != nil && !k.Virtual {
			p.keepers[k.GroupResource()] = c
		}
	}
	o := p.options.Etcd
	for _, c := range p.others {
		c.metrics = prometheus.NewRegistry()
		client, err := etcd.Dial(etcd.DialOptions{Servers: c.servers, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Logger: p.log, Metrics: p.measured(c), Dial: p.egress.To(egress.Etcd), Traces: p.traces.Inner()})
		if err != nil {
			return fmt.Errorf("--etcd-servers-overrides: %w", err)
		}
		p.close = append(p.close, func() { _ = client.Close() })
		if c.store, err = etcd.New(etcd.Config{
			Client: client, Prefix: p.root(), LeaseReuse: time.Duration(o.LeaseReuseSeconds) * time.Second, Logger: p.log, Metrics: p.measured(c),
			Cluster: "etcd-" + strconv.Itoa(c.number+1),
		}); err != nil {
			return err
		}
		c.compactor = &etcd.Compactor{Store: c.store, Interval: o.CompactionInterval, Logger: p.log}
		c.alive = health.Shared(o.ReadyTimeout, etcdCheckKept, c.store.Ping)
	}
	return nil
}

// measured registers what is measured of a cluster, which its label tells from the main one.
func (p *parts) measured(c *cluster) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"etcd_cluster": c.name()}, c.metrics)
}

// gathered are the metrics of all clusters.
func (p *parts) gathered() prometheus.Gatherer {
	if len(p.others) == 0 {
		return p.metrics
	}
	all := prometheus.Gatherers{p.metrics}
	for _, c := range p.others {
		all = append(all, c.metrics)
	}
	return all
}

// sealed is the store of sealed values of all clusters.
func (p *parts) sealed() storage.Interface {
	if len(p.others) == 0 {
		return p.store
	}
	r := &routed.Store{Interface: p.store, Others: map[string]storage.Interface{}}
	for _, c := range p.others {
		for _, prefix := range c.prefixes {
			r.Others[prefix] = c.store
		}
	}
	return r
}

// buildOtherCaches follows the changes of the other clusters.
func (p *parts) buildOtherCaches(id string, resources []watchcache.Resource) error {
	for _, c := range p.others {
		o := p.options.Fanout
		o.ClusterID = c.stream(o.ClusterID, p.root())
		var err error
		if c.fanout, err = fanout.New(fanout.Config{
			Options: o, Alone: len(o.Servers) == 0, Store: c.store, Elector: office{etcd.NewElector(c.store, 0), o.ClusterID}, Root: p.root() + "/", Since: historyOf(c.store, p.log),
			ID: id, Logger: p.log.With("etcd", c.name()), Registerer: p.measured(c),
		}); err != nil {
			return err
		}
		c.fanout.Traced(p.traces)
		if c.cache, err = watchcache.New(watchcache.Config{
			Memory: p.memory, HistoryBytes: int64(p.options.Memory.History), Source: encryption.NewSource(c.fanout, p.sealing, p.resourcesOf, p.older), LoadsHistory: true,
			Newest: c.store, Older: p.values, Root: p.root() + "/", Resources: p.keptIn(c, resources), Logger: p.log.With("etcd", c.name()), Registerer: p.measured(c),
		}); err != nil {
			return err
		}
	}
	return nil
}

// office is an elector for one stream: an etcd may keep the resources of several.
type office struct {
	fanout.Elector
	stream string
}

// Campaign implements fanout.Elector.
func (o office) Campaign(ctx context.Context, name, id string) (<-chan struct{}, func(), error) {
	return o.Elector.Campaign(ctx, name+"-"+o.stream, id)
}

// keptIn are those resources that a cluster keeps; nil is the main one.
func (p *parts) keptIn(c *cluster, all []watchcache.Resource) (out []watchcache.Resource) {
	for _, r := range all {
		if p.keptBy(r.Prefix) == c {
			out = append(out, r)
		}
	}
	return out
}

// cacheOf is the cache that has the keys of a prefix.
func (p *parts) cacheOf(prefix string) *watchcache.Cache {
	if c := p.keptBy(prefix); c != nil {
		return c.cache
	}
	return p.cache
}

// cached is what the caches have of a resource, by the prefix of its keys.
func (p *parts) cached(prefix string) *watchcache.Store { return p.cacheOf(prefix).Store(prefix) }

// elsewhereCached are the caches of the other clusters by the prefixes that they have.
func (p *parts) elsewhereCached() map[string]*watchcache.Cache {
	out := map[string]*watchcache.Cache{}
	for _, c := range p.others {
		for _, prefix := range c.prefixes {
			out[prefix] = c.cache
		}
	}
	return out
}

// otherTasks are the work that goes on for the other clusters. That one of them is gone
// ends none of it.
func (p *parts) otherTasks() (tasks []task.Task) {
	for _, c := range p.others {
		tasks = append(tasks,
			task.Task{Name: c.name() + ": fan-out", Run: c.fanout.Run}, task.Task{Name: c.name() + ": watch cache", Run: c.cache.Run},
			task.Task{Name: c.name() + ": compactor", Run: c.compactor.Run},
		)
	}
	return tasks
}

// otherChecks tell of the other clusters, without making the server unready for the sake
// of their resources.
func (p *parts) otherChecks() {
	for _, c := range p.others {
		p.health.AddApart(c.name(), c.alive)
	}
}

// othersSynced tells whether what other clusters keep is loaded, of those that live.
func (p *parts) othersSynced(r *http.Request) error {
	for _, c := range p.others {
		if !c.cache.Ready() && c.alive(r) == nil {
			return watchcache.ErrNotReady
		}
	}
	return nil
}

// otherComponents are the other clusters as componentstatuses tells of them.
func (p *parts) otherComponents() (out []handlers.Component) {
	for _, c := range p.others {
		out = append(out, handlers.Component{Name: "etcd-" + strconv.Itoa(c.number+1), Check: asEtcd(c.store)})
	}
	return out
}

// seen waits until the cache that has a kind has what this server wrote. One that was
// never loaded has nothing, which tells nothing.
func (p *parts) seen(ctx context.Context, k *apiset.Resource) error {
	c := p.keptBy(k.Prefix)
	switch {
	case c == nil:
		return p.acknowledged.Seen(ctx, p.cache)
	case !c.cache.Ready():
		return watchcache.ErrNotReady
	}
	return c.acknowledged.Seen(ctx, c.cache)
}

// wrote notes a revision of the cluster that keeps a resource, and returns its cache.
func (p *parts) wrote(r schema.GroupResource, revision int64) *watchcache.Cache {
	if c := p.keepers[r]; c != nil {
		c.acknowledged.Note(c.cache.Era(), revision)
		return c.cache
	}
	p.acknowledged.Note(p.cache.Era(), revision)
	return p.cache
}

// fanoutOf is the stream that carries changes of a key.
func (p *parts) fanoutOf(key string) *fanout.Fanout {
	for _, c := range p.others {
		for _, prefix := range c.prefixes {
			if strings.HasPrefix(key, prefix) {
				return c.fanout
			}
		}
	}
	return p.fanout
}
