package rbacgroup

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/transcode"
)

// validateRules validates the rules of a role. Those of a namespaced role cannot have non-resource
// URLs.
func validateRules(rules []rbacv1.PolicyRule, namespaced bool) (errs field.ErrorList) {
	for i := range rules {
		policyRule, at := &rules[i], field.NewPath("rules").Index(i)
		if len(policyRule.Verbs) == 0 {
			errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
		}
		if len(policyRule.NonResourceURLs) > 0 {
			urls := at.Child("nonResourceURLs")
			if namespaced {
				errs = append(errs, field.Invalid(urls, policyRule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
			}
			if len(policyRule.APIGroups) > 0 || len(policyRule.Resources) > 0 || len(policyRule.ResourceNames) > 0 {
				errs = append(errs,
					field.Invalid(urls, policyRule.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(policyRule.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(policyRule.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
		}
	}
	return errs
}

func validateRole(r *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) }

func validateClusterRole(clusterRole *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(clusterRole.Rules, false)
	if clusterRole.AggregationRule == nil {
		return errs
	}
	at := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(clusterRole.AggregationRule.ClusterRoleSelectors) == 0 {
		return append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i := range clusterRole.AggregationRule.ClusterRoleSelectors {
		selector := &clusterRole.AggregationRule.ClusterRoleSelectors[i]
		errs = append(
			errs,
			metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, at.Index(i))...)
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			errs = append(errs, field.Invalid(at.Index(i), nil, "invalid label selector."))
		}
	}
	return errs
}

// defaultBinding sets missing API groups of the role and the subjects.
func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = group
	}
	for i := range subjects {
		s := &subjects[i]
		if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = group
		}
	}
}

// validateBinding validates a binding to a role of one of the given kinds.
func validateBinding(ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool, kinds ...string) (errs field.ErrorList) {
	at := field.NewPath("roleRef")
	if ref.APIGroup != group {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{group}))
	}
	if !slices.Contains(kinds, ref.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		for _, msg := range path.ValidatePathSegmentName(ref.Name, false) {
			errs = append(errs, field.Invalid(at.Child("name"), ref.Name, msg))
		}
	}
	for i := range subjects {
		errs = append(errs, validateSubject(&subjects[i], namespaced, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(subject *rbacv1.Subject, namespaced bool, at *field.Path) (errs field.ErrorList) {
	if subject.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		if subject.Name != "" {
			for _, msg := range validation.IsDNS1123Subdomain(subject.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), subject.Name, msg))
			}
		}
		if subject.APIGroup != "" {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), subject.APIGroup, []string{""}))
		}
		if !namespaced && subject.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		if subject.APIGroup != group {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), subject.APIGroup, []string{group}))
		}
	default:
		errs = append(errs,
			field.NotSupported(at.Child("kind"), subject.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	return errs
}

// refText formats a reference in messages as Kubernetes does.
type refText rbacv1.RoleRef

func (r refText) String() string {
	return fmt.Sprintf("rbac.RoleRef{APIGroup:%q, Kind:%q, Name:%q}", r.APIGroup, r.Kind, r.Name)
}

// validateSameRole rejects changes of the role of a binding: a user that may grant one role is not
// necessarily allowed to grant another.
func validateSameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), refText(ref), "cannot change roleRef")}
}

// bindingDefaultedRules returns the rules that determine whether a stored binding has the defaults of
// defaultBinding.
func bindingDefaultedRules() []transcode.Rule {
	return []transcode.Rule{
		transcode.FieldsSet[rbacv1.RoleRef]("apiGroup"),
		transcode.FieldsPass[rbacv1.Subject](func(f [4][]byte) bool {
			return string(f[0]) != rbacv1.UserKind && string(f[0]) != rbacv1.GroupKind || len(f[1]) > 0
		}, "kind", "apiGroup"),
	}
}
