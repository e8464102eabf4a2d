package matcher

import (
	"context"

	admissionreview "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/authorizer"
	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/request"
)

// NewAdmissionRequest returns a request as webhooks and policies see it in the version as. The
// objects, options and uid are not set.
func NewAdmissionRequest(req *admission.Request, as MatchedKind) *admissionreview.AdmissionRequest {
	resource := req.Resource.GVR()
	requestKind := metav1.GroupVersionKind(req.Kind)
	requestResource := metav1.GroupVersionResource(resource)
	dryRun := req.DryRun
	return &admissionreview.AdmissionRequest{
		Kind:               metav1.GroupVersionKind(as.Kind),
		Resource:           metav1.GroupVersionResource(as.Resource),
		SubResource:        req.Subresource,
		RequestKind:        &requestKind,
		RequestResource:    &requestResource,
		RequestSubResource: req.Subresource,
		Name:               req.Name,
		Namespace:          Namespace(req),
		Operation:          admissionreview.Operation(req.Operation),
		UserInfo:           request.UserInfo(req.User),
		DryRun:             &dryRun,
	}
}

// NewExpressionInput returns the variables that expressions can use for a request in the version
// as. Variables are computed when an expression first reads them. If z is nil, the variable
// authorizer is not available.
func NewExpressionInput(
	ctx context.Context,
	req *admission.Request,
	view *views.View,
	as MatchedKind,
	z authorizer.Authorizer,
) *ExpressionInput {
	expressionInput := &ExpressionInput{}
	expressionInput.Object = func() any { return view.ObjectTree() }
	expressionInput.OldObject = func() any { return view.OldTree() }
	expressionInput.Request = expressionInput.memoize(func() (map[string]any, error) { return requestVariable(req, as) })
	expressionInput.NamespaceObject = func() any { return nil }
	if z != nil {
		decide := func(a *authorizer.Attributes) (authorizer.Decision, string, error) { return z.Authorize(ctx, a) }
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

// recordError records err in s.Err and returns t as a variable, which is a nil interface if t is
// nil.
func (s *ExpressionInput) recordError(t map[string]any, err error) any {
	if err != nil && s.Err == nil {
		s.Err = err
	}
	if t == nil {
		return nil
	}
	return t
}

// memoize returns a function that calls f once and caches the result.
func (s *ExpressionInput) memoize(f func() (map[string]any, error)) func() any {
	var computed bool
	var value any
	return func() any {
		if !computed {
			computed = true
			value = s.recordError(f())
		}
		return value
	}
}

// requestVariable returns the value of the variable request in expressions.
func requestVariable(r *admission.Request, as MatchedKind) (map[string]any, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(NewAdmissionRequest(r, as))
	if err != nil {
		return nil, err
	}
	delete(m, "uid")
	delete(m, "object")
	delete(m, "oldObject")
	m["options"] = nil
	if o := Options(r); o != nil {
		if m["options"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(o); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Options returns the options of a request as webhooks and policies see them, with their kind. A
// patch has CreateOptions or UpdateOptions, as it creates or updates the object. Options returns
// nil if the request has none.
func Options(req *admission.Request) runtime.Object {
	var dryRun []string
	var manager, validation string
	switch o := req.Options.(type) {
	case *metav1.DeleteOptions:
		out := *o
		out.TypeMeta = optionsKind("DeleteOptions")
		return &out
	case *metav1.CreateOptions:
		dryRun = o.DryRun
		manager = o.FieldManager
		validation = o.FieldValidation
	case *metav1.UpdateOptions:
		dryRun = o.DryRun
		manager = o.FieldManager
		validation = o.FieldValidation
	case *metav1.PatchOptions:
		dryRun = o.DryRun
		manager = o.FieldManager
		validation = o.FieldValidation
	default:
		return nil
	}
	if req.Operation == admission.Create {
		return &metav1.CreateOptions{
			TypeMeta:        optionsKind("CreateOptions"),
			DryRun:          dryRun,
			FieldManager:    manager,
			FieldValidation: validation,
		}
	}
	return &metav1.UpdateOptions{
		TypeMeta:        optionsKind("UpdateOptions"),
		DryRun:          dryRun,
		FieldManager:    manager,
		FieldValidation: validation,
	}
}

// optionsKind returns the type of options of a kind.
func optionsKind(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: "meta.k8s.io/v1"}
}
