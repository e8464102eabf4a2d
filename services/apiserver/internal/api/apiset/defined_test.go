package apiset_test

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/registry"
)

// definedAs returns a definition that serves a kind in some versions.
func definedAs(group, resource, kind string, versions ...string) apiset.Definition {
	definition := apiset.Definition{Resource: schema.GroupResource{Group: group, Resource: resource}}
	for _, v := range versions {
		definition.Versions = append(definition.Versions, &apiset.Resource{Kind: &registry.Kind{
			Names:  registry.Names{Group: group, Version: v, Resource: resource, Kind: kind},
			Stored: registry.StorageForm{Prefix: group + "/" + resource},
		}})
	}
	return definition
}

// model is the expected content of a set, by definition.
type model map[schema.GroupResource]apiset.Definition

// check compares the custom kinds of a set with the model.
func (m model) check(t *testing.T, set *apiset.Set, groups, resources, kinds, versions []string) {
	t.Helper()
	total := 0
	for _, group := range groups {
		inGroup := 0
		for _, version := range versions {
			groupVersion, inVersion := schema.GroupVersion{Group: group, Version: version}, 0
			byKind := map[string]*apiset.Resource{}
			for _, resource := range slices.Sorted(slices.Values(resources)) {
				var want *apiset.Resource
				for _, expected := range m[schema.GroupResource{Group: group, Resource: resource}].Versions {
					if expected.Version == version {
						want, byKind[expected.Kind.Kind] = expected, expected
						inVersion++
					}
				}
				if got := set.Resource(groupVersion.WithResource(resource)); got != want {
					t.Errorf("%s/%s %s is %v, want %v", group, version, resource, got, want)
				}
				if want == nil {
					continue
				}
				family := set.Family(want.Kind)
				wantSize := len(m[schema.GroupResource{Group: group, Resource: resource}].Versions)
				if len(family) != wantSize || !slices.Contains(family, want) {
					t.Errorf("%s/%s %s: got a family of %d, want %d with the kind itself", group, version, resource, len(family), wantSize)
				}
			}
			for _, k := range kinds {
				if got := set.StoredKind(groupVersion.WithKind(k)); got != byKind[k] {
					t.Errorf("%s/%s: got kind %v for %s, want %v", group, version, got, k, byKind[k])
				}
			}
			if set.Serves(groupVersion) != (inVersion > 0) {
				t.Errorf("%s with %d resources: got served: %t, want %t", groupVersion, inVersion, set.Serves(groupVersion), inVersion > 0)
			}
			inGroup += inVersion
		}
		if set.ServesGroup(group) != (inGroup > 0) {
			t.Errorf("group %s with %d resources: got served: %t, want %t", group, inGroup, set.ServesGroup(group), inGroup > 0)
		}
		total += inGroup
	}
	if got := len(set.Custom()); got != total {
		t.Errorf("got %d custom kinds, want %d", got, total)
	}
}

// TestSetsFollowDefinitions adds, changes and removes random definitions, several at a time. It checks
// that each set contains the definitions of its revision, and that later changes do not affect it.
func TestSetsFollowDefinitions(t *testing.T) {
	groups, versions := []string{"a", "a.b", "b"}, []string{"v1", "v2"}
	var resources, kinds []string
	for i := range 40 {
		resources = append(resources, fmt.Sprint("r", i))
		kinds = append(kinds, fmt.Sprint("K", i))
	}
	pick := func(random *rand.Rand, choices []string) string { return choices[random.Intn(len(choices))] }
	for seed := range int64(4) {
		random := rand.New(rand.NewSource(seed))
		type expectation struct {
			set  *apiset.Set
			want model
		}
		var expectations []expectation
		s, current := apiset.Builder{}.Set(catalog(t, "apples"), 0), model{}
		for revision := range int64(150) {
			var changed []apiset.Definition
			for range random.Intn(5) {
				served := [][]string{nil, versions[:1], versions[1:], versions}[random.Intn(4)]
				definition := definedAs(pick(random, groups), pick(random, resources), pick(random, kinds), served...)
				if slices.ContainsFunc(changed, func(o apiset.Definition) bool { return o.Resource == definition.Resource }) {
					continue
				}
				changed = append(changed, definition)
				current[definition.Resource] = definition
			}
			s = s.WithDefinitions(changed, revision)
			if s.Revision() != revision {
				t.Errorf("got revision %d, want %d", s.Revision(), revision)
			}
			if revision%10 == 0 {
				expectations = append(expectations, expectation{s, maps.Clone(current)})
			}
		}
		for _, e := range append(expectations, expectation{s, current}) {
			e.want.check(t, e.set, groups, resources, kinds, versions)
		}
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// TestBuiltInKindsWin checks that definitions do not affect built-in kinds.
func TestBuiltInKindsWin(t *testing.T) {
	known := catalog(t, "apples")
	set := apiset.Builder{}.Set(known, 0)
	groupVersion := schema.GroupVersion{Group: "g", Version: "v1"}
	apples := set.Resource(groupVersion.WithResource("apples"))
	apples.Store = new(watchcache.Store) // objects of it are stored
	set = set.Filter(known)
	set = set.WithDefinitions([]apiset.Definition{
		definedAs("g", "apples", "Other", "v1", "v2"),
		definedAs("g", "pears", "Pear", "v1"),
	}, 2)
	stored := set.StoredKind(groupVersion.WithKind(apples.Kind.Kind))
	set = set.WithDefinitions([]apiset.Definition{definedAs("g", "imitations", apples.Kind.Kind, "v1")}, 2)
	if stored == nil || set.StoredKind(groupVersion.WithKind(apples.Kind.Kind)) != stored {
		t.Errorf("definition of the built-in kind: got stored kind %v, want %v", set.StoredKind(groupVersion.WithKind(apples.Kind.Kind)), stored)
	}
	set = set.WithDefinitions([]apiset.Definition{{Resource: schema.GroupResource{Group: "g", Resource: "imitations"}}}, 2)
	if set.Resource(groupVersion.WithResource("apples")) != apples || len(set.Custom()) != 2 || set.Resource(groupVersion.WithResource("pears")) == nil {
		t.Errorf("got %d custom kinds, apples %v, want 2 custom kinds and the built-in apples", len(set.Custom()), set.Resource(groupVersion.WithResource("apples")))
	}
	set = set.WithDefinitions([]apiset.Definition{
		{Resource: schema.GroupResource{Group: "g", Resource: "apples"}},
		{Resource: schema.GroupResource{Group: "g", Resource: "pears"}},
	}, 3)
	if set.Resource(groupVersion.WithResource("apples")) != apples {
		t.Error("after the definition was removed: no built-in resource apples, want it kept")
	}
	if got := set.Custom(); len(got) != 0 {
		t.Errorf("after the definition was removed: got custom kinds %v, want none", got)
	}
	if got := fmt.Sprint(set.Serves(groupVersion), set.Serves(schema.GroupVersion{Group: "g", Version: "v2"})); got != "true false" {
		t.Errorf("after the definition was removed: got v1, v2 served: %s, want true false", got)
	}
}

// BenchmarkWithDefinitions adds one definition to many.
func BenchmarkWithDefinitions(b *testing.B) {
	for _, n := range []int{200, 3000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set := apiset.Builder{}.Set(&registry.Catalog{}, 0)
			one := func(i int) apiset.Definition {
				return definedAs(fmt.Sprintf("g%d.example.com", i%20), fmt.Sprintf("widget%ds", i), fmt.Sprintf("Widget%d", i), "v1")
			}
			for i := range n {
				set = set.WithDefinitions([]apiset.Definition{one(i)}, int64(i))
			}
			next := []apiset.Definition{one(n)}
			for b.Loop() {
				set.WithDefinitions(next, 1)
			}
		})
	}
}
