package writes

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/status"
)

// updateScale updates an object through its scale subresource.
func (w *Writer) updateScale(ctx context.Context, req *Request) (Result, error) {
	sent, ok := req.Object.(*autoscalingv1.Scale)
	if !ok {
		return Result{}, fmt.Errorf("%T is not a Scale", req.Object)
	}
	if err := req.checkNamespace(sent); err != nil {
		return Result{}, err
	}
	if err := req.checkName(sent); err != nil {
		return Result{}, err
	}
	removeDuplicateOwners(ctx, sent, duplicateOwners)
	return w.writeScale(ctx, req, func(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		scale := sent.DeepCopy()
		return scale, w.scaleOwnership.Update(ctx, live, scale, req.Manager)
	})
}

// patchScale patches an object through its scale subresource.
func (w *Writer) patchScale(ctx context.Context, r *Request) (Result, error) {
	return w.writeScale(ctx, r, func(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		obj, err := r.Patch.Apply(ctx, w.scaleTarget(r, live))
		if err != nil {
			return nil, err
		}
		scale := obj.(*autoscalingv1.Scale)
		if r.Patch.ServerSideApply {
			return scale, nil
		}
		return scale, w.scaleOwnership.Update(ctx, live, scale, r.Manager)
	})
}

// scaleTarget returns the live scale as the target of the patch.
func (w *Writer) scaleTarget(req *Request, live *autoscalingv1.Scale) *patch.Target {
	return &patch.Target{
		Object:          live,
		GVK:             scaleGVK,
		Name:            req.Name,
		FieldValidation: req.FieldValidation,
		Codec:           w.Codec,
		New:             declare.New[autoscalingv1.Scale],
		Encode:          func() ([]byte, error) { return w.Codec.Encode(live.DeepCopy(), scaleGVK, api.MediaJSON, false) },
		Decode: func(doc []byte, strict bool) (codec.Decoded, error) {
			d, err := w.Codec.Decode(api.MediaJSON, doc, scaleGVK, nil, strict)
			if err == nil && d.GVK != scaleGVK {
				err = fmt.Errorf("unable to decode %s into %T", d.GVK, live)
			}
			return d, err
		},
		Merge: func(ctx context.Context, configuration map[string]any) (registry.Object, error) {
			return w.scaleOwnership.Apply(ctx, live, configuration, req.Manager, req.Force)
		},
		Cost:     req.patchedCost,
		Estimate: request.Estimate,
	}
}

// newScaleHandler returns a handler that moves managedFields entries between obj and its scale: the replicas field of the object is that of the scale (specification: "Field ownership
// (server-side apply) rules").
func (r *Request) newScaleHandler(obj registry.Object) *managedfields.ScaleHandler {
	gv := r.Resource.GroupVersion()
	paths := managedfields.ResourcePathMappings{}
	for version, names := range r.Sub.Scale.Versions {
		paths[version] = fieldPath(names)
	}
	paths[gv.String()] = fieldPath(r.Sub.Scale.FieldPath())
	return managedfields.NewScaleHandler(obj.GetManagedFields(), gv, paths)
}

// fieldPath returns the path of field names. It is nil for no names.
func fieldPath(names []string) (p fieldpath.Path) {
	for _, name := range names {
		p = append(p, fieldpath.PathElement{FieldName: &name})
	}
	return p
}

// admitScale runs mutating admission on the scale that the client wants. It returns the admission
// request for validating admission, which sees the stored metadata and status.
func (w *Writer) admitScale(ctx context.Context, r *Request, desired, live *autoscalingv1.Scale) (*admission.Request, error) {
	if err := w.Admission.Mutate(ctx, r.Admission(admission.Update, desired, live)); err != nil {
		return nil, err
	}
	removeDuplicateOwners(ctx, desired, duplicateOwnersAdmitted)
	old := live.DeepCopy()
	old.ManagedFields = nil
	validated := old.DeepCopy()
	validated.Spec = desired.Spec
	return r.Admission(admission.Update, validated, old), nil
}

// validateScale validates a scale, unless the rules of its object suffice.
func (r *Request) validateScale(scale *autoscalingv1.Scale) field.ErrorList {
	if r.Sub.Scale.ValidatedWithObject {
		return nil
	}
	errs := meta.ValidateObject(scale, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if n := scale.Spec.Replicas; n < 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "replicas"), n, "must be greater than or equal to 0"))
	}
	return errs
}

// writeScale copies the replicas of a scale to its object. compute returns the scale that the client
// wants, given the live one.
func (w *Writer) writeScale(
	ctx context.Context,
	req *Request,
	compute func(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error),
) (Result, error) {
	// parent is the same request for the object itself. With it, the change gets the rules and the
	// admission of the object, not those of the scale.
	parent := req.ForObject(req.Resource, nil, req.Namespace, req.Name)
	result, err := w.modifyLive(ctx, req, admission.Update, func(liveParent *liveObject) (outcome, error) {
		// 1. Compute the desired scale.
		ownership := req.newScaleHandler(liveParent.obj)
		live := req.Sub.Scale.FromObject(liveParent.obj)
		var err error
		if live.ManagedFields, err = ownership.ToSubresource(); err != nil {
			return outcome{}, err
		}
		desired, err := compute(live)
		if err == nil {
			err = req.checkIdentity(desired)
		}
		if err != nil {
			return outcome{}, err
		}

		// 2. Admit and validate it. As in Kubernetes, the uid of an update is checked before, the uid of
		// a patch afterwards.
		if req.Patch == nil && desired.UID != "" && desired.UID != liveParent.obj.GetUID() {
			return outcome{}, parent.uidConflict(desired.UID, liveParent.obj.GetUID())
		}
		if parent.admission, err = w.admitScale(ctx, req, desired, live); err != nil {
			return outcome{}, err
		}
		if errs := req.validateScale(desired); len(errs) > 0 {
			return outcome{}, status.Invalid(scaleGVK.GroupKind(), desired.Name, errs)
		}
		if req.Patch != nil && desired.UID != "" && desired.UID != liveParent.obj.GetUID() {
			resource := req.Resource.GroupResource()
			resource.Resource += "/" + req.Sub.Name
			return outcome{}, apierrors.NewConflict(resource, req.Name, errOtherUID(desired.UID, liveParent.obj.GetUID()))
		}

		// 3. Change the object accordingly.
		obj := liveParent.obj.DeepCopyObject().(registry.Object)
		if desired.UID != "" {
			obj.SetUID(desired.UID)
		}
		obj.SetResourceVersion(desired.ResourceVersion)
		if desired.ResourceVersion == "" && req.Sub.Scale.AllowUnconditionalUpdate {
			obj.SetResourceVersion(liveParent.obj.GetResourceVersion())
		}
		req.Sub.Scale.SetReplicas(obj, desired.Spec.Replicas)
		entries, err := ownership.ToParent(desired.ManagedFields)
		if err != nil {
			return outcome{}, err
		}
		obj.SetManagedFields(entries)
		ownershipRecorded := true // by the entries of the scale
		return w.computeChange(ctx, parent, liveParent, obj, ownershipRecorded)
	})
	if err != nil {
		return Result{}, err
	}
	obj, err := req.Resource.Coder.DecodeItem(ctx, result.Item)
	if err != nil {
		return Result{}, err
	}
	return Result{Object: req.Sub.Scale.FromObject(obj)}, nil
}
