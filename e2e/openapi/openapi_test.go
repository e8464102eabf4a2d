package openapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

// TestDocumentsAreThoseOfKubernetes compares each document of a server with all versions and media
// types with that of Kubernetes 1.33.
func TestDocumentsAreThoseOfKubernetes(t *testing.T) {
	if testing.Short() {
		t.Skip("downloads a module")
	}
	want, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	server := harness.StartServer(t, harness.WithFlags("--runtime-config=api/all=true",
		"--feature-gates=OpenAPIEnums=false,CBORServingAndStorage=true,MutatingAdmissionPolicy=true,ClusterTrustBundle=true,VolumeAttributesClass=true,DynamicResourceAllocation=true,StorageVersionMigrator=true"))
	client := server.Client()
	var index struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(read(t, client, "/openapi/v3"), &index); err != nil {
		t.Fatal(err)
	}
	list := knownDifferences()
	used := make([]bool, len(list))
	check := func(document string, d difference) {
		if i := explain(list, document, d); i >= 0 {
			used[i] = true
		} else {
			t.Errorf("%s%s", document, d)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(want)) {
		if _, ok := index.Paths[at]; !ok {
			check(at, difference{kind: "gone"})
			continue
		}
		var theirs, ours any
		if err := json.Unmarshal(want[at], &theirs); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(read(t, client, "/openapi/v3/"+at), &ours); err != nil {
			t.Fatal(err)
		}
		for _, d := range differences("", theirs, ours) {
			check(at, d)
		}
	}
	for at := range index.Paths {
		if _, isVersion := strings.CutPrefix(at, "apis/"); isVersion && strings.Count(at, "/") == 2 && want[at] == nil {
			check(at, difference{kind: "new"})
		}
	}
	for i, k := range list {
		if !used[i] {
			t.Errorf("known difference not found: %s at %s … %s", k.kind, k.part, k.end)
		}
	}
}

func read(t *testing.T, c *kubernetes.Clientset, path string) []byte {
	t.Helper()
	body, err := c.RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return body
}
