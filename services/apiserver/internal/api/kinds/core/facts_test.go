package core_test

import (
	"embed"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"binnacle/services/apiserver/internal/api/kinds/core"
	"binnacle/services/apiserver/internal/registry"
)

// facts are recorded from a Kubernetes 1.33 server.
//
//go:embed testdata/*.json
var facts embed.FS

// readFacts decodes a file of facts.
func readFacts[T any](t *testing.T, name string) T {
	t.Helper()
	data, err := facts.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var out T
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// kindOf returns the kind of a resource of the core group.
func kindOf(t *testing.T, resource string) *registry.Kind {
	t.Helper()
	for _, k := range core.Kinds(registry.Settings{}) {
		if k.Resource == resource {
			return k
		}
	}
	t.Fatalf("no kind for %s", resource)
	return nil
}

// resourceFact describes a resource in the facts.
type resourceFact struct {
	Resource, Singular, Kind, Scope string
	Verbs, ShortNames, Categories   []string
	Subresources                    []subresourceFact
}

// subresourceFact describes a subresource in the facts.
type subresourceFact struct {
	Name, Kind, Group, Version string
	Verbs                      []string
}

// factOf returns a kind in the form of the facts.
func factOf(k *registry.Kind) resourceFact {
	f := resourceFact{
		Resource: k.Resource, Singular: k.Singular, Kind: k.Kind, Scope: "Cluster",
		Verbs: k.Verbs, ShortNames: k.ShortNames, Categories: k.Categories,
	}
	if k.Namespaced {
		f.Scope = "Namespaced"
	}
	if f.Verbs == nil {
		f.Verbs = registry.AllVerbs
	}
	for _, s := range k.Subresources {
		f.Subresources = append(f.Subresources, subresourceFact{s.Name, s.GVK.Kind, s.GVK.Group, s.GVK.Version, s.Verbs})
	}
	return f
}

// TestResources checks that names, verbs and subresources are those of Kubernetes.
func TestResources(t *testing.T) {
	want := readFacts[[]resourceFact](t, "resources.json")
	kinds := core.Kinds(registry.Settings{})
	if len(kinds) != len(want) {
		t.Errorf("got %d kinds, want %d", len(kinds), len(want))
	}
	for i, k := range kinds {
		got, _ := json.Marshal(emptyForNil(factOf(k)))
		wanted, _ := json.Marshal(emptyForNil(want[i]))
		if string(got) != string(wanted) {
			t.Errorf("%s: got\n%s\nwant\n%s", k.Resource, got, wanted)
		}
		if !slices.IsSortedFunc(k.Subresources, func(a, b registry.Subresource) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: got unordered subresources", k.Resource)
		}
	}
}

// emptyForNil replaces nil lists by empty ones.
func emptyForNil(f resourceFact) resourceFact {
	f.ShortNames = append([]string{}, f.ShortNames...)
	f.Categories = append([]string{}, f.Categories...)
	f.Subresources = append([]subresourceFact{}, f.Subresources...)
	return f
}

// TestCatalog checks the keys and the stored forms of the kinds.
func TestCatalog(t *testing.T) {
	catalog, err := registry.NewCatalog([]registry.Group{{Versions: []string{"v1"}}}, core.Kinds(registry.Settings{}))
	if err != nil {
		t.Fatal(err)
	}
	prefixes := map[string]string{
		"configmaps": "configmaps", "endpoints": "services/endpoints", "events": "events",
		"limitranges": "limitranges", "namespaces": "namespaces", "nodes": "minions",
		"persistentvolumeclaims": "persistentvolumeclaims", "persistentvolumes": "persistentvolumes",
		"pods": "pods", "podtemplates": "podtemplates", "replicationcontrollers": "controllers",
		"resourcequotas": "resourcequotas", "secrets": "secrets",
		"serviceaccounts": "serviceaccounts", "services": "services/specs",
	}
	for _, k := range catalog.Kinds() {
		if got := prefixes[k.Resource]; k.Stored.Prefix != got {
			t.Errorf("%s: got prefix %q, want %q", k.Resource, k.Stored.Prefix, got)
		}
		if k.Virtual != (prefixes[k.Resource] == "") {
			t.Errorf("%s: got virtual %t", k.Resource, k.Virtual)
		}
		if k.Stored.HasTTL != (k.Resource == "events") {
			t.Errorf("%s: got expires %t", k.Resource, k.Stored.HasTTL)
		}
	}
}

// TestGoTypes checks that each New returns the Go type that the scheme has for the declared name.
func TestGoTypes(t *testing.T) {
	check := func(what string, gvk schema.GroupVersionKind, o runtime.Object) {
		t.Helper()
		want, err := clientscheme.Scheme.New(gvk)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if reflect.TypeOf(o) != reflect.TypeOf(want) {
			t.Errorf("%s: got %T, want %T", what, o, want)
		}
	}
	for _, k := range core.Kinds(registry.Settings{}) {
		check(k.Resource, k.GVK(), k.New())
		if k.NewList != nil {
			check(k.Resource+" list", k.GroupVersion().WithKind(k.Kind+"List"), k.NewList())
		} else if k.HasVerb("list") {
			t.Errorf("%s: no list type of a listable kind, want one", k.Resource)
		}
		for _, s := range k.Subresources {
			gvk := s.GVK
			if gvk.Version == "" {
				gvk = k.GroupVersion().WithKind(gvk.Kind)
			}
			if s.New != nil {
				check(k.Resource+"/"+s.Name, gvk, s.New())
			} else if gvk.Kind != k.Kind {
				t.Errorf("%s/%s: no Go type for %s, want one", k.Resource, s.Name, gvk)
			}
		}
	}
}

// TestKindsAreFresh checks that Kinds returns new values, which a caller may change.
func TestKindsAreFresh(t *testing.T) {
	core.Kinds(registry.Settings{})[0].Resource = "changed"
	if got := core.Kinds(registry.Settings{})[0].Resource; got != "bindings" {
		t.Errorf("got a change in the next value: %s, want %q", got, "bindings")
	}
}

// TestFlags compares the rules of each kind with Kubernetes 1.33. Resources that are not listed
// have the zero value.
func TestFlags(t *testing.T) {
	in := func(names ...string) map[string]bool {
		set := map[string]bool{}
		for _, n := range names {
			set[n] = true
		}
		return set
	}
	generation := in("pods", "podtemplates", "replicationcontrollers")
	createOnUpdate := in("endpoints", "events", "limitranges", "services")
	returnDeleted := in(
		"namespaces",
		"persistentvolumeclaims",
		"persistentvolumes",
		"pods",
		"podtemplates",
		"resourcequotas",
		"serviceaccounts",
		"services",
	)
	orphan := in("replicationcontrollers")
	keepStatus := in("nodes")
	for _, k := range core.Kinds(registry.Settings{}) {
		for _, flag := range []struct {
			name      string
			got, want bool
		}{
			{name: "Generation", got: k.Update.Generation, want: generation[k.Resource]},
			{name: "CreateOnUpdate", got: k.Update.AllowCreateOnUpdate, want: createOnUpdate[k.Resource]},
			{name: "ReturnDeleted", got: k.Delete.ReturnObject, want: returnDeleted[k.Resource]},
			{name: "DefaultOrphan", got: k.Delete.Orphan, want: orphan[k.Resource]},
			{name: "KeepStatus", got: k.Create.KeepStatus, want: keepStatus[k.Resource]},
			{name: "UpdateNeedsVersion", got: k.Update.RequireResourceVersion, want: false},
			{name: "GracePeriod", got: k.Delete.GracePeriod != nil, want: k.Resource == "pods"},
		} {
			if flag.got != flag.want {
				t.Errorf("%s: %s: got %t, want %v", k.Resource, flag.name, flag.got, flag.want)
			}
		}
	}
}

// TestSelectableLabels checks the selectable fields of each kind.
func TestSelectableLabels(t *testing.T) {
	want := map[string]string{
		"events":                 "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent source type",
		"namespaces":             "status.phase",
		"nodes":                  "spec.unschedulable",
		"pods":                   "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase status.podIP status.podIPs status.nominatedNodeName",
		"replicationcontrollers": "status.replicas",
		"secrets":                "type",
		"services":               "spec.clusterIP spec.type",
	}
	for _, k := range core.Kinds(registry.Settings{}) {
		var labels []string
		for _, f := range k.Presentation.Selectable {
			labels = append(labels, f.Label)
		}
		if got := strings.Join(labels, " "); got != want[k.Resource] {
			t.Errorf("%s: got selectable fields %s, want %s", k.Resource, got, want[k.Resource])
		}
	}
}

// TestColumns checks the columns of tables and their descriptions.
func TestColumns(t *testing.T) {
	want := readFacts[map[string][][]any](t, "table-columns.json")
	described := readFacts[map[string]map[string]string](t, "column-descriptions.json")
	for _, k := range core.Kinds(registry.Settings{}) {
		columns := k.Presentation.Columns
		if columns == nil {
			columns = []registry.Column{{Name: "Name", Type: "string", Format: "name"}, {Name: "Created At", Type: "date"}}
		}
		var got [][]any
		for _, c := range columns {
			got = append(got, []any{c.Name, c.Type, c.Format, float64(c.Priority)})
			if k.Presentation.Columns == nil {
				continue
			}
			if c.Description == "" || c.Cell == nil {
				t.Errorf("%s: column %s: no description or no cell, want one", k.Resource, c.Name)
			}
			if all := described[k.Resource]; all != nil && c.Description != all[c.Name] {
				t.Errorf("%s: column %s: got description\n%q, want\n%q", k.Resource, c.Name, c.Description, all[c.Name])
			}
		}
		if k.HasVerb("list") && !reflect.DeepEqual(got, want[k.Resource]) {
			t.Errorf("%s: got columns\n%v, want\n%v", k.Resource, got, want[k.Resource])
		}
	}
}
