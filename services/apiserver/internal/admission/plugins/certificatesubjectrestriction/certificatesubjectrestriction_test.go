package certificatesubjectrestriction_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/certificatesubjectrestriction"
	"binnacle/services/apiserver/internal/registry"
)

// TestClientCertificatesForMastersAreRejected checks that a request for a client certificate is
// rejected if the certificate is for the group system:masters.
func TestClientCertificatesForMastersAreRejected(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signingRequest := func(signer string, groups ...string) *certificatesv1.CertificateSigningRequest {
		der, err := x509.CreateCertificateRequest(
			rand.Reader,
			&x509.CertificateRequest{Subject: pkix.Name{CommonName: "u", Organization: groups}},
			key,
		)
		if err != nil {
			t.Fatal(err)
		}
		return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		}}
	}
	const client = certificatesv1.KubeAPIServerClientSignerName
	broken := signingRequest(client)
	broken.Spec.Request = []byte("no PEM")
	for _, test := range []struct {
		name                  string
		resource, subresource string
		op                    admission.Operation
		object                runtime.Object
		want                  string // part of the error; empty when admitted
	}{
		{
			name: "client certificate of another group", resource: "certificatesigningrequests", subresource: "", op: admission.Create,
			object: signingRequest(client, "dev"),
			want:   "",
		},
		{
			name: "client certificate for masters", resource: "certificatesigningrequests", subresource: "", op: admission.Create,
			object: signingRequest(client, "dev", "system:masters"),
			want:   "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
		},
		{
			name: "other signer", resource: "certificatesigningrequests", subresource: "", op: admission.Create,
			object: signingRequest("ex.test/s", "system:masters"),
			want:   "",
		},
		{
			name: "request is not PEM", resource: "certificatesigningrequests", subresource: "", op: admission.Create, object: broken,
			want: "failed to parse CSR: PEM block type must be CERTIFICATE REQUEST",
		},
		{
			name: "object of another type", resource: "certificatesigningrequests", subresource: "", op: admission.Create, object: &corev1.Pod{},
			want: "expected type CertificateSigningRequest, got: *v1.Pod",
		},
		{
			name: "update", resource: "certificatesigningrequests", subresource: "", op: admission.Update,
			object: signingRequest(client, "system:masters"),
			want:   "",
		},
		{
			name: "subresource", resource: "certificatesigningrequests", subresource: "status", op: admission.Create,
			object: signingRequest(client, "system:masters"),
			want:   "",
		},
		{
			name: "other resource", resource: "others", subresource: "", op: admission.Create,
			object: signingRequest(client, "system:masters"),
			want:   "",
		},
	} {
		err := certificatesubjectrestriction.Plugin{}.Validate(t.Context(), &admission.Request{
			Operation:   test.op,
			Resource:    &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: test.resource}},
			Subresource: test.subresource,
			Object:      test.object,
			Name:        "r",
		})
		if (err == nil) != (test.want == "") || err != nil && (!apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), test.want)) {
			t.Errorf("%s: got error %v, want a Forbidden error with the suffix %q, or none if that is empty", test.name, err, test.want)
		}
	}
	unnamed := signingRequest(client, "system:masters")
	unnamed.GenerateName = "g-"
	err = certificatesubjectrestriction.Plugin{}.Validate(t.Context(), &admission.Request{
		Operation: admission.Create,
		Resource:  &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}},
		Object:    unnamed,
	})
	if want := `certificatesigningrequests.certificates.k8s.io "g-" is forbidden`; err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("request with a generated name: got error %v, want the prefix %q", err, want)
	}
}
