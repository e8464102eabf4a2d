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
	// leakGrace is the number of repairs in a row that must find a port or address bit without a
	// service before it is freed, for the same reason.
	leakGrace = 3
)

// repairState holds the state that one repair passes to the next.
type repairState struct {
	mu       sync.Mutex
	leaked   map[int]int     // by position: how many repairs in a row found no service for the port
	reported map[string]bool // the problems that the previous repair found
}

// Repair makes addresses and ports consistent with the existing services. It reports problems that
// it cannot repair in events on the services, once each.
func (a *Allocator) Repair(ctx context.Context) error {
	a.repairs.mu.Lock()
	defer a.repairs.mu.Unlock()
	run := &repairRun{Allocator: a, reported: map[string]bool{}}
	repairAddresses := run.repairAddresses
	if a.Bitmap {
		repairAddresses = run.reportUnconfigured
	}
	addressErr := repairAddresses(ctx)
	for _, b := range a.bitmaps {
		addressErr = errors.Join(addressErr, run.rebuildAddressBits(ctx, b))
	}
	if addressErr != nil {
		a.metrics.failedAddressRepairs.Inc()
	}
	portErr := run.repairPorts(ctx)
	if portErr != nil {
		a.metrics.failedPortRepairs.Inc()
	}
	a.repairs.reported = run.reported
	return errors.Join(addressErr, portErr)
}

// repairRun is one repair.
type repairRun struct {
	*Allocator
	reported map[string]bool // the problems that this repair found
}

// currentServices returns the current services.
func (run *repairRun) currentServices(ctx context.Context) ([]*corev1.Service, error) {
	if _, err := run.Cache.MostRecent(ctx); err != nil {
		return nil, err
	}
	return run.Services.list()
}

// repairAddresses repairs both directions: each service has its addresses, and each address has its
// service.
func (run *repairRun) repairAddresses(ctx context.Context) error {
	services, err := run.currentServices(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range services {
		for _, addr := range addressesOf(s) {
			errs = append(errs, run.repairAddress(ctx, s, addr))
		}
	}
	if _, err := run.Cache.MostRecent(ctx); err != nil { // includes the writes above
		return errors.Join(append(errs, err)...)
	}
	live, err := run.Addresses.list()
	if err != nil {
		return err
	}
	for _, addr := range live {
		if addr.Labels[networkingv1.LabelManagedBy] == managedBy {
			errs = append(errs, run.deleteUnowned(ctx, addr))
		}
	}
	return errors.Join(errs...)
}

// repairAddress ensures that the IPAddress object of a service's address refers to the service.
func (run *repairRun) repairAddress(ctx context.Context, service *corev1.Service, addr netip.Addr) error {
	family := familyOf(addr)

	// 1. Report an address outside the ranges, which cannot be repaired. A range that is being deleted
	// still contains addresses of services.
	ranges, err := run.rangesOf(family, func(*networkingv1.ServiceCIDR) bool { return true })
	if err != nil {
		return err
	}
	if _, err := rangeContaining(ranges, addr); err != nil {
		run.reportProblem(ctx, serviceReference(service), run.metrics.addressProblems, problem{
			kind:   "outOfRange",
			reason: "ClusterIPOutOfRange",
			action: "ClusterIPAllocation",
			note:   fmt.Sprintf("Cluster IP [%v]: %s is not within any configured Service CIDR; please recreate service", family, addr),
		})
		return nil
	}

	// 2. Create the object if it does not exist.
	live, found, err := run.Addresses.get("", addr.String())
	if err != nil {
		return err
	}
	if !found {
		run.reportProblem(ctx, serviceReference(service), run.metrics.addressProblems, problem{
			kind:   "repair",
			reason: "ClusterIPNotAllocated",
			action: "ClusterIPAllocation",
			note: fmt.Sprintf("Cluster IP [%v]: %s is not allocated; repairing",
				family, addr),
		})
		if err := run.createAddress(ctx, service, addr); !errors.Is(err, errAddressTaken) {
			return err
		}
		return nil
	}

	// 3. Repair the labels of an object that refers to the service.
	if refersTo(live, service.Namespace, service.Name) {
		if hasLabels(live, family) {
			return nil
		}
		return run.recreateAddress(ctx, service, addr, live)
	}

	// 4. Replace an object that refers to something else, unless another service has the address.
	owner, err := run.ownerOf(live)
	if err != nil {
		return err
	}
	if owner != nil && slices.Contains(addressesOf(owner), addr) {
		run.reportProblem(ctx, serviceReference(service), run.metrics.addressProblems, problem{
			kind:   "duplicate",
			reason: "ClusterIPAlreadyAllocated",
			action: "ClusterIPAllocation",
			note:   fmt.Sprintf("Cluster IP [%v]:%s was assigned to multiple services; please recreate service", family, addr),
		})
		return nil
	}
	run.reportProblem(ctx, serviceReference(service), run.metrics.addressProblems, problem{
		kind:   "repair",
		reason: "ClusterIPNotAllocated",
		action: "ClusterIPAllocation",
		note:   fmt.Sprintf("the ClusterIP [%v]: %s for Service %s/%s has a wrong reference; repairing", family, addr, service.Namespace, service.Name),
	})
	return run.recreateAddress(ctx, service, addr, live)
}

// hasLabels reports whether an address has the labels of this allocator.
func hasLabels(addr *networkingv1.IPAddress, family corev1.IPFamily) bool {
	return addr.Labels[networkingv1.LabelIPAddressFamily] == string(family) && addr.Labels[networkingv1.LabelManagedBy] == managedBy
}

// ownerOf returns the Service that an IPAddress refers to, or nil if it does not exist.
func (run *repairRun) ownerOf(addr *networkingv1.IPAddress) (*corev1.Service, error) {
	if !refersToService(addr) {
		return nil, nil
	}
	s, found, err := run.Services.get(addr.Spec.ParentRef.Namespace, addr.Spec.ParentRef.Name)
	if err != nil || !found {
		return nil, err
	}
	return s, nil
}

// recreateAddress replaces an IPAddress object by one that refers to the service.
func (run *repairRun) recreateAddress(ctx context.Context, service *corev1.Service, addr netip.Addr, live *networkingv1.IPAddress) error {
	if err := run.deleteUnchanged(ctx, live); err != nil {
		return err
	}
	if err := run.createAddress(ctx, service, addr); !errors.Is(err, errAddressTaken) {
		return err
	}
	return nil // the next repair reports it
}

// deleteUnchanged deletes an address, unless it was recreated since it was read.
func (run *repairRun) deleteUnchanged(ctx context.Context, addr *networkingv1.IPAddress) error {
	uid := addr.UID
	err := run.API.Delete(ctx, addressPath().Named(addr.Name), &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsConflict(err) {
		return nil
	}
	return ignoreNotFound(err)
}

// deleteUnowned deletes an IPAddress object that refers to no service, or to a service that does
// not exist or does not have the address. It keeps objects younger than addressGrace.
func (run *repairRun) deleteUnowned(ctx context.Context, addr *networkingv1.IPAddress) error {
	subject := addressReference(addr)
	if !refersToService(addr) {
		run.reportProblem(ctx, subject, run.metrics.addressProblems, problem{
			kind:   "repair",
			reason: "IPAddressNotAllocated",
			action: "IPAddressAllocation",
			note: fmt.Sprintf("IPAddress %s appears to have been modified, not referencing a Service %v: cleaning up",
				addr.Name, addr.Spec.ParentRef),
		})
		return run.deleteUnchanged(ctx, addr)
	}
	ref := addr.Spec.ParentRef
	owner, err := run.ownerOf(addr)
	if err != nil { // an undecodable Service may own it
		return err
	}
	if owner == nil {
		if run.isYoung(addr) {
			return nil
		}
		run.reportProblem(ctx, subject, run.metrics.addressProblems, problem{
			kind:   "leak",
			reason: "IPAddressNotAllocated",
			action: "IPAddressAllocation",
			note:   fmt.Sprintf("IPAddress: %s for Service %s/%s appears to have leaked: cleaning up", addr.Name, ref.Namespace, ref.Name),
		})
		return run.deleteUnchanged(ctx, addr)
	}
	ip, err := netip.ParseAddr(addr.Name)
	isOwned := err == nil && slices.Contains(addressesOf(owner), ip)
	if isOwned || run.isYoung(addr) {
		return nil
	}
	run.reportProblem(ctx, subject, run.metrics.addressProblems, problem{
		kind:   "leak",
		reason: "IPAddressWrongReference",
		action: "IPAddressAllocation",
		note:   fmt.Sprintf("IPAddress: %s for Service %s/%s has a wrong reference; cleaning up", addr.Name, ref.Namespace, ref.Name),
	})
	return run.deleteUnchanged(ctx, addr)
}

// isYoung reports whether an address is younger than addressGrace.
func (run *repairRun) isYoung(addr *networkingv1.IPAddress) bool {
	return run.Now().Sub(addr.CreationTimestamp.Time) < addressGrace
}

// portsInUse returns the ports that services have.
func (a *Allocator) portsInUse(ctx context.Context) (out []int, err error) {
	services, err := (&repairRun{Allocator: a}).currentServices(ctx)
	for _, s := range services {
		out = append(out, portsOf(s)...)
	}
	return out, err
}

// repairPorts rebuilds the range allocation from the services. The stored state is read before the
// services, so an allocation in between makes the write fail.
func (run *repairRun) repairPorts(ctx context.Context) error {
	ports := run.Allocator.ports
	ports.mu.Lock()
	defer ports.mu.Unlock()
	old, next, storedRange, err := ports.beginRepair(ctx)
	if err != nil {
		return err
	}
	services, err := run.currentServices(ctx)
	if err != nil {
		return err
	}
	for _, s := range services {
		for _, port := range portsOf(s) {
			run.addPort(ctx, s, port, old, next, storedRange == "")
		}
	}
	var leaked int
	run.repairs.leaked, leaked = copyUnused(old, next, run.repairs.leaked)
	if leaked > 0 {
		run.metrics.portProblems.WithLabelValues("leak").Add(float64(leaked))
	}
	return ports.replaceStored(ctx, old, next, storedRange)
}

// addPort adds a service's port to next, the new state, and reports a port that is out of range, that
// another service has in next, or that old lacks. nothingStored means that there was no range
// allocation.
func (run *repairRun) addPort(ctx context.Context, service *corev1.Service, port int, old, next *bitSet, nothingStored bool) {
	ports := run.Allocator.ports
	position, ok := ports.positionOf(port)
	switch {
	case !ok:
		run.reportProblem(ctx, serviceReference(service), run.metrics.portProblems, problem{
			kind:   "outOfRange",
			reason: "PortOutOfRange",
			action: "PortAllocation",
			note:   fmt.Sprintf("Port %d is not within the port range %s; please recreate service", port, ports.portRange.String()),
		})
	case next.isTaken(position):
		run.reportProblem(ctx, serviceReference(service), run.metrics.portProblems, problem{
			kind:   "duplicate",
			reason: "PortAlreadyAllocated",
			action: "PortAllocation",
			note:   fmt.Sprintf("Port %d was assigned to multiple services; please recreate service", port),
		})
	default:
		if !old.isTaken(position) && !nothingStored {
			run.reportProblem(ctx, serviceReference(service), run.metrics.portProblems, problem{
				kind:   "repair",
				reason: "PortNotAllocated",
				action: "PortAllocation",
				note:   fmt.Sprintf("Port %d is not allocated; repairing", port),
			})
		}
		next.setPosition(position, true)
	}
}

// problem is a finding of a repair: its kind in metrics, and its event.
type problem struct{ kind, reason, action, note string }

// serviceReference returns a reference to a service for events.
func serviceReference(service *corev1.Service) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "Service",
		Namespace:       service.Namespace,
		Name:            service.Name,
		UID:             service.UID,
		ResourceVersion: service.ResourceVersion,
	}
}

// addressReference returns a reference to an IPAddress object for events.
func addressReference(a *networkingv1.IPAddress) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion:      networkingv1.SchemeGroupVersion.String(),
		Kind:            "IPAddress",
		Name:            a.Name,
		UID:             a.UID,
		ResourceVersion: a.ResourceVersion,
	}
}

// reportProblem counts a problem in counter. It also logs the problem and creates an event about subject,
// unless the previous repair reported the same problem.
func (run *repairRun) reportProblem(
	ctx context.Context,
	subject corev1.ObjectReference,
	counter *prometheus.CounterVec,
	p problem,
) {
	counter.WithLabelValues(p.kind).Inc()
	key := fmt.Sprintf("%s %s %s", subject.UID, p.reason, p.note)
	run.reported[key] = true
	if run.repairs.reported[key] {
		return
	}
	run.Logger.Warn("service allocation",
		"kind", subject.Kind, "namespace", subject.Namespace, "name", subject.Name, "reason", p.reason, "note", p.note)
	namespace := subject.Namespace
	if namespace == "" {
		namespace = api.DefaultNamespace
	}
	controller := "ipallocator-repair-controller"
	if p.action == "PortAllocation" {
		controller = "portallocator-repair-controller"
	}
	now := run.Now()
	event := &eventsv1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s.%x", strings.ReplaceAll(subject.Name, ":", "."), now.UnixNano()),
			Namespace: namespace,
		},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: controller,
		ReportingInstance:   controller + "-" + run.Identity,
		Action:              p.action,
		Reason:              p.reason,
		Regarding:           subject,
		Note:                p.note,
		Type:                corev1.EventTypeWarning,
	}
	path := internalclient.Collection(eventsv1.GroupName, eventsv1.SchemeGroupVersion.Version, "events", namespace)
	if err := run.API.Create(ctx, path, event); err != nil {
		run.Logger.Warn("failed to write an event", "error", err)
	}
}
