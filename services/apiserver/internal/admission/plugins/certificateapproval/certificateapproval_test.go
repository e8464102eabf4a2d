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

// signers is an authorizer that permits user u to approve requests to the signers that it holds. It
// returns an error for the signer broken/one.
type signers []string

func (s signers) Authorize(_ context.Context, attributes *authz.Attributes) (authz.Decision, string, error) {
	if attributes.Name == "broken/one" {
		return authz.Allow, "", errors.New("no answer")
	}
	if attributes.User.Name != "u" || attributes.Verb != "approve" || !attributes.Resource || attributes.Group != "certificates.k8s.io" ||
		attributes.ResourceName != "signers" ||
		attributes.Namespace != "" {
		return authz.Deny, "", nil
	}
	if slices.Contains(s, attributes.Name) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// signingRequest returns a request to a signer.
func signingRequest(signer string) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}
}

// TestApprovalRequiresPermissionForSigner checks that only updates of the approval subresource
// require the permission to approve for the signer of the stored object.
func TestApprovalRequiresPermissionForSigner(t *testing.T) {
	plugin := &certificateapproval.Plugin{Authorizer: signers{"a.b/one", "c.d/*"}}
	for name, test := range map[string]struct {
		resource, subresource string
		operation             admission.Operation
		old                   runtime.Object
		wantForbidden         bool
	}{
		"permitted signer": {
			resource: "certificatesigningrequests", subresource: "approval", operation: admission.Update,
			old: signingRequest("a.b/one"), wantForbidden: false,
		},
		"other signer of the domain": {
			resource: "certificatesigningrequests", subresource: "approval", operation: admission.Update,
			old: signingRequest("a.b/two"), wantForbidden: true,
		},
		"signer of a permitted domain": {
			resource: "certificatesigningrequests", subresource: "approval", operation: admission.Update,
			old: signingRequest("c.d/any"), wantForbidden: false,
		},
		"signer of a subdomain": {
			resource: "certificatesigningrequests", subresource: "approval", operation: admission.Update,
			old: signingRequest("x.c.d/any"), wantForbidden: true,
		},
		"authorizer fails": {
			resource: "certificatesigningrequests", subresource: "approval", operation: admission.Update,
			old: signingRequest("broken/one"), wantForbidden: true,
		},
		"object of another type": {
			resource: "certificatesigningrequests", subresource: "approval", operation: admission.Update,
			old: &corev1.Pod{}, wantForbidden: true,
		},
		"create is not checked": {
			resource: "certificatesigningrequests", subresource: "approval", operation: admission.Create,
			old: signingRequest("a.b/two"), wantForbidden: false,
		},
		"status is not checked": {
			resource: "certificatesigningrequests", subresource: "status", operation: admission.Update,
			old: signingRequest("a.b/two"), wantForbidden: false,
		},
		"main resource is not checked": {
			resource: "certificatesigningrequests", subresource: "", operation: admission.Update,
			old: signingRequest("a.b/two"), wantForbidden: false,
		},
		"other resource is not checked": {
			resource: "others", subresource: "approval", operation: admission.Update,
			old: signingRequest("a.b/two"), wantForbidden: false,
		},
	} {
		err := plugin.Validate(t.Context(), &admission.Request{
			Operation:   test.operation,
			Resource:    &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: test.resource}},
			Subresource: test.subresource,
			Object:      signingRequest("a.b/one"),
			OldObject:   test.old,
			User:        &request.User{Name: "u"},
		})
		if apierrors.IsForbidden(err) != test.wantForbidden || err != nil && !test.wantForbidden {
			t.Errorf("%s: got error %v, want a Forbidden error: %t", name, err, test.wantForbidden)
		}
	}
}
