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

// RepairOwner recreates an IPAddress object that was deleted although its service has the address.
func (a *Allocator) RepairOwner(ctx context.Context, deleted *watchcache.Entry) error {
	address, err := a.Addresses.decode(deleted)
	if err != nil || address.Spec.ParentRef == nil || address.Labels[networkingv1.LabelManagedBy] != managedBy {
		return err
	}
	parent := address.Spec.ParentRef
	s, found, err := a.Services.get(parent.Namespace, parent.Name)
	if err != nil || !found || s.DeletionTimestamp != nil {
		return err
	}
	addr, err := netip.ParseAddr(address.Name)
	if err != nil || !slices.Contains(addressesOf(s), addr) {
		return nil
	}
	return a.RepairService(ctx, parent.Namespace, parent.Name)
}
