package allocator

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	netutils "k8s.io/utils/net"

	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// ignoreNotFound returns nil for a NotFound error, and any other error unchanged.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// The following functions report which fields are relevant for the type of a service.

func hasAddress(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName
}

func hasNodePorts(service *corev1.Service) bool {
	return service.Spec.Type == corev1.ServiceTypeNodePort || service.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// wantsNodePorts reports whether ports without a node port get one.
func wantsNodePorts(service *corev1.Service) bool {
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		allocate := service.Spec.AllocateLoadBalancerNodePorts
		return allocate == nil || *allocate
	}
	return service.Spec.Type == corev1.ServiceTypeNodePort
}

// hasHealthCheck reports whether the service has a health check node port.
func hasHealthCheck(service *corev1.Service) bool {
	return service.Spec.Type == corev1.ServiceTypeLoadBalancer && service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func isHeadless(service *corev1.Service) bool {
	return len(service.Spec.ClusterIPs) > 0 && service.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// parseAddress parses an address as leniently as the API does: leading zeros are decimal.
func parseAddress(text string) (netip.Addr, bool) {
	ip := netutils.ParseIPSloppy(text)
	if ip == nil {
		return netip.Addr{}, false
	}
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok
}

func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// otherFamily returns IPv6 for IPv4, and the reverse.
func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func addressesOf(service *corev1.Service) (out []netip.Addr) {
	if !hasAddress(service) || isHeadless(service) {
		return nil
	}
	texts := service.Spec.ClusterIPs
	if len(texts) == 0 && service.Spec.ClusterIP != "" { // written by a server without clusterIPs
		texts = []string{service.Spec.ClusterIP}
	}
	for _, text := range texts {
		if addr, ok := parseAddress(text); ok {
			out = append(out, addr)
		}
	}
	return out
}

// nodePortsOf returns the node ports of a service's ports without duplicates.
func nodePortsOf(service *corev1.Service) (out []int) {
	seen := map[int]bool{} // not a search, because a client may send 65,535 ports
	for i := range service.Spec.Ports {
		if n := int(service.Spec.Ports[i].NodePort); n != 0 && !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

func portsOf(service *corev1.Service) []int {
	out := nodePortsOf(service)
	if n := int(service.Spec.HealthCheckNodePort); n != 0 && hasHealthCheck(service) && !slices.Contains(out, n) {
		out = append(out, n)
	}
	return out
}

// keepAllocated copies allocated values that service lacks from old, the live service, so
// that writing the same manifest again changes nothing.
func keepAllocated(service, old *corev1.Service) {
	if hasAddress(service) && hasAddress(old) {
		if service.Spec.ClusterIP == "" {
			service.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(service.Spec.ClusterIPs) == 0 {
			service.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if wantsNodePorts(service) && wantsNodePorts(old) {
		keepNodePorts(service, old)
	}
	if hasHealthCheck(service) && hasHealthCheck(old) && service.Spec.HealthCheckNodePort == 0 {
		service.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// keepNodePorts gives each port without a node port the node port of the live port with the
// same name, unless the client chose it for another port.
func keepNodePorts(service, old *corev1.Service) {
	oldByName := map[string]int32{}
	chosen := nodePortsOf(service)
	for i := range old.Spec.Ports {
		oldByName[old.Spec.Ports[i].Name] = old.Spec.Ports[i].NodePort
	}
	for i := range service.Spec.Ports {
		p := &service.Spec.Ports[i]
		if n := oldByName[p.Name]; p.NodePort == 0 && n != 0 && !slices.Contains(chosen, int(n)) {
			p.NodePort = n
		}
	}
}

// syncAddresses updates clusterIPs from clusterIP, for clients that do not know clusterIPs.
func syncAddresses(service, old *corev1.Service) {
	spec := &service.Spec
	// 1. Without live addresses, clusterIP is the only source.
	if old == nil || len(old.Spec.ClusterIPs) == 0 {
		if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
		return
	}
	// 2. A client that sends only an unchanged clusterIP keeps the live addresses.
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP == old.Spec.ClusterIP {
		spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
	}
	// 3. A client that changes only clusterIP replaces all addresses by it.
	if !slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs) || spec.ClusterIP == old.Spec.ClusterIP {
		return
	}
	if spec.ClusterIP == "" {
		spec.ClusterIPs = nil
	} else {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
}

// LacksAddress reports whether a stored service has an address without an IPAddress object. A
// server without the gate MultiCIDRServiceAllocator creates such services.
func (a *Allocator) LacksAddress(service *objects.Entry) bool {
	s, err := a.Services.decode(service)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(addressesOf(s), func(addr netip.Addr) bool { return !a.Addresses.exists(addr.String()) })
}

// RepairService creates the missing IPAddress objects of a service.
func (a *Allocator) RepairService(ctx context.Context, namespace, name string) error {
	if _, err := a.Cache.MostRecent(ctx); err != nil {
		return err
	}
	live, found, err := a.Services.get(namespace, name)
	if err != nil || !found {
		return err
	}
	a.repairs.mu.Lock()
	defer a.repairs.mu.Unlock()
	run := &repairRun{Allocator: a, reported: map[string]bool{}}
	var errs []error
	for _, addr := range addressesOf(live) {
		errs = append(errs, run.repairAddress(ctx, live, addr))
	}
	return errors.Join(errs...)
}

// RepairDeleted creates an IPAddress object again that was deleted although a service has the
// address. That service may differ from the owner of the deleted object: a server with the gate
// MultiCIDRServiceAllocator releases an address that a server without the gate has allocated to
// another service. Addresses that the service writes in another form wait for the periodic repair.
func (a *Allocator) RepairDeleted(ctx context.Context, deleted *objects.Entry) error {
	address, err := a.Addresses.decode(deleted)
	if err != nil || address.Labels[networkingv1.LabelManagedBy] != managedBy {
		return err
	}
	addr, err := netip.ParseAddr(address.Name)
	if err != nil {
		return nil
	}
	var errs []error
	for _, s := range a.Services.listContaining(address.Name) {
		if s.DeletionTimestamp == nil && slices.Contains(addressesOf(s), addr) {
			errs = append(errs, a.RepairService(ctx, s.Namespace, s.Name))
		}
	}
	return errors.Join(errs...)
}

// FollowServices creates missing IPAddress objects of services that change, until ctx ends. The
// periodic repair covers what fails here.
func (a *Allocator) FollowServices(ctx context.Context) error {
	return informer.Follow(ctx, a.Services.Store, objects.Selection{}, func(events []watchcache.Event) {
		for _, e := range events {
			if (e.Type == watchcache.Added || e.Type == watchcache.Modified) && a.LacksAddress(e.Entry) {
				a.logRepair(e.Entry, a.RepairService(ctx, e.Entry.Namespace(), e.Entry.Name()))
			}
		}
	})
}

// FollowAddresses creates IPAddress objects again that are deleted while a service uses them, until
// ctx ends.
func (a *Allocator) FollowAddresses(ctx context.Context) error {
	return informer.Follow(ctx, a.Addresses.Store, objects.Selection{}, func(events []watchcache.Event) {
		for _, e := range events {
			if e.Type == watchcache.Deleted {
				a.logRepair(e.Entry, a.RepairDeleted(ctx, e.Entry))
			}
		}
	})
}

func (a *Allocator) logRepair(entry *objects.Entry, err error) {
	if err != nil {
		a.Logger.Warn("failed to repair the addresses of a service; the next periodic repair tries again",
			"object", entry.Key(), "error", err)
	}
}
