package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/admission/views"
)

// The versions of reviews.
const (
	reviewV1      = "v1"
	reviewV1beta1 = "v1beta1"
)

// question is what a webhook is asked, but for its uid: the beginning of the
// request, and the objects, which several hooks share.
type question struct {
	head                 []byte // ends before its last brace
	object, old, options []byte
	dryRun               bool
	// origin is the namespace that the request is in, or its user where it is in none.
	origin string
	// resource, subresource and operation are what the request is about.
	resource, subresource, operation string
}

// ask makes the question of a request.
func ask(r *admission.Request, as matcher.As, v *views.View) (*question, error) {
	d := matcher.Describe(r, as)
	d.DryRun = nil
	q := &question{
		dryRun: r.DryRun, options: []byte("null"), origin: originOf(r),
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

// body is the review in a version: its beginning, and what follows, most of which all who are
// asked share.
func (q *question) body(version string, uid types.UID, dryRun bool) (head []byte, rest [][]byte) {
	head = fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/%s","request":{"uid":"%s",`, version, uid)
	return head, [][]byte{
		q.head, []byte(`,"object":`), q.object, []byte(`,"oldObject":`), q.old, fmt.Appendf(nil, `,"dryRun":%t,"options":`, dryRun), q.options, []byte("}}"),
	}
}

// verdict is what a webhook answered.
type verdict struct {
	allowed          bool
	result           *metav1.Status
	patch            []byte
	patchType        admissionv1.PatchType
	auditAnnotations map[string]string
	warnings         []string
}

// newAnswer is what an answer is read into.
func newAnswer(version string) runtime.Object {
	if version == reviewV1beta1 {
		return &admissionv1beta1.AdmissionReview{}
	}
	return &admissionv1.AdmissionReview{}
}

// judge checks an answer.
func judge(answer runtime.Object, uid types.UID, mutating bool) (*verdict, error) {
	var v *verdict
	err := fmt.Errorf("unexpected response type %T", answer)
	switch a := answer.(type) {
	case *admissionv1.AdmissionReview:
		v, err = judgeV1(a, uid, mutating)
	case *admissionv1beta1.AdmissionReview:
		v, err = judgeV1beta1(a)
	}
	if err != nil {
		return nil, err
	}
	v.shorten()
	return v, nil
}

func judgeV1(a *admissionv1.AdmissionReview, uid types.UID, mutating bool) (*verdict, error) {
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
	v := &verdict{allowed: r.Allowed, result: r.Result, auditAnnotations: r.AuditAnnotations, warnings: r.Warnings}
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
		v.patch, v.patchType = r.Patch, *r.PatchType
	}
	return v, nil
}

// judgeV1beta1 asks for less, as that version does.
func judgeV1beta1(a *admissionv1beta1.AdmissionReview) (*verdict, error) {
	r := a.Response
	if r == nil {
		return nil, errors.New("webhook response was absent")
	}
	v := &verdict{allowed: r.Allowed, result: r.Result, auditAnnotations: r.AuditAnnotations, warnings: r.Warnings, patch: r.Patch}
	if len(r.Patch) > 0 {
		v.patchType = admissionv1.PatchTypeJSONPatch
	}
	return v, nil
}

func originOf(r *admission.Request) string {
	if r.Namespace == "" && r.User != nil {
		return "user " + r.User.Name
	}
	return "namespace " + r.Namespace
}
