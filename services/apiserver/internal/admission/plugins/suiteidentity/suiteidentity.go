// Package suiteidentity prevents users from obtaining certificates for the identities of binnacle's
// own services, whose permissions are fixed. It rejects CertificateSigningRequests for these
// identities, for any signer. It also prevents the approval of existing requests and the issue of
// their certificates. It keeps no state and cannot be disabled.
package suiteidentity

import (
	"bytes"
	"context"
	"errors"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/kinds/certificates"
)

// Name is the name of the plugin. Flags cannot disable it.
const Name = "SuiteIdentity"

var errReserved = errors.New("user names that begin with " + api.UserSuitePrefix + " and the group " + api.GroupSuite + " are reserved for the suite's own services")

// Plugin implements admission.Validator.
type Plugin struct{}

// Validate implements admission.Validator.
func (Plugin) Validate(_ context.Context, req *admission.Request) error {
	csr, ok := req.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || req.Operation != admission.Create && req.Operation != admission.Update || !requestsReserved(csr.Spec.Request) {
		return nil
	}
	if old, ok := req.OldObject.(*certificatesv1.CertificateSigningRequest); ok && !approvesOrIssues(csr, old) {
		return nil
	}
	return apierrors.NewForbidden(req.Resource.GroupResource(), req.Name, errReserved)
}

// requestsReserved reports whether a certificate request is for a reserved identity. It returns false
// for a request that cannot be parsed, because no signer can sign it.
func requestsReserved(request []byte) bool {
	parsed, err := certificates.ParseRequest(request)
	if err != nil {
		return false
	}
	// All names are checked, even repeated ones, because a signer may use another one than this
	// server does.
	for _, attribute := range parsed.Subject.Names {
		if text, ok := attribute.Value.(string); ok && api.IsSuite(text, []string{text}) {
			return true
		}
	}
	return false
}

// approvesOrIssues reports whether an update approves a request or changes its certificate.
func approvesOrIssues(csr, old *certificatesv1.CertificateSigningRequest) bool {
	return isApproved(csr) && !isApproved(old) ||
		len(csr.Status.Certificate) > 0 && !bytes.Equal(csr.Status.Certificate, old.Status.Certificate)
}

// isApproved reports whether a request has the condition Approved.
func isApproved(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved && c.Status != corev1.ConditionFalse
	})
}
