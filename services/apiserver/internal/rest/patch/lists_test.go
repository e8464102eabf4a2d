package patch

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// TestPatchedListsAreBounded checks that patches of all types cannot exceed the limit of list
// elements that applies to complete objects.
func TestPatchedListsAreBounded(t *testing.T) {
	catalog, c := builtinCodec(t)
	k := catalog.Kind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod := newTarget(c, k, &corev1.Pod{})
	containers := func(n int) string {
		return `{"spec":{"containers":[` + strings.Repeat(`{},`, n) + `{"name":"a"}]}}`
	}
	for _, typ := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType} {
		p, err := Decode(typ, []byte(containers(44_000)), false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Apply(t.Context(), pod)
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "the lists of the document take more than 16777216 bytes") {
			t.Errorf("%s: got %.200v", typ, err)
		}
	}
	p, err := Decode(types.MergePatchType, []byte(containers(1_000)), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(t.Context(), pod); err != nil {
		t.Errorf("small list: got %v", err)
	}
}
