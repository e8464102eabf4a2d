package build

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/allocator"
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
func viewOf[T registry.Object](p *parts, gvr schema.GroupVersionResource) allocator.View[T] {
	kind := p.catalog.Resource(gvr)
	return allocator.View[T]{Store: p.cached(apiset.KeyPrefix(p.base.root, kind)), Coder: p.codec.Of(kind)}
}

// newAllocator creates the allocator of cluster IPs and node ports. It writes through the same API
// that calls it.
func (p *parts) newAllocator(identity string) *allocator.Allocator {
	var prefixes []netip.Prefix
	for _, r := range p.options.ServiceRanges {
		if prefix, err := netip.ParsePrefix(r.String()); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	return allocator.New(allocator.Config{
		API:   p.client,
		Store: p.store, Root: p.base.root, Cache: p.cache,
		Services:  viewOf[*corev1.Service](p, corev1.SchemeGroupVersion.WithResource("services")),
		Addresses: viewOf[*networkingv1.IPAddress](p, networkingv1.SchemeGroupVersion.WithResource("ipaddresses")),
		Ranges:    viewOf[*networkingv1.ServiceCIDR](p, networkingv1.SchemeGroupVersion.WithResource("servicecidrs")),
		Prefixes:  prefixes, Ports: p.options.ServiceNodePorts, DualWrite: !p.options.Features.Enabled(features.DisableAllocatorDualWrite),
		Bitmap:   !p.options.Features.Enabled(features.MultiCIDRServiceAllocator),
		Scheme:   p.codec.Scheme(),
		Identity: identity, Now: time.Now, Logger: p.log, Registerer: p.metrics,
	})
}
