// Package issuerdocs serves the documents by which other programs verify service account tokens:
// the discovery document of the issuer and its keys.
//
// Documents is safe for concurrent use. Package build updates it when the keys change.
package issuerdocs

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"binnacle/libs/satoken"
)

// FixedMaxAge is how long clients may cache keys that do not change while the server runs.
func FixedMaxAge() time.Duration { return time.Hour }

// Documents holds the encoded documents of an issuer.
type Documents struct {
	issuer, jwksURI string
	maxAge          func() time.Duration
	current         atomic.Pointer[encoded]
}

// encoded holds both documents as JSON.
type encoded struct{ discovery, jwks []byte }

// New returns the documents of an issuer whose keys are at jwksURI. maxAge returns how long clients
// may cache the documents. Update must succeed before they are served.
func New(issuer, jwksURI string, maxAge func() time.Duration) *Documents {
	return &Documents{issuer: issuer, jwksURI: jwksURI, maxAge: maxAge}
}

// Update publishes the discoverable keys. It returns an error if there is none, or if the issuer is
// not an https URL.
func (d *Documents) Update(keys []satoken.PublicKey) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k satoken.PublicKey) bool { return k.Undiscoverable })
	if len(keys) == 0 {
		return errors.New("no keys provided for validating keyset")
	}
	discovery, err := satoken.Discovery(d.issuer, d.jwksURI, keys)
	if err != nil {
		return err
	}
	jwks, err := satoken.JWKS(keys)
	if err == nil {
		d.current.Store(&encoded{discovery, jwks})
	}
	return err
}

// ServeHTTP serves the document of a path.
func (d *Documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	docs := d.current.Load()
	body, media := docs.discovery, "application/json"
	if r.URL.Path == satoken.JWKSPath {
		body, media = docs.jwks, satoken.JWKSMedia
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(d.maxAge().Seconds())))
	_, _ = w.Write(body) // the client may have disconnected
}
