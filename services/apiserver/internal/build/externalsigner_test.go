package build

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/security/externaljwt/externaljwttest"
)

// withExternalSigner configures an external signer.
func withExternalSigner(t *testing.T, s *externaljwttest.Signer) func(*config.Options) {
	return func(options *config.Options) {
		options.Authentication.ServiceAccountIssuers = []string{"https://issuer"}
		options.Authentication.ServiceAccountSigningEndpoint = s.Socket
		if err := options.Features.Set(string(features.ExternalServiceAccountTokenSigner) + "=true"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExternalSignerSignsTokens issues and verifies tokens as the tests of Kubernetes do.
func TestExternalSignerSignsTokens(t *testing.T) {
	signer := externaljwttest.New(t)
	signer.Start()
	var initial externaljwttest.State
	signer.Change(func(s *externaljwttest.State) { initial = *s })
	api := startServer(t, withExternalSigner(t, signer))
	api.mustSend(201, "POST", accounts, `{"metadata":{"name":"sa-1"}}`)
	other := externaljwttest.NewKey(t)
	for _, test := range []struct {
		name          string
		sign, keys    func(*externaljwttest.State)
		wantErr       string
		authenticated bool
	}{
		{name: "known key", authenticated: true},
		{name: "unknown key id", sign: func(s *externaljwttest.State) { s.Key, s.Header["kid"] = other, "kid-2" }},
		{name: "other key of the same id", sign: func(s *externaljwttest.State) { s.Key = other }},
		{
			name: "key that was added later",
			sign: func(s *externaljwttest.State) { s.Key, s.Header["kid"] = other, "kid-3" },
			keys: func(s *externaljwttest.State) {
				s.Keys = append(s.Keys, externaljwttest.Public(t, "kid-3", other, false))
				s.DataTime = time.Now()
			},
			authenticated: true,
		},
		{
			name: "undiscoverable key",
			sign: func(s *externaljwttest.State) {
				s.Header["kid"], s.Keys = "kid-4", append(s.Keys, externaljwttest.Public(t, "kid-4", other, true))
			},
			wantErr: "Internal error occurred: failed to generate token: while validating header: key used for signing JWT (kid: kid-4) is excluded from OIDC discovery docs",
		},
		{
			name:    "unsupported algorithm",
			sign:    func(s *externaljwttest.State) { s.Header["alg"] = "ABC" },
			wantErr: `Internal error occurred: failed to generate token: while validating header: bad signing algorithm "ABC"`,
		},
		{
			name:    "unknown type",
			sign:    func(s *externaljwttest.State) { s.Header["typ"] = "ABC" },
			wantErr: "Internal error occurred: failed to generate token: while validating header: bad type",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			signer.Change(func(s *externaljwttest.State) {
				*s = initial
				s.Header = map[string]any{"alg": "ES256", "kid": "kid-1", "typ": "JWT"}
				s.Keys = initial.Keys[:1:1]
				if test.sign != nil {
					test.sign(s)
				}
			})
			response := api.send("POST", accounts+"/sa-1/token",
				`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":7200}}`)
			if test.wantErr != "" {
				if response.code != http.StatusInternalServerError || response.field("message") != test.wantErr {
					t.Errorf("got status %d: %s, want 500 and %s", response.code, response.body, test.wantErr)
				}
				return
			}
			if response.code != http.StatusCreated {
				t.Fatalf("got status %d: %s, want status %d", response.code, response.body, http.StatusCreated)
			}
			if test.keys != nil {
				signer.Change(test.keys)
			}
			token := fmt.Sprint(response.field("status", "token"))
			review := api.mustSend(201, "POST", "/apis/authentication.k8s.io/v1/tokenreviews",
				`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"`+token+`"}}`)
			if authenticated := review.field("status", "authenticated") == true; authenticated != test.authenticated {
				t.Errorf("got %s, want authenticated: %v", review.body, test.authenticated)
			}
		})
	}
	signer.Stop()
	jwks := api.mustSend(200, "GET", "/openid/v1/jwks", "")
	if !strings.Contains(string(jwks.body), `"kid":"kid-1"`) || strings.Contains(string(jwks.body), "kid-4") {
		t.Errorf("got keys %s, want kid-1 and not kid-4", jwks.body)
	}
	age := jwks.header.Get("Cache-Control")
	if !strings.HasPrefix(age, "public, max-age=") {
		t.Errorf("got Cache-Control %s, want a public max-age", age)
	}
}

// TestExternalSignerBoundsLifetimes checks that a longer lifetime is shortened to the maximum of the
// signer, with a warning.
func TestExternalSignerBoundsLifetimes(t *testing.T) {
	signer := externaljwttest.New(t)
	signer.Change(func(s *externaljwttest.State) { s.MaxLifetime = 7200 })
	signer.Start()
	api := startServer(t, withExternalSigner(t, signer))
	api.mustSend(201, "POST", accounts, `{"metadata":{"name":"sa-1"}}`)
	response := api.mustSend(201, "POST", accounts+"/sa-1/token",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":86400}}`)
	if fmt.Sprint(response.field("spec", "expirationSeconds")) != "7200" ||
		!strings.Contains(response.header.Get("Warning"), "requested expiration of 86400 seconds shortened to 7200 seconds") {
		t.Errorf("got %s, warning %q, want 7200 s and a warning of the shorter lifetime", response.body, response.header.Get("Warning"))
	}
}

// TestIncompatibleExternalSignerFailsStart checks that the server does not start with flags that
// contradict an external signer, and that the errors are those of Kubernetes.
func TestIncompatibleExternalSignerFailsStart(t *testing.T) {
	signer := externaljwttest.New(t)
	signer.Change(func(s *externaljwttest.State) { s.MaxLifetime = 7200 })
	signer.Start()
	key := signingKey(t)
	for _, test := range []struct {
		name, want string
		change     func(*config.Options)
	}{
		{
			name:   "key file",
			want:   "(They are mutually exclusive)",
			change: func(options *config.Options) { options.Authentication.ServiceAccountKeyFiles = []string{key} },
		},
		{
			name:   "signing key file",
			want:   "(They are mutually exclusive)",
			change: func(options *config.Options) { options.Authentication.ServiceAccountSigner = key },
		},
		{
			name:   "no path",
			want:   `invalid value "x.sock" passed for `,
			change: func(options *config.Options) { options.Authentication.ServiceAccountSigningEndpoint = "x.sock" },
		},
		{
			name: "no gate",
			want: "requires enabling ExternalServiceAccountTokenSigner feature gate",
			change: func(options *config.Options) {
				if err := options.Features.Set(string(features.ExternalServiceAccountTokenSigner) + "=false"); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name:   "longer than the signer allows",
			want:   "service-account-max-token-expiration cannot be set longer than the token expiration supported by service-account-signing-endpoint: 3h0m0s > 2h0m0s",
			change: func(options *config.Options) { options.Authentication.ServiceAccountMaxExpiration = 3 * time.Hour },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			serverOptions := testOptions(t, t.TempDir())
			withExternalSigner(t, signer)(serverOptions)
			test.change(serverOptions)
			if err := serverOptions.Complete(); err != nil {
				t.Fatal(err)
			}
			err := fmt.Errorf("%v", serverOptions.Validate())
			if len(serverOptions.Validate()) == 0 {
				err = buildAndRelease(t.Context(), serverOptions, slog.New(slog.DiscardHandler))
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}
