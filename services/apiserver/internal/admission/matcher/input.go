package matcher

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/authorizer"
	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/request"
)

// NewAdmissionRequest returns a request as webhooks and policies see it in the version matchedKind.
// The objects, options and uid are not set.
func NewAdmissionRequest(req *admission.Request, matchedKind MatchedKind) *admissionv1.AdmissionRequest {
	resource := req.Resource.GVR()
	requestKind := metav1.GroupVersionKind(req.Kind)
	requestResource := metav1.GroupVersionResource(resource)
	dryRun := req.DryRun
	return &admissionv1.AdmissionRequest{
		Kind:               metav1.GroupVersionKind(matchedKind.Kind),
		Resource:           metav1.GroupVersionResource(matchedKind.Resource),
		SubResource:        req.Subresource,
		RequestKind:        &requestKind,
		RequestResource:    &requestResource,
		RequestSubResource: req.Subresource,
		Name:               req.Name,
		Namespace:          Namespace(req),
		Operation:          admissionv1.Operation(req.Operation),
		UserInfo:           request.UserInfo(req.User),
		DryRun:             &dryRun,
	}
}

// NewExpressionInput returns the variables that expressions can use for a request in the version
// matchedKind. Variables are computed when an expression first reads them. If requestAuthorizer is
// nil, the variable authorizer is not available.
func NewExpressionInput(
	ctx context.Context,
	req *admission.Request,
	view *views.View,
	matchedKind MatchedKind,
	requestAuthorizer authorizer.Authorizer,
) *ExpressionInput {
	expressionInput := &ExpressionInput{}
	expressionInput.Object = func() any { return view.ObjectTree() }
	expressionInput.OldObject = func() any { return view.OldTree() }
	expressionInput.Request = expressionInput.memoize(func() (map[string]any, error) { return requestVariable(req, matchedKind) })
	expressionInput.NamespaceObject = func() any { return nil }
	if requestAuthorizer != nil {
		decide := func(a *authorizer.Attributes) (authorizer.Decision, string, error) {
			return requestAuthorizer.Authorize(ctx, a)
		}
		expressionInput.Authorizer = celenv.NewAuthorizer(req.User, decide)
		expressionInput.RequestResource = celenv.NewResourceCheck(&authorizer.Attributes{
			User: req.User, Group: req.Resource.Group, ResourceName: req.Resource.Resource, Subresource: req.Subresource,
			Namespace: req.Namespace, Name: req.Name,
		}, decide)
	}
	return expressionInput
}

// ExpressionInput holds the variables that expressions can use for a request. It is not safe for
// concurrent use.
type ExpressionInput struct {
	expressions.Input
	// Err is the first error of a variable that could not be computed. Callers check it after each
	// evaluation.
	Err error
}

// recordError records err in s.Err and returns value. For a nil map it returns a nil interface,
// which expressions see as null.
func (s *ExpressionInput) recordError(value map[string]any, err error) any {
	if err != nil && s.Err == nil {
		s.Err = err
	}
	if value == nil {
		return nil
	}
	return value
}

// memoize returns a function that calls compute once and caches the result.
func (s *ExpressionInput) memoize(compute func() (map[string]any, error)) func() any {
	var computed bool
	var value any
	return func() any {
		if !computed {
			computed = true
			value = s.recordError(compute())
		}
		return value
	}
}

// requestVariable returns the value of the variable request in expressions.
func requestVariable(req *admission.Request, matchedKind MatchedKind) (map[string]any, error) {
	variable, err := runtime.DefaultUnstructuredConverter.ToUnstructured(NewAdmissionRequest(req, matchedKind))
	if err != nil {
		return nil, err
	}
	delete(variable, "uid")
	delete(variable, "object")
	delete(variable, "oldObject")
	variable["options"] = nil
	if options := Options(req); options != nil {
		if variable["options"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(options); err != nil {
			return nil, err
		}
	}
	return variable, nil
}

// Options returns the options of a request as webhooks and policies see them, with their kind. A
// patch has CreateOptions or UpdateOptions, as it creates or updates the object. Options returns
// nil if the request has none.
func Options(req *admission.Request) runtime.Object {
	var dryRun []string
	var fieldManager, fieldValidation string
	switch options := req.Options.(type) {
	case *metav1.DeleteOptions:
		out := *options
		out.TypeMeta = optionsKind("DeleteOptions")
		return &out
	case *metav1.CreateOptions:
		dryRun = options.DryRun
		fieldManager = options.FieldManager
		fieldValidation = options.FieldValidation
	case *metav1.UpdateOptions:
		dryRun = options.DryRun
		fieldManager = options.FieldManager
		fieldValidation = options.FieldValidation
	case *metav1.PatchOptions:
		dryRun = options.DryRun
		fieldManager = options.FieldManager
		fieldValidation = options.FieldValidation
	default:
		return nil
	}
	if req.Operation == admission.Create {
		return &metav1.CreateOptions{
			TypeMeta:        optionsKind("CreateOptions"),
			DryRun:          dryRun,
			FieldManager:    fieldManager,
			FieldValidation: fieldValidation,
		}
	}
	return &metav1.UpdateOptions{
		TypeMeta:        optionsKind("UpdateOptions"),
		DryRun:          dryRun,
		FieldManager:    fieldManager,
		FieldValidation: fieldValidation,
	}
}

// optionsKind returns the type of options of a kind.
func optionsKind(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: "meta.k8s.io/v1"}
}
