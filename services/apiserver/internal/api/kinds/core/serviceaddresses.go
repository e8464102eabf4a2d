package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"binnacle/services/apiserver/internal/registry/validate"
)

// ValidateClusterIPs validates the addresses of a service and their families. Addresses may be
// missing before their allocation. Services of type ExternalName have none of these fields, which
// is checked elsewhere.
func ValidateClusterIPs(service *corev1.Service) field.ErrorList {
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	spec, list := &service.Spec, field.NewPath("spec", "clusterIPs")
	var errs field.ErrorList
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		errs = append(errs, field.Invalid(list, spec.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	case spec.ClusterIP == "":
	case len(spec.ClusterIPs) == 0:
		errs = append(errs, field.Required(list, ""))
	case spec.ClusterIPs[0] != spec.ClusterIP:
		errs = append(errs, field.Invalid(list, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	errs = append(errs, validateFamilies(spec)...)
	wellFormed := true
	for i, ip := range spec.ClusterIPs {
		var ipErrs field.ErrorList
		switch {
		case i > 0 || ip != corev1.ClusterIPNone:
			ipErrs = validation.IsValidIPForLegacyField(list.Index(i), ip, false, nil)
		case len(spec.ClusterIPs) > 1:
			ipErrs = field.ErrorList{field.Invalid(list, spec.ClusterIPs, "'None' must be the first and only value")}
		}
		wellFormed = wellFormed && len(ipErrs) == 0
		errs = append(errs, ipErrs...)
	}
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(list, spec.ClusterIPs, "may only hold up to 2 values"))
	}
	if wellFormed {
		errs = append(errs, validateAddressFamilies(spec, list)...)
	}
	return errs
}

// validateFamilies requires distinct families and a known policy.
func validateFamilies(spec *corev1.ServiceSpec) (errs field.ErrorList) {
	families := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	policies := []corev1.IPFamilyPolicy{
		corev1.IPFamilyPolicyPreferDualStack,
		corev1.IPFamilyPolicyRequireDualStack,
		corev1.IPFamilyPolicySingleStack,
	}
	list := field.NewPath("spec", "ipFamilies")
	seen := validate.Set[corev1.IPFamily]{}
	for i, ipFamily := range spec.IPFamilies {
		if !slices.Contains(families, ipFamily) {
			errs = append(errs, field.NotSupported(list.Index(i), ipFamily, families))
		}
		if !seen.Add(ipFamily) {
			errs = append(errs, field.Duplicate(list.Index(i), ipFamily))
		}
	}
	if p := spec.IPFamilyPolicy; p != nil && !slices.Contains(policies, *p) {
		errs = append(errs, field.NotSupported(field.NewPath("spec", "ipFamilyPolicy"), *p, policies))
	}
	return errs
}

// validateAddressFamilies requires one address of each family, in the order of the families.
func validateAddressFamilies(spec *corev1.ServiceSpec, list *field.Path) (errs field.ErrorList) {
	ips := spec.ClusterIPs
	if len(ips) == 0 || ips[0] == corev1.ClusterIPNone {
		return nil
	}
	if isDual, err := netutils.IsDualStackIPStrings(ips); len(ips) > 1 && (err != nil || !isDual) {
		errs = append(errs, field.Invalid(list, ips, "may specify no more than one IP for each IP family"))
	}
	for i, ip := range ips[:min(len(ips), len(spec.IPFamilies))] {
		if f := spec.IPFamilies[i]; netutils.IsIPv6String(ip) != (f == corev1.IPv6Protocol) {
			errs = append(errs,
				field.Invalid(list.Index(i), ip, fmt.Sprintf("expected an %v value as indicated by `ipFamilies[%v]`", f, i)))
		}
	}
	return errs
}
