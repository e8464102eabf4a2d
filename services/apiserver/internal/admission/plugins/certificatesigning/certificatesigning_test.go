package certificatesigning_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/certificatesigning"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
)

// signers are the names of signers whose requests may be signed. The authorizer fails for
// "broken/one".
type signers []string

func (s signers) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	if a.Name == "broken/one" {
		return authz.Allow, "", errors.New("no answer")
	}
	if a.User.Name != "u" || a.Verb != "sign" || !a.Resource || a.Group != "certificates.k8s.io" || a.ResourceName != "signers" || a.Namespace != "" {
		return authz.Deny, "", nil
	}
	if slices.Contains(s, a.Name) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

func signingRequest(signer, certificate string, conditions ...string) *certificatesv1.CertificateSigningRequest {
	r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}
	if certificate != "" {
		r.Status.Certificate = []byte(certificate)
	}
	for _, c := range conditions {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.RequestConditionType(c), Status: corev1.ConditionTrue})
	}
	return r
}

func TestSigning(t *testing.T) {
	plugin := &certificatesigning.Plugin{Authorizer: signers{"a.b/one", "c.d/*"}}
	for _, c := range []struct {
		resource, sub string
		op            admission.Operation
		object, old   runtime.Object
		refused       bool
	}{
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, object: signingRequest("a.b/one", "c"), old: signingRequest("a.b/one", ""), refused: false},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, object: signingRequest("c.d/any", "c"), old: signingRequest("c.d/any", ""), refused: false},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, object: signingRequest("a.b/one", "c"), old: signingRequest("a.b/two", ""), refused: true},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, object: signingRequest("a.b/two", "c"), old: signingRequest("a.b/two", ""), refused: true},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, object: signingRequest("a.b/two", ""), old: signingRequest("a.b/two", "c"), refused: true},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, object: signingRequest("a.b/two", "", "Failed"), old: signingRequest("a.b/two", ""), refused: true},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, object: signingRequest("broken/one", "c"), old: signingRequest("broken/one", ""), refused: true},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, object: signingRequest("a.b/two", "c", "Approved"), old: signingRequest("a.b/two", "c", "Approved"), refused: false},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, object: &corev1.Pod{}, old: signingRequest("a.b/one", ""), refused: true},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, object: signingRequest("a.b/one", ""), old: &corev1.Pod{}, refused: true},
		{resource: "certificatesigningrequests", sub: "approval", op: admission.Update, object: signingRequest("a.b/two", "c"), old: signingRequest("a.b/two", ""), refused: false},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Create, object: signingRequest("a.b/two", "c"), old: nil, refused: false},
		{resource: "others", sub: "status", op: admission.Update, object: signingRequest("a.b/two", "c"), old: signingRequest("a.b/two", ""), refused: false},
	} {
		err := plugin.Validate(t.Context(), &admission.Request{
			Operation: c.op, Resource: &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: c.resource}}, Subresource: c.sub,
			Object: c.object, OldObject: c.old, User: &request.User{Name: "u"},
		})
		if (err != nil) != c.refused || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s %s/%s from %v to %v: got %v; want an error: %v, of type Forbidden", c.op, c.resource, c.sub, c.old, c.object, err, c.refused)
		}
	}
}
