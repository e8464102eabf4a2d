package build

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/autoregister"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/controllers/leaderelection"
	"binnacle/services/apiserver/internal/controllers/storageversions"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/rest/allocator"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/status"
)

// controllers holds the controllers that maintain objects of the cluster.
type controllers struct {
	bootstrap       *bootstrap.Bootstrap
	storageVersions *storageversions.Manager   // nil if disabled
	leaderElection  *leaderelection.Controller // nil if disabled
}

// newControllers creates the controllers that the options enable.
func newControllers(
	base *base,
	options *config.Options,
	caches *caches,
	stores *stores,
	sets *apiSets,
	custom *customResources,
	authz *authorization,
	services *allocator.Allocator,
	info *bootstrap.ExtensionInfo,
) *controllers {
	result := &controllers{
		storageVersions: newStorageVersions(base, caches.catalogs, sets.client, custom.informer),
		leaderElection:  newLeaderElection(base, caches, sets.client, options.LeaderElectionRetryPeriod),
	}
	endpoints := caches.core("endpoints").Coder
	enabled := base.gates.Enabled
	start := bootstrap.Config{
		API:                     sets.client,
		Store:                   stores.store,
		Root:                    base.root,
		Logger:                  base.log,
		Now:                     time.Now,
		EncodeEndpoints:         func(e *corev1.Endpoints) ([]byte, error) { return endpoints.EncodeStored(e) },
		Identity:                base.identity,
		Instance:                uuid.NewString(),
		Hostname:                base.host,
		AdvertiseAddress:        options.AdvertiseAddress,
		SecurePort:              base.port,
		ServiceRanges:           options.Services.Ranges,
		NoIdentity:              !enabled(features.APIServerIdentity),
		NoServiceCIDR:           !enabled(features.MultiCIDRServiceAllocator),
		NodePort:                options.Services.KubernetesNodePort,
		ForeignEndpoints:        options.Services.EndpointReconciler == config.ReconcileNone,
		AuthenticationConfig:    info.Data,
		AuthenticationConfigDue: info.Changes(),
		APIServices:             apiServices(caches.served),
		Loaded:                  caches.cache.WaitReady,
		FeatureEnabled:          enabled,
		PolicySeen:              authz.waitForNewest,
		RepairAllocations:       services.Repair,
		RepairInterval:          allocator.RepairInterval,
	}
	if result.storageVersions != nil {
		start.StorageVersions = result.storageVersions.Update
	}
	// Bootstrap is a serving task. So at shutdown it removes this replica from the kubernetes
	// service while the watch caches still run.
	result.bootstrap = bootstrap.New(start)
	base.lifetime.whileServing("initial objects", result.bootstrap.Run)
	roles := &bootstrap.RoleAggregator{API: sets.client, Policy: authz.policy.Engine, Logger: base.log, Changed: authz.changed}
	base.lifetime.whileServing("aggregated cluster roles", roles.Run)
	return result
}

// apiServices returns the APIServices of the built-in group versions.
func apiServices(served *registry.Catalog) (out []autoregister.APIService) {
	for _, group := range served.Groups() {
		if group.Name == apiregistrationv1.GroupName {
			continue
		}
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version}
			out = append(out, autoregister.APIService{
				Group:           group.Name,
				Version:         version,
				GroupPriority:   group.Priority,
				VersionPriority: builtin.VersionPriority(gv),
			})
		}
	}
	return out
}

// newRegistrations creates the controller that maintains the APIServices of custom resources. It
// returns the set of their group versions.
func newRegistrations(
	base *base,
	caches *caches,
	sets *apiSets,
	informer *crdinformer.Syncer,
	remotes *aggregation.Aggregator,
) *autoregister.CustomVersions {
	customVersions := autoregister.NewCustomVersions()
	informer.OnSwapped(func(update kind.CRDUpdate) { customVersions.Set(update.Changed, update.Complete) })
	registrations := &autoregister.Registrations{
		API: sets.client,
		Live: func() (iter.Seq[*apiregistrationv1.APIService], error) {
			if !caches.cache.Ready() {
				return nil, status.Reloading()
			}
			return remotes.Registered(), nil
		},
		Desired: customVersions.Desired,
		Changed: customVersions.Changed(),
		Logger:  base.log,
		Gone: func(ctx context.Context, group, version string) bool {
			removed := !informer.NewestSet(ctx, sets.kinds).Serves(schema.GroupVersion{Group: group, Version: version})
			return removed && customVersions.AllKnown()
		},
	}
	base.lifetime.whileServing("API services of custom resources", registrations.Run)
	return customVersions
}

// newExtensionInfo creates the data that extension servers need to authenticate clients, and adds
// the tasks that keep it up to date.
func newExtensionInfo(
	base *base,
	options *config.AuthenticationOptions,
	clientCAs *tlsfiles.Bundle,
	caches *caches,
) *bootstrap.ExtensionInfo {
	extensionInfo := bootstrap.NewExtensionInfo(bootstrap.ExtensionInfo{
		ClientCAs:    clientCAs,
		ProxyCAs:     options.ProxyCAs,
		ProxyNames:   options.Proxy.Names,
		ProxyHeaders: options.Proxy.Headers,
		Logger:       base.log,
	})
	configMaps := caches.core("configmaps").Store
	base.lifetime.whileServing("authentication configuration for extension servers", func(ctx context.Context) error {
		return extensionInfo.FollowObject(ctx, configMaps)
	})
	if clientCAs != nil || options.ProxyCAs != nil {
		base.lifetime.whileServing("certificate authorities for extension servers", extensionInfo.FollowFiles)
	}
	return extensionInfo
}

// newLeaderElection creates the controller of coordinated leader election. It returns nil if the
// feature gate is disabled. The controller also runs if lease candidates are not served; it then
// finds none.
func newLeaderElection(
	base *base,
	caches *caches,
	client *internalclient.Client,
	retryPeriod time.Duration,
) *leaderelection.Controller {
	if !base.gates.Enabled(features.CoordinatedLeaderElection) {
		return nil
	}
	controller := leaderelection.New(leaderelection.Config{
		API:      client,
		Identity: base.host + "_" + uuid.NewString(),
		Logger:   base.log,
		Now:      time.Now,

		RetryPeriod: retryPeriod,
	})
	candidates := caches.lookup(coordinationv1beta1.SchemeGroupVersion.WithResource("leasecandidates")).Store
	leases := caches.lookup(coordinationv1.SchemeGroupVersion.WithResource("leases")).Store
	base.lifetime.whileServing("leader election", controller.Run)
	base.lifetime.whileServing("lease candidates", func(ctx context.Context) error {
		return informer.FollowNames(ctx, candidates, controller.CandidateChanged)
	})
	base.lifetime.whileServing("leases of leader election", func(ctx context.Context) error {
		return informer.FollowNames(ctx, leases, controller.LeaseChanged)
	})
	return controller
}

// newStorageVersions creates the manager of StorageVersion objects of this
// replica. It returns nil if a required gate is disabled.
func newStorageVersions(
	base *base,
	catalogs *catalogs,
	client *internalclient.Client,
	informer *crdinformer.Syncer,
) *storageversions.Manager {
	if on := base.gates.Enabled; !on(features.StorageVersionAPI) || !on(features.APIServerIdentity) {
		return nil
	}
	manager := storageversions.New(client, base.identity, catalogs.catalog, catalogs.served, time.Now)
	// The manager must know changed definitions before clients can use them, so that it blocks
	// writes.
	informer.OnSwapping(func(s kind.CRDUpdate) {
		var definitionsResource []*apiextensionsv1.CustomResourceDefinition
		for d := range s.All {
			definitionsResource = append(definitionsResource, d.CustomResourceDefinition)
		}
		manager.Define(definitionsResource)
	})
	base.lifetime.whileServing("storage versions of custom resources", func(ctx context.Context) error { return manager.Run(ctx, base.log) })
	return manager
}

// etcdCheckTTL is how long the result of the etcd health check is cached. Without the cache,
// anonymous clients could cause many requests to etcd.
const etcdCheckTTL = time.Second

// readiness determines which parts of the server have started.
type readiness struct {
	gates       *features.Gates
	stores      *stores
	caches      *caches
	custom      *customResources
	security    *security
	delegates   *delegates
	controllers *controllers
}

// addHealthChecks adds the health checks in the order in which clients see them. The names and the
// order are those of kube-apiserver.
func (r *readiness) addHealthChecks(registry *health.Registry, options *config.Options) {
	registry.Add("log", func(*http.Request) error { return nil })
	etcd := health.Shared(options.Etcd.HealthTimeout, etcdCheckTTL, r.stores.store.Ping)
	registry.Add("etcd", etcd)
	if options.Etcd.ReadyTimeout != options.Etcd.HealthTimeout {
		etcd = health.Shared(options.Etcd.ReadyTimeout, etcdCheckTTL, r.stores.store.Ping)
	}
	registry.Add("etcd-readiness", etcd, health.Readyz)
	r.stores.overrideClusters.addChecks(registry)
	r.stores.encryptionConfig.AddHealthChecks(registry, options.Encryption.Reload)
	registry.Add("informer-sync", func(req *http.Request) error {
		return errors.Join(r.synced(), r.stores.overrideClusters.synced(req))
	}, health.Readyz)
	registry.Add("fan-out", func(req *http.Request) error { return r.stores.fanout.Check(req.Context()) }, health.Readyz)
	r.addStartChecks(registry, options.Encryption.Reload)
}

// synced returns an error unless the watch cache, the definitions and the RBAC policy are loaded.
func (r *readiness) synced() error {
	if !r.caches.cache.Ready() || !r.custom.informer.Synced() {
		return watchcache.ErrNotReady
	}
	return r.security.authz.policy.Check(nil)
}

// reloading reports whether the watch cache was loaded before but is being reloaded, because the
// store went back to an older revision. It considers the main store and the store of the requested
// resource.
func (r *readiness) reloading(op *requestinfo.Info) bool {
	if r.caches.cache.Incarnation() > 0 && r.synced() != nil {
		return true
	}
	c := r.caches.resourceClusters[op.GVR().GroupResource()]
	return c != nil && c.cache.Incarnation() > 0 && !c.cache.Ready()
}

// errNotStarted is the error of a health check whose part has not started yet.
var errNotStarted = errors.New("not finished")

// startCheck is the health check of a part that starts with the server. Its name is the name of the
// post-start hook of kube-apiserver that does the same work.
type startCheck struct {
	name  string
	check health.Check // nil if the part is disabled
}

// startedCheck returns a check that passes once started returns true. started must not return false
// again while the watch cache reloads, because /livez must not fail then.
func startedCheck(started func() bool) health.Check {
	return func(*http.Request) error {
		if !started() {
			return errNotStarted
		}
		return nil
	}
}

// startedCheckIf returns startedCheck(started) if the part is enabled, and otherwise nil.
func startedCheckIf(enabled bool, started func() bool) health.Check {
	if !enabled {
		return nil
	}
	return startedCheck(started)
}

// addStartChecks adds the checks of the parts that start with the server. reload reports whether
// the encryption configuration is reloaded.
func (r *readiness) addStartChecks(h *health.Registry, reload bool) {
	for _, c := range slices.Concat(r.cacheChecks(reload), r.controllerChecks(), r.objectChecks(), r.aggregationChecks()) {
		if c.check != nil {
			h.Add("poststarthook/"+c.name, c.check)
		}
		if c.name == "kube-apiserver-autoregistration" { // the order is that of kube-apiserver
			h.Add("autoregister-completion", r.newRegistrationCheck())
		}
	}
}

// cacheChecks returns the checks of the watch cache, its readers, and the limits on requests.
func (r *readiness) cacheChecks(reload bool) []startCheck {
	flow := r.security.flow.Control
	return []startCheck{
		{"start-apiserver-admission-initializer", startedCheck(func() bool { return r.caches.loaded() && r.custom.informer.Loaded() })},
		{"start-encryption-provider-config-automatic-reload", startedCheckIf(reload, r.stores.encryptionConfig.Reloading)},
		{"generic-apiserver-start-informers", startedCheck(r.caches.loaded)},
		{"priority-and-fairness-config-consumer", startedCheckIf(flow != nil, flow.Configured)},
		{"priority-and-fairness-filter", startedCheckIf(flow != nil, flow.Running)},
		{"max-in-flight-filter", startedCheckIf(flow == nil, func() bool { return true })},
		{"storage-object-count-tracker-hook", startedCheck(r.caches.loaded)},
		{"start-apiextensions-informers", startedCheck(r.caches.loaded)},
		{"start-apiextensions-controllers", startedCheck(r.custom.controller.Started)},
		{"crd-informer-synced", startedCheck(r.custom.informer.Loaded)},
	}
}

// controllerChecks returns the health checks of the namespace controller, and of controllers that need
// feature gates.
func (r *readiness) controllerChecks() []startCheck {
	var election, presence health.Check
	if r.controllers.leaderElection != nil {
		election = r.controllers.leaderElection.Check
	}
	if r.delegates.presence != nil {
		presence = r.delegates.presence.Check
	}
	namespaces := r.controllers.bootstrap.Checks()["start-system-namespaces-controller"]
	peers := r.delegates.peers != nil
	return []startCheck{
		{"start-system-namespaces-controller", namespaces},
		{"start-kube-apiserver-coordinated-leader-election-controller", election},
		{"peer-endpoint-reconciler-controller", presence},
		{"local-discovery-cache-sync", startedCheckIf(peers, r.custom.informer.Loaded)},
		{"peer-discovery-cache-sync", startedCheckIf(peers, r.caches.loaded)},
		{"mixed-version-proxy-handler", startedCheckIf(peers, r.caches.loaded)},
	}
}

// objectChecks returns the checks of the objects that the server creates at its start.
func (r *readiness) objectChecks() (out []startCheck) {
	created := r.controllers.bootstrap.Checks()
	if !r.security.authz.usesRBAC { // the server creates roles, but does not need them
		delete(created, "rbac/bootstrap-roles")
	}
	for _, name := range []string{
		"start-cluster-authentication-info-controller",
		"start-kube-apiserver-identity-lease-controller", "start-kube-apiserver-identity-lease-garbage-collector",
		"storage-readiness",
		"start-legacy-token-tracking-controller", "start-service-ip-repair-controllers",
		"rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes", "priority-and-fairness-config-producer",
		"bootstrap-controller", "start-kubernetes-service-cidr-controller",
	} {
		check := health.Check(created[name])
		if name == "storage-readiness" {
			check = startedCheckIf(r.gates.Enabled(features.WatchCacheInitializationPostStartHook), r.caches.loaded)
		}
		out = append(out, startCheck{name: name, check: check})
	}
	return out
}

// aggregationChecks returns the checks of APIServices, discovery and OpenAPI.
func (r *readiness) aggregationChecks() []startCheck {
	created := r.controllers.bootstrap.Checks()
	documents := startedCheck(r.custom.informer.Loaded)
	return []startCheck{
		{"aggregator-reload-proxy-client-cert",
			startedCheckIf(r.delegates.proxyClientCert != nil, func() bool { return r.delegates.proxyClientCert.Certificate() != nil })},
		{"start-kube-aggregator-informers", startedCheck(r.caches.loaded)},
		{"apiservice-status-local-available-controller", startedCheck(r.delegates.extensions.LocalStarted)},
		{"apiservice-status-remote-available-controller", startedCheck(r.delegates.extensions.RemoteStarted)},
		{"apiservice-registration-controller", startedCheck(r.delegates.extensions.RemoteStarted)},
		{"apiservice-discovery-controller", startedCheck(r.delegates.extensions.RemoteStarted)},
		{"built-in-resources-storage-version-updater", created["built-in-resources-storage-version-updater"]},
		{"kube-apiserver-autoregistration", created["kube-apiserver-autoregistration"]},
		{"apiservice-openapi-controller", documents},
		{"apiservice-openapiv3-controller", documents},
	}
}

// newRegistrationCheck returns a check that passes once the APIServices of all built-in group
// versions were available at the same time. It also passes if the store is full, so that the server
// becomes ready and clients can delete objects.
func (r *readiness) newRegistrationCheck() health.Check {
	var complete atomic.Bool
	var names []string
	for _, service := range apiServices(r.caches.served) {
		names = append(names, service.Version+"."+service.Group)
	}
	return func(*http.Request) error {
		if complete.Load() || r.controllers.bootstrap.StoreFull() {
			return nil
		}
		unavailable := r.delegates.extensions.Unavailable(names)
		if len(unavailable) > 0 {
			return fmt.Errorf("missing APIService: %v", unavailable)
		}
		complete.Store(true)
		return nil
	}
}
