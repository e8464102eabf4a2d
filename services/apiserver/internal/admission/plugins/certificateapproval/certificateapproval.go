// Package certificateapproval restricts the approval and denial of a CertificateSigningRequest to
// users with the verb approve on the resource signers of certificates.k8s.io, for the name of the
// signer or for all signers of its domain. It keeps no state.
package certificateapproval

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/security/authz"
)

// Name is the name of the plugin in flags and configuration.
const Name = "CertificateApproval"

// Plugin implements admission.Validator.
type Plugin struct{ Authorizer authz.Authorizer }

// Validate implements admission.Validator. It checks the signer of the stored object, because the
// request may name another one.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if !req.IsResource(certificatesv1.GroupName, "certificatesigningrequests") || req.Subresource != "approval" ||
		req.Operation != admission.Update {
		return nil
	}
	old, ok := req.OldObject.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return req.Forbiddenf("expected type CertificateSigningRequest, got: %T", req.OldObject)
	}
	if !authz.MayOnSigner(ctx, p.Authorizer, req.User, "approve", old.Spec.SignerName) {
		return req.Forbiddenf("user not permitted to approve requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}
