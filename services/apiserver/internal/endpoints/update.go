package endpoints

import (
	"bytes"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
)

// update answers PUT of an object or of a sub-resource over it.
func (a *API) update(c *call) error {
	f, err := a.negotiate(c, false)
	if err != nil {
		return err
	}
	o, err := parseUpdateOptions(c.r)
	if err != nil {
		return err
	}
	body, media, err := a.body(c.r)
	if err != nil {
		return err
	}
	obj, err := a.decode(c, body, media, o)
	if err != nil {
		return err
	}
	if err := c.nameFits(obj); err != nil {
		return err
	}
	if c.Namespaced {
		obj.SetNamespace(c.info.Namespace)
	}
	compute := func(l *live) (outcome, error) {
		return a.change(c, l, obj.DeepCopyObject().(registry.Object), o)
	}
	var create func() (shown, error)
	if c.CreateOnUpdate && c.sub == nil {
		create = func() (shown, error) { return a.createUpdated(c, obj.DeepCopyObject().(registry.Object), o) }
	}
	s, code, err := a.modifyOrCreate(c, compute, create)
	if err != nil {
		return err
	}
	return f.writeObject(c, code, s)
}

// createUpdated creates what an update describes and what is not there.
func (a *API) createUpdated(c *call, obj registry.Object, o *writeOptions) (shown, error) {
	if obj.GetUID() != "" {
		return shown{}, apierrors.NewConflict(c.GroupResource(), c.info.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: ", obj.GetUID())) //nolint:staticcheck // the wording is the API's
	}
	if err := a.mayCreate(c); err != nil {
		return shown{}, err
	}
	obj.SetResourceVersion("")
	return a.createObject(c, obj, o)
}

func parseUpdateOptions(r *http.Request) (*writeOptions, error) {
	var uo metav1.UpdateOptions
	q := r.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_UpdateOptions(&q, &uo, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o := &writeOptions{dryRun: len(uo.DryRun) > 0, fieldManager: uo.FieldManager, fieldValidation: uo.FieldValidation}
	return o, o.check("UpdateOptions", metav1validation.ValidateUpdateOptions(&uo))
}

// change computes what an object becomes by an update or patch: obj is what the
// client wants, l what is there.
func (a *API) change(c *call, l *live, obj registry.Object, o *writeOptions) (outcome, error) {
	old := l.obj
	if err := c.versionFits(obj, old); err != nil {
		return outcome{}, err
	}
	c.carryOver(obj, old)
	if c.Default != nil {
		c.Default(obj)
	}
	c.uniqueOwners(obj, false)
	a.own(c, old, obj, o)
	attrs := a.attributes(c, admission.Update, obj, old, o)
	if err := a.mutate(c, obj, attrs); err != nil {
		return outcome{}, err
	}
	recorded := obj.GetManagedFields()
	if err := a.complete(c, obj, old); err != nil {
		return outcome{}, err
	}
	c.prepareUpdate(obj, old)
	obj.SetManagedFields(recorded)
	c.settle(obj, old)
	if errs := a.validateUpdate(c, obj, old); len(errs) > 0 {
		return outcome{}, apierrors.NewInvalid(c.GroupKind(), obj.GetName(), errs)
	}
	c.warnOfUpdate(obj, old)
	claim, err := a.allocate(c, obj, old, o)
	if err != nil {
		return outcome{}, err
	}
	if err := a.Admission.Validate(c.ctx(), attrs); err != nil {
		claim.Drop(c.ctx())
		return outcome{}, err
	}
	value, err := c.coder.EncodeStored(obj)
	if err != nil {
		claim.Drop(c.ctx())
		return outcome{}, fmt.Errorf("encode: %w", err)
	}
	out := outcome{value: value, obj: obj, claim: claim}
	switch {
	case o.dryRun:
		out.keep = true
	case c.released(obj):
		out.remove = true
	case bytes.Equal(value, l.kv.Value):
		out = outcome{keep: true, claim: claim}
	}
	return out, nil
}

// versionFits checks what the client says of the object's identity and version.
func (c *call) versionFits(obj, old registry.Object) error {
	if uid := obj.GetUID(); uid != "" && uid != old.GetUID() {
		return apierrors.NewConflict(c.GroupResource(), c.info.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID())) //nolint:staticcheck // the wording is the API's
	}
	switch rv := obj.GetResourceVersion(); {
	case rv == "" || rv == "0":
		if c.UpdateNeedsVersion {
			return apierrors.NewInvalid(c.GroupKind(), c.info.Name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), rv, "must be specified for an update"),
			})
		}
	case rv != old.GetResourceVersion():
		if _, err := parseRevision(rv); err != nil {
			return apierrors.NewInvalid(c.GroupKind(), c.info.Name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), rv, "must be an unsigned integer"),
			})
		}
		return apierrors.NewConflict(c.GroupResource(), c.info.Name, errModified)
	}
	return nil
}

// carryOver fills from the live object what the server owns of the metadata.
func (c *call) carryOver(obj, old registry.Object) {
	meta.KeepServerFields(obj, old)
	obj.SetResourceVersion(old.GetResourceVersion())
	obj.SetGeneration(old.GetGeneration())
}

// prepareUpdate resets what this path must not change.
func (c *call) prepareUpdate(obj, old registry.Object) {
	switch {
	case c.sub == nil:
		if c.HasStatus() {
			resetStatus(obj, old)
		}
		if c.PrepareUpdate != nil {
			c.PrepareUpdate(obj, old)
		}
	case c.sub.Prepare != nil:
		c.sub.Prepare(obj, old)
	case c.sub.Name == "status":
		resetAllButStatus(obj, old)
	}
	if c.Generation && specChanged(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

func (a *API) validateUpdate(c *call, obj, old registry.Object) field.ErrorList {
	errs := meta.ValidateUpdate(c.Kind, obj, old)
	switch {
	case c.sub != nil:
		if c.sub.ValidateUpdate != nil {
			errs = append(errs, c.sub.ValidateUpdate(obj, old)...)
		}
	case c.ValidateUpdate != nil:
		errs = append(errs, c.ValidateUpdate(obj, old)...)
	}
	if c.sub == nil {
		errs = a.withDeclared(c.Kind, obj, errs)
	}
	return errs
}

// released tells that nothing holds an object any more whose deletion has
// begun (specification: "Object deletion").
func (c *call) released(obj registry.Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	if g := obj.GetDeletionGracePeriodSeconds(); g != nil && *g > 0 {
		return false
	}
	return c.HeldBy == nil || !c.HeldBy(obj)
}
