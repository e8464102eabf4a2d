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

// TestReservedSubjects rejects certificate signing requests for the identities of the suite's own
// services.
func TestReservedSubjects(t *testing.T) {
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
	free := pkix.Name{CommonName: "u"}
	name := pkix.Name{CommonName: "system:binnacle:x"}
	group := pkix.Name{Organization: []string{"system:binnacle"}}
	twice := pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "system:binnacle:x"}, {Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "u"},
	}}
	unreadable := signingRequest(name)
	unreadable.Spec.Request = []byte("x")
	for what, c := range map[string]struct {
		op          admission.Operation
		object, old runtime.Object
		rejected    bool
	}{
		"name":                {op: admission.Create, object: signingRequest(name), old: nil, rejected: true},
		"group":               {op: admission.Create, object: signingRequest(group), old: nil, rejected: true},
		"first of two names":  {op: admission.Create, object: signingRequest(twice), old: nil, rejected: true},
		"free":                {op: admission.Create, object: signingRequest(free), old: nil, rejected: false},
		"unreadable":          {op: admission.Create, object: unreadable, old: nil, rejected: false},
		"another kind":        {op: admission.Create, object: &corev1.Pod{}, old: nil, rejected: false},
		"approval":            {op: admission.Update, object: signingRequest(name, approved), old: signingRequest(name), rejected: true},
		"approval of another": {op: admission.Update, object: signingRequest(free, approved), old: signingRequest(free), rejected: false},
		"denial":              {op: admission.Update, object: signingRequest(name, denied), old: signingRequest(name), rejected: false},
		"certificate": {
			op: admission.Update, object: signingRequest(name, approved, issued),
			old: signingRequest(name, approved), rejected: true,
		},
		"certificate removed": {
			op: admission.Update, object: signingRequest(name, approved),
			old: signingRequest(name, approved, issued), rejected: false,
		},
		"approval undone": {
			op: admission.Update, object: signingRequest(name, condition("Approved", "False")),
			old: signingRequest(name), rejected: false,
		},
		"a label": {
			op: admission.Update, object: signingRequest(name, approved, issued),
			old: signingRequest(name, approved, issued), rejected: false,
		},
		"deletion": {op: admission.Delete, object: nil, old: signingRequest(name), rejected: false},
	} {
		err := suiteidentity.Plugin{}.Validate(t.Context(), &admission.Request{
			Operation: c.op,
			Resource:  &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}},
			Object:    c.object,
			OldObject: c.old,
		})
		if (err != nil) != c.rejected || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v; want an error: %v, of type Forbidden", what, err, c.rejected)
		}
	}
}
