package responsewriters

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// tellAnswer records a response in the audit event. body is its encoding.
func tellAnswer(c *codec.Codec, r *http.Request, obj runtime.Object, gvk schema.GroupVersionKind, choice negotiation.Choice, body []byte) {
	rec := audit.From(r.Context())
	if rec == nil {
		return
	}
	if st, ok := obj.(*metav1.Status); ok {
		rec.SetResponseStatus(st)
	}
	if !rec.Wants(audit.RequestResponse) {
		return
	}
	if choice.Media != api.MediaJSON {
		var err error
		if body, err = c.Encode(obj, gvk, api.MediaJSON, false); err != nil {
			return // there is no response either
		}
	}
	rec.SetResponseObject(body)
}

// withoutAudit returns the request without its audit event, so that the response is not recorded.
func withoutAudit(r *http.Request) *http.Request {
	if audit.From(r.Context()) == nil {
		return r
	}
	ctx, s := request.Derive(r.Context())
	s.AuditEvent = nil
	return r.WithContext(ctx)
}
