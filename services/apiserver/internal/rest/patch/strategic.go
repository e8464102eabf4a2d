package patch

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// strategicPatch is a strategic merge patch.
type strategicPatch struct {
	tree    map[string]any
	unknown []error
}

// decodeStrategic decodes a strategic merge patch. With strict, it records duplicate fields.
func decodeStrategic(raw []byte, strict bool) (strategy, error) {
	if err := doccheck.CheckJSON(raw); err != nil {
		return nil, undecodableError(err)
	}
	decoded := &strategicPatch{}
	var err error
	if strict {
		decoded.unknown, err = kjson.UnmarshalStrict(raw, &decoded.tree)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &decoded.tree)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if decoded.tree == nil { // null changes nothing
		decoded.tree = map[string]any{}
	}
	return decoded, nil
}

// apply merges the fields of the object that the patch names. If it names only fields of the Go
// type, no other field is converted.
func (p *strategicPatch) apply(ctx context.Context, target *Target) (registry.Object, error) {
	if err := target.checkError(target.Codec.Checks.CheckTree(p.tree, target.GVK)); err != nil {
		return nil, err
	}

	// 1. Merge the named fields, or all fields if the patch has others.
	out := target.New()
	namedFields, isPartial := p.namedFields(out)
	var current runtime.Object = target.Object
	if isPartial {
		current = target.New()
		copyFields(current, target.Object, namedFields)
	}
	patch := runtime.DeepCopyJSON(p.tree) // the merge changes it
	tree, err := p.mergeInto(ctx, target, current, out, patch)
	if err != nil {
		return nil, err
	}

	// 2. Convert the result to the Go type. As in Kubernetes, errors show the patch without the nulls
	// and directives that the merge removed.
	invalid := func(err error) error { return invalidResult(fmt.Sprintf("%+v", patch), err) }
	var unknown []error
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, out, target.findsUnknown())
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		unknown = strict.Errors()
	} else if err != nil {
		return nil, invalid(err)
	}
	err = target.reportUnknown(ctx, p.unknown, unknown, invalid)

	// 3. Add the other fields.
	if isPartial {
		whole := target.Object.DeepCopyObject()
		copyFields(whole, out, namedFields)
		out = whole
	}
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return out.(registry.Object), err
}

// costPerPair is the cost in bytes (see request.Estimate) of comparing two list elements.
const costPerPair = 12

// mergeInto returns the tree of an object after the merge of patch, a copy of the tree of p that
// the merge changes. shape is a value of the object's Go type.
func (p *strategicPatch) mergeInto(
	ctx context.Context,
	target *Target,
	obj, shape runtime.Object,
	patch map[string]any,
) (out map[string]any, err error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	pairs, err := checkStrategic(p.tree, tree, shape)
	if err != nil {
		return nil, err
	}
	if err := target.Estimate(ctx, costPerPair*pairs); err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil { // not expected after the check above
			out = nil
			err = status.Unprocessable(errors.New("the patch cannot be applied"))
		}
	}()
	return mergeTree(tree, patch, shape)
}

// mergeTree merges a patch into the tree of an object. It may change both.
func mergeTree(tree, patch map[string]any, shape runtime.Object) (map[string]any, error) {
	out, err := strategicpatch.StrategicMergeMapPatch(tree, patch, shape)
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return nil, apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return nil, status.Unprocessable(err)
	}
	// The object itself is valid.
	return nil, status.Unmergeable(err)
}

// namedFields returns the fields of an object that the patch names. ok reports whether they cover
// the whole patch; then no other field of the object needs conversion.
func (p *strategicPatch) namedFields(obj runtime.Object) (fields [][]int, ok bool) {
	if _, untyped := obj.(runtime.Unstructured); untyped {
		return nil, false
	}
	known := jsonFields(reflect.TypeOf(obj).Elem())
	for name := range p.tree {
		index, ok := known[name]
		if !ok { // a directive or an unknown field
			return nil, false
		}
		fields = append(fields, index)
	}
	return fields, true
}

// copyFields copies the given fields from one object to another.
func copyFields(to, from runtime.Object, fields [][]int) {
	target := reflect.ValueOf(to).Elem()
	source := reflect.ValueOf(from).Elem()
	for _, index := range fields {
		target.FieldByIndex(index).Set(source.FieldByIndex(index))
	}
}
