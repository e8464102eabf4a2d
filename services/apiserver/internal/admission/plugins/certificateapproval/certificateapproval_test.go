package certificateapproval_test

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
	"binnacle/services/apiserver/internal/admission/plugins/certificateapproval"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
)

// signers are the names of signers whose requests may be approved. The authorizer fails for
// "broken/one".
type signers []string

func (s signers) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	if a.Name == "broken/one" {
		return authz.Allow, "", errors.New("no answer")
	}
	if a.User.Name != "u" || a.Verb != "approve" || !a.Resource || a.Group != "certificates.k8s.io" || a.ResourceName != "signers" || a.Namespace != "" {
		return authz.Deny, "", nil
	}
	if slices.Contains(s, a.Name) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

func signingRequest(signer string) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}
}

func TestApproval(t *testing.T) {
	plugin := &certificateapproval.Plugin{Authorizer: signers{"a.b/one", "c.d/*"}}
	for _, c := range []struct {
		resource, sub string
		op            admission.Operation
		old           runtime.Object
		refused       bool
	}{
		{resource: "certificatesigningrequests", sub: "approval", op: admission.Update, old: signingRequest("a.b/one"), refused: false},
		{resource: "certificatesigningrequests", sub: "approval", op: admission.Update, old: signingRequest("a.b/two"), refused: true},
		{resource: "certificatesigningrequests", sub: "approval", op: admission.Update, old: signingRequest("c.d/any"), refused: false},
		{resource: "certificatesigningrequests", sub: "approval", op: admission.Update, old: signingRequest("x.c.d/any"), refused: true},
		{resource: "certificatesigningrequests", sub: "approval", op: admission.Update, old: signingRequest("broken/one"), refused: true},
		{resource: "certificatesigningrequests", sub: "approval", op: admission.Update, old: &corev1.Pod{}, refused: true},
		{resource: "certificatesigningrequests", sub: "approval", op: admission.Create, old: signingRequest("a.b/two"), refused: false},
		{resource: "certificatesigningrequests", sub: "status", op: admission.Update, old: signingRequest("a.b/two"), refused: false},
		{resource: "certificatesigningrequests", sub: "", op: admission.Update, old: signingRequest("a.b/two"), refused: false},
		{resource: "others", sub: "approval", op: admission.Update, old: signingRequest("a.b/two"), refused: false},
	} {
		err := plugin.Validate(t.Context(), &admission.Request{
			Operation: c.op, Resource: &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: c.resource}}, Subresource: c.sub,
			Object: signingRequest("a.b/one"), OldObject: c.old, User: &request.User{Name: "u"},
		})
		if (err != nil) != c.refused || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s %s/%s of %v: got %v; want an error: %v, of type Forbidden", c.op, c.resource, c.sub, c.old, err, c.refused)
		}
	}
}
