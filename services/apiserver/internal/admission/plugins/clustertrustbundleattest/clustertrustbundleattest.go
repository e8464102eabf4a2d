// Package clustertrustbundleattest restricts writes of a signer's ClusterTrustBundle to users with
// the verb attest on the resource signers of certificates.k8s.io, for the name of the signer or for
// all signers of its domain. It keeps no state.
package clustertrustbundleattest

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/security/authz"
)

// Name is the name of the plugin in flags and configuration.
const Name = "ClusterTrustBundleAttest"

// Plugin implements admission.Validator.
type Plugin struct{ Authorizer authz.Authorizer }

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if !req.IsResource(certificatesv1.GroupName, "clustertrustbundles") ||
		req.Operation != admission.Create && req.Operation != admission.Update {
		return nil
	}
	var signer string
	switch bundle := req.Object.(type) {
	case *certificatesv1beta1.ClusterTrustBundle:
		signer = bundle.Spec.SignerName
	case *certificatesv1alpha1.ClusterTrustBundle:
		signer = bundle.Spec.SignerName
	default:
		return req.Forbiddenf("expected type ClusterTrustBundle, got: %T", req.Object)
	}
	switch {
	case signer == "":
		return nil
	case req.Operation == admission.Update && req.IsMetadataOnlyUpdate():
		return nil
	case !authz.MayOnSigner(ctx, p.Authorizer, req.User, "attest", signer):
		return req.Forbiddenf("user not permitted to attest for signerName %q", signer)
	}
	return nil
}
