package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"binnacle/libs/serving/tlsfiles"
)

// UnsignedError reports certificates that an external CA has to sign.
type UnsignedError struct {
	// Requests are the paths of the signing requests.
	Requests []string
	// Missing are the paths of CA certificates that are absent.
	Missing []string
}

func (e *UnsignedError) Error() string {
	var out []string
	if len(e.Requests) > 0 {
		out = append(out, fmt.Sprintf("%d certificates of external CAs have to be signed: sign each request NAME.csr, write the certificate to NAME.crt beside it, and run the command again: %s",
			len(e.Requests), strings.Join(e.Requests, ", ")))
	}
	if len(e.Missing) > 0 {
		out = append(out, "certificates of external CAs are missing: "+strings.Join(e.Missing, ", "))
	}
	return strings.Join(out, "; ")
}

// requestPath returns the path of the signing request of a certificate.
func (p Pair) requestPath() string { return strings.TrimSuffix(p.Cert, ".crt") + ".csr" }

func (s certSpec) subject() pkix.Name {
	return pkix.Name{CommonName: s.commonName, Organization: s.organizations}
}

// writeRequest writes a signing request for s. It keeps an existing key, so that a
// certificate in use stays valid until the new one replaces it.
func writeRequest(spec certSpec) error {
	key, err := loadOrCreateKey(spec.pair.Key)
	if err != nil {
		return err
	}
	usage, err := extendedUsage(spec.use.extKeyUsages())
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: spec.subject(), DNSNames: spec.dns, IPAddresses: spec.ips, ExtraExtensions: []pkix.Extension{usage},
	}, key)
	if err != nil {
		return fmt.Errorf("create signing request for %s: %w", spec.pair.Cert, err)
	}
	return tlsfiles.WriteFile(spec.pair.requestPath(),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), 0o644)
}

// loadOrCreateKey reads a private key. It creates the key if the file does not exist.
func loadOrCreateKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("generate key: %w", err)
		}
		keyPEM, err := tlsfiles.EncodeECKey(key)
		if err != nil {
			return nil, err
		}
		return key, tlsfiles.WriteFile(path, keyPEM, 0o600)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// extendedUsage encodes the extension "extended key usage" (RFC 5280, 4.2.1.12).
func extendedUsage(usages []x509.ExtKeyUsage) (pkix.Extension, error) {
	purposes := map[x509.ExtKeyUsage]asn1.ObjectIdentifier{
		x509.ExtKeyUsageServerAuth: {1, 3, 6, 1, 5, 5, 7, 3, 1},
		x509.ExtKeyUsageClientAuth: {1, 3, 6, 1, 5, 5, 7, 3, 2},
	}
	var ids []asn1.ObjectIdentifier
	for _, u := range usages {
		ids = append(ids, purposes[u])
	}
	value, err := asn1.Marshal(ids)
	if err != nil {
		return pkix.Extension{}, fmt.Errorf("encode extended key usage: %w", err)
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: value}, nil
}
