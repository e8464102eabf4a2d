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
func (a *api) corrupt(path string) (mend func()) {
	a.t.Helper()
	key := a.server.base.root + "/" + path
	for { // the server updates statuses
		kv, _, err := a.server.stores.store.Get(a.t.Context(), key, 0)
		if errors.Is(err, storage.ErrNotFound) {
			_, err = a.server.stores.store.Create(a.t.Context(), key, []byte("no object"), storage.WriteOptions{})
		} else if err == nil {
			_, err = a.server.stores.store.Update(a.t.Context(), key, []byte("no object"), kv.ModRevision, storage.WriteOptions{})
		}
		if conflict := new(storage.ConflictError); err != nil && !errors.As(err, &conflict) {
			a.t.Fatal(err)
		}
		if err == nil {
			break
		}
	}
	return func() {
		a.t.Helper()
		kv, _, err := a.server.stores.store.Get(a.t.Context(), key, 0)
		if err == nil {
			_, err = a.server.stores.store.Delete(a.t.Context(), key, kv.ModRevision)
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
}

// TestUnreadablePermissionObjectsGrantNothing checks that an unreadable object that decides on
// permissions is not treated as absent.
func TestUnreadablePermissionObjectsGrantNothing(t *testing.T) {
	t.Parallel()
	api := start(t, nil)
	name := 0
	attempt := func() answer {
		name++
		return api.send("POST", configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m%d"}}`, name))
	}
	unreadable := func(path string) {
		t.Helper()
		api.eventually(path+" cannot be read", func() bool { return api.get(path).code == 500 })
	}
	const rules = `"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}]`

	api.want(201, "POST", "/api/v1/namespaces",
		`{"metadata":{"name":"strict","labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"x:1"}]}}`
	api.want(403, "POST", "/api/v1/namespaces/strict/pods", pod)
	api.corrupt("namespaces/strict")
	unreadable("/api/v1/namespaces/strict")
	api.want(500, "POST", "/api/v1/namespaces/strict/pods", pod)

	api.want(201, "POST", admissionPath+"validatingadmissionpolicies",
		`{"metadata":{"name":"no"},"spec":{"matchConstraints":{`+rules+`},"validations":[{"expression":"false"}]}}`)
	api.want(201, "POST", admissionPath+"validatingadmissionpolicybindings",
		`{"metadata":{"name":"no"},"spec":{"policyName":"no","validationActions":["Deny"]}}`)
	rejected := func(what string, code int, text string) {
		t.Helper()
		if r := attempt(); r.code != code || !strings.Contains(string(r.body), text) {
			t.Errorf("%s: got status %d: %s, want status %d and %q", what, r.code, r.body, code, text)
		}
	}
	rejected("a policy", 422, "denied request")
	remove := api.corrupt("validatingadmissionpolicies/no")
	unreadable(admissionPath + "validatingadmissionpolicies/no")
	rejected("a policy that cannot be read any more", 422, "denied request")
	removeBinding := api.corrupt("validatingadmissionpolicybindings/no")
	unreadable(admissionPath + "validatingadmissionpolicybindings/no")
	rejected("a binding that cannot be read any more", 422, "denied request")
	remove()
	removeBinding()
	api.eventually("no policy any more", func() bool { return attempt().code == 201 })

	api.want(201, "POST", admissionPath+"validatingwebhookconfigurations",
		`{"metadata":{"name":"no"},"webhooks":[{"name":"no.example.com","sideEffects":"None","admissionReviewVersions":["v1"],
		"clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}]}]}`)
	rejected("a webhook", 500, "failed calling webhook")
	remove = api.corrupt("validatingwebhookconfigurations/no")
	unreadable(admissionPath + "validatingwebhookconfigurations/no")
	rejected("a webhook that cannot be read any more", 500, "failed calling webhook")
	remove()
	api.eventually("no webhook any more", func() bool { return attempt().code == 201 })

	for _, resource := range []string{
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicybindings",
	} {
		remove := api.corrupt(resource + "/never")
		unreadable(admissionPath + resource + "/never")
		rejected(resource+" that could never be read", 403, "not yet ready to handle request")
		remove()
		api.eventually(resource+" is gone", func() bool { return attempt().code == 201 })
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
	api := start(t, func(o *config.Options) {
		o.Audit.PolicyFile = policy
		o.Audit.Log.Path = log
		if err := o.Features.Set(string(features.AllowUnsafeMalformedObjectDeletion) + "=true"); err != nil {
			t.Fatal(err)
		}
	})
	api.want(201, "POST", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"}}`)
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
		id := uuid.NewString()
		api.want(test.code, "DELETE", configMaps+"/"+test.name+test.query, "", "Audit-Id", id)
		line := ""
		api.eventually("the end of "+id, func() bool {
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			for l := range strings.Lines(string(text)) {
				if strings.Contains(l, id) && strings.Contains(l, `"stage":"ResponseComplete"`) {
					line = l
				}
			}
			return line != ""
		})
		if audited := strings.Contains(line, `"apiserver.k8s.io/unsafe-delete-ignore-read-error":""`); audited != test.audited {
			t.Errorf("%s%s: got annotation unsafe-delete: %t, want %t: %s", test.name, test.query, audited, test.audited, line)
		}
	}
}
