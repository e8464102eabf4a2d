package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/libs/options"
)

func TestAuthenticationFlags(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "sa.key")
	if err := os.WriteFile(key, privateKey(t), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*AuthenticationOptions)
		err    string
	}{
		"defaults": {change: func(*AuthenticationOptions) {}},
		"issuer and key": {change: func(o *AuthenticationOptions) {
			o.ServiceAccountIssuers = []string{"i"}
			o.ServiceAccountSigner = key
		}},
		"no such key file": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountKeyFiles = []string{"/none"} },
			err:    "--service-account-key-file",
		},
		"no key in it": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountKeyFiles = []string{os.DevNull} },
			err:    "--service-account-key-file",
		},
		"no signing key": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountSigner = os.DevNull },
			err:    "--service-account-signing-key-file",
		},
		"key without name": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountSigner = key },
			err:    "needs --service-account-issuer",
		},
		"an issuer twice": {change: func(o *AuthenticationOptions) { o.ServiceAccountIssuers = []string{"i", "i"} }, err: "given twice"},
		"an empty issuer": {change: func(o *AuthenticationOptions) { o.ServiceAccountIssuers = []string{""} }, err: "must not be empty"},
		"no URL":          {change: func(o *AuthenticationOptions) { o.ServiceAccountIssuers = []string{":x"} }, err: "not a URL"},
		"empty audience":  {change: func(o *AuthenticationOptions) { o.Audiences = []string{""} }, err: "--api-audiences"},
		"too short a bound": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountMaxExpiration = time.Minute },
			err:    "between 1 hour and 2^32 seconds",
		},
		"webhook version": {
			change: func(o *AuthenticationOptions) { o.Webhook.Version = "v2" },
			err:    "--authentication-token-webhook-version",
		},
		"negative time":     {change: func(o *AuthenticationOptions) { o.Webhook.CacheTTL = -1 }, err: "cache-ttl"},
		"headers, no CA":    {change: func(o *AuthenticationOptions) { o.Proxy.Headers.Username = []string{"X"} }},
		"names, no CA":      {change: func(o *AuthenticationOptions) { o.Proxy.Names = []string{"proxy"} }},
		"CA without header": {change: func(o *AuthenticationOptions) { o.Proxy.CAFile = "x" }},
		"CA and groups": {change: func(o *AuthenticationOptions) {
			o.Proxy.CAFile = "x"
			o.Proxy.Headers.Group = []string{"X-Remote-Group"}
		}},
		"keys without host": {change: func(o *AuthenticationOptions) { o.ServiceAccountJWKSURI = "https:///openid/v1/jwks" }},
		"keys over http": {
			change: func(o *AuthenticationOptions) { o.ServiceAccountJWKSURI = "http://x/keys" },
			err:    "is not an https URL",
		},
		"an empty header": {
			change: func(o *AuthenticationOptions) { o.Proxy.CAFile, o.Proxy.Headers.Username = "x", []string{" "} },
			err:    "an empty name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			o.AddFlags(&options.Sections{})
			c.change(&o.Authentication)
			var all []string
			for _, err := range o.Authentication.validate() {
				all = append(all, err.Error())
			}
			if text := strings.Join(all, "\n"); (c.err == "") != (text == "") || !strings.Contains(text, c.err) {
				t.Errorf("errors %q, want %q", text, c.err)
			}
		})
	}
}
