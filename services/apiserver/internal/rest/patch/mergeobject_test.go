package patch

import (
	"context"
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/randfill"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// builtinCodec returns the built-in kinds and their codec.
func builtinCodec(t testing.TB) (*registry.Catalog, *codec.Codec) {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	return catalog, apiCodec
}

// newTarget returns an object as the target of patches.
func newTarget(apiCodec *codec.Codec, kind *registry.Kind, obj registry.Object) *Target {
	coder := apiCodec.ForKind(kind)
	return &Target{
		Object:   obj,
		GVK:      kind.GVK(),
		Name:     obj.GetName(),
		Codec:    apiCodec,
		New:      kind.New,
		Encode:   func() ([]byte, error) { return coder.EncodeObject(obj) },
		Decode:   coder.DecodePatched,
		Cost:     func(doc []byte, _ bool) int { return len(doc) },
		Estimate: func(context.Context, int) error { return nil },
	}
}

// randomPart returns a random part of a tree with some nulls and unknown fields.
func randomPart(r *rand.Rand, value any, depth int) any {
	members, ok := value.(map[string]any)
	if !ok {
		if r.Intn(10) == 0 {
			return []any{nil, map[string]any{}, "x", int64(1), []any{}}[r.Intn(5)]
		}
		return value
	}
	out := map[string]any{}
	for k, x := range members {
		switch {
		case depth == 0 && (k == "kind" || k == "apiVersion"):
		case r.Intn(8) == 0:
			out[k] = nil
		case r.Intn(2) == 0:
			out[k] = randomPart(r, x, depth+1)
		}
	}
	if r.Intn(40) == 0 {
		out["unknownField"] = "x"
	}
	return out
}

// TestDirectMergeMatchesDocumentMerge checks that merging directly into objects gives the same result
// as merging documents.
func TestDirectMergeMatchesDocumentMerge(t *testing.T) {
	catalog, apiCodec := builtinCodec(t)
	direct := 0
	for _, kind := range catalog.Kinds() {
		if kind.Virtual {
			continue
		}
		t.Run(kind.GVK().String(), func(t *testing.T) {
			for seed := range int64(4) {
				random := rand.New(rand.NewSource(seed))
				fill := fuzzer.FuzzerFor(
					metafuzzer.Funcs,
					random,
					serializer.NewCodecFactory(builtin.Scheme()),
				).NilChance(0.4).NumElements(0, 3).MaxDepth(11).Funcs(
					func(j *apiextensionsv1.JSON, _ randfill.Continue) { j.Raw = []byte(`{"a":[1]}`) },
				)
				old := kind.New().(registry.Object)
				other := kind.New().(registry.Object)
				fill.Fill(old)
				fill.Fill(other)
				old = roundTrip(t, apiCodec, kind, old)
				tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(other)
				if err != nil {
					t.Fatal(err)
				}
				patch, err := json.Marshal(randomPart(random, tree, 0))
				if err != nil {
					t.Fatal(err)
				}
				if checkMergesAgree(t, apiCodec, kind, old, patch) {
					direct++
				}
				checkStrategicMergesAgree(t, apiCodec, kind, old, patch)
			}
		})
	}
	if direct < 80 {
		t.Errorf("got %d patches merged directly, want at least 80", direct)
	}
}

// roundTrip returns an object after encoding and decoding.
func roundTrip(t *testing.T, apiCodec *codec.Codec, kind *registry.Kind, obj registry.Object) registry.Object {
	t.Helper()
	doc, err := apiCodec.ForKind(kind).EncodeObject(obj)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := apiCodec.Decode(api.MediaJSON, doc, kind.GVK(), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	return decoded.Object.(registry.Object)
}

// checkMergesAgree checks that a merge into the object and a merge of its document give the same result.
// It reports whether the patch was merged directly.
func checkMergesAgree(t *testing.T, apiCodec *codec.Codec, kind *registry.Kind, old registry.Object, patch []byte) bool {
	t.Helper()
	doc, err := apiCodec.ForKind(kind).EncodeObject(old)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := Decode(types.MergePatchType, patch, true)
	if err != nil || len(unknownOf(decoded)) > 0 {
		t.Fatalf("%s: got error %v, unknown fields %v, want none", patch, err, unknownOf(decoded))
	}
	merger := decoded.strategy.(*mergePatch)
	got, ok := mergeObject(old, merger.doc)
	if !ok {
		return false
	}
	if again, err := apiCodec.ForKind(kind).EncodeObject(old); err != nil || string(again) != string(doc) {
		t.Fatalf("%s changed the live object: %v", patch, err)
	}
	patched, err := merger.applyTo(doc)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	document, err := apiCodec.Decode(api.MediaJSON, patched, kind.GVK(), nil, true)
	if err != nil || len(document.Unknown) > 0 {
		t.Fatalf("%s was merged directly, but: %v %v", patch, err, document.Unknown)
	}
	gotJSON, err := apiCodec.ForKind(kind).EncodeObject(got)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON, err := apiCodec.ForKind(kind).EncodeObject(document.Object.(registry.Object))
	if err != nil {
		t.Fatal(err)
	}
	if string(gotJSON) != string(wantJSON) {
		t.Fatalf("%s into\n%s: got\n%s, want\n%s", patch, doc, gotJSON, wantJSON)
	}
	return true
}

// checkStrategicMergesAgree checks that a strategic patch of only the fields that it names gives the same
// result as a patch of the whole object.
func checkStrategicMergesAgree(t *testing.T, apiCodec *codec.Codec, kind *registry.Kind, old registry.Object, patch []byte) {
	t.Helper()
	decoded, err := Decode(types.StrategicMergePatchType, patch, false)
	if err != nil {
		t.Fatal(err)
	}
	target := newTarget(apiCodec, kind, old)
	target.FieldValidation = "Ignore"
	got, gotErr := decoded.Apply(t.Context(), target)
	s := decoded.strategy.(*strategicPatch)
	tree, wantErr := s.mergeInto(t.Context(), target, old, kind.New(), s.tree)
	want := kind.New()
	if wantErr == nil {
		wantErr = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, want, false)
	}
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%s: got %v, want %v", patch, gotErr, wantErr)
	}
	if gotErr != nil {
		return
	}
	gotJSON, err := apiCodec.ForKind(kind).EncodeObject(got)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON, err := apiCodec.ForKind(kind).EncodeObject(want.(registry.Object))
	if err != nil {
		t.Fatal(err)
	}
	// The order within raw JSON may differ.
	var gotTree, wantTree any
	if json.Unmarshal(gotJSON, &gotTree) != nil || json.Unmarshal(wantJSON, &wantTree) != nil || !reflect.DeepEqual(gotTree, wantTree) {
		t.Fatalf("%s: got\n%s, want\n%s", patch, gotJSON, wantJSON)
	}
}
