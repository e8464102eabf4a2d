package build

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"binnacle/libs/oidctoken/oidctest"
	"binnacle/libs/options"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/config"
)

// optionsFromFlags returns the completed options of a command line.
func optionsFromFlags(t *testing.T, args ...string) *config.Options {
	t.Helper()
	serverOptions := config.NewOptions()
	dir := t.TempDir()
	args = append(slices.Clone(args), "--secure-port=0", "--bind-address=127.0.0.1", "--cert-dir="+dir,
		"--data-dir="+filepath.Join(dir, "data"))
	var output strings.Builder
	run := func(context.Context, *slog.Logger) error { return nil }
	if code := options.Main(t.Context(), config.Name, config.Short, serverOptions, run, args, io.Discard, &output); code != options.ExitOK {
		t.Fatal(output.String())
	}
	return serverOptions
}

// TestAlwaysAllowDisablesAnonymousAuth checks that without authorization flags everything is
// allowed, but only to authenticated users.
func TestAlwaysAllowDisablesAnonymousAuth(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		code int
	}{
		{code: http.StatusUnauthorized},
		{args: []string{"--anonymous-auth=true"}, code: http.StatusUnauthorized},
		{args: []string{"--authorization-mode=RBAC,AlwaysAllow"}, code: http.StatusUnauthorized},
		{args: []string{"--authorization-mode=RBAC"}, code: http.StatusOK},
	} {
		api := startServer(t, func(options *config.Options) {
			from := optionsFromFlags(t, test.args...)
			options.Authentication.Anonymous = true
			options.Authorization.Modes = from.Authorization.Modes
		})
		for _, path := range []string{"/version", "/livez"} {
			if code := api.getAnonymously(path); code != test.code {
				t.Errorf("%v: %s without a credential: got %d, want %d", test.args, path, code, test.code)
			}
		}
	}
}

// TestDisabledAnonymousAuthIsLogged checks the warning that AlwaysAllow disables anonymous
// requests.
func TestDisabledAnonymousAuthIsLogged(t *testing.T) {
	t.Parallel()
	for mode, output := range map[string]bool{"AlwaysAllow": true, "RBAC": false} {
		o := optionsFromFlags(t, "--authorization-mode="+mode)
		var log bytes.Buffer
		if err := buildAndRelease(t.Context(), o, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(),
			"level=WARN msg=\"AnonymousAuth is not allowed with the AlwaysAllow authorizer"); got != output {
			t.Errorf("%s: got warning %t, want %t:\n%s", mode, got, output, log.String())
		}
	}
}

// TestUnverifiedKubeletsAreLogged checks the warning for the default, which is that of Kubernetes.
func TestUnverifiedKubeletsAreLogged(t *testing.T) {
	t.Parallel()
	ca := writeFile(t, filepath.Join(t.TempDir(), "ca.crt"), string(httptestCA(t)))
	for flag, output := range map[string]bool{"": true, ca: false} {
		o := optionsFromFlags(t, "--kubelet-certificate-authority="+flag)
		var log bytes.Buffer
		if err := buildAndRelease(t.Context(), o, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "level=WARN msg=\"kubelets are not verified"); got != output {
			t.Errorf("%q: got warning %t, want %t:\n%s", flag, got, output, log.String())
		}
	}
}

// httptestCA returns the certificate of a test server.
func httptestCA(t *testing.T) []byte {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return tlsfiles.EncodeCertificate(s.Certificate().Raw)
}

// TestAuthenticationConfigDoesNotOpenCluster checks that with an authorizer that allows everything,
// the file of --authentication-config allows anonymous requests only for the paths that it names.
func TestAuthenticationConfigDoesNotOpenCluster(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	for anonymous, codes := range map[string][2]int{
		`{"enabled":true}`: {http.StatusUnauthorized, http.StatusUnauthorized},
		`{"enabled":true,"conditions":[{"path":"/livez"}]}`: {http.StatusOK, http.StatusUnauthorized},
	} {
		file := filepath.Join(t.TempDir(), "authn.yaml")
		api := startServer(t, func(options *config.Options) {
			options.Authentication.JWT.File = writeFile(t, file, authenticationFile(t, provider, "p:", `,"anonymous":`+anonymous))
		})
		if got := [2]int{api.getAnonymously("/livez"), api.getAnonymously("/api/v1/secrets")}; got != codes {
			t.Errorf("%s: got %v, want %v", anonymous, got, codes)
		}
	}
}

// TestNodeRestrictionDefaultFollowsAuthorizers checks that NodeRestriction is enabled by default if
// the authorizers may know nodes.
func TestNodeRestrictionDefaultFollowsAuthorizers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		on   bool
	}{
		{on: false},
		{args: []string{"--authorization-mode=RBAC"}, on: false},
		{args: []string{"--authorization-mode=RBAC", "--enable-admission-plugins=NodeRestriction"}, on: true},
		{args: []string{"--authorization-mode=Node,RBAC"}, on: true},
		{args: []string{"--authorization-mode=RBAC,Webhook", "--authorization-webhook-config-file=some.kubeconfig"}, on: true},
		{args: []string{"--authorization-config=some.yaml"}, on: true},
		{args: []string{"--authorization-mode=Node", "--disable-admission-plugins=NodeRestriction"}, on: false},
	} {
		o := optionsFromFlags(t, test.args...)
		if got := o.Admission.Enabled("NodeRestriction"); got != test.on {
			t.Errorf("%v: on %v, want %v", test.args, got, test.on)
		}
	}
}

// TestShippedConfigurationsRestrictNodes reads the flags of the manifests in this repository.
func TestShippedConfigurationsRestrictNodes(t *testing.T) {
	t.Parallel()
	deploy := filepath.Join("..", "..", "..", "..", "deploy")
	var compose struct {
		Services map[string]struct{ Command []string }
	}
	shipped := map[string][]string{}
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(deploy, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if err := yaml.Unmarshal(read("compose/compose.yaml"), &compose); err != nil {
		t.Fatal(err)
	}
	for name, s := range compose.Services {
		if strings.HasPrefix(name, "apiserver") {
			shipped["compose: "+name] = s.Command
		}
	}
	for _, doc := range strings.Split(string(read("manifests/base/apiserver.yaml")), "\n---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(doc), &d); err != nil {
			t.Fatal(err)
		}
		if d.Kind == "Deployment" {
			shipped["manifests"] = d.Spec.Template.Spec.Containers[0].Args
		}
	}
	if len(shipped) != 3 {
		t.Fatalf("got arguments of API servers %v, want 3", shipped)
	}
	for name, args := range shipped {
		args = slices.DeleteFunc(args, func(a string) bool { // files that do not exist, and flags that need them
			return strings.Contains(a, "/certs/") || strings.HasPrefix(a, "--requestheader-")
		})
		o := optionsFromFlags(t, args...)
		if !slices.Contains(o.Admission.Enable, "NodeRestriction") || !o.Admission.Enabled("NodeRestriction") {
			t.Errorf("%s: arguments %s do not enable NodeRestriction, want it enabled", name, args)
		}
	}
}

// TestUnanchoredOriginsAreRejected checks that the server does not start with them.
func TestUnanchoredOriginsAreRejected(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]int{`example.com`: options.ExitUsage, `//example\.com(:|$)`: options.ExitOK} {
		var output strings.Builder
		run := func(context.Context, *slog.Logger) error { return nil }
		code := options.Main(t.Context(), config.Name, config.Short, config.NewOptions(), run, []string{
			"--cert-dir=" + t.TempDir(), "--cors-allowed-origins=" + pattern,
		}, io.Discard, &output)
		if code != want || (code == options.ExitOK) == strings.Contains(output.String(), "does not pin to start/end of host") {
			t.Errorf("%s: got exit code %d: %s, want %d, and an error about anchors only on failure", pattern, code, output.String(), want)
		}
	}
}
