package build

import (
	"context"
	"iter"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/controllers/leaderelection"
	"binnacle/services/apiserver/internal/controllers/storageversions"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/registry"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/rest/allocator"
	"binnacle/services/apiserver/internal/status"
)

// controllers maintain objects of the cluster.
type controllers struct {
	bootstrap       *bootstrap.Bootstrap
	storageVersions *storageversions.Manager   // nil if disabled
	leaderElection  *leaderelection.Controller // nil if disabled
}

func newControllers(b *base, o *config.Options, k *caches, s *stores, sets *apiSets, custom *customResources, z *authorization, services *allocator.Allocator, info *extensionInfo) *controllers {
	c := &controllers{
		storageVersions: newStorageVersions(b, k.catalogs, sets.client, custom.informer),
		leaderElection:  newLeaderElection(b, k, sets.client),
	}
	endpoints, on := k.core("endpoints").Coder, b.gates.Enabled
	start := bootstrap.Config{
		API: sets.client, Store: s.store, Root: b.root, Logger: b.log, Now: time.Now,
		EncodeEndpoints: func(e *corev1.Endpoints) ([]byte, error) { return endpoints.EncodeStored(e) },
		Identity:        b.identity, Instance: uuid.NewString(), Hostname: b.host,
		AdvertiseAddress: o.AdvertiseAddress, SecurePort: b.port, ServiceRanges: o.Services.Ranges, NoIdentity: !on(features.APIServerIdentity), NoServiceCIDR: !on(features.MultiCIDRServiceAllocator), NodePort: o.Services.KubernetesNodePort, ForeignEndpoints: o.Services.EndpointReconciler == config.ReconcileNone,
		AuthenticationConfig: info.data, AuthenticationConfigDue: info.due, APIServices: apiServices(k.served), Loaded: k.cache.WaitReady, FeatureEnabled: on, PolicySeen: z.synced,
		RepairAllocations: services.Repair, RepairInterval: allocator.RepairInterval,
	}
	if c.storageVersions != nil {
		start.StorageVersions = c.storageVersions.Update
	}
	// It maintains the bootstrap objects while the server accepts requests, and removes this replica
	// from the kubernetes service while the caches still run.
	c.bootstrap = bootstrap.New(start)
	b.life.whileServing("initial objects", c.bootstrap.Run)
	roles := &bootstrap.Aggregator{API: sets.client, Policy: z.policy.Engine, Logger: b.log, Changed: z.changed}
	b.life.whileServing("aggregated cluster roles", roles.Run)
	return c
}

// apiServices returns the APIServices of the built-in group versions.
func apiServices(served *registry.Catalog) (out []bootstrap.APIService) {
	for _, g := range served.Groups() {
		if g.Name == apiregistrationv1.GroupName {
			continue
		}
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v}
			out = append(out, bootstrap.APIService{
				Group: g.Name, Version: v, GroupPriority: g.Priority, VersionPriority: builtin.VersionPriority(gv),
			})
		}
	}
	return out
}

// newRegistrations follows definitions and maintains the APIServices of their group versions.
func newRegistrations(b *base, k *caches, sets *apiSets, informer *crdinformer.Server, remotes *aggregation.Aggregator) *bootstrap.CustomVersions {
	v := bootstrap.NewCustomVersions()
	informer.OnSwapped(func(update kind.Update) { v.Set(update.Changed, update.Complete) })
	registrations := &bootstrap.Registrations{
		API: sets.client,
		Live: func() (iter.Seq[*apiregistrationv1.APIService], error) {
			if !k.cache.Ready() {
				return nil, status.Reloading()
			}
			return remotes.Registered(), nil
		},
		Wanted: v.Wanted, Changed: v.Changed(), Logger: b.log,
		Gone: func(ctx context.Context, group, version string) bool {
			gone := !informer.Newest(ctx, sets.kinds).Serves(schema.GroupVersion{Group: group, Version: version})
			return gone && v.AllKnown()
		},
	}
	b.life.whileServing("API services of custom resources", registrations.Run)
	return v
}
