package handlers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/api"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
)

// eventRecorded is the span event when the audit event has the body, named as in Kubernetes.
const eventRecorded = "Recorded the audit event"

// create serves POST of an object.
func (a *API) create(c *Call) error {
	if why := c.Create.Closed; why != "" {
		if err := c.newest(c.Context(), c.Store); err != nil { // the kind's current definition may allow creations
			return err
		}
		return status.Error(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, why, &metav1.StatusDetails{Group: c.Group, Kind: c.Resource})
	}
	f, err := a.ForObject(c.R, c.resource)
	if err != nil {
		return err
	}
	req, err := c.CreateRequest()
	if err != nil {
		return err
	}
	if req.Object, err = a.readObject(c, req.FieldValidation); err != nil {
		return err
	}
	res, err := a.Writes.Create(c.Context(), req)
	if err != nil {
		return err
	}
	return c.answerWrite(f, res)
}

// update serves PUT of an object or of a subresource that is a view of it.
func (a *API) update(c *Call) error {
	f, err := a.ForObject(c.R, c.resource)
	if err != nil {
		return err
	}
	req, err := c.UpdateRequest()
	if err != nil {
		return err
	}
	if req.Object, err = a.readObject(c, req.FieldValidation); err != nil {
		return err
	}
	res, err := a.Writes.Update(c.Context(), req)
	if err != nil {
		return err
	}
	return c.answerWrite(f, res)
}

// patch serves PATCH of an object or of a subresource that is a view of it.
func (a *API) patch(c *Call) error {
	f, err := a.ForObject(c.R, c.resource)
	if err != nil {
		return err
	}
	req, err := a.patchRequest(c)
	if err != nil {
		return err
	}
	res, err := a.Writes.Patch(c.Context(), req)
	if err != nil {
		return err
	}
	return c.answerWrite(f, res)
}

// answerWrite writes the stored object.
func (c *Call) answerWrite(f *responsewriters.Form, res writes.Result) error {
	code := http.StatusOK
	if res.Created {
		code = http.StatusCreated
	}
	return f.WriteObject(c.W, c.R, code, responsewriters.Of(res.Item))
}

// readObject decodes an object of the kind from the body.
func (a *API) readObject(c *Call, validation string) (registry.Object, error) {
	body, media, err := a.body(c)
	if err != nil {
		return nil, err
	}
	tracing.Event(c.Context(), "About to convert to expected version")
	obj, err := a.decode(c, body, media, validation)
	if err == nil {
		tracing.Event(c.Context(), "Conversion done")
	}
	return obj, err
}

// patchTypes are the media types of patches (specification: "Patch media
// types").
var patchTypes = map[string]types.PatchType{
	api.MediaJSONPatch:      types.JSONPatchType,
	api.MediaMergePatch:     types.MergePatchType,
	api.MediaStrategicPatch: types.StrategicMergePatchType,
	api.MediaApplyYAML:      types.ApplyYAMLPatchType,
	api.MediaApplyCBOR:      types.ApplyCBORPatchType,
}

func patchMedia(r *http.Request) string {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return media
}

// takesPatch reports whether the request's media type is that of a patch that the resource
// supports. Objects without a Go type have no merge keys, and so no strategic merge patches.
func (a *API) takesPatch(c *Call) bool {
	switch patchTypes[patchMedia(c.R)] {
	case "":
		return false
	case types.StrategicMergePatchType:
		_, untyped := c.New().(runtime.Unstructured)
		return !untyped
	case types.ApplyCBORPatchType:
		return a.Config.Media.CBOR
	}
	return true
}

// documentPatches returns the media types of patches of objects without a Go type.
func (a *API) documentPatches() []string {
	types := []string{api.MediaJSONPatch, api.MediaMergePatch, api.MediaApplyYAML}
	if a.Config.Media.CBOR {
		types = append(types, api.MediaApplyCBOR)
	}
	return types
}

// patchRequest decodes the parameters and the body of PATCH.
func (a *API) patchRequest(c *Call) (*writes.Request, error) {
	var o metav1.PatchOptions
	q := c.R.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&q, &o, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	typ := patchTypes[patchMedia(c.R)]
	if errs := metav1validation.ValidatePatchOptions(&o, typ); len(errs) > 0 {
		return nil, status.Invalid(metaKind("PatchOptions"), "", errs)
	}
	raw, err := readBody(c.R)
	if err != nil {
		return nil, err
	}
	req := c.write(&o, o.DryRun, o.FieldManager, o.FieldValidation)
	req.Force = o.Force != nil && *o.Force
	req.Patch, err = writes.DecodePatch(typ, raw, writes.LooksForUnknown(o.FieldValidation))
	c.askedPatch(typ, raw, err)
	tracing.Event(c.Context(), eventRecorded)
	return req, err
}
