package build

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/libs/authnconfig"
	"binnacle/libs/bootstraptoken"
	"binnacle/libs/features"
	"binnacle/libs/satoken"
	"binnacle/libs/tokenfile"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/subresources/tokens"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authn/issuerdocs"
	"binnacle/services/apiserver/internal/security/authn/tokenreviews"
	"binnacle/services/apiserver/internal/security/authn/tokenwebhook"
	"binnacle/services/apiserver/internal/security/externaljwt"
)

// failureTTL is how long the rejection of a bearer token is cached.
const failureTTL = 10 * time.Second

// authentication holds the authenticator of bearer tokens and the issuer of service account tokens.
type authentication struct {
	*base
	options    *config.AuthenticationOptions
	servingKey string // key file of the server's certificate
	caches     *caches

	tokens  authn.Tokens
	reviews *tokenreviews.Cache // nil without token authenticators
	issuer  *tokens.Issuer
	jwt     *authnconfig.Source // tokens of other issuers; nil if not configured
	// documents serves the discovery documents of the token issuer; nil if it has none.
	documents http.Handler
	// signer is the external signer of tokens; nil if not configured.
	signer *externaljwt.Signer
}

// newAuthentication creates the authenticators of bearer tokens that the options enable. servingKey
// is the key file of the server's certificate.
func newAuthentication(
	ctx context.Context,
	base *base,
	options *config.AuthenticationOptions,
	servingKey string,
	caches *caches,
	client *internalclient.Client,
) (*authentication, error) {
	result := &authentication{base: base, options: options, servingKey: servingKey, caches: caches, tokens: authn.NoTokens{}}
	var union authenticator.Union
	newServiceAccountTokens := func() (authenticator.Token, error) { return result.newServiceAccountTokens(ctx) }
	for _, newAuthenticator := range []func() (authenticator.Token, error){
		result.newTokenFile, newServiceAccountTokens, result.newBootstrapTokens, result.newJWTTokens, result.newTokenWebhook,
	} {
		t, err := newAuthenticator()
		if err != nil {
			return nil, err
		}
		if t != nil {
			union = append(union, t)
		}
	}
	if len(union) == 0 {
		return result, nil
	}
	var err error
	result.reviews, err = tokenreviews.New(tokenreviews.Config{
		Token:      authenticator.Unreserved(union),
		Audiences:  options.Audiences,
		SuccessTTL: options.Webhook.CacheTTL,
		FailureTTL: failureTTL,
		Timeout:    tokenwebhook.Timeout,
		Objects:    caches.objects(false),
		Legacy:     tokenreviews.SecretTokens{Objects: caches.objects(false), Client: client, Logger: base.log},
		Logger:     base.log,
		Registerer: base.metrics,
	})
	if err != nil {
		return nil, err
	}
	result.tokens = result.reviews
	base.lifetime.inBackground("token reviews", result.followObjects)
	if result.jwt != nil {
		base.lifetime.inBackground("issuers of tokens", result.jwt.Run)
	}
	if result.signer != nil {
		base.lifetime.inBackground("keys of the external token signer", result.signer.Run)
		result.followSigner()
	}
	return result, nil
}

// followObjects invalidates cached token reviews when an object changes on which the token depends.
func (a *authentication) followObjects(ctx context.Context) error {
	o := a.caches.objects(false)
	return a.reviews.Run(ctx, []tokenreviews.CachedKind{
		{Kind: satoken.KindServiceAccount, Store: o.ServiceAccounts.Store}, {Kind: satoken.KindPod, Store: o.Pods.Store},
		{Kind: satoken.KindSecret, Store: o.Secrets.Store}, {Kind: satoken.KindNode, Store: o.Nodes.Store},
	})
}

// newChain returns the authenticator of requests, which tries all methods in order. clientCAs
// returns the CAs of client certificates.
func (a *authentication) newChain(clientCAs func() *x509.CertPool) (authn.Authenticator, error) {
	options := a.options
	chain := authn.Chain{internalclient.Authenticator{}}
	if options.ProxyCAs != nil {
		proxy, err := authn.NewFrontProxy(options.ProxyCAs.Pool, options.Proxy.Names, options.Proxy.Headers)
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
	case options.Anonymous:
		chain = append(chain, authn.Anonymous{})
	}
	if options.AnonymousReset {
		a.log.Warn("AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You should use a different authorizer")
	}
	return authn.NewMeasured(chain, a.metrics), nil
}

// anonymousAllowed reports whether anonymous requests may access a path. If the authentication
// configuration file configures anonymous requests, it decides, otherwise --anonymous-auth. If the
// authorizer allows everything, a file without conditions is ignored, because it would give
// anonymous requests full control of the cluster.
func (a *authentication) anonymousAllowed(path string) bool {
	o := a.options
	c := a.jwt.Anonymous()
	if c == nil {
		return o.Anonymous
	}
	return c.Allows(path) && (!o.EverythingAllowed || len(c.Conditions) > 0)
}

// newServiceAccountTokens creates the authenticator of service account tokens. If there is a
// signing key, it also creates the issuer and publishes the keys. It returns nil if there is no
// issuer. It also returns nil if a webhook reviews tokens and no verification key is configured,
// because the webhook then reviews service account tokens too.
func (a *authentication) newServiceAccountTokens(ctx context.Context) (authenticator.Token, error) {
	options := a.options
	if len(options.ServiceAccountIssuers) == 0 {
		return nil, nil
	}
	if options.ServiceAccountSigningEndpoint != "" {
		return a.newExternalTokens(ctx)
	}
	webhookVerifies := options.Webhook.Kubeconfig != "" && len(options.ServiceAccountKeyFiles) == 0
	var keys []satoken.PublicKey
	if !webhookVerifies {
		var err error
		if keys, err = verifyingKeys(options, a.servingKey); err != nil {
			return nil, err
		}
	}
	objects := a.caches.objects(true)
	if options.ServiceAccountSigner != "" {
		key, err := satoken.LoadPrivateKey(options.ServiceAccountSigner)
		if err != nil {
			return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
		signer, err := satoken.NewSigner(options.ServiceAccountIssuers[0], key)
		if err != nil {
			return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
		// The server accepts the tokens that it issues.
		if public := signer.PublicKey(); !slices.ContainsFunc(keys, func(k satoken.PublicKey) bool { return k.ID == public.ID }) {
			keys = append(keys, public)
		}
		a.issuer = &tokens.Issuer{
			Name:           signer.Issuer(),
			Signer:         signer,
			Local:          true,
			Audiences:      options.Audiences,
			MaxLifetime:    options.ServiceAccountMaxExpiration,
			ExtendLifetime: options.ServiceAccountExtend,
			Objects:        objects,
		}
	}
	if len(keys) > 0 {
		a.publishKeys(keys, issuerdocs.FixedMaxAge)
	}
	if webhookVerifies {
		return nil, nil
	}
	return a.newVerifier(satoken.Config{Keys: keys})
}

// newVerifier returns an authenticator of service account tokens. c contains the verification
// keys or their source; newVerifier sets the other fields.
func (a *authentication) newVerifier(c satoken.Config) (authenticator.Token, error) {
	o := a.options
	c.Issuers = o.ServiceAccountIssuers
	c.Audiences = o.Audiences
	c.Lookup = o.ServiceAccountLookup
	c.Objects = a.caches.objects(true)
	c.Observe = satoken.CountUses(a.metrics, satoken.UseValid, satoken.UseStale, satoken.UseLegacy,
		satoken.UseLegacyAuto, satoken.UseLegacyManual, satoken.UseLegacyInvalid)
	return satoken.New(c)
}

// verifyingKeys returns the keys in --service-account-key-file. Without such files, it returns the
// key of the server's certificate (serving). An error of that key is ignored if there is a signing
// key, because the certificate may have a key type that cannot sign tokens.
func verifyingKeys(options *config.AuthenticationOptions, serving string) ([]satoken.PublicKey, error) {
	if len(options.ServiceAccountKeyFiles) > 0 {
		keys, err := satoken.LoadPublicKeys(options.ServiceAccountKeyFiles...)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		return keys, nil
	}
	keys, err := satoken.LoadPublicKeys(serving)
	if err != nil && options.ServiceAccountSigner == "" {
		return nil, fmt.Errorf("--service-account-key-file is not given, and --tls-private-key-file: %w", err)
	}
	return keys, nil
}

// publishKeys creates the discovery documents with which other services verify tokens. It sets
// a.documents, unless the issuer is not an https URL and cannot have such documents. maxAge returns
// how long clients may cache them.
func (a *authentication) publishKeys(keys []satoken.PublicKey, maxAge func() time.Duration) *issuerdocs.Documents {
	d := issuerdocs.New(a.options.ServiceAccountIssuers[0], a.jwksURI(), maxAge)
	if err := d.Update(keys); err != nil {
		a.log.Warn("the issuer of service account tokens cannot be discovered", "error", err)
	} else {
		a.documents = d
	}
	return d
}

// jwksURI returns the URL of the published keys.
func (a *authentication) jwksURI() string {
	if uri := a.options.ServiceAccountJWKSURI; uri != "" {
		return uri
	}
	return "https://" + a.address + satoken.JWKSPath
}

// issuerPaths returns the paths of the discovery documents of the issuer, or nil if it has none.
func (a *authentication) issuerPaths() []string {
	if a.documents == nil {
		return nil
	}
	return []string{satoken.DiscoveryPath, satoken.JWKSPath}
}

// newTokenFile creates the authenticator for --token-auth-file. It returns nil if the flag is not
// set.
func (a *authentication) newTokenFile() (authenticator.Token, error) {
	options := a.options
	if options.TokenFile == "" {
		return nil, nil
	}
	f, warnings, err := tokenfile.Load(options.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--token-auth-file: %w", err)
	}
	for _, w := range warnings {
		a.log.Warn("token file", "file", options.TokenFile, "warning", w)
	}
	return authenticator.ForAudiences(options.Audiences, f), nil
}

// newBootstrapTokens creates the authenticator of bootstrap tokens. It returns nil if they are
// disabled.
func (a *authentication) newBootstrapTokens() (authenticator.Token, error) {
	o := a.options
	if !o.BootstrapTokens {
		return nil, nil
	}
	return authenticator.ForAudiences(o.Audiences, bootstraptoken.New(a.caches.objects(false), nil)), nil
}

// newJWTTokens creates the authenticator for the issuers in --oidc-issuer-url or
// --authentication-config. It returns nil if neither flag is set.
func (a *authentication) newJWTTokens() (authenticator.Token, error) {
	options := a.options
	if !options.JWT.IsSet() {
		return nil, nil
	}
	// forget drops cached reviews, which used the previous rules or keys.
	forget := func() { a.reviews.Forget() }
	source, err := options.JWT.Source(authnconfig.Config{
		DisallowedIssuers: options.ServiceAccountIssuers,
		AnonymousFixed:    a.whyAnonymousFixed(),
		Reloaded:          forget,
		Withdrawn:         forget,
		Logger:            a.log,
		Metrics:           authnconfig.NewMetrics(a.metrics, a.address),
	})
	if err != nil {
		return nil, err
	}
	a.jwt = source
	return authenticator.ForAudiences(options.Audiences, source), nil
}

// whyAnonymousFixed returns the reason why the configuration file must not configure anonymous
// requests, or "" if it may.
func (a *authentication) whyAnonymousFixed() string {
	if a.options.AnonymousGiven() {
		return "must not be set when the flag --anonymous-auth is given"
	}
	return authnconfig.AnonymousGate(a.gates)
}

// newTokenWebhook creates the authenticator that calls the token webhook. It returns nil if there
// is none.
func (a *authentication) newTokenWebhook() (authenticator.Token, error) {
	options := a.options
	if options.Webhook.Kubeconfig == "" {
		return nil, nil
	}
	client, err := tokenwebhook.New(tokenwebhook.Config{
		Logger:     a.log,
		Kubeconfig: options.Webhook.Kubeconfig,
		Version:    options.Webhook.Version,
		Audiences:  options.Audiences,
		Registerer: a.metrics,
		Calls:      a.webhookMetrics,
		Dial:       a.egress.DialerFor(egress.ControlPlane),
	})
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	a.lifetime.onClose(client.Close)
	return tokenreviews.Shared(client, a.limits.MaxConcurrentTokenReviews), nil
}

// newExternalTokens connects to the external signer of service account tokens. It creates the
// issuer, and returns an authenticator that verifies tokens with the keys of the signer.
func (a *authentication) newExternalTokens(ctx context.Context) (authenticator.Token, error) {
	options := a.options
	metrics, err := externaljwt.NewMetrics(a.metrics)
	if err != nil {
		return nil, err
	}
	signer, err := externaljwt.New(ctx, externaljwt.Config{Socket: options.ServiceAccountSigningEndpoint, Logger: a.log, Metrics: metrics})
	if err != nil {
		return nil, fmt.Errorf("while setting up external-jwt-signer: %w", err)
	}
	a.lifetime.onClose(signer.Close)
	a.signer = signer
	supported, err := signer.MaxLifetime(ctx)
	if err != nil {
		return nil, fmt.Errorf("while setting up external-jwt-signer: %w", err)
	}
	maxLifetime := options.ServiceAccountMaxExpiration
	switch {
	case maxLifetime == 0:
		maxLifetime = supported
	case maxLifetime > supported:
		return nil, fmt.Errorf("service-account-max-token-expiration cannot be set longer than the token expiration supported by service-account-signing-endpoint: %s > %s",
			maxLifetime, supported)
	}
	if options.ServiceAccountExtend && maxLifetime < tokens.MarkedLifetime {
		a.log.Warn("service account tokens are not extended: the maximum token lifetime is shorter than the lifetime that marks extended tokens",
			"maximum", maxLifetime, "mark", tokens.MarkedLifetime)
	}
	if options.ServiceAccountExtend && maxLifetime < tokens.ExtendedLifetime {
		a.log.Warn("extended service account tokens do not last for a year: the external signer limits the token lifetime",
			"maximum", supported)
	}
	a.issuer = &tokens.Issuer{
		Name:           options.ServiceAccountIssuers[0],
		Signer:         signer,
		Audiences:      options.Audiences,
		MaxLifetime:    maxLifetime,
		ExtendLifetime: options.ServiceAccountExtend,
		MaxExtended:    supported,
		Objects:        a.caches.objects(true),
	}
	return a.newVerifier(satoken.Config{Source: signer.Candidates})
}

// followSigner publishes the keys of the external signer. When the keys change, it publishes the
// new ones and drops cached reviews.
func (a *authentication) followSigner() {
	docs := a.publishKeys(a.signer.Keys(), a.signer.MaxAge)
	a.signer.OnChange(func() {
		a.reviews.Forget()
		if err := docs.Update(a.signer.Keys()); err != nil {
			a.log.Warn("failed to publish the keys of the external token signer", "error", err)
		}
	})
}
