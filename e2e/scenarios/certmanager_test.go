package scenarios

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// managedCertificate is the part of a Certificate of cert-manager that the chart uses.
type managedCertificate struct {
	Spec struct {
		SecretName string `json:"secretName"`
		CommonName string `json:"commonName"`
		Subject    struct {
			Organizations []string `json:"organizations"`
		} `json:"subject"`
		DNSNames    []string `json:"dnsNames"`
		IPAddresses []string `json:"ipAddresses"`
		Usages      []string `json:"usages"`
		IsCA        bool     `json:"isCA"`
		PrivateKey  struct {
			Algorithm string `json:"algorithm"`
			Size      int    `json:"size"`
		} `json:"privateKey"`
		IssuerRef struct {
			Name string `json:"name"`
		} `json:"issuerRef"`
	} `json:"spec"`
}

// managedIssuer is an Issuer of cert-manager: self-signed if it has no CA.
type managedIssuer struct {
	Spec struct {
		CA *struct {
			SecretName string `json:"secretName"`
		} `json:"ca"`
	} `json:"spec"`
}

// certManager creates the Secrets of Certificates as cert-manager does.
type certManager struct {
	t            *testing.T
	certificates map[string]*managedCertificate // by the name of the Secret
	issuers      map[string]*managedIssuer
	issued       map[string]*issuedPair // by the name of the Secret
}

// issuedPair is a certificate, its key and the certificate of its issuer, in DER.
type issuedPair struct {
	certificate *x509.Certificate
	key         crypto.Signer
	keyBlock    *pem.Block
	issuer      []byte
}

// managedSecrets returns the Secrets of the Certificates of objects.
func managedSecrets(t *testing.T, objects []*unstructured.Unstructured) map[string]map[string][]byte {
	t.Helper()
	manager := &certManager{t, map[string]*managedCertificate{}, map[string]*managedIssuer{}, map[string]*issuedPair{}}
	for _, object := range objects {
		switch object.GetKind() {
		case "Certificate":
			c := convert[managedCertificate](t, object)
			manager.certificates[c.Spec.SecretName] = c
		case "Issuer":
			manager.issuers[object.GetName()] = convert[managedIssuer](t, object)
		}
	}
	secrets := map[string]map[string][]byte{}
	for name := range manager.certificates {
		p := manager.issuePair(name)
		secrets[name] = map[string][]byte{
			corev1.TLSCertKey:              pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.certificate.Raw}),
			corev1.TLSPrivateKeyKey:        pem.EncodeToMemory(p.keyBlock),
			corev1.ServiceAccountRootCAKey: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.issuer}),
		}
	}
	return secrets
}

// issuePair returns the pair of a Secret. It issues the pair, and before it that of the CA, if it
// has not done so.
func (m *certManager) issuePair(secret string) *issuedPair {
	m.t.Helper()
	if issued := m.issued[secret]; issued != nil {
		return issued
	}
	certificate := m.certificates[secret]
	if certificate == nil || m.issuers[certificate.Spec.IssuerRef.Name] == nil {
		m.t.Fatalf("no Certificate or Issuer creates the Secret %s", secret)
	}
	issued := &issuedPair{}
	issued.key, issued.keyBlock = m.newKey(certificate)
	template := m.newTemplate(certificate)
	parent, signer := template, issued.key
	if ca := m.issuers[certificate.Spec.IssuerRef.Name].Spec.CA; ca != nil {
		by := m.issuePair(ca.SecretName)
		parent, signer = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, issued.key.Public(), signer)
	if err != nil {
		m.t.Fatal(err)
	}
	if issued.certificate, err = x509.ParseCertificate(der); err != nil {
		m.t.Fatal(err)
	}
	if issued.issuer = parent.Raw; parent == template {
		issued.issuer = der
	}
	m.issued[secret] = issued
	return issued
}

// newKey creates a private key in the default encoding of cert-manager.
func (m *certManager) newKey(c *managedCertificate) (crypto.Signer, *pem.Block) {
	m.t.Helper()
	if c.Spec.PrivateKey.Algorithm == "RSA" {
		key, err := rsa.GenerateKey(rand.Reader, c.Spec.PrivateKey.Size)
		if err != nil {
			m.t.Fatal(err)
		}
		return key, &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		m.t.Fatal(err)
	}
	return key, &pem.Block{Type: "EC PRIVATE KEY", Bytes: der}
}

// newTemplate returns the unsigned content of a certificate.
func (m *certManager) newTemplate(certificate *managedCertificate) *x509.Certificate {
	m.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		m.t.Fatal(err)
	}
	out := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: certificate.Spec.CommonName, Organization: certificate.Spec.Subject.Organizations},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		DNSNames: certificate.Spec.DNSNames, BasicConstraintsValid: true, IsCA: certificate.Spec.IsCA,
	}
	for _, a := range certificate.Spec.IPAddresses {
		out.IPAddresses = append(out.IPAddresses, net.ParseIP(a))
	}
	for _, uri := range certificate.Spec.Usages {
		switch uri {
		case "digital signature":
			out.KeyUsage |= x509.KeyUsageDigitalSignature
		case "cert sign":
			out.KeyUsage |= x509.KeyUsageCertSign
		case "crl sign":
			out.KeyUsage |= x509.KeyUsageCRLSign
		case "server auth":
			out.ExtKeyUsage = append(out.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		case "client auth":
			out.ExtKeyUsage = append(out.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		default:
			m.t.Fatalf("%s: unknown usage %s", certificate.Spec.SecretName, uri)
		}
	}
	return out
}
