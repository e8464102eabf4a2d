package podspec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/podspec"
)

// TestWarningsAreBounded: every pair of ports would be worth a warning.
func TestWarningsAreBounded(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: make([]corev1.ContainerPort, 50_000)}}}}
	if n := len(podspec.Warnings(p)); n != 500 {
		t.Errorf("%d warnings, want 500", n)
	}
}
