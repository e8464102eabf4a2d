package writes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
)

// TestPatchedListsAreBounded checks that patches of all types cannot exceed the limit of list
// elements that applies to complete objects.
func TestPatchedListsAreBounded(t *testing.T) {
	catalog, err := builtin.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	k := catalog.Kind(corev1.SchemeGroupVersion.WithKind("Pod"))
	w := &Writer{Config: Config{Codec: c}}
	containers := func(n int) string {
		return `{"spec":{"containers":[` + strings.Repeat(`{},`, n) + `{"name":"a"}]}}`
	}
	for _, typ := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType} {
		p, err := DecodePatch(typ, []byte(containers(44_000)), false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.patchedObject(t.Context(), &Request{Kind: &apiset.Resource{Kind: k, Coder: c.Of(k)}, Patch: p}, &corev1.Pod{}, false)
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "the lists of the document take more than 16777216 bytes") {
			t.Errorf("%s: got %.200v", typ, err)
		}
	}
	p, err := DecodePatch(types.MergePatchType, []byte(containers(1_000)), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.patchedObject(t.Context(), &Request{Kind: &apiset.Resource{Kind: k, Coder: c.Of(k)}, Patch: p}, &corev1.Pod{}, false); err != nil {
		t.Errorf("small list: got %v", err)
	}
}
