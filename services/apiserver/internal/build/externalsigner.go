package build

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/rest/subresources/tokens"
	"binnacle/services/apiserver/internal/security/externaljwt"
)

// externalTokens connects to the external signer, which issues tokens, and returns an
// authenticator that verifies tokens by the keys of the signer.
func (a *authentication) externalTokens(ctx context.Context) (authenticator.Token, error) {
	o := a.o
	metrics, err := externaljwt.NewMetrics(a.metrics)
	if err != nil {
		return nil, err
	}
	signer, err := externaljwt.New(ctx, externaljwt.Config{Socket: o.ServiceAccountSigningEndpoint, Logger: a.log, Metrics: metrics})
	if err != nil {
		return nil, fmt.Errorf("while setting up external-jwt-signer: %w", err)
	}
	a.life.onClose(signer.Close)
	a.signer = signer
	supported, err := signer.MaxLifetime(ctx)
	if err != nil {
		return nil, fmt.Errorf("while setting up external-jwt-signer: %w", err)
	}
	longest := o.ServiceAccountMaxExpiration
	switch {
	case longest == 0:
		longest = supported
	case longest > supported:
		return nil, fmt.Errorf("service-account-max-token-expiration cannot be set longer than the token expiration supported by service-account-signing-endpoint: %s > %s", longest, supported)
	}
	if o.ServiceAccountExtend && longest < tokens.MarkedLifetime {
		a.log.Warn("service account tokens are not extended: the maximum token lifetime is shorter than the lifetime that marks extended tokens", "maximum", longest, "mark", tokens.MarkedLifetime)
	}
	if o.ServiceAccountExtend && longest < tokens.ExtendedLifetime {
		a.log.Warn("extended service account tokens do not last for a year: the external signer limits the token lifetime", "maximum", supported)
	}
	a.issuer = &tokens.Issuer{
		Name: o.ServiceAccountIssuers[0], Signer: signer, Audiences: o.Audiences, MaxLifetime: longest,
		ExtendLifetime: o.ServiceAccountExtend, MaxExtended: supported, Objects: a.caches.objects(true),
	}
	return a.verifier(satoken.Config{Source: signer.Candidates})
}

// followSigner publishes the keys of the external signer and follows their changes. Cached reviews
// are dropped when the keys change.
func (a *authentication) followSigner() error {
	var current atomic.Pointer[issuerDocuments]
	signer, issuer, uri := a.signer, a.o.ServiceAccountIssuers[0], a.jwksURI()
	update := func() error {
		keys := slices.DeleteFunc(slices.Clone(signer.Keys()), func(k satoken.PublicKey) bool { return k.Undiscoverable })
		if len(keys) == 0 {
			return errors.New("no keys provided for validating keyset")
		}
		discovery, err := satoken.Discovery(issuer, uri, keys)
		if err != nil {
			return err
		}
		jwks, err := satoken.JWKS(keys)
		if err == nil {
			current.Store(&issuerDocuments{discovery, jwks})
		}
		return err
	}
	err := update()
	if err != nil { // as with keys from files
		a.log.Warn("the issuer of service account tokens cannot be discovered", "error", err)
	} else {
		a.documents = serveIssuer(func() (*issuerDocuments, time.Duration) { return current.Load(), signer.MaxAge() })
	}
	signer.OnChange(func() {
		a.reviews.Forget()
		if err := update(); err != nil {
			a.log.Warn("failed to publish the keys of the external token signer", "error", err)
		}
	})
	return nil
}
