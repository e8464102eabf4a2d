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
func newCaches(base *base, options *config.Options, catalogs *catalogs, stores *stores) (*caches, error) {
	result := &caches{
		catalogs:         catalogs,
		memory:           memory.New(memory.Limit(int64(options.Memory.Caches)), base.metrics),
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
		Memory:        result.memory,
		HistoryBytes:  int64(options.Memory.History),
		LoadsHistory:  true,
		HistoryReader: stores.values,
		Root:          base.root + "/",
	}
	main := shared
	all := catalogs.resources(base.gates)
	main.Source = source
	main.CurrentRevision = stores.store
	main.Logger = base.log
	main.Registerer = base.metrics
	main.Resources = result.resourcesIn(nil, all)
	var err error
	if result.cache, err = watchcache.New(main); err != nil {
		return nil, err
	}
	base.lifetime.inBackground("watch cache", result.cache.Run)
	base.lifetime.inBackground("memory release", idlememory.Release)
	for _, other := range result.overrideClusters {
		clusterConfig := shared
		clusterConfig.Source = stores.decrypted(other.fanout)
		clusterConfig.CurrentRevision = other.store
		clusterConfig.Logger = base.log.With("etcd", other.name())
		clusterConfig.Registerer = other.registerer()
		clusterConfig.Resources = result.resourcesIn(other, all)
		if other.cache, err = watchcache.New(clusterConfig); err != nil {
			return nil, err
		}
		base.lifetime.inBackground(other.name()+": watch cache", other.cache.Run)
	}
	return result, nil
}

// resourcesIn returns the resources that a cluster stores. A nil cluster stands for the main store.
func (c *caches) resourcesIn(other *cluster, all []watchcache.ResourceConfig) (out []watchcache.ResourceConfig) {
	for _, r := range all {
		if c.overrideClusters.forPrefix(r.Prefix) == other {
			out = append(out, r)
		}
	}
	return out
}

// storeOf returns the watch cache of the resource with a key prefix.
func (c *caches) storeOf(prefix string) *watchcache.Store {
	if other := c.overrideClusters.forPrefix(prefix); other != nil {
		return other.cache.Store(prefix)
	}
	return c.cache.Store(prefix)
}

// lookup returns the cached objects of a built-in resource, with the coder that decodes them.
func (c *caches) lookup(gvr schema.GroupVersionResource) lister.CachedResource {
	kind := c.catalog.Resource(gvr)
	prefix := apiset.KeyPrefix(c.root, kind)
	return lister.CachedResource{
		Resource: gvr.GroupResource(),
		Prefix:   prefix,
		Store:    c.storeOf(prefix),
		Coder:    c.codec.ForKind(kind),
		Barrier:  c.kindWrites[gvr.GroupResource()],
	}
}

// core is lookup for a resource of the core group.
func (c *caches) core(resource string) lister.CachedResource {
	return c.lookup(corev1.SchemeGroupVersion.WithResource(resource))
}

// objects returns the listers of service accounts, pods, secrets and nodes. If confirm is set, a
// lister confirms that the cache is current before it reports that an object does not exist.
func (c *caches) objects(confirm bool) *lister.Objects {
	return &lister.Objects{
		Cache:           c.cache,
		Confirm:         confirm,
		ServiceAccounts: c.core("serviceaccounts"),
		Pods:            c.core("pods"),
		Secrets:         c.core("secrets"),
		Nodes:           c.core("nodes"),
	}
}

// waitForWrites waits until the watch cache of a kind contains all writes that this server has
// acknowledged. If the cache of another etcd cluster is not loaded, it returns an error.
func (c *caches) waitForWrites(ctx context.Context, resource *apiset.Resource) error {
	other := c.overrideClusters.forPrefix(resource.Prefix)
	switch {
	case other == nil:
		return c.allWrites.Wait(ctx, c.cache)
	case !other.cache.Ready():
		return watchcache.ErrNotReady
	}
	return other.allWrites.Wait(ctx, other.cache)
}

// recordWrite records the revision of a write in two read-your-writes barriers: the one for all kinds,
// because parameters of policies may have any kind, and the one for the written kind, if it exists.
func (c *caches) recordWrite(resource schema.GroupResource, revision int64) {
	cache, all := c.cache, c.allWrites
	if other := c.resourceClusters[resource]; other != nil {
		cache = other.cache
		all = &other.allWrites
	}
	all.Record(cache.Incarnation(), revision)
	if barrier := c.kindWrites[resource]; barrier != nil {
		barrier.Record(cache.Incarnation(), revision)
	}
}

// loaded reports whether the watch cache of the main store was loaded at least once.
func (c *caches) loaded() bool { return c.cache.Ready() || c.cache.Incarnation() > 0 }

func corruptObjectReporter(base *base) status.CorruptObjects {
	return status.CorruptObjects{Named: base.gates.Enabled(features.AllowUnsafeMalformedObjectDeletion), Root: base.root}
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
func newCatalogs(base *base, options *config.Options) (*catalogs, error) {
	settings := registry.Settings{
		AllowPrivileged: options.AllowPrivileged,
		PrimaryFamily:   options.PrimaryFamily(),
		StoreJSON:       options.Compatibility.StorageMediaType == names.MediaJSON,
		Gates:           base.gates,
	}
	all, err := builtin.AllKinds(settings)
	if err != nil {
		return nil, err
	}
	gate := func(k *registry.Kind) bool { return k.Gate == "" || base.gates.Enabled(k.Gate) }
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
	return &catalogs{catalog: all, served: served, codec: coders, root: base.root}, nil
}

// stored returns the built-in resources by their key prefixes. If several kinds share a prefix, it
// returns the resource of the kind that is stored without conversion.
func (c *catalogs) stored() map[string]schema.GroupResource {
	resources := map[string]schema.GroupResource{}
	for _, kind := range c.catalog.Kinds() {
		if kind.Virtual || kind.Stored.ToStored != nil && c.sharesStore(kind) {
			continue
		}
		resources[apiset.KeyPrefix(c.root, kind)] = kind.StoredGroupResource()
	}
	return resources
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
				stored, err := coder.Attributes(value)
				if errors.As(err, new(*doccheck.ValueError)) { // its text does not name the object
					err = fmt.Errorf("stored value of %s cannot be served: %w", key, err)
				}
				return attributes.Attributes{
					Namespace: stored.Namespace,
					Name:      stored.Name,
					Labels:    attributes.SetFromPairsLike(recent, stored.Labels),
					Fields:    attributes.FieldsFromPairsLike(recent, stored.Fields),
				}, err
			},
		}
		for _, field := range kind.Presentation.Selectable {
			if field.Index {
				resourceConfig.Index = append(resourceConfig.Index, field.Label)
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
	for _, resource := range []schema.GroupResource{
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
		written[resource] = &lister.WriteBarrier{}
	}
	return written
}
