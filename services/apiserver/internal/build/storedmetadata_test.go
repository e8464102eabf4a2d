package build

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"binnacle/services/apiserver/internal/storage"
)

// TestStoredMetadataIsRepaired reads a custom resource whose stored metadata clients cannot decode,
// in each form, and changes it.
func TestStoredMetadataIsRepaired(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.mustSend(http.StatusCreated, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	const things = "/apis/example.com/v1/namespaces/default/things"
	api.waitUntil("served", func() bool { return api.get(things).code == http.StatusOK })
	_, err := api.server.stores.store.Create(context.Background(),
		api.server.base.root+"/example.com/things/default/a", []byte(`{"apiVersion":"example.com/v1","kind":"Thing",
		"metadata":{"name":"a","namespace":"default","uid":"1","unknown":42,"annotations":{"bar":"abc","foo":42},"labels":{"l":"m"},"generation":null,"creationTimestamp":"2020-01-01T00:00:00Z"}}`), storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	api.waitUntil("seen", func() bool { return api.get(things+"/a").code == http.StatusOK })
	const form, watch = ";g=meta.k8s.io;v=v1", things + "?watch=1&timeoutSeconds=1"
	var requests sync.WaitGroup // watches take a second
	for accept, paths := range map[string][]string{
		"application/json":                                     {things + "/a", things, watch},
		"application/json;as=Table" + form:                     {things + "/a", things, watch},
		"application/json;as=PartialObjectMetadata" + form:     {things + "/a", watch},
		"application/json;as=PartialObjectMetadataList" + form: {things},
	} {
		for _, path := range paths {
			requests.Go(func() {
				got := string(api.get(path, "Accept", accept).body)
				got = strings.NewReplacer(" ", "", "\n", "").Replace(got)
				for _, want := range []string{`"generation":1`, `"labels":{"l":"m"}`} {
					if !strings.Contains(got, want) {
						t.Errorf("%s as %s: got %s, want it to contain %s", path, accept, got, want)
					}
				}
				for _, dropped := range []string{"annotations", "unknown"} {
					if strings.Contains(got, dropped) {
						t.Errorf("%s as %s: got %s, want it without %s", path, accept, got, dropped)
					}
				}
			})
		}
	}
	requests.Wait()
	api.mustSend(http.StatusOK, "GET", things, "", "Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList"+form)
	changed := api.mustSend(http.StatusOK, "PATCH", things+"/a", `{"metadata":{"annotations":{"x":"y"}}}`,
		"Content-Type", "application/merge-patch+json")
	if got := changed.field("metadata", "generation"); got != float64(1) {
		t.Errorf("after a change of the metadata: got generation %v, want 1", got)
	}
	api.mustSend(http.StatusOK, "DELETE", things+"/a", "")
}
