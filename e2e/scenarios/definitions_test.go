package scenarios

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"binnacle/e2e/harness"
)

// plainDefinition returns the definition of a cluster-scoped kind Widget.
func plainDefinition(group string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "widgets." + group},
		"spec": map[string]any{
			"group": group,
			"scope": "Cluster",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name":    "v1",
				"served":  true,
				"storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
}

func widgetResource(group string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
}

func newWidget(group, name string, finalizers ...string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": name},
	}}
	object.SetFinalizers(finalizers)
	return object
}

// TestDefinitionsOnEveryReplica creates definitions on one replica and their objects on the other
// at once. An acknowledged definition must be served by all replicas.
func TestDefinitionsOnEveryReplica(t *testing.T) {
	t.Parallel()
	etcd, broker := harness.StartEtcd(t), harness.StartNATS(t, 1)[0]
	flags := harness.WithFlags("--nats-servers=nats://"+broker.Addr, "--cluster-id=definitions")
	one := harness.StartServer(t, harness.WithEtcd(etcd), flags)
	two := one.StartReplica(harness.WithEtcd(etcd), flags)
	clients := []dynamic.Interface{dynamic.NewForConfigOrDie(one.Config()), dynamic.NewForConfigOrDie(two.Config())}
	for i := range 40 {
		here, there := clients[i%2], clients[(i+1)%2]
		group := fmt.Sprintf("g%d.replicas.test", i)
		if _, err := here.Resource(definitionsGVR).Create(t.Context(), plainDefinition(group),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := there.Resource(widgetResource(group)).Create(t.Context(), newWidget(group, "a"),
			metav1.CreateOptions{}); err != nil {
			t.Fatalf("object %d on the other replica: %v", i, err)
		}
		if l, err := here.Resource(widgetResource(group)).List(t.Context(), metav1.ListOptions{}); err != nil ||
			len(l.Items) != 1 {
			t.Fatalf("list %d on the first replica: got %v, %v, want one object", i, l, err)
		}
	}
}

// TestDefinitionsSurviveKill kills a server while definitions are created and deleted. Afterwards
// each is served or gone, and pending deletions complete.
func TestDefinitionsSurviveKill(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	client := dynamic.NewForConfigOrDie(server.Config())
	for round := range 3 {
		group := func(i int) string { return fmt.Sprintf("g%d-%d.killed.test", round, i) }
		const n = 6
		for i := range n {
			if _, err := client.Resource(definitionsGVR).Create(t.Context(), plainDefinition(group(i)),
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			for k := range 20 {
				o := newWidget(group(i), fmt.Sprint("w", k))
				if k == 0 && i == 1 {
					o.SetFinalizers([]string{"killed.test/hold"})
				}
				if _, err := client.Resource(widgetResource(group(i))).Create(t.Context(), o,
					metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		acknowledged := make(chan int, n)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range n / 2 { // the others stay
				if client.Resource(definitionsGVR).Delete(t.Context(), "widgets."+group(i), metav1.DeleteOptions{}) != nil {
					return
				}
				acknowledged <- i
			}
			_, _ = client.Resource(definitionsGVR).Create(t.Context(), plainDefinition(group(n)), metav1.CreateOptions{})
		}()
		for range round + 1 {
			<-acknowledged
		}
		server.Kill()
		<-done
		server.Start()
		close(acknowledged)
		gone := round + 1 + len(acknowledged)
		for i := range n {
			_, err := client.Resource(widgetResource(group(i))).List(t.Context(), metav1.ListOptions{})
			if i >= n/2 && err != nil {
				t.Errorf("round %d: widgets %d were not deleted, got %v", round, i, err)
			}
		}
		for i := range gone {
			if i == 1 {
				removeLastFinalizer(t, client, group(i))
			}
			harness.Eventually(t, 30*time.Second, "removal of a deleted definition", func() error {
				if _, err := client.Resource(definitionsGVR).Get(t.Context(), "widgets."+group(i),
					metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return fmt.Errorf("definition %d: %v", i, err)
				}
				return nil
			})
			// A new definition with the same name must not have the old objects.
			if _, err := client.Resource(definitionsGVR).Create(t.Context(), plainDefinition(group(i)),
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if l, err := client.Resource(widgetResource(group(i))).List(t.Context(),
				metav1.ListOptions{}); err != nil || len(l.Items) != 0 {
				t.Errorf("round %d: new definition: got %d objects of the old one, %v, want none", round, len(l.Items), err)
			}
		}
		// A request in flight at the kill took effect completely or not at all.
		if _, err := client.Resource(definitionsGVR).Get(t.Context(), "widgets."+group(n), metav1.GetOptions{}); err == nil {
			if _, err := client.Resource(widgetResource(group(n))).List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("round %d: an existing definition is not served: %v", round, err)
			}
		} else if !apierrors.IsNotFound(err) {
			t.Errorf("round %d: %v", round, err)
		}
	}
}

// removeLastFinalizer removes the finalizer of the last object after all others are gone.
func removeLastFinalizer(t *testing.T, client dynamic.Interface, group string) {
	t.Helper()
	resources := client.Resource(widgetResource(group))
	harness.Eventually(t, 30*time.Second, "removal of all other objects", func() error {
		l, err := resources.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(l.Items) != 1 || l.Items[0].GetDeletionTimestamp() == nil {
			return fmt.Errorf("%d objects left, %v", len(l.Items), err)
		}
		return nil
	})
	object, err := resources.Get(t.Context(), "w0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.SetFinalizers(nil)
	if _, err := resources.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
