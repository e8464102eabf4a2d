package build

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

const (
	applyPatch = "application/apply-patch+yaml"
	jsonPatch  = "application/json-patch+json"
)

// TestApplyNeedsCreatePermission checks that the permissions patch and update do not suffice to
// create (specification: "Field ownership", rule 9).
func TestApplyNeedsCreatePermission(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	api.mustSend(201, "POST", rbacPath+"/clusterroles", role("patcher",
		`{"apiGroups":["","coordination.k8s.io"],"resources":["configmaps","leases"],"verbs":["patch","update"]}`))
	api.mustSend(201, "POST", rbacPath+"/namespaces/default/rolebindings", bindingOf("b", "ClusterRole", "patcher", "alice"))
	alice := append(asUser("alice"), "Content-Type", applyPatch)
	const path = configMaps + "/a?fieldManager=m"
	api.waitUntil("allowed to patch", func() bool { return api.send("PATCH", path, configMap("b"), alice...).code == 400 })
	rejected := api.mustSend(403, "PATCH", path, configMap("a"), alice...)
	const forbidden = `configmaps "a" is forbidden: User "alice" cannot create resource "configmaps" in API group "" in the namespace "default"`
	if text := fmt.Sprint(rejected.field("message")); text != forbidden {
		t.Errorf("got message %s, want %s", text, forbidden)
	}
	api.mustSend(201, "POST", configMaps, configMap("a"))
	api.mustSend(200, "PATCH", path, configMap("a", "k", "v"), alice...)
	lease := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}`
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
	api.mustSend(403, "PUT", leases, lease, asUser("alice")...)
	api.mustSend(201, "PUT", leases, lease)
	version := api.get(leases).resourceVersion()
	api.mustSend(200, "PUT", leases, strings.Replace(lease, `"name":"l"`, `"name":"l","resourceVersion":"`+version+`"`, 1), asUser("alice")...)
}

// TestConcurrentAppliesLoseNothing checks that a conflicting apply is retried.
func TestConcurrentAppliesLoseNothing(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	const appliers = 12
	var wg sync.WaitGroup
	for i := range appliers {
		wg.Go(func() {
			path := fmt.Sprintf("%s/shared?fieldManager=m%d", configMaps, i)
			for _, value := range []string{"1", "2", "3"} {
				response := api.send("PATCH", path, configMap("shared", fmt.Sprint("k", i), value), "Content-Type", applyPatch)
				if response.code != http.StatusOK && response.code != http.StatusCreated {
					t.Errorf("m%d: got status %d: %s, want 200 or 201", i, response.code, response.body)
				}
			}
		})
	}
	wg.Wait()
	got := api.get(configMaps + "/shared")
	data, _ := got.field("data").(map[string]any)
	entries, _ := got.field("metadata", "managedFields").([]any)
	if len(data) != appliers || len(entries) != appliers {
		t.Errorf("got %d keys and %d managers, want %d of each: %s", len(data), len(entries), appliers, got.body)
	}
}

// TestNoOpWritesAreNotStored covers all kinds of writes.
func TestNoOpWritesAreNotStored(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	api.mustSend(201, "PATCH", configMaps+"/a?fieldManager=m", configMap("a", "k", "v"), "Content-Type", applyPatch)
	before := api.get(configMaps + "/a")
	for _, change := range []struct{ method, body, media string }{
		{method: "PATCH", body: configMap("a", "k", "v"), media: applyPatch},
		{method: "PATCH", body: `{"data":{"k":"v"}}`, media: mergePatch},
		{method: "PATCH", body: `{"data":{"k":"v"}}`, media: "application/strategic-merge-patch+json"},
		{method: "PATCH", body: `[]`, media: jsonPatch},
		{method: "PATCH", body: `[{"op":"add","path":"/data/k","value":"v"}]`, media: jsonPatch},
		{method: "PUT", body: configMap("a", "k", "v"), media: "application/json"},
	} {
		response := api.mustSend(200, change.method, configMaps+"/a?fieldManager=m", change.body, "Content-Type", change.media)
		if string(response.body) != string(before.body) {
			t.Errorf("%s of %s: got %s, want it unchanged, %s", change.media, change.body, response.body, before.body)
		}
	}
}

// TestInvalidPatchesAreRejected checks the status code and message of patches that cannot be decoded or
// applied, and that they change nothing.
func TestInvalidPatchesAreRejected(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	api.mustSend(201, "POST", configMaps, configMap("a", "k", "v"))
	const strategic = "application/strategic-merge-patch+json"
	for _, test := range []struct {
		code        int
		media, body string
		message     string
	}{
		{code: 409, media: mergePatch, body: `{"metadata":{"resourceVersion":"1"}}`, message: "the object has been modified"},
		{code: 422, media: mergePatch, body: `{"metadata":{"uid":"x"}}`, message: "field is immutable"},
		{
			code:    400,
			media:   mergePatch,
			body:    `{"metadata":{"name":"b"}}`,
			message: "the name of the object (b) does not match the name on the URL (a)",
		},
		{
			code:    400,
			media:   mergePatch,
			body:    `{"metadata":{"namespace":"b"}}`,
			message: "the namespace of the provided object does not match the namespace sent on the request",
		},
		{code: 422, media: mergePatch, body: `{"kind":"Secret"}`, message: `patch: Invalid value`},
		{code: 422, media: mergePatch, body: `{"data":{"k":1}}`, message: `patch: Invalid value`},
		{code: 422, media: mergePatch, body: `{"immutable":"yes"}`, message: `patch: Invalid value`},
		{code: 422, media: strategic, body: `{"data":[]}`, message: `patch: Invalid value`},
		{code: 422, media: strategic, body: `{"data":{"$patch":"vote"}}`, message: ``},
		{code: 422, media: strategic, body: `{"metadata":{"ownerReferences":[{"name":"x"}]}}`, message: ``},
		{code: 422, media: jsonPatch, body: `[{"op":"test","path":"/binaryData"}]`, message: ``},
		{code: 422, media: jsonPatch, body: `[{"op":"vote","path":"/data"}]`, message: ``},
		{code: 422, media: jsonPatch, body: `[{"op":"copy","from":"/no/where","path":"/data"}]`, message: ``},
		{
			code:    400,
			media:   applyPatch,
			body:    `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`,
			message: "invalid object type",
		},
		{code: 400, media: applyPatch, body: ``, message: "invalid object type: /, Kind="},
		{code: 400, media: applyPatch, body: `null`, message: "invalid object type: /, Kind="},
		{
			code:    400,
			media:   applyPatch,
			body:    `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","managedFields":[]}}`,
			message: "metadata.managedFields must be nil",
		},
		{
			code:    400,
			media:   applyPatch,
			body:    `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"date":{}}`,
			message: ".date: field not declared in schema",
		},
		{code: 415, media: "application/apply-patch+cbor", body: "\xa0", message: "415"},
		{code: 415, media: "application/json", body: "{}", message: "415"},
	} {
		response := api.send("PATCH", configMaps+"/a?fieldManager=m", test.body, "Content-Type", test.media)
		if response.code != test.code || !strings.Contains(fmt.Sprint(response.field("message")), test.message) {
			t.Errorf("%s %s: got %d %s, want %d %s", test.media, test.body, response.code, response.body, test.code, test.message)
		}
	}
	if v := api.get(configMaps+"/a").field("data", "k"); v != "v" {
		t.Errorf("got value %v, want v", v)
	}
}

// TestUnknownFieldsAreIgnoredReportedOrRejected covers every kind of write: unknown fields cause a warning, an error, or
// nothing.
func TestUnknownFieldsAreIgnoredReportedOrRejected(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	api.mustSend(201, "POST", configMaps, configMap("a", "k", "v"))
	const strategic = "application/strategic-merge-patch+json"
	for _, test := range []struct{ method, media, body, warning string }{
		{
			method:  "PUT",
			media:   "application/json",
			body:    `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","lable":{}}}`,
			warning: `unknown field "metadata.lable"`,
		},
		{
			method:  "PUT",
			media:   "application/yaml",
			body:    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndta: {}\n",
			warning: `unknown field "dta"`,
		},
		{method: "PATCH", media: mergePatch, body: `{"data":{"a":"1","a":"2"}}`, warning: `duplicate field "data.a"`},
		{method: "PATCH", media: mergePatch, body: `{"metadata":{"x":1}}`, warning: `unknown field "metadata.x"`},
		{method: "PATCH", media: strategic, body: `{"metadata":{"x":1}}`, warning: `unknown field "metadata.x"`},
		{
			method:  "PATCH",
			media:   jsonPatch,
			body:    `[{"op":"add","path":"/metadata/x","value":1}]`,
			warning: `unknown field "metadata.x"`,
		},
		{
			method:  "PATCH",
			media:   jsonPatch,
			body:    `[{"op":"add","path":"/data","value":{},"x":1}]`,
			warning: `json patch unknown field "[0].x"`,
		},
		{
			method:  "PATCH",
			media:   applyPatch,
			body:    "apiVersion: v1\nkind: ConfigMap\nkind: ConfigMap\nmetadata: {name: a}\n",
			warning: `line 3: key "kind" already set in map`,
		},
	} {
		for _, mode := range []string{"Ignore", "Warn", "Strict", ""} {
			response := api.send(test.method, configMaps+"/a?dryRun=All&fieldManager=m&force=true&fieldValidation="+mode,
				test.body, "Content-Type", test.media)
			if test.media != applyPatch {
				response = api.send(test.method, configMaps+"/a?dryRun=All&fieldManager=m&fieldValidation="+mode, test.body, "Content-Type", test.media)
			}
			warning := response.header.Get("Warning")
			want := ""
			if mode == "Warn" || mode == "" {
				want = `299 - "` + strings.ReplaceAll(test.warning, `"`, `\"`) + `"`
			}
			rejected := response.code == 400 || response.code == 422
			if rejected != (mode == "Strict") || warning != want {
				t.Errorf("%s %s %q: got %d, warning %q, want %q: %s", test.media, test.body, mode, response.code, warning, want, response.body)
			}
			if mode == "Strict" && !strings.Contains(fmt.Sprint(response.field("message")), test.warning) {
				t.Errorf("%s: got %s, want a message that contains %q", test.body, response.body, test.warning)
			}
		}
	}
}

// TestDuplicateOwnerReferencesAreDropped checks that a duplicate owner is dropped with a warning.
func TestDuplicateOwnerReferencesAreDropped(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	owner := `{"apiVersion":"v1","kind":"Node","name":"n","uid":"u1"}`
	response := api.mustSend(201, "POST", configMaps,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[`+owner+`,`+owner+`]}}`)
	if refs, _ := response.field("metadata", "ownerReferences").([]any); len(refs) != 1 ||
		!strings.Contains(response.header.Get("Warning"), "duplicate UID(s) observed: u1") {
		t.Errorf("got owners %v, warning %q, want one owner and a warning of the duplicate UID u1", refs, response.header.Get("Warning"))
	}
}

// TestLargeObjectsDropManagedFields checks objects that are too large with managed fields.
func TestLargeObjectsDropManagedFields(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	var data []string
	for i := range 28000 {
		data = append(data, fmt.Sprintf("key-%020d", i), "v")
	}
	response := api.mustSend(201, "POST", configMaps, configMap("large", data...))
	if response.field("metadata", "managedFields") != nil {
		t.Errorf("got %s, want no managedFields", response.body)
	}
	api.mustSend(200, "PATCH", configMaps+"/large", `{"data":{"more":"1"}}`, "Content-Type", mergePatch)
	api.mustSend(201, "POST", configMaps, configMap("larger", data[:54000]...))
	response = api.mustSend(413, "PATCH", configMaps+"/larger",
		configMap("larger", "x", strings.Repeat("x", 900<<10)), "Content-Type", mergePatch)
	if !strings.Contains(fmt.Sprint(response.field("message")), "too large") {
		t.Errorf("got message %v, want it to contain %q", response.field("message"), "too large")
	}
}

// TestApplyPatchesAreAcceptedInCBOR checks that CBOR apply patches work like others, and that other patches cannot
// use CBOR.
func TestApplyPatchesAreAcceptedInCBOR(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startCBOR(t)
	const media = "application/apply-patch+cbor"
	object := func(value string) string {
		return inCBOR(t, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"k": value},
		})
	}
	response := api.mustSend(201, "PATCH", configMaps+"/a?fieldManager=m", object("1"), "Content-Type", media)
	if response.field("data", "k") != "1" {
		t.Errorf("create: got %s, want the value 1", response.body)
	}
	api.mustSend(409, "PATCH", configMaps+"/a?fieldManager=n", object("2"), "Content-Type", media)
	api.mustSend(200, "PATCH", configMaps+"/a?fieldManager=n&force=true", object("2"), "Content-Type", media)
	api.mustSend(422, "PATCH", configMaps+"/a", object("2"), "Content-Type", media)
	api.mustSend(400, "PATCH", configMaps+"/a?fieldManager=n", "{", "Content-Type", media)
}
