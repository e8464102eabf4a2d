package openapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/openapi"
)

// ext is the group version of an extension server.
var ext = schema.GroupVersion{Group: "ext.test", Version: "v1"}

// extensionDocument is the document of an extension server. Beside its group version, it has paths
// that must be ignored, and a model with the name of a local one.
const extensionDocument = `{"swagger":"2.0","info":{"title":"Ext","version":"v0"},"paths":{
	"/apis/ext.test/v1/namespaces/{namespace}/things":{"get":{"operationId":"listThings","responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/test.ext.v1.Thing"}}}}},
	"/healthz":{"get":{"operationId":"health","responses":{"200":{"description":"OK"}}}},
	"/apis/apps/v1/deployments":{"get":{"operationId":"spy","responses":{"200":{"description":"OK"}}}}},
	"definitions":{
		"test.ext.v1.Thing":{"type":"object","description":"a thing","properties":{"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}},"x-kubernetes-group-version-kind":[{"group":"ext.test","version":"v1","kind":"Thing"}]},
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":{"type":"object","description":"another ObjectMeta","properties":{"odd":{"type":"string"}}}}}`

// TestV2IncludesExtensionGroupVersions checks that the v2 document includes the group versions of
// extension servers. Invalid documents are ignored.
func TestV2IncludesExtensionGroupVersions(t *testing.T) {
	service := newSmallService(t)
	part, err := openapi.ExtractGroupVersion([]byte(extensionDocument), ext)
	if err != nil {
		t.Fatal(err)
	}

	// 1. Get the document without and with the extension server.
	var remote []openapi.RemoteV2Document
	service.SetRemoteV2Documents(func(context.Context) []openapi.RemoteV2Document { return remote })
	local := get(t, service, "/openapi/v2")
	remote = []openapi.RemoteV2Document{
		{GroupVersion: ext, Tag: "1", Text: part},
		{GroupVersion: ext, Tag: "1", Text: []byte("nonsense")},
	}
	merged := get(t, service, "/openapi/v2")
	if merged.Header().Get("ETag") == local.Header().Get("ETag") || merged.Code != 200 {
		t.Fatalf("with an extension: got code %d and headers %v, want 200 and another ETag", merged.Code, merged.Header())
	}

	// 2. Check the models and paths.
	var doc struct {
		Info  map[string]string
		Paths map[string]struct {
			Get struct {
				Responses map[string]struct{ Schema map[string]any }
			}
		}
		Definitions map[string]map[string]any
	}
	if err := json.Unmarshal(merged.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	got := doc.Definitions["test.ext.v1.Thing"]["properties"]
	want := map[string]any{"metadata": map[string]any{"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got properties of Thing %v, want %v", got, want)
	}
	if got := doc.Definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"]["description"]; got != "another ObjectMeta" {
		t.Errorf("renamed ObjectMeta: got description %v, want %q", got, "another ObjectMeta")
	}
	if got := doc.Definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["description"]; got == "another ObjectMeta" {
		t.Error("the ObjectMeta of the extension server replaced the local one")
	}
	if doc.Paths["/apis/ext.test/v1/namespaces/{namespace}/things"].Get.Responses["200"].Schema["$ref"] != "#/definitions/test.ext.v1.Thing" {
		t.Error("got no list operation of the extension server that refers to its model, want one")
	}
	if _, ok := doc.Paths["/healthz"]; ok || strings.Contains(merged.Body.String(), "spy") || doc.Info["title"] != "Kubernetes" {
		t.Errorf("got title %q, and paths or operations of other group versions of the extension server", doc.Info["title"])
	}

	// 3. Check the ETag, the protobuf form, and the document after the server is gone.
	if response := get(t, service, "/openapi/v2", "If-None-Match", merged.Header().Get("ETag")); response.Code != http.StatusNotModified {
		t.Errorf("request with the ETag: got code %d, want %d", response.Code, http.StatusNotModified)
	}
	if response := get(t, service, "/openapi/v2", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"); response.Code != 200 ||
		!strings.Contains(response.Body.String(), "another ObjectMeta") {
		t.Errorf("protobuf: got code %d, want 200 and the model of the extension server", response.Code)
	}
	remote = nil
	if response := get(t, service, "/openapi/v2"); response.Header().Get("ETag") != local.Header().Get("ETag") {
		t.Errorf("without the extension server: got ETag %s, want %s", response.Header().Get("ETag"), local.Header().Get("ETag"))
	}
}

// TestInvalidExtensionDocumentsAreRejected checks that each kind of invalid document is rejected.
func TestInvalidExtensionDocumentsAreRejected(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "text": `"x"`, "null": "null", "no paths": `{"swagger":"2.0"}`, "list": "[]",
		"an unresolved reference":      `{"paths":{"/apis/ext.test/v1/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/none"}}}}}}}`,
		"an external reference":        `{"paths":{"/apis/ext.test/v1/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"https://example.com/x"}}}}}}}`,
		"depth":                        `{"paths":{"/apis/ext.test/v1/things":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}}`,
		"a list instead of a response": `{"paths":{"/apis/ext.test/v1/things":{"get":{"responses":{"200":[1]}}}}}`,
	} {
		if part, err := openapi.ExtractGroupVersion([]byte(text), ext); err == nil {
			t.Errorf("%s: got %s, want an error", name, part)
		}
	}
}

// TestV3IndexListsExtensionDocuments checks that the v3 index has the documents that extension servers
// serve. They cannot replace local ones.
func TestV3IndexListsExtensionDocuments(t *testing.T) {
	service := newSmallService(t)
	extension := http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("extension " + r.URL.RequestURI()))
		},
	)
	service.Replace(nil, []openapi.RemoteGroupVersion{
		{GroupVersion: ext, Hash: "a b", Document: extension},
		{GroupVersion: schema.GroupVersion{Group: "plain.test", Version: "v1"}, Document: extension},
		{GroupVersion: schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}, Hash: "x", Document: extension},
	})
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(get(t, service, "/openapi/v3").Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"apis/ext.test/v1":   "/openapi/v3/apis/ext.test/v1?hash=a+b",
		"apis/plain.test/v1": "/openapi/v3/apis/plain.test/v1",
	} {
		if got := index.Paths[path].ServerRelativeURL; got != want {
			t.Errorf("%s: got %q, want %v", path, got, want)
		}
		if response := get(t, service, want); response.Body.String() != "extension "+want {
			t.Errorf("%s: got %s", want, response.Body)
		}
	}
	if response := get(t, service, "/openapi/v3/apis/coordination.k8s.io/v1"); strings.HasPrefix(response.Body.String(), "extension") {
		t.Error("a local document was replaced")
	}
	service.Replace(nil, nil)
	if response := get(t, service, "/openapi/v3/apis/ext.test/v1"); response.Code != 404 {
		t.Errorf("removed document: got %d, want 404", response.Code)
	}
}
