package writes

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/request/requesttest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Duplicate owner references are removed, and the order is kept, for few and for many references.
func TestDuplicateOwnersAreRemoved(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	yes, no := true, false
	for round := range 60 {
		obj := &corev1.ConfigMap{}
		for range r.IntN([]int{4, maxPairwise + 2, 200}[round%3]) {
			o := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: fmt.Sprint(r.IntN(4)), UID: types.UID(fmt.Sprint(r.IntN(30)))}
			o.Controller = []*bool{nil, &yes, &no, new(bool)}[r.IntN(4)]
			obj.OwnerReferences = append(obj.OwnerReferences, o)
		}
		var want []metav1.OwnerReference
		var uids []string
	each:
		for _, o := range obj.OwnerReferences {
			for _, w := range want {
				if reflect.DeepEqual(w, o) {
					uids = append(uids, string(o.UID)) // once per duplicate
					continue each
				}
			}
			want = append(want, o)
		}
		ctx, warnings := requesttest.WithWarnings(t.Context())
		removeDuplicateOwners(ctx, obj, duplicateOwners)
		if !reflect.DeepEqual(obj.OwnerReferences, want) {
			t.Fatalf("round %d: got %v, want %v", round, obj.OwnerReferences, want)
		}
		warning := strings.Join(warnings.Headers(), "")
		if len(uids) == 0 && warning != "" || len(uids) > 0 && !strings.HasSuffix(warning, " observed: "+strings.Join(uids, ", ")+`"`) {
			t.Errorf("round %d: got warning %s, want %v", round, warning, uids)
		}
	}
}
