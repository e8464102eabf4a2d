package writes

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/request/requesttest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestDuplicateOwnersAreRemoved checks that duplicate owner references are removed and reported, and
// that the order is kept, for few and for many references.
func TestDuplicateOwnersAreRemoved(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	yes, unset := true, false
	for round := range 60 {
		obj := &corev1.ConfigMap{}
		// Lists up to maxPairwise are compared pairwise, longer ones by hash.
		maxLength := []int{4, maxPairwise + 2, 200}[round%3]
		for range r.IntN(maxLength) {
			o := metav1.OwnerReference{
				APIVersion: "v1",
				Kind:       "Pod",
				Name:       fmt.Sprint(r.IntN(4)),
				UID:        types.UID(fmt.Sprint(r.IntN(30))),
			}
			o.Controller = []*bool{nil, &yes, &unset, new(bool)}[r.IntN(4)]
			obj.OwnerReferences = append(obj.OwnerReferences, o)
		}
		var want []metav1.OwnerReference
		var duplicates []string // the UID of each duplicate
		for _, o := range obj.OwnerReferences {
			isEqual := func(w metav1.OwnerReference) bool { return reflect.DeepEqual(w, o) }
			if slices.ContainsFunc(want, isEqual) {
				duplicates = append(duplicates, string(o.UID))
			} else {
				want = append(want, o)
			}
		}
		ctx, warnings := requesttest.WithWarnings(t.Context())
		removeDuplicateOwners(ctx, obj, duplicateOwners)
		if !reflect.DeepEqual(obj.OwnerReferences, want) {
			t.Fatalf("round %d: got %v, want %v", round, obj.OwnerReferences, want)
		}
		warning := strings.Join(warnings.Headers(), "")
		wantSuffix := " observed: " + strings.Join(duplicates, ", ") + `"`
		if len(duplicates) == 0 && warning != "" || len(duplicates) > 0 && !strings.HasSuffix(warning, wantSuffix) {
			t.Errorf("round %d: got warning %q, want one of the UIDs %v", round, warning, duplicates)
		}
	}
}
