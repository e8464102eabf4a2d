package builtin_test

import (
	"embed"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
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

// catalog returns the default catalog.
func catalog(t testing.TB) *registry.Catalog {
	t.Helper()
	c, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// nameOf returns the name of a kind in the facts, such as "v1/pods" or "apps/v1/deployments".
func nameOf(k *registry.Kind) string { return k.GroupVersion().String() + "/" + k.Resource }

// resourceFact describes a resource in the facts.
type resourceFact struct {
	Group, Version, Resource, Singular, Kind, Scope string
	Verbs, ShortNames, Categories                   []string
	Subresources                                    []subresourceFact
}

// subresourceFact describes a subresource in the facts.
type subresourceFact struct {
	Name, Kind, Group, Version string
	Verbs                      []string
}

// factOf returns the fact of a kind.
func factOf(kind *registry.Kind) resourceFact {
	f := resourceFact{
		Group: kind.Group, Version: kind.Version, Resource: kind.Resource, Singular: kind.Singular, Kind: kind.Kind, Scope: "Cluster",
		Verbs: kind.Verbs, ShortNames: append([]string{}, kind.ShortNames...), Categories: append([]string{}, kind.Categories...),
		Subresources: []subresourceFact{},
	}
	if kind.Namespaced {
		f.Scope = "Namespaced"
	}
	if f.Verbs == nil {
		f.Verbs = registry.AllVerbs
	}
	for _, s := range kind.Subresources {
		f.Subresources = append(f.Subresources, subresourceFact{s.Name, s.GVK.Kind, s.GVK.Group, s.GVK.Version, s.Verbs})
	}
	return f
}

// TestResourcesEqualReference checks that names, verbs and subresources are those of Kubernetes, in
// its order.
func TestResourcesEqualReference(t *testing.T) {
	want := readFacts[[]resourceFact](t, "resources.json")
	kinds := catalog(t).Kinds()
	if len(kinds) != len(want) {
		t.Errorf("got %d kinds, want %d", len(kinds), len(want))
	}
	for i := range min(len(kinds), len(want)) {
		if got := factOf(kinds[i]); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%s is\n%+v, want\n%+v", nameOf(kinds[i]), got, want[i])
		}
	}
}

// TestGroupOrderEqualsReference checks the order of groups and versions in discovery.
func TestGroupOrderEqualsReference(t *testing.T) {
	want := readFacts[[][]string](t, "group-order.json")
	var got [][]string
	for _, g := range catalog(t).Groups() {
		if g.Name != "" {
			got = append(got, append([]string{g.Name}, g.Versions...))
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("groups are\n%v, want\n%v", got, want)
	}
}

// TestPrioritiesEqualReference checks the priorities of groups and versions.
func TestPrioritiesEqualReference(t *testing.T) {
	groups := map[string]int{}
	all, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all.Groups() {
		groups[g.Name] = g.Priority
	}
	type priority struct {
		Group, Version                        string
		GroupPriorityMinimum, VersionPriority int
	}
	for _, want := range readFacts[[]priority](t, "apiservice-priorities.json") {
		got := priority{want.Group, want.Version, groups[want.Group],
			builtin.VersionPriority(schema.GroupVersion{Group: want.Group, Version: want.Version})}
		if got != want {
			t.Errorf("got priority %+v, want %+v", got, want)
		}
	}
}

// TestColumnsEqualReference checks the columns of tables and their descriptions.
func TestColumnsEqualReference(t *testing.T) {
	want := readFacts[map[string][][]any](t, "table-columns.json")
	descriptions := readFacts[map[string]map[string]string](t, "column-descriptions.json")
	// This column has no description in Kubernetes.
	undescribed := map[string]bool{"node.k8s.io/v1/runtimeclasses/Handler": true}
	seen := 0
	for _, kind := range catalog(t).Kinds() {
		cols := kind.Presentation.Columns
		if cols == nil {
			cols = []registry.Column{{Name: "Name", Type: "string", Format: "name"}, {Name: "Created At", Type: "date"}}
		}
		if !kind.HasVerb("list") {
			continue
		}
		seen++
		var got [][]any
		for _, column := range cols {
			if column.Name != "" {
				got = append(got, []any{column.Name, column.Type, column.Format, float64(column.Priority)})
			}
			if kind.Presentation.Columns == nil {
				continue
			}
			if column.Cell == nil || (column.Description == "") != undescribed[nameOf(kind)+"/"+column.Name] {
				t.Errorf("%s: column %s: got cell %t, description %q", nameOf(kind), column.Name, column.Cell != nil, column.Description)
			}
			if want := descriptions[nameOf(kind)]; want != nil && column.Description != want[column.Name] {
				t.Errorf("%s: column %s: got description\n%q, want\n%q", nameOf(kind), column.Name, column.Description, want[column.Name])
			}
		}
		if !reflect.DeepEqual(got, want[nameOf(kind)]) {
			t.Errorf("%s: got columns\n%v, want\n%v", nameOf(kind), got, want[nameOf(kind)])
		}
	}
	if seen != len(want) {
		t.Errorf("got %d kinds with columns, want %d", seen, len(want))
	}
}

// TestKeysAndStoredVersionsEqualReference checks that keys and stored versions are those of
// Kubernetes, because servers of both kinds may use the same store.
func TestKeysAndStoredVersionsEqualReference(t *testing.T) {
	prefixes := map[string]string{
		"v1/nodes":                  "minions",
		"v1/services":               "services/specs",
		"v1/endpoints":              "services/endpoints",
		"v1/replicationcontrollers": "controllers",
		"events.k8s.io/v1/events":   "events",

		"networking.k8s.io/v1/ingresses":                    "ingress",
		"apiregistration.k8s.io/v1/apiservices":             "apiregistration.k8s.io/apiservices",
		"apiextensions.k8s.io/v1/customresourcedefinitions": "apiextensions.k8s.io/customresourcedefinitions",
	}
	forms := map[string]string{
		"events.k8s.io/v1/events":                           "/v1, Kind=Event",
		"autoscaling/v1/horizontalpodautoscalers":           "autoscaling/v2, Kind=HorizontalPodAutoscaler",
		"apiextensions.k8s.io/v1/customresourcedefinitions": "apiextensions.k8s.io/v1beta1, Kind=CustomResourceDefinition",
	}
	for _, kind := range catalog(t).Kinds() {
		if kind.Virtual {
			if kind.Stored.Prefix != "" || kind.Stored.New != nil {
				t.Errorf("%s: got a stored form of a virtual kind, want none", nameOf(kind))
			}
			continue
		}
		want, ok := prefixes[nameOf(kind)]
		if !ok {
			want = kind.Resource
		}
		if kind.Stored.Prefix != want {
			t.Errorf("%s: got prefix %q, want %q", nameOf(kind), kind.Stored.Prefix, want)
		}
		form, converts := forms[nameOf(kind)]
		if !converts {
			form = kind.GVK().String()
		}
		if kind.Resource == "ipaddresses" || kind.Resource == "servicecidrs" { // stable since 1.33
			form = "networking.k8s.io/v1beta1, Kind=" + kind.Kind
		}
		if got := kind.StoredGVK().String(); got != form {
			t.Errorf("%s: got stored version %s, want %s", nameOf(kind), got, form)
		}
		if (kind.Stored.New != nil) != converts || (kind.Stored.ToStored != nil) != converts || (kind.Stored.FromStored != nil) != converts {
			t.Errorf("%s: got incomplete conversions, want all or none", nameOf(kind))
		}
		if kind.Stored.HasTTL != (kind.Resource == "events") {
			t.Errorf("%s: got HasTTL %t, want %t", nameOf(kind), kind.Stored.HasTTL, !kind.Stored.HasTTL)
		}
	}
}

// TestNewReturnsGoTypeOfScheme checks that each New returns the Go type that the scheme has for the
// declared name.
func TestNewReturnsGoTypeOfScheme(t *testing.T) {
	scheme := builtin.Scheme()
	check := func(name string, gvk schema.GroupVersionKind, obj runtime.Object) {
		t.Helper()
		want, err := scheme.New(gvk)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if reflect.TypeOf(obj) != reflect.TypeOf(want) {
			t.Errorf("%s: got %T, want %T", name, obj, want)
		}
	}
	for _, kind := range catalog(t).Kinds() {
		check(nameOf(kind), kind.GVK(), kind.New())
		if kind.Stored.New != nil {
			check(nameOf(kind)+" stored", kind.StoredGVK(), kind.Stored.New())
		}
		if kind.NewList != nil {
			check(nameOf(kind)+" list", kind.GroupVersion().WithKind(kind.Kind+"List"), kind.NewList())
		} else if kind.HasVerb("list") {
			t.Errorf("%s: no list type of a listable kind, want one", nameOf(kind))
		}
		for _, subresource := range kind.Subresources {
			gvk := subresource.GVK
			if gvk.Version == "" {
				gvk = kind.GroupVersion().WithKind(gvk.Kind)
			}
			if subresource.New != nil {
				check(nameOf(kind)+"/"+subresource.Name, gvk, subresource.New())
			} else if gvk.Kind != kind.Kind {
				t.Errorf("%s/%s: no Go type for %s, want one", nameOf(kind), subresource.Name, gvk)
			}
		}
	}
}

// TestSchemeHasOptionTypesOfEveryVersion checks that the scheme contains the option and response types
// of every group version.
func TestSchemeHasOptionTypesOfEveryVersion(t *testing.T) {
	scheme := builtin.Scheme()
	for _, g := range catalog(t).Groups() {
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v}
			for _, kind := range []string{"WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions"} {
				if !scheme.Recognizes(gv.WithKind(kind)) {
					t.Errorf("%s: no %s, want one", gv, kind)
				}
			}
		}
	}
	for _, gvk := range []string{
		"Status.v1.", "APIGroup.v1.", "APIResourceList.v1.",
		"Table.v1.meta.k8s.io", "PartialObjectMetadata.v1.meta.k8s.io", "PartialObjectMetadataList.v1.meta.k8s.io",
		"Table.v1beta1.meta.k8s.io", "PartialObjectMetadata.v1beta1.meta.k8s.io",
		"Scale.v1.autoscaling", "Eviction.v1.policy", "TokenRequest.v1.authentication.k8s.io",
		"TokenReview.v1.authentication.k8s.io", "TokenReview.v1beta1.authentication.k8s.io",
		"SubjectAccessReview.v1.authorization.k8s.io", "SubjectAccessReview.v1beta1.authorization.k8s.io",
		"AdmissionReview.v1.admission.k8s.io", "APIGroupDiscoveryList.v2.apidiscovery.k8s.io",
	} {
		parsed, _ := schema.ParseKindArg(gvk)
		if parsed == nil || !scheme.Recognizes(*parsed) {
			t.Errorf("%s is unknown to the scheme, want a known type", gvk)
		}
	}
}

// TestCatalogReturnsNewKinds checks that Catalog returns new values, which a caller may change.
func TestCatalogReturnsNewKinds(t *testing.T) {
	for _, kind := range catalog(t).Kinds() {
		kind.Resource, kind.Presentation.Columns = "changed", nil
		for i := range kind.Subresources {
			kind.Subresources[i].Name = "changed"
		}
		for i := range kind.ShortNames {
			kind.ShortNames[i] = "changed"
		}
		for i := range kind.Categories {
			kind.Categories[i] = "changed"
		}
	}
	data, _ := json.Marshal(mapOf(catalog(t).Kinds(), factOf))
	if strings.Contains(string(data), "changed") {
		t.Errorf("got a change in the next catalog, want none: %s", data)
	}
}

// mapOf applies a function to each element of a list.
func mapOf[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

// TestSubresourcesAreOrderedByName checks that subresources are ordered by name.
func TestSubresourcesAreOrderedByName(t *testing.T) {
	for _, k := range catalog(t).Kinds() {
		if !slices.IsSortedFunc(k.Subresources, func(a, b registry.Subresource) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: got unordered subresources, want them ordered by name", nameOf(k))
		}
	}
}

// BenchmarkScheme measures the creation of the scheme.
func BenchmarkScheme(b *testing.B) {
	for b.Loop() {
		builtin.Scheme()
	}
}

// BenchmarkCatalog measures the creation of the catalog.
func BenchmarkCatalog(b *testing.B) {
	for b.Loop() {
		catalog(b)
	}
}
