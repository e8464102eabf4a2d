package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

const (
	certificateBlock = "CERTIFICATE"
	requestBlock     = "CERTIFICATE REQUEST"
	legacySigner     = "kubernetes.io/legacy-unknown"
	// shortestCertificate is the minimum lifetime in seconds.
	shortestCertificate = 600
)

// usages holds the valid usages, in the order of messages.
var usages = []certificatesv1.KeyUsage{
	certificatesv1.UsageAny, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth,
	certificatesv1.UsageCodeSigning, certificatesv1.UsageContentCommitment, certificatesv1.UsageCRLSign,
	certificatesv1.UsageDataEncipherment, certificatesv1.UsageDecipherOnly,
	certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection, certificatesv1.UsageEncipherOnly,
	certificatesv1.UsageIPsecEndSystem,
	certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser, certificatesv1.UsageKeyAgreement,
	certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning, certificatesv1.UsageSMIME,
	certificatesv1.UsageServerAuth, certificatesv1.UsageSigning, certificatesv1.UsageTimestamping,
}

// validateRequest validates a request. old is nil at creation. Violations that the old one has from
// before a rule existed may stay.
func validateRequest(fld validate.Field, request, old *certificatesv1.CertificateSigningRequest) {
	spec := fld.Child("spec")
	if err := parseRequest(request.Spec.Request); err != nil {
		spec.Invalid("request", request.Spec.Request, err.Error())
	}
	spec.RequireSet("usages", len(request.Spec.Usages) > 0)
	if old == nil {
		seen := validate.Set[certificatesv1.KeyUsage]{}
		validate.Each(
			spec,
			"usages",
			request.Spec.Usages,
			func(fld validate.Field, u *certificatesv1.KeyUsage) { validate.OneOf(fld, "", *u, usages...) },
		)
		validate.Each(
			spec,
			"usages",
			request.Spec.Usages,
			func(fld validate.Field, u *certificatesv1.KeyUsage) { validate.Unique(fld, "", *u, seen) },
		)
	}
	if request.Spec.SignerName == legacySigner && (old == nil || old.Spec.SignerName != legacySigner) {
		spec.Invalid("signerName", request.Spec.SignerName, "the legacy signerName is not allowed via this API version")
	} else {
		spec.CheckSignerName("signerName", request.Spec.SignerName)
	}
	if n := request.Spec.ExpirationSeconds; n != nil && *n < shortestCertificate {
		spec.Invalid("expirationSeconds", *n, "may not specify a duration less than 600 seconds (10 minutes)")
	}
	validateConditions(fld.Child("status"), request, old)
	if err := parseCertificates(request.Status.Certificate); err != nil &&
		(old == nil || parseCertificates(old.Status.Certificate) == nil) {
		fld.Child("status").Invalid("certificate", "<certificate data>", err.Error())
	}
}

func parseRequest(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != requestBlock {
		return errors.New("PEM block type must be " + requestBlock)
	}
	_, err := x509.ParseCertificateRequest(block.Bytes)
	return err
}

// parseCertificates parses certificates in PEM. It ignores text between them.
func parseCertificates(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	blocks := 0
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != certificateBlock {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) != 0 {
			return errors.New("no PEM block headers are permitted")
		}
		blocks++
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		data = rest
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

// validateConditions requires at most one condition of each type, and not both an approval and a
// denial.
func validateConditions(fld validate.Field, request, old *certificatesv1.CertificateSigningRequest) {
	const approved, denied = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied
	retained := struct{ noType, status, both, twice bool }{}
	if old != nil {
		found := validate.Check(func(fld validate.Field) { validateConditions(fld.Child("status"), old, nil) })
		for _, e := range found {
			retained.noType = retained.noType || strings.HasSuffix(e.Field, "type") && e.Type == "FieldValueRequired"
			retained.status = retained.status || strings.HasSuffix(e.Field, "status")
			retained.both = retained.both || strings.HasSuffix(e.Field, "type") && e.Type == "FieldValueInvalid"
			retained.twice = retained.twice || e.Type == "FieldValueDuplicate"
		}
	}
	seen := validate.Set[certificatesv1.RequestConditionType]{}
	validate.Each(
		fld,
		"conditions",
		request.Status.Conditions,
		func(fld validate.Field, condition *certificatesv1.CertificateSigningRequestCondition) {
			fld.RequireSet("type", condition.Type != "" || retained.noType)
			switch {
			case retained.status:
			case condition.Type == approved || condition.Type == denied || condition.Type == certificatesv1.CertificateFailed:
				validate.RequiredOneOf(fld, "status", condition.Status, corev1.ConditionTrue)
			default:
				validate.RequiredOneOf(fld, "status", condition.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)
			}
			if !retained.both && (condition.Type == approved && seen.Has(denied) || condition.Type == denied && seen.Has(approved)) {
				fld.Invalid("type", condition.Type, "Approved and Denied conditions are mutually exclusive")
			}
			if !seen.Add(condition.Type) && !retained.twice {
				fld.Duplicate("type", condition.Type)
			}
		},
	)
}

// updateRules selects the changes that an update of a CertificateSigningRequest may make. They depend
// on the subresource.
type updateRules struct {
	mayDecide bool // add a condition Approved or Denied
	mayIssue  bool // set a certificate that is not set yet
}

// validate validates an update. It rejects changes of decisions and certificates that the rules do
// not allow.
func (u updateRules) validate(fld validate.Field, r, old *certificatesv1.CertificateSigningRequest) {
	validateRequest(fld, r, old)
	status := fld.Child("status")
	for _, conditionType := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		now, before := len(conditionsOf(r, conditionType)), len(conditionsOf(old, conditionType))
		status.ForbidSet("conditions", now < before, fmt.Sprintf("updates may not remove a condition of type %q", conditionType))
		status.ForbidSet("conditions", now > before && conditionType != certificatesv1.CertificateFailed && !u.mayDecide,
			fmt.Sprintf("updates may not add a condition of type %q", conditionType))
	}
	if bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		return
	}
	status.ForbidSet("certificate", !u.mayIssue, "updates may not set certificate content")
	status.ForbidSet("certificate", u.mayIssue && len(old.Status.Certificate) > 0,
		"updates may not modify existing certificate content")
}
