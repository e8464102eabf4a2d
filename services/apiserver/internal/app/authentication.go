package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"binnacle/libs/authenticator"
	"binnacle/libs/bootstraptoken"
	"binnacle/libs/options"
	"binnacle/libs/satoken"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/task"
	"binnacle/libs/tokenfile"
	"binnacle/services/apiserver/internal/authn"
	"binnacle/services/apiserver/internal/authn/objects"
	"binnacle/services/apiserver/internal/authn/reviews"
	"binnacle/services/apiserver/internal/authn/webhook"
	"binnacle/services/apiserver/internal/endpoints"
)

// AuthenticationOptions say how users are known.
type AuthenticationOptions struct {
	Anonymous       bool
	Audiences       []string
	TokenFile       string
	BootstrapTokens bool
	Webhook         TokenWebhookOptions
	Proxy           ProxyOptions

	ServiceAccountIssuers       []string
	ServiceAccountKeyFiles      []string
	ServiceAccountSigner        string
	ServiceAccountLookup        bool
	ServiceAccountMaxExpiration time.Duration
	ServiceAccountExtend        bool
	ServiceAccountJWKSURI       string

	proxyCAs *tlsfiles.Bundle
}

// TokenWebhookOptions say which service reviews bearer tokens.
type TokenWebhookOptions struct {
	Kubeconfig string
	Version    string
	CacheTTL   time.Duration
}

// ProxyOptions say which proxies are believed what they tell of users.
type ProxyOptions struct {
	CAFile  string
	Names   []string
	Headers authn.ProxyHeaders
}

func newAuthenticationOptions() AuthenticationOptions {
	return AuthenticationOptions{
		Anonymous: true, ServiceAccountLookup: true, ServiceAccountExtend: true,
		Webhook: TokenWebhookOptions{Version: webhook.V1beta1, CacheTTL: 2 * time.Minute},
	}
}

func (o *AuthenticationOptions) addFlags(s *options.Sections) {
	a := s.Set("authentication")
	a.BoolVar(&o.Anonymous, "anonymous-auth", o.Anonymous, "Let requests that carry no credential in as system:anonymous, of the group system:unauthenticated.")
	a.StringSliceVar(&o.Audiences, "api-audiences", nil, "Audiences of this server, one of which a bearer token must be for. If empty, the issuers of --service-account-issuer.")
	a.StringVar(&o.TokenFile, "token-auth-file", "", "CSV file of bearer tokens: token, user name, uid and a quoted list of groups. It is read at start.")
	a.BoolVar(&o.BootstrapTokens, "enable-bootstrap-token-auth", false, "Know the bearers of the bootstrap tokens that are kept in secrets of the namespace kube-system.")
	a.StringVar(&o.Webhook.Kubeconfig, "authentication-token-webhook-config-file", "", "Kubeconfig of the service that reviews bearer tokens.")
	a.StringVar(&o.Webhook.Version, "authentication-token-webhook-version", o.Webhook.Version, "Version of the TokenReview that the service is sent: v1beta1 or v1.")
	a.DurationVar(&o.Webhook.CacheTTL, "authentication-token-webhook-cache-ttl", o.Webhook.CacheTTL, "How long good reviews of bearer tokens are kept at most. They are forgotten at once when what they depend on changes.")
	a.StringVar(&o.Proxy.CAFile, "requestheader-client-ca-file", "", "CA bundle that verifies the client certificates of authenticating proxies.")
	a.StringSliceVar(&o.Proxy.Names, "requestheader-allowed-names", nil, "Common names of authenticating proxies. If empty, any that --requestheader-client-ca-file verifies.")
	a.StringSliceVar(&o.Proxy.Headers.Username, "requestheader-username-headers", nil, "Headers with the user's name, in order. X-Remote-User is common.")
	a.StringSliceVar(&o.Proxy.Headers.UID, "requestheader-uid-headers", nil, "Headers with the user's uid, in order. X-Remote-Uid is common.")
	a.StringSliceVar(&o.Proxy.Headers.Group, "requestheader-group-headers", nil, "Headers with the user's groups. X-Remote-Group is common.")
	a.StringSliceVar(&o.Proxy.Headers.ExtraPrefix, "requestheader-extra-headers-prefix", nil, "Prefixes of headers with extra information on the user. X-Remote-Extra- is common.")
	a.StringArrayVar(&o.ServiceAccountIssuers, "service-account-issuer", nil, "Issuer of service account tokens, an https URL or a plain string without colon. The first one issues, all are accepted.")
	a.StringArrayVar(&o.ServiceAccountKeyFiles, "service-account-key-file", nil, "File with PEM-encoded RSA or ECDSA keys, public or private, or certificates, that verify service account tokens. Can be given more than once. If not given, the key of --tls-private-key-file.")
	a.StringVar(&o.ServiceAccountSigner, "service-account-signing-key-file", "", "File with the private key that signs service account tokens.")
	a.BoolVar(&o.ServiceAccountLookup, "service-account-lookup", o.ServiceAccountLookup, "Accept a service account token that is kept in a secret only as long as the secret is there.")
	a.DurationVar(&o.ServiceAccountMaxExpiration, "service-account-max-token-expiration", 0, "Longest life of a service account token; what is asked for beyond is shortened. 0 for no bound.")
	a.BoolVar(&o.ServiceAccountExtend, "service-account-extend-token-expiration", o.ServiceAccountExtend, "Let tokens that are mounted into pods last for a year, and count the uses of those that should have been renewed.")
	a.StringVar(&o.ServiceAccountJWKSURI, "service-account-jwks-uri", "", "URL of the keys in the discovery document of service account tokens. If empty, on this server.")
}

// complete fills what follows from other options and loads the proxies' CAs,
// which are named to clients.
func (o *AuthenticationOptions) complete() (hinted []*tlsfiles.Bundle, err error) {
	if len(o.Audiences) == 0 {
		o.Audiences = slices.Clone(o.ServiceAccountIssuers)
	}
	if o.Proxy.CAFile == "" {
		return nil, nil
	}
	if o.proxyCAs, err = tlsfiles.LoadBundle(o.Proxy.CAFile); err != nil {
		return nil, fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	return []*tlsfiles.Bundle{o.proxyCAs}, nil
}

const maxTokenExpiration = (1 << 32) * time.Second

func (o *AuthenticationOptions) validate() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.ServiceAccountKeyFiles) > 0 {
		if _, err := satoken.LoadPublicKeys(o.ServiceAccountKeyFiles...); err != nil {
			bad("--service-account-key-file: %w", err)
		}
	}
	if f := o.ServiceAccountSigner; f != "" {
		if _, err := satoken.LoadPrivateKey(f); err != nil {
			bad("--service-account-signing-key-file: %w", err)
		}
	}
	if len(o.ServiceAccountIssuers) == 0 && o.ServiceAccountSigner != "" {
		bad("--service-account-signing-key-file needs --service-account-issuer")
	}
	for i, issuer := range o.ServiceAccountIssuers {
		switch {
		case issuer == "":
			bad("--service-account-issuer must not be empty")
		case slices.Contains(o.ServiceAccountIssuers[:i], issuer):
			bad("--service-account-issuer %q is given twice", issuer)
		case strings.Contains(issuer, ":"):
			if _, err := url.Parse(issuer); err != nil {
				bad("--service-account-issuer %q contains a colon and is no URL: %w", issuer, err)
			}
		}
	}
	if slices.Contains(o.Audiences, "") {
		bad("--api-audiences must not contain an empty one")
	}
	if d := o.ServiceAccountMaxExpiration; d != 0 && (d < time.Hour || d > maxTokenExpiration) {
		bad("--service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
	}
	if v := o.Webhook.Version; v != webhook.V1 && v != webhook.V1beta1 {
		bad("--authentication-token-webhook-version %q is neither v1 nor v1beta1", v)
	}
	if o.Webhook.CacheTTL < 0 {
		bad("--authentication-token-webhook-cache-ttl must not be negative")
	}
	return append(errs, o.Proxy.validate()...)
}

func (o *ProxyOptions) validate() (errs []error) {
	h := o.Headers
	for _, list := range [][]string{o.Names, h.Username, h.UID, h.Group, h.ExtraPrefix} {
		for _, v := range list {
			if strings.TrimSpace(v) == "" {
				errs = append(errs, errors.New("--requestheader-*: an empty name is given"))
			}
		}
	}
	switch given := len(h.Username)+len(h.UID)+len(h.Group)+len(h.ExtraPrefix)+len(o.Names) > 0; {
	case o.CAFile != "" && len(h.Username) == 0:
		errs = append(errs, errors.New("--requestheader-client-ca-file needs --requestheader-username-headers"))
	case o.CAFile == "" && given:
		errs = append(errs, errors.New("--requestheader-* flags need --requestheader-client-ca-file: headers of just anybody are not believed"))
	}
	return errs
}

// failureTTL is how long a refusal of a token is kept.
const failureTTL = 10 * time.Second

// authentication is who knows users, and who makes tokens.
type authentication struct {
	tokens  authn.Tokens
	reviews *reviews.Cache // nil where no token is known
	issuer  *endpoints.TokenIssuer
	// documents of the issuer of tokens; nil where it has none.
	documents http.Handler
}

// buildAuthentication makes the authenticators of bearer tokens.
func (p *parts) buildAuthentication(context.Context) error {
	o := &p.options.Authentication
	p.authn.tokens = authn.NoTokens{}
	var union authenticator.Union
	for _, add := range []func() (authenticator.Token, error){p.tokenFile, p.serviceAccountTokens, p.bootstrapTokens, p.tokenWebhook} {
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
		Token: union, Audiences: o.Audiences, SuccessTTL: o.Webhook.CacheTTL, FailureTTL: failureTTL, Timeout: webhook.Timeout,
		Objects: p.objects(false), Logger: p.log, Registerer: p.metrics,
	})
	if err != nil {
		return err
	}
	p.authn.tokens = p.authn.reviews
	return nil
}

// objects looks up what tokens depend on.
func (p *parts) objects(confirm bool) *objects.Objects {
	kind := func(resource string) objects.Kind {
		gvr := corev1.SchemeGroupVersion.WithResource(resource)
		k := p.catalog.Resource(gvr)
		prefix := endpoints.KeyPrefix(p.root(), k)
		return objects.Kind{Resource: gvr.GroupResource(), Prefix: prefix, Store: p.cache.Store(prefix), Coder: p.codec.Of(k)}
	}
	return &objects.Objects{
		Cache: p.cache, Confirm: confirm,
		ServiceAccounts: kind("serviceaccounts"), Pods: kind("pods"), Secrets: kind("secrets"), Nodes: kind("nodes"),
	}
}

// followTokens is the work that goes on beside the requests.
func (p *parts) followTokens() []task.Task {
	if p.authn.reviews == nil {
		return nil
	}
	o := p.objects(false)
	return []task.Task{{Name: "token reviews", Run: func(ctx context.Context) error {
		return p.authn.reviews.Run(ctx, p.cache, []reviews.Followed{
			{Kind: satoken.KindServiceAccount, Store: o.ServiceAccounts.Store}, {Kind: satoken.KindPod, Store: o.Pods.Store},
			{Kind: satoken.KindSecret, Store: o.Secrets.Store}, {Kind: satoken.KindNode, Store: o.Nodes.Store},
		})
	}}}
}

func (p *parts) tokenFile() (authenticator.Token, error) {
	o := &p.options.Authentication
	if o.TokenFile == "" {
		return nil, nil
	}
	f, warnings, err := tokenfile.Load(o.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--token-auth-file: %w", err)
	}
	for _, w := range warnings {
		p.log.Warn("token file", "file", o.TokenFile, "warning", w)
	}
	return authenticator.ForAudiences(o.Audiences, f), nil
}

func (p *parts) bootstrapTokens() (authenticator.Token, error) {
	o := &p.options.Authentication
	if !o.BootstrapTokens {
		return nil, nil
	}
	t, err := bootstraptoken.New(p.objects(false), nil)
	if err != nil {
		return nil, err
	}
	return authenticator.ForAudiences(o.Audiences, t), nil
}

func (p *parts) tokenWebhook() (authenticator.Token, error) {
	o := &p.options.Authentication
	if o.Webhook.Kubeconfig == "" {
		return nil, nil
	}
	c, err := webhook.New(webhook.Config{
		Kubeconfig: o.Webhook.Kubeconfig, Version: o.Webhook.Version, Audiences: o.Audiences, Registerer: p.metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	p.close = append(p.close, c.Close)
	return c, nil
}

// users of requests: the methods in the order in which they are tried.
func (p *parts) users() (authn.Authenticator, error) {
	o := &p.options.Authentication
	var chain authn.Chain
	if o.proxyCAs != nil {
		proxy, err := authn.NewFrontProxy(o.proxyCAs.Pool, o.Proxy.Names, o.Proxy.Headers)
		if err != nil {
			return nil, err
		}
		chain = append(chain, proxy)
	}
	certs, err := authn.NewCertificates(p.server.ClientCAs)
	if err != nil {
		return nil, err
	}
	chain = append(chain, certs, authn.Bearer{Tokens: p.authn.tokens}, authn.WebSocket{Tokens: p.authn.tokens})
	if o.Anonymous {
		chain = append(chain, authn.Anonymous{})
	}
	return authn.NewMeasured(chain, p.metrics), nil
}

// proxyConfig is what extension servers need to know of authenticating proxies.
func (o *AuthenticationOptions) proxyConfig() map[string]string {
	if o.proxyCAs == nil {
		return nil
	}
	list := func(v []string) string { return jsonList(sets.List(sets.New(v...))) }
	return map[string]string{
		"requestheader-client-ca-file":       string(o.proxyCAs.PEM()),
		"requestheader-allowed-names":        list(o.Proxy.Names),
		"requestheader-username-headers":     jsonList(o.Proxy.Headers.Username),
		"requestheader-uid-headers":          jsonList(o.Proxy.Headers.UID),
		"requestheader-group-headers":        jsonList(o.Proxy.Headers.Group),
		"requestheader-extra-headers-prefix": jsonList(o.Proxy.Headers.ExtraPrefix),
	}
}
