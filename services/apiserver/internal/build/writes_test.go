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
	api := start(t, withRBAC)
	api.want(201, "POST", rbacPath+"/clusterroles", role("patcher",
		`{"apiGroups":["","coordination.k8s.io"],"resources":["configmaps","leases"],"verbs":["patch","update"]}`))
	api.want(201, "POST", rbacPath+"/namespaces/default/rolebindings", bindingOf("b", "ClusterRole", "patcher", "alice"))
	alice := append(as("alice"), "Content-Type", applyPatch)
	const path = configMaps + "/a?fieldManager=m"
	api.eventually("allowed to patch", func() bool { return api.send("PATCH", path, configMap("b"), alice...).code == 400 })
	rejected := api.want(403, "PATCH", path, configMap("a"), alice...)
	const forbidden = `configmaps "a" is forbidden: User "alice" cannot create resource "configmaps" in API group "" in the namespace "default"`
	if text := fmt.Sprint(rejected.at("message")); text != forbidden {
		t.Errorf("got message %s, want %s", text, forbidden)
	}
	api.want(201, "POST", configMaps, configMap("a"))
	api.want(200, "PATCH", path, configMap("a", "k", "v"), alice...)
	lease := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}`
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
	api.want(403, "PUT", leases, lease, as("alice")...)
	api.want(201, "PUT", leases, lease)
	version := api.get(leases).version()
	api.want(200, "PUT", leases, strings.Replace(lease, `"name":"l"`, `"name":"l","resourceVersion":"`+version+`"`, 1), as("alice")...)
}

// TestConcurrentAppliesLoseNothing checks that a conflicting apply is retried.
func TestConcurrentAppliesLoseNothing(t *testing.T) {
	t.Parallel()
	api := shared(t)
	configMaps := api.own("configmaps")
	const appliers = 12
	var wg sync.WaitGroup
	for i := range appliers {
		wg.Go(func() {
			path := fmt.Sprintf("%s/shared?fieldManager=m%d", configMaps, i)
			for _, value := range []string{"1", "2", "3"} {
				r := api.send("PATCH", path, configMap("shared", fmt.Sprint("k", i), value), "Content-Type", applyPatch)
				if r.code != http.StatusOK && r.code != http.StatusCreated {
					t.Errorf("m%d: got status %d: %s, want 200 or 201", i, r.code, r.body)
				}
			}
		})
	}
	wg.Wait()
	got := api.get(configMaps + "/shared")
	data, _ := got.at("data").(map[string]any)
	entries, _ := got.at("metadata", "managedFields").([]any)
	if len(data) != appliers || len(entries) != appliers {
		t.Errorf("got %d keys and %d managers, want %d of each: %s", len(data), len(entries), appliers, got.body)
	}
}

// TestNoOpWritesAreNotStored covers all kinds of writes.
func TestNoOpWritesAreNotStored(t *testing.T) {
	t.Parallel()
	api := shared(t)
	configMaps := api.own("configmaps")
	api.want(201, "PATCH", configMaps+"/a?fieldManager=m", configMap("a", "k", "v"), "Content-Type", applyPatch)
	before := api.get(configMaps + "/a")
	for _, c := range []struct{ method, body, media string }{
		{method: "PATCH", body: configMap("a", "k", "v"), media: applyPatch},
		{method: "PATCH", body: `{"data":{"k":"v"}}`, media: mergePatch},
		{method: "PATCH", body: `{"data":{"k":"v"}}`, media: "application/strategic-merge-patch+json"},
		{method: "PATCH", body: `[]`, media: jsonPatch},
		{method: "PATCH", body: `[{"op":"add","path":"/data/k","value":"v"}]`, media: jsonPatch},
		{method: "PUT", body: configMap("a", "k", "v"), media: "application/json"},
	} {
		r := api.want(200, c.method, configMaps+"/a?fieldManager=m", c.body, "Content-Type", c.media)
		if string(r.body) != string(before.body) {
			t.Errorf("%s of %s: got %s, want it unchanged, %s", c.media, c.body, r.body, before.body)
		}
	}
}

// TestInvalidPatches checks the status code and message of patches that cannot be decoded or
// applied, and that they change nothing.
func TestInvalidPatches(t *testing.T) {
	t.Parallel()
	api := shared(t)
	configMaps := api.own("configmaps")
	api.want(201, "POST", configMaps, configMap("a", "k", "v"))
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
		r := api.send("PATCH", configMaps+"/a?fieldManager=m", test.body, "Content-Type", test.media)
		if r.code != test.code || !strings.Contains(fmt.Sprint(r.at("message")), test.message) {
			t.Errorf("%s %s: got %d %s, want %d %s", test.media, test.body, r.code, r.body, test.code, test.message)
		}
	}
	if v := api.get(configMaps+"/a").at("data", "k"); v != "v" {
		t.Errorf("got value %v, want v", v)
	}
}

// TestFieldValidation covers every kind of write: unknown fields cause a warning, an error, or
// nothing.
func TestFieldValidation(t *testing.T) {
	t.Parallel()
	api := shared(t)
	configMaps := api.own("configmaps")
	api.want(201, "POST", configMaps, configMap("a", "k", "v"))
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
			answer := api.send(test.method, configMaps+"/a?dryRun=All&fieldManager=m&force=true&fieldValidation="+mode,
				test.body, "Content-Type", test.media)
			if test.media != applyPatch {
				answer = api.send(test.method, configMaps+"/a?dryRun=All&fieldManager=m&fieldValidation="+mode, test.body, "Content-Type", test.media)
			}
			warning := answer.header.Get("Warning")
			want := ""
			if mode == "Warn" || mode == "" {
				want = `299 - "` + strings.ReplaceAll(test.warning, `"`, `\"`) + `"`
			}
			rejected := answer.code == 400 || answer.code == 422
			if rejected != (mode == "Strict") || warning != want {
				t.Errorf("%s %s %q: got %d, warning %q, want %q: %s", test.media, test.body, mode, answer.code, warning, want, answer.body)
			}
			if mode == "Strict" && !strings.Contains(fmt.Sprint(answer.at("message")), test.warning) {
				t.Errorf("%s: got %s, want a message that contains %q", test.body, answer.body, test.warning)
			}
		}
	}
}

// TestDuplicateOwnerReferences checks that a duplicate owner is dropped with a warning.
func TestDuplicateOwnerReferences(t *testing.T) {
	t.Parallel()
	a := shared(t)
	configMaps := a.own("configmaps")
	owner := `{"apiVersion":"v1","kind":"Node","name":"n","uid":"u1"}`
	r := a.want(201, "POST", configMaps,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[`+owner+`,`+owner+`]}}`)
	if refs, _ := r.at("metadata", "ownerReferences").([]any); len(refs) != 1 ||
		!strings.Contains(r.header.Get("Warning"), "duplicate UID(s) observed: u1") {
		t.Errorf("got owners %v, warning %q, want one owner and a warning of the duplicate UID u1", refs, r.header.Get("Warning"))
	}
}

// TestLargeObjectsDropManagedFields checks objects that are too large with managed fields.
func TestLargeObjectsDropManagedFields(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := shared(t)
	configMaps := api.own("configmaps")
	var data []string
	for i := range 28000 {
		data = append(data, fmt.Sprintf("key-%020d", i), "v")
	}
	r := api.want(201, "POST", configMaps, configMap("large", data...))
	if r.at("metadata", "managedFields") != nil {
		t.Errorf("got %s, want no managedFields", r.body)
	}
	api.want(200, "PATCH", configMaps+"/large", `{"data":{"more":"1"}}`, "Content-Type", mergePatch)
	api.want(201, "POST", configMaps, configMap("larger", data[:54000]...))
	r = api.want(413, "PATCH", configMaps+"/larger",
		configMap("larger", "x", strings.Repeat("x", 900<<10)), "Content-Type", mergePatch)
	if !strings.Contains(fmt.Sprint(r.at("message")), "too large") {
		t.Errorf("got message %v, want it to contain %q", r.at("message"), "too large")
	}
}

// TestApplyInCBOR checks that CBOR apply patches work like others, and that other patches cannot
// use CBOR.
func TestApplyInCBOR(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startCBOR(t)
	const media = "application/apply-patch+cbor"
	object := func(value string) string {
		return inCBOR(t, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"k": value},
		})
	}
	r := api.want(201, "PATCH", configMaps+"/a?fieldManager=m", object("1"), "Content-Type", media)
	if r.at("data", "k") != "1" {
		t.Errorf("create: got %s, want the value 1", r.body)
	}
	api.want(409, "PATCH", configMaps+"/a?fieldManager=n", object("2"), "Content-Type", media)
	api.want(200, "PATCH", configMaps+"/a?fieldManager=n&force=true", object("2"), "Content-Type", media)
	api.want(422, "PATCH", configMaps+"/a", object("2"), "Content-Type", media)
	api.want(400, "PATCH", configMaps+"/a?fieldManager=n", "{", "Content-Type", media)
}
