package writes

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// patchTarget is the value that a patch is applied to.
type patchTarget struct {
	gvk   schema.GroupVersionKind
	now   runtime.Object
	json  func() ([]byte, error)
	shape func() runtime.Object
}

// patchValue applies a patch other than an apply to a value and decodes the result. Unknown and
// duplicate fields, in the patch and in its result, are rejected, reported as warnings, or ignored,
// as FieldValidation requires.
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
		tree, err := p.patchTree(ctx, now, out)
		if err != nil {
			return nil, err
		}
		invalid := func(err error) error { return invalidPatch(fmt.Sprintf("%+v", p.tree), err) }
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, out, strict)
		unknown, ok := runtime.AsStrictDecodingError(err)
		switch {
		case err != nil && !ok:
			return nil, invalid(err)
		case ok:
			err = ReportUnknown(ctx, r.FieldValidation, append(p.unknown[:len(p.unknown):len(p.unknown)], unknown.Errors()...), invalid)
		default:
			err = ReportUnknown(ctx, r.FieldValidation, p.unknown, invalid)
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
	if err := p.weighPatch(ctx, doc); err != nil {
		return nil, err
	}
	patched, err := p.patchJSON(doc)
	if err != nil {
		return nil, err
	}
	if err := r.weighMade(ctx, patched); err != nil { // copies and defaults may enlarge it
		return nil, err
	}
	document := r.Kind.Document != nil && t.gvk == r.Kind.GVK() // its kind is checked by the validation
	var d codec.Decoded
	if document {
		d, err = r.Kind.Coder.DecodeDocument(api.MediaJSON, patched, strict)
	} else {
		d, err = w.Codec.Decode(api.MediaJSON, patched, t.gvk, nil, strict)
	}
	if err == nil && document && d.GVK.Version == "" {
		err = runtime.NewMissingVersionErr(string(patched))
	}
	if err == nil && d.GVK != t.gvk && !document {
		err = fmt.Errorf("unable to decode %s into %T", d.GVK, t.now)
	}
	if invalid := new(codec.ValueError); errors.As(err, &invalid) {
		return nil, status.InvalidValue(t.gvk.GroupKind(), r.Name, invalid.Path, invalid.Reason)
	}
	if err != nil {
		return nil, invalidPatch(string(patched), err)
	}
	return d.Object, ReportUnknown(ctx, r.FieldValidation, append(p.unknown[:len(p.unknown):len(p.unknown)], d.Unknown...), func(err error) error {
		return invalidPatch(string(patched), err)
	})
}

// weighMade is weigh for the result of a patch.
func (r *Request) weighMade(ctx context.Context, doc []byte) error {
	size := request.WeightOfJSON(doc)
	if d := r.Kind.Document; d != nil && d.Weight != nil {
		size = max(size, d.Weight(doc, r.Patch.typ == types.ApplyCBORPatchType))
	}
	if request.Compiled(r.Kind.Group) {
		size *= request.CostlyKind
	}
	return weigh(ctx, size)
}

// reportApply reports duplicate fields in the body of an apply. Unknown fields of the type were
// rejected before.
func (r *Request) reportApply(ctx context.Context) error {
	unknown := r.Patch.unknown
	return ReportUnknown(ctx, r.FieldValidation, unknown, func(error) error {
		return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", unknown[0]))
	})
}
