package endpoints

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// patch answers PATCH of an object or of a sub-resource over it.
func (a *API) patch(c *call) error {
	f, err := a.negotiate(c, false)
	if err != nil {
		return err
	}
	p, o, err := a.readPatch(c)
	if err != nil {
		return err
	}
	compute := func(l *live) (outcome, error) {
		obj, err := a.patched(c, l.obj, p, o)
		if err != nil {
			return outcome{}, err
		}
		return a.change(c, l, obj, o)
	}
	var create func() (shown, error)
	if p.applies() && c.sub == nil {
		create = func() (shown, error) { return a.createApplied(c, p, o) }
	}
	s, code, err := a.modifyOrCreate(c, compute, create)
	if err != nil {
		return err
	}
	return f.writeObject(c, code, s)
}

func (a *API) readPatch(c *call) (*patchBody, *writeOptions, error) {
	var po metav1.PatchOptions
	q := c.r.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&q, &po, nil); err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	typ := patchTypes[patchMedia(c.r)]
	o := &writeOptions{dryRun: len(po.DryRun) > 0, fieldManager: po.FieldManager, fieldValidation: po.FieldValidation, force: po.Force}
	if err := o.check("PatchOptions", metav1validation.ValidatePatchOptions(&po, typ)); err != nil {
		return nil, nil, err
	}
	raw, err := readBody(c.r)
	if err != nil {
		return nil, nil, err
	}
	p, err := decodePatch(typ, raw, o.strict() || o.warn())
	return p, o, err
}

// createApplied creates what an apply patch describes and what is not there.
func (a *API) createApplied(c *call, p *patchBody, o *writeOptions) (shown, error) {
	obj, err := a.patched(c, c.New().(registry.Object), p, o)
	if err != nil {
		return shown{}, err
	}
	if uid := obj.GetUID(); uid != "" {
		return shown{}, apierrors.NewConflict(c.GroupResource(), c.info.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := a.mayCreate(c); err != nil {
		return shown{}, err
	}
	obj.SetResourceVersion("")
	return a.createObject(c, obj, o)
}

// patched applies a patch to the live object.
func (a *API) patched(c *call, old registry.Object, p *patchBody, o *writeOptions) (registry.Object, error) {
	obj, err := a.patchedObject(c, old, p, o)
	if err != nil {
		return nil, err
	}
	if err := c.namespaceFits(obj); err != nil {
		return nil, err
	}
	if c.Namespaced {
		obj.SetNamespace(c.info.Namespace)
	}
	return obj, c.nameFits(obj)
}

func (a *API) patchedObject(c *call, old registry.Object, p *patchBody, o *writeOptions) (registry.Object, error) {
	if p.applies() {
		o.merged = true
		obj, err := c.manager().Apply(old, p.tree, o.fieldManager, o.force != nil && *o.force)
		if err != nil {
			return nil, err
		}
		return obj, c.toldOfApply(p, o)
	}
	if p.typ == types.MergePatchType && len(p.unknown) == 0 {
		if obj := old.DeepCopyObject().(registry.Object); mergeInto(obj, p.raw) {
			return obj, nil
		}
	}
	obj, err := a.patchValue(c, p, o, patchTarget{
		gvk: c.GVK(), now: old, shape: c.New,
		json: func() ([]byte, error) { return c.coder.EncodeObject(old) },
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
func (a *API) patchValue(c *call, p *patchBody, o *writeOptions, t patchTarget) (runtime.Object, error) {
	strict := o.strict() || o.warn()
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
			err = c.told(append(p.unknown[:len(p.unknown):len(p.unknown)], unknown.Errors()...), o, func(err error) error { return invalidPatch(shown, err) })
		default:
			err = c.told(p.unknown, o, func(err error) error { return invalidPatch(shown, err) })
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
	d, err := a.Config.Codec.Decode(api.MediaJSON, patched, t.gvk, nil, strict)
	if err == nil && d.GVK != t.gvk {
		err = fmt.Errorf("unable to decode %s into %T", d.GVK, t.now)
	}
	if err != nil {
		return nil, invalidPatch(string(patched), err)
	}
	return d.Object, c.told(append(p.unknown[:len(p.unknown):len(p.unknown)], d.Unknown...), o, func(err error) error {
		return invalidPatch(string(patched), err)
	})
}

// toldOfApply is told for the body of an apply, whose unknown fields were refused
// before.
func (c *call) toldOfApply(p *patchBody, o *writeOptions) error {
	return c.told(p.unknown, o, func(error) error {
		return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", p.unknown[0]))
	})
}

// told refuses unknown and duplicate fields, or warns of them, or does nothing
// (specification: "Field validation").
func (c *call) told(unknown []error, o *writeOptions, refuse func(error) error) error {
	if len(unknown) == 0 {
		return nil
	}
	if o.strict() {
		return refuse(runtime.NewStrictDecodingError(unknown))
	}
	if o.warn() {
		for _, e := range unknown {
			for _, text := range fieldWarnings(e) {
				request.Warn(c.ctx(), text)
			}
		}
	}
	return nil
}
