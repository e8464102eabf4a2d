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

// signers is an authorizer that permits user u to sign requests to the signers that it holds. It
// returns an error for the signer broken/one.
type signers []string

func (s signers) Authorize(_ context.Context, attributes *authz.Attributes) (authz.Decision, string, error) {
	if attributes.Name == "broken/one" {
		return authz.Allow, "", errors.New("no answer")
	}
	if attributes.User.Name != "u" || attributes.Verb != "sign" || !attributes.Resource || attributes.Group != "certificates.k8s.io" || attributes.ResourceName != "signers" ||
		attributes.Namespace != "" {
		return authz.Deny, "", nil
	}
	if slices.Contains(s, attributes.Name) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// signingRequest returns a request to a signer. certificate is the issued certificate, or "". Each
// condition is the type of a condition with the status True.
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
	for name, test := range map[string]struct {
		resource, subresource string
		operation             admission.Operation
		object, old           runtime.Object
		wantForbidden         bool
	}{
		"certificate of a permitted signer": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/one", "c"), old: signingRequest("a.b/one", ""), wantForbidden: false,
		},
		"certificate of a permitted domain": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("c.d/any", "c"), old: signingRequest("c.d/any", ""), wantForbidden: false,
		},
		"signer of the old object counts": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/one", "c"), old: signingRequest("a.b/two", ""), wantForbidden: true,
		},
		"certificate of another signer": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/two", "c"), old: signingRequest("a.b/two", ""), wantForbidden: true,
		},
		"removed certificate": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/two", ""), old: signingRequest("a.b/two", "c"), wantForbidden: true,
		},
		"added Failed condition": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/two", "", "Failed"), old: signingRequest("a.b/two", ""), wantForbidden: true,
		},
		"authorizer fails": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("broken/one", "c"), old: signingRequest("broken/one", ""), wantForbidden: true,
		},
		"unchanged certificate is not checked": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/two", "c", "Approved"), old: signingRequest("a.b/two", "c", "Approved"),
			wantForbidden: false,
		},
		"new object of another type": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: &corev1.Pod{}, old: signingRequest("a.b/one", ""), wantForbidden: true,
		},
		"old object of another type": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/one", ""), old: &corev1.Pod{}, wantForbidden: true,
		},
		"approval is not checked": {
			resource: "certificatesigningrequests", subresource: "approval", operation: admission.Update,
			object: signingRequest("a.b/two", "c"), old: signingRequest("a.b/two", ""), wantForbidden: false,
		},
		"create is not checked": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Create,
			object: signingRequest("a.b/two", "c"), old: nil, wantForbidden: false,
		},
		"other resource is not checked": {
			resource: "others", subresource: "status", operation: admission.Update,
			object: signingRequest("a.b/two", "c"), old: signingRequest("a.b/two", ""), wantForbidden: false,
		},
	} {
		err := plugin.Validate(t.Context(), &admission.Request{
			Operation:   test.operation,
			Resource:    &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: test.resource}},
			Subresource: test.subresource,
			Object:      test.object,
			OldObject:   test.old,
			User:        &request.User{Name: "u"},
		})
		if apierrors.IsForbidden(err) != test.wantForbidden || err != nil && !test.wantForbidden {
			t.Errorf("%s: got error %v, want a Forbidden error: %t", name, err, test.wantForbidden)
		}
	}
}
