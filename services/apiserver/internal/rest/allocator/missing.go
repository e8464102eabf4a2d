package allocator

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// LacksAddress reports whether a stored service has an address without an IPAddress object. A
// server without the gate MultiCIDRServiceAllocator creates such services.
func (a *Allocator) LacksAddress(service *watchcache.Entry) bool {
	s, err := a.Services.decode(service)
	if err != nil {
		return false
	}
	for _, addr := range addressesOf(s) {
		if !a.Addresses.has(addr.String()) {
			return true
		}
	}
	return false
}

// RepairService creates the missing IPAddress objects of a service.
func (a *Allocator) RepairService(ctx context.Context, namespace, name string) error {
	if _, err := a.Cache.MostRecent(ctx); err != nil {
		return err
	}
	s, found, err := a.Services.get(namespace, name)
	if err != nil || !found {
		return err
	}
	a.repairs.mu.Lock()
	defer a.repairs.mu.Unlock()
	r := &run{Allocator: a, seen: map[string]bool{}}
	var errs []error
	for _, addr := range addressesOf(s) {
		errs = append(errs, r.addressOf(ctx, s, addr))
	}
	return errors.Join(errs...)
}

// RepairDeleted creates an IPAddress object again that was deleted although a service has the
// address. That service may differ from the owner of the deleted object: a server with the gate
// MultiCIDRServiceAllocator releases an address that a server without the gate has allocated to
// another service. Addresses that the service writes in another form wait for the periodic repair.
func (a *Allocator) RepairDeleted(ctx context.Context, deleted *watchcache.Entry) error {
	address, err := a.Addresses.decode(deleted)
	if err != nil || address.Labels[networkingv1.LabelManagedBy] != managedBy {
		return err
	}
	addr, err := netip.ParseAddr(address.Name)
	if err != nil {
		return nil
	}
	var errs []error
	for _, s := range a.Services.containing(address.Name) {
		if s.DeletionTimestamp == nil && slices.Contains(addressesOf(s), addr) {
			errs = append(errs, a.RepairService(ctx, s.Namespace, s.Name))
		}
	}
	return errors.Join(errs...)
}
