// Package certificatesigning restricts changes of the certificate and the conditions in the status
// of a CertificateSigningRequest to users with the verb sign on the resource signers of
// certificates.k8s.io, for the name of the signer or for all signers of its domain. It keeps no
// state.
package certificatesigning

import (
	"bytes"
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/security/authz"
)

// Name is the name of the plugin in flags and configuration.
const Name = "CertificateSigning"

// Plugin implements admission.Validator.
type Plugin struct{ Authorizer authz.Authorizer }

// Validate implements admission.Validator. The signer is that of the stored object, whatever the
// request contains.
func (p *Plugin) Validate(ctx context.Context, r *admission.Request) error {
	if !r.Is(certificatesv1.GroupName, "certificatesigningrequests") || r.Subresource != "status" || r.Operation != admission.Update {
		return nil
	}
	csr, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
	old, was := r.OldObject.(*certificatesv1.CertificateSigningRequest)
	switch {
	case !was:
		return refuse(r, "expected type CertificateSigningRequest, got: %T", r.OldObject)
	case !ok:
		return refuse(r, "expected type CertificateSigningRequest, got: %T", r.Object)
	case bytes.Equal(csr.Status.Certificate, old.Status.Certificate) && semantic.Equal(csr.Status.Conditions, old.Status.Conditions):
		return nil
	case !authz.MayOnSigner(ctx, p.Authorizer, r.User, "sign", old.Spec.SignerName):
		return refuse(r, "user not permitted to sign requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}

func refuse(r *admission.Request, format string, args ...any) error {
	return apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, fmt.Errorf(format, args...))
}
