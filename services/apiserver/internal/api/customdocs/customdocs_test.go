package customdocs

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/discovery"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/rest/patch"
)

// manyVersions returns a definition of n versions, and a counter of its complete decodings.
func manyVersions(t testing.TB, n int) (*kind.CRD, *atomic.Int32) {
	t.Helper()
	decoded := &atomic.Int32{}
	names := apiextensionsv1.CustomResourceDefinitionNames{
		Plural:   "widgets",
		Singular: "widget",
		Kind:     "Widget",
		ListKind: "WidgetList",
	}
	read := func() (*apiextensionsv1.CustomResourceDefinition, error) {
		definition := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", ResourceVersion: "1"},
		}
		definition.Spec.Group = "example.com"
		definition.Spec.Names = names
		definition.Spec.Scope = apiextensionsv1.NamespaceScoped
		definition.Status.AcceptedNames = names
		for i := range n {
			definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
				Name:    fmt.Sprintf("v%d", i+1),
				Served:  true,
				Storage: i == 0,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Description: fmt.Sprintf("widget of version %d", i+1),
				}},
			})
		}
		return definition, nil
	}
	d, err := kind.NewCRD(read, func() (*apiextensionsv1.CustomResourceDefinition, error) { decoded.Add(1); return read() })
	if err != nil {
		t.Fatal(err)
	}
	d.Kinds = (&kind.Maker{Rules: rules.NewCompiler()}).All(d)
	return d, decoded
}

// newDocuments returns the OpenAPI documents of definitions and of one built-in kind.
func newDocuments(t testing.TB, definitions ...*kind.CRD) *openapi.Service {
	t.Helper()
	all, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	var leases []*registry.Kind
	for _, k := range all.Kinds() {
		if k.Group == "coordination.k8s.io" && k.Version == "v1" {
			leases = append(leases, k)
		}
	}
	catalog, err := registry.NewCatalog([]registry.Group{{Name: "coordination.k8s.io", Versions: []string{"v1"}}}, leases)
	if err != nil {
		t.Fatal(err)
	}
	updater := &Updater{versions: map[schema.GroupVersion]*customVersion{}}
	if updater.discovery, err = discovery.New(catalog, nil); err != nil {
		t.Fatal(err)
	}
	options := openapi.Options{Patches: patch.MediaTypes(true, false), CustomPatches: patch.MediaTypes(false, false)}
	if updater.openapi, err = openapi.New(catalog, builtin.Documented, options); err != nil {
		t.Fatal(err)
	}
	updater.localDiscovery = func() []discovery.GroupVersion { return nil }
	updater.remoteDiscovery, updater.remoteOpenAPI = updater.localDiscovery, func() []openapi.RemoteGroupVersion { return nil }
	for _, def := range definitions {
		updater.Set([]kind.CRDChange{{New: def}})
	}
	updater.refresh()
	return updater.openapi
}

// TestNonStructuralSchemasAreNotPublished checks that the OpenAPI documents have a kind whose
// schema is not structural, but without the schema.
func TestNonStructuralSchemasAreNotPublished(t *testing.T) {
	t.Parallel()
	const structural = "structural schema"
	for name, change := range map[string]func(*apiextensionsv1.JSONSchemaProps){
		"no type":         func(s *apiextensionsv1.JSONSchemaProps) { s.Type = "" },
		"unknown type":    func(s *apiextensionsv1.JSONSchemaProps) { s.Type = "text" },
		"unknown keyword": func(s *apiextensionsv1.JSONSchemaProps) { s.ID = "an id" },
		structural:        func(*apiextensionsv1.JSONSchemaProps) {},
	} {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"}
		definition.Name = "widgets.example.com"
		definition.Spec.Group = "example.com"
		definition.Spec.Names = names
		definition.Status.AcceptedNames = names
		field := apiextensionsv1.JSONSchemaProps{Type: "string"}
		change(&field)
		definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name:    "v1",
			Served:  true,
			Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Description: "a stored widget", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": field},
			}},
		}}
		read := func() (*apiextensionsv1.CustomResourceDefinition, error) {
			copied := *definition
			copied.Spec.Versions = slices.Clone(definition.Spec.Versions)
			return &copied, nil
		}
		compiled, err := kind.NewCRD(read, read)
		if err != nil {
			t.Fatal(err)
		}
		compiled.Kinds = (&kind.Maker{Rules: rules.NewCompiler()}).All(compiled)
		s := newDocuments(t, compiled)
		for _, path := range []string{"/openapi/v2", "/openapi/v3/apis/example.com/v1"} {
			responseRecorder := httptest.NewRecorder()
			s.ServeHTTP(responseRecorder, httptest.NewRequest(http.MethodGet, path, nil))
			if published := strings.Contains(responseRecorder.Body.String(), "a stored widget"); published != (name == structural) {
				t.Errorf("%s: got schema published: %t in %s, want %t", name, published, path, !published)
			}
			if !strings.Contains(responseRecorder.Body.String(), "com.example.v1.Widget") {
				t.Errorf("%s: got %s without the kind, want it documented", name, path)
			}
		}
	}
}

// TestExamplesAndExternalDocsAreNotPublished checks that examples and external documentation are
// dropped from all parts of a schema.
func TestExamplesAndExternalDocsAreNotPublished(t *testing.T) {
	t.Parallel()
	const noted, plain = `{"type":"string","example":"x","externalDocs":{"url":"https://example.com"}}`, `{"type":"string"}`
	schemaWith := func(s string) string {
		return strings.ReplaceAll(`{"type":"object","properties":{
			"a":S,
			"b":{"type":"array","items":S},
			"c":{"type":"object","additionalProperties":S},
			"d":{"allOf":[S],"anyOf":[S],"oneOf":[S],"not":S}}}`, "S", s)
	}
	var s, want spec.Schema
	if err := errors.Join(s.UnmarshalJSON([]byte(schemaWith(noted))), want.UnmarshalJSON([]byte(schemaWith(plain)))); err != nil {
		t.Fatal(err)
	}
	dropExamples(&s)
	if !reflect.DeepEqual(s, want) {
		got, err := s.MarshalJSON()
		t.Errorf("got schema %s, %v, want %v", got, err, want)
	}
}

// TestDefinitionIsDecodedOnceForAllVersions checks that a definition is decoded once for a document
// of all its versions, and once for the list of documents.
func TestDefinitionIsDecodedOnceForAllVersions(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/example.com/v40"} {
		def, decoded := manyVersions(t, 40)
		s, responseRecorder := newDocuments(t, def), httptest.NewRecorder()
		s.ServeHTTP(responseRecorder, httptest.NewRequest(http.MethodGet, path, nil))
		if responseRecorder.Code != http.StatusOK {
			t.Fatalf("%s: %d %s, want %v", path, responseRecorder.Code, responseRecorder.Body, http.StatusOK)
		}
		text := responseRecorder.Body.String()
		if path == "/openapi/v2" &&
			(!strings.Contains(text, "widget of version 1\"") || !strings.Contains(text, "widget of version 40\"")) {
			t.Errorf("%s: got a document of %d bytes without the first or last version, want all versions", path, len(text))
		}
		if n := decoded.Load(); n != 1 {
			t.Errorf("%s: decoded %d times, want 1", path, n)
		}
	}
}

// BenchmarkManyVersions builds the v2 document of a definition with the maximum number of versions.
func BenchmarkManyVersions(b *testing.B) {
	def, _ := manyVersions(b, 1500)
	for b.Loop() {
		w := httptest.NewRecorder()
		newDocuments(b, def).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v2", nil))
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}

// TestVersionsOfDeletedDefinitionsAreDropped checks that the versions of a deleted definition are
// dropped at once, even if no client requests the documents.
func TestVersionsOfDeletedDefinitionsAreDropped(t *testing.T) {
	updater := &Updater{versions: map[schema.GroupVersion]*customVersion{}}
	def, _ := manyVersions(t, 3)
	updater.Set([]kind.CRDChange{{New: def}})
	if len(updater.versions) != 3 {
		t.Fatalf("definition with 3 versions: got %d versions, want 3", len(updater.versions))
	}
	updater.Set([]kind.CRDChange{{Old: def, New: def}})
	if len(updater.versions) != 3 {
		t.Errorf("after an update: got %d versions, want 3", len(updater.versions))
	}
	updater.Set([]kind.CRDChange{{Old: def}})
	if len(updater.versions) != 0 {
		t.Errorf("after the deletion: got %d versions, want 0", len(updater.versions))
	}
}
