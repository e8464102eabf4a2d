package scenarios

import (
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/e2e/harness"
)

// TestDataDirectoryIsCompatibleWithEtcd moves a control plane from the embedded etcd to a stock
// etcd on the same data directory, and back.
func TestDataDirectoryIsCompatibleWithEtcd(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	embedded := harness.StartServer(t, harness.WithFlags("--data-dir="+dir))
	const objects = 200 // more than etcd keeps of its log in memory
	want := map[string]corev1.ConfigMap{}
	add := func(s *harness.Server, from string) {
		t.Helper()
		for i := range objects {
			c, err := s.Client().CoreV1().ConfigMaps("default").Create(t.Context(),
				configMap(fmt.Sprintf("%s-%d", from, i), "1"), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want[c.Name] = *c
		}
	}
	check := func(s *harness.Server, stage string) {
		t.Helper()
		list, err := s.Client().CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]corev1.ConfigMap{}
		for _, c := range list.Items {
			got[c.Name] = c
		}
		for name, c := range want {
			if !equality.Semantic.DeepEqual(got[name], c) {
				t.Errorf("%s: %s: got %v, want %v", stage, name, got[name], c)
			}
		}
	}
	add(embedded, "embedded")
	if err := embedded.Stop(); err != nil {
		t.Fatal(err)
	}
	etcd := harness.StartEtcd(t, "--data-dir="+dir)
	external := harness.StartServer(t, harness.WithEtcd(etcd))
	check(external, "with an etcd of its own")
	add(external, "external")
	if err := external.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := etcd.Stop(); err != nil {
		t.Logf("etcd ended with %v", err) // it exits by the signal
	}
	embedded.Start()
	check(embedded, "back again")
}
