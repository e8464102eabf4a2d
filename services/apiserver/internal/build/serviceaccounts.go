package build

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/rest/subresources/tokens"
)

// serviceAccountTokens makes who knows the tokens of service accounts and, where
// there is a key for that, who makes them and tells others how to verify them.
// Where a service reviews tokens and no key to verify with is given, to know them
// is left to the service.
func (p *parts) serviceAccountTokens(ctx context.Context) (authenticator.Token, error) {
	o := &p.options.Authentication
	if len(o.ServiceAccountIssuers) == 0 {
		return nil, nil
	}
	if o.ServiceAccountSigningEndpoint != "" {
		return p.externalTokens(ctx)
	}
	reviewedElsewhere := o.Webhook.Kubeconfig != "" && len(o.ServiceAccountKeyFiles) == 0
	var keys []satoken.PublicKey
	if !reviewedElsewhere {
		var err error
		if keys, err = o.verifyingKeys(p.options.Serving.KeyFile); err != nil {
			return nil, err
		}
	}
	found := p.objects(true)
	if o.ServiceAccountSigner != "" {
		key, err := satoken.LoadPrivateKey(o.ServiceAccountSigner)
		if err != nil {
			return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
		signer, err := satoken.NewSigner(o.ServiceAccountIssuers[0], key)
		if err != nil {
			return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
		// What is issued here is accepted here.
		if public := signer.PublicKey(); !slices.ContainsFunc(keys, func(k satoken.PublicKey) bool { return k.ID == public.ID }) {
			keys = append(keys, public)
		}
		p.authn.issuer = &tokens.Issuer{
			Name: signer.Issuer(), Signer: signer, Audiences: o.Audiences, MaxLifetime: o.ServiceAccountMaxExpiration, ExtendLifetime: o.ServiceAccountExtend, Objects: found,
		}
	}
	if len(keys) > 0 {
		if err := p.publishKeys(keys); err != nil {
			return nil, err
		}
	}
	if reviewedElsewhere {
		return nil, nil
	}
	return p.verifier(satoken.Config{Keys: keys})
}

// verifier returns an authenticator of service account tokens. c names the keys.
func (p *parts) verifier(c satoken.Config) (authenticator.Token, error) {
	o := &p.options.Authentication
	c.Issuers, c.Audiences, c.Lookup, c.Objects = o.ServiceAccountIssuers, o.Audiences, o.ServiceAccountLookup, p.objects(true)
	c.Observe = satoken.CountUses(p.metrics, satoken.UseValid, satoken.UseStale, satoken.UseLegacy, satoken.UseLegacyAuto, satoken.UseLegacyManual, satoken.UseLegacyInvalid)
	return satoken.New(c)
}

// verifyingKeys of tokens: those of the files or, where none is given, the one of
// the server's certificate, which need not be of a kind that signs tokens where
// there is a signing key.
func (o *AuthenticationOptions) verifyingKeys(serving string) ([]satoken.PublicKey, error) {
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

// publishKeys makes the documents that let others verify tokens. An issuer that
// is no https URL cannot be discovered, and has none.
func (p *parts) publishKeys(keys []satoken.PublicKey) error {
	discovery, err := satoken.Discovery(p.options.Authentication.ServiceAccountIssuers[0], p.jwksURI(), keys)
	if err != nil {
		p.log.Warn("the issuer of service account tokens cannot be discovered", "error", err)
		return nil
	}
	jwks, err := satoken.JWKS(keys)
	if err != nil {
		return err
	}
	d := &issuerDocuments{discovery, jwks}
	p.authn.documents = serveIssuer(func() (*issuerDocuments, time.Duration) { return d, fixedKeysAge })
	return nil
}

// jwksURI is the URL of the published keys.
func (p *parts) jwksURI() string {
	if uri := p.options.Authentication.ServiceAccountJWKSURI; uri != "" {
		return uri
	}
	return "https://" + p.address() + satoken.JWKSPath
}

// fixedKeysAge is how long clients may cache keys from files.
const fixedKeysAge = time.Hour

// issuerDocuments are the documents of the issuer of tokens.
type issuerDocuments struct{ discovery, jwks []byte }

// serveIssuer serves GET of documents, which clients may cache for a time.
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
		_, _ = w.Write(body) // the client may have gone
	})
}

// issuerPaths are the paths of those documents, where they are served.
func (p *parts) issuerPaths() []string {
	if p.authn.documents == nil {
		return nil
	}
	return []string{satoken.DiscoveryPath, satoken.JWKSPath}
}

func jsonList(list []string) string {
	if len(list) == 0 {
		return "[]"
	}
	b, err := json.Marshal(list)
	if err != nil { // a list of texts always has a form
		return "[]"
	}
	return string(b)
}
