package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

// managedBy is the value of the label that marks addresses of this allocator.
const managedBy = "ipallocator.k8s.io"

// Reasons of failed address allocations, with the texts of Kubernetes.
var (
	errRangeFull    = errors.New("range is full")
	errAddressTaken = errors.New("provided IP is already allocated")
	errOtherNetwork = errors.New("the provided network does not match the current range")
)

// errOutOfRange returns the reason for an address outside of the valid range.
func errOutOfRange(addr netip.Addr, valid netip.Prefix) error {
	return fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %v", addr, valid)
}

// claimAddresses allocates the addresses that a service lacks and sets clusterIPs and clusterIP.
// old is the live service, or nil at creation. claimAddresses records in res which addresses were
// acquired and which are no longer needed.
func (a *Allocator) claimAddresses(ctx context.Context, res *reservation, old *corev1.Service, dryRun bool) error {
	service := res.service
	var oldAddresses []netip.Addr
	if old != nil {
		if keepsDualStackPreference(service, old) || isHeadless(old) {
			return nil
		}
		oldAddresses = addressesOf(old)
	}
	if !hasAddress(service) {
		res.released.addresses = oldAddresses
		return nil
	}
	if isHeadless(service) {
		return nil
	}
	// 1. Allocate an address for each family whose address is new.
	ips := slices.Clone(service.Spec.ClusterIPs)
	for i, family := range service.Spec.IPFamilies {
		if i >= len(ips) {
			ips = append(ips, "")
		}
		desired, specified := parseAddress(ips[i])
		// Validation rejects a change of an address.
		if specified && (i < len(oldAddresses) || slices.Contains(oldAddresses, desired)) {
			continue
		}
		if specified {
			if err := a.takeAddress(ctx, service, desired, dryRun); err != nil {
				return a.addressError(service, ips[i], err)
			}
		} else {
			next, err := a.nextAddress(ctx, service, family, dryRun)
			if err != nil {
				return exhaustedError("serviceIP", err)
			}
			desired, ips[i] = next, next.String()
		}
		res.acquired.addresses = append(res.acquired.addresses, desired)
	}
	// 2. Set the addresses, and release those that the service had and no longer has.
	service.Spec.ClusterIPs = ips
	if len(ips) > 0 {
		service.Spec.ClusterIP = ips[0]
	}
	kept := addressesOf(service)
	for _, addr := range oldAddresses {
		if !slices.Contains(kept, addr) {
			res.released.addresses = append(res.released.addresses, addr)
		}
	}
	return nil
}

// addressError returns err as the error of the field. It returns API errors, which are not about
// the address, unchanged.
func (a *Allocator) addressError(service *corev1.Service, ip string, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return invalidError(service, field.Invalid(field.NewPath("spec", "clusterIPs"), service.Spec.ClusterIPs,
		fmt.Sprintf("failed to allocate IP %v: %v", ip, err)))
}

// allocatableRanges returns the ranges from which addresses of a family can be allocated. A range
// without the condition Ready counts, because the controller that sets it may not run.
func (a *Allocator) allocatableRanges(family corev1.IPFamily) ([]addressRange, error) {
	if a.Bitmap {
		return a.bitmapRanges(family), nil
	}
	return a.rangesOf(family, func(serviceCIDR *networkingv1.ServiceCIDR) bool {
		return serviceCIDR.DeletionTimestamp.IsZero() && isReady(serviceCIDR)
	})
}

// rangesOf returns the ranges of a family that include selects.
func (a *Allocator) rangesOf(family corev1.IPFamily, include func(*networkingv1.ServiceCIDR) bool) ([]addressRange, error) {
	ranges, err := a.Ranges.list()
	if err != nil {
		return nil, err
	}
	var out []addressRange
	for _, r := range ranges {
		if !include(r) {
			continue
		}
		for _, text := range r.Spec.CIDRs {
			prefix, err := netip.ParsePrefix(text)
			isDuplicate := func(r addressRange) bool { return r.prefix == prefix.Masked() }
			if err != nil || familyOf(prefix.Addr()) != family || slices.ContainsFunc(out, isDuplicate) {
				continue
			}
			out = append(out, addressRangeOf(prefix))
		}
	}
	return out, nil
}

// rangeUsage returns the size and the number of allocated addresses of each range.
func (a *Allocator) rangeUsage() map[netip.Prefix]usage {
	out := map[netip.Prefix]usage{}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		ranges, err := a.allocatableRanges(family)
		if err != nil {
			continue
		}
		for _, r := range ranges {
			out[r.prefix] = usage{size: r.size}
		}
	}
	if a.Bitmap {
		for _, b := range a.bitmaps {
			prefix := b.addressRange.prefix
			out[prefix] = usage{size: out[prefix].size, taken: b.allocatedCount()}
		}
		return out
	}
	a.Addresses.eachName(func(name string) {
		addr, err := netip.ParseAddr(name)
		if err != nil {
			return
		}
		for prefix, u := range out {
			if prefix.Contains(addr) {
				u.taken++
				out[prefix] = u
			}
		}
	})
	return out
}

// isReady reports whether a range is ready. A range without the condition counts as ready.
func isReady(serviceCIDR *networkingv1.ServiceCIDR) bool {
	for _, c := range serviceCIDR.Status.Conditions {
		if c.Type == networkingv1.ServiceCIDRConditionReady {
			return c.Status == metav1.ConditionTrue
		}
	}
	return true
}

// takeAddress allocates the address that a service requests.
func (a *Allocator) takeAddress(ctx context.Context, service *corev1.Service, addr netip.Addr, dryRun bool) error {
	start := time.Now()
	// 1. Find the range of the address.
	rng, err := a.rangeOfAddress(addr)
	if errors.Is(err, errOtherNetwork) {
		// The cache may lack a range that was just created.
		if _, err := a.Cache.MostRecent(ctx); err != nil {
			return err
		}
		rng, err = a.rangeOfAddress(addr)
	}
	if errors.Is(err, errOtherNetwork) && dryRun {
		err = a.dryRunError(addr)
	}
	if err != nil {
		return err
	}
	// 2. Allocate the address. The network address of a range, for example, cannot be allocated.
	if !rng.contains(addr) {
		err = errOutOfRange(addr, rng.prefix)
	} else if !dryRun {
		err = a.allocateAddress(ctx, service, addr)
	}
	if !dryRun {
		a.metrics.observeAddress(rng.prefix, staticScope, err, time.Since(start))
	}
	return err
}

// dryRunError returns the error of a dry run for an address outside of all ranges. As in Kubernetes,
// it names the first range.
func (a *Allocator) dryRunError(addr netip.Addr) error {
	ranges, err := a.allocatableRanges(familyOf(addr))
	if err != nil {
		return err
	}
	if len(ranges) == 0 {
		return errOtherNetwork
	}
	return errOutOfRange(addr, ranges[0].prefix)
}

// rangeOfAddress returns the range from which an address is allocated. It returns errOtherNetwork
// if no range contains the address.
func (a *Allocator) rangeOfAddress(addr netip.Addr) (addressRange, error) {
	ranges, err := a.allocatableRanges(familyOf(addr))
	if err != nil {
		return addressRange{}, err
	}
	rng, err := rangeContaining(ranges, addr)
	if err != nil && a.Bitmap && len(ranges) > 0 {
		err = errOutOfRange(addr, ranges[0].prefix)
	}
	return rng, err
}

// rangeContaining returns the range of an address. The network address of a range counts as part of
// the range, although it cannot be allocated. It returns errOtherNetwork if no range contains the
// address.
func rangeContaining(ranges []addressRange, addr netip.Addr) (addressRange, error) {
	for _, r := range ranges {
		if r.contains(addr) {
			return r, nil
		}
	}
	for _, r := range ranges {
		if r.prefix.Contains(addr) {
			return r, nil
		}
	}
	return addressRange{}, errOtherNetwork
}

// nextAddress allocates any address of a family. It returns errRangeFull if all ranges are full.
func (a *Allocator) nextAddress(ctx context.Context, service *corev1.Service, family corev1.IPFamily, dryRun bool) (netip.Addr, error) {
	for attempt := range 2 {
		ranges, err := a.allocatableRanges(family)
		if err != nil {
			return netip.Addr{}, err
		}
		rand.Shuffle(len(ranges), func(i, j int) { ranges[i], ranges[j] = ranges[j], ranges[i] })
		for _, rng := range ranges {
			if dryRun { // a free address may be taken before the real write
				return rng.prefix.Addr(), nil
			}
			start := time.Now()
			addr, err := a.allocateFrom(ctx, service, rng)
			a.metrics.observeAddress(rng.prefix, dynamicScope, err, time.Since(start))
			if !errors.Is(err, errRangeFull) {
				return addr, err
			}
		}
		if attempt == 0 { // the cache may be outdated
			if _, err := a.Cache.MostRecent(ctx); err != nil {
				return netip.Addr{}, err
			}
			if err := a.refreshBitmaps(ctx); err != nil {
				return netip.Addr{}, err
			}
		}
	}
	return netip.Addr{}, errRangeFull
}

// allocateFrom allocates an address of a range. It skips addresses that the cache shows as taken.
func (a *Allocator) allocateFrom(ctx context.Context, service *corev1.Service, rng addressRange) (netip.Addr, error) {
	for addr := range rng.candidates() {
		if !a.Bitmap && a.Addresses.exists(addr.String()) || a.isAllocated(addr) {
			continue
		}
		err := a.allocateAddress(ctx, service, addr)
		if errors.Is(err, errAddressTaken) {
			continue
		}
		return addr, err
	}
	return netip.Addr{}, errRangeFull
}

// newAddress returns the IPAddress object that assigns an address to a service.
func newAddress(service *corev1.Service, addr netip.Addr) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "IPAddress"},
		ObjectMeta: metav1.ObjectMeta{Name: addr.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(familyOf(addr)), networkingv1.LabelManagedBy: managedBy,
		}},
		Spec: networkingv1.IPAddressSpec{
			ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: service.Namespace, Name: service.Name},
		},
	}
}

// addressPath returns the collection of IPAddress objects.
func addressPath() internalclient.Ref {
	return internalclient.Collection(networkingv1.GroupName, networkingv1.SchemeGroupVersion.Version, "ipaddresses", "")
}

// createAddress creates the IPAddress object that assigns an address to a service.
func (a *Allocator) createAddress(ctx context.Context, service *corev1.Service, addr netip.Addr) error {
	err := a.API.Create(ctx, addressPath(), newAddress(service, addr))
	if apierrors.IsAlreadyExists(err) {
		return errAddressTaken
	}
	return err
}

// allocateAddress allocates an address for a service.
func (a *Allocator) allocateAddress(ctx context.Context, service *corev1.Service, addr netip.Addr) error {
	if a.Bitmap {
		return a.allocateInBitmaps(ctx, addr)
	}
	if err := a.createAddress(ctx, service, addr); err != nil {
		return err
	}
	return a.allocateOrDelete(ctx, addr)
}

// releaseAddress frees an address, unless the cache shows that it belongs to another service.
func (a *Allocator) releaseAddress(ctx context.Context, service *corev1.Service, addr netip.Addr) error {
	if a.Bitmap {
		return a.releaseFromBitmaps(ctx, addr)
	}
	if live, found, _ := a.Addresses.get("", addr.String()); found && !refersTo(live, service.Namespace, service.Name) {
		return nil
	}
	return errors.Join(a.releaseFromBitmaps(ctx, addr), a.deleteAddress(ctx, addr.String()))
}

// deleteAddress deletes an IPAddress object. It is not an error if the object does not exist.
func (a *Allocator) deleteAddress(ctx context.Context, name string) error {
	return ignoreNotFound(a.API.Delete(ctx, addressPath().Named(name), nil))
}

// refersTo reports whether an IPAddress object belongs to the given service.
func refersTo(addr *networkingv1.IPAddress, namespace, name string) bool {
	ref := addr.Spec.ParentRef
	return refersToService(addr) && ref.Namespace == namespace && ref.Name == name
}

// refersToService reports whether an IPAddress object belongs to any service.
func refersToService(addr *networkingv1.IPAddress) bool {
	ref := addr.Spec.ParentRef
	return ref != nil && ref.Group == "" && ref.Resource == "services"
}
