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

var ext = schema.GroupVersion{Group: "ext.test", Version: "v1"}

const foreign = `{"swagger":"2.0","info":{"title":"Ext","version":"v0"},"paths":{
	"/apis/ext.test/v1/namespaces/{namespace}/things":{"get":{"operationId":"listThings","responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/test.ext.v1.Thing"}}}}},
	"/healthz":{"get":{"operationId":"health","responses":{"200":{"description":"OK"}}}},
	"/apis/apps/v1/deployments":{"get":{"operationId":"spy","responses":{"200":{"description":"OK"}}}}},
	"definitions":{
		"test.ext.v1.Thing":{"type":"object","description":"a thing","properties":{"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}},"x-kubernetes-group-version-kind":[{"group":"ext.test","version":"v1","kind":"Thing"}]},
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":{"type":"object","description":"another ObjectMeta","properties":{"odd":{"type":"string"}}}}}`

// TestExtensionDocuments merges the documents of other servers, and ignores invalid ones.
func TestExtensionDocuments(t *testing.T) {
	s := newSmallService(t)
	part, err := openapi.ExtractGroupVersion([]byte(foreign), ext)
	if err != nil {
		t.Fatal(err)
	}
	tag := "1"
	var others []openapi.RemoteV2Document
	s.SetRemoteV2Documents(func(context.Context) []openapi.RemoteV2Document { return others })
	alone := get(t, s, "/openapi/v2")
	others = []openapi.RemoteV2Document{
		{GroupVersion: ext, Tag: tag, Text: part},
		{GroupVersion: ext, Tag: tag, Text: []byte("nonsense")},
	}
	both := get(t, s, "/openapi/v2")
	if both.Header().Get("ETag") == alone.Header().Get("ETag") || both.Code != 200 {
		t.Fatalf("got %d %v, want 200", both.Code, both.Header())
	}
	var doc struct {
		Info  map[string]string
		Paths map[string]struct {
			Get struct {
				Responses map[string]struct{ Schema map[string]any }
			}
		}
		Definitions map[string]map[string]any
	}
	if err := json.Unmarshal(both.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if got := doc.Definitions["test.ext.v1.Thing"]["properties"]; !reflect.DeepEqual(got,
		map[string]any{"metadata": map[string]any{"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"}}) {
		t.Errorf("got thing %v, want %v",
			got,
			map[string]any{"metadata": map[string]any{"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"}})
	}
	if got := doc.Definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"]["description"]; got != "another ObjectMeta" {
		t.Errorf("got metadata %v, want %q", got, "another ObjectMeta")
	}
	if got := doc.Definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["description"]; got == "another ObjectMeta" {
		t.Error("a local definition was replaced")
	}
	if doc.Paths["/apis/ext.test/v1/namespaces/{namespace}/things"].Get.Responses["200"].Schema["$ref"] != "#/definitions/test.ext.v1.Thing" {
		t.Error("no path of the extension server, want one")
	}
	if _, ok := doc.Paths["/healthz"]; ok || strings.Contains(both.Body.String(), "spy") || doc.Info["title"] != "Kubernetes" {
		t.Error("got paths of other group versions")
	}
	if w := get(t, s, "/openapi/v2", "If-None-Match", both.Header().Get("ETag")); w.Code != http.StatusNotModified {
		t.Errorf("second request: got %d, want %v", w.Code, http.StatusNotModified)
	}
	if w := get(t, s, "/openapi/v2", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"); w.Code != 200 ||
		!strings.Contains(w.Body.String(), "another ObjectMeta") {
		t.Errorf("protobuf: got %d, want 200", w.Code)
	}
	others = nil
	if w := get(t, s, "/openapi/v2"); w.Header().Get("ETag") != alone.Header().Get("ETag") {
		t.Error("got a removed document")
	}
}

func TestInvalidExtensionDocuments(t *testing.T) {
	for what, text := range map[string]string{
		"nothing": "", "text": `"x"`, "null": "null", "no paths": `{"swagger":"2.0"}`, "list": "[]",
		"an unresolved reference": `{"paths":{"/apis/ext.test/v1/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/none"}}}}}}}`,
		"an external reference":   `{"paths":{"/apis/ext.test/v1/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"https://example.com/x"}}}}}}}`,
		"depth":                   `{"paths":{"/apis/ext.test/v1/things":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}}`,
		"odd responses":           `{"paths":{"/apis/ext.test/v1/things":{"get":{"responses":{"200":[1]}}}}}`,
	} {
		if part, err := openapi.ExtractGroupVersion([]byte(text), ext); err == nil {
			t.Errorf("%s: got %s, want it rejected", what, part)
		}
	}
}

func TestExtensionV3Documents(t *testing.T) {
	s := newSmallService(t)
	theirs := http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("theirs " + r.URL.RequestURI())) },
	)
	s.Replace(nil, []openapi.RemoteGroupVersion{
		{GroupVersion: ext, Hash: "a b", Document: theirs},
		{GroupVersion: schema.GroupVersion{Group: "plain.test", Version: "v1"}, Document: theirs},
		{GroupVersion: schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}, Hash: "x", Document: theirs},
	})
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(get(t, s, "/openapi/v3").Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"apis/ext.test/v1": "/openapi/v3/apis/ext.test/v1?hash=a+b", "apis/plain.test/v1": "/openapi/v3/apis/plain.test/v1"} {
		if got := index.Paths[path].ServerRelativeURL; got != want {
			t.Errorf("%s: got %q, want %v", path, got, want)
		}
		if w := get(t, s, want); w.Body.String() != "theirs "+want {
			t.Errorf("%s: got %s", want, w.Body)
		}
	}
	if w := get(t, s, "/openapi/v3/apis/coordination.k8s.io/v1"); strings.HasPrefix(w.Body.String(), "theirs") {
		t.Error("a local document was replaced")
	}
	s.Replace(nil, nil)
	if w := get(t, s, "/openapi/v3/apis/ext.test/v1"); w.Code != 404 {
		t.Errorf("removed document: got %d, want 404", w.Code)
	}
}
