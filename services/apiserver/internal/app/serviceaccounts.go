package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/operations/tokens"
)

// serviceAccountTokens makes who knows the tokens of service accounts and, where
// there is a key for that, who makes them and tells others how to verify them.
// Where a service reviews tokens and no key to verify with is given, to know them
// is left to the service.
func (p *parts) serviceAccountTokens() (authenticator.Token, error) {
	o := &p.options.Authentication
	if len(o.ServiceAccountIssuers) == 0 {
		return nil, nil
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
			Signer: signer, Audiences: o.Audiences, MaxLifetime: o.ServiceAccountMaxExpiration, ExtendLifetime: o.ServiceAccountExtend, Objects: found,
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
	return satoken.New(satoken.Config{
		Issuers: o.ServiceAccountIssuers, Keys: keys, Audiences: o.Audiences, Lookup: o.ServiceAccountLookup, Objects: found,
		Observe: satoken.CountUses(p.metrics, satoken.UseValid, satoken.UseStale, satoken.UseLegacy, satoken.UseLegacyAuto, satoken.UseLegacyManual, satoken.UseLegacyInvalid),
	})
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
	o := &p.options.Authentication
	uri := o.ServiceAccountJWKSURI
	if uri == "" {
		uri = "https://" + p.address() + satoken.JWKSPath
	}
	discovery, err := satoken.Discovery(o.ServiceAccountIssuers[0], uri, keys)
	if err != nil {
		p.log.Warn("the issuer of service account tokens cannot be discovered", "error", err)
		return nil
	}
	jwks, err := satoken.JWKS(keys)
	if err != nil {
		return err
	}
	p.authn.documents = issuerDocuments(discovery, jwks)
	return nil
}

// issuerDocuments serves GET of the documents of the issuer of tokens.
func issuerDocuments(discovery, jwks []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, media := discovery, "application/json"
		if r.URL.Path == satoken.JWKSPath {
			body, media = jwks, satoken.JWKSMedia
		}
		h := w.Header()
		h.Set("Content-Type", media)
		h.Set("Cache-Control", "public, max-age=3600")
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
