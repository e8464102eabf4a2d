package resources_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"

	"binnacle/services/controllers/internal/resources"
)

func list(gv string, all ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{GroupVersion: gv, APIResources: all}
}

func TestTablePrefersOneVersionOfEachResource(t *testing.T) {
	verbs := []string{"get", "list", "delete"}
	d := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{
		list("v1", metav1.APIResource{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: verbs}, metav1.APIResource{Name: "pods/status", Kind: "Pod", Namespaced: true}),
		list("example.com/v2", metav1.APIResource{Name: "widgets", Kind: "Widget", Verbs: verbs}),
		list("example.com/v1", metav1.APIResource{Name: "widgets", Kind: "Widget", Verbs: verbs}, metav1.APIResource{Name: "olds", Kind: "Old", Verbs: verbs}),
	}}}
	c := resources.NewCache(d)
	table, err := c.Get(0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range table.Preferred {
		names = append(names, r.APIVersion()+" "+r.Resource)
	}
	if len(names) != 3 || names[0] != "v1 pods" || names[1] != "example.com/v2 widgets" || names[2] != "example.com/v1 olds" {
		t.Errorf("preferred %q", names)
	}
	old, err := table.ByKind("example.com/v1", "Widget")
	if err != nil || old.Version != "v1" || !old.Can("list", "delete") || old.Can("watch") || old.Namespaced {
		t.Errorf("ByKind() = %+v, %v", old, err)
	}
	if _, err := table.ByKind("example.com/v1", "Gadget"); err == nil {
		t.Error("an unknown kind has a resource")
	}
	again, err := c.Get(0)
	if err != nil || again == table || again.Preferred[0] != table.Preferred[0] {
		t.Errorf("resources are not reused: %v", err)
	}
}
