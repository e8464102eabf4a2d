package scenarios

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// TestServicesReportMissingDependencies starts each service without its dependencies. It must be
// alive and not ready, and the failed check and the log must name the dependency.
func TestServicesReportMissingDependencies(t *testing.T) {
	t.Parallel()
	unreachable := fmt.Sprintf("http://127.0.0.1:%d", harness.FreePort(t))
	// Anonymous requests are rejected where everything is allowed, and no role can be read here.
	pki := harness.NewPKI(t)
	admin := pki.Client("admin", harness.SystemMasters)
	pair, err := tls.X509KeyPair(admin.Cert, admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}, DisableKeepAlives: true,
	}}
	for _, test := range []struct {
		program harness.Program
		flags   []string
		live    bool // without the dependency
		check   string
		waits   string // in the response of the check and in the log
	}{
		{
			program: harness.APIServer,
			flags:   []string{"--etcd-servers=" + unreachable},
			live:    false,
			check:   "informer-sync",
			waits:   "",
		},
		{
			program: harness.AuthnWebhook,
			flags:   []string{"--master=" + unreachable, "--enable-bootstrap-token-auth"},
			live:    true,
			check:   "apiserver",
			waits:   "waiting for the API server",
		},
		{
			program: harness.AuthzWebhook,
			flags:   []string{"--master=" + unreachable},
			live:    true,
			check:   "apiserver",
			waits:   "waiting for the API server",
		},
		{
			program: harness.TokenCleaner,
			flags:   []string{"--master=" + unreachable},
			live:    true,
			check:   "apiserver",
			waits:   "waiting for the API server",
		},
		{
			program: harness.BootstrapSigner,
			flags:   []string{"--master=" + unreachable},
			live:    true,
			check:   "apiserver",
			waits:   "waiting for the API server",
		},
		{
			program: harness.Controllers,
			flags:   []string{"--master=" + unreachable},
			live:    true,
			check:   "apiserver",
			waits:   "waiting for the API server",
		},
	} {
		t.Run(string(test.program), func(t *testing.T) {
			t.Parallel()
			port := harness.FreePort(t)
			process := harness.NewProcess(t, string(test.program), harness.Binary(t, test.program))
			process.Start(append(test.flags, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
				"--cert-dir="+t.TempDir(), "--client-ca-file="+pki.CA)...)
			get := func(path string) (int, string, error) {
				resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d%s", port, path))
				if err != nil {
					return 0, "", err
				}
				body, err := io.ReadAll(resp.Body)
				return resp.StatusCode, string(body), errors.Join(err, resp.Body.Close())
			}
			harness.Eventually(t, tokenSettle, "the missing dependency to be reported", func() error {
				if !process.Running() {
					t.Fatal("the service has exited")
				}
				code, body, err := get("/readyz")
				if err != nil {
					return err
				}
				if code != http.StatusInternalServerError || !strings.Contains(body, "[-]"+test.check+" failed") {
					return fmt.Errorf("%d %s", code, body)
				}
				code, body, err = get("/readyz/" + test.check)
				if err == nil && (code != http.StatusInternalServerError || !strings.Contains(body, test.waits) ||
					!strings.Contains(process.Log(), test.waits)) {
					err = fmt.Errorf("%d %s", code, body)
				}
				return err
			})
			if code, body, err := get("/livez"); test.live && (err != nil || code != http.StatusOK) {
				t.Errorf("livez: %d %s, %v", code, body, err)
			}
		})
	}
}

// TestControllersNeedOnlyTheirRoles runs the two controllers with an API server that knows only the
// roles in deploy/manifests/rbac, as with another vendor's API server.
func TestControllersNeedOnlyTheirRoles(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	client := server.Client()
	harness.NewCLI(t, server).Run(t, "apply", "-f", filepath.Join(harness.Project(t), "deploy", "manifests", "rbac"))
	for _, p := range []harness.Program{harness.TokenCleaner, harness.BootstrapSigner, harness.Controllers} {
		r := startControllerFor(t, server, p) // without the suite's group
		harness.Eventually(t, tokenSettle, string(p)+" to be ready", r.checkReady)
	}
	createBootstrapToken(t, client, "aaaaaa", "")
	createClusterInfo(t, client)
	expiration, _ := expirationAfter(-time.Hour)
	createBootstrapToken(t, client, "bbbbbb", expiration)
	harness.Eventually(t, tokenSettle, "a signature", func() error { return checkSignatures(t, client, "aaaaaa") })
	harness.Eventually(t, tokenSettle, "removal of an expired token", func() error {
		return checkTokenDeleted(t, client, "bbbbbb")
	})
	createBootstrapToken(t, client, "cccccc", "tomorrow")
	harness.Eventually(t, tokenSettle, "an event about an invalid expiration", func() error {
		out := harness.NewCLI(t, server).Run(t, "get", "events", "-n", "kube-system", "-o", "name",
			"--field-selector=reason=InvalidExpiration,involvedObject.name=bootstrap-token-cccccc")
		if strings.TrimSpace(out) == "" {
			return errors.New("no such event")
		}
		return nil
	})
}
