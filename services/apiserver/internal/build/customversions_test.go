package build

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const registered = `{"group":"ex.test","version":%q,"groupPriorityMinimum":1000,"versionPriority":100}`

// versioned returns a definition in ex.test with versions. The first is stored.
func versioned(plural string, versions ...string) string {
	var all []string
	for i, v := range versions {
		all = append(all,
			fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object"}}}`, v, i == 0))
	}
	return fmt.Sprintf(`{"metadata":{"name":"%[1]s.ex.test"},"spec":{"group":"ex.test","scope":"Namespaced","names":{"plural":%[1]q,"singular":%[1]q,"kind":%[2]q},"versions":[%[3]s]}}`,
		plural, strings.ToUpper(plural[:1])+plural[1:], strings.Join(all, ","))
}

func (api *testServer) apiService(version string) apiResponse {
	return api.get(apiServicesPath + "/" + version + ".ex.test")
}

// TestCustomGroupVersionsHaveAPIServices checks that each version of a custom resource has an
// APIService while it is served, and that an existing APIService is not replaced.
func TestCustomGroupVersionsHaveAPIServices(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	theirs := api.mustSend(201, "POST", apiServicesPath,
		`{"metadata":{"name":"v2alpha1.ex.test"},"spec":{"group":"ex.test","version":"v2alpha1","groupPriorityMinimum":7,"versionPriority":8}}`)
	api.mustSend(201, "POST", definitionsPath, versioned("as", "v1", "v2alpha1"))
	api.mustSend(201, "POST", definitionsPath, versioned("bs", "v1", "v1beta1"))
	isRegistered := func(version string) bool {
		r := api.apiService(version)
		var want any
		_ = json.Unmarshal(fmt.Appendf(nil, registered, version), &want)
		return r.code == 200 && reflect.DeepEqual(r.field("spec"), want)
	}
	for _, v := range []string{"v1", "v1beta1"} {
		api.waitUntil("registered", func() bool { return isRegistered(v) })
		r := api.apiService(v)
		if r.field("metadata", "labels", "kube-aggregator.kubernetes.io/automanaged") != "true" ||
			r.conditions()["Available"] != "True Local" {
			t.Errorf("%s: got %s, want %q and %q", v, r.body, "true", "True Local")
		}
		if !strings.Contains(string(r.body), `"manager":"kube-apiserver"`) {
			t.Errorf("got %s, want the field manager kube-apiserver", r.body)
		}
	}
	if r := api.apiService("v2alpha1"); r.resourceVersion() != theirs.resourceVersion() {
		t.Errorf("APIService of another owner: got %s, want version %s", r.body, theirs.resourceVersion())
	}

	api.mustSend(200, "DELETE", apiServicesPath+"/v1.ex.test", "")
	api.waitUntil("registered again", func() bool { return isRegistered("v1") })
	api.mustSend(200, "PATCH", apiServicesPath+"/v1.ex.test", `{"spec":{"versionPriority":99}}`, "Content-Type", mergePatch)
	api.waitUntil("as it has to be", func() bool { return isRegistered("v1") })
	api.mustSend(200, "PATCH", apiServicesPath+"/v1beta1.ex.test",
		`{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},"spec":{"versionPriority":99}}`,
		"Content-Type", mergePatch)

	api.mustSend(200, "DELETE", definitionsPath+"/bs.ex.test", "")
	api.waitUntil("not served", func() bool { return api.get("/apis/ex.test/v1beta1").code == 404 })
	if !isRegistered("v1") {
		t.Error("got no APIService of v1, want it kept: another definition has the version")
	}
	api.mustSend(200, "DELETE", definitionsPath+"/as.ex.test", "")
	api.waitUntil("gone", func() bool { return api.apiService("v1").code == 404 })
	for _, v := range []string{"v2alpha1", "v1beta1"} {
		if r := api.apiService(v); r.code != 200 {
			t.Errorf("APIService of a user for %s: got status %d: %s, want 200", v, r.code, r.body)
		}
	}
}

// TestAPIServicesAreKeptWhileDefinitionIsCorrupt checks that an unreadable definition may still
// serve their group version.
func TestAPIServicesAreKeptWhileDefinitionIsCorrupt(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	registered := func(version string) {
		t.Helper()
		api.waitUntil("registered", func() bool { return api.apiService(version).code == 200 })
	}
	api.mustSend(201, "POST", definitionsPath, versioned("as", "v1"))
	registered("v1")
	const at = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
	for _, broken := range []string{"as.ex.test", "bs.ex.test"} { // the definition that serves v1, then another one
		api.overwrite(at+broken,
			`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"`+
				broken+`"},"spec":{"versions":5}}`)
		api.waitUntil("not served", func() bool { return api.get("/apis/ex.test/v1/as").code == 404 })
		// The next registration happens after the change was processed, and the one after that
		// after all group versions were checked.
		for _, n := range []string{"1", "2"} {
			version := "v2" + map[string]string{"as.ex.test": "alpha", "bs.ex.test": "beta"}[broken] + n
			api.mustSend(201, "POST", definitionsPath, versioned("c"+version, version))
			registered(version)
		}
		if r := api.apiService("v1"); r.code != 200 {
			t.Fatalf("while %s cannot be read: got status %d for v1, want 200", broken, r.code)
		}
		if broken == "as.ex.test" {
			api.overwrite(at+"bs.ex.test", "nonsense")
		}
		stored, _, err := api.server.stores.store.Get(t.Context(), at+broken, 0)
		if err == nil {
			_, err = api.server.stores.store.Delete(t.Context(), at+broken, stored.ModRevision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	api.waitUntil("removed when all definitions can be read", func() bool { return api.apiService("v1").code == 404 })
}

// TestReplicasWriteAPIServiceOnce checks that each APIService is written and deleted once, whatever
// the number of replicas.
func TestReplicasWriteAPIServiceOnce(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	all := replicasOn(t, 3)
	since := all[0].get(apiServicesPath).resourceVersion()
	const n = 5
	for i := range n {
		all[i%3].mustSend(201, "POST", definitionsPath, versioned(fmt.Sprintf("k%d", i), fmt.Sprintf("v%d", i+1)))
	}
	for i := range n {
		version := fmt.Sprintf("v%d", i+1)
		for _, a := range all {
			a.waitUntil("registered", func() bool { return a.apiService(version).code == 200 })
		}
	}
	for i := range n {
		all[(i+1)%3].mustSend(200, "DELETE", definitionsPath+fmt.Sprintf("/k%d.ex.test", i), "")
	}
	for i := range n {
		version := fmt.Sprintf("v%d", i+1)
		for _, a := range all {
			a.waitUntil("gone", func() bool { return a.apiService(version).code == 404 })
		}
	}
	got := map[string]int{}
	events := all[1].get(apiServicesPath + "?watch=1&timeoutSeconds=1&resourceVersion=" + since)
	for _, line := range strings.Split(strings.TrimSpace(string(events.body)), "\n") {
		var e struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got[e.Type+" "+e.Object.Metadata.Name]++
	}
	want := map[string]int{}
	for i := range n {
		want[fmt.Sprintf("ADDED v%d.ex.test", i+1)], want[fmt.Sprintf("DELETED v%d.ex.test", i+1)] = 1, 1
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
