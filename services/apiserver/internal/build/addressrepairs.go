package build

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/libs/features"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// addressRepairs returns tasks that create missing IPAddress objects of services. They run when a
// service changes or an IPAddress is deleted. The periodic repair covers what fails here.
func (p *parts) addressRepairs() []task.Task {
	if !p.options.Features.Enabled(features.MultiCIDRServiceAllocator) {
		return nil
	}
	report := func(e *watchcache.Entry, err error) {
		if err != nil {
			p.log.Warn("failed to repair the addresses of a service; the next periodic repair tries again", "object", e.Key(), "error", err)
		}
	}
	services := p.lookup(corev1.SchemeGroupVersion.WithResource("services")).Store
	addresses := p.lookup(networkingv1.SchemeGroupVersion.WithResource("ipaddresses")).Store
	return []task.Task{
		{Name: "repair of addresses of services", Run: func(ctx context.Context) error {
			return followSelected(ctx, services, watchcache.Selection{}, func(events []watchcache.Event) {
				for _, e := range events {
					if (e.Type == watchcache.Added || e.Type == watchcache.Modified) && p.allocator.LacksAddress(e.Entry) {
						report(e.Entry, p.allocator.RepairService(ctx, e.Entry.Namespace(), e.Entry.Name()))
					}
				}
			})
		}},
		{Name: "repair of deleted addresses", Run: func(ctx context.Context) error {
			return followSelected(ctx, addresses, watchcache.Selection{}, func(events []watchcache.Event) {
				for _, e := range events {
					if e.Type == watchcache.Deleted {
						report(e.Entry, p.allocator.RepairDeleted(ctx, e.Entry))
					}
				}
			})
		}},
	}
}
