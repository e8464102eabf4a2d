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
func (p *Plugin) Validate(ctx context.Context, r *admission.Request) error {
	if !r.IsResource(certificatesv1.GroupName, "clustertrustbundles") ||
		r.Operation != admission.Create && r.Operation != admission.Update {
		return nil
	}
	var signer string
	switch bundle := r.Object.(type) {
	case *certificatesv1beta1.ClusterTrustBundle:
		signer = bundle.Spec.SignerName
	case *certificatesv1alpha1.ClusterTrustBundle:
		signer = bundle.Spec.SignerName
	default:
		return r.Forbiddenf("expected type ClusterTrustBundle, got: %T", r.Object)
	}
	switch {
	case signer == "":
		return nil
	case r.Operation == admission.Update && r.IsMetadataOnlyUpdate():
		return nil
	case !authz.MayOnSigner(ctx, p.Authorizer, r.User, "attest", signer):
		return r.Forbiddenf("user not permitted to attest for signerName %q", signer)
	}
	return nil
}
