package openapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/patch"
)

const (
	protoV2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	protoV3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// shared is a service for all tests that do not change it, so that its documents are built once.
var shared = sync.OnceValues(func() (*openapi.Service, error) { return newService() })

// newService returns a service with all built-in kinds.
func newService() (*openapi.Service, error) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		return nil, err
	}
	return openapi.New(catalog, builtin.Documented, patchOptions())
}

// patchOptions returns the media types of patches: with strategic merge for built-in kinds, without it
// for custom resources.
func patchOptions() openapi.Options {
	return openapi.Options{Patches: patch.MediaTypes(true, false), CustomPatches: patch.MediaTypes(false, false)}
}

// service returns the shared service. Tests must not change it.
func service(t testing.TB) *openapi.Service {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// kinds returns all built-in kinds.
func kinds(t testing.TB) []*registry.Kind {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	return catalog.Kinds()
}

// get sends a GET request. headers are names of headers, each before its value.
func get(t testing.TB, h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// body returns the body of a successful response to a GET request.
func body(t testing.TB, h http.Handler, path string, header ...string) []byte {
	t.Helper()
	response := get(t, h, path, header...)
	if response.Code != http.StatusOK {
		t.Fatalf("%s: got %d %s, want %v", path, response.Code, response.Body, http.StatusOK)
	}
	return response.Body.Bytes()
}

// index returns the paths of the v3 documents by group version, such as "apis/apps/v1".
func index(t testing.TB, h http.Handler) map[string]string {
	t.Helper()
	var doc handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(body(t, h, "/openapi/v3"), &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for at, e := range doc.Paths {
		out[at] = e.ServerRelativeURL
	}
	return out
}

// parsed caches the parsed documents of the shared service.
var parsed sync.Map

// v3 returns the v3 document of a group version, such as "apis/apps/v1".
func v3(t testing.TB, h http.Handler, at string) *spec3.OpenAPI {
	t.Helper()
	return parse(t, h, "/openapi/v3/"+at, &spec3.OpenAPI{})
}

// v2 returns the v2 document.
func v2(t testing.TB, h http.Handler) *spec.Swagger {
	t.Helper()
	return parse(t, h, "/openapi/v2", &spec.Swagger{})
}

// parse decodes a document into doc, or returns the cached one of the shared service.
func parse[T any](t testing.TB, h http.Handler, path string, doc *T) *T {
	t.Helper()
	s, err := shared()
	isShared := err == nil && h == http.Handler(s)
	if known, ok := parsed.Load(path); ok && isShared {
		return known.(*T)
	}
	if err := json.Unmarshal(body(t, h, path), doc); err != nil {
		t.Fatal(err)
	}
	if isShared {
		parsed.Store(path, doc)
	}
	return doc
}

// apiPath returns the path prefix of a group version without a slash at the start.
func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// kindsOfModel returns the kinds of a model.
func kindsOfModel(t testing.TB, s *spec.Schema) (out []schema.GroupVersionKind) {
	t.Helper()
	var list []schema.GroupVersionKind
	b, err := json.Marshal(s.Extensions["x-kubernetes-group-version-kind"])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestEveryKindHasAModel checks that v2 and v3 have a model of each built-in kind.
func TestEveryKindHasAModel(t *testing.T) {
	h := service(t)
	hasV2Model := map[schema.GroupVersionKind]bool{}
	for _, s := range v2(t, h).Definitions {
		for _, k := range kindsOfModel(t, &s) {
			hasV2Model[k] = true
		}
	}
	hasV3Model := map[schema.GroupVersionKind]bool{}
	for at := range index(t, h) {
		for _, s := range v3(t, h, at).Components.Schemas {
			for _, k := range kindsOfModel(t, s) {
				hasV3Model[k] = true
			}
		}
	}
	for _, k := range kinds(t) {
		if !hasV2Model[k.GVK()] || !hasV3Model[k.GVK()] {
			t.Errorf("%s: got model in v2: %t, v3: %t, want both", k.GVK(), hasV2Model[k.GVK()], hasV3Model[k.GVK()])
		}
	}
}

// TestPatchesAllowDryRunAndFieldValidation checks the parameters and media types of patches, from
// which kubectl learns whether the server supports dry runs and field validation.
func TestPatchesAllowDryRunAndFieldValidation(t *testing.T) {
	h := service(t)
	for _, kind := range kinds(t) {
		if !kind.HasVerb("patch") {
			continue
		}
		at := "/" + apiPath(kind.GroupVersion()) + "/"
		if kind.Namespaced {
			at += "namespaces/{namespace}/"
		}
		path := v3(t, h, apiPath(kind.GroupVersion())).Paths.Paths[at+kind.Resource+"/{name}"]
		if path == nil || path.Patch == nil {
			t.Errorf("%s: got no patch operation in v3, want one", kind.GVK())
			continue
		}
		var names []string
		for _, param := range path.Patch.Parameters {
			names = append(names, param.Name)
		}
		if want := []string{"dryRun", "fieldManager", "fieldValidation", "force"}; !slices.Equal(names, want) {
			t.Errorf("%s: got parameters %v, want %v", kind.GVK(), names, want)
		}
		var gvk schema.GroupVersionKind
		if err := path.Patch.Extensions.GetObject("x-kubernetes-group-version-kind", &gvk); err != nil || gvk != kind.GVK() {
			t.Errorf("%s: got a patch operation of %s and error %v, want its own kind", kind.GVK(), gvk, err)
		}
		if path.Patch.RequestBody.Content["application/apply-patch+yaml"] == nil {
			t.Errorf("%s: got no media type of server-side apply, want one", kind.GVK())
		}
	}
}

// TestOlderVersionsHaveModels checks that versions that share a Go type in the server have separate
// models.
func TestOlderVersionsHaveModels(t *testing.T) {
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	service, err := openapi.New(all, builtin.Documented, patchOptions())
	if err != nil {
		t.Fatal(err)
	}
	for at, kind := range map[string]string{
		"certificates.k8s.io/v1alpha1": "ClusterTrustBundle", "coordination.k8s.io/v1alpha2": "LeaseCandidate",
		"storage.k8s.io/v1alpha1": "VolumeAttributesClass", "networking.k8s.io/v1beta1": "IPAddress",
		"resource.k8s.io/v1alpha3": "ResourceClaim", "admissionregistration.k8s.io/v1beta1": "ValidatingAdmissionPolicy",
	} {
		gv, _ := schema.ParseGroupVersion(at)
		doc := v3(t, service, "apis/"+at)
		name := "io.k8s.api." + strings.TrimSuffix(gv.Group, ".k8s.io") + "." + gv.Version + "." + kind
		model := doc.Components.Schemas[name]
		if model == nil || len(kindsOfModel(t, model)) != 1 || kindsOfModel(t, model)[0] != gv.WithKind(kind) {
			t.Errorf("%s: no model %s, want one", kind, name)
		}
		requireReferences(t, at, body(t, service, "/openapi/v3/apis/"+at))
	}
}

// TestReferencesResolve checks that documents refer only to models that they contain.
func TestReferencesResolve(t *testing.T) {
	h := service(t)
	for at := range index(t, h) {
		requireReferences(t, at, body(t, h, "/openapi/v3/"+at))
	}
	requireReferences(t, "v2", body(t, h, "/openapi/v2"))
}

// requireReferences checks that all references in a document resolve. name is its name in messages.
func requireReferences(t *testing.T, name string, data []byte) {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				var at any = doc
				for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
					m, _ := at.(map[string]any)
					at = m[part]
				}
				if at == nil {
					t.Errorf("%s: got unresolved reference %s", name, ref)
				}
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(doc)
}

// TestOperationIDsAreUnique checks that no two operations in v2 have the same ID, and that some IDs
// are those of Kubernetes.
func TestOperationIDsAreUnique(t *testing.T) {
	ids := map[string]string{}
	for at, item := range v2(t, service(t)).Paths.Paths {
		for _, op := range []*spec.Operation{item.Get, item.Put, item.Post, item.Delete, item.Patch} {
			if op == nil {
				continue
			}
			if ids[op.ID] != "" {
				t.Errorf("operation ID %s: got two paths, %s and %s, want one", op.ID, ids[op.ID], at)
			}
			ids[op.ID] = at
		}
	}
	for id, at := range map[string]string{
		"readCoreV1NamespacedPod":                     "/api/v1/namespaces/{namespace}/pods/{name}",
		"listCoreV1PodForAllNamespaces":               "/api/v1/pods",
		"deleteCoreV1CollectionNamespacedPod":         "/api/v1/namespaces/{namespace}/pods",
		"connectCoreV1GetNamespacedPodExec":           "/api/v1/namespaces/{namespace}/pods/{name}/exec",
		"connectCoreV1PostNodeProxyWithPath":          "/api/v1/nodes/{name}/proxy/{path}",
		"createCoreV1NamespacedPodEviction":           "/api/v1/namespaces/{namespace}/pods/{name}/eviction",
		"patchAppsV1NamespacedDeploymentScale":        "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
		"replaceRbacAuthorizationV1ClusterRole":       "/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}",
		"createAuthorizationV1SelfSubjectRulesReview": "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		"getCodeVersion":                              "/version/",
		"getAppsAPIGroup":                             "/apis/apps/",
		"getAppsV1APIResources":                       "/apis/apps/v1/",
	} {
		if ids[id] != at {
			t.Errorf("operation ID %s: got path %q, want %s", id, ids[id], at)
		}
	}
}

// TestTypesWithOwnEncodingHaveSchemas checks the schemas of types that encode themselves, such as
// Quantity.
func TestTypesWithOwnEncodingHaveSchemas(t *testing.T) {
	h := service(t)
	schemas, definitions := v3(t, h, "api/v1").Components.Schemas, v2(t, h).Definitions
	for name, want := range map[string]struct{ v2, v3 string }{
		"io.k8s.apimachinery.pkg.apis.meta.v1.Time": {v2: `{"type":"string","format":"date-time"}`,
			v3: `{"type":"string","format":"date-time"}`},
		"io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": {v2: `{"type":"string","format":"date-time"}`,
			v3: `{"type":"string","format":"date-time"}`},
		"io.k8s.apimachinery.pkg.api.resource.Quantity": {v2: `{"type":"string"}`, v3: `{"oneOf":[{"type":"string"},{"type":"number"}]}`},
		"io.k8s.apimachinery.pkg.util.intstr.IntOrString": {v2: `{"type":"string","format":"int-or-string"}`,
			v3: `{"format":"int-or-string","oneOf":[{"type":"integer"},{"type":"string"}]}`},
		"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {v2: `{"type":"object"}`, v3: `{"type":"object"}`},
	} {
		v2Model, v3Model := definitions[name], *schemas[name]
		if v2Model.Description == "" || v3Model.Description == "" {
			t.Errorf("%s: got no description in v2 or v3, want one in both", name)
		}
		v2Model.Description, v3Model.Description = "", "" // only the other fields are compared
		gotV2, _ := json.Marshal(v2Model)
		gotV3, _ := json.Marshal(v3Model)
		if string(gotV2) != want.v2 || string(gotV3) != want.v3 {
			t.Errorf("%s: got v2 %s, v3 %s, want %s, %s", name, gotV2, gotV3, want.v2, want.v3)
		}
	}
}

// TestMergeRulesEqualClientGo checks that for server-side apply, the models have the same meaning
// as the schema in client-go.
func TestMergeRulesEqualClientGo(t *testing.T) {
	h := service(t)
	all := map[string]*spec.Schema{}
	for at := range index(t, h) {
		for name, s := range v3(t, h, at).Components.Schemas {
			all[name] = s
		}
	}
	got, err := schemaconv.ToSchemaFromOpenAPI(all, false)
	if err != nil {
		t.Fatal(err)
	}
	want := applyconfigurations.NewTypeConverter(runtime.NewScheme()).TypeResolver.Type("io.k8s.api.core.v1.Pod").Schema
	// The schema of client-go comes from v2, where types of any form differ.
	anyForm := []string{
		"io.k8s.api.apps.v1.ControllerRevision", "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
		"io.k8s.apimachinery.pkg.runtime.RawExtension", "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
	}
	compared := 0
	for _, w := range want.Types {
		if slices.Contains(anyForm, w.Name) {
			continue
		}
		g, ok := got.FindNamedType(w.Name)
		if !ok {
			continue
		}
		compared++
		if a, b := canonical(&g.Atom), canonical(&w.Atom); a != b {
			t.Errorf("%s\n got %s\nwant %s", w.Name, a, b)
		}
	}
	if compared < 300 {
		t.Errorf("got %d compared types, want at least 300", compared)
	}
}

// canonical returns the meaning of a type as text, independent of the order of fields.
func canonical(atom *smd.Atom) string {
	var parts []string
	if atom.Scalar != nil {
		parts = append(parts, string(*atom.Scalar))
	}
	if l := atom.List; l != nil {
		parts = append(parts, fmt.Sprintf("list(%s %v %s)", canonicalRef(&l.ElementType), l.Keys, l.ElementRelationship))
	}
	if m := atom.Map; m != nil {
		var fields []string
		for _, f := range m.Fields {
			fields = append(fields, fmt.Sprintf("%s: %s = %v", f.Name, canonicalRef(&f.Type), f.Default))
		}
		slices.Sort(fields)
		parts = append(parts,
			fmt.Sprintf("map(%s of %s %s)", strings.Join(fields, ", "), canonicalRef(&m.ElementType), m.ElementRelationship))
	}
	return strings.Join(parts, "|")
}

// canonicalRef returns the meaning of a reference to a type as text.
func canonicalRef(typeRef *smd.TypeRef) string {
	out := canonical(&typeRef.Inlined)
	if typeRef.NamedType != nil {
		out += *typeRef.NamedType
	}
	if typeRef.ElementRelationship != nil {
		out += " " + string(*typeRef.ElementRelationship)
	}
	return out
}

// TestServerSideApplyFindsListKeys checks that server-side apply finds the keys of lists in the
// models.
func TestServerSideApplyFindsListKeys(t *testing.T) {
	typeConverter, err := managedfields.NewTypeConverter(v3(t, service(t), "api/v1").Components.Schemas, false)
	if err != nil {
		t.Fatal(err)
	}
	var u unstructured.Unstructured
	if err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[
		{"name":"c","image":"i","ports":[{"containerPort":80},{"containerPort":80,"protocol":"UDP"}],"resources":{"limits":{"cpu":1}}}]}}`), &u); err != nil {
		t.Fatal(err)
	}
	typed, err := typeConverter.ObjectToTyped(&u)
	if err != nil {
		t.Fatal(err)
	}
	set, err := typed.ToFieldSet()
	if err != nil {
		t.Fatal(err)
	}
	data, err := set.ToJSON()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), `k:{\"containerPort\":80,\"protocol\":\"TCP\"}`) {
		t.Errorf("got %s, want the default TCP in the key", data)
	}
}

// TestStrategicMergeFindsListKeys checks that a strategic merge finds the keys of lists in the
// models.
func TestStrategicMergeFindsListKeys(t *testing.T) {
	schemas := v3(t, service(t), "apis/apps/v1").Components.Schemas
	meta := &strategicpatch.PatchMetaFromOpenAPIV3{SchemaList: schemas, Schema: schemas["io.k8s.api.apps.v1.Deployment"]}
	got, err := strategicpatch.StrategicMergePatchUsingLookupPatchMeta(
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"1"},{"name":"b","image":"1"}]}}}}`),
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"2"}]}}}}`), meta)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"1"},{"image":"2","name":"b"}]}}}}`
	if !sameJSON(t, got, []byte(want)) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// sameJSON reports whether two JSON texts have the same values.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}
