// Package certificatesigning restricts changes of the certificate and the conditions in the status
// of a CertificateSigningRequest to users with the verb sign on the resource signers of
// certificates.k8s.io, for the name of the signer or for all signers of its domain. It keeps no
// state.
package certificatesigning

import (
	"bytes"
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/security/authz"
)

// Name is the name of the plugin in flags and configuration.
const Name = "CertificateSigning"

// Plugin implements admission.Validator.
type Plugin struct{ Authorizer authz.Authorizer }

// Validate implements admission.Validator. It checks the signer of the stored object, because the
// request may name another one.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if !req.IsResource(certificatesv1.GroupName, "certificatesigningrequests") || req.Subresource != "status" ||
		req.Operation != admission.Update {
		return nil
	}
	csr, ok := req.Object.(*certificatesv1.CertificateSigningRequest)
	old, oldOK := req.OldObject.(*certificatesv1.CertificateSigningRequest)
	switch {
	case !oldOK:
		return req.Forbiddenf("expected type CertificateSigningRequest, got: %T", req.OldObject)
	case !ok:
		return req.Forbiddenf("expected type CertificateSigningRequest, got: %T", req.Object)
	case bytes.Equal(csr.Status.Certificate, old.Status.Certificate) && semantic.Equal(csr.Status.Conditions, old.Status.Conditions):
		return nil
	case !authz.MayOnSigner(ctx, p.Authorizer, req.User, "sign", old.Spec.SignerName):
		return req.Forbiddenf("user not permitted to sign requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}
