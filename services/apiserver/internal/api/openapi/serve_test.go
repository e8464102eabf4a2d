package openapi_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	openapiproto "k8s.io/kube-openapi/pkg/util/proto"
)

// TestProtobufFormHasModelsOfJSON checks that the Protobuf form of a document has the models of the
// JSON form.
func TestProtobufFormHasModelsOfJSON(t *testing.T) {
	handler := service(t)
	doc := &openapiv2.Document{}
	if err := proto.Unmarshal(body(t, handler, "/openapi/v2", "Accept", protoV2), doc); err != nil {
		t.Fatal(err)
	}
	if n := len(doc.Definitions.AdditionalProperties); n != len(v2(t, handler).Definitions) {
		t.Errorf("got %d definitions, want %d", n, len(v2(t, handler).Definitions))
	}
	models, err := openapiproto.NewOpenAPIData(doc)
	if err != nil {
		t.Fatal(err)
	}
	if m := models.LookupModel("io.k8s.api.core.v1.Pod"); m == nil || m.GetDescription() == "" {
		t.Errorf("got model of Pod %v, want one with a description", m)
	}
	v3Document := &openapiv3.Document{}
	if err := proto.Unmarshal(body(t, handler, "/openapi/v3/apis/batch/v1", "Accept", protoV3), v3Document); err != nil {
		t.Fatal(err)
	}
	if _, err := openapiproto.NewOpenAPIV3Data(v3Document); err != nil {
		t.Fatal(err)
	}
}

// TestClientReadsV2AndV3 checks that client-go can decode the documents of both versions.
func TestClientReadsV2AndV3(t *testing.T) {
	server := httptest.NewServer(service(t))
	defer server.Close()
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if doc, err := discoveryClient.OpenAPISchema(); err != nil || len(doc.Paths.Path) == 0 {
		t.Errorf("v2: got error %v, want a document with paths", err)
	}
	root := openapi3.NewRoot(discoveryClient.OpenAPIV3())
	gvs, err := root.GroupVersions()
	if err != nil || !slices.Contains(gvs, schema.GroupVersion{Group: "apps", Version: "v1"}) {
		t.Fatalf("got group versions %v, %v, want apps/v1 among them", gvs, err)
	}
	doc, err := root.GVSpec(schema.GroupVersion{Version: "v1"})
	if err != nil || doc.Components.Schemas["io.k8s.api.core.v1.Pod"] == nil {
		t.Errorf("v3: got error %v, want the model of Pod", err)
	}
}

// TestDocumentsAreCachedByHash checks the cache headers, and the responses to another hash and
// to a known ETag.
func TestDocumentsAreCachedByHash(t *testing.T) {
	handler := service(t)
	address := index(t, handler)["apis/batch/v1"]
	response := get(t, handler, address)
	if response.Code != http.StatusOK || response.Header().Get("Cache-Control") != "public, immutable" || response.Header().Get("Expires") == "" {
		t.Errorf("by hash: got code %d and headers %v, want %d, Cache-Control \"public, immutable\" and Expires", response.Code, response.Header(), http.StatusOK)
	}
	tag := response.Header().Get("ETag")
	if again := get(t, handler, "/openapi/v3/apis/batch/v1", "If-None-Match", tag); again.Code != http.StatusNotModified ||
		again.Body.Len() != 0 {
		t.Errorf("with ETag: got code %d and %d bytes, want %d and none", again.Code, again.Body.Len(), http.StatusNotModified)
	}
	moved := get(t, handler, "/openapi/v3/apis/batch/v1?hash=OLD")
	if moved.Code != http.StatusMovedPermanently || moved.Header().Get("Location") != address {
		t.Errorf("by another hash: got code %d and headers %v, want %d and Location %s",
			moved.Code, moved.Header(), http.StatusMovedPermanently, address)
	}
	for _, path := range []string{"/openapi/v2", "/openapi/v3"} {
		first := get(t, handler, path)
		if again := get(t, handler, path, "If-None-Match", first.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s with ETag: got %d, want %v", path, again.Code, http.StatusNotModified)
		}
	}
}

// TestAcceptSelectsMediaType checks the media type of the response for values of Accept.
func TestAcceptSelectsMediaType(t *testing.T) {
	handler := service(t)
	for _, test := range []struct{ path, accept, want string }{
		{path: "/openapi/v2", accept: "", want: "application/json"},
		{path: "/openapi/v2", accept: "*/*", want: "application/json"},
		{path: "/openapi/v2", accept: protoV2, want: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
		{path: "/openapi/v2", accept: "application/json;q=0.4," + protoV2 + ";q=0.9", want: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
		{path: "/openapi/v2", accept: protoV3, want: ""},
		{path: "/openapi/v2", accept: "text/html", want: ""},
		{path: "/openapi/v2", accept: "application/json;q=0", want: ""},
		{path: "/openapi/v3/apis/batch/v1", accept: protoV3 + ", application/json", want: protoV3},
		{path: "/openapi/v3/apis/batch/v1", accept: "text/html, application/json", want: "application/json"},
	} {
		response := get(t, handler, test.path, "Accept", test.accept)
		if test.want == "" {
			if response.Code != http.StatusNotAcceptable {
				t.Errorf("%s as %q: got %d, want %v", test.path, test.accept, response.Code, http.StatusNotAcceptable)
			}
			continue
		}
		if got := response.Header().Get("Content-Type"); response.Code != http.StatusOK || got != test.want {
			t.Errorf("%s as %q: got %d %q, want %v, %v", test.path, test.accept, response.Code, got, http.StatusOK, test.want)
		}
	}
	for _, path := range []string{"/openapi/v3/apis/nope/v1", "/openapi/v4", "/openapi/v2/x", "/openapi/v2/", "/openapi/v3/"} {
		if response := get(t, handler, path); response.Code != http.StatusNotFound {
			t.Errorf("%s: got %d, want %v", path, response.Code, http.StatusNotFound)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/openapi/v2", nil)
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, r)
	if response.Code != http.StatusOK {
		t.Errorf("POST: got %d, want %v", response.Code, http.StatusOK)
	}
}

// TestDocumentsAreCompressed checks that a document is smaller with gzip, and equal after
// decompression.
func TestDocumentsAreCompressed(t *testing.T) {
	h := service(t)
	plain := body(t, h, "/openapi/v3/apis/apps/v1")
	response := get(t, h, "/openapi/v3/apis/apps/v1", "Accept-Encoding", "gzip")
	if response.Header().Get("Content-Encoding") != "gzip" || response.Body.Len() > len(plain)/4 {
		t.Fatalf("got headers %v, %d bytes, want gzip and at most a quarter of %d", response.Header(), response.Body.Len(), len(plain))
	}
	reader, err := gzip.NewReader(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(reader)
	if err != nil || !bytes.Equal(got, plain) {
		t.Errorf("after decompression: got another document (%v), want the same", err)
	}
}

// BenchmarkFirstIndex builds the v3 documents of all built-in kinds.
func BenchmarkFirstIndex(b *testing.B) {
	for b.Loop() {
		service, err := newService()
		if err != nil {
			b.Fatal(err)
		}
		body(b, service, "/openapi/v3")
	}
}

// BenchmarkFirstV2 builds the v2 document of all built-in kinds.
func BenchmarkFirstV2(b *testing.B) {
	for b.Loop() {
		service, err := newService()
		if err != nil {
			b.Fatal(err)
		}
		body(b, service, "/openapi/v2")
	}
}
