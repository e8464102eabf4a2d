package endpoints

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// delete answers DELETE of an object.
func (a *API) delete(c *call) error {
	f, err := a.negotiate(c, false)
	if err != nil {
		return err
	}
	o, err := a.deleteOptions(c)
	if err != nil {
		return err
	}
	c.warnOfOrphans(o)
	res, err := a.deleteObject(c, o)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if !res.removed && o.OrphanDependents != nil && !*o.OrphanDependents { //nolint:staticcheck // clients still send it
		code = http.StatusAccepted
	}
	if res.removed && !c.ReturnDeleted {
		a.Success(c.w, c.r, code, &metav1.StatusDetails{Name: c.info.Name, Group: c.Group, Kind: c.Resource, UID: res.obj.GetUID()})
		return nil
	}
	return f.writeObject(c, code, res.shown)
}

// warnOfOrphans tells clients that asked for nothing that dependents stay.
func (c *call) warnOfOrphans(o *metav1.DeleteOptions) {
	if c.OrphanWarning != "" && o.OrphanDependents == nil && o.PropagationPolicy == nil { //nolint:staticcheck // clients still send it
		request.Warn(c.ctx(), c.OrphanWarning)
	}
}

// deleteOptions reads the options from the body or, without one, the query.
func (a *API) deleteOptions(c *call) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	body, media, err := a.body(c.r)
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		d, err := a.Config.Codec.Decode(media, body, schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}, o, false)
		if err != nil {
			return nil, undecodable(err, d.GVK, "DeleteOptions", body)
		}
		if d.Object != o {
			return nil, apierrors.NewBadRequest("decoded object cannot be converted to DeleteOptions")
		}
	} else {
		q := c.r.URL.Query()
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&q, o, nil); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if errs := metav1validation.ValidateDeleteOptions(o); len(errs) > 0 {
		return nil, apierrors.NewInvalid(metaKind("DeleteOptions"), "", errs)
	}
	if o.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *o.IgnoreStoreReadErrorWithClusterBreakingPotential {
		return nil, apierrors.NewInvalid(metaKind("DeleteOptions"), "", nil)
	}
	return o, nil
}

// deletion is how a deletion ended.
type deletion struct {
	shown
	obj     registry.Object
	removed bool
}

// deleteObject deletes an object, or begins to (specification: "Object
// deletion").
func (a *API) deleteObject(c *call, o *metav1.DeleteOptions) (*deletion, error) {
	res := &deletion{}
	dryRun := len(o.DryRun) > 0
	attrs := a.attributes(c, admission.Delete, nil, nil, &writeOptions{dryRun: dryRun})
	if err := a.Admission.Mutate(c.ctx(), attrs); err != nil {
		return nil, err
	}
	s, err := a.modify(c, func(l *live) (outcome, error) {
		*res = deletion{obj: l.obj.DeepCopyObject().(registry.Object)}
		if err := c.preconditions(o, l.obj); err != nil {
			return outcome{}, err
		}
		attrs.OldObject = l.obj
		if err := a.Admission.Validate(c.ctx(), attrs); err != nil {
			return outcome{}, err
		}
		stay, changed := c.beginDeletion(res.obj, o, a.Now())
		res.removed = !stay
		if stay && !changed {
			return outcome{keep: true}, nil
		}
		value, err := c.coder.EncodeStored(res.obj)
		if err != nil {
			return outcome{}, fmt.Errorf("encode: %w", err)
		}
		return outcome{value: value, remove: !stay, keep: dryRun}, nil
	})
	if err != nil {
		return nil, err
	}
	res.shown = s
	if res.removed {
		// What was deleted is shown as it last was.
		value, err := c.coder.EncodeStored(res.obj)
		if err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
		rev, _ := parseRevision(res.obj.GetResourceVersion())
		res.shown = shown{Item: codec.Item{Stored: value, Revision: rev}}
	}
	return res, nil
}

// preconditions compares what the client says of the object with what it is.
func (c *call) preconditions(o *metav1.DeleteOptions, obj registry.Object) error {
	p := o.Preconditions
	if p == nil {
		return nil
	}
	kind := schema.GroupResource{Group: c.Group, Resource: c.Kind.Kind}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(kind, c.info.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(kind, c.info.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// beginDeletion marks an object that must stay for now; changed tells whether
// the mark differs from what it had.
func (c *call) beginDeletion(obj registry.Object, o *metav1.DeleteOptions, now time.Time) (stay, changed bool) {
	finalizers := c.deletionFinalizers(obj, o)
	if !slices.Equal(finalizers, obj.GetFinalizers()) {
		obj.SetFinalizers(finalizers)
		changed = true
	}
	held := c.HeldBy != nil && c.HeldBy(obj)
	grace := int64(0)
	if c.GracePeriod != nil {
		grace = c.GracePeriod(obj, o.GracePeriodSeconds)
	}
	pending := obj.GetDeletionTimestamp() != nil
	switch {
	case len(finalizers) > 0 || held:
	case grace > 0:
	default:
		if c.GracePeriod != nil && !pending {
			// What is deleted gracefully is shown with its end, also when that is now.
			c.mark(obj, 0, false, now)
		}
		return false, true
	}
	if pending {
		return c.shorten(obj, o, grace, held, changed)
	}
	c.mark(obj, grace, held, now)
	return true, true
}

// mark says on an object when it will be gone.
func (c *call) mark(obj registry.Object, grace int64, held bool, now time.Time) {
	at := metav1.NewTime(now.UTC().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
	obj.SetDeletionTimestamp(&at)
	if !held {
		obj.SetDeletionGracePeriodSeconds(&grace)
	}
	if g := obj.GetGeneration(); g > 0 {
		obj.SetGeneration(g + 1)
	}
	if c.BeginDelete != nil {
		c.BeginDelete(obj)
	}
}

// shorten handles another deletion of an object whose deletion has begun: the
// grace period can become shorter, never longer.
func (c *call) shorten(obj registry.Object, o *metav1.DeleteOptions, grace int64, held, changed bool) (stay, _ bool) {
	had := obj.GetDeletionGracePeriodSeconds()
	if c.GracePeriod == nil || held || had == nil || o.GracePeriodSeconds == nil || grace >= *had {
		return true, changed
	}
	at := metav1.NewTime(obj.GetDeletionTimestamp().Add(time.Duration(grace-*had) * time.Second))
	obj.SetDeletionTimestamp(&at)
	obj.SetDeletionGracePeriodSeconds(&grace)
	return true, true
}

// deletionFinalizers adds and removes the garbage collector's finalizers as the
// propagation policy wants it.
func (c *call) deletionFinalizers(obj registry.Object, o *metav1.DeleteOptions) []string {
	has := func(f string) bool { return slices.Contains(obj.GetFinalizers(), f) }
	var orphan, foreground bool
	switch {
	case o.OrphanDependents != nil: //nolint:staticcheck // clients still send it
		orphan = *o.OrphanDependents //nolint:staticcheck // clients still send it
	case o.PropagationPolicy != nil:
		orphan = *o.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *o.PropagationPolicy == metav1.DeletePropagationForeground
	default:
		orphan = has(metav1.FinalizerOrphanDependents) || c.DefaultOrphan && obj.GetDeletionTimestamp() == nil
		foreground = has(metav1.FinalizerDeleteDependents)
	}
	var out []string
	for _, f := range obj.GetFinalizers() {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			out = append(out, f)
		}
	}
	if orphan {
		out = append(out, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	return out
}
