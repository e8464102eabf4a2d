package build

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage"
)

// overwrite writes a value directly into the store.
func (api *testServer) overwrite(key, value string) {
	api.t.Helper()
	ctx := api.t.Context()
	_, err := api.server.stores.store.Create(ctx, key, []byte(value), storage.WriteOptions{})
	var exists *storage.ExistsError
	var changed *storage.ConflictError // the server also writes the status of a policy
	for errors.As(err, &exists) || errors.As(err, &changed) {
		exists = nil
		changed = nil
		var current storage.KeyValue
		if current, _, err = api.server.stores.store.Get(ctx, key, 0); err == nil {
			_, err = api.server.stores.store.Update(ctx, key, []byte(value), current.ModRevision, storage.WriteOptions{})
		}
	}
	if err != nil {
		api.t.Fatal(err)
	}
}

// storeCorruptObjects creates the initial state of the recordings, and returns the resource version that
// includes it.
func (api *testServer) storeCorruptObjects() string {
	const at = "/registry/secrets/default/"
	for _, name := range strings.Split("abcdefgh", "") {
		api.overwrite(at+"bad-"+name, "k8s:enc:aescbc:v1:gone:0123456789abcdef")
	}
	api.overwrite(at+"nonsense", "\xffnonsense")
	api.overwrite(at+"proto", "k8s\x00\x0a\xffnonsense")
	api.overwrite(at+"otherkind", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"otherkind","namespace":"default"}}`)
	api.overwrite(at+"baduid",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"othername","namespace":"default","uid":"u-1"},"type":"Opaque"}`)
	return api.mustSend(201, "POST", secrets+"?fieldManager=recorder",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"good"},"data":{"a":"Yg=="}}`).resourceVersion()
}

// withUnsafeDelete enables RBAC and the gate of unsafe deletions.
func withUnsafeDelete(options *config.Options) {
	withRBAC(options)
	if err := options.Features.Set("AllowUnsafeMalformedObjectDeletion=true"); err != nil {
		panic(err)
	}
}

// TestUnsafeDeleteRemovesOnlyCorruptObjects checks that unsafe deletions behave as recorded, and that
// watches receive only intact objects.
func TestUnsafeDeleteRemovesOnlyCorruptObjects(t *testing.T) {
	t.Parallel()
	api := startServer(t, withUnsafeDelete)
	for user, verbs := range map[string]string{
		"alice": `"get","delete","unsafe-delete-ignore-read-errors"`,
		"bob":   `"get","list","watch","update","delete","deletecollection"`,
	} {
		api.mustSend(201, "POST", rbacPath+"/clusterroles", role(user, `{"apiGroups":[""],"resources":["secrets"],"verbs":[`+verbs+`]}`))
		api.mustSend(201, "POST", rbacPath+"/namespaces/default/rolebindings", bindingOf(user, "ClusterRole", user, user))
	}
	before := api.get(secrets).resourceVersion()
	after := api.storeCorruptObjects()
	for _, exchange := range readRecording(t, "unreadable", "1-gate-on.json") {
		switch {
		case exchange.Request == nil:
			continue
		case exchange.Name == "list from the cache":
			// The cache of Kubernetes stops at the first corrupt value. The cache of this server
			// continues, and has the other intact value.
			items := exchange.Response.Body.(map[string]any)
			items["items"] = append([]any{map[string]any{
				"metadata": map[string]any{
					"name": "othername", "namespace": "default", "uid": "u-1", "resourceVersion": "<rv>",
					"creationTimestamp": nil,
				}, "type": "Opaque",
			}}, items["items"].([]any)...)
		case strings.HasPrefix(exchange.Name, "a watch"):
			continue // below
		case exchange.Name == "list after all of them are deleted":
			for _, name := range []string{"d", "e", "f", "g", "h"} {
				api.mustSend(200, "DELETE", secrets+"/bad-"+name+"?ignoreStoreReadErrorWithClusterBreakingPotential=true", "")
			}
		}
		if user, ok := strings.CutPrefix(exchange.Request.User, "token:t-"); ok {
			api.waitUntil("known", func() bool { return api.send("GET", secrets+"/good", "", asUser(user)...).code == 200 })
			api.replay(t, exchange, asUser(user)...)
			continue
		}
		api.replay(t, exchange)
	}
	// A watch from before the first write receives only intact objects.
	for path, want := range map[string]string{
		secrets + "?watch=true&timeoutSeconds=1&resourceVersion=" + before: "ADDED othername ADDED good ",
		secrets + "?watch=true&timeoutSeconds=1&resourceVersion=" + after:  "",
	} {
		events := ""
		for line := range strings.Lines(string(api.mustSend(200, "GET", path, "").body)) {
			var event struct {
				Type   string
				Object struct{ Metadata struct{ Name string } }
			}
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Fatal(err)
			}
			events += event.Type + " " + event.Object.Metadata.Name + " "
		}
		if events != want {
			t.Errorf("%s: got events %q, want %q", path, events, want)
		}
	}
}

// TestUnsafeDeleteRemovesCorruptCustomResources checks that unsafe deletions of corrupt custom resources
// behave as recorded.
func TestUnsafeDeleteRemovesCorruptCustomResources(t *testing.T) {
	t.Parallel()
	api := startServer(t, withUnsafeDelete)
	api.mustSend(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"wids.ex.test"},"spec":{"group":"ex.test","scope":"Namespaced","names":{"plural":"wids","kind":"Wid"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	api.waitUntil("served", func() bool { return api.get("/apis/ex.test/v1/namespaces/default/wids").code == 200 })
	api.mustSend(201, "POST", "/apis/ex.test/v1/namespaces/default/wids",
		`{"apiVersion":"ex.test/v1","kind":"Wid","metadata":{"name":"w"}}`)
	api.overwrite("/registry/ex.test/wids/default/bad", "nonsense")
	for _, exchange := range readRecording(t, "unreadable", "2-custom-resources.json") {
		api.replay(t, exchange)
	}
}

// TestCorruptObjectErrorsMatchRecordings checks that the errors of corrupt objects without the gate equal
// the recorded ones. One difference is intended: the cache of this server is ready and has all intact
// objects.
func TestCorruptObjectErrorsMatchRecordings(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.storeCorruptObjects()
	api.mustSend(200, "GET", "/readyz", "")
	for _, exchange := range readRecording(t, "unreadable", "3-gate-off.json") {
		if exchange.Request != nil {
			api.replay(t, exchange)
		}
	}
	api.mustSend(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	const other = "/api/v1/namespaces/other/secrets"
	api.mustSend(201, "POST", other, `{"metadata":{"name":"s"}}`)
	for _, test := range []struct {
		path string
		code int
	}{
		// Another namespace has only intact objects.
		{path: other, code: 200},
		{path: other + "?watch=true&timeoutSeconds=1", code: 200},
		// A list or watch whose scope has corrupt objects fails.
		{path: "/api/v1/secrets?resourceVersion=0", code: 500},
		{path: secrets + "?watch=true&timeoutSeconds=1", code: 500},
		// A selector that matches one key depends on that object only.
		{path: secrets + "?fieldSelector=metadata.name%3Dbaduid", code: 200},
		{path: secrets + "?fieldSelector=metadata.name%3Dbad-b", code: 500},
	} {
		api.mustSend(test.code, "GET", test.path, "")
	}
	// The recordings begin with eight values with a lost key, two without a format and one of another
	// kind. The value of baduid is intact.
	const corruptSecrets = 8 + 2 + 1
	if n := api.metricValue(`binnacle_watch_cache_damaged_objects{resource="secrets"}`); n != corruptSecrets {
		t.Errorf("got %v corrupt objects, want %d", n, corruptSecrets)
	}
}

// TestCorruptFieldFailsReads checks that reads fail if a field that no selector reads is corrupt.
func TestCorruptFieldFailsReads(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.mustSend(201, "POST", secrets, `{"metadata":{"name":"good"},"data":{"a":"Yg=="}}`)
	stored, _, err := api.server.stores.store.Get(t.Context(), "/registry/secrets/default/good", 0)
	if err != nil {
		t.Fatal(err)
	}
	// The length of the first data entry exceeds the value.
	position := strings.Index(string(stored.Value), "\x12\x06\x0a\x01a\x12\x01b")
	if position < 0 {
		t.Fatalf("got value %q, want one with the data entry a", stored.Value)
	}
	bad := []byte(string(stored.Value))
	bad[position+3] = 0x7f
	api.overwrite("/registry/secrets/default/good", string(bad))
	api.waitUntil("corrupt", func() bool { return api.get(secrets).code == 500 })
	for _, path := range []string{secrets + "/good", secrets, secrets + "?limit=5"} {
		for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
			if response := api.get(path, "Accept", accept); response.code != 500 || !strings.Contains(string(response.body), "unexpected EOF") {
				t.Errorf("%s as %s: got status %d: %s, want 500 with \"unexpected EOF\"", path, accept, response.code, response.body)
			}
		}
	}
	if items := api.get(secrets + "?resourceVersion=0").field("items"); len(items.([]any)) != 0 {
		t.Errorf("list at any version: got items %v, want none", items)
	}
}

// TestCorruptPoliciesRejectWrites checks that writes that a corrupt policy may forbid are rejected, and
// that the previous state of a policy stays in force.
func TestCorruptPoliciesRejectWrites(t *testing.T) {
	t.Parallel()
	api := startServer(t, withUnsafeDelete)
	const kinds = "/apis/admissionregistration.k8s.io/v1/"
	const unsafe = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	for _, resource := range []string{
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
	} {
		api.overwrite("/registry/"+resource+"/bad", "k8s:enc:aescbc:v1:gone:x")
		api.waitUntil("rejected", func() bool { return api.send("POST", configMaps+"?dryRun=All", configMap("c")).code == 403 })
		api.mustSend(200, "DELETE", kinds+resource+"/bad"+unsafe, "")
		api.mustSend(201, "POST", configMaps+"?dryRun=All", configMap("c"))
	}
	api.mustSend(201, "POST", kinds+"validatingadmissionpolicies",
		`{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"validations":[{"expression":"object.metadata.name != 'no'"}]}}`)
	api.mustSend(201, "POST", kinds+"validatingadmissionpolicybindings",
		`{"metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"]}}`)
	api.mustSend(422, "POST", configMaps, configMap("no"))
	api.overwrite("/registry/validatingadmissionpolicies/p", "k8s:enc:aescbc:v1:gone:x")
	api.waitUntil("corrupt", func() bool { return api.get(kinds+"validatingadmissionpolicies/p").code == 500 })
	api.mustSend(422, "POST", configMaps, configMap("no"))
	api.mustSend(201, "POST", configMaps, configMap("yes"))
}

// TestLimitedWatchesReportCorruptObjects checks that a watch with limit=1 gets the same error as
// one without a limit.
func TestLimitedWatchesReportCorruptObjects(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.overwrite("/registry/secrets/default/bad", "k8s:enc:aescbc:v1:gone:x")
	api.waitUntil("corrupt", func() bool { return api.get(secrets).code == 500 })
	for _, query := range []string{"?watch=1&timeoutSeconds=1", "?watch=1&timeoutSeconds=1&limit=1"} {
		if text := api.mustSend(500, "GET", secrets+query, "").field("message"); !strings.Contains(text.(string), "secrets/default/bad") {
			t.Errorf("%s: got message %v, want the key secrets/default/bad in it", query, text)
		}
	}
}
