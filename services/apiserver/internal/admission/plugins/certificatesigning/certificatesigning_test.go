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
	if a.User.Name != "u" || a.Verb != "sign" || !a.Resource || a.Group != "certificates.k8s.io" || a.ResourceName != "signers" ||
		a.Namespace != "" {
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
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.RequestConditionType(c), Status: corev1.ConditionTrue,
		})
	}
	return r
}

// TestSigningRequiresPermissionForSigner checks that only changes of the certificate and of the
// Failed condition require the permission to sign for the signer.
func TestSigningRequiresPermissionForSigner(t *testing.T) {
	plugin := &certificatesigning.Plugin{Authorizer: signers{"a.b/one", "c.d/*"}}
	for name, c := range map[string]struct {
		resource, subresource string
		operation             admission.Operation
		object, old           runtime.Object
		forbidden             bool
	}{
		"certificate of a permitted signer": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/one", "c"), old: signingRequest("a.b/one", ""), forbidden: false,
		},
		"certificate of a permitted domain": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("c.d/any", "c"), old: signingRequest("c.d/any", ""), forbidden: false,
		},
		"signer of the old object counts": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/one", "c"), old: signingRequest("a.b/two", ""), forbidden: true,
		},
		"certificate of another signer": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/two", "c"), old: signingRequest("a.b/two", ""), forbidden: true,
		},
		"removed certificate": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/two", ""), old: signingRequest("a.b/two", "c"), forbidden: true,
		},
		"added Failed condition": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/two", "", "Failed"), old: signingRequest("a.b/two", ""), forbidden: true,
		},
		"authorizer fails": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("broken/one", "c"), old: signingRequest("broken/one", ""), forbidden: true,
		},
		"unchanged certificate is not checked": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/two", "c", "Approved"), old: signingRequest("a.b/two", "c", "Approved"),
			forbidden: false,
		},
		"new object of another type": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: &corev1.Pod{}, old: signingRequest("a.b/one", ""), forbidden: true,
		},
		"old object of another type": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/one", ""), old: &corev1.Pod{}, forbidden: true,
		},
		"approval is not checked": {
			resource: "certificatesigningrequests", subresource: "approval", operation: admission.Update,
			object: signingRequest("a.b/two", "c"), old: signingRequest("a.b/two", ""), forbidden: false,
		},
		"create is not checked": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Create,
			object: signingRequest("a.b/two", "c"), old: nil, forbidden: false,
		},
		"other resource is not checked": {
			resource: "others", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/two", "c"), old: signingRequest("a.b/two", ""), forbidden: false,
		},
	} {
		err := plugin.Validate(t.Context(), &admission.Request{
			Operation:   c.operation,
			Resource:    &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: c.resource}},
			Subresource: c.subresource,
			Object:      c.object,
			OldObject:   c.old,
			User:        &request.User{Name: "u"},
		})
		if apierrors.IsForbidden(err) != c.forbidden || err != nil && !c.forbidden {
			t.Errorf("%s: Validate = %v, want Forbidden: %t", name, err, c.forbidden)
		}
	}
}
