package reviewhandlers

import (
	"context"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/authorizer"
	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/status"
)

// reviewAccess evaluates the kinds of access reviews.
func (a *service) reviewAccess(call *handlers.Call, obj runtime.Object) error {
	ctx := call.Context()
	user := request.UserFrom(ctx)
	switch r := obj.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		r.Status = a.authorizeAccess(ctx, user, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	case *authorizationv1.SubjectAccessReview:
		r.Status = a.authorizeAccess(ctx, authorizer.UserOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	case *authorizationv1.LocalSubjectAccessReview:
		r.Status = a.authorizeAccess(ctx, authorizer.UserOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	case *authorizationv1.SelfSubjectRulesReview:
		return a.reviewRules(ctx, user, r)
	default:
		details := &metav1.StatusDetails{Group: call.Group, Kind: call.Resource}
		return status.Error(http.StatusNotImplemented, "NotImplemented", "the server does not offer "+call.Resource, details)
	}
	return nil
}

// validateRequest returns an error for an invalid review.
func validateRequest(call *handlers.Call, obj runtime.Object) error {
	var errs field.ErrorList
	at := field.NewPath("spec")
	switch r := obj.(type) {
	case *authenticationv1.TokenReview:
		if r.Spec.Token == "" {
			return apierrors.NewBadRequest("token is required for TokenReview in authentication")
		}
	case *authorizationv1.SelfSubjectAccessReview:
		errs = append(validateAccess(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes, at), rejectMetadata(&r.ObjectMeta)...)
	case *authorizationv1.SubjectAccessReview:
		errs = append(validateSubject(&r.Spec, at), rejectMetadata(&r.ObjectMeta)...)
	case *authorizationv1.LocalSubjectAccessReview:
		errs = validateLocal(r)
		if len(errs) == 0 && r.Namespace != call.Info.Namespace { // a webhook has changed it
			return apierrors.NewBadRequest("spec.resourceAttributes.namespace must match namespace: " + call.Info.Namespace)
		}
	case *authorizationv1.SelfSubjectRulesReview:
		if request.UserFrom(call.Context()) == nil {
			return apierrors.NewBadRequest("no user present on request")
		}
		if r.Spec.Namespace == "" {
			return apierrors.NewBadRequest("no namespace on request")
		}
	}
	if len(errs) > 0 {
		return status.Invalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs) // these kinds have no names
	}
	return nil
}

func (a *service) authorizeAccess(
	ctx context.Context,
	u *request.User,
	resource *authorizationv1.ResourceAttributes,
	nonResource *authorizationv1.NonResourceAttributes,
) authorizationv1.SubjectAccessReviewStatus {
	attrs, problems := authorizer.AttributesOf(u, resource, nonResource)
	decision, reason, err := a.Authorizer.Authorize(ctx, attrs)
	return authorizer.StatusOf(decision, reason, err, problems)
}

// assumedRulesSize is the assumed size of a list of rules in bytes. A namespace administrator can
// give itself thousands of rules, and the size is known only after most of the work.
const assumedRulesSize = 1 << 20

// reviewRules lists the permissions of the user in a namespace. It counts as a large request.
func (a *service) reviewRules(ctx context.Context, u *request.User, review *authorizationv1.SelfSubjectRulesReview) error {
	if err := request.Estimate(ctx, assumedRulesSize); err != nil {
		return err
	}
	var rules authorizer.Rules
	var err error
	if resolver, ok := a.Authorizer.(authorizer.RuleResolver); ok {
		rules, err = resolver.RulesFor(ctx, u, review.Spec.Namespace)
	} else {
		rules.Incomplete = true
	}
	// The response does not repeat the spec.
	review.ObjectMeta = metav1.ObjectMeta{}
	review.Spec = authorizationv1.SelfSubjectRulesReviewSpec{}
	review.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: rules.Resource, NonResourceRules: rules.NonResource, Incomplete: rules.Incomplete,
	}
	if review.Status.ResourceRules == nil { // encoded as an empty list, not as null
		review.Status.ResourceRules = []authorizationv1.ResourceRule{}
	}
	if review.Status.NonResourceRules == nil {
		review.Status.NonResourceRules = []authorizationv1.NonResourceRule{}
	}
	if err != nil {
		review.Status.EvaluationError = err.Error()
	}
	return nil
}

func rejectMetadata(m *metav1.ObjectMeta) field.ErrorList {
	return allowOnlyMetadata(m, metav1.ObjectMeta{}, "must be empty")
}

// allowOnlyMetadata rejects metadata other than the allowed one.
func allowOnlyMetadata(m *metav1.ObjectMeta, allowed metav1.ObjectMeta, detail string) field.ErrorList {
	rest := *m
	rest.ManagedFields = nil
	if semantic.Equal(rest, allowed) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), *m, detail)}
}

func validateSubject(s *authorizationv1.SubjectAccessReviewSpec, at *field.Path) field.ErrorList {
	errs := validateAccess(s.ResourceAttributes, s.NonResourceAttributes, at)
	if s.User == "" && len(s.Groups) == 0 {
		errs = append(errs, field.Invalid(at.Child("user"), s.User, "at least one of user or group must be specified"))
	}
	return errs
}

func validateLocal(r *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateSubject(&r.Spec, at)
	errs = append(
		errs,
		allowOnlyMetadata(&r.ObjectMeta, metav1.ObjectMeta{Namespace: r.Namespace}, "must be empty except for namespace")...,
	)
	if ra := r.Spec.ResourceAttributes; ra != nil && ra.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(at.Child("resourceAttributes", "namespace"), ra.Namespace, "must match metadata.namespace"))
	}
	if na := r.Spec.NonResourceAttributes; na != nil {
		errs = append(errs, field.Invalid(at.Child("nonResourceAttributes"), pathText(*na), "disallowed on this kind of request"))
	}
	return errs
}

// validateAccess checks that a review has exactly one of resource and non-resource attributes.
func validateAccess(
	attributes *authorizationv1.ResourceAttributes,
	na *authorizationv1.NonResourceAttributes,
	at *field.Path,
) (errs field.ErrorList) {
	switch {
	case attributes == nil && na == nil:
		errs = append(errs, field.Invalid(at.Child("resourceAttributes"), na,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	case attributes != nil && na != nil:
		errs = append(errs, field.Invalid(at.Child("nonResourceAttributes"), pathText(*na),
			"cannot be specified in combination with resourceAttributes"))
	}
	if attributes != nil {
		errs = append(errs, validateSelectors(attributes, at.Child("resourceAttributes"))...)
	}
	return errs
}

// pathText formats non-resource attributes in messages as Kubernetes does.
type pathText authorizationv1.NonResourceAttributes

// String implements fmt.Stringer.
func (p pathText) String() string {
	return fmt.Sprintf("authorization.NonResourceAttributes{Path:%q, Verb:%q}", p.Path, p.Verb)
}

// validateSelectors validates the field selector and the label selector of a review.
func validateSelectors(attributes *authorizationv1.ResourceAttributes, at *field.Path) (errs field.ErrorList) {
	validateForm := func(at *field.Path, raw string, requirements int) {
		switch {
		case raw != "" && requirements > 0:
			errs = append(errs, field.Invalid(at.Child("rawSelector"), raw, "may not specified at the same time as requirements"))
		case raw == "" && requirements == 0:
			errs = append(errs, field.Required(at.Child("requirements"),
				fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at)))
		}
	}
	if s := attributes.FieldSelector; s != nil {
		at := at.Child("fieldSelector")
		validateForm(at, s.RawSelector, len(s.Requirements))
		for i := range s.Requirements {
			errs = append(errs, validateFieldRequirement(&s.Requirements[i], at.Child("requirements").Index(i))...)
		}
	}
	if s := attributes.LabelSelector; s != nil {
		at := at.Child("labelSelector")
		validateForm(at, s.RawSelector, len(s.Requirements))
		for i := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(s.Requirements[i],
				metav1validation.LabelSelectorValidationOptions{
					AllowUnknownOperatorInRequirement: true,
				}, at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

// validateFieldRequirement validates one requirement of a field selector.
func validateFieldRequirement(r *metav1.FieldSelectorRequirement, at *field.Path) (errs field.ErrorList) {
	if r.Key == "" {
		errs = append(errs, field.Required(at.Child("key"), "must be specified"))
	}
	switch r.Operator {
	case metav1.FieldSelectorOpIn, metav1.FieldSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(at.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case metav1.FieldSelectorOpExists, metav1.FieldSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(at.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	}
	return errs
}
