package build

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/rest/subresources/tokens"
)

// serviceAccountTokens creates the authenticator of service account tokens. With a signing key, it
// also creates the issuer and the published keys. If a webhook reviews tokens and no verification
// key is configured, it returns nil and leaves these tokens to the webhook.
func (a *authentication) serviceAccountTokens(ctx context.Context) (authenticator.Token, error) {
	o := a.o
	if len(o.ServiceAccountIssuers) == 0 {
		return nil, nil
	}
	if o.ServiceAccountSigningEndpoint != "" {
		return a.externalTokens(ctx)
	}
	reviewedElsewhere := o.Webhook.Kubeconfig != "" && len(o.ServiceAccountKeyFiles) == 0
	var keys []satoken.PublicKey
	if !reviewedElsewhere {
		var err error
		if keys, err = verifyingKeys(o, a.servingKey); err != nil {
			return nil, err
		}
	}
	objects := a.caches.objects(true)
	if o.ServiceAccountSigner != "" {
		key, err := satoken.LoadPrivateKey(o.ServiceAccountSigner)
		if err != nil {
			return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
		signer, err := satoken.NewSigner(o.ServiceAccountIssuers[0], key)
		if err != nil {
			return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
		// The server accepts the tokens that it issues.
		if public := signer.PublicKey(); !slices.ContainsFunc(keys, func(k satoken.PublicKey) bool { return k.ID == public.ID }) {
			keys = append(keys, public)
		}
		a.issuer = &tokens.Issuer{
			Name: signer.Issuer(), Signer: signer, Audiences: o.Audiences, MaxLifetime: o.ServiceAccountMaxExpiration, ExtendLifetime: o.ServiceAccountExtend, Objects: objects,
		}
	}
	if len(keys) > 0 {
		if err := a.publishKeys(keys); err != nil {
			return nil, err
		}
	}
	if reviewedElsewhere {
		return nil, nil
	}
	return a.verifier(satoken.Config{Keys: keys})
}

// verifier returns an authenticator of service account tokens. c names the keys.
func (a *authentication) verifier(c satoken.Config) (authenticator.Token, error) {
	o := a.o
	c.Issuers, c.Audiences, c.Lookup, c.Objects = o.ServiceAccountIssuers, o.Audiences, o.ServiceAccountLookup, a.caches.objects(true)
	c.Observe = satoken.CountUses(a.metrics, satoken.UseValid, satoken.UseStale, satoken.UseLegacy, satoken.UseLegacyAuto, satoken.UseLegacyManual, satoken.UseLegacyInvalid)
	return satoken.New(c)
}

// verifyingKeys returns the keys of the configured files or, without files, the key of the server's
// certificate. With a signing key, the certificate may have a key type that cannot sign tokens.
func verifyingKeys(o *config.AuthenticationOptions, serving string) ([]satoken.PublicKey, error) {
	if len(o.ServiceAccountKeyFiles) > 0 {
		keys, err := satoken.LoadPublicKeys(o.ServiceAccountKeyFiles...)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		return keys, nil
	}
	keys, err := satoken.LoadPublicKeys(serving)
	if err != nil && o.ServiceAccountSigner == "" {
		return nil, fmt.Errorf("--service-account-key-file is not given, and --tls-private-key-file: %w", err)
	}
	return keys, nil
}

// publishKeys creates the discovery documents for verifiers of tokens. An issuer that is not an
// https URL has none.
func (a *authentication) publishKeys(keys []satoken.PublicKey) error {
	discovery, err := satoken.Discovery(a.o.ServiceAccountIssuers[0], a.jwksURI(), keys)
	if err != nil {
		a.log.Warn("the issuer of service account tokens cannot be discovered", "error", err)
		return nil
	}
	jwks, err := satoken.JWKS(keys)
	if err != nil {
		return err
	}
	d := &issuerDocuments{discovery, jwks}
	a.documents = serveIssuer(func() (*issuerDocuments, time.Duration) { return d, fixedKeysAge })
	return nil
}

// jwksURI returns the URL of the published keys.
func (a *authentication) jwksURI() string {
	if uri := a.o.ServiceAccountJWKSURI; uri != "" {
		return uri
	}
	return "https://" + a.address + satoken.JWKSPath
}

// fixedKeysAge is how long clients may cache keys from files.
const fixedKeysAge = time.Hour

// issuerDocuments holds the encoded documents of the token issuer.
type issuerDocuments struct{ discovery, jwks []byte }

// serveIssuer returns a handler that serves the documents. current also returns how long clients
// may cache them.
func serveIssuer(current func() (*issuerDocuments, time.Duration)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, age := current()
		body, media := d.discovery, "application/json"
		if r.URL.Path == satoken.JWKSPath {
			body, media = d.jwks, satoken.JWKSMedia
		}
		h := w.Header()
		h.Set("Content-Type", media)
		h.Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(age.Seconds())))
		_, _ = w.Write(body) // the client may have disconnected
	})
}

// issuerPaths returns the paths of the issuer documents if they are served.
func (a *authentication) issuerPaths() []string {
	if a.documents == nil {
		return nil
	}
	return []string{satoken.DiscoveryPath, satoken.JWKSPath}
}
