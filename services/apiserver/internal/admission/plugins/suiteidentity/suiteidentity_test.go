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

func TestReservedSubjects(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := func(subject pkix.Name, change ...func(*certificatesv1.CertificateSigningRequestStatus)) *certificatesv1.CertificateSigningRequest {
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
	unreadable := of(name)
	unreadable.Spec.Request = []byte("x")
	for what, c := range map[string]struct {
		op          admission.Operation
		object, old runtime.Object
		refused     bool
	}{
		"name":                {admission.Create, of(name), nil, true},
		"group":               {admission.Create, of(group), nil, true},
		"first of two names":  {admission.Create, of(twice), nil, true},
		"free":                {admission.Create, of(free), nil, false},
		"unreadable":          {admission.Create, unreadable, nil, false},
		"another kind":        {admission.Create, &corev1.Pod{}, nil, false},
		"approval":            {admission.Update, of(name, approved), of(name), true},
		"approval of another": {admission.Update, of(free, approved), of(free), false},
		"denial":              {admission.Update, of(name, denied), of(name), false},
		"certificate":         {admission.Update, of(name, approved, issued), of(name, approved), true},
		"certificate removed": {admission.Update, of(name, approved), of(name, approved, issued), false},
		"approval undone":     {admission.Update, of(name, condition("Approved", "False")), of(name), false},
		"a label":             {admission.Update, of(name, approved, issued), of(name, approved, issued), false},
		"deletion":            {admission.Delete, nil, of(name), false},
	} {
		err := suiteidentity.Plugin{}.Validate(t.Context(), &admission.Request{
			Operation: c.op, Resource: &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}}, Object: c.object, OldObject: c.old,
		})
		if (err != nil) != c.refused || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
