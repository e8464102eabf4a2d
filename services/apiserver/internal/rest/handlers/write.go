package handlers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/fieldvalidation"
	"binnacle/services/apiserver/internal/rest/patch"
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

// patchTypes returns the media types of patches that the resource supports.
func (a *API) patchTypes(c *Call) []string {
	_, untyped := c.New().(runtime.Unstructured)
	return patch.MediaTypes(!untyped, a.Config.Media.CBOR)
}

// patchType returns the media type of a request's patch, or "".
func patchType(r *http.Request) types.PatchType {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return types.PatchType(media)
}

// patchRequest decodes the parameters and the body of PATCH.
func (a *API) patchRequest(c *Call) (*writes.Request, error) {
	var o metav1.PatchOptions
	q := c.R.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&q, &o, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	typ := patchType(c.R)
	if errs := metav1validation.ValidatePatchOptions(&o, typ); len(errs) > 0 {
		return nil, status.Invalid(metaKind("PatchOptions"), "", errs)
	}
	raw, err := readBody(c.R)
	if err != nil {
		return nil, err
	}
	req := c.write(&o, o.DryRun, o.FieldManager, o.FieldValidation)
	req.Force = o.Force != nil && *o.Force
	req.Patch, err = patch.Decode(typ, raw, fieldvalidation.Detects(o.FieldValidation))
	c.askedPatch(typ, raw, err)
	tracing.Event(c.Context(), eventRecorded)
	return req, err
}
