package scenarios

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/e2e/harness"
)

// TestWatchGoesOnAfterARestart watches from a version of before a restart: the
// server takes up the history since its last sign of life.
func TestWatchGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	maps := server.Client().CoreV1().ConfigMaps("default")
	first, err := maps.Create(t.Context(), configMap("first", ""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), configMap("second", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	e := <-w.ResultChan()
	if m, ok := e.Object.(*corev1.ConfigMap); !ok || m.Name != "second" {
		t.Errorf("%s %v", e.Type, e.Object)
	}
}
