package build

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestServerCallsItselfAsWebhook registers webhooks that are the API server itself. They are called
// as its own user, without a certificate authority.
func TestServerCallsItselfAsWebhook(t *testing.T) {
	t.Parallel()
	fixture := startAudited(t, func(options *config.Options) {
		err := os.WriteFile(options.Audit.PolicyFile,
			[]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	})
	for name, clientConfig := range map[string]string{
		"service": `{"service":{"namespace":"default","name":"kubernetes","path":"/webhook-service"}}`,
		"url":     `{"url":"https://kubernetes.default.svc/webhook-url"}`,
	} {
		remove := fixture.register("mutatingwebhookconfigurations",
			name, fmt.Sprintf(`"webhooks":[{"name":"h.ex.test","clientConfig":%s,"failurePolicy":"Fail","sideEffects":"None",
			"admissionReviewVersions":["v1"],"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}]}]`, clientConfig))
		a := fixture.prepare(500, "POST", "/api/v1/namespaces/a/configmaps", `{"metadata":{"name":"c"}}`)
		if message, _ := a.field("message").(string); !strings.Contains(message, "could not find the requested resource") {
			t.Errorf("%s: got message %s, want it to contain %q", name, message, "could not find the requested resource")
		}
		remove()
	}
	called := map[string]string{} // users by path
	for line := range strings.Lines(fixture.read()) {
		var event struct {
			RequestURI string
			User       struct{ Username string }
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(event.RequestURI, "?")
		called[path] = event.User.Username
	}
	for _, path := range []string{"/webhook-service", "/webhook-url"} {
		if called[path] != "system:apiserver" {
			t.Errorf("%s: called as %q, want system:apiserver", path, called[path])
		}
	}
	fixture.mustSend(404, "GET", "/webhook-url", "", "Authorization", "Bearer t-admin") // other users get 404
}
