// Package certificatesubjectrestriction rejects requests for client certificates in the group
// system:masters, whose members may do everything regardless of policy. It keeps no state.
package certificatesubjectrestriction

import (
	"context"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/kinds/certificates"
)

// Name is the name of the plugin in flags and configuration.
const Name = "CertificateSubjectRestriction"

// Plugin implements admission.Validator.
type Plugin struct{}

// Validate implements admission.Validator.
func (Plugin) Validate(_ context.Context, req *admission.Request) error {
	if !req.IsResource(certificatesv1.GroupName, "certificatesigningrequests") || req.Subresource != "" ||
		req.Operation != admission.Create {
		return nil
	}
	csr, ok := req.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return req.Forbiddenf("expected type CertificateSigningRequest, got: %T", req.Object)
	}
	const signer = certificatesv1.KubeAPIServerClientSignerName
	if csr.Spec.SignerName != signer {
		return nil
	}
	request, err := certificates.ParseRequest(csr.Spec.Request)
	if err != nil {
		return req.Forbiddenf("failed to parse CSR: %w", err)
	}
	if slices.Contains(request.Subject.Organization, api.GroupMasters) {
		return req.Forbiddenf("use of %s signer with %s group is not allowed", signer, api.GroupMasters)
	}
	return nil
}
