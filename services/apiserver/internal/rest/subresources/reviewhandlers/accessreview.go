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

// reviewAccess sets the status of an access review or a rules review.
func (s *service) reviewAccess(call *handlers.Call, obj runtime.Object) error {
	ctx := call.Context()
	user := request.UserFrom(ctx)
	switch review := obj.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		review.Status = s.authorizeAccess(ctx, user, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	case *authorizationv1.SubjectAccessReview:
		review.Status = s.authorizeAccess(ctx, authorizer.UserOf(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	case *authorizationv1.LocalSubjectAccessReview:
		review.Status = s.authorizeAccess(ctx, authorizer.UserOf(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	case *authorizationv1.SelfSubjectRulesReview:
		return s.reviewRules(ctx, user, review)
	default:
		details := &metav1.StatusDetails{Group: call.Group, Kind: call.Resource}
		return status.Error(http.StatusNotImplemented, "NotImplemented", "the server does not offer "+call.Resource, details)
	}
	return nil
}

// validateRequest returns an error for an invalid review.
func validateRequest(call *handlers.Call, obj runtime.Object) error {
	var errs field.ErrorList
	specPath := field.NewPath("spec")
	switch review := obj.(type) {
	case *authenticationv1.TokenReview:
		if review.Spec.Token == "" {
			return apierrors.NewBadRequest("token is required for TokenReview in authentication")
		}
	case *authorizationv1.SelfSubjectAccessReview:
		errs = append(validateAccess(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes, specPath), rejectMetadata(&review.ObjectMeta)...)
	case *authorizationv1.SubjectAccessReview:
		errs = append(validateSubject(&review.Spec, specPath), rejectMetadata(&review.ObjectMeta)...)
	case *authorizationv1.LocalSubjectAccessReview:
		errs = validateLocal(review)
		if len(errs) == 0 && review.Namespace != call.Info.Namespace { // a webhook has changed the namespace
			return apierrors.NewBadRequest("spec.resourceAttributes.namespace must match namespace: " + call.Info.Namespace)
		}
	case *authorizationv1.SelfSubjectRulesReview:
		if request.UserFrom(call.Context()) == nil {
			return apierrors.NewBadRequest("no user present on request")
		}
		if review.Spec.Namespace == "" {
			return apierrors.NewBadRequest("no namespace on request")
		}
	}
	if len(errs) > 0 {
		return status.Invalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs) // these kinds have no names
	}
	return nil
}

// authorizeAccess returns the status of a review of one action by a user.
func (s *service) authorizeAccess(
	ctx context.Context,
	user *request.User,
	resource *authorizationv1.ResourceAttributes,
	nonResource *authorizationv1.NonResourceAttributes,
) authorizationv1.SubjectAccessReviewStatus {
	attrs, problems := authorizer.AttributesOf(user, resource, nonResource)
	decision, reason, err := s.Authorizer.Authorize(ctx, attrs)
	return authorizer.StatusOf(decision, reason, err, problems)
}

// assumedRulesSize is the assumed size of a list of rules in bytes. A namespace administrator can
// give itself thousands of rules, and the size is known only after most of the work.
const assumedRulesSize = 1 << 20

// reviewRules lists the permissions of the user in a namespace. It counts as a large request.
func (s *service) reviewRules(ctx context.Context, user *request.User, review *authorizationv1.SelfSubjectRulesReview) error {
	if err := request.Estimate(ctx, assumedRulesSize); err != nil {
		return err
	}
	var rules authorizer.Rules
	var err error
	if resolver, ok := s.Authorizer.(authorizer.RuleResolver); ok {
		rules, err = resolver.RulesFor(ctx, user, review.Spec.Namespace)
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

// rejectMetadata rejects any metadata but managed fields.
func rejectMetadata(m *metav1.ObjectMeta) field.ErrorList {
	return allowOnlyMetadata(m, metav1.ObjectMeta{}, "must be empty")
}

// allowOnlyMetadata rejects metadata other than the allowed one.
func allowOnlyMetadata(m *metav1.ObjectMeta, allowed metav1.ObjectMeta, detail string) field.ErrorList {
	relevant := *m
	relevant.ManagedFields = nil
	if semantic.Equal(relevant, allowed) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), *m, detail)}
}

// validateSubject validates the user, the groups and the action of a review.
func validateSubject(spec *authorizationv1.SubjectAccessReviewSpec, at *field.Path) field.ErrorList {
	errs := validateAccess(spec.ResourceAttributes, spec.NonResourceAttributes, at)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(at.Child("user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

// validateLocal validates a review of one namespace.
func validateLocal(review *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	specPath := field.NewPath("spec")
	errs := validateSubject(&review.Spec, specPath)
	errs = append(
		errs,
		allowOnlyMetadata(&review.ObjectMeta, metav1.ObjectMeta{Namespace: review.Namespace}, "must be empty except for namespace")...,
	)
	if ra := review.Spec.ResourceAttributes; ra != nil && ra.Namespace != review.Namespace {
		errs = append(errs, field.Invalid(specPath.Child("resourceAttributes", "namespace"), ra.Namespace, "must match metadata.namespace"))
	}
	if na := review.Spec.NonResourceAttributes; na != nil {
		errs = append(errs, field.Invalid(specPath.Child("nonResourceAttributes"), pathText(*na), "disallowed on this kind of request"))
	}
	return errs
}

// validateAccess checks that a review has exactly one of resource and non-resource attributes.
func validateAccess(
	resource *authorizationv1.ResourceAttributes,
	nonResource *authorizationv1.NonResourceAttributes,
	at *field.Path,
) (errs field.ErrorList) {
	switch {
	case resource == nil && nonResource == nil:
		errs = append(errs, field.Invalid(at.Child("resourceAttributes"), nonResource,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	case resource != nil && nonResource != nil:
		errs = append(errs, field.Invalid(at.Child("nonResourceAttributes"), pathText(*nonResource),
			"cannot be specified in combination with resourceAttributes"))
	}
	if resource != nil {
		errs = append(errs, validateSelectors(resource, at.Child("resourceAttributes"))...)
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
	if selector := attributes.FieldSelector; selector != nil {
		at := at.Child("fieldSelector")
		validateForm(at, selector.RawSelector, len(selector.Requirements))
		for i := range selector.Requirements {
			errs = append(errs, validateFieldRequirement(&selector.Requirements[i], at.Child("requirements").Index(i))...)
		}
	}
	if selector := attributes.LabelSelector; selector != nil {
		at := at.Child("labelSelector")
		validateForm(at, selector.RawSelector, len(selector.Requirements))
		for i := range selector.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(selector.Requirements[i],
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
