package allocator

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/core"
)

// configured reports whether the cluster has addresses of a family.
func (a *Allocator) configured(f corev1.IPFamily) bool {
	for _, p := range a.Prefixes {
		if familyOf(p.Addr()) == f {
			return true
		}
	}
	return false
}

// defaultFamily returns the family of services that request none.
func (a *Allocator) defaultFamily() corev1.IPFamily {
	if len(a.Prefixes) == 0 {
		return corev1.IPv4Protocol
	}
	return familyOf(a.Prefixes[0].Addr())
}

func policyOf(s *corev1.Service) corev1.IPFamilyPolicy {
	if s.Spec.IPFamilyPolicy == nil {
		return ""
	}
	return *s.Spec.IPFamilyPolicy
}

func setPolicy(s *corev1.Service, p corev1.IPFamilyPolicy) { s.Spec.IPFamilyPolicy = &p }

// completeFamilies sets ipFamilyPolicy and ipFamilies if the client did not, and rejects
// contradictory and unsupported values (KEP-563).
func (a *Allocator) completeFamilies(s, was *corev1.Service) field.ErrorList {
	if !hasAddress(s) || keepsPreference(s, was) {
		return nil
	}
	spec := &s.Spec
	choosePolicy(s, was)
	if errs := core.ValidateClusterIPs(s); len(errs) > 0 {
		return errs
	}
	errs := shrink(s, was)
	errs = append(errs, singleHasOne(s)...)
	errs = append(errs, a.inferFamilies(s)...)
	if len(errs) > 0 {
		return errs
	}
	dual := policyOf(s) != corev1.IPFamilyPolicySingleStack
	// Without a selector, the client manages the endpoints, in any family, and no address is
	// allocated: the cluster's own families do not matter.
	unmanaged := spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0
	if !unmanaged {
		if errs := a.familiesExist(s); len(errs) > 0 {
			return errs
		}
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{a.defaultFamily()}
	}
	if dual && len(spec.IPFamilies) == 1 && (unmanaged || len(a.Prefixes) == 2) {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return nil
}

// keepsPreference reports whether a service prefers two families and does not change the relevant
// fields. Such a service is neither upgraded nor downgraded when the cluster changes.
func keepsPreference(s, was *corev1.Service) bool {
	const prefer = corev1.IPFamilyPolicyPreferDualStack
	return was != nil && s.Spec.Type == was.Spec.Type && policyOf(s) == prefer &&
		(was.Spec.IPFamilyPolicy == nil || policyOf(was) == prefer) &&
		slices.Equal(s.Spec.ClusterIPs, was.Spec.ClusterIPs) && slices.Equal(s.Spec.IPFamilies, was.Spec.IPFamilies)
}

func choosePolicy(s, was *corev1.Service) {
	switch {
	case s.Spec.IPFamilyPolicy != nil:
	case was != nil && was.Spec.IPFamilyPolicy != nil:
		setPolicy(s, *was.Spec.IPFamilyPolicy)
	case s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0:
		setPolicy(s, corev1.IPFamilyPolicyRequireDualStack)
	default:
		setPolicy(s, corev1.IPFamilyPolicySingleStack)
	}
}

// shrink drops the second address and family of a service whose policy becomes single-stack.
// Removing them without that policy is an error.
func shrink(s, was *corev1.Service) (errs field.ErrorList) {
	if was == nil {
		return nil
	}
	spec := &s.Spec
	if policyOf(s) == corev1.IPFamilyPolicySingleStack {
		if len(spec.ClusterIPs) > 1 && slices.Equal(spec.ClusterIPs, was.Spec.ClusterIPs) {
			spec.ClusterIPs = slices.Clone(spec.ClusterIPs[:1])
		}
		if len(spec.IPFamilies) > 1 && slices.Equal(spec.IPFamilies, was.Spec.IPFamilies) {
			spec.IPFamilies = slices.Clone(spec.IPFamilies[:1])
		}
		return nil
	}
	policy := field.NewPath("spec", "ipFamilyPolicy")
	if n := len(spec.ClusterIPs); n > 0 && n < len(was.Spec.ClusterIPs) {
		errs = append(errs, field.Invalid(policy, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
	}
	if n := len(spec.IPFamilies); n > 0 && n < len(was.Spec.IPFamilies) {
		errs = append(errs, field.Invalid(policy, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
	}
	return errs
}

// singleHasOne rejects a single-stack service with two addresses or families.
func singleHasOne(s *corev1.Service) (errs field.ErrorList) {
	if policyOf(s) != corev1.IPFamilyPolicySingleStack {
		return nil
	}
	const must = "must be 'RequireDualStack' or 'PreferDualStack' when multiple %s are specified"
	policy := field.NewPath("spec", "ipFamilyPolicy")
	if len(s.Spec.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(policy, s.Spec.IPFamilyPolicy, fmt.Sprintf(must, "cluster IPs")))
	}
	if len(s.Spec.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(policy, s.Spec.IPFamilyPolicy, fmt.Sprintf(must, "IP families")))
	}
	return errs
}

// inferFamilies derives families from the addresses that the client chose.
func (a *Allocator) inferFamilies(s *corev1.Service) (errs field.ErrorList) {
	if headless(s) {
		return nil
	}
	for i := len(s.Spec.IPFamilies); i < len(s.Spec.ClusterIPs); i++ {
		addr, _ := parseAddress(s.Spec.ClusterIPs[i])
		f := familyOf(addr)
		if !a.configured(f) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i),
				s.Spec.ClusterIPs, string(f)+" is not configured on this cluster"))
			continue
		}
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, f)
	}
	return errs
}

func (a *Allocator) familiesExist(s *corev1.Service) (errs field.ErrorList) {
	if policyOf(s) == corev1.IPFamilyPolicyRequireDualStack && len(a.Prefixes) < 2 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
			"this cluster is not configured for dual-stack services"))
	}
	for i, f := range s.Spec.IPFamilies {
		if !a.configured(f) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), f, "not configured on this cluster"))
		}
	}
	return errs
}
