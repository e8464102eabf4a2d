package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"binnacle/libs/authnconfig"
	"binnacle/libs/features"
	"binnacle/libs/options"
	"binnacle/libs/satoken"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authn/tokenwebhook"
)

// AuthenticationOptions configure the authentication of requests.
type AuthenticationOptions struct {
	Anonymous       bool
	Audiences       []string
	TokenFile       string
	BootstrapTokens bool
	Webhook         TokenWebhookOptions
	Proxy           ProxyOptions
	JWT             *authnconfig.Options

	ServiceAccountIssuers  []string
	ServiceAccountKeyFiles []string
	// ServiceAccountSigner is the file with the private key that signs tokens.
	ServiceAccountSigner string
	// ServiceAccountLookup enables the check that the secret of a legacy token exists.
	ServiceAccountLookup bool
	// ServiceAccountMaxExpiration bounds the validity of tokens; 0 for no bound.
	ServiceAccountMaxExpiration time.Duration
	// ServiceAccountExtend extends the validity of tokens that are mounted into pods.
	ServiceAccountExtend  bool
	ServiceAccountJWKSURI string
	// ServiceAccountSigningEndpoint is the socket of an external signer.
	ServiceAccountSigningEndpoint string

	// ProxyCAs verifies the certificates of authenticating proxies. Complete sets it if
	// Proxy.CAFile is set.
	ProxyCAs *tlsfiles.Bundle
	flags    *pflag.FlagSet
	// EverythingAllowed reports whether the authorizer allows everything. AnonymousReset reports
	// whether Anonymous was disabled for that reason. Complete sets both.
	EverythingAllowed, AnonymousReset bool
}

// TokenWebhookOptions configure the service that reviews bearer tokens.
type TokenWebhookOptions struct {
	Kubeconfig string
	Version    string
	CacheTTL   time.Duration
}

// ProxyOptions configure the authenticating proxies whose headers are trusted.
type ProxyOptions struct {
	CAFile  string
	Names   []string
	Headers authn.ProxyHeaders
}

func newAuthenticationOptions() AuthenticationOptions {
	return AuthenticationOptions{
		Anonymous:            true,
		ServiceAccountLookup: true,
		ServiceAccountExtend: true,
		Webhook:              TokenWebhookOptions{Version: tokenwebhook.V1beta1, CacheTTL: 2 * time.Minute},
		JWT:                  authnconfig.NewOptions(),
	}
}

// addFlags adds the flags of the options.
func (o *AuthenticationOptions) addFlags(sections *options.Sections) {
	flagSet := sections.Set("authentication")
	o.flags = flagSet
	flagSet.BoolVar(&o.Anonymous, anonymousFlag, o.Anonymous,
		"Authenticate requests without credentials as user system:anonymous in group system:unauthenticated. Cannot be set if the file of --authentication-config configures anonymous requests.")
	flagSet.StringSliceVar(&o.Audiences, "api-audiences", nil,
		"Audiences of this server. A bearer token must be issued for one of them. Defaults to --service-account-issuer.")
	flagSet.StringVar(&o.TokenFile, "token-auth-file", "",
		"CSV file of bearer tokens: token, user name, uid and a quoted list of groups. The file is read once.")
	flagSet.BoolVar(&o.BootstrapTokens, "enable-bootstrap-token-auth", false,
		"Authenticate bootstrap tokens, which are secrets in the namespace kube-system.")
	flagSet.StringVar(&o.Webhook.Kubeconfig, "authentication-token-webhook-config-file", "",
		"Kubeconfig of the service that reviews bearer tokens.")
	flagSet.StringVar(&o.Webhook.Version, "authentication-token-webhook-version", o.Webhook.Version,
		"API version of the TokenReview sent to the service: v1beta1 or v1.")
	flagSet.DurationVar(&o.Webhook.CacheTTL, "authentication-token-webhook-cache-ttl", o.Webhook.CacheTTL,
		"Maximum time to cache successful token reviews. Changes of the objects that a review depends on invalidate it immediately.")
	flagSet.StringVar(&o.Proxy.CAFile, "requestheader-client-ca-file", "",
		"CA bundle that verifies the client certificates of authenticating proxies.")
	flagSet.StringSliceVar(&o.Proxy.Names, "requestheader-allowed-names", nil,
		"Common names of client certificates of authenticating proxies. If empty, any certificate verified by --requestheader-client-ca-file is allowed.")
	flagSet.StringSliceVar(&o.Proxy.Headers.Username, "requestheader-username-headers", nil,
		"Headers with the user's name, in order. X-Remote-User is common. If empty, request headers do not authenticate.")
	flagSet.StringSliceVar(&o.Proxy.Headers.UID, "requestheader-uid-headers", nil,
		"Headers with the user's uid, in order. X-Remote-Uid is common.")
	flagSet.StringSliceVar(&o.Proxy.Headers.Group, "requestheader-group-headers", nil,
		"Headers with the user's groups. X-Remote-Group is common.")
	flagSet.StringSliceVar(&o.Proxy.Headers.ExtraPrefix, "requestheader-extra-headers-prefix", nil,
		"Prefixes of headers with extra information on the user. X-Remote-Extra- is common.")
	flagSet.StringArrayVar(&o.ServiceAccountIssuers, "service-account-issuer", nil,
		"Issuer of service account tokens: an https URL, or a string without a colon. If repeated, the first is used to issue tokens and all are accepted.")
	flagSet.StringArrayVar(&o.ServiceAccountKeyFiles, "service-account-key-file", nil,
		"File with PEM-encoded RSA or ECDSA keys, public or private, or certificates, that verify service account tokens. May be repeated. Defaults to --tls-private-key-file. With --authentication-token-webhook-config-file there is no default, and the service reviews such tokens.")
	flagSet.StringVar(&o.ServiceAccountSigner, "service-account-signing-key-file", "",
		"File with the private key that signs service account tokens.")
	flagSet.BoolVar(&o.ServiceAccountLookup, "service-account-lookup", o.ServiceAccountLookup,
		"Validate that the secret of a legacy service account token exists.")
	flagSet.DurationVar(&o.ServiceAccountMaxExpiration, "service-account-max-token-expiration", 0,
		"Maximum validity of an issued service account token. Longer requested validities are shortened. 0 for no limit.")
	flagSet.BoolVar(&o.ServiceAccountExtend, "service-account-extend-token-expiration", o.ServiceAccountExtend,
		"Extend the validity of tokens that are mounted into pods to one year, and count the use of tokens that should have been renewed.")
	flagSet.StringVar(&o.ServiceAccountJWKSURI, "service-account-jwks-uri", "",
		"URL of the key set in the discovery document of the service account issuer. Defaults to a URL of this server.")
	flagSet.StringVar(&o.ServiceAccountSigningEndpoint, "service-account-signing-endpoint", "",
		"Path of the Unix socket of the external signer of service account tokens, or @ and the name of an abstract socket. Its keys verify the tokens. Cannot be used with --service-account-signing-key-file and --service-account-key-file. Requires the feature gate ExternalServiceAccountTokenSigner.")
	o.JWT.AddFlags(sections)
}

const anonymousFlag = "anonymous-auth"

// AnonymousGiven reports whether the flag --anonymous-auth was set, to any value.
func (o *AuthenticationOptions) AnonymousGiven() bool {
	return o.flags != nil && o.flags.Changed(anonymousFlag)
}

// complete sets options that default to others, and loads ProxyCAs. It returns the CA bundles that
// the server lists in TLS handshakes, so that clients choose a certificate of one of them.
func (o *AuthenticationOptions) complete() (clientCAs []*tlsfiles.Bundle, err error) {
	if len(o.Audiences) == 0 {
		o.Audiences = slices.Clone(o.ServiceAccountIssuers)
	}
	if o.Proxy.CAFile == "" {
		return nil, nil
	}
	o.ProxyCAs, err = tlsfiles.LoadBundle(o.Proxy.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	return []*tlsfiles.Bundle{o.ProxyCAs}, nil
}

// restrictAnonymous disables anonymous requests if the authorizer allows everything, because every
// client with network access would then have full control of the cluster.
func (o *AuthenticationOptions) restrictAnonymous(authz *AuthorizationOptions) {
	o.EverythingAllowed = authz.allowsEverything()
	if o.EverythingAllowed && o.Anonymous {
		o.Anonymous = false
		o.AnonymousReset = true
	}
}

// pathOrSocket matches the absolute path of a socket, and "@" with the name of an abstract socket,
// as in Kubernetes.
var pathOrSocket = regexp.MustCompile(`(^(/[^/ ]*)+/?$)|(^@([a-zA-Z0-9_-]+\.)*[a-zA-Z0-9_-]+$)`)

// maxTokenExpiration is the largest valid ServiceAccountMaxExpiration.
const maxTokenExpiration = (1 << 32) * time.Second

// validate returns all errors of the options. It reads the key files.
func (o *AuthenticationOptions) validate() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	// 1. The keys and the issuer of service account tokens.
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
	if endpoint := o.ServiceAccountSigningEndpoint; endpoint != "" {
		if o.ServiceAccountSigner != "" || len(o.ServiceAccountKeyFiles) > 0 {
			bad("can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with `--service-account-signing-endpoint` (They are mutually exclusive)")
		}
		if !pathOrSocket.MatchString(endpoint) {
			bad("invalid value %q passed for `--service-account-signing-endpoint`, should be a valid location on the filesystem or must be prefixed with @ to name UDS in abstract namespace",
				endpoint)
		}
		if len(o.ServiceAccountIssuers) == 0 {
			bad("--service-account-signing-endpoint needs --service-account-issuer")
		}
	}
	if uri := o.ServiceAccountJWKSURI; uri != "" {
		if u, err := url.Parse(uri); err != nil || u.Scheme != "https" {
			bad("--service-account-jwks-uri %q is not an https URL", uri)
		}
	}
	for _, err := range satoken.ValidateIssuers(o.ServiceAccountIssuers) {
		bad("--service-account-issuer: %w", err)
	}

	// 2. All other options.
	if slices.Contains(o.Audiences, "") {
		bad("--api-audiences must not contain an empty one")
	}
	if d := o.ServiceAccountMaxExpiration; d != 0 && (d < time.Hour || d > maxTokenExpiration) {
		bad("--service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
	}
	if v := o.Webhook.Version; v != tokenwebhook.V1 && v != tokenwebhook.V1beta1 {
		bad("--authentication-token-webhook-version %q is neither v1 nor v1beta1", v)
	}
	if o.Webhook.CacheTTL < 0 {
		bad("--authentication-token-webhook-cache-ttl must not be negative")
	}
	errs = append(errs, o.JWT.Validate()...)
	return append(errs, o.Proxy.validate()...)
}

func (o *AuthenticationOptions) validateGates(gates *features.Gates) (errs []error) {
	errs = o.JWT.ValidateGates(gates)
	if o.ServiceAccountSigningEndpoint != "" && !gates.Enabled(features.ExternalServiceAccountTokenSigner) {
		errs = append(errs,
			errors.New("setting `--service-account-signing-endpoint` requires enabling ExternalServiceAccountTokenSigner feature gate"))
	}
	if len(o.Proxy.Headers.UID) > 0 && !gates.Enabled(features.RemoteRequestHeaderUID) {
		errs = append(errs, fmt.Errorf("--requestheader-uid-headers needs the feature gate %s", features.RemoteRequestHeaderUID))
	}
	return errs
}

// validate returns an error for each empty name.
func (o *ProxyOptions) validate() (errs []error) {
	h := o.Headers
	for _, list := range [][]string{o.Names, h.Username, h.UID, h.Group, h.ExtraPrefix} {
		for _, v := range list {
			if strings.TrimSpace(v) == "" {
				errs = append(errs, errors.New("--requestheader-*: an empty name is given"))
			}
		}
	}
	return errs
}
