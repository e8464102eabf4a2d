package poddefaults

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestManyLimitsAreNotCompared checks that the encoded limits of a pod are compared with its requests
// only if there are few. The comparison of 40,000 limits would take a minute.
func TestManyLimitsAreNotCompared(t *testing.T) {
	for n, want := range map[int]bool{1: true, maxComparedLimits: true, maxComparedLimits + 1: false} {
		all := corev1.ResourceList{}
		for i := range n {
			all[corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = resource.MustParse("1")
		}
		limits, err := (&corev1.ResourceRequirements{Limits: all}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		requests, err := (&corev1.ResourceRequirements{Requests: all}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if got := limitsAreRequested([4][]byte{limits, requests}); got != want {
			t.Errorf("%d limits: got %t, want %t", n, got, want)
		}
	}
}
