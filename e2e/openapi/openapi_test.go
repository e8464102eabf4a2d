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

// TestDocumentsAreThoseOfKubernetes compares each document of a server with all versions and
// media types with the document of Kubernetes 1.33.
func TestDocumentsAreThoseOfKubernetes(t *testing.T) {
	if testing.Short() {
		t.Skip("downloads a module")
	}
	want, err := kubernetesDocuments()
	if err != nil {
		t.Fatal(err)
	}
	server := harness.StartServer(t, harness.WithFlags("--runtime-config=api/all=true",
		"--feature-gates=OpenAPIEnums=false,CBORServingAndStorage=true,MutatingAdmissionPolicy=true,ClusterTrustBundle=true,VolumeAttributesClass=true,DynamicResourceAllocation=true,StorageVersionMigrator=true"))
	client := server.Client()
	var index struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(readDocument(t, client, "/openapi/v3"), &index); err != nil {
		t.Fatal(err)
	}
	list := knownDifferences()
	used := make([]bool, len(list))
	check := func(document string, d difference) {
		if i := indexOfKnown(list, document, d); i >= 0 {
			used[i] = true
		} else {
			t.Errorf("%s%s", document, d)
		}
	}
	for _, document := range slices.Sorted(maps.Keys(want)) {
		if _, ok := index.Paths[document]; !ok {
			check(document, difference{kind: "gone"})
			continue
		}
		var expected, actual any
		if err := json.Unmarshal(want[document], &expected); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(readDocument(t, client, "/openapi/v3/"+document), &actual); err != nil {
			t.Fatal(err)
		}
		for _, d := range differences("", expected, actual) {
			check(document, d)
		}
	}
	for document := range index.Paths {
		if _, isVersion := strings.CutPrefix(document,
			"apis/"); isVersion && strings.Count(document, "/") == 2 && want[document] == nil {
			check(document, difference{kind: "new"})
		}
	}
	for i, k := range list {
		if !used[i] {
			t.Errorf("known difference: got none, want %s at %s … %s", k.kind, k.pathPart, k.pathEnd)
		}
	}
}

// readDocument returns the response to a GET.
func readDocument(t *testing.T, client *kubernetes.Clientset, path string) []byte {
	t.Helper()
	body, err := client.RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return body
}
