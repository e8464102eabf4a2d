package namespaces

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"binnacle/libs/kubeclient"
)

// TestGracePeriodOfPodsIsLimited checks that a long grace period of a pod counts as maxGracePeriod.
func TestGracePeriodOfPodsIsLimited(t *testing.T) {
	// The second fits in a duration by overflow only.
	for _, grace := range []int64{math.MaxInt64, math.MaxInt64/1_000_000_000*2 + 1_000_000_000, 7200} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace},
		}
		client := fake.NewClientset(pod)
		controller := New(Config{Pods: func(namespace string) kubeclient.Interface[*corev1.Pod, *corev1.PodList] {
			return client.CoreV1().Pods(namespace)
		}})
		now := metav1.Now()
		terminating := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: &now}}
		if got, err := controller.podGracePeriod(t.Context(), terminating); got != maxGracePeriod || err != nil {
			t.Errorf("grace period of %d: got %d, %v, want %d", grace, got, err, maxGracePeriod)
		}
	}
}
