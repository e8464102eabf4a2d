package webhooks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/admission/webhooks"
)

// TestMissingCredentialsFileIsRetried checks that a webhook whose credentials file was missing is
// called once the file exists.
func TestMissingCredentialsFileIsRetried(t *testing.T) {
	server := serve(t, respondAllowed)
	dir := t.TempDir()
	token, users := filepath.Join(dir, "token"), filepath.Join(dir, "users")
	kubeconfig := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","users":[{"name":"*","user":{"tokenFile":%q}}]}`, token)
	if err := os.WriteFile(users, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	fixture := startWithCredentials(
		t,
		fmt.Appendf(
			nil,
			`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"WebhookAdmissionConfiguration","kubeConfigFile":%q}`,
			users,
		),
		validatingConfiguration("h", server.clientConfig("/")),
	)
	if got := statusText(fixture.validate()); !strings.Contains(got, "could not get REST client: ") {
		t.Errorf("without the file: got %s, want it to contain %q", got, "could not get REST client: ")
	}
	if calls := len(server.requests()); calls != 0 {
		t.Errorf("without the file: got %d calls, want none", calls)
	}
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := fixture.validate(); err != nil {
		t.Errorf("with the file: got error %v, want none", err)
	}
	if q := server.requests(); len(q) != 1 || q[0].authorization != "Bearer secret" {
		t.Errorf("got calls %+v; want one with authorization \"Bearer secret\"", q)
	}
}

// TestLoadCredentialsValidatesConfiguration checks which plugin configurations are valid: none, or one
// of a known version with the absolute path of a kubeconfig that exists.
func TestLoadCredentialsValidatesConfiguration(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(users, []byte(`{"apiVersion":"v1","kind":"Config"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const v1 = "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\n"
	for configuration, want := range map[string]string{
		"":                              "",
		v1 + "kubeConfigFile: " + users: "",
		"apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: WebhookAdmission\nkubeConfigFile: " + users: "",
		v1:                               `kubeConfigFile: Invalid value: "": must be an absolute file path`,
		v1 + "kubeConfigFile: users":     `kubeConfigFile: Invalid value: "users": must be an absolute file path`,
		v1 + "kubeConfigFile: /absent/x": "no such file",
		"apiVersion: v1\nkind: Config\n": "Config",
	} {
		_, err := webhooks.LoadCredentials([]byte(configuration))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("configuration %q: got error %v, want one that contains %q, or none if that is empty", configuration, err, want)
		}
	}
}
