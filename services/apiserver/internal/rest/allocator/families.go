package allocator

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/core"
)

// hasFamily reports whether the cluster has addresses of a family.
func (a *Allocator) hasFamily(f corev1.IPFamily) bool {
	return slices.ContainsFunc(a.Prefixes, func(prefix netip.Prefix) bool { return familyOf(prefix.Addr()) == f })
}

// defaultFamily returns the family of services that request none.
func (a *Allocator) defaultFamily() corev1.IPFamily {
	if len(a.Prefixes) == 0 {
		return corev1.IPv4Protocol
	}
	return familyOf(a.Prefixes[0].Addr())
}

// policyOf returns the family policy of a service, or "" if it has none.
func policyOf(service *corev1.Service) corev1.IPFamilyPolicy {
	if service.Spec.IPFamilyPolicy == nil {
		return ""
	}
	return *service.Spec.IPFamilyPolicy
}

func setPolicy(service *corev1.Service, p corev1.IPFamilyPolicy) { service.Spec.IPFamilyPolicy = &p }

// completeFamilies sets ipFamilyPolicy and ipFamilies if the client did not, and rejects
// contradictory and unsupported values (KEP-563).
func (a *Allocator) completeFamilies(service, old *corev1.Service) field.ErrorList {
	if !hasAddress(service) || keepsDualStackPreference(service, old) {
		return nil
	}
	spec := &service.Spec
	// 1. Choose the policy, and make the addresses and families that the client sent agree with it.
	choosePolicy(service, old)
	if errs := core.ValidateClusterIPs(service); len(errs) > 0 {
		return errs
	}
	errs := dropSecondary(service, old)
	errs = append(errs, checkSingleStack(service)...)
	errs = append(errs, a.inferFamilies(service)...)
	if len(errs) > 0 {
		return errs
	}
	// 2. Reject families that the cluster does not have.
	// Without a selector, the client manages the endpoints, in any family, and no address is
	// allocated: the cluster's own families do not matter.
	unmanaged := spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0
	if !unmanaged {
		if errs := a.checkFamilies(service); len(errs) > 0 {
			return errs
		}
	}
	// 3. Add the families that are missing.
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{a.defaultFamily()}
	}
	wantsTwo := policyOf(service) != corev1.IPFamilyPolicySingleStack
	canHaveTwo := unmanaged || len(a.Prefixes) == 2
	if wantsTwo && canHaveTwo && len(spec.IPFamilies) == 1 {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return nil
}

// keepsDualStackPreference reports whether a service prefers two families and does not change the
// relevant fields. Such a service is neither upgraded nor downgraded when the cluster changes.
func keepsDualStackPreference(service, old *corev1.Service) bool {
	const prefer = corev1.IPFamilyPolicyPreferDualStack
	if old == nil || policyOf(service) != prefer {
		return false
	}
	preferred := old.Spec.IPFamilyPolicy == nil || policyOf(old) == prefer
	return preferred &&
		service.Spec.Type == old.Spec.Type &&
		slices.Equal(service.Spec.ClusterIPs, old.Spec.ClusterIPs) &&
		slices.Equal(service.Spec.IPFamilies, old.Spec.IPFamilies)
}

// choosePolicy sets the family policy if the client did not: to that of the live service, otherwise
// to the default for the service.
func choosePolicy(service, old *corev1.Service) {
	switch {
	case service.Spec.IPFamilyPolicy != nil:
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		setPolicy(service, *old.Spec.IPFamilyPolicy)
	case service.Spec.ClusterIP == corev1.ClusterIPNone && len(service.Spec.Selector) == 0:
		setPolicy(service, corev1.IPFamilyPolicyRequireDualStack)
	default:
		setPolicy(service, corev1.IPFamilyPolicySingleStack)
	}
}

// dropSecondary drops the second address and family of a service whose policy becomes single-stack.
// Removing them without that policy is an error.
func dropSecondary(service, old *corev1.Service) (errs field.ErrorList) {
	if old == nil {
		return nil
	}
	spec := &service.Spec
	if policyOf(service) == corev1.IPFamilyPolicySingleStack {
		if len(spec.ClusterIPs) > 1 && slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs) {
			spec.ClusterIPs = slices.Clone(spec.ClusterIPs[:1])
		}
		if len(spec.IPFamilies) > 1 && slices.Equal(spec.IPFamilies, old.Spec.IPFamilies) {
			spec.IPFamilies = slices.Clone(spec.IPFamilies[:1])
		}
		return nil
	}
	policy := field.NewPath("spec", "ipFamilyPolicy")
	if n := len(spec.ClusterIPs); n > 0 && n < len(old.Spec.ClusterIPs) {
		errs = append(errs, field.Invalid(policy, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
	}
	if n := len(spec.IPFamilies); n > 0 && n < len(old.Spec.IPFamilies) {
		errs = append(errs, field.Invalid(policy, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
	}
	return errs
}

// checkSingleStack rejects a single-stack service with two addresses or families.
func checkSingleStack(service *corev1.Service) (errs field.ErrorList) {
	if policyOf(service) != corev1.IPFamilyPolicySingleStack {
		return nil
	}
	const must = "must be 'RequireDualStack' or 'PreferDualStack' when multiple %s are specified"
	policy := field.NewPath("spec", "ipFamilyPolicy")
	if len(service.Spec.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(policy, service.Spec.IPFamilyPolicy, fmt.Sprintf(must, "cluster IPs")))
	}
	if len(service.Spec.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(policy, service.Spec.IPFamilyPolicy, fmt.Sprintf(must, "IP families")))
	}
	return errs
}

// inferFamilies derives families from the addresses that the client chose.
func (a *Allocator) inferFamilies(service *corev1.Service) (errs field.ErrorList) {
	if isHeadless(service) {
		return nil
	}
	for i := len(service.Spec.IPFamilies); i < len(service.Spec.ClusterIPs); i++ {
		addr, _ := parseAddress(service.Spec.ClusterIPs[i])
		f := familyOf(addr)
		if !a.hasFamily(f) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i),
				service.Spec.ClusterIPs, string(f)+" is not configured on this cluster"))
			continue
		}
		service.Spec.IPFamilies = append(service.Spec.IPFamilies, f)
	}
	return errs
}

// checkFamilies returns errors for families that the cluster does not have, and for a policy that
// requires two.
func (a *Allocator) checkFamilies(service *corev1.Service) (errs field.ErrorList) {
	if policyOf(service) == corev1.IPFamilyPolicyRequireDualStack && len(a.Prefixes) < 2 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), service.Spec.IPFamilyPolicy,
			"this cluster is not configured for dual-stack services"))
	}
	for i, f := range service.Spec.IPFamilies {
		if !a.hasFamily(f) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), f, "not configured on this cluster"))
		}
	}
	return errs
}
