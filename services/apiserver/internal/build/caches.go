package build

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	names "binnacle/libs/api"
	"binnacle/libs/features"
	"binnacle/libs/idlememory"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/memory"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage/fanout"
)

var _ watchcache.Source = (*fanout.Fanout)(nil)

// caches holds the watch caches of all resources, and the read-your-writes barriers.
type caches struct {
	*catalogs
	cache  *watchcache.Cache // of the main store
	memory *memory.Budget
	// overrideClusters are the other etcd clusters, each with its own watch cache. resourceClusters
	// maps each resource that they store to its cluster.
	overrideClusters clusters
	resourceClusters map[schema.GroupResource]*cluster
	// kindWrites holds the read-your-writes barriers of the kinds that admission reads.
	kindWrites map[schema.GroupResource]*lister.WriteBarrier
	// allWrites is the read-your-writes barrier of all kinds in the main store.
	allWrites *lister.WriteBarrier
}

// newCaches creates the watch caches. They read the decrypted change streams of the stores.
func newCaches(b *base, options *config.Options, catalogs *catalogs, stores *stores) (*caches, error) {
	k := &caches{
		catalogs:         catalogs,
		memory:           memory.New(memory.Limit(int64(options.Memory.Caches)), b.metrics),
		overrideClusters: stores.overrideClusters,
		resourceClusters: stores.resourceClusters,
		kindWrites:       newKindWrites(),
		allWrites:        &lister.WriteBarrier{},
	}
	var source watchcache.Source = stores.decrypted(stores.fanout)
	if options.WrapSource != nil {
		source = options.WrapSource(source)
	}
	shared := watchcache.Config{
		Memory:        k.memory,
		HistoryBytes:  int64(options.Memory.History),
		LoadsHistory:  true,
		HistoryReader: stores.values,
		Root:          b.root + "/",
	}
	main := shared
	all := catalogs.resources(b.gates)
	main.Source = source
	main.CurrentRevision = stores.store
	main.Logger = b.log
	main.Registerer = b.metrics
	main.Resources = k.resourcesIn(nil, all)
	var err error
	if k.cache, err = watchcache.New(main); err != nil {
		return nil, err
	}
	b.lifetime.inBackground("watch cache", k.cache.Run)
	b.lifetime.inBackground("memory release", idlememory.Release)
	for _, other := range k.overrideClusters {
		c := shared
		c.Source = stores.decrypted(other.fanout)
		c.CurrentRevision = other.store
		c.Logger = b.log.With("etcd", other.name())
		c.Registerer = other.registerer()
		c.Resources = k.resourcesIn(other, all)
		if other.cache, err = watchcache.New(c); err != nil {
			return nil, err
		}
		b.lifetime.inBackground(other.name()+": watch cache", other.cache.Run)
	}
	return k, nil
}

// resourcesIn returns the resources that a cluster stores. A nil cluster stands for the main store.
func (k *caches) resourcesIn(c *cluster, all []watchcache.ResourceConfig) (out []watchcache.ResourceConfig) {
	for _, r := range all {
		if k.overrideClusters.forPrefix(r.Prefix) == c {
			out = append(out, r)
		}
	}
	return out
}

// storeOf returns the watch cache of the resource with a key prefix.
func (k *caches) storeOf(prefix string) *watchcache.Store {
	if c := k.overrideClusters.forPrefix(prefix); c != nil {
		return c.cache.Store(prefix)
	}
	return k.cache.Store(prefix)
}

// lookup returns the cached objects of a built-in resource, with the coder that decodes them.
func (k *caches) lookup(gvr schema.GroupVersionResource) lister.CachedResource {
	kind := k.catalog.Resource(gvr)
	prefix := apiset.KeyPrefix(k.root, kind)
	return lister.CachedResource{
		Resource: gvr.GroupResource(),
		Prefix:   prefix,
		Store:    k.storeOf(prefix),
		Coder:    k.codec.ForKind(kind),
		Barrier:  k.kindWrites[gvr.GroupResource()],
	}
}

// core is lookup for a resource of the core group.
func (k *caches) core(resource string) lister.CachedResource {
	return k.lookup(corev1.SchemeGroupVersion.WithResource(resource))
}

// objects returns the listers of service accounts, pods, secrets and nodes. If confirm is set, a
// lister confirms that the cache is current before it reports that an object does not exist.
func (k *caches) objects(confirm bool) *lister.Objects {
	return &lister.Objects{
		Cache:           k.cache,
		Confirm:         confirm,
		ServiceAccounts: k.core("serviceaccounts"),
		Pods:            k.core("pods"),
		Secrets:         k.core("secrets"),
		Nodes:           k.core("nodes"),
	}
}

// waitForWrites waits until the watch cache of a kind contains all writes that this server has
// acknowledged. If the cache of another etcd cluster is not loaded, it returns an error.
func (k *caches) waitForWrites(ctx context.Context, r *apiset.Resource) error {
	c := k.overrideClusters.forPrefix(r.Prefix)
	switch {
	case c == nil:
		return k.allWrites.Wait(ctx, k.cache)
	case !c.cache.Ready():
		return watchcache.ErrNotReady
	}
	return c.allWrites.Wait(ctx, c.cache)
}

// recordWrite records the revision of a write in two read-your-writes barriers: the one for all kinds,
// because parameters of policies may have any kind, and the one for the written kind, if it exists.
func (k *caches) recordWrite(r schema.GroupResource, revision int64) {
	cache, all := k.cache, k.allWrites
	if c := k.resourceClusters[r]; c != nil {
		cache = c.cache
		all = &c.allWrites
	}
	all.Record(cache.Incarnation(), revision)
	if w := k.kindWrites[r]; w != nil {
		w.Record(cache.Incarnation(), revision)
	}
}

// loaded reports whether the watch cache of the main store was loaded at least once.
func (k *caches) loaded() bool { return k.cache.Ready() || k.cache.Incarnation() > 0 }

func corruptObjectReporter(b *base) status.CorruptObjects {
	return status.CorruptObjects{Named: b.gates.Enabled(features.AllowUnsafeMalformedObjectDeletion), Root: b.root}
}

// catalogs holds the built-in kinds.
type catalogs struct {
	// catalog holds all built-in kinds, which the server itself may use. served holds the kinds
	// that clients may use.
	catalog, served *registry.Catalog
	codec           *codec.Codec
	root            string // prefix of all keys
}

// newCatalogs creates the catalogs of built-in kinds. The options determine which kinds are served.
func newCatalogs(b *base, options *config.Options) (*catalogs, error) {
	settings := registry.Settings{
		AllowPrivileged: options.AllowPrivileged,
		PrimaryFamily:   options.PrimaryFamily(),
		StoreJSON:       options.Compatibility.StorageMediaType == names.MediaJSON,
		Gates:           b.gates,
	}
	all, err := builtin.AllKinds(settings)
	if err != nil {
		return nil, err
	}
	gate := func(k *registry.Kind) bool { return k.Gate == "" || b.gates.Enabled(k.Gate) }
	serves, err := options.Compatibility.Emulation().Serves(all, options.RuntimeConfig, gate)
	if err != nil {
		return nil, err
	}
	served, err := all.Filter(serves)
	if err != nil {
		return nil, err
	}
	coders, err := codec.New(all, builtin.Scheme())
	if err != nil {
		return nil, err
	}
	return &catalogs{catalog: all, served: served, codec: coders, root: b.root}, nil
}

// stored returns the built-in resources by their key prefixes. If several kinds share a prefix, it
// returns the resource of the kind that is stored without conversion.
func (c *catalogs) stored() map[string]schema.GroupResource {
	out := map[string]schema.GroupResource{}
	for _, k := range c.catalog.Kinds() {
		if k.Virtual || k.Stored.ToStored != nil && c.sharesStore(k) {
			continue
		}
		out[apiset.KeyPrefix(c.root, k)] = k.StoredGroupResource()
	}
	return out
}

// sharesStore reports whether another kind is stored under the same prefix.
func (c *catalogs) sharesStore(k *registry.Kind) bool {
	return slices.ContainsFunc(c.catalog.Kinds(), func(other *registry.Kind) bool {
		return other != k && !other.Virtual && other.Stored.Prefix == k.Stored.Prefix
	})
}

// definable returns a function that reports whether definitions may define a resource. They may not
// define built-in resources in any version, nor resources whose keys would collide with the keys of
// built-in ones.
func (c *catalogs) definable() func(group, resource string) bool {
	builtIn := map[schema.GroupResource]bool{}
	for _, k := range c.catalog.Kinds() {
		builtIn[k.GVR().GroupResource()] = true
	}
	return func(group, resource string) bool {
		return definition.HasOwnKeyPrefix(group, resource) && !builtIn[schema.GroupResource{Group: group, Resource: resource}]
	}
}

// resources returns the configuration of the watch cache for each stored resource. If several kinds
// share a key prefix, it uses the kind that is stored without conversion, because selectors match
// the stored form.
func (c *catalogs) resources(gates *features.Gates) []watchcache.ResourceConfig {
	var out []watchcache.ResourceConfig
	seen := map[string]bool{}
	for _, kind := range c.catalog.Kinds() {
		if kind.Virtual || seen[kind.Stored.Prefix] || kind.Stored.ToStored != nil && c.sharesStore(kind) {
			continue
		}
		seen[kind.Stored.Prefix] = true
		coder := c.codec.ForKind(kind)
		recent := &attributes.InternCache{}
		resourceConfig := watchcache.ResourceConfig{
			Name:   kind.GVR().GroupResource().String(),
			Prefix: apiset.KeyPrefix(c.root, kind),
			Attributes: func(key string, value []byte) (attributes.Attributes, error) {
				a, err := coder.Attributes(value)
				if errors.As(err, new(*doccheck.ValueError)) { // its text does not name the object
					err = fmt.Errorf("stored value of %s cannot be served: %w", key, err)
				}
				return attributes.Attributes{
					Namespace: a.Namespace,
					Name:      a.Name,
					Labels:    attributes.SetFromPairsLike(recent, a.Labels),
					Fields:    attributes.FieldsFromPairsLike(recent, a.Fields),
				}, err
			},
		}
		for _, f := range kind.Presentation.Selectable {
			if f.Index {
				resourceConfig.Index = append(resourceConfig.Index, f.Label)
			}
		}
		if kind.GVR() == definitionsResource() {
			ignoreFields := !gates.Enabled(features.CustomResourceFieldSelectors)
			resourceConfig.Summary = new(definition.Outliner).WithoutSchemas
			resourceConfig.DefinedResource = crdinformer.DefinitionReader(c.codec, c.root, c.definable(), ignoreFields)
			resourceConfig.Packed = true
		}
		// The value dictionary outlives objects, so it must not contain parts of secrets.
		resourceConfig.Verbatim = kind.GVR() == corev1.SchemeGroupVersion.WithResource("secrets")
		out = append(out, resourceConfig)
	}
	return out
}

// newKindWrites returns a read-your-writes barrier for each kind that admission plugins read. A
// client that has created such an object must see its effect in the next request to this server.
func newKindWrites() map[schema.GroupResource]*lister.WriteBarrier {
	written := map[schema.GroupResource]*lister.WriteBarrier{}
	for _, r := range []schema.GroupResource{
		{Resource: "namespaces"}, {Resource: "serviceaccounts"}, {Resource: "limitranges"}, {Resource: "resourcequotas"},
		{Group: schedulingv1.GroupName, Resource: "priorityclasses"}, {Group: storagev1.GroupName, Resource: "storageclasses"},
		{Group: networkingv1.GroupName, Resource: "ingressclasses"}, {Group: nodev1.GroupName, Resource: "runtimeclasses"},
		{Group: admissionregistrationv1.GroupName, Resource: "mutatingwebhookconfigurations"},
		{Group: admissionregistrationv1.GroupName, Resource: "validatingwebhookconfigurations"},
		{Group: admissionregistrationv1.GroupName, Resource: "validatingadmissionpolicies"},
		{Group: admissionregistrationv1.GroupName, Resource: "validatingadmissionpolicybindings"},
		{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicies"},
		{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicybindings"},
	} {
		written[r] = &lister.WriteBarrier{}
	}
	return written
}
