package build

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage"
)

// corrupt replaces a stored object with an invalid value, or creates an invalid value if there is
// none. mend deletes it.
func (api *testServer) corrupt(path string) (mend func()) {
	api.t.Helper()
	key := api.server.base.root + "/" + path
	for { // the server updates statuses
		stored, _, err := api.server.stores.store.Get(api.t.Context(), key, 0)
		if errors.Is(err, storage.ErrNotFound) {
			_, err = api.server.stores.store.Create(api.t.Context(), key, []byte("no object"), storage.WriteOptions{})
		} else if err == nil {
			_, err = api.server.stores.store.Update(api.t.Context(), key, []byte("no object"), stored.ModRevision, storage.WriteOptions{})
		}
		if conflict := new(storage.ConflictError); err != nil && !errors.As(err, &conflict) {
			api.t.Fatal(err)
		}
		if err == nil {
			break
		}
	}
	return func() {
		api.t.Helper()
		stored, _, err := api.server.stores.store.Get(api.t.Context(), key, 0)
		if err == nil {
			_, err = api.server.stores.store.Delete(api.t.Context(), key, stored.ModRevision)
		}
		if err != nil {
			api.t.Fatal(err)
		}
	}
}

// TestCorruptPermissionObjectsGrantNothing checks that a corrupt object that decides on permissions is
// not treated as absent.
func TestCorruptPermissionObjectsGrantNothing(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	count := 0
	createConfigMap := func() apiResponse {
		count++
		return api.send("POST", configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m%d"}}`, count))
	}
	waitUntilCorrupt := func(path string) {
		t.Helper()
		api.waitUntil(path+" corrupt", func() bool { return api.get(path).code == 500 })
	}
	const rules = `"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}]`

	api.mustSend(201, "POST", "/api/v1/namespaces",
		`{"metadata":{"name":"strict","labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"x:1"}]}}`
	api.mustSend(403, "POST", "/api/v1/namespaces/strict/pods", pod)
	api.corrupt("namespaces/strict")
	waitUntilCorrupt("/api/v1/namespaces/strict")
	api.mustSend(500, "POST", "/api/v1/namespaces/strict/pods", pod)

	api.mustSend(201, "POST", admissionPath+"validatingadmissionpolicies",
		`{"metadata":{"name":"no"},"spec":{"matchConstraints":{`+rules+`},"validations":[{"expression":"false"}]}}`)
	api.mustSend(201, "POST", admissionPath+"validatingadmissionpolicybindings",
		`{"metadata":{"name":"no"},"spec":{"policyName":"no","validationActions":["Deny"]}}`)
	checkRejected := func(policy string, code int, text string) {
		t.Helper()
		if response := createConfigMap(); response.code != code || !strings.Contains(string(response.body), text) {
			t.Errorf("%s: got status %d: %s, want status %d and %q", policy, response.code, response.body, code, text)
		}
	}
	checkRejected("policy", 422, "denied request")
	remove := api.corrupt("validatingadmissionpolicies/no")
	waitUntilCorrupt(admissionPath + "validatingadmissionpolicies/no")
	checkRejected("policy that became corrupt", 422, "denied request")
	removeBinding := api.corrupt("validatingadmissionpolicybindings/no")
	waitUntilCorrupt(admissionPath + "validatingadmissionpolicybindings/no")
	checkRejected("binding that became corrupt", 422, "denied request")
	remove()
	removeBinding()
	api.waitUntil("free of policies", func() bool { return createConfigMap().code == 201 })

	api.mustSend(201, "POST", admissionPath+"validatingwebhookconfigurations",
		`{"metadata":{"name":"no"},"webhooks":[{"name":"no.example.com","sideEffects":"None","admissionReviewVersions":["v1"],
		"clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}]}]}`)
	checkRejected("webhook", 500, "failed calling webhook")
	remove = api.corrupt("validatingwebhookconfigurations/no")
	waitUntilCorrupt(admissionPath + "validatingwebhookconfigurations/no")
	checkRejected("webhook that became corrupt", 500, "failed calling webhook")
	remove()
	api.waitUntil("free of webhooks", func() bool { return createConfigMap().code == 201 })

	for _, resource := range []string{
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicybindings",
	} {
		remove := api.corrupt(resource + "/never")
		waitUntilCorrupt(admissionPath + resource + "/never")
		checkRejected(resource+" that was always corrupt", 403, "not yet ready to handle request")
		remove()
		api.waitUntil(resource+" gone", func() bool { return createConfigMap().code == 201 })
	}
}

// TestUnsafeDeletionsAreAudited checks the audit events of completed and failed deletions.
func TestUnsafeDeletionsAreAudited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	log := filepath.Join(dir, "audit.log")
	err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	api := startServer(t, func(options *config.Options) {
		options.Audit.PolicyFile = policy
		options.Audit.Log.Path = log
		if err := options.Features.Set(string(features.AllowUnsafeMalformedObjectDeletion) + "=true"); err != nil {
			t.Fatal(err)
		}
	})
	api.mustSend(201, "POST", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"}}`)
	api.corrupt("configmaps/default/bad")
	const option = "?ignoreStoreReadErrorWithClusterBreakingPotential="
	for _, test := range []struct {
		name, query string
		code        int
		audited     bool
	}{
		{name: "bad", query: option + "true&dryRun=All", code: 422},
		{name: "bad", query: option + "false", code: 500},
		{name: "none", query: option + "true", code: 422, audited: true},
		{name: "bad", query: option + "true", code: 200, audited: true},
	} {
		auditID := uuid.NewString()
		api.mustSend(test.code, "DELETE", configMaps+"/"+test.name+test.query, "", "Audit-Id", auditID)
		line := ""
		api.waitUntil("audited with ID "+auditID, func() bool {
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			for logged := range strings.Lines(string(text)) {
				if strings.Contains(logged, auditID) && strings.Contains(logged, `"stage":"ResponseComplete"`) {
					line = logged
				}
			}
			return line != ""
		})
		if annotated := strings.Contains(line, `"apiserver.k8s.io/unsafe-delete-ignore-read-error":""`); annotated != test.audited {
			t.Errorf("%s%s: got annotation unsafe-delete: %t, want %t: %s", test.name, test.query, annotated, test.audited, line)
		}
	}
}
