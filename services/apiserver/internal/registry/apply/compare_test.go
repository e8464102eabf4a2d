package apply

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// builtinFields returns the managers of all built-in kinds.
func builtinFields(t testing.TB) (*Fields, *registry.Catalog) {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	return New(catalog, time.Now), catalog
}

// mutate returns a copy of an object with parts of its JSON removed, changed, duplicated and
// reordered at random. It returns the object itself if its type does not accept the change.
func mutate(t *testing.T, random *rand.Rand, kind *registry.Kind, obj registry.Object) registry.Object {
	t.Helper()
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	var change func(value any) any
	change = func(value any) any {
		switch value := value.(type) {
		case map[string]any:
			for key, x := range value {
				if random.Intn(12) == 0 {
					delete(value, key)
					continue
				}
				value[key] = change(x)
			}
		case []any:
			for i := range value {
				value[i] = change(value[i])
			}
			switch random.Intn(8) {
			case 0:
				return []any{}
			case 1:
				if len(value) > 0 {
					return append(value, runtime.DeepCopyJSONValue(value[random.Intn(len(value))]))
				}
			case 2:
				random.Shuffle(len(value), func(i, j int) { value[i], value[j] = value[j], value[i] })
			}
		case string:
			if random.Intn(12) == 0 {
				return value + "x"
			}
		case bool:
			return value != (random.Intn(12) == 0)
		}
		return value
	}
	out := kind.New().(registry.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(change(tree).(map[string]any), out); err != nil {
		return obj // the type does not accept the change
	}
	return roundTrip(t, kind, out)
}

// roundTrip returns an object as it is after encoding and decoding: empty fields are nil.
func roundTrip(t *testing.T, kind *registry.Kind, obj registry.Object) registry.Object {
	t.Helper()
	obj.SetManagedFields(nil)
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	out := kind.New().(registry.Object)
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	out.GetObjectKind().SetGroupVersionKind(kind.GVK())
	return out
}

// newFiller fills objects with values that can be encoded.
func newFiller(seed int64) *randfill.Filler {
	codecs := serializer.NewCodecFactory(builtin.Scheme())
	return fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), codecs).NilChance(0.4).NumElements(0, 3).MaxDepth(11).Funcs(
		func(j *apiextensionsv1.JSON, c randfill.Continue) {
			j.Raw = []byte([]string{`{"a":{"b":[1]}}`, `"x"`, `[1,2]`, `{"a":1}`}[c.Intn(4)])
		},
	)
}

// TestDifferencesMatchTheMergeLibrary checks that the compiled comparison gives the results of the
// merge library, for every kind.
func TestDifferencesMatchTheMergeLibrary(t *testing.T) {
	fields, catalog := builtinFields(t)
	const rounds = 2
	for _, kind := range catalog.Kinds() {
		t.Run(kind.GVK().String(), func(t *testing.T) {
			view := fields.views[kind]
			for seed := int64(0); seed < rounds; seed++ {
				random := rand.New(rand.NewSource(seed))
				fill := newFiller(seed)
				a := kind.New().(registry.Object)
				b := kind.New().(registry.Object)
				fill.Fill(a)
				fill.Fill(b)
				a = roundTrip(t, kind, a)
				b = roundTrip(t, kind, b)
				empty := kind.New().(registry.Object)
				for i, pair := range [][2]registry.Object{
					{a, a},
					{a, mutate(t, random, kind, a)},
					{a, mutate(t, random, kind, a)},
					{empty, a},
					{a, empty},
					{a, b},
				} {
					checkDifferences(t, view, fmt.Sprintf("seed %d, pair %d", seed, i), pair[0], pair[1])
				}
			}
		})
	}
}

// checkDifferences checks that the compiled comparison of two objects has the result of the merge
// library. name names the pair in errors.
func checkDifferences(t *testing.T, v *view, name string, a, b registry.Object) {
	t.Helper()
	got, gotErr := v.differences(a, b)
	want, wantErr := v.typedDifferences(a, b)
	if (gotErr == nil) != (wantErr == nil) {
		t.Errorf("%s: got error %v, want %v", name, gotErr, wantErr)
	}
	if gotErr != nil || wantErr != nil {
		return
	}
	wantSubset := func(fault string, subset, superset *fieldpath.Set) {
		if d := subset.Difference(unownedFields).Difference(superset.Difference(unownedFields)); !d.Empty() {
			t.Errorf("%s: got %s %s, want none", name, fault, d)
		}
	}
	wantSubset("fields missing from set", want.set, got.set)
	wantSubset("unexpected fields in set", got.set, want.set)
	wantSubset("fields missing from removed", want.removed, got.removed)
	wantSubset("unexpected fields in removed", got.removed, want.removed)
}
