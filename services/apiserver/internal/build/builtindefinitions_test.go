package build

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/storage"
)

// protectedDefinition returns a definition of version v9 of a resource of Kubernetes.
func protectedDefinition(group, plural, kind string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[2]s.%[1]s","annotations":{"api-approved.kubernetes.io":"https://example.com"}},
		"spec":{"group":%[1]q,"scope":"Cluster","names":{"plural":%[2]q,"singular":%[4]q,"kind":%[3]q},"versions":[{"name":"v9","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`,
		group, plural, kind, strings.ToLower(kind))
}

// TestDefinitionInBuiltInGroupServesNothing checks that a definition of another version of a built-in group
// is established but serves nothing, and that its deletion keeps the objects of the built-in
// resource.
func TestDefinitionInBuiltInGroupServesNothing(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	for _, test := range []struct{ group, plural, kind string }{
		{group: "apiextensions.k8s.io", plural: "customresourcedefinitions", kind: "CustomResourceDefinition"},
		{group: "apiregistration.k8s.io", plural: "apiservices", kind: "APIService"},
		{group: "rbac.authorization.k8s.io", plural: "clusterroles", kind: "ClusterRole"},
		{group: "apiextensions.k8s.io", plural: "foos", kind: "Foo"},
		{group: "coordination.k8s.io", plural: "foos", kind: "Foo"},
	} {
		path, v9 := definitionsPath+"/"+test.plural+"."+test.group, "/apis/"+test.group+"/v9/"+test.plural
		api.mustSend(201, "POST", definitionsPath, protectedDefinition(test.group, test.plural, test.kind))
		api.waitUntil("established", func() bool {
			got := api.get(path).conditions()
			return got["Established"] == "True InitialNamesAccepted" && got["NamesAccepted"] == "True NoConflicts"
		})
		api.mustSend(404, "GET", v9, "")
		api.mustSend(404, "POST", v9,
			fmt.Sprintf(`{"apiVersion":"%s/v9","kind":%q,"metadata":{"name":"a.example.com"}}`, test.group, test.kind))
		api.mustSend(404, "GET", "/apis/"+test.group+"/v9", "")
		if test.plural != "foos" {
			api.mustSend(200, "GET", "/apis/"+test.group+"/v1/"+test.plural, "")
		}
		api.mustSend(200, "DELETE", path, "")
		api.waitUntil("gone", func() bool { return api.get(path).code == 404 })
		if test.plural != "foos" {
			api.mustSend(200, "GET", "/apis/"+test.group+"/v1/"+test.plural, "")
		}
	}
	api.mustSend(200, "GET", definitionsPath+"/things.example.com", "")
	api.mustSend(201, "POST", definitionsPath, definitionOf("others", "Other", ""))
	api.mustSend(200, "GET", "/apis/example.com/v1/others", "")
}

// TestForgedDefinitionServesNothing writes a definition into the store that the API rejects. It
// serves nothing, and its deletion keeps the objects of other resources.
func TestForgedDefinitionServesNothing(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	victim := "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings"
	api.mustSend(201, "POST", victim,
		`{"metadata":{"name":"victim"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"a"}}`)
	const names = `"plural":"kube-system","singular":"forged","kind":"Forged","listKind":"ForgedList"`
	_, err := api.server.stores.store.Create(context.Background(),
		api.server.base.root+"/apiextensions.k8s.io/customresourcedefinitions/kube-system.rolebindings",
		[]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"kube-system.rolebindings","uid":"1","creationTimestamp":"2020-01-01T00:00:00Z","finalizers":["customresourcecleanup.apiextensions.k8s.io"]},
		"spec":{"group":"rolebindings","scope":"Cluster","names":{`+names+
			`},"conversion":{"strategy":"None"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]},
		"status":{"conditions":[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}],"acceptedNames":{`+
			names+`},"storedVersions":["v1"]}}`), storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := definitionsPath + "/kube-system.rolebindings"
	api.waitUntil("seen", func() bool { return api.get(path).code == 200 })
	api.mustSend(404, "GET", "/apis/rolebindings/v1/kube-system", "")
	api.mustSend(200, "DELETE", path, "")
	api.waitUntil("gone", func() bool { return api.get(path).code == 404 })
	api.mustSend(200, "GET", victim+"/victim", "")
}

// TestCustomResourceKeysDoNotCollide checks that no definition can claim the keys of built-in
// kinds.
func TestCustomResourceKeysDoNotCollide(t *testing.T) {
	t.Parallel()
	for _, k := range sharedServer(t).server.catalogs.catalog.Kinds() {
		group, resource, _ := strings.Cut(k.Stored.Prefix, "/")
		if !k.Virtual && definition.HasOwnKeyPrefix(group, resource) {
			t.Errorf("%s: a custom resource got the key prefix %s, want it reserved", k.GVK(), k.Stored.Prefix)
		}
	}
}
