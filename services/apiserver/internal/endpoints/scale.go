package endpoints

import (
	"fmt"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

var scaleGVK = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scaleOf shows an object as its scale.
func (c *call) scaleOf(obj registry.Object) *autoscalingv1.Scale {
	replicas, selector := c.sub.Scale.Status(obj)
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: c.sub.Scale.Replicas(obj)},
		Status: autoscalingv1.ScaleStatus{Replicas: replicas, Selector: selector},
	}
}

func (a *API) getScale(c *call) error {
	revision, err := parseRevision(c.r.URL.Query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	if err := a.reach(c.ctx(), revision); err != nil {
		return err
	}
	e, ok := c.store.Get(c.key())
	if !ok {
		return apierrors.NewNotFound(c.GroupResource(), c.info.Name)
	}
	obj, err := c.coder.DecodeStored(e.Stored(), e.Revision)
	if err != nil {
		return err
	}
	return a.showScale(c, c.scaleOf(obj))
}

// showScale answers with a scale, as a table where that is asked for.
func (a *API) showScale(c *call, sc *autoscalingv1.Scale) error {
	choice, ok := a.Config.Media.Accept(c.r, negotiate.Table)
	if !ok || choice.As != negotiate.Table {
		a.Object(c.w, c.r, http.StatusOK, sc, scaleGVK)
		return nil
	}
	if choice.Media == api.MediaProtobuf {
		return errNotAcceptable(a.Config.Media.Objects())
	}
	meta := metav1.ObjectMeta{}.SwaggerDoc()
	partial := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: codec.MetaVersion(choice.MetaVersion), Kind: codec.PartialKind},
		ObjectMeta: sc.ObjectMeta,
	}
	table := &metav1.Table{
		ListMeta: metav1.ListMeta{ResourceVersion: sc.ResourceVersion},
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: meta["name"]},
			{Name: "Desired", Type: "integer", Description: autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]},
			{Name: "Available", Type: "integer", Description: autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]},
			{Name: "Age", Type: "string", Description: meta["creationTimestamp"]},
		},
		Rows: []metav1.TableRow{{
			Cells: []any{
				sc.Name, int64(sc.Spec.Replicas), int64(sc.Status.Replicas),
				duration.HumanDuration(a.Now().Sub(sc.CreationTimestamp.Time)),
			},
			Object: runtime.RawExtension{Object: partial},
		}},
	}
	a.write(c.w, c.r, http.StatusOK, table, metav1.SchemeGroupVersion.WithKind(codec.TableKind), choice)
	return nil
}

func (a *API) updateScale(c *call) error {
	o, err := parseUpdateOptions(c.r)
	if err != nil {
		return err
	}
	body, media, err := a.body(c.r)
	if err != nil {
		return err
	}
	sc, err := a.decodeScale(c, body, media, o)
	if err != nil {
		return err
	}
	return a.writeScale(c, o, func(now *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		out := sc.DeepCopy()
		return out, a.scales.Update(now, out, fieldManager(c.r, o.fieldManager))
	})
}

func (a *API) patchScale(c *call) error {
	p, o, err := a.readPatch(c)
	if err != nil {
		return err
	}
	return a.writeScale(c, o, func(now *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		if p.applies() {
			obj, err := a.scales.Apply(now, p.tree, o.fieldManager, o.force != nil && *o.force)
			if err != nil {
				return nil, err
			}
			return obj.(*autoscalingv1.Scale), c.toldOfApply(p, o)
		}
		obj, err := a.patchValue(c, p, o, patchTarget{
			gvk: scaleGVK, now: now, shape: declare.New[autoscalingv1.Scale],
			json: func() ([]byte, error) {
				return a.Config.Codec.Encode(now.DeepCopy(), scaleGVK, api.MediaJSON, false)
			},
		})
		if err != nil {
			return nil, err
		}
		sc := obj.(*autoscalingv1.Scale)
		return sc, a.scales.Update(now, sc, fieldManager(c.r, o.fieldManager))
	})
}

// scaledFields moves entries of managedFields between an object and its scale:
// the object's number of replicas is the scale's (specification: "Field
// ownership (server-side apply) rules").
func (c *call) scaledFields(obj registry.Object) *managedfields.ScaleHandler {
	return managedfields.NewScaleHandler(obj.GetManagedFields(), c.GroupVersion(), managedfields.ResourcePathMappings{
		c.GroupVersion().String(): fieldpath.MakePathOrDie("spec", "replicas"),
	})
}

func (a *API) decodeScale(c *call, body []byte, media string, o *writeOptions) (*autoscalingv1.Scale, error) {
	obj, err := a.decodeAs(c, scaleGVK, body, media, o)
	if err != nil {
		return nil, err
	}
	sc, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, fmt.Errorf("%T is no scale", obj)
	}
	return sc, nil
}

// writeScale changes an object's replicas as a scale wants it.
func (a *API) writeScale(c *call, o *writeOptions, want func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error)) error {
	parent := *c
	parent.sub = nil // the object's own rules apply
	s, err := a.modify(c, func(l *live) (outcome, error) {
		fields := c.scaledFields(l.obj)
		now := c.scaleOf(l.obj)
		var err error
		if now.ManagedFields, err = fields.ToSubresource(); err != nil {
			return outcome{}, err
		}
		sc, err := want(now)
		if err != nil {
			return outcome{}, err
		}
		if sc.Spec.Replicas < 0 {
			return outcome{}, apierrors.NewInvalid(scaleGVK.GroupKind(), sc.Name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), sc.Spec.Replicas, "must be greater than or equal to 0"),
			})
		}
		obj := l.obj.DeepCopyObject().(registry.Object)
		if sc.UID != "" {
			obj.SetUID(sc.UID)
		}
		obj.SetResourceVersion(sc.ResourceVersion)
		c.sub.Scale.SetReplicas(obj, sc.Spec.Replicas)
		entries, err := fields.ToParent(sc.ManagedFields)
		if err != nil {
			return outcome{}, err
		}
		obj.SetManagedFields(entries)
		o.merged = true // the entries are those of the scale
		return a.change(&parent, l, obj, o)
	})
	if err != nil {
		return err
	}
	obj, err := decodeShown(c.coder, s)
	if err != nil {
		return err
	}
	a.Object(c.w, c.r, http.StatusOK, c.scaleOf(obj), scaleGVK)
	return nil
}

func decodeShown(k *codec.Coder, s shown) (registry.Object, error) {
	return k.DecodeStored(s.Stored, s.Revision)
}
