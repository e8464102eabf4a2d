package build

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/memory"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage/fanout"
)

var _ watchcache.Source = (*fanout.Fanout)(nil)

// caches holds the cached objects of all resources, and what this server has written.
type caches struct {
	*catalogs
	cache  *watchcache.Cache // of the main store
	memory *memory.Budget
	// overrideClusters have caches of their own; resourceClusters finds them by the resource.
	overrideClusters clusters
	resourceClusters map[schema.GroupResource]*cluster
	// kindWrites are read-your-writes barriers of the kinds that admission reads.
	kindWrites map[schema.GroupResource]*lister.WriteBarrier
	// allWrites is the read-your-writes barrier of all kinds in the main store.
	allWrites *lister.WriteBarrier
}

func newCaches(b *base, o *config.Options, c *catalogs, s *stores) (*caches, error) {
	k := &caches{
		catalogs: c, memory: memory.New(memory.Limit(int64(o.Memory.Caches)), b.metrics),
		overrideClusters: s.overrideClusters, resourceClusters: s.resourceClusters, kindWrites: newKindWrites(), allWrites: &lister.WriteBarrier{},
	}
	var source watchcache.Source = s.decrypted(s.fanout)
	if o.WrapSource != nil {
		source = o.WrapSource(source)
	}
	shared := watchcache.Config{
		Memory: k.memory, HistoryBytes: int64(o.Memory.History), LoadsHistory: true, Older: s.values, Root: b.root + "/",
	}
	main, all := shared, c.resources(b.gates)
	main.Source, main.Newest, main.Logger, main.Registerer = source, s.store, b.log, b.metrics
	main.Resources = k.resourcesIn(nil, all)
	var err error
	if k.cache, err = watchcache.New(main); err != nil {
		return nil, err
	}
	b.life.inBackground("watch cache", k.cache.Run)
	b.life.inBackground("memory release", memory.ReleaseWhenIdle)
	for _, other := range k.overrideClusters {
		of := shared
		of.Source, of.Newest, of.Logger, of.Registerer = s.decrypted(other.fanout), other.store, b.log.With("etcd", other.name()), other.registerer()
		of.Resources = k.resourcesIn(other, all)
		if other.cache, err = watchcache.New(of); err != nil {
			return nil, err
		}
		b.life.inBackground(other.name()+": watch cache", other.cache.Run)
	}
	return k, nil
}

// resourcesIn returns the resources that a cluster stores; nil is the main cluster.
func (k *caches) resourcesIn(c *cluster, all []watchcache.Resource) (out []watchcache.Resource) {
	for _, r := range all {
		if k.overrideClusters.of(r.Prefix) == c {
			out = append(out, r)
		}
	}
	return out
}

// cached returns the cached objects of a resource by its key prefix.
func (k *caches) cached(prefix string) *watchcache.Store {
	if c := k.overrideClusters.of(prefix); c != nil {
		return c.cache.Store(prefix)
	}
	return k.cache.Store(prefix)
}

// lookup returns the lister of a built-in kind.
func (k *caches) lookup(gvr schema.GroupVersionResource) lister.Kind {
	kind := k.catalog.Resource(gvr)
	prefix := apiset.KeyPrefix(k.root, kind)
	return lister.Kind{Resource: gvr.GroupResource(), Prefix: prefix, Store: k.cached(prefix), Coder: k.codec.Of(kind), Writes: k.kindWrites[gvr.GroupResource()]}
}

// core returns the lister of a kind of the core group.
func (k *caches) core(resource string) lister.Kind {
	return k.lookup(corev1.SchemeGroupVersion.WithResource(resource))
}

// objects returns listers of the kinds that tokens depend on. With confirm, a lister confirms that
// the cache is current before it reports that an object does not exist.
func (k *caches) objects(confirm bool) *lister.Objects {
	return &lister.Objects{
		Cache: k.cache, Confirm: confirm,
		ServiceAccounts: k.core("serviceaccounts"), Pods: k.core("pods"), Secrets: k.core("secrets"), Nodes: k.core("nodes"),
	}
}

// waitForWrites waits until the cache of a kind has everything that this server wrote. If that
// cache was never loaded, its content is unknown, which is an error.
func (k *caches) waitForWrites(ctx context.Context, r *apiset.Resource) error {
	c := k.overrideClusters.of(r.Prefix)
	switch {
	case c == nil:
		return k.allWrites.Wait(ctx, k.cache)
	case !c.cache.Ready():
		return watchcache.ErrNotReady
	}
	return c.allWrites.Wait(ctx, c.cache)
}

// recordWrite records the revision of a write. Policies wait for all writes, because their
// parameters may have any kind.
func (k *caches) recordWrite(r schema.GroupResource, revision int64) {
	cache, all := k.cache, k.allWrites
	if c := k.resourceClusters[r]; c != nil {
		cache, all = c.cache, &c.allWrites
	}
	all.Record(cache.Era(), revision)
	if w := k.kindWrites[r]; w != nil {
		w.Record(cache.Era(), revision)
	}
}

// loaded reports whether the watch cache was filled once.
func (k *caches) loaded() bool { return k.cache.Ready() || k.cache.Era() > 0 }

// damage returns how corrupt objects are reported.
func damage(b *base) status.CorruptObjects {
	return status.CorruptObjects{Named: b.gates.Enabled(features.AllowUnsafeMalformedObjectDeletion), Root: b.root}
}
