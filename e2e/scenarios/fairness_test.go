package scenarios

import (
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/e2e/harness"
)

// TestDependentsOfANamespaceDoNotDelayOthers creates many objects with absent owners in one
// namespace, each with its own, and objects with thousands of absent owners. The garbage collector
// must delete the dependents in another namespace before it has deleted most of those.
func TestDependentsOfANamespaceDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	const many, large, references, few = 200, 10, 500, 10
	server := harness.StartServer(t)
	config := server.Config()
	config.QPS = -1
	client := harness.ClientFor(t, harness.Protobuf(config))
	createNamespace(t, client, "crowded")
	createNamespace(t, client, "ordinary")
	create := func(namespace, name string, owners ...metav1.OwnerReference) {
		m := configMap(name, "")
		m.OwnerReferences = owners
		if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	}
	absent := func(name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: types.UID("absent-" + name)}
	}
	var group sync.WaitGroup
	const writers = 8
	for w := range writers {
		group.Go(func() {
			for i := w; i < many; i += writers {
				create("crowded", fmt.Sprintf("m-%d", i), absent(fmt.Sprintf("m-%d", i)))
			}
		})
	}
	group.Wait()
	for i := range large {
		owners := make([]metav1.OwnerReference, references)
		for j := range owners {
			owners[j] = absent(fmt.Sprintf("l-%d-%d", i, j))
		}
		create("crowded", fmt.Sprintf("l-%d", i), owners...)
	}
	for i := range few {
		create("ordinary", fmt.Sprintf("o-%d", i), absent("o"))
	}
	if t.Failed() {
		t.FailNow()
	}
	r := startControllerFor(t, server, harness.Controllers, "system:binnacle")
	harness.Eventually(t, controllersSettle, "the controllers are ready", r.checkReady)
	harness.Eventually(t, controllersSettle, "the dependents of the ordinary namespace are deleted", func() error {
		for i := range few {
			if _, err := client.CoreV1().ConfigMaps("ordinary").Get(t.Context(), fmt.Sprintf("o-%d", i),
				metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("o-%d exists: %w", i, err)
			}
		}
		return nil
	})
	left, err := client.CoreV1().ConfigMaps("crowded").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(left.Items); n < many/2 {
		t.Errorf("%d objects are left in the crowded namespace, want most of %d", n, many)
	}
}
