package app

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"binnacle/services/authn-webhook/internal/review"
)

var errNoCertificate = errors.New("no client certificate")

// guard turns away clients that may not ask for reviews.
func (o *ClientOptions) guard(verify func() (x509.VerifyOptions, bool)) gin.HandlerFunc {
	if !o.RequireCertificate {
		return pass
	}
	return func(c *gin.Context) {
		options, ok := verify()
		if !ok || o.check(c.Request, options) != nil {
			review.Unauthorized(c)
		}
	}
}

// check verifies the client certificate of a request.
func (o *ClientOptions) check(r *http.Request, options x509.VerifyOptions) error {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return errNoCertificate
	}
	leaf := r.TLS.PeerCertificates[0]
	options.Intermediates = x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(options); err != nil {
		return err
	}
	if name := leaf.Subject.CommonName; len(o.Names) > 0 && !slices.Contains(o.Names, name) {
		return fmt.Errorf("client certificate of %q", name)
	}
	return nil
}
