package scenarios

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/e2e/harness"
)

// TestWatchResumesAfterRestart starts a watch at a resource version from before a restart. The
// server loads the history from the store, even after many renewals of its own lease.
func TestWatchResumesAfterRestart(t *testing.T) {
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
	leases := server.Client().CoordinationV1().Leases(metav1.NamespaceSystem)
	list, err := leases.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("leases of API servers: got %v, %v", list, err)
	}
	for _, l := range list.Items {
		if _, err := leases.Patch(t.Context(), l.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"e2e":"renewed"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	server.Restart()
	client, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Stop()
	e := <-client.ResultChan()
	if m, ok := e.Object.(*corev1.ConfigMap); !ok || m.Name != "second" {
		t.Errorf("got event %s of %v, want one of the ConfigMap second", e.Type, e.Object)
	}
}
