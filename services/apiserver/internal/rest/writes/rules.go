package writes

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// namespaceFits checks the body's namespace against the path's.
func (r *Request) namespaceFits(obj registry.Object) error {
	if !r.Kind.Namespaced {
		obj.SetNamespace("") // cluster-scoped: the client's value is ignored
		return nil
	}
	if ns := obj.GetNamespace(); ns != "" && ns != r.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// creationFits checks the body's namespace and, if the path has a name, the body's name. The
// request was authorized to create an object of that name.
func (r *Request) creationFits(obj registry.Object) error {
	if err := r.namespaceFits(obj); err != nil || r.Name == "" || obj.GetName() == "" && obj.GetGenerateName() == "" {
		return err
	}
	return r.nameFits(obj)
}

// nameFits checks the body's name and namespace against the path's.
func (r *Request) nameFits(obj registry.Object) error {
	switch name := obj.GetName(); {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", r.Name))
	case name != r.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, r.Name))
	}
	if ns := obj.GetNamespace(); r.Kind.Namespaced && ns != "" && ns != r.Namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)", ns, r.Namespace))
	}
	return nil
}

// admit runs the last steps of admission on a complete object: the validating phase and the quota
// charge. It drops claim on an error, and otherwise joins it with the charged claim.
func (w *Writer) admit(ctx context.Context, ask *admission.Request, claim Claim) (Claim, error) {
	err := w.Admission.Validate(ctx, ask)
	if err == nil {
		var charged Claim
		if charged, err = w.Admission.Claim(ctx, ask); err == nil {
			return admission.Claims{claim, charged}, nil
		}
	}
	claim.Drop(ctx)
	return nil, err
}

func (w *Writer) validateCreate(ctx context.Context, r *Request, obj registry.Object, text []byte) field.ErrorList {
	errs := meta.ValidateCreate(r.Kind.Kind, obj)
	errs = append(errs, r.validateDocument(ctx, errs, obj, text, nil)...)
	if r.Kind.Create.Validate != nil {
		errs = append(errs, r.Kind.Create.Validate(obj)...)
	}
	return w.withDeclared(r.Kind.Kind, obj, errs)
}

// checkType rejects an object without a Go type that has another kind or apiVersion than the resource.
func (r *Request) checkType(obj registry.Object) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	var errs field.ErrorList
	if want := r.Kind.Kind.Kind; u.GetKind() != want {
		errs = append(errs, field.Invalid(field.NewPath("kind"), u.GetKind(), "must be "+want))
	}
	if want := r.Kind.GroupVersion().String(); u.GetAPIVersion() != want {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), u.GetAPIVersion(), "must be "+want))
	}
	if len(errs) == 0 {
		return nil
	}
	return status.Invalid(u.GroupVersionKind().GroupKind(), u.GetName(), errs)
}

// validateDocument validates an object without a Go type against its schema. found holds the errors
// of its metadata.
func (r *Request) validateDocument(ctx context.Context, found field.ErrorList, obj registry.Object, text, old []byte) field.ErrorList {
	subresource := ""
	if r.Sub != nil {
		subresource = r.Sub.Name
	}
	return r.Kind.ValidateDocument(ctx, registry.DocumentWrite{
		Object: obj, Text: text, Old: old, Found: found, Subresource: subresource, Warn: func(text string) { request.Warn(ctx, text) },
		OnCostly: func() { _ = request.Estimate(ctx, request.LargeBody) }, // the result is ignored: the cost of rules is bounded
	})
}

func (r *Request) warn(ctx context.Context, obj registry.Object) {
	if r.Kind.Create.Warnings == nil {
		return
	}
	for _, w := range r.Kind.Create.Warnings(obj) {
		request.Warn(ctx, w)
	}
}

// warnOfUpdate is warn for an update. A subresource has its own warnings.
func (r *Request) warnOfUpdate(ctx context.Context, obj, old registry.Object) {
	switch {
	case r.Sub != nil:
		if r.Sub.Warnings == nil {
			return
		}
		for _, w := range r.Sub.Warnings(obj) {
			request.Warn(ctx, w)
		}
	case r.Kind.Update.Warnings == nil:
		r.warn(ctx, obj)
	default:
		for _, w := range r.Kind.Update.Warnings(obj, old) {
			request.Warn(ctx, w)
		}
	}
}
