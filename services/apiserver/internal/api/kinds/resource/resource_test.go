package resource_test

import (
	"testing"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"binnacle/services/apiserver/internal/api/kinds/resource"
	"binnacle/services/apiserver/internal/registry"
)

// filler generates objects that clients could send.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(1, 3).MaxDepth(12).Funcs(
		func(q *apiresource.Quantity, c randfill.Continue) {
			*q = *apiresource.NewMilliQuantity(c.Int63n(1_000_000)+1, apiresource.DecimalSI)
			_ = q.String() // caches the text, as decoding does
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<31), 0).Rfc3339Copy() },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.Raw = []byte("{}") },
		func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte(`{"a":1}`) },
		func(r *resourcev1beta1.DeviceRequest, c randfill.Continue) {
			c.FillNoCustom(r)
			if len(r.FirstAvailable) > 0 { // excludes all other fields
				*r = resourcev1beta1.DeviceRequest{Name: r.Name, FirstAvailable: r.FirstAvailable}
			}
		},
		func(d *resourcev1beta1.Device, c randfill.Continue) {
			c.FillNoCustom(d)
			if d.Basic == nil {
				d.Basic = &resourcev1beta1.BasicDevice{}
			}
		},
	)
}

// TestVersionsHaveTheSameContent checks that conversion to another version and back keeps random
// objects as they are.
func TestVersionsHaveTheSameContent(t *testing.T) {
	kinds := map[string]map[string]*registry.Kind{}
	for _, kind := range resource.Kinds(registry.Settings{}) {
		if kinds[kind.Kind] == nil {
			kinds[kind.Kind] = map[string]*registry.Kind{}
		}
		kinds[kind.Kind][kind.Version] = kind
	}
	if len(kinds) != 5 {
		t.Errorf("got %d kinds, want 5", len(kinds))
	}
	converted := 0
	for name, versions := range kinds {
		for version, other := range versions {
			if older := versions["v1beta1"]; other.Stored.FromStored != nil {
				converted++
				requireRoundTrip(t, name+" "+version, older, other)
			}
		}
	}
	if converted != 5 {
		t.Errorf("got %d converted kinds, want 5", converted)
	}
}

// requireRoundTrip converts random objects of the stored version to another version and back, and
// checks that they do not change.
func requireRoundTrip(t *testing.T, name string, older, newer *registry.Kind) {
	t.Helper()
	for seed := range int64(200) {
		want := older.New().(registry.Object)
		filler(seed).Fill(want)
		want.GetObjectKind().SetGroupVersionKind(older.GVK())
		converted, err := newer.Stored.FromStored(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := newer.Stored.ToStored(converted)
		if err != nil {
			t.Fatal(err)
		}
		if !apiequality.Semantic.DeepEqual(got, want) {
			t.Fatalf("%s, seed %d: want\n%+v\ngot\n%+v", name, seed, want, got)
		}
	}
}
