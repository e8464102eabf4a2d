package handlers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/api"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/fieldvalidation"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
)

// eventRecorded is the span event when the audit event has the body, named as in Kubernetes.
const eventRecorded = "Recorded the audit event"

// create serves POST of an object.
func (a *API) create(call *Call) error {
	if reason := call.Create.DisabledReason; reason != "" {
		if err := call.waitForCurrent(call.Context(), call.Store); err != nil { // the kind's current definition may allow creations
			return err
		}
		return status.Error(
			http.StatusMethodNotAllowed,
			metav1.StatusReasonMethodNotAllowed,
			reason,
			&metav1.StatusDetails{Group: call.Group, Kind: call.Resource},
		)
	}
	encoder, err := a.ForObject(call.R, call.resource, call.Sub)
	if err != nil {
		return err
	}
	req, err := call.CreateRequest()
	if err != nil {
		return err
	}
	if req.Object, err = a.readObject(call, req.FieldValidation); err != nil {
		return err
	}
	res, err := a.Writer.Create(call.Context(), req)
	if err != nil {
		return err
	}
	return call.writeResult(encoder, res)
}

// update serves PUT of an object or of a subresource that is a view of it.
func (a *API) update(call *Call) error {
	encoder, err := a.ForObject(call.R, call.resource, call.Sub)
	if err != nil {
		return err
	}
	req, err := call.UpdateRequest()
	if err != nil {
		return err
	}
	if req.Object, err = a.readObject(call, req.FieldValidation); err != nil {
		return err
	}
	res, err := a.Writer.Update(call.Context(), req)
	if err != nil {
		return err
	}
	return call.writeResult(encoder, res)
}

// patch serves PATCH of an object or of a subresource that is a view of it.
func (a *API) patch(call *Call) error {
	encoder, err := a.ForObject(call.R, call.resource, call.Sub)
	if err != nil {
		return err
	}
	req, err := a.patchRequest(call)
	if err != nil {
		return err
	}
	res, err := a.Writer.Patch(call.Context(), req)
	if err != nil {
		return err
	}
	return call.writeResult(encoder, res)
}

// writeResult writes the stored object.
func (c *Call) writeResult(encoder *responsewriters.Encoder, res writes.Result) error {
	code := http.StatusOK
	if res.Created {
		code = http.StatusCreated
	}
	return encoder.WriteObject(c.W, c.R, code, responsewriters.FromStored(res.Item))
}

// readObject decodes an object of the kind from the body.
func (a *API) readObject(call *Call, validation string) (registry.Object, error) {
	body, media, err := a.readMediaBody(call)
	if err != nil {
		return nil, err
	}
	tracing.Event(call.Context(), "About to convert to expected version")
	obj, err := a.decodeObject(call, body, media, validation)
	if err == nil {
		tracing.Event(call.Context(), "Conversion done")
	}
	return obj, err
}

// patchTypes returns the media types of patches that the resource supports.
func (a *API) patchTypes(call *Call) []string {
	_, untyped := call.New().(runtime.Unstructured)
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
func (a *API) patchRequest(call *Call) (*writes.Request, error) {
	var patchOptions metav1.PatchOptions
	query := call.R.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&query, &patchOptions, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	patchMediaType := patchType(call.R)
	if errs := metav1validation.ValidatePatchOptions(&patchOptions, patchMediaType); len(errs) > 0 {
		return nil, status.Invalid(metaKind("PatchOptions"), "", errs)
	}
	raw, err := readBody(call.R)
	if err != nil {
		return nil, err
	}
	req := call.newWriteRequest(&patchOptions, patchOptions.DryRun, patchOptions.FieldManager, patchOptions.FieldValidation)
	req.Force = patchOptions.Force != nil && *patchOptions.Force
	req.Patch, err = patch.Decode(patchMediaType, raw, fieldvalidation.DetectsUnknown(patchOptions.FieldValidation))
	call.recordPatch(patchMediaType, raw, err)
	tracing.Event(call.Context(), eventRecorded)
	if err != nil {
		req.Patch = patch.Invalid(patchMediaType, err)
	}
	return req, nil
}

// readBody reads a body of at most request.MaxBody bytes.
func readBody(req *http.Request) ([]byte, error) {
	if req.ContentLength > request.MaxBody {
		return nil, errBodyTooLarge()
	}
	body, err := request.ReadBody(req)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, status.Error(http.StatusRequestTimeout, metav1.StatusReasonTimeout,
			"the body of the request did not arrive in time", nil)
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body of the request could not be read: %v", err))
	case len(body) > request.MaxBody:
		return nil, errBodyTooLarge()
	}
	return body, nil
}

func errBodyTooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", request.MaxBody))
}

// readMediaBody returns a request's body and its media type.
func (a *API) readMediaBody(call *Call) ([]byte, string, error) {
	media, err := a.bodyType(call)
	if err != nil {
		return nil, "", err
	}
	b, err := readBody(call.R)
	return b, media, err
}

// decodeObject decodes an object of the kind.
func (a *API) decodeObject(call *Call, body []byte, media, validation string) (registry.Object, error) {
	obj, err := a.decodeAs(call, call.GVK(), body, media, validation)
	if err != nil {
		return nil, err
	}
	out, ok := obj.(registry.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an API object", obj)
	}
	return out, nil
}

// decodeAs decodes an object of a type. Unknown and duplicate fields are rejected, reported as
// warnings, or ignored (specification: "Field validation").
func (a *API) decodeAs(call *Call, expected schema.GroupVersionKind, body []byte, media, validation string) (runtime.Object, error) {
	if len(body) < request.LargeBody { // larger bodies have been limited on arrival
		cost := request.PerValue * a.Codec.Checks.Values(media, body, expected)
		if cost > 0 { // it may contain JSON
			cost = max(cost, request.PerValue*request.Values(body))
		}
		if expected == call.GVK() {
			cost = cmp.Or(call.DocumentCost(body, media == api.MediaCBOR), cost)
		}
		if err := request.Estimate(call.Context(), cost); err != nil {
			return nil, err
		}
	}
	strict := fieldvalidation.DetectsUnknown(validation)
	var decoded codec.Decoded
	var err error
	if expected != call.GVK() || call.Coder == nil {
		decoded, err = a.Codec.Decode(media, body, expected, nil, strict)
	} else {
		decoded, err = call.Coder.DecodeBody(media, body, strict)
	}
	if invalid := new(doccheck.ValueError); errors.As(err, &invalid) {
		return nil, status.InvalidValue(expected.GroupKind(), "", invalid.Path, invalid.Reason)
	}
	if err != nil {
		return nil, undecodableError(err, decoded.GVK, expected.Kind, body)
	}
	if !decoded.TypeUnchecked && (decoded.GVK.Kind != expected.Kind || decoded.GVK.Group != expected.Group) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v",
			decoded.GVK.Kind, decoded.GVK.Version, expected.Kind, codec.UnknownConversion(decoded.GVK, expected)))
	}
	err = fieldvalidation.ReportUnknown(call.Context(), validation, decoded.Unknown, func(err error) error {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v",
			decoded.GVK.Kind, decoded.GVK.Version, decoded.GVK.Kind, err))
	})
	if err == nil && decoded.GVK.GroupVersion() != expected.GroupVersion() {
		err = apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)",
			decoded.GVK.GroupVersion(), expected.GroupVersion()))
	}
	if err == nil {
		a.recordObject(call, expected, decoded.Object)
	}
	return decoded.Object, err
}

// undecodableError returns the 400 error for a body that cannot be decoded as the kind.
func undecodableError(err error, seen schema.GroupVersionKind, expected string, body []byte) error {
	if seen.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v",
			seen.Kind, seen.Version, expected, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)",
		expected, err, summarizeBody(body)))
}

// summarizeBody returns the beginning of a body: as text if it looks like JSON, otherwise in
// hexadecimal.
func summarizeBody(body []byte) string {
	const maximum = 30
	switch {
	case len(body) == 0:
		return "<empty>"
	case len(bytes.TrimSpace(body)) > 0 && bytes.TrimSpace(body)[0] == '{':
		if len(body) > maximum {
			return string(body[:maximum]) + " ..."
		}
		return string(body)
	case len(body) > maximum:
		return fmt.Sprintf("%x ...", body[:maximum])
	}
	return fmt.Sprintf("%x", body)
}

// recordObject records the object of the request, with defaults, in the audit event.
func (a *API) recordObject(call *Call, gvk schema.GroupVersionKind, obj runtime.Object) {
	auditEvent := audit.FromContext(call.Context())
	if auditEvent == nil {
		return
	}
	named, _ := obj.(metav1.Object)
	auditEvent.SetRequestObject(named, func() ([]byte, error) {
		if withDefaults, ok := obj.(registry.Object); ok && gvk == call.GVK() && call.Default != nil {
			withDefaults = withDefaults.DeepCopyObject().(registry.Object)
			call.Default(withDefaults)
			obj = withDefaults
		}
		return a.Codec.Encode(obj, gvk, api.MediaJSON, false)
	})
}

// recordPatch records the patch of the request as JSON in the audit event. failed is the error of
// decoding it, or nil.
func (c *Call) recordPatch(typ types.PatchType, raw []byte, failed error) {
	audit.FromContext(c.Context()).SetRequestText(func() ([]byte, error) {
		switch {
		case json.Valid(raw):
			return raw, nil
		case failed != nil: // a patch beyond the limits is not decoded again
			return nil, failed
		}
		return patch.JSON(typ, raw)
	})
}

// internalMeta is the version in which the audit log records delete options.
const internalMeta = "meta.k8s.io/" + runtime.APIVersionInternal

// recordDeleteOptions records the delete options of the request in the audit event.
func (c *Call) recordDeleteOptions(o *metav1.DeleteOptions) {
	audit.FromContext(c.Context()).SetRequestText(func() ([]byte, error) {
		options := *o
		options.TypeMeta = metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: internalMeta}
		return json.Marshal(&options)
	})
}
