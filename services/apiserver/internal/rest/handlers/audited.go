package handlers

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/security/audit"
)

// asked records the object of the request, with defaults, in the audit event.
func (a *API) asked(c *Call, gvk schema.GroupVersionKind, obj runtime.Object) {
	rec := audit.From(c.Context())
	if rec == nil {
		return
	}
	named, _ := obj.(metav1.Object)
	rec.SetRequestObject(named, func() ([]byte, error) {
		if o, ok := obj.(registry.Object); ok && gvk == c.GVK() && c.Default != nil {
			o = o.DeepCopyObject().(registry.Object)
			c.Default(o)
			obj = o
		}
		return a.Codec.Encode(obj, gvk, api.MediaJSON, false)
	})
}

// askedPatch records the patch of the request as JSON in the audit event. failed is the error of
// decoding it, or nil.
func (c *Call) askedPatch(typ types.PatchType, raw []byte, failed error) {
	audit.From(c.Context()).SetRequestText(func() ([]byte, error) {
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

// askedDelete records the delete options of the request in the audit event.
func (c *Call) askedDelete(o *metav1.DeleteOptions) {
	audit.From(c.Context()).SetRequestText(func() ([]byte, error) {
		options := *o
		options.TypeMeta = metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: internalMeta}
		return json.Marshal(&options)
	})
}
