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

	"binnacle/services/apiserver/internal/loopback"
)

// managedBy is the value of the label that marks addresses of this allocator.
const managedBy = "ipallocator.k8s.io"

// Reasons why an address cannot be had, with the texts of Kubernetes.
var (
	errFull         = errors.New("range is full")
	errAddressTaken = errors.New("provided IP is already allocated")
	errOtherNetwork = errors.New("the provided network does not match the current range")
)

func errOutside(addr netip.Addr, valid netip.Prefix) error {
	return fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %v", addr, valid)
}

// claimAddresses takes what a service lacks: all of them when it gets addresses
// at all for the first time, else a second one when it becomes dual-stack.
func (a *Allocator) claimAddresses(ctx context.Context, c *Claim, was *corev1.Service, dryRun bool) error {
	s := c.service
	var had []netip.Addr
	if was != nil {
		if keepsPreference(s, was) || headless(was) {
			return nil
		}
		had = addressesOf(was)
	}
	if !hasAddress(s) {
		c.left.addresses = had
		return nil
	}
	if headless(s) {
		return nil
	}
	ips := slices.Clone(s.Spec.ClusterIPs)
	for i, family := range s.Spec.IPFamilies {
		if i >= len(ips) {
			ips = append(ips, "")
		}
		wanted, given := parseAddress(ips[i])
		if given && slices.Contains(had, wanted) {
			continue
		}
		if given {
			if err := a.takeAddress(ctx, s, wanted, dryRun); err != nil {
				return a.addressError(s, ips[i], err)
			}
		} else {
			next, err := a.nextAddress(ctx, s, family, dryRun)
			if err != nil {
				return exhausted("serviceIP", err)
			}
			wanted, ips[i] = next, next.String()
		}
		c.taken.addresses = append(c.taken.addresses, wanted)
	}
	s.Spec.ClusterIPs = ips
	if len(ips) > 0 {
		s.Spec.ClusterIP = ips[0]
	}
	now := addressesOf(s)
	for _, addr := range had {
		if !slices.Contains(now, addr) {
			c.left.addresses = append(c.left.addresses, addr)
		}
	}
	return nil
}

// addressError names the field; an error of the API that is not about the
// address passes.
func (a *Allocator) addressError(s *corev1.Service, ip string, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return invalid(s, field.Invalid(field.NewPath("spec", "clusterIPs"), s.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %v: %v", ip, err)))
}

// ready are the ranges that addresses of a family can be taken from. A range
// whose condition nobody has written counts, as controllers may not run.
func (a *Allocator) ready(family corev1.IPFamily) ([]span, error) {
	if a.Bitmap {
		return a.bitmapSpans(family), nil
	}
	return a.spans(family, func(r *networkingv1.ServiceCIDR) bool { return r.DeletionTimestamp.IsZero() && usable(r) })
}

// spans are the ranges of a family that use says.
func (a *Allocator) spans(family corev1.IPFamily, use func(*networkingv1.ServiceCIDR) bool) ([]span, error) {
	ranges, err := a.Ranges.list()
	if err != nil {
		return nil, err
	}
	var out []span
	for _, r := range ranges {
		if !use(r) {
			continue
		}
		for _, text := range r.Spec.CIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil || familyOf(p.Addr()) != family || slices.ContainsFunc(out, func(s span) bool { return s.prefix == p.Masked() }) {
				continue
			}
			out = append(out, spanOf(p))
		}
	}
	return out, nil
}

// usage counts the addresses taken of each range.
func (a *Allocator) usage() map[netip.Prefix]usage {
	out := map[netip.Prefix]usage{}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		spans, err := a.ready(family)
		if err != nil {
			continue
		}
		for _, s := range spans {
			out[s.prefix] = usage{size: s.size}
		}
	}
	if a.Bitmap {
		for _, b := range a.bits {
			out[b.span.prefix] = usage{size: out[b.span.prefix].size, taken: b.taken()}
		}
		return out
	}
	a.Addresses.names(func(name string) {
		addr, err := netip.ParseAddr(name)
		for p, u := range out {
			if err == nil && p.Contains(addr) {
				u.taken++
				out[p] = u
			}
		}
	})
	return out
}

func usable(r *networkingv1.ServiceCIDR) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == networkingv1.ServiceCIDRConditionReady {
			return c.Status == metav1.ConditionTrue
		}
	}
	return true
}

// takeAddress takes the address that a service asks for.
func (a *Allocator) takeAddress(ctx context.Context, s *corev1.Service, addr netip.Addr, dryRun bool) error {
	start := time.Now()
	in, err := a.spanWith(addr)
	if errors.Is(err, errOtherNetwork) {
		// A range that was made a moment ago may not have been seen yet.
		if _, err := a.Cache.MostRecent(ctx); err != nil {
			return err
		}
		in, err = a.spanWith(addr)
	}
	if err != nil {
		return err
	}
	if !in.contains(addr) {
		err = errOutside(addr, in.prefix)
	} else if !dryRun {
		err = a.reserve(ctx, s, addr)
	}
	if !dryRun {
		a.metrics.address(in.prefix, staticScope, err, time.Since(start))
	}
	return err
}

func (a *Allocator) spanWith(addr netip.Addr) (span, error) {
	spans, err := a.ready(familyOf(addr))
	if err != nil {
		return span{}, err
	}
	in, err := containing(spans, addr)
	if err != nil && a.Bitmap && len(spans) > 0 {
		err = errOutside(addr, spans[0].prefix)
	}
	return in, err
}

// containing finds the range of an address.
func containing(spans []span, addr netip.Addr) (span, error) {
	var within []span
	for _, s := range spans {
		if s.contains(addr) {
			return s, nil
		}
		if s.prefix.Contains(addr) {
			within = append(within, s)
		}
	}
	if len(within) > 0 { // the network's own address
		return within[0], nil
	}
	return span{}, errOtherNetwork
}

// nextAddress takes any address of a family.
func (a *Allocator) nextAddress(ctx context.Context, s *corev1.Service, family corev1.IPFamily, dryRun bool) (netip.Addr, error) {
	for attempt := range 2 {
		spans, err := a.ready(family)
		if err != nil {
			return netip.Addr{}, err
		}
		rand.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		for _, in := range spans {
			if dryRun { // what is free may not be so the next moment
				return in.prefix.Addr(), nil
			}
			start := time.Now()
			addr, err := a.searchSpan(ctx, s, in)
			a.metrics.address(in.prefix, dynamicScope, err, time.Since(start))
			if !errors.Is(err, errFull) {
				return addr, err
			}
		}
		if attempt == 0 { // what the cache shows may be old
			if _, err := a.Cache.MostRecent(ctx); err != nil {
				return netip.Addr{}, err
			}
			if err := a.look(ctx); err != nil {
				return netip.Addr{}, err
			}
		}
	}
	return netip.Addr{}, errFull
}

// searchSpan takes an address of a range. The cache says which ones need not be
// tried.
func (a *Allocator) searchSpan(ctx context.Context, s *corev1.Service, in span) (netip.Addr, error) {
	for addr := range in.candidates() {
		if !a.Bitmap && a.Addresses.has(addr.String()) || a.marked(addr) {
			continue
		}
		err := a.reserve(ctx, s, addr)
		if errors.Is(err, errAddressTaken) {
			continue
		}
		return addr, err
	}
	return netip.Addr{}, errFull
}

// newAddress is the object that says that an address is a service's.
func newAddress(s *corev1.Service, addr netip.Addr) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "IPAddress"},
		ObjectMeta: metav1.ObjectMeta{Name: addr.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(familyOf(addr)), networkingv1.LabelManagedBy: managedBy,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: s.Namespace, Name: s.Name}},
	}
}

func addressPath() loopback.Ref {
	return loopback.Of(networkingv1.GroupName, networkingv1.SchemeGroupVersion.Version, "ipaddresses", "")
}

func (a *Allocator) createAddress(ctx context.Context, s *corev1.Service, addr netip.Addr) error {
	err := a.API.Create(ctx, addressPath(), newAddress(s, addr))
	if apierrors.IsAlreadyExists(err) {
		return errAddressTaken
	}
	return err
}

// reserve makes an address a service's.
func (a *Allocator) reserve(ctx context.Context, s *corev1.Service, addr netip.Addr) error {
	if a.Bitmap {
		return a.markBits(ctx, addr)
	}
	if err := a.createAddress(ctx, s, addr); err != nil {
		return err
	}
	return a.mark(ctx, addr)
}

// releaseAddress gives an address back, unless it is known to be another
// service's by now.
func (a *Allocator) releaseAddress(ctx context.Context, s *corev1.Service, addr netip.Addr) error {
	if a.Bitmap {
		return a.unmark(ctx, addr)
	}
	if live, found, _ := a.Addresses.get("", addr.String()); found && !refersTo(live, s.Namespace, s.Name) {
		return nil
	}
	return errors.Join(a.unmark(ctx, addr), a.deleteAddress(ctx, addr.String()))
}

func (a *Allocator) deleteAddress(ctx context.Context, name string) error {
	return ignoreNotFound(a.API.Delete(ctx, addressPath().Named(name), nil))
}

func refersTo(addr *networkingv1.IPAddress, namespace, name string) bool {
	ref := addr.Spec.ParentRef
	return refersToService(addr) && ref.Namespace == namespace && ref.Name == name
}

func refersToService(addr *networkingv1.IPAddress) bool {
	ref := addr.Spec.ParentRef
	return ref != nil && ref.Group == "" && ref.Resource == "services"
}
