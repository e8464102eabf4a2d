package openapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/openapi"
	"binnacle/services/apiserver/internal/registry"
)

// widgetSchema has a property for each feature whose schema differs between v2 and v3.
const widgetSchema = `{
  "type": "object", "description": "Widget is a widget.",
  "properties": {
    "spec": {"type": "object", "required": ["size"], "properties": {
      "size": {"type": "integer", "minimum": 1, "default": 3},
      "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
      "note": {"type": "string", "nullable": true},
      "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}},
      "tags": {"type": "array", "items": {"type": "string", "nullable": true}, "x-kubernetes-list-type": "set"}
    }}
  }
}`

// widgets returns a custom resource with the subresources scale and status. hash is the hash of its
// definition.
func widgets(t testing.TB, hash string) openapi.Group {
	t.Helper()
	gv := schema.GroupVersion{Group: "shop.example.com", Version: "v1"}
	s := &spec.Schema{}
	if err := json.Unmarshal([]byte(widgetSchema), s); err != nil {
		t.Fatal(err)
	}
	return openapi.Group{
		GroupVersion: gv,
		Hash:         hash,
		Kinds: []*registry.Kind{{
			Names: registry.Names{
				Group:      gv.Group,
				Version:    gv.Version,
				Resource:   "widgets",
				Singular:   "widget",
				Kind:       "Widget",
				Namespaced: true,
			},
			Subresources: []registry.Subresource{
				{
					Name:  "scale",
					GVK:   schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
					Verbs: []string{"get", "patch", "update"},
				},
				{Name: "status", GVK: schema.GroupVersionKind{Kind: "Widget"}, Verbs: []string{"get", "patch", "update"}},
			},
		}},
		Schemas: func(_ *openapi.SchemaCache, kind string) *spec.Schema {
			return map[string]*spec.Schema{"Widget": s}[kind]
		},
	}
}

// newSmallService returns a service with one built-in group, whose documents are built quickly.
func newSmallService(t testing.TB) *openapi.Service {
	t.Helper()
	var leases []*registry.Kind
	for _, k := range kinds(t) {
		if k.Group == "coordination.k8s.io" {
			leases = append(leases, k)
		}
	}
	catalog, err := registry.NewCatalog([]registry.Group{{Name: "coordination.k8s.io", Versions: []string{"v1"}}}, leases)
	if err != nil {
		t.Fatal(err)
	}
	service, err := openapi.New(catalog, builtin.Documented,
		patchOptions())
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// TestCustomResourceHasModelAndPaths checks the model and the paths of a custom resource in v3, and
// how v2 simplifies its schema.
func TestCustomResourceHasModelAndPaths(t *testing.T) {
	service := newSmallService(t)
	service.Replace([]openapi.Group{widgets(t, "1")}, nil)

	// 1. The model in v3.
	doc := v3(t, service, "apis/shop.example.com/v1")
	w := doc.Components.Schemas["com.example.shop.v1.Widget"]
	if w == nil {
		t.Fatalf("got no model of Widget among %d models, want one", len(doc.Components.Schemas))
	}
	if k := kindsOfModel(t, w); len(k) != 1 ||
		k[0] != (schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Widget"}) {
		t.Errorf("got kinds %v, want only Widget of shop.example.com/v1", k)
	}
	for _, name := range []string{"apiVersion", "kind", "metadata", "spec"} {
		if _, ok := w.Properties[name]; !ok {
			t.Errorf("got properties %v, want %s among them", w.Properties, name)
		}
	}
	if port := w.Properties["spec"].Properties["port"]; len(port.AnyOf) != 2 {
		t.Errorf("got port %v, want one of 2 types", port)
	}

	// 2. The paths in v3.
	paths := doc.Paths.Paths
	patch := paths["/apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}"].Patch
	if patch.RequestBody.Content["application/strategic-merge-patch+json"] != nil ||
		patch.RequestBody.Content["application/apply-patch+yaml"] == nil {
		t.Errorf("got patch types %v, want apply and no strategic merge", patch.RequestBody.Content)
	}
	if paths["/apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}/scale"].Get == nil ||
		doc.Components.Schemas["io.k8s.api.autoscaling.v1.Scale"] == nil {
		t.Error("got no path or no model of the subresource scale, want both")
	}
	requireReferences(t, "v3", body(t, service, "/openapi/v3/apis/shop.example.com/v1"))
	requireReferences(t, "v2", body(t, service, "/openapi/v2"))

	// 3. The model in v2.
	old := v2(t, service).Definitions["com.example.shop.v1.Widget"].Properties["spec"].Properties
	if len(old["port"].AnyOf) != 0 || old["size"].Default != nil || *old["size"].Minimum != 1 {
		t.Errorf("v2: got %v, want no anyOf, no default, and the minimum", old)
	}
	if note := old["note"]; note.Nullable || len(note.Type) != 0 {
		t.Errorf("v2: got note %v, want no type: it is nullable", note)
	}
	if free := old["free"]; len(free.Properties) != 0 || len(free.Type) != 0 {
		t.Errorf("v2: got free %v, want no type and no properties", free)
	}
	if tags := old["tags"]; len(tags.Items.Schema.Type) != 0 || tags.Extensions["x-kubernetes-list-type"] != "set" {
		t.Errorf("v2: got tags %v, want items without type in a set", tags)
	}

	// 4. What the documents do not contain, and what they share with built-in kinds.
	if at := "apis/shop.example.com"; index(t, service)[at] != "" {
		t.Errorf("%s: got a separate document", at)
	}
	if paths["/apis/shop.example.com/v1/"] != nil || len(doc.Components.SecuritySchemes) != 0 {
		t.Error("got discovery or authentication in the document of a custom resource")
	}
	if k := kindsOfModel(t, doc.Components.Schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]); len(k) != 55 {
		t.Errorf("got %d group versions of DeleteOptions, want 55", len(k))
	}
}

// TestOperationIDsKeepCaseOfKind checks that the IDs of a kind with a hyphen are those of Kubernetes.
func TestOperationIDsKeepCaseOfKind(t *testing.T) {
	s, g := newSmallService(t), widgets(t, "1")
	g.Kinds[0].Kind, g.Kinds[0].Verbs = "red-widget", []string{"list", "get"}
	s.Replace([]openapi.Group{g}, nil)
	paths := v3(t, s, "apis/shop.example.com/v1").Paths.Paths
	for at, want := range map[string]string{
		"widgets":                               "listShopExampleComV1RedWidgetForAllNamespaces",
		"namespaces/{namespace}/widgets":        "listShopExampleComV1NamespacedredWidget",
		"namespaces/{namespace}/widgets/{name}": "readShopExampleComV1NamespacedredWidget",
	} {
		if got := paths["/apis/shop.example.com/v1/"+at].Get.OperationId; got != want {
			t.Errorf("%s: got %s, want %s", at, got, want)
		}
	}
}

// TestSelectableFieldsArePublished checks the extension of the models of a kind and its list.
func TestSelectableFieldsArePublished(t *testing.T) {
	service, group := newSmallService(t), widgets(t, "1")
	group.Kinds[0].Presentation.Selectable = []registry.SelectableField{
		{Label: "spec.size", Path: ".spec.size"},
		{Label: "spec.note", Path: ".spec.note"},
	}
	service.Replace([]openapi.Group{group}, nil)
	schemas, definitions := v3(t, service, "apis/shop.example.com/v1").Components.Schemas, v2(t, service).Definitions
	for _, name := range []string{"com.example.shop.v1.Widget", "com.example.shop.v1.WidgetList"} {
		old := definitions[name]
		for version, model := range map[string]*spec.Schema{"v3": schemas[name], "v2": &old} {
			data, err := json.Marshal(model.Extensions["x-kubernetes-selectable-fields"])
			if want := `[{"fieldPath":"spec.size"},{"fieldPath":"spec.note"}]`; err != nil || string(data) != want {
				t.Errorf("%s of %s: got %s, want %s", name, version, data, want)
			}
		}
	}
}

// TestCustomModelDoesNotReplaceBuiltInModel checks that a custom kind whose model has the name of a
// built-in one gets another name.
func TestCustomModelDoesNotReplaceBuiltInModel(t *testing.T) {
	service, group := newSmallService(t), widgets(t, "1")
	before := v2(t, service).Definitions["io.k8s.api.coordination.v1.Lease"]
	kind, schemas := group.Kinds[0], group.Schemas
	kind.Group = "coordination.api.k8s.io"
	kind.Kind = "Lease"
	kind.Resource = "leases"
	kind.List = "LeaseList"
	group.GroupVersion.Group = kind.Group
	group.Schemas = func(r *openapi.SchemaCache, _ string) *spec.Schema { return schemas(r, "Widget") }
	service.Replace([]openapi.Group{group}, nil)
	doc := v2(t, service)
	after := doc.Definitions["io.k8s.api.coordination.v1.Lease"]
	if after.Description != before.Description ||
		after.Properties["metadata"].Description != before.Properties["metadata"].Description ||
		len(after.Properties) != len(before.Properties) {
		t.Errorf("got built-in model %v, want it unchanged, %v", after, before)
	}
	if w := doc.Definitions["io.k8s.api.coordination.v1.Lease_v2"]; w.Description != "Widget is a widget." {
		t.Errorf("got custom model %v, want that of the widget", w)
	}
	list := doc.Paths.Paths["/apis/coordination.api.k8s.io/v1/namespaces/{namespace}/leases"].Get.Responses.StatusCodeResponses[http.StatusOK]
	if ref := list.Schema.Ref.String(); ref != "#/definitions/io.k8s.api.coordination.v1.LeaseList_v2" {
		t.Errorf("list of custom resources: got reference %s, want %q", ref, "#/definitions/io.k8s.api.coordination.v1.LeaseList_v2")
	}
	requireReferences(t, "v2", body(t, service, "/openapi/v2"))
}

// TestV2OmitsSchemasOfLenientDefinitions checks that only v3 has the schema of a definition that
// preserves unknown fields.
func TestV2OmitsSchemasOfLenientDefinitions(t *testing.T) {
	service, g := newSmallService(t), widgets(t, "1")
	g.Lenient = map[string]bool{"Widget": true}
	service.Replace([]openapi.Group{g}, nil)
	if w := v2(t, service).Definitions["com.example.shop.v1.Widget"]; len(w.Properties) != 0 {
		t.Errorf("v2: got properties %v, want none", w.Properties)
	}
	if w := v3(t, service, "apis/shop.example.com/v1").Components.Schemas["com.example.shop.v1.Widget"]; w.Properties["spec"].Properties == nil {
		t.Errorf("v3: got %v, want the properties of spec", w)
	}
}

// TestReplaceKeepsUnchangedDocuments checks that Replace changes the hashes of changed documents only,
// and cannot replace a built-in group.
func TestReplaceKeepsUnchangedDocuments(t *testing.T) {
	service := newSmallService(t)
	service.Replace([]openapi.Group{widgets(t, "1")}, nil)
	before := index(t, service)
	changed := widgets(t, "2")
	changed.Schemas(nil, "Widget").Description = "Widget is something else."
	service.Replace([]openapi.Group{changed}, nil)
	after := index(t, service)
	for at := range before {
		isChanged, wantChanged := before[at] != after[at], at == "apis/shop.example.com/v1"
		if isChanged != wantChanged {
			t.Errorf("%s: got path %s, before %s, want another one: %t", at, after[at], before[at], wantChanged)
		}
	}
	service.Replace([]openapi.Group{{GroupVersion: schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}}}, nil)
	if got := index(t, service)["apis/coordination.k8s.io/v1"]; got != before["apis/coordination.k8s.io/v1"] {
		t.Error("a custom group replaced a built-in one")
	}
	if w := get(t, service, "/openapi/v3/apis/shop.example.com/v1"); w.Code != http.StatusNotFound {
		t.Errorf("removed group: got %d, want %v", w.Code, http.StatusNotFound)
	}
}
