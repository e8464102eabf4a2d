package build

import (
	"context"
	"net/http"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/libs/authnconfig"
	"binnacle/libs/features"
	"binnacle/libs/satoken"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/subresources/tokens"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authn/reviews"
	"binnacle/services/apiserver/internal/security/authn/webhook"
	"binnacle/services/apiserver/internal/security/externaljwt"
)

// failureTTL is how long the rejection of a token is cached.
const failureTTL = 10 * time.Second

// authentication holds the authenticators and the issuer of tokens.
type authentication struct {
	tokens  authn.Tokens
	reviews *reviews.Cache // nil without token authenticators
	issuer  *tokens.Issuer
	jwt     *authnconfig.Source // tokens of other issuers; nil if not configured
	// documents serves the discovery documents of the token issuer; nil if it has none.
	documents http.Handler
	// signer is the external signer of tokens; nil if not configured.
	signer *externaljwt.Signer
}

// buildAuthentication creates the authenticators of bearer tokens.
func (p *parts) buildAuthentication(ctx context.Context) error {
	o := &p.options.Authentication
	p.authn.tokens = authn.NoTokens{}
	var union authenticator.Union
	ofAccounts := func() (authenticator.Token, error) { return p.serviceAccountTokens(ctx) }
	for _, add := range []func() (authenticator.Token, error){p.tokenFile, ofAccounts, p.bootstrapTokens, p.jwtTokens, p.tokenWebhook} {
		t, err := add()
		if err != nil {
			return err
		}
		if t != nil {
			union = append(union, t)
		}
	}
	if len(union) == 0 {
		return nil
	}
	var err error
	p.authn.reviews, err = reviews.New(reviews.Config{
		Token: authenticator.Unreserved(union), Audiences: o.Audiences, SuccessTTL: o.Webhook.CacheTTL, FailureTTL: failureTTL, Timeout: webhook.Timeout,
		Objects: p.objects(false), Legacy: legacyTokens{p}, Logger: p.log, Registerer: p.metrics,
	})
	if err != nil {
		return err
	}
	p.authn.tokens = p.authn.reviews
	if p.authn.signer != nil {
		return p.followSigner()
	}
	return nil
}

// tokenTasks returns tasks that invalidate cached reviews and follow the keys and configuration of
// token issuers.
func (p *parts) tokenTasks() []task.Task {
	if p.authn.reviews == nil {
		return nil
	}
	o := p.objects(false)
	tasks := []task.Task{{Name: "token reviews", Run: func(ctx context.Context) error {
		return p.authn.reviews.Run(ctx, []reviews.Followed{
			{Kind: satoken.KindServiceAccount, Store: o.ServiceAccounts.Store}, {Kind: satoken.KindPod, Store: o.Pods.Store},
			{Kind: satoken.KindSecret, Store: o.Secrets.Store}, {Kind: satoken.KindNode, Store: o.Nodes.Store},
		})
	}}}
	if p.authn.signer != nil {
		tasks = append(tasks, task.Task{Name: "keys of the external token signer", Run: p.authn.signer.Run})
	}
	if p.authn.jwt != nil {
		tasks = append(tasks, task.Task{Name: "issuers of tokens", Run: p.authn.jwt.Run})
	}
	return tasks
}

// authenticator returns the authenticators of requests in the order in which they are tried.
func (p *parts) authenticator() (authn.Authenticator, error) {
	o := &p.options.Authentication
	chain := authn.Chain{internalclient.Authenticator{}}
	if o.ProxyCAs != nil {
		proxy, err := authn.NewFrontProxy(o.ProxyCAs.Pool, o.Proxy.Names, o.Proxy.Headers)
		if err != nil {
			return nil, err
		}
		chain = append(chain, proxy)
	}
	certs, err := authn.NewCertificates(p.server.ClientCAs, p.options.Features.Enabled(features.AllowParsingUserUIDFromCertAuth))
	if err != nil {
		return nil, err
	}
	certs.Measure(p.metrics)
	chain = append(chain, certs, authn.Bearer{Tokens: p.authn.tokens}, authn.WebSocket{Tokens: p.authn.tokens})
	switch {
	case p.authn.jwt != nil:
		chain = append(chain, authn.Anonymous{Allowed: p.anonymousAllowed})
	case o.Anonymous:
		chain = append(chain, authn.Anonymous{})
	}
	if o.AnonymousReset {
		p.log.Warn("AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You should use a different authorizer")
	}
	return authn.NewMeasured(chain, p.metrics), nil
}

// anonymousAllowed reports whether anonymous requests may access a path. The configuration file
// decides, or the flag if the file says nothing. With an authorizer that allows everything, a file
// without conditions would open the whole cluster to anonymous requests, and is ignored.
func (p *parts) anonymousAllowed(path string) bool {
	o := &p.options.Authentication
	c := p.authn.jwt.Anonymous()
	if c == nil {
		return o.Anonymous
	}
	return c.Allows(path) && (!o.EverythingAllowed || len(c.Conditions) > 0)
}
