package meta_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/status"
)

// TestManyOwnersErrorsMatchApimachinery checks that the errors of many owner references equal those of apimachinery, which
// validates each on its own.
func TestManyOwnersErrorsMatchApimachinery(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	kind := &registry.Kind{Names: registry.Names{Namespaced: true}}
	isController, notController := true, false
	choose := func(choices ...string) string { return choices[random.IntN(len(choices))] }
	for round := range 40 {
		metadata := metav1.ObjectMeta{
			Name:       choose("a", "A"),
			Namespace:  "n",
			Labels:     map[string]string{choose("a", "-"): "b"},
			Finalizers: []string{choose("a.b/c", "orphan", "-/-")},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{FieldsType: choose("FieldsV1", "x"), Operation: metav1.ManagedFieldsOperationUpdate},
			},
		}
		for range 50 + random.IntN(200) {
			ownerReference := metav1.OwnerReference{
				APIVersion: choose("v1", "apps/v1", "", "apps/", "a/b/c"),
				Kind:       choose("Pod", "Event", ""),
				Name:       choose("x", "y", ""),
				UID:        "u",
			}
			switch random.IntN(12) {
			case 0:
				ownerReference.UID = ""
			case 1:
				ownerReference.Controller = &notController
			case 2:
				ownerReference.Controller = &isController
			case 3: // as many kinds as owners
				ownerReference.Kind = fmt.Sprint(random.Uint64())
				ownerReference.UID = ""
			}
			metadata.OwnerReferences = append(metadata.OwnerReferences, ownerReference)
		}
		want := validation.ValidateObjectMeta(&metadata, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
		if got := meta.ValidateCreate(kind, &corev1.ConfigMap{ObjectMeta: metadata}); errorTexts(got) != errorTexts(want) {
			t.Fatalf("round %d: got %d errors, want %d: %.3000s\nwant %.3000s",
				round, len(got), len(want), errorTexts(got), errorTexts(want))
		}
	}
}

// TestEqualOwnerErrorsShareText checks that equal errors share their texts.
func TestEqualOwnerErrorsShareText(t *testing.T) {
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", OwnerReferences: make([]metav1.OwnerReference, 10_000)},
	}
	kind := &registry.Kind{Names: registry.Names{Namespaced: true}}
	if n := len(meta.ValidateCreate(kind, obj)); n != 40_000 {
		t.Errorf("got %d errors, want 40_000", n)
	}
	if n := testing.AllocsPerRun(3, func() { meta.ValidateCreate(kind, obj) }); n > 20_000 {
		t.Errorf("got %.0f allocations, want at most 20000", n)
	}
}

// TestManyControllersErrorIsBounded checks that each error about a second controller shows a bounded number of
// owners. A few owners are all shown.
func TestManyControllersErrorIsBounded(t *testing.T) {
	yes := true
	kind := &registry.Kind{Names: registry.Names{Namespaced: true}}
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", OwnerReferences: make([]metav1.OwnerReference, 20_000)},
	}
	for i := range obj.OwnerReferences {
		obj.OwnerReferences[i] = metav1.OwnerReference{APIVersion: "v", Kind: "K", Name: "n", UID: "u", Controller: &yes}
	}
	errs := meta.ValidateCreate(kind, obj)
	if len(errs) != 19_999 {
		t.Fatalf("got %d errors, want 19_999", len(errs))
	}
	for _, e := range errs[:2] {
		if n := len(e.ErrorBody()); n < status.MaxMessage || n > 4*status.MaxMessage {
			t.Errorf("got an error of %d bytes, want %d to %d", n, status.MaxMessage, 4*status.MaxMessage)
		}
	}
}
