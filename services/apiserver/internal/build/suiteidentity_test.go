package build

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/libs/oidctoken/oidctest"
	"binnacle/services/apiserver/internal/config"
)

// TestTokensCannotImpersonateSuite checks that tokens of providers, files and webhooks can name any
// user except the services of the suite, which authenticate with certificates.
func TestTokensCannotImpersonateSuite(t *testing.T) {
	t.Parallel()
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Spec struct{ Token string } }
		_ = json.NewDecoder(r.Body).Decode(&review)
		name, group, ok := strings.Cut(review.Spec.Token, "/")
		_, _ = fmt.Fprintf(w,
			`{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","status":{"authenticated":%v,"user":{"username":%q,"groups":[%q]}}}`,
			ok, name, group)
	}))
	defer service.Close()
	provider := oidctest.New(t)
	dir := t.TempDir()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}))
	api := startServer(t, func(options *config.Options) {
		options.Authentication.Webhook.Kubeconfig = writeFile(t, filepath.Join(dir, "webhook"),
			fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`,
				service.URL, ca))
		options.Authentication.TokenFile = writeFile(t, filepath.Join(dir, "tokens"),
			"file-name,system:binnacle:tokencleaner,1\nfile-group,alice,2,\"dev,system:binnacle\"\nfile-free,alice,3,system:binnacles\n")
		oidc := options.Authentication.JWT.OIDC
		oidc.IssuerURL = provider.URL()
		oidc.ClientID = oidctest.ClientID
		oidc.GroupsClaim = "groups"
		oidc.UsernamePrefix = "-"
		oidc.CAFile = writeFile(t, filepath.Join(dir, "ca.crt"), provider.CA())
	})
	bearer := api.bearer()
	ada := provider.Token(nil)
	api.waitUntil("the provider is known", func() bool { return bearer.whoami(ada).code == http.StatusCreated })
	for token, code := range map[string]int{
		"file-name": 401, "file-group": 401, "file-free": 201,
		"system:binnacle:apiserver/system:binnacle": 401, "system:binnacle:x/dev": 401, "bob/system:binnacle": 401, "bob/dev": 201,
		provider.Token(map[string]any{"sub": "system:binnacle:authn-webhook"}): 401,
		provider.Token(map[string]any{"groups": []string{"system:binnacle"}}):  401,
	} {
		if r := bearer.whoami(token); r.code != code {
			t.Errorf("%.40s: got status %d: %s, want status %d", token, r.code, r.body, code)
		}
	}
	response := api.mustSend(http.StatusCreated, http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"file-name"}}`)
	if response.field("status", "authenticated") != nil ||
		!strings.Contains(fmt.Sprint(response.field("status", "error")), "reserved for the suite's own services") {
		t.Errorf("got review %s, want an error: the name is reserved for the suite's own services", response.body)
	}
}
