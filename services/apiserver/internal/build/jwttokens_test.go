package build

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/libs/oidctoken/oidctest"
	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/config"
)

// writeFile replaces a file in one step, so that a server never reads half of it. It returns path.
func writeFile(t *testing.T, path, content string) string {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// getAnonymously gets a path without credentials.
func (api *testServer) getAnonymously(path string) int { return api.bearer().get(path).code }

// TestOIDCTokensAuthenticate checks that tokens of an issuer that is set by --oidc flags authenticate with
// their groups.
func TestOIDCTokensAuthenticate(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	api := startServer(t, func(options *config.Options) {
		withRBAC(options)
		oidc := options.Authentication.JWT.OIDC
		oidc.IssuerURL = provider.URL()
		oidc.ClientID = oidctest.ClientID
		oidc.GroupsClaim = "groups"
		oidc.GroupsPrefix = "oidc:"
		oidc.CAFile = writeFile(t, filepath.Join(t.TempDir(), "ca.crt"), provider.CA())
	})
	bearer := api.bearer()
	token := provider.Token(map[string]any{"groups": []string{"dev"}})
	api.waitUntil("known", func() bool { return bearer.whoami(token).code == http.StatusCreated })
	identity := bearer.whoami(token)
	if identity.field("status", "userInfo", "username") != provider.URL()+"#ada" ||
		fmt.Sprint(identity.field("status", "userInfo", "groups")) != "[oidc:dev system:authenticated]" {
		t.Errorf("got %s, want user #ada with groups [oidc:dev system:authenticated]", identity.body)
	}
	withdrawn := token
	provider.Rotate("RS256")
	if response := bearer.whoami(provider.Token(nil)); response.code != http.StatusCreated {
		t.Errorf("token of the new key: got status %d, want 201", response.code)
	}
	if response := bearer.whoami(withdrawn); response.code != http.StatusUnauthorized {
		t.Errorf("token of a withdrawn key: got status %d, want 401", response.code)
	}
	if response := bearer.whoami(provider.Token(map[string]any{"exp": 1})); response.code != http.StatusUnauthorized {
		t.Errorf("expired token: got status %d, want 401", response.code)
	}
	if response := bearer.whoami(withdrawn[:len(withdrawn)-8]); response.code != http.StatusUnauthorized {
		t.Errorf("truncated token: got status %d, want 401", response.code)
	}
	if code := api.getAnonymously("/version"); code != http.StatusOK {
		t.Errorf("anonymous: got status %d, want 200", code)
	}
}

// authenticationFile returns a configuration with one provider.
func authenticationFile(t *testing.T, provider *oidctest.Provider, prefix, anonymous string) string {
	t.Helper()
	ca, err := json.Marshal(provider.CA())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthenticationConfiguration","jwt":[{"issuer":{"url":%q,"audiences":[%q],"certificateAuthority":%s},"claimMappings":{"username":{"claim":"sub","prefix":%q}}}]%s}`,
		provider.URL(), oidctest.ClientID, ca, prefix, anonymous)
}

// TestAuthenticationFollowsConfigFile checks that tokens and anonymous requests follow the authentication
// configuration file, also after it changes.
func TestAuthenticationFollowsConfigFile(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	file := filepath.Join(t.TempDir(), "authn.yaml")
	api := startServer(t, func(options *config.Options) {
		withRBAC(options)
		options.Authentication.JWT.File = writeFile(t, file, authenticationFile(t, provider, "one:",
			`,"anonymous":{"enabled":true,"conditions":[{"path":"/livez"},{"path":"/readyz"}]}`))
	})
	bearer := api.bearer()
	token := provider.Token(nil)
	name := func() any { return bearer.whoami(token).field("status", "userInfo", "username") }
	api.waitUntil("known", func() bool { return name() == "one:ada" })
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/version": http.StatusUnauthorized, "/livez/ping": http.StatusUnauthorized,
	} {
		if code := api.getAnonymously(path); code != want {
			t.Errorf("anonymous, %s: got %d, want %d", path, code, want)
		}
	}
	withdrawn := token
	provider.Rotate("RS256")
	token = provider.Token(nil)
	if got := name(); got != "one:ada" {
		t.Errorf("token of the new key: got user %v, want one:ada", got)
	}
	if code := bearer.whoami(withdrawn).code; code != http.StatusUnauthorized {
		t.Errorf("token of a withdrawn key: got status %d, want 401", code)
	}
	// A new file applies at once, also to cached identities.
	writeFile(t, file, authenticationFile(t, provider, "two:", `,"anonymous":{"enabled":false}`))
	api.waitUntil("reloaded", func() bool { return name() == "two:ada" })
	if code := api.getAnonymously("/livez"); code != http.StatusUnauthorized {
		t.Errorf("anonymous requests disabled: got status %d, want 401", code)
	}
	writeFile(t, file, "broken")
	api.waitUntil("failed reload counted", func() bool {
		m := string(api.get("/metrics").body)
		return strings.Contains(m, "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds") &&
			strings.Contains(m, `status="failure"} 1`)
	})
	if name() != "two:ada" {
		t.Errorf("after a broken file: got user %v, want two:ada", name())
	}
	// A file without anonymous settings does not relax the previous ones.
	writeFile(t, file, authenticationFile(t, provider, "three:", ""))
	api.waitUntil("reloaded", func() bool { return name() == "three:ada" })
	if code := api.getAnonymously("/livez"); code != http.StatusUnauthorized {
		t.Errorf("file without anonymous: got status %d, want 401", code)
	}
}

// TestConflictingAuthenticationFlagsFailStart checks that the server does not start with authentication
// flags and files that contradict each other.
func TestConflictingAuthenticationFlagsFailStart(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	provider := oidctest.New(t)
	key := signingKey(t)
	file := writeFile(t, filepath.Join(t.TempDir(), "authn.yaml"),
		authenticationFile(t, provider, "p:", `,"anonymous":{"enabled":true}`))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"anonymous twice": {args: []string{"--authentication-config=" + file, "--anonymous-auth=true"}, want: "--anonymous-auth"},
		"anonymous, no gate": {
			args: []string{
				"--authentication-config=" + file, "--feature-gates=AnonymousAuthConfigurableEndpoints=false",
			},
			want: "anonymous: needs the feature gate",
		},
		"file, no gate": {
			args: []string{
				"--authentication-config=" + file, "--feature-gates=StructuredAuthenticationConfiguration=false",
			},
			want: "--authentication-config needs the feature gate",
		},
		"uids, no gate": {
			args: []string{"--requestheader-uid-headers=X-Remote-Uid", "--feature-gates=RemoteRequestHeaderUID=false"},
			want: "--requestheader-uid-headers needs the feature gate",
		},
		"file and flags":           {args: []string{"--authentication-config=" + file, "--oidc-username-claim=sub"}, want: "mutually exclusive"},
		"issuer without client ID": {args: []string{"--oidc-issuer-url=https://x"}, want: "must be specified together"},
		"no https":                 {args: []string{"--oidc-issuer-url=http://x", "--oidc-client-id=c"}, want: "want https"},
		"own issuer": {
			args: []string{
				"--oidc-issuer-url=https://x", "--oidc-client-id=c", "--service-account-issuer=https://x",
				"--service-account-signing-key-file=" + key,
			},
			want: "is the issuer of service account tokens",
		},
		"own issuer in file": {
			args: []string{
				"--authentication-config=" + file, "--service-account-issuer=" + provider.URL(),
				"--service-account-signing-key-file=" + key,
			},
			want: "jwt[0].issuer.url",
		},
		"no such file": {args: []string{"--authentication-config=/none"}, want: "--authentication-config: open /none"},
		"external signer": {
			args: []string{"--service-account-signing-endpoint=/run/signer.sock"},
			want: "--service-account-signing-endpoint",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var stderr strings.Builder
			serverOptions := config.NewOptions()
			args := append(test.args, "--secure-port=0", "--bind-address=127.0.0.1", "--cert-dir="+dir,
				"--data-dir="+filepath.Join(dir, "data"))
			run := func(ctx context.Context, log *slog.Logger) error { return Run(ctx, serverOptions, log) }
			code := options.Main(t.Context(), config.Name, config.Short, serverOptions, run, args, io.Discard, &stderr)
			if code == options.ExitOK || !strings.Contains(stderr.String(), test.want) {
				t.Errorf("exit code %d, want one with %q:\n%s", code, test.want, stderr.String())
			}
		})
	}
}
