package build

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/allocator"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/writes"
)

// serviceAllocator adapts the allocator to writes.Allocator.
type serviceAllocator struct{ *allocator.Allocator }

// Allocate implements writes.Allocator.
func (s serviceAllocator) Allocate(ctx context.Context, obj, old registry.Object, dryRun bool) (writes.Claim, error) {
	claim, err := s.Allocator.Allocate(ctx, obj, old, dryRun)
	if err != nil {
		return nil, err
	}
	return claim, nil
}

// viewOf returns the cached objects of a built-in kind.
func viewOf[T registry.Object](k *caches, gvr schema.GroupVersionResource) allocator.View[T] {
	kind := k.lookup(gvr)
	return allocator.View[T]{Store: kind.Store, Coder: kind.Coder}
}

// newAllocator creates the allocator of cluster IPs and node ports. It writes through the same API
// that calls it.
func newAllocator(b *base, o *config.ServiceOptions, k *caches, s *stores, client *internalclient.Client) *allocator.Allocator {
	var prefixes []netip.Prefix
	for _, r := range o.Ranges {
		if prefix, err := netip.ParsePrefix(r.String()); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	services, addresses := corev1.SchemeGroupVersion.WithResource("services"), networkingv1.SchemeGroupVersion.WithResource("ipaddresses")
	a := allocator.New(allocator.Config{
		API:   client,
		Store: s.store, Root: b.root, Cache: k.cache,
		Services:  viewOf[*corev1.Service](k, services),
		Addresses: viewOf[*networkingv1.IPAddress](k, addresses),
		Ranges:    viewOf[*networkingv1.ServiceCIDR](k, networkingv1.SchemeGroupVersion.WithResource("servicecidrs")),
		Prefixes:  prefixes, Ports: o.NodePorts, DualWrite: !b.gates.Enabled(features.DisableAllocatorDualWrite),
		Bitmap:   !b.gates.Enabled(features.MultiCIDRServiceAllocator),
		Scheme:   k.codec.Scheme(),
		Identity: b.host, Now: time.Now, Logger: b.log, Registerer: b.metrics,
	})
	if b.gates.Enabled(features.MultiCIDRServiceAllocator) {
		repairAddresses(b, a, k.lookup(services).Store, k.lookup(addresses).Store)
	}
	return a
}
