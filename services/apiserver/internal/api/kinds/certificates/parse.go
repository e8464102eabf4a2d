package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// ParseRequest parses the request of a CertificateSigningRequest: the first PEM block. It ignores
// the rest and does not verify the signature.
func ParseRequest(request []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
