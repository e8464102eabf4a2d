package build

import (
	"context"
	"crypto/x509"
	"net/http"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/libs/authnconfig"
	"binnacle/libs/features"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/subresources/tokens"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authn/reviews"
	"binnacle/services/apiserver/internal/security/authn/webhook"
	"binnacle/services/apiserver/internal/security/externaljwt"
)

// failureTTL is how long the rejection of a token is cached.
const failureTTL = 10 * time.Second

// authentication holds the authenticators of bearer tokens and the issuer of tokens.
type authentication struct {
	*base
	o          *config.AuthenticationOptions
	servingKey string // key file of the server's certificate
	caches     *caches

	tokens  authn.Tokens
	reviews *reviews.Cache // nil without token authenticators
	issuer  *tokens.Issuer
	jwt     *authnconfig.Source // tokens of other issuers; nil if not configured
	// documents serves the discovery documents of the token issuer; nil if it has none.
	documents http.Handler
	// signer is the external signer of tokens; nil if not configured.
	signer *externaljwt.Signer
}

func newAuthentication(ctx context.Context, b *base, o *config.AuthenticationOptions, servingKey string, k *caches, client *internalclient.Client) (*authentication, error) {
	a := &authentication{base: b, o: o, servingKey: servingKey, caches: k, tokens: authn.NoTokens{}}
	var union authenticator.Union
	ofAccounts := func() (authenticator.Token, error) { return a.serviceAccountTokens(ctx) }
	for _, add := range []func() (authenticator.Token, error){a.tokenFile, ofAccounts, a.bootstrapTokens, a.jwtTokens, a.tokenWebhook} {
		t, err := add()
		if err != nil {
			return nil, err
		}
		if t != nil {
			union = append(union, t)
		}
	}
	if len(union) == 0 {
		return a, nil
	}
	var err error
	a.reviews, err = reviews.New(reviews.Config{
		Token: authenticator.Unreserved(union), Audiences: o.Audiences, SuccessTTL: o.Webhook.CacheTTL, FailureTTL: failureTTL, Timeout: webhook.Timeout,
		Objects: k.objects(false), Legacy: reviews.SecretTokens{Objects: k.objects(false), Client: client, Logger: b.log}, Logger: b.log, Registerer: b.metrics,
	})
	if err != nil {
		return nil, err
	}
	a.tokens = a.reviews
	b.life.inBackground("token reviews", a.followObjects)
	if a.jwt != nil {
		b.life.inBackground("issuers of tokens", a.jwt.Run)
	}
	if a.signer != nil {
		b.life.inBackground("keys of the external token signer", a.signer.Run)
		return a, a.followSigner()
	}
	return a, nil
}

// followObjects invalidates cached reviews when an object changes that the token depends on.
func (a *authentication) followObjects(ctx context.Context) error {
	o := a.caches.objects(false)
	return a.reviews.Run(ctx, []reviews.Followed{
		{Kind: satoken.KindServiceAccount, Store: o.ServiceAccounts.Store}, {Kind: satoken.KindPod, Store: o.Pods.Store},
		{Kind: satoken.KindSecret, Store: o.Secrets.Store}, {Kind: satoken.KindNode, Store: o.Nodes.Store},
	})
}

// authenticator returns the authenticators of requests in the order in which they are tried.
func (a *authentication) authenticator(clientCAs func() *x509.CertPool) (authn.Authenticator, error) {
	o := a.o
	chain := authn.Chain{internalclient.Authenticator{}}
	if o.ProxyCAs != nil {
		proxy, err := authn.NewFrontProxy(o.ProxyCAs.Pool, o.Proxy.Names, o.Proxy.Headers)
		if err != nil {
			return nil, err
		}
		chain = append(chain, proxy)
	}
	certs, err := authn.NewCertificates(clientCAs, a.gates.Enabled(features.AllowParsingUserUIDFromCertAuth))
	if err != nil {
		return nil, err
	}
	certs.Measure(a.metrics)
	chain = append(chain, certs, authn.Bearer{Tokens: a.tokens}, authn.WebSocket{Tokens: a.tokens})
	switch {
	case a.jwt != nil:
		chain = append(chain, authn.Anonymous{Allowed: a.anonymousAllowed})
	case o.Anonymous:
		chain = append(chain, authn.Anonymous{})
	}
	if o.AnonymousReset {
		a.log.Warn("AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You should use a different authorizer")
	}
	return authn.NewMeasured(chain, a.metrics), nil
}

// anonymousAllowed reports whether anonymous requests may access a path. The configuration file
// decides, or the flag if the file says nothing. With an authorizer that allows everything, a file
// without conditions would open the whole cluster to anonymous requests, and is ignored.
func (a *authentication) anonymousAllowed(path string) bool {
	o := a.o
	c := a.jwt.Anonymous()
	if c == nil {
		return o.Anonymous
	}
	return c.Allows(path) && (!o.EverythingAllowed || len(c.Conditions) > 0)
}
