package writes

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// Patch applies Request.Patch to what is there: an object, or what a sub-resource
// over it may change. An apply creates what is not there.
func (w *Writer) Patch(ctx context.Context, r *Request) (Result, error) {
	if r.Sub != nil && r.Sub.Scale != nil {
		return w.patchScale(ctx, r)
	}
	compute := func(l *live) (outcome, error) {
		obj, err := w.patched(ctx, r, l.obj)
		if err != nil {
			return outcome{}, err
		}
		return w.change(ctx, r, l, obj, r.Patch.Applies())
	}
	var create func() (Result, error)
	if r.Patch.Applies() && r.Sub == nil {
		create = func() (Result, error) { return w.createApplied(ctx, r) }
	}
	return w.modifyOrCreate(ctx, r, compute, create)
}

// createApplied creates what an apply patch describes and what is not there.
func (w *Writer) createApplied(ctx context.Context, r *Request) (Result, error) {
	obj, err := w.patched(ctx, r, r.Kind.New().(registry.Object))
	if err != nil {
		return Result{}, err
	}
	if uid := obj.GetUID(); uid != "" {
		return Result{}, apierrors.NewConflict(r.Kind.GroupResource(), r.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := w.mayCreate(ctx, r); err != nil {
		return Result{}, err
	}
	obj.SetResourceVersion("")
	return w.create(ctx, r, obj, true)
}

// patched applies a patch to the live object.
func (w *Writer) patched(ctx context.Context, r *Request, old registry.Object) (registry.Object, error) {
	obj, err := w.patchedObject(ctx, r, old)
	if err != nil {
		return nil, err
	}
	if err := r.namespaceFits(obj); err != nil {
		return nil, err
	}
	obj.SetNamespace(r.place())
	return obj, r.nameFits(obj)
}

func (w *Writer) patchedObject(ctx context.Context, r *Request, old registry.Object) (registry.Object, error) {
	p := r.Patch
	if p.Applies() {
		obj, err := r.owner().Apply(old, p.tree, r.Manager, r.Force)
		if err != nil && r.Kind.Document != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			return nil, status.Error(http.StatusInternalServerError, "", err.Error(), nil)
		}
		if err != nil {
			return nil, err
		}
		if r.Kind.Document != nil {
			if obj, err = r.Kind.Coder.Reshape(obj); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
		}
		return obj, r.reportApply(ctx)
	}
	if p.typ == types.MergePatchType && len(p.unknown) == 0 && r.Kind.Document == nil {
		if obj := old.DeepCopyObject().(registry.Object); mergeInto(obj, p.raw) {
			return obj, nil
		}
	}
	obj, err := w.patchValue(ctx, r, patchTarget{
		gvk: r.Kind.GVK(), now: old, shape: r.Kind.New,
		json: func() ([]byte, error) { return r.Kind.Coder.EncodeObject(old) },
	})
	if err != nil {
		return nil, err
	}
	return obj.(registry.Object), nil
}

// patchTarget is what a patch is applied to.
type patchTarget struct {
	gvk   schema.GroupVersionKind
	now   runtime.Object
	json  func() ([]byte, error)
	shape func() runtime.Object
}

// patchValue computes and decodes what a patch other than an apply makes of a
// value. Unknown fields and those that are there twice, in the patch and in its
// result, are refused, told or ignored.
func (w *Writer) patchValue(ctx context.Context, r *Request, t patchTarget) (runtime.Object, error) {
	p, strict := r.Patch, LooksForUnknown(r.FieldValidation)
	if p.typ == types.StrategicMergePatchType {
		out := t.shape()
		named, partial := p.names(out)
		now := t.now
		if partial {
			now = t.shape()
			copyFields(now, t.now, named)
		}
		tree, err := p.patchTree(now, out)
		if err != nil {
			return nil, err
		}
		shown := fmt.Sprintf("%+v", p.tree)
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, out, strict)
		unknown, ok := runtime.AsStrictDecodingError(err)
		switch {
		case err != nil && !ok:
			return nil, invalidPatch(shown, err)
		case ok:
			err = ReportUnknown(ctx, r.FieldValidation, append(p.unknown[:len(p.unknown):len(p.unknown)], unknown.Errors()...), func(err error) error { return invalidPatch(shown, err) })
		default:
			err = ReportUnknown(ctx, r.FieldValidation, p.unknown, func(err error) error { return invalidPatch(shown, err) })
		}
		if partial {
			whole := t.now.DeepCopyObject()
			copyFields(whole, out, named)
			out = whole
		}
		out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return out, err
	}
	doc, err := t.json()
	if err != nil {
		return nil, err
	}
	patched, err := p.patchJSON(doc)
	if err != nil {
		return nil, err
	}
	var d codec.Decoded
	if r.Kind.Document != nil && t.gvk == r.Kind.GVK() {
		d, err = r.Kind.Coder.DecodeDocument(api.MediaJSON, patched, strict)
	} else {
		d, err = w.Codec.Decode(api.MediaJSON, patched, t.gvk, nil, strict)
	}
	if err == nil && d.GVK != t.gvk && r.Kind.Document != nil {
		return nil, r.otherType(d.GVK)
	}
	if err == nil && d.GVK != t.gvk {
		err = fmt.Errorf("unable to decode %s into %T", d.GVK, t.now)
	}
	if err != nil {
		return nil, invalidPatch(string(patched), err)
	}
	return d.Object, ReportUnknown(ctx, r.FieldValidation, append(p.unknown[:len(p.unknown):len(p.unknown)], d.Unknown...), func(err error) error {
		return invalidPatch(string(patched), err)
	})
}

// otherType refuses a patch that makes an object one of another kind or version.
func (r *Request) otherType(got schema.GroupVersionKind) error {
	var errs field.ErrorList
	if want := r.Kind.Kind.Kind; got.Kind != want {
		errs = append(errs, field.Invalid(field.NewPath("kind"), got.Kind, "must be "+want))
	}
	if want := r.Kind.GroupVersion(); got.GroupVersion() != want {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), got.GroupVersion().String(), "must be "+want.String()))
	}
	return apierrors.NewInvalid(got.GroupKind(), r.Name, errs)
}

// reportApply reports what is unknown in the body of an apply; unknown fields of
// the type were refused before.
func (r *Request) reportApply(ctx context.Context) error {
	unknown := r.Patch.unknown
	return ReportUnknown(ctx, r.FieldValidation, unknown, func(error) error {
		return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", unknown[0]))
	})
}

// LooksForUnknown tells whether a fieldValidation wants to know of unknown and
// duplicate fields.
func LooksForUnknown(validation string) bool { return validation != metav1.FieldValidationIgnore }

// ReportUnknown refuses unknown and duplicate fields, or warns of them, or does
// nothing, as fieldValidation has it (specification: "Field validation").
func ReportUnknown(ctx context.Context, validation string, unknown []error, refuse func(error) error) error {
	switch {
	case len(unknown) == 0, !LooksForUnknown(validation):
		return nil
	case validation == metav1.FieldValidationStrict:
		return refuse(runtime.NewStrictDecodingError(unknown))
	}
	for _, e := range unknown {
		for _, text := range fieldWarnings(e) {
			request.Warn(ctx, text)
		}
	}
	return nil
}
