package writes

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/patch"
)

// Update replaces the stored object, or the part of it that a subresource may change, with
// Request.Object. For some kinds it creates a missing object.
func (w *Writer) Update(ctx context.Context, req *Request) (Result, error) {
	if req.Sub != nil && req.Sub.Scale != nil {
		return w.updateScale(ctx, req)
	}
	if err := req.checkNamespace(req.Object); err != nil {
		return Result{}, err
	}
	if err := req.checkName(req.Object); err != nil {
		return Result{}, err
	}
	removeDuplicateOwners(ctx, req.Object, duplicateOwners) // duplicates added by a patch are found after mutating admission
	desired := func() registry.Object {
		obj := req.Object.DeepCopyObject().(registry.Object)
		obj.SetNamespace(req.objectNamespace())
		return obj
	}
	compute := func(live *liveObject) (outcome, error) {
		return w.computeChange(ctx, req, live, desired(), false)
	}
	var create func() (Result, error)
	if req.Resource.Update.AllowCreateOnUpdate && req.Sub == nil {
		create = func() (Result, error) { return w.createUpdated(ctx, req, desired()) }
	}
	return w.modifyOrCreate(ctx, req, compute, create)
}

// UpdateStored updates the object by applying change to a copy of the live object. A retry applies
// it to the newer state. An error of change cancels the write.
func (w *Writer) UpdateStored(ctx context.Context, r *Request, change func(registry.Object) error) (Result, error) {
	return w.modifyLive(ctx, r, admission.Update, func(live *liveObject) (outcome, error) {
		obj := live.obj.DeepCopyObject().(registry.Object)
		if err := change(obj); err != nil {
			return outcome{}, err
		}
		return w.computeChange(ctx, r, live, obj, false)
	})
}

// UpdateUnvalidated is UpdateStored without admission and without the rules of the kind. It is for
// operations that were admitted before and that ensure the rules themselves.
func (w *Writer) UpdateUnvalidated(ctx context.Context, r *Request, change func(registry.Object) error) (Result, error) {
	return w.modifyLive(ctx, r, "", func(live *liveObject) (outcome, error) {
		obj := live.obj.DeepCopyObject().(registry.Object)
		if err := change(obj); err != nil {
			return outcome{}, err
		}
		value, err := r.Resource.Coder.EncodeFor(ctx, obj)
		if err != nil {
			return outcome{}, fmt.Errorf("encode: %w", err)
		}
		return outcome{value: value, obj: obj, unchanged: r.DryRun}, nil
	})
}

// createUpdated creates an object because an update did not find it.
func (w *Writer) createUpdated(ctx context.Context, r *Request, obj registry.Object) (Result, error) {
	if err := w.authorizeCreate(ctx, r); err != nil {
		return Result{}, err
	}
	return w.createObject(ctx, r, obj, creation{byUpdate: true})
}

// Patch applies Request.Patch to the stored object, or to the part of it that a subresource may
// change. A server-side apply creates a missing object.
func (w *Writer) Patch(ctx context.Context, req *Request) (Result, error) {
	if req.Sub != nil && req.Sub.Scale != nil {
		return w.patchScale(ctx, req)
	}
	compute := func(live *liveObject) (outcome, error) {
		tracing.Event(ctx, eventPatch)
		obj, err := req.applyPatch(ctx, w.patchTarget(req, live.obj, func() bool { return live.isStoredInRequestVersion(req) }))
		if err == nil {
			err = req.checkIdentity(obj)
		}
		if err != nil {
			return outcome{}, err
		}
		tracing.Event(ctx, eventAdmit)
		return w.computeChange(ctx, req, live, obj, req.Patch.ServerSideApply)
	}
	var create func() (Result, error)
	if req.Patch.ServerSideApply && req.Sub == nil {
		create = func() (Result, error) { return w.createApplied(ctx, req) }
	}
	res, err := w.modifyOrCreate(ctx, req, compute, create)
	if err == nil {
		tracing.Event(ctx, eventStored)
	}
	return res, err
}

// applyPatch applies the patch of the request.
func (r *Request) applyPatch(ctx context.Context, t *patch.Target) (registry.Object, error) {
	obj, err := r.Patch.Apply(ctx, t)
	if err != nil {
		return nil, err
	}
	if err := r.Resource.Coder.CheckConvertible(obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return obj, nil
}

// checkConfiguration returns an error if the configuration of an apply cannot be converted to the
// stored version. It ignores fields of a wrong type: the merge reports them.
func (r *Request) checkConfiguration(configuration map[string]any) error {
	if r.Resource.Convertible == nil {
		return nil
	}
	obj := r.Resource.New()
	if runtime.DefaultUnstructuredConverter.FromUnstructured(configuration, obj) != nil {
		return nil
	}
	if err := r.Resource.Coder.CheckConvertible(obj); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// createApplied creates an object because an apply did not find it.
func (w *Writer) createApplied(ctx context.Context, req *Request) (Result, error) {
	obj, err := req.applyPatch(ctx, w.patchTarget(req, req.Resource.New().(registry.Object), nil))
	if err != nil {
		return Result{}, err
	}
	// A patch with a uid is for an existing object. It may lack the name.
	if uid := obj.GetUID(); uid != "" {
		return Result{}, apierrors.NewConflict(req.Resource.GroupResource(), req.Name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := req.checkIdentity(obj); err != nil {
		return Result{}, err
	}
	if err := w.authorizeCreate(ctx, req); err != nil {
		return Result{}, err
	}
	return w.createObject(ctx, req, obj, creation{ownershipRecorded: true, byUpdate: true})
}

// patchTarget returns an object as the target of the patch. defaulted reports whether a document
// has the defaults of its version.
func (w *Writer) patchTarget(req *Request, obj registry.Object, defaulted func() bool) *patch.Target {
	return &patch.Target{
		Object:          obj,
		GVK:             req.Resource.GVK(),
		Name:            req.Name,
		FieldValidation: req.FieldValidation,
		Codec:           w.Codec,
		New:             req.Resource.New,
		Defaulted:       defaulted,
		Encode:          func() ([]byte, error) { return req.Resource.Coder.EncodeObject(obj) },
		Decode:          req.Resource.Coder.DecodePatched,
		Convertible:     req.Resource.Coder.CheckConvertible,
		Merge: func(ctx context.Context, configuration map[string]any) (registry.Object, error) {
			if err := req.checkConfiguration(configuration); err != nil {
				return nil, err
			}
			return req.fieldManager().Apply(ctx, obj, configuration, req.Manager, req.Force)
		},
		Cost:     req.patchedCost,
		Estimate: request.Estimate,
	}
}

// isStoredInRequestVersion reports whether a document is stored in the version of the request. Then
// it already has the defaults of that version. A converted document gets them when it is decoded.
func (live *liveObject) isStoredInRequestVersion(r *Request) bool {
	version := ""
	_ = jsontext.Members(live.stored.Value, func(name, value []byte) bool {
		if string(name) != "apiVersion" {
			return true
		}
		version, _ = jsontext.Text(value)
		return false
	})
	return version == r.Resource.GroupVersion().String()
}
