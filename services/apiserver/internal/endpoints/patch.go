package endpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/registry"
)

// maxPatchOperations bounds a JSON patch.
const maxPatchOperations = 10000

// patchTypes are the media types of patches (specification: "Patch media
// types").
var patchTypes = map[string]types.PatchType{
	api.MediaJSONPatch:      types.JSONPatchType,
	api.MediaMergePatch:     types.MergePatchType,
	api.MediaStrategicPatch: types.StrategicMergePatchType,
}

func patchTypeOf(r *http.Request) (types.PatchType, bool) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return "", false
	}
	t, ok := patchTypes[media]
	return t, ok
}

func patchType(r *http.Request) bool { _, ok := patchTypeOf(r); return ok }

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
	s, err := a.modify(c, func(l *live) (outcome, error) {
		obj, err := a.patched(c, l.obj, p, o)
		if err != nil {
			return outcome{}, err
		}
		if err := c.nameFits(obj); err != nil {
			return outcome{}, err
		}
		return a.change(c, l, obj, o)
	})
	if err != nil {
		return err
	}
	return f.writeObject(c, http.StatusOK, s)
}

// patchBody is a patch that was read.
type patchBody struct {
	typ types.PatchType
	raw []byte
	ops jsonpatch.Patch
}

func (a *API) readPatch(c *call) (*patchBody, *writeOptions, error) {
	var po metav1.PatchOptions
	q := c.r.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&q, &po, nil); err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	typ, _ := patchTypeOf(c.r)
	o := &writeOptions{dryRun: len(po.DryRun) > 0, fieldManager: po.FieldManager, fieldValidation: po.FieldValidation, force: po.Force}
	if err := o.check("PatchOptions", metav1validation.ValidatePatchOptions(&po, typ)); err != nil {
		return nil, nil, err
	}
	raw, err := readBody(c.r)
	if err != nil {
		return nil, nil, err
	}
	p := &patchBody{typ: typ, raw: raw}
	if typ == types.JSONPatchType {
		if p.ops, err = jsonpatch.DecodePatch(raw); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
		if len(p.ops) > maxPatchOperations {
			return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(p.ops)))
		}
	}
	return p, o, nil
}

// patched applies a patch to the live object.
func (a *API) patched(c *call, old registry.Object, p *patchBody, o *writeOptions) (registry.Object, error) {
	doc, err := c.coder.EncodeObject(old.DeepCopyObject().(registry.Object))
	if err != nil {
		return nil, err
	}
	out, err := p.apply(doc, c.New())
	if err != nil {
		return nil, err
	}
	return a.decode(c, out, api.MediaJSON, o)
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// apply computes the patched JSON; dataStruct is a value of the Go type, from
// whose tags a strategic patch takes the merge keys.
func (p *patchBody) apply(doc []byte, dataStruct runtime.Object) ([]byte, error) {
	switch p.typ {
	case types.JSONPatchType:
		out, err := p.ops.Apply(doc)
		if err != nil {
			return nil, unprocessable(err)
		}
		return out, nil
	case types.MergePatchType:
		var any map[string]any
		if err := json.Unmarshal(p.raw, &any); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
		out, err := jsonpatch.MergePatch(doc, p.raw)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return out, nil
	default:
		out, err := strategicpatch.StrategicMergePatch(doc, p.raw, dataStruct)
		switch {
		case err == nil:
			return out, nil
		case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
			errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
			errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return nil, unprocessable(err)
	}
}
