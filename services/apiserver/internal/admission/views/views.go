package views

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// Views holds the objects of one request in several versions. At most one view contains a change
// that the request's own object does not have yet. The change is converted when another view is
// needed, or by WriteBack.
type Views struct {
	ctx         context.Context // of the request, because conversion may call a webhook
	codec       *codec.Codec
	encodings   *StructEncodings
	request     *admission.Request
	family      func() []*apiset.Resource
	viewsByKind map[schema.GroupVersionKind]*View
	// changed is the view with the change that is not written back yet, or nil.
	changed *View
}

// NewViews returns the views of a request. ctx bounds calls of conversion webhooks. encodings is
// shared by all requests. family returns the served versions of the request's resource.
func NewViews(
	ctx context.Context,
	objectCodec *codec.Codec,
	encodings *StructEncodings,
	r *admission.Request,
	family func() []*apiset.Resource,
) *Views {
	return &Views{ctx: ctx, codec: objectCodec, encodings: encodings, request: r, family: family}
}

// Object returns the object with all changes so far, in the version in which it was last changed.
// It returns nil if the request has no object.
func (v *Views) Object() runtime.Object {
	if v.changed != nil {
		return v.changed.Object
	}
	return v.request.Object
}

// View holds the object and the old object of a request in one version.
type View struct {
	Kind schema.GroupVersionKind
	// Object and Old are nil if the request has no such object. In the view of the request's own
	// version, they are the request's objects themselves.
	Object, Old runtime.Object

	views               *Views
	objectJSON, oldJSON []byte
	objectTree, oldTree any
}

// ForKind returns the view of the objects as the given kind, which must be a version of the
// request's resource.
// It includes changes that were made in other views. An error is a Status.
func (v *Views) ForKind(kind schema.GroupVersionKind) (*View, error) {
	view, err := v.viewIn(kind)
	return view, v.statusError(err)
}

// statusError converts an error of a conversion to a Status for the client.
func (v *Views) statusError(err error) error {
	switch {
	case err == nil:
		return nil
	case v.ctx.Err() != nil: // the request has timed out or was canceled
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	return apierrors.NewInternalError(err)
}

// viewIn is ForKind with errors that are not Statuses.
func (v *Views) viewIn(kind schema.GroupVersionKind) (*View, error) {
	if v.changed != nil && v.changed.Kind != kind {
		if err := v.convertBack(); err != nil {
			return nil, err
		}
	}
	if view := v.viewsByKind[kind]; view != nil {
		return view, nil
	}
	view := &View{Kind: kind, views: v}
	var err error
	if view.Object, err = v.convert(v.request.Object, v.request.Kind, kind); err != nil {
		return nil, err
	}
	if view.Old, err = v.convert(v.request.OldObject, v.request.Kind, kind); err != nil {
		return nil, err
	}
	if v.viewsByKind == nil {
		v.viewsByKind = map[schema.GroupVersionKind]*View{}
	}
	v.viewsByKind[kind] = view
	return view, nil
}

// WriteBack converts a change in a view to the request's version and writes it to the request's
// object. An error is a Status.
func (v *Views) WriteBack() error { return v.statusError(v.convertBack()) }

// convertBack is WriteBack with errors that are not Statuses. It discards all views, because they
// lack the change.
func (v *Views) convertBack() error {
	view := v.changed
	if view == nil {
		return nil
	}
	v.changed = nil
	converted, err := v.convert(view.Object, view.Kind, v.request.Kind)
	if err != nil {
		return err
	}
	assign(v.request.Object, converted)
	v.viewsByKind = nil
	return nil
}

// assign replaces the contents of to with the contents of from. Callers that hold to see the
// change.
func assign(to, from runtime.Object) {
	if to == from {
		return
	}
	if u, ok := to.(*unstructured.Unstructured); ok {
		if f, ok := from.(*unstructured.Unstructured); ok {
			u.Object = f.Object
			return
		}
	}
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
}

// convert returns an object in another version of its resource. It encodes the object in the
// storage version and decodes that in the version to.
func (v *Views) convert(obj runtime.Object, from, to schema.GroupVersionKind) (runtime.Object, error) {
	if obj == nil || from == to {
		return obj, nil
	}
	source := v.resourceOf(from)
	target := v.resourceOf(to)
	object, ok := obj.(registry.Object)
	if source == nil || target == nil || !ok {
		return nil, fmt.Errorf("converting (%s) to (%s): unknown conversion", from, to)
	}
	stored, err := source.Coder.EncodeFor(v.ctx, object)
	if err != nil {
		return nil, err
	}
	out, err := target.Coder.DecodeItem(v.ctx, codec.Item{Stored: stored})
	if err != nil {
		return nil, err
	}
	out.SetResourceVersion(object.GetResourceVersion())
	return out, nil
}

// resourceOf returns the served version of the request's resource that has a kind, or nil.
func (v *Views) resourceOf(kind schema.GroupVersionKind) *apiset.Resource {
	for _, r := range v.family() {
		if r.GVK() == kind {
			return r
		}
	}
	return nil
}

// Replace replaces the object of the view with obj, and discards all other views. If the two are
// equal, Replace does nothing and returns false. The object of the view must not be nil.
func (v *View) Replace(obj runtime.Object) (changed bool) {
	obj.GetObjectKind().SetGroupVersionKind(v.Object.GetObjectKind().GroupVersionKind())
	changed = !semantic.Equal(v.Object, obj)
	if !changed {
		return false
	}
	if v.Kind == v.views.request.Kind {
		assign(v.Object, obj)
	} else {
		v.Object = obj
		v.views.changed = v
	}
	v.objectJSON = nil
	v.objectTree = nil
	for kind := range v.views.viewsByKind {
		if kind != v.Kind {
			delete(v.views.viewsByKind, kind)
		}
	}
	return true
}

// Decode decodes JSON as an object of the view's kind. It drops unknown fields. If the JSON has
// another kind, it returns a KindError.
func (v *View) Decode(doc []byte) (runtime.Object, error) {
	if _, ok := v.Object.(*unstructured.Unstructured); ok { // no Go type fixes the kind
		kind, err := kjson.DefaultMetaFactory.Interpret(doc)
		switch {
		case err != nil:
			return nil, err
		case kind.Kind == "":
			return nil, runtime.NewMissingKindErr(string(doc))
		case *kind != v.Kind:
			return nil, &KindError{From: v.Kind, To: *kind, Object: v.Object}
		}
	}
	return v.decode(doc, false)
}

// DecodeStrict is Decode, but returns an error for fields that the Go type of the object lacks.
func (v *View) DecodeStrict(doc []byte) (runtime.Object, error) { return v.decode(doc, true) }

// Read converts a tree to an object of the view's kind. It does not retain the tree.
func (v *View) Read(tree map[string]any) (runtime.Object, error) {
	if _, ok := v.Object.(*unstructured.Unstructured); ok {
		doc, err := json.Marshal(tree)
		if err != nil {
			return nil, err
		}
		return v.decode(doc, false)
	}
	obj, ok := reflect.New(reflect.TypeOf(v.Object).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an object", v.Object)
	}
	if err := v.views.codec.Checks.CheckTree(tree, v.Kind); err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, obj); err != nil {
		return nil, err
	}
	v.setDefaults(obj)
	return obj, nil
}

// setDefaults sets the defaults of the kind in an object.
func (v *View) setDefaults(obj runtime.Object) {
	if resource := v.views.resourceOf(v.Kind); resource != nil && resource.Default != nil {
		if o, ok := obj.(registry.Object); ok {
			resource.Default(o)
		}
	}
}

// decode decodes JSON as an object of the view's kind and sets defaults. strict makes unknown
// fields of a Go type an error.
func (v *View) decode(doc []byte, strict bool) (runtime.Object, error) {
	if _, ok := v.Object.(*unstructured.Unstructured); ok {
		resource := v.views.resourceOf(v.Kind)
		if resource == nil {
			return nil, fmt.Errorf("no kind %q is served for version %q", v.Kind.Kind, v.Kind.GroupVersion())
		}
		decoded, err := resource.Coder.DecodeBody("application/json", doc, false)
		return requireKind(decoded, err, v.Kind)
	}
	decoded, err := v.views.codec.Decode("application/json", doc, v.Kind, nil, strict)
	if err == nil && len(decoded.Unknown) > 0 {
		err = runtime.NewStrictDecodingError(decoded.Unknown)
	}
	obj, err := requireKind(decoded, err, v.Kind)
	if err != nil {
		return nil, err
	}
	v.setDefaults(obj)
	return obj, nil
}

// requireKind returns a decoded object. It returns a KindError if the object does not have the
// expected kind, and err if decoding has failed.
func requireKind(decoded codec.Decoded, err error, expected schema.GroupVersionKind) (runtime.Object, error) {
	if err == nil && decoded.GVK != expected {
		err = &KindError{From: expected, To: decoded.GVK, Object: decoded.Object}
	}
	return decoded.Object, err
}

// ObjectJSON returns the JSON of the object with its kind, or "null" if there is no object.
func (v *View) ObjectJSON() (b []byte, err error) {
	if v.objectJSON == nil {
		v.objectJSON, err = v.encode(v.Object)
	}
	return v.objectJSON, err
}

// OldJSON returns the JSON of the old object with its kind, or "null" if there is no old object.
func (v *View) OldJSON() (b []byte, err error) {
	if v.oldJSON == nil {
		v.oldJSON, err = v.encode(v.Old)
	}
	return v.oldJSON, err
}

// encode returns the JSON of an object, or "null" if obj is nil.
func (v *View) encode(obj runtime.Object) ([]byte, error) {
	if obj == nil {
		return []byte("null"), nil
	}
	return Encode(v.views.codec, obj, v.Kind)
}

// Encode returns the JSON of an object with its kind, without a trailing newline.
func Encode(objectCodec *codec.Codec, obj runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	before := obj.GetObjectKind().GroupVersionKind() // Encode may change it
	encoded, err := objectCodec.Encode(obj, kind, "application/json", false)
	if _, ok := obj.(*unstructured.Unstructured); !ok {
		obj.GetObjectKind().SetGroupVersionKind(before)
	}
	for len(encoded) > 0 && encoded[len(encoded)-1] == '\n' {
		encoded = encoded[:len(encoded)-1]
	}
	return encoded, err
}

// ObjectTree returns the object as a map for expressions, or nil.
func (v *View) ObjectTree() any { return v.tree(&v.objectTree, v.Object) }

// OldTree returns the old object as a map for expressions, or nil.
func (v *View) OldTree() any { return v.tree(&v.oldTree, v.Old) }

// tree returns the tree of an object. It caches the tree in *cached.
func (v *View) tree(cached *any, obj runtime.Object) any {
	if *cached == nil && obj != nil {
		*cached = lazyTree(v.views.encodings, obj, v.Kind)
	}
	return *cached
}

// Tree returns an object as a map for expressions, with its kind. It converts the whole object.
// Callers must not change the result, which may share memory with obj.
func Tree(obj runtime.Object, kind schema.GroupVersionKind) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	tree["kind"] = kind.Kind
	tree["apiVersion"] = kind.GroupVersion().String()
	return tree, nil
}
