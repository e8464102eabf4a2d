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

// Views holds the objects of one request in several versions.
type Views struct {
	ctx         context.Context // of the request, because conversion may call a webhook
	codec       *codec.Codec
	shapes      *Shapes
	request     *admission.Request
	family      func() []*apiset.Resource
	viewsByKind map[schema.GroupVersionKind]*View
	// changed is the view with a change that is not yet written back.
	changed *View
}

// Of returns the views of a request. ctx bounds calls of conversion webhooks. shapes is shared by
// all requests. family returns the served versions of the request's resource.
func Of(ctx context.Context, c *codec.Codec, shapes *Shapes, r *admission.Request, family func() []*apiset.Resource) *Views {
	return &Views{ctx: ctx, codec: c, shapes: shapes, request: r, family: family}
}

// Object returns the current object in the version in which it was last changed, or nil.
func (v *Views) Object() runtime.Object {
	if v.changed != nil {
		return v.changed.Object
	}
	return v.request.Object
}

// View holds the objects in one version.
type View struct {
	Kind schema.GroupVersionKind
	// Object and Old are nil if the request has none. In the request's own version they are the
	// request's objects.
	Object, Old runtime.Object

	views               *Views
	objectJSON, oldJSON []byte
	objectTree, oldTree any
}

// In returns the view in a kind. It converts changes that were made in another kind. An error is a
// Status.
func (v *Views) In(kind schema.GroupVersionKind) (*View, error) {
	w, err := v.viewIn(kind)
	return w, v.refusal(err)
}

// refusal converts an error of a view to a Status for the client.
func (v *Views) refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case v.ctx.Err() != nil: // not a fault of the converter
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	return apierrors.NewInternalError(err)
}

// viewIn returns the view of the request's objects in a kind.
func (v *Views) viewIn(kind schema.GroupVersionKind) (*View, error) {
	if v.changed != nil && v.changed.Kind != kind {
		if err := v.convertBack(); err != nil {
			return nil, err
		}
	}
	if w := v.viewsByKind[kind]; w != nil {
		return w, nil
	}
	w := &View{Kind: kind, views: v}
	var err error
	if w.Object, err = v.convert(v.request.Object, v.request.Kind, kind); err != nil {
		return nil, err
	}
	if w.Old, err = v.convert(v.request.OldObject, v.request.Kind, kind); err != nil {
		return nil, err
	}
	if v.viewsByKind == nil {
		v.viewsByKind = map[schema.GroupVersionKind]*View{}
	}
	v.viewsByKind[kind] = w
	return w, nil
}

// WriteBack writes a change in a view back to the request's object. An error is a Status.
func (v *Views) WriteBack() error { return v.refusal(v.convertBack()) }

// convertBack converts the changed object to the kind of the request.
func (v *Views) convertBack() error {
	w := v.changed
	if w == nil {
		return nil
	}
	v.changed = nil
	back, err := v.convert(w.Object, w.Kind, v.request.Kind)
	if err != nil {
		return err
	}
	assign(v.request.Object, back)
	v.viewsByKind = nil
	return nil
}

// assign copies from to the object that to points to.
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

// convert converts an object through the stored form, which all versions share.
func (v *Views) convert(obj runtime.Object, from, to schema.GroupVersionKind) (runtime.Object, error) {
	if obj == nil || from == to {
		return obj, nil
	}
	source := v.resourceOf(from)
	target := v.resourceOf(to)
	o, ok := obj.(registry.Object)
	if source == nil || target == nil || !ok {
		return nil, fmt.Errorf("converting (%s) to (%s): unknown conversion", from, to)
	}
	stored, err := source.Coder.EncodeFor(v.ctx, o)
	if err != nil {
		return nil, err
	}
	out, err := target.Coder.DecodeItem(v.ctx, codec.Item{Stored: stored})
	if err != nil {
		return nil, err
	}
	out.SetResourceVersion(o.GetResourceVersion())
	return out, nil
}

// resourceOf returns the served version with a kind, or nil.
func (v *Views) resourceOf(kind schema.GroupVersionKind) *apiset.Resource {
	for _, r := range v.family() {
		if r.GVK() == kind {
			return r
		}
	}
	return nil
}

// Replace replaces the object with obj and reports whether it differs.
func (w *View) Replace(obj runtime.Object) (changed bool) {
	obj.GetObjectKind().SetGroupVersionKind(w.Object.GetObjectKind().GroupVersionKind())
	changed = !semantic.Equal(w.Object, obj)
	if !changed {
		return false
	}
	if w.Kind == w.views.request.Kind {
		assign(w.Object, obj)
	} else {
		w.Object = obj
		w.views.changed = w
	}
	w.objectJSON = nil
	w.objectTree = nil
	for kind := range w.views.viewsByKind {
		if kind != w.Kind {
			delete(w.views.viewsByKind, kind)
		}
	}
	return true
}

// Decode decodes JSON as an object of the view, whose kind it must have. It drops unknown fields.
func (w *View) Decode(doc []byte) (runtime.Object, error) {
	if _, ok := w.Object.(*unstructured.Unstructured); ok { // an unstructured object has no other type information
		kind, err := kjson.DefaultMetaFactory.Interpret(doc)
		switch {
		case err != nil:
			return nil, err
		case kind.Kind == "":
			return nil, runtime.NewMissingKindErr(string(doc))
		case *kind != w.Kind:
			return nil, &KindError{From: w.Kind, To: *kind, Object: w.Object}
		}
	}
	return w.decode(doc, false)
}

// DecodeStrict is Decode, but rejects unknown fields of a Go type.
func (w *View) DecodeStrict(doc []byte) (runtime.Object, error) { return w.decode(doc, true) }

// Read converts a tree to an object of the view. It does not retain the tree.
func (w *View) Read(tree map[string]any) (runtime.Object, error) {
	if _, ok := w.Object.(*unstructured.Unstructured); ok {
		doc, err := json.Marshal(tree)
		if err != nil {
			return nil, err
		}
		return w.decode(doc, false)
	}
	obj, ok := reflect.New(reflect.TypeOf(w.Object).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an object", w.Object)
	}
	if err := w.views.codec.CheckTree(tree, w.Kind); err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, obj); err != nil {
		return nil, err
	}
	w.setDefaults(obj)
	return obj, nil
}

// setDefaults sets defaults.
func (w *View) setDefaults(obj runtime.Object) {
	if member := w.views.resourceOf(w.Kind); member != nil && member.Default != nil {
		if o, ok := obj.(registry.Object); ok {
			member.Default(o)
		}
	}
}

// decode decodes a changed object. strict rejects unknown fields.
func (w *View) decode(doc []byte, strict bool) (runtime.Object, error) {
	if _, ok := w.Object.(*unstructured.Unstructured); ok {
		member := w.views.resourceOf(w.Kind)
		if member == nil {
			return nil, fmt.Errorf("no kind %q is served for version %q", w.Kind.Kind, w.Kind.GroupVersion())
		}
		d, err := member.Coder.DecodeBody("application/json", doc, false)
		return sameKind(d, err, w.Kind)
	}
	d, err := w.views.codec.Decode("application/json", doc, w.Kind, nil, strict)
	if err == nil && len(d.Unknown) > 0 {
		err = runtime.NewStrictDecodingError(d.Unknown)
	}
	obj, err := sameKind(d, err, w.Kind)
	if err != nil {
		return nil, err
	}
	w.setDefaults(obj)
	return obj, nil
}

// sameKind returns a decoded object, or a KindError if it has another kind than wanted.
func sameKind(d codec.Decoded, err error, want schema.GroupVersionKind) (runtime.Object, error) {
	if err == nil && d.GVK != want {
		err = &KindError{From: want, To: d.GVK, Object: d.Object}
	}
	return d.Object, err
}

// ObjectJSON returns the JSON of the object with its kind, or null.
func (w *View) ObjectJSON() (b []byte, err error) {
	if w.objectJSON == nil {
		w.objectJSON, err = w.encode(w.Object)
	}
	return w.objectJSON, err
}

// OldJSON returns the JSON of the old object with its kind, or null.
func (w *View) OldJSON() (b []byte, err error) {
	if w.oldJSON == nil {
		w.oldJSON, err = w.encode(w.Old)
	}
	return w.oldJSON, err
}

// encode returns the JSON of an object, or null.
func (w *View) encode(obj runtime.Object) ([]byte, error) {
	if obj == nil {
		return []byte("null"), nil
	}
	return Encode(w.views.codec, obj, w.Kind)
}

// Encode returns the JSON of an object with its kind, without a trailing newline.
func Encode(c *codec.Codec, obj runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	before := obj.GetObjectKind().GroupVersionKind() // Encode may change it
	b, err := c.Encode(obj, kind, "application/json", false)
	if _, ok := obj.(*unstructured.Unstructured); !ok {
		obj.GetObjectKind().SetGroupVersionKind(before)
	}
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return b, err
}

// ObjectTree returns the object as a map for expressions, or nil.
func (w *View) ObjectTree() any { return w.tree(&w.objectTree, w.Object) }

// OldTree returns the old object as a map for expressions, or nil.
func (w *View) OldTree() any { return w.tree(&w.oldTree, w.Old) }

// tree returns the tree of an object from *cached, and creates it if it is nil.
func (w *View) tree(cached *any, obj runtime.Object) any {
	if *cached == nil && obj != nil {
		*cached = lazyTree(w.views.shapes, obj, w.Kind)
	}
	return *cached
}

// Tree returns an object as a tree for expressions.
func Tree(obj runtime.Object, kind schema.GroupVersionKind) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	m["kind"] = kind.Kind
	m["apiVersion"] = kind.GroupVersion().String()
	return m, nil
}
