package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/status"
)

// Versions of AdmissionReview.
const (
	reviewV1      = "v1"
	reviewV1beta1 = "v1beta1"
)

// reviewRequest is an encoded AdmissionRequest without its UID. Hooks share the encoded parts.
type reviewRequest struct {
	head                 []byte // without its braces
	object, old, options []byte
	dryRun               bool
	// resource, subresource and operation are used in traces.
	resource, subresource, operation string
}

// newReviewRequest encodes a request.
func newReviewRequest(r *admission.Request, as matcher.MatchedKind, v *views.View) (*reviewRequest, error) {
	d := matcher.Describe(r, as)
	d.DryRun = nil
	q := &reviewRequest{
		dryRun: r.DryRun, options: []byte("null"),
		resource: d.Resource.String(), subresource: d.SubResource, operation: string(d.Operation),
	}
	var err error
	if q.object, err = v.ObjectJSON(); err != nil {
		return nil, err
	}
	if q.old, err = v.OldJSON(); err != nil {
		return nil, err
	}
	if o := matcher.Options(r); o != nil {
		if q.options, err = json.Marshal(o); err != nil {
			return nil, err
		}
	}
	head := struct {
		*admissionv1.AdmissionRequest
		UID       *string `json:"uid,omitempty"`
		Object    *string `json:"object,omitempty"`
		OldObject *string `json:"oldObject,omitempty"`
		Options   *string `json:"options,omitempty"`
	}{AdmissionRequest: d}
	if q.head, err = json.Marshal(head); err != nil {
		return nil, err
	}
	q.head = q.head[1 : len(q.head)-1]
	return q, nil
}

// body returns the AdmissionReview: its beginning, and the rest in parts. The calls of
// all hooks share most parts.
func (q *reviewRequest) body(version string, uid types.UID, dryRun bool) (head []byte, rest [][]byte) {
	head = fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/%s","request":{"uid":"%s",`, version, uid)
	return head, [][]byte{
		q.head, []byte(`,"object":`), q.object, []byte(`,"oldObject":`), q.old, fmt.Appendf(nil, `,"dryRun":%t,"options":`, dryRun), q.options, []byte("}}"),
	}
}

// reviewResponse is the response of a webhook.
type reviewResponse struct {
	allowed          bool
	result           *metav1.Status
	patch            []byte
	patchType        admissionv1.PatchType
	auditAnnotations map[string]string
	warnings         []string
}

// newReview returns the object to decode a response into.
func newReview(version string) runtime.Object {
	if version == reviewV1beta1 {
		return &admissionv1beta1.AdmissionReview{}
	}
	return &admissionv1.AdmissionReview{}
}

// parseResponse validates a response.
func parseResponse(review runtime.Object, uid types.UID, mutating bool) (*reviewResponse, error) {
	var v *reviewResponse
	err := fmt.Errorf("unexpected response type %T", review)
	switch a := review.(type) {
	case *admissionv1.AdmissionReview:
		v, err = parseV1(a, uid, mutating)
	case *admissionv1beta1.AdmissionReview:
		v, err = parseV1beta1(a)
	}
	if err != nil {
		return nil, err
	}
	v.truncate()
	return v, nil
}

// parseV1 checks a v1 response and returns its parts.
func parseV1(a *admissionv1.AdmissionReview, uid types.UID, mutating bool) (*reviewResponse, error) {
	r := a.Response
	if r == nil {
		return nil, errors.New("webhook response was absent")
	}
	if r.UID != uid {
		return nil, fmt.Errorf("expected response.uid=%q, got %.100q", uid, r.UID)
	}
	if want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"); a.GroupVersionKind() != want {
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, a.GroupVersionKind())
	}
	v := &reviewResponse{allowed: r.Allowed, result: r.Result, auditAnnotations: r.AuditAnnotations, warnings: r.Warnings}
	switch {
	case !mutating && len(r.Patch) > 0:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && r.PatchType != nil:
		return nil, errors.New("validating webhook may not return response.patchType")
	case !mutating:
		return v, nil
	case len(r.Patch) > 0 && r.PatchType == nil:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case len(r.Patch) == 0 && r.PatchType != nil:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case r.PatchType != nil && *r.PatchType == "":
		return nil, fmt.Errorf("webhook returned invalid response.patchType of %.100q", *r.PatchType)
	case r.PatchType != nil:
		v.patch = r.Patch
		v.patchType = *r.PatchType
	}
	return v, nil
}

// parseV1beta1 validates less than parseV1, as Kubernetes does for that version.
func parseV1beta1(a *admissionv1beta1.AdmissionReview) (*reviewResponse, error) {
	r := a.Response
	if r == nil {
		return nil, errors.New("webhook response was absent")
	}
	v := &reviewResponse{allowed: r.Allowed, result: r.Result, auditAnnotations: r.AuditAnnotations, warnings: r.Warnings, patch: r.Patch}
	if len(r.Patch) > 0 {
		v.patchType = admissionv1.PatchTypeJSONPatch
	}
	return v, nil
}

// Bounds of the warnings and annotations of a response, which are kept with the request.
const (
	// maxWarnings bounds the number of warnings; request.Warn bounds their length.
	maxWarnings = 1000
	// maxAnnotations bounds the number of audit annotations, and maxAnnotationBytes the length of
	// all their keys and values.
	maxAnnotations     = 1000
	maxAnnotationBytes = 256 << 10
	// omittedKey is the key of the annotation that contains the number of omitted ones.
	omittedKey = "annotations-left-out"
)

// truncate removes what exceeds the bounds.
func (v *reviewResponse) truncate() {
	v.warnings = slices.Clone(v.warnings[:min(len(v.warnings), maxWarnings)])
	if v.result != nil {
		v.result = status.Shortened(v.result)
	}
	maps.DeleteFunc(v.auditAnnotations, func(key, _ string) bool { return !validAnnotation(key) })
	size := 0
	for key, value := range v.auditAnnotations {
		size += len(key) + len(value)
	}
	if len(v.auditAnnotations) <= maxAnnotations && size <= maxAnnotationBytes {
		return
	}
	kept := map[string]string{}
	size = 0
	for _, key := range slices.Sorted(maps.Keys(v.auditAnnotations)) {
		value := v.auditAnnotations[key]
		size += len(key) + len(value)
		if size > maxAnnotationBytes || len(kept) == maxAnnotations {
			break
		}
		kept[key] = value
	}
	kept[omittedKey] = fmt.Sprint(len(v.auditAnnotations) - len(kept))
	v.auditAnnotations = kept
}

// validAnnotation reports whether a key is valid after the name of a webhook and a slash. The audit
// log omits others.
func validAnnotation(key string) bool {
	return !strings.Contains(key, "/") && len(validation.IsQualifiedName(key)) == 0
}
