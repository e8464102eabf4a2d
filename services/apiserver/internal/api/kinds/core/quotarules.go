package core

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validateQuota validates a new or changed quota.
func validateQuota(fld validate.Field, quota *corev1.ResourceQuota) {
	spec := fld.Child("spec")
	validateQuotaAmounts(spec, "hard", quota.Spec.Hard)
	validateScopes(spec, &quota.Spec)
	if s := quota.Spec.ScopeSelector; s != nil {
		validateScopeSelector(spec.Child("scopeSelector", "matchExpressions"), &quota.Spec)
	}
}

// validateQuotaStatus validates an update of the status.
func validateQuotaStatus(fld validate.Field, q, _ *corev1.ResourceQuota) {
	status := fld.Child("status")
	validateQuotaAmounts(status, "hard", q.Status.Hard)
	validateQuotaAmounts(status, "used", q.Status.Used)
}

// validateQuotaChanges rejects a change of the set of scopes. Their order may change.
func validateQuotaChanges(fld validate.Field, q, old *corev1.ResourceQuota) {
	scope := func(s *corev1.ResourceQuotaScope) corev1.ResourceQuotaScope { return *s }
	if !maps.Equal(validate.KeySet(q.Spec.Scopes, scope), validate.KeySet(old.Spec.Scopes, scope)) {
		fld.Child("spec").Invalid("scopes", q.Spec.Scopes, "field is immutable")
	}
}

// validateQuotaAmounts validates the names and amounts of resources.
func validateQuotaAmounts(fld validate.Field, name string, amounts corev1.ResourceList) {
	validate.EachQuantity(fld, name, amounts, func(fld validate.Field, name corev1.ResourceName, quantity validate.Quantity) {
		podspec.ValidateResourceName(fld, name)
		if !strings.Contains(string(name), "/") && !isQuotaResource(name) {
			fld.Invalid("", name, "must be a standard resource for quota")
		}
		podspec.ValidateResourceQuantity(fld, name, quantity)
	})
}

// isQuotaResource reports whether a resource without a domain can have a quota.
func isQuotaResource(name corev1.ResourceName) bool {
	return name != corev1.ResourceStorage && podspec.IsStandardResource(name)
}

const unsupportedScopeDetail = "unsupported scope"

// validateScopes requires known scopes that apply to the resources of the quota.
func validateScopes(fld validate.Field, spec *corev1.ResourceQuotaSpec) {
	seen := validate.Set[corev1.ResourceQuotaScope]{}
	for _, scope := range spec.Scopes {
		seen.Add(scope)
		if !isKnownScope(scope) {
			fld.Invalid("scopes", spec.Scopes, unsupportedScopeDetail)
		}
		for _, name := range slices.Sorted(maps.Keys(spec.Hard)) {
			if isQuotaResource(name) && !affectsResource(scope, name) {
				fld.Invalid("scopes", spec.Scopes, "unsupported scope applied to resource")
			}
		}
	}
	validateScopeConflicts(fld, "scopes", spec, seen)
}

// validateScopeConflicts rejects scopes that exclude each other.
func validateScopeConflicts(
	fld validate.Field,
	name string,
	spec *corev1.ResourceQuotaSpec,
	seen validate.Set[corev1.ResourceQuotaScope],
) {
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if seen.Has(pair[0]) && seen.Has(pair[1]) {
			fld.Invalid(name, spec.Scopes, "conflicting scopes")
		}
	}
}

// validateScopeSelector is validateScopes for a scope selector.
func validateScopeSelector(fld validate.Field, spec *corev1.ResourceQuotaSpec) {
	seen := validate.Set[corev1.ResourceQuotaScope]{}
	for i := range spec.ScopeSelector.MatchExpressions {
		r := &spec.ScopeSelector.MatchExpressions[i]
		seen.Add(r.ScopeName)
		if !isKnownScope(r.ScopeName) {
			fld.Invalid("scopeName", r.ScopeName, unsupportedScopeDetail)
		}
		for _, name := range slices.Sorted(maps.Keys(spec.Hard)) {
			if isQuotaResource(name) && !affectsResource(r.ScopeName, name) {
				fld.Invalid("", *spec.ScopeSelector, "unsupported scope applied to resource")
			}
		}
		validateScopeRequirement(fld, r)
	}
	validateScopeConflicts(fld, "", spec, seen)
}

// validateScopeRequirement validates the operator and values of a requirement.
func validateScopeRequirement(fld validate.Field, requirement *corev1.ScopedResourceSelectorRequirement) {
	switch requirement.ScopeName {
	case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating,
		corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		if requirement.Operator != corev1.ScopeSelectorOpExists {
			fld.Invalid(
				"operator",
				requirement.Operator,
				"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "+
					"ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
			)
		}
	}
	switch requirement.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(requirement.Values) == 0 {
			fld.Required("values", "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(requirement.Values) > 0 {
			fld.Invalid("values", requirement.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
		}
	default:
		fld.Invalid("operator", requirement.Operator, "not a valid selector operator")
	}
}

// isKnownScope reports whether Kubernetes defines a scope.
func isKnownScope(s corev1.ResourceQuotaScope) bool {
	switch s {
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
		corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
		corev1.ResourceQuotaScopeVolumeAttributesClass:
		return true
	}
	return false
}

// affectsResource reports whether a scope affects the usage of a resource.
func affectsResource(s corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	switch s {
	case corev1.ResourceQuotaScopeBestEffort:
		return name == corev1.ResourcePods
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		switch name {
		case corev1.ResourcePods,
			corev1.ResourceCPU,
			corev1.ResourceMemory,
			corev1.ResourceRequestsCPU,
			corev1.ResourceRequestsMemory,
			corev1.ResourceLimitsCPU,
			corev1.ResourceLimitsMemory:
			return true
		}
		return false
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	}
	return true
}
