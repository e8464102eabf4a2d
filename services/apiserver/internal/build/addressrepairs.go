package build

import (
	"context"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/rest/allocator"
)

// repairAddresses adds tasks that create missing IPAddress objects of services. They run when a
// service changes or an IPAddress is deleted. The periodic repair covers what fails here.
func repairAddresses(b *base, a *allocator.Allocator, services, addresses *watchcache.Store) {
	report := func(e *watchcache.Entry, err error) {
		if err != nil {
			b.log.Warn("failed to repair the addresses of a service; the next periodic repair tries again", "object", e.Key(), "error", err)
		}
	}
	b.life.whileServing("repair of addresses of services", func(ctx context.Context) error {
		return followChanges(ctx, services, func(events []watchcache.Event) {
			for _, e := range events {
				if (e.Type == watchcache.Added || e.Type == watchcache.Modified) && a.LacksAddress(e.Entry) {
					report(e.Entry, a.RepairService(ctx, e.Entry.Namespace(), e.Entry.Name()))
				}
			}
		})
	})
	b.life.whileServing("repair of deleted addresses", func(ctx context.Context) error {
		return followChanges(ctx, addresses, func(events []watchcache.Event) {
			for _, e := range events {
				if e.Type == watchcache.Deleted {
					report(e.Entry, a.RepairDeleted(ctx, e.Entry))
				}
			}
		})
	})
}
