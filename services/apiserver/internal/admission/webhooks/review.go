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

// reviewRequest is an AdmissionRequest without its UID, in encoded parts. Hooks that see the
// request in the same version share it.
type reviewRequest struct {
	// head holds the encoded fields that have no field below, without the enclosing braces.
	head                       []byte
	object, oldObject, options []byte // JSON; "null" if absent
	dryRun                     bool
	// resource, subresource and operation are used in traces.
	resource, subresource, operation string
}

// newReviewRequest encodes a request in the version matchedKind. view is the view in that version.
func newReviewRequest(req *admission.Request, matchedKind matcher.MatchedKind, view *views.View) (*reviewRequest, error) {
	admissionRequest := matcher.NewAdmissionRequest(req, matchedKind)
	admissionRequest.DryRun = nil // body encodes it
	review := &reviewRequest{
		dryRun: req.DryRun, options: []byte("null"),
		resource: admissionRequest.Resource.String(), subresource: admissionRequest.SubResource, operation: string(admissionRequest.Operation),
	}
	var err error
	if review.object, err = view.ObjectJSON(); err != nil {
		return nil, err
	}
	if review.oldObject, err = view.OldJSON(); err != nil {
		return nil, err
	}
	if o := matcher.Options(req); o != nil {
		if review.options, err = json.Marshal(o); err != nil {
			return nil, err
		}
	}
	// The outer fields hide the fields of AdmissionRequest with the same JSON names, and are
	// omitted.
	head := struct {
		*admissionv1.AdmissionRequest
		UID       *string `json:"uid,omitempty"`
		Object    *string `json:"object,omitempty"`
		OldObject *string `json:"oldObject,omitempty"`
		Options   *string `json:"options,omitempty"`
	}{AdmissionRequest: admissionRequest}
	if review.head, err = json.Marshal(head); err != nil {
		return nil, err
	}
	review.head = review.head[1 : len(review.head)-1] // without braces
	return review, nil
}

// body returns an encoded AdmissionReview of a version as a list of parts. first contains the UID,
// so it differs between calls. The large parts of others are shared by all calls.
func (r *reviewRequest) body(version string, uid types.UID) (first []byte, others [][]byte) {
	first = fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/%s","request":{"uid":"%s",`, version, uid)
	return first, [][]byte{
		r.head, []byte(`,"object":`), r.object, []byte(`,"oldObject":`), r.oldObject,
		fmt.Appendf(nil, `,"dryRun":%t,"options":`, r.dryRun), r.options, []byte("}}"),
	}
}

// reviewResponse is the validated response of a webhook.
type reviewResponse struct {
	allowed          bool
	result           *metav1.Status
	patch            []byte
	patchType        admissionv1.PatchType
	auditAnnotations map[string]string
	warnings         []string
}

// newReview returns an empty AdmissionReview of a version.
func newReview(version string) runtime.Object {
	if version == reviewV1beta1 {
		return &admissionv1beta1.AdmissionReview{}
	}
	return &admissionv1.AdmissionReview{}
}

// parseResponse validates the response in a review of any version, and truncates it to its bounds.
// uid is the UID of the request. mutating permits patches.
func parseResponse(review runtime.Object, uid types.UID, mutating bool) (*reviewResponse, error) {
	var response *reviewResponse
	err := fmt.Errorf("unexpected response type %T", review)
	switch a := review.(type) {
	case *admissionv1.AdmissionReview:
		response, err = parseV1(a, uid, mutating)
	case *admissionv1beta1.AdmissionReview:
		response, err = parseV1beta1(a)
	}
	if err != nil {
		return nil, err
	}
	response.truncate()
	return response, nil
}

// parseV1 validates a v1 response.
func parseV1(review *admissionv1.AdmissionReview, uid types.UID, mutating bool) (*reviewResponse, error) {
	admissionResponse := review.Response
	if admissionResponse == nil {
		return nil, errors.New("webhook response was absent")
	}
	if admissionResponse.UID != uid {
		return nil, fmt.Errorf("expected response.uid=%q, got %.100q", uid, admissionResponse.UID)
	}
	if expected := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"); review.GroupVersionKind() != expected {
		return nil, fmt.Errorf("expected webhook response of %v, got %v", expected, review.GroupVersionKind())
	}
	response := &reviewResponse{allowed: admissionResponse.Allowed, result: admissionResponse.Result, auditAnnotations: admissionResponse.AuditAnnotations, warnings: admissionResponse.Warnings}
	switch {
	case !mutating && len(admissionResponse.Patch) > 0:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && admissionResponse.PatchType != nil:
		return nil, errors.New("validating webhook may not return response.patchType")
	case !mutating:
		return response, nil
	case len(admissionResponse.Patch) > 0 && admissionResponse.PatchType == nil:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case len(admissionResponse.Patch) == 0 && admissionResponse.PatchType != nil:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case admissionResponse.PatchType != nil && *admissionResponse.PatchType == "":
		return nil, fmt.Errorf("webhook returned invalid response.patchType of %.100q", *admissionResponse.PatchType)
	case admissionResponse.PatchType != nil:
		response.patch = admissionResponse.Patch
		response.patchType = *admissionResponse.PatchType
	}
	return response, nil
}

// parseV1beta1 validates a v1beta1 response. As in Kubernetes, it checks neither the UID nor the
// patch type.
func parseV1beta1(a *admissionv1beta1.AdmissionReview) (*reviewResponse, error) {
	admissionResponse := a.Response
	if admissionResponse == nil {
		return nil, errors.New("webhook response was absent")
	}
	response := &reviewResponse{
		allowed:          admissionResponse.Allowed,
		result:           admissionResponse.Result,
		auditAnnotations: admissionResponse.AuditAnnotations,
		warnings:         admissionResponse.Warnings,
		patch:            admissionResponse.Patch,
	}
	if len(admissionResponse.Patch) > 0 {
		response.patchType = admissionv1.PatchTypeJSONPatch
	}
	return response, nil
}

// Bounds of the warnings and audit annotations of a response, which the request retains.
const (
	// maxWarnings is the maximum number of warnings; request.Warn bounds their length.
	maxWarnings = 1000
	// maxAnnotations is the maximum number of audit annotations.
	maxAnnotations = 1000
	// maxAnnotationBytes is the maximum total length of the keys and values of audit annotations.
	maxAnnotationBytes = 256 << 10
	// omittedKey is the key of the audit annotation that contains the number of omitted
	// annotations.
	omittedKey = "annotations-left-out"
)

// truncate removes warnings and audit annotations that exceed the bounds, and invalid annotations.
func (r *reviewResponse) truncate() {
	r.warnings = slices.Clone(r.warnings[:min(len(r.warnings), maxWarnings)])
	if r.result != nil {
		r.result = status.Shortened(r.result)
	}
	maps.DeleteFunc(r.auditAnnotations, func(key, _ string) bool { return !validAnnotation(key) })
	size := 0
	for key, value := range r.auditAnnotations {
		size += len(key) + len(value)
	}
	if len(r.auditAnnotations) <= maxAnnotations && size <= maxAnnotationBytes {
		return
	}
	retained := map[string]string{}
	size = 0
	for _, key := range slices.Sorted(maps.Keys(r.auditAnnotations)) {
		value := r.auditAnnotations[key]
		size += len(key) + len(value)
		if size > maxAnnotationBytes || len(retained) == maxAnnotations {
			break
		}
		retained[key] = value
	}
	retained[omittedKey] = fmt.Sprint(len(r.auditAnnotations) - len(retained))
	r.auditAnnotations = retained
}

// validAnnotation reports whether "<webhook>/<key>" is a valid key of an audit annotation.
func validAnnotation(key string) bool {
	return !strings.Contains(key, "/") && len(validation.IsQualifiedName(key)) == 0
}
