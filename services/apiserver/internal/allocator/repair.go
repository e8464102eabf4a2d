package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RepairInterval is the time between two repairs.
const RepairInterval = 3 * time.Minute

const (
	// addressGrace is how old the address of a service that does not exist has
	// to be: a service that is being created takes its address first.
	addressGrace = time.Minute
	// leakGrace is how often a port or a bit of an address that no service has must
	// have been found, for the same reason.
	leakGrace = 3
)

// repairs is what one repair remembers for the next.
type repairs struct {
	mu     sync.Mutex
	leaked map[int]int // how often a port was found that no service has
	told   map[string]bool
}

// Repair makes addresses and ports agree with the services that there are. What
// cannot be repaired is told by events on the services, once.
func (a *Allocator) Repair(ctx context.Context) error {
	a.repairs.mu.Lock()
	defer a.repairs.mu.Unlock()
	r := &run{Allocator: a, seen: map[string]bool{}}
	check := r.addresses
	if a.Bitmap {
		check = r.unconfigured
	}
	addresses := check(ctx)
	for _, b := range a.bits {
		addresses = errors.Join(addresses, r.addressBits(ctx, b))
	}
	if addresses != nil {
		a.metrics.addressRepairs.Inc()
	}
	ports := r.ports(ctx)
	if ports != nil {
		a.metrics.portRepairs.Inc()
	}
	a.repairs.told = r.seen
	return errors.Join(addresses, ports)
}

// run is one repair.
type run struct {
	*Allocator
	seen map[string]bool // the problems that were found
}

// newest lists the services as they are now.
func (r *run) newest(ctx context.Context) ([]*corev1.Service, error) {
	if _, err := r.Cache.MostRecent(ctx); err != nil {
		return nil, err
	}
	return r.Services.list()
}

// addresses repairs in both directions: each service has its addresses, each
// address its service.
func (r *run) addresses(ctx context.Context) error {
	services, err := r.newest(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range services {
		for _, addr := range addressesOf(s) {
			errs = append(errs, r.addressOf(ctx, s, addr))
		}
	}
	if _, err := r.Cache.MostRecent(ctx); err != nil { // with what was written above
		return errors.Join(append(errs, err)...)
	}
	live, err := r.Addresses.list()
	if err != nil {
		return err
	}
	for _, addr := range live {
		if addr.Labels[networkingv1.LabelManagedBy] == managedBy {
			errs = append(errs, r.ownerOf(ctx, addr))
		}
	}
	return errors.Join(errs...)
}

// addressOf sees to it that an address is the service's that has it.
func (r *run) addressOf(ctx context.Context, s *corev1.Service, addr netip.Addr) error {
	family := familyOf(addr)
	// A range that is being given up still has the addresses of its services.
	spans, err := r.spans(family, func(*networkingv1.ServiceCIDR) bool { return true })
	if err != nil {
		return err
	}
	if _, err := containing(spans, addr); err != nil {
		r.tell(ctx, aboutService(s), r.metrics.addressRepairKinds, problem{
			"outOfRange", "ClusterIPOutOfRange", "ClusterIPAllocation",
			fmt.Sprintf("Cluster IP [%v]: %s is not within any configured Service CIDR; please recreate service", family, addr),
		})
		return nil
	}
	live, found, err := r.Addresses.get("", addr.String())
	if err != nil {
		return err
	}
	if !found {
		r.tell(ctx, aboutService(s), r.metrics.addressRepairKinds, problem{
			"repair", "ClusterIPNotAllocated", "ClusterIPAllocation", fmt.Sprintf("Cluster IP [%v]: %s is not allocated; repairing", family, addr),
		})
		if err := r.createAddress(ctx, s, addr); !errors.Is(err, errAddressTaken) {
			return err
		}
		return nil
	}
	if refersTo(live, s.Namespace, s.Name) {
		if labelled(live, family) {
			return nil
		}
		return r.recreate(ctx, s, addr, live)
	}
	owner, err := r.ownerNow(live)
	if err != nil {
		return err
	}
	if owner != nil && slices.Contains(addressesOf(owner), addr) {
		r.tell(ctx, aboutService(s), r.metrics.addressRepairKinds, problem{
			"duplicate", "ClusterIPAlreadyAllocated", "ClusterIPAllocation",
			fmt.Sprintf("Cluster IP [%v]:%s was assigned to multiple services; please recreate service", family, addr),
		})
		return nil
	}
	r.tell(ctx, aboutService(s), r.metrics.addressRepairKinds, problem{
		"repair", "ClusterIPNotAllocated", "ClusterIPAllocation",
		fmt.Sprintf("the ClusterIP [%v]: %s for Service %s/%s has a wrong reference; repairing", family, addr, s.Namespace, s.Name),
	})
	return r.recreate(ctx, s, addr, live)
}

func labelled(addr *networkingv1.IPAddress, family corev1.IPFamily) bool {
	return addr.Labels[networkingv1.LabelIPAddressFamily] == string(family) && addr.Labels[networkingv1.LabelManagedBy] == managedBy
}

// ownerNow returns the Service that an IPAddress refers to, or nil if it does not exist.
func (r *run) ownerNow(addr *networkingv1.IPAddress) (*corev1.Service, error) {
	if !refersToService(addr) {
		return nil, nil
	}
	s, found, err := r.Services.get(addr.Spec.ParentRef.Namespace, addr.Spec.ParentRef.Name)
	if err != nil || !found {
		return nil, err
	}
	return s, nil
}

func (r *run) recreate(ctx context.Context, s *corev1.Service, addr netip.Addr, live *networkingv1.IPAddress) error {
	if err := r.deleteSeen(ctx, live); err != nil {
		return err
	}
	if err := r.createAddress(ctx, s, addr); !errors.Is(err, errAddressTaken) {
		return err
	}
	return nil // the next repair tells of it
}

// deleteSeen deletes an address, unless it has been given to somebody since it was seen.
func (r *run) deleteSeen(ctx context.Context, seen *networkingv1.IPAddress) error {
	uid := seen.UID
	err := r.API.Delete(ctx, addressPath().Named(seen.Name), &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsConflict(err) {
		return nil
	}
	return ignoreNotFound(err)
}

// ownerOf deletes an address that is nobody's.
func (r *run) ownerOf(ctx context.Context, addr *networkingv1.IPAddress) error {
	about := aboutAddress(addr)
	if !refersToService(addr) {
		r.tell(ctx, about, r.metrics.addressRepairKinds, problem{
			"repair", "IPAddressNotAllocated", "IPAddressAllocation",
			fmt.Sprintf("IPAddress %s appears to have been modified, not referencing a Service %v: cleaning up", addr.Name, addr.Spec.ParentRef),
		})
		return r.deleteSeen(ctx, addr)
	}
	ref := addr.Spec.ParentRef
	owner, err := r.ownerNow(addr)
	if err != nil { // a Service that cannot be read may own it
		return err
	}
	if owner == nil {
		if r.Now().Sub(addr.CreationTimestamp.Time) < addressGrace {
			return nil
		}
		r.tell(ctx, about, r.metrics.addressRepairKinds, problem{
			"leak", "IPAddressNotAllocated", "IPAddressAllocation",
			fmt.Sprintf("IPAddress: %s for Service %s/%s appears to have leaked: cleaning up", addr.Name, ref.Namespace, ref.Name),
		})
		return r.deleteSeen(ctx, addr)
	}
	ip, err := netip.ParseAddr(addr.Name)
	if err == nil && slices.Contains(addressesOf(owner), ip) || r.Now().Sub(addr.CreationTimestamp.Time) < addressGrace {
		return nil
	}
	r.tell(ctx, about, r.metrics.addressRepairKinds, problem{
		"leak", "IPAddressWrongReference", "IPAddressAllocation",
		fmt.Sprintf("IPAddress: %s for Service %s/%s has a wrong reference; cleaning up", addr.Name, ref.Namespace, ref.Name),
	})
	return r.deleteSeen(ctx, addr)
}

// portsInUse are the ports that services have.
func (a *Allocator) portsInUse(ctx context.Context) (out []int, err error) {
	services, err := (&run{Allocator: a}).newest(ctx)
	for _, s := range services {
		out = append(out, portsOf(s)...)
	}
	return out, err
}

// ports makes the range allocation anew from the services. The state that it
// replaces is read before the services are, so that a port which is taken
// meanwhile makes the replacement fail.
func (r *run) ports(ctx context.Context) error {
	p := r.Allocator.ports
	p.mu.Lock()
	defer p.mu.Unlock()
	old, text, err := p.read(ctx)
	if err != nil {
		return err
	}
	p.forget(old, text)
	services, err := r.newest(ctx)
	if err != nil {
		return err
	}
	next := p.empty(old)
	for _, s := range services {
		for _, port := range portsOf(s) {
			r.portOf(ctx, s, port, old, next, text == "")
		}
	}
	found, leaked := leaks(old, next, r.repairs.leaked)
	r.repairs.leaked = found
	if leaked > 0 {
		r.metrics.portRepairKind.WithLabelValues("leak").Add(float64(leaked))
	}
	return p.replace(ctx, old, next, text)
}

// portOf puts a service's port into the new state.
func (r *run) portOf(ctx context.Context, s *corev1.Service, port int, old, next *bitSet, fresh bool) {
	p := r.Allocator.ports
	at, ok := p.offset(port)
	switch {
	case !ok:
		r.tell(ctx, aboutService(s), r.metrics.portRepairKind, problem{
			"outOfRange", "PortOutOfRange", "PortAllocation",
			fmt.Sprintf("Port %d is not within the port range %s; please recreate service", port, p.span.String()),
		})
	case next.has(at):
		r.tell(ctx, aboutService(s), r.metrics.portRepairKind, problem{
			"duplicate", "PortAlreadyAllocated", "PortAllocation",
			fmt.Sprintf("Port %d was assigned to multiple services; please recreate service", port),
		})
	default:
		if !old.has(at) && !fresh {
			r.tell(ctx, aboutService(s), r.metrics.portRepairKind, problem{
				"repair", "PortNotAllocated", "PortAllocation", fmt.Sprintf("Port %d is not allocated; repairing", port),
			})
		}
		next.set(at, true)
	}
}
