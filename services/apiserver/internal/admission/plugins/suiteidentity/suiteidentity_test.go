package suiteidentity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/suiteidentity"
	"binnacle/services/apiserver/internal/registry"
)

// TestReservedSubjectsAreRejected checks that requests for certificates with the identities of the
// suite's own services can be neither created nor approved, and that no certificate can be issued
// for them.
func TestReservedSubjectsAreRejected(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signingRequest := func(subject pkix.Name, change ...func(*certificatesv1.CertificateSigningRequestStatus)) *certificatesv1.CertificateSigningRequest {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
		if err != nil {
			t.Fatal(err)
		}
		r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		}}
		for _, f := range change {
			f(&r.Status)
		}
		return r
	}
	condition := func(typ certificatesv1.RequestConditionType, status corev1.ConditionStatus) func(*certificatesv1.CertificateSigningRequestStatus) {
		return func(s *certificatesv1.CertificateSigningRequestStatus) {
			s.Conditions = append(s.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: typ, Status: status})
		}
	}
	issued := func(s *certificatesv1.CertificateSigningRequestStatus) { s.Certificate = []byte("c") }
	approved, denied := condition("Approved", "True"), condition("Denied", "True")
	unreserved := pkix.Name{CommonName: "u"}
	reservedName := pkix.Name{CommonName: "system:binnacle:x"}
	reservedGroup := pkix.Name{Organization: []string{"system:binnacle"}}
	twoNames := pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "system:binnacle:x"}, {Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "u"},
	}}
	unreadable := signingRequest(reservedName)
	unreadable.Spec.Request = []byte("x")
	for name, test := range map[string]struct {
		op          admission.Operation
		object, old runtime.Object
		wantErr     bool
	}{
		"create with a reserved name":              {op: admission.Create, object: signingRequest(reservedName), old: nil, wantErr: true},
		"create with a reserved group":             {op: admission.Create, object: signingRequest(reservedGroup), old: nil, wantErr: true},
		"create with a reserved first name of two": {op: admission.Create, object: signingRequest(twoNames), old: nil, wantErr: true},
		"create with an unreserved name":           {op: admission.Create, object: signingRequest(unreserved), old: nil, wantErr: false},
		"create with an unreadable request":        {op: admission.Create, object: unreadable, old: nil, wantErr: false},
		"create of another kind":                   {op: admission.Create, object: &corev1.Pod{}, old: nil, wantErr: false},
		"approval":                                 {op: admission.Update, object: signingRequest(reservedName, approved), old: signingRequest(reservedName), wantErr: true},
		"approval of an unreserved name":           {op: admission.Update, object: signingRequest(unreserved, approved), old: signingRequest(unreserved), wantErr: false},
		"denial":                                   {op: admission.Update, object: signingRequest(reservedName, denied), old: signingRequest(reservedName), wantErr: false},
		"issued certificate": {
			op: admission.Update, object: signingRequest(reservedName, approved, issued),
			old: signingRequest(reservedName, approved), wantErr: true,
		},
		"removed certificate": {
			op: admission.Update, object: signingRequest(reservedName, approved),
			old: signingRequest(reservedName, approved, issued), wantErr: false,
		},
		"approval set to false": {
			op: admission.Update, object: signingRequest(reservedName, condition("Approved", "False")),
			old: signingRequest(reservedName), wantErr: false,
		},
		"unchanged status": {
			op: admission.Update, object: signingRequest(reservedName, approved, issued),
			old: signingRequest(reservedName, approved, issued), wantErr: false,
		},
		"delete": {op: admission.Delete, object: nil, old: signingRequest(reservedName), wantErr: false},
	} {
		err := suiteidentity.Plugin{}.Validate(t.Context(), &admission.Request{
			Operation: test.op,
			Resource:  &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}},
			Object:    test.object,
			OldObject: test.old,
		})
		if (err != nil) != test.wantErr || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: got error %v, want a Forbidden error: %t", name, err, test.wantErr)
		}
	}
}
