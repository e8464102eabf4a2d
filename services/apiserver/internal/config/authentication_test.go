package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/libs/options"
)

// TestInvalidAuthenticationFlagsAreRejected checks the validation of the authentication flags.
func TestInvalidAuthenticationFlagsAreRejected(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "sa.key")
	if err := os.WriteFile(key, privateKey(t), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*AuthenticationOptions)
		err    string // part of the error; empty if the flags are valid
	}{
		"defaults": {change: func(*AuthenticationOptions) {}},
		"issuer and key": {change: func(o *AuthenticationOptions) {
			o.ServiceAccountIssuers = []string{"i"}
			o.ServiceAccountSigner = key
		}},
		"missing key file": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountKeyFiles = []string{"/none"} },
			err:    "--service-account-key-file",
		},
		"key file without a key": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountKeyFiles = []string{os.DevNull} },
			err:    "--service-account-key-file",
		},
		"signing key file without a key": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountSigner = os.DevNull },
			err:    "--service-account-signing-key-file",
		},
		"signing key without an issuer": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountSigner = key },
			err:    "needs --service-account-issuer",
		},
		"duplicate issuer": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountIssuers = []string{"i", "i"} },
			err:    "given twice",
		},
		"empty issuer": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountIssuers = []string{""} },
			err:    "must not be empty",
		},
		"issuer that is not a URL": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountIssuers = []string{":x"} },
			err:    "not a URL",
		},
		"empty audience": {change: func(o *AuthenticationOptions) { o.Audiences = []string{""} }, err: "--api-audiences"},
		"maximum expiration below an hour": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountMaxExpiration = time.Minute },
			err:    "between 1 hour and 2^32 seconds",
		},
		"unknown webhook version": {
			change: func(o *AuthenticationOptions) { o.Webhook.Version = "v2" },
			err:    "--authentication-token-webhook-version",
		},
		"negative cache TTL":         {change: func(o *AuthenticationOptions) { o.Webhook.CacheTTL = -1 }, err: "cache-ttl"},
		"proxy headers without a CA": {change: func(o *AuthenticationOptions) { o.Proxy.Headers.Username = []string{"X"} }},
		"proxy names without a CA":   {change: func(o *AuthenticationOptions) { o.Proxy.Names = []string{"proxy"} }},
		"CA without header":          {change: func(o *AuthenticationOptions) { o.Proxy.CAFile = "x" }},
		"CA and groups": {change: func(o *AuthenticationOptions) {
			o.Proxy.CAFile = "x"
			o.Proxy.Headers.Group = []string{"X-Remote-Group"}
		}},
		"JWKS URI without a host": {change: func(o *AuthenticationOptions) { o.ServiceAccountJWKSURI = "https:///openid/v1/jwks" }},
		"JWKS URI over http": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountJWKSURI = "http://x/keys" },
			err:    "is not an https URL",
		},
		"empty proxy header": {
			change: func(o *AuthenticationOptions) { o.Proxy.CAFile, o.Proxy.Headers.Username = "x", []string{" "} },
			err:    "an empty name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			serverOptions := NewOptions()
			serverOptions.AddFlags(&options.Sections{})
			test.change(&serverOptions.Authentication)
			var all []string
			for _, err := range serverOptions.Authentication.validate() {
				all = append(all, err.Error())
			}
			if text := strings.Join(all, "\n"); (test.err == "") != (text == "") || !strings.Contains(text, test.err) {
				t.Errorf("got errors %q, want them to contain %q", text, test.err)
			}
		})
	}
}
