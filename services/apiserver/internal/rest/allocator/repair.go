package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// RepairInterval is the interval between repairs.
const RepairInterval = 3 * time.Minute

const (
	// addressGrace is the minimum age of an address without a service before it is deleted: a
	// service in creation allocates its address first.
	addressGrace = time.Minute
	// leakGrace is how often a port or address bit must have been found without a service before it
	// is freed, for the same reason.
	leakGrace = 3
)

// repairs holds the state that one repair passes to the next.
type repairs struct {
	mu       sync.Mutex
	leaked   map[int]int // how often each port was found without a service
	reported map[string]bool
}

// Repair makes addresses and ports consistent with the existing services. It reports problems that
// it cannot repair in events on the services, once each.
func (a *Allocator) Repair(ctx context.Context) error {
	a.repairs.mu.Lock()
	defer a.repairs.mu.Unlock()
	r := &run{Allocator: a, seen: map[string]bool{}}
	check := r.repairAddresses
	if a.Bitmap {
		check = r.reportUnconfigured
	}
	addresses := check(ctx)
	for _, b := range a.bits {
		addresses = errors.Join(addresses, r.rebuildAddressBits(ctx, b))
	}
	if addresses != nil {
		a.metrics.addressRepairs.Inc()
	}
	ports := r.repairPorts(ctx)
	if ports != nil {
		a.metrics.portRepairs.Inc()
	}
	a.repairs.reported = r.seen
	return errors.Join(addresses, ports)
}

// run is one repair.
type run struct {
	*Allocator
	seen map[string]bool // the reported problems
}

// newest returns the current services.
func (r *run) newest(ctx context.Context) ([]*corev1.Service, error) {
	if _, err := r.Cache.MostRecent(ctx); err != nil {
		return nil, err
	}
	return r.Services.list()
}

// repairAddresses repairs both directions: each service has its addresses, and each address has its
// service.
func (r *run) repairAddresses(ctx context.Context) error {
	services, err := r.newest(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range services {
		for _, addr := range addressesOf(s) {
			errs = append(errs, r.repairAddress(ctx, s, addr))
		}
	}
	if _, err := r.Cache.MostRecent(ctx); err != nil { // includes the writes above
		return errors.Join(append(errs, err)...)
	}
	live, err := r.Addresses.list()
	if err != nil {
		return err
	}
	for _, addr := range live {
		if addr.Labels[networkingv1.LabelManagedBy] == managedBy {
			errs = append(errs, r.deleteUnowned(ctx, addr))
		}
	}
	return errors.Join(errs...)
}

// repairAddress ensures that the IPAddress object of a service's address refers to the service.
func (r *run) repairAddress(ctx context.Context, s *corev1.Service, addr netip.Addr) error {
	family := familyOf(addr)
	// A range that is being deleted still contains addresses of services.
	spans, err := r.spans(family, func(*networkingv1.ServiceCIDR) bool { return true })
	if err != nil {
		return err
	}
	if _, err := containing(spans, addr); err != nil {
		r.report(ctx, aboutService(s), r.metrics.addressRepairKinds, problem{
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
		r.report(ctx, aboutService(s), r.metrics.addressRepairKinds, problem{
			"repair", "ClusterIPNotAllocated", "ClusterIPAllocation", fmt.Sprintf("Cluster IP [%v]: %s is not allocated; repairing",
				family, addr),
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
		r.report(ctx, aboutService(s), r.metrics.addressRepairKinds, problem{
			"duplicate", "ClusterIPAlreadyAllocated", "ClusterIPAllocation",
			fmt.Sprintf("Cluster IP [%v]:%s was assigned to multiple services; please recreate service", family, addr),
		})
		return nil
	}
	r.report(ctx, aboutService(s), r.metrics.addressRepairKinds, problem{
		"repair", "ClusterIPNotAllocated", "ClusterIPAllocation",
		fmt.Sprintf("the ClusterIP [%v]: %s for Service %s/%s has a wrong reference; repairing", family, addr, s.Namespace, s.Name),
	})
	return r.recreate(ctx, s, addr, live)
}

// labelled reports whether an address has the labels of this allocator.
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

// recreate replaces an IPAddress object by one that refers to the service.
func (r *run) recreate(ctx context.Context, s *corev1.Service, addr netip.Addr, live *networkingv1.IPAddress) error {
	if err := r.deleteSeen(ctx, live); err != nil {
		return err
	}
	if err := r.createAddress(ctx, s, addr); !errors.Is(err, errAddressTaken) {
		return err
	}
	return nil // the next repair reports it
}

// deleteSeen deletes an address, unless it was recreated since it was read.
func (r *run) deleteSeen(ctx context.Context, seen *networkingv1.IPAddress) error {
	uid := seen.UID
	err := r.API.Delete(ctx, addressPath().Named(seen.Name), &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsConflict(err) {
		return nil
	}
	return ignoreNotFound(err)
}

// deleteUnowned deletes an address without a service.
func (r *run) deleteUnowned(ctx context.Context, addr *networkingv1.IPAddress) error {
	about := aboutAddress(addr)
	if !refersToService(addr) {
		r.report(ctx, about, r.metrics.addressRepairKinds, problem{
			"repair", "IPAddressNotAllocated", "IPAddressAllocation",
			fmt.Sprintf("IPAddress %s appears to have been modified, not referencing a Service %v: cleaning up",
				addr.Name, addr.Spec.ParentRef),
		})
		return r.deleteSeen(ctx, addr)
	}
	ref := addr.Spec.ParentRef
	owner, err := r.ownerNow(addr)
	if err != nil { // an undecodable Service may own it
		return err
	}
	if owner == nil {
		if r.Now().Sub(addr.CreationTimestamp.Time) < addressGrace {
			return nil
		}
		r.report(ctx, about, r.metrics.addressRepairKinds, problem{
			"leak", "IPAddressNotAllocated", "IPAddressAllocation",
			fmt.Sprintf("IPAddress: %s for Service %s/%s appears to have leaked: cleaning up", addr.Name, ref.Namespace, ref.Name),
		})
		return r.deleteSeen(ctx, addr)
	}
	ip, err := netip.ParseAddr(addr.Name)
	if err == nil && slices.Contains(addressesOf(owner), ip) || r.Now().Sub(addr.CreationTimestamp.Time) < addressGrace {
		return nil
	}
	r.report(ctx, about, r.metrics.addressRepairKinds, problem{
		"leak", "IPAddressWrongReference", "IPAddressAllocation",
		fmt.Sprintf("IPAddress: %s for Service %s/%s has a wrong reference; cleaning up", addr.Name, ref.Namespace, ref.Name),
	})
	return r.deleteSeen(ctx, addr)
}

// portsInUse returns the ports that services have.
func (a *Allocator) portsInUse(ctx context.Context) (out []int, err error) {
	services, err := (&run{Allocator: a}).newest(ctx)
	for _, s := range services {
		out = append(out, portsOf(s)...)
	}
	return out, err
}

// repairPorts rebuilds the range allocation from the services. The stored state is read before the
// services, so an allocation in between makes the write fail.
func (r *run) repairPorts(ctx context.Context) error {
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
			r.addPort(ctx, s, port, old, next, text == "")
		}
	}
	found, leaked := copyUnused(old, next, r.repairs.leaked)
	r.repairs.leaked = found
	if leaked > 0 {
		r.metrics.portRepairKind.WithLabelValues("leak").Add(float64(leaked))
	}
	return p.replace(ctx, old, next, text)
}

// addPort adds a service's port to the new state.
func (r *run) addPort(ctx context.Context, s *corev1.Service, port int, old, next *bitSet, fresh bool) {
	p := r.Allocator.ports
	at, ok := p.offset(port)
	switch {
	case !ok:
		r.report(ctx, aboutService(s), r.metrics.portRepairKind, problem{
			"outOfRange", "PortOutOfRange", "PortAllocation",
			fmt.Sprintf("Port %d is not within the port range %s; please recreate service", port, p.span.String()),
		})
	case next.has(at):
		r.report(ctx, aboutService(s), r.metrics.portRepairKind, problem{
			"duplicate", "PortAlreadyAllocated", "PortAllocation",
			fmt.Sprintf("Port %d was assigned to multiple services; please recreate service", port),
		})
	default:
		if !old.has(at) && !fresh {
			r.report(ctx, aboutService(s), r.metrics.portRepairKind, problem{
				"repair", "PortNotAllocated", "PortAllocation", fmt.Sprintf("Port %d is not allocated; repairing", port),
			})
		}
		next.set(at, true)
	}
}

// problem is a finding of a repair: its kind in metrics, and its event.
type problem struct{ kind, reason, action, note string }

// about is the object that an event is about.
type about struct {
	corev1.ObjectReference
}

func aboutService(s *corev1.Service) about {
	return about{corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "Service",
		Namespace:       s.Namespace,
		Name:            s.Name,
		UID:             s.UID,
		ResourceVersion: s.ResourceVersion,
	}}
}

func aboutAddress(a *networkingv1.IPAddress) about {
	return about{corev1.ObjectReference{
		APIVersion:      networkingv1.SchemeGroupVersion.String(),
		Kind:            "IPAddress",
		Name:            a.Name,
		UID:             a.UID,
		ResourceVersion: a.ResourceVersion,
	}}
}

// report counts a problem and creates an event for it, unless the previous repair reported the same
// problem.
func (r *run) report(ctx context.Context, on about, count *prometheus.CounterVec, p problem) {
	count.WithLabelValues(p.kind).Inc()
	key := fmt.Sprintf("%s %s %s", on.UID, p.reason, p.note)
	r.seen[key] = true
	if r.repairs.reported[key] {
		return
	}
	r.Logger.Warn("service allocation", "kind", on.Kind, "namespace", on.Namespace, "name", on.Name, "reason", p.reason, "note", p.note)
	namespace := on.Namespace
	if namespace == "" {
		namespace = api.DefaultNamespace
	}
	controller := "ipallocator-repair-controller"
	if p.action == "PortAllocation" {
		controller = "portallocator-repair-controller"
	}
	now := r.Now()
	event := &eventsv1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s.%x", strings.ReplaceAll(on.Name, ":", "."), now.UnixNano()),
			Namespace: namespace,
		},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: controller,
		ReportingInstance:   controller + "-" + r.Identity,
		Action:              p.action,
		Reason:              p.reason,
		Regarding:           on.ObjectReference,
		Note:                p.note,
		Type:                corev1.EventTypeWarning,
	}
	path := internalclient.Collection(eventsv1.GroupName, eventsv1.SchemeGroupVersion.Version, "events", namespace)
	if err := r.API.Create(ctx, path, event); err != nil {
		r.Logger.Warn("failed to write an event", "error", err)
	}
}
