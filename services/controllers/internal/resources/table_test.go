package resources_test

import (
	"slices"
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
	slices.Sort(names) // the fake has no order of groups
	if len(names) != 3 || names[0] != "example.com/v1 olds" || names[1] != "example.com/v2 widgets" || names[2] != "v1 pods" {
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
	if err != nil || again == table {
		t.Fatalf("Get(0) = %p again, %v", again, err)
	}
	if r, err := again.ByKind("example.com/v1", "Widget"); r != old {
		t.Errorf("resources are not reused: %v", err)
	}
}

// wrong is discovery with a list of an invalid group version.
type wrong struct{ *fakediscovery.FakeDiscovery }

func (w wrong) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := w.FakeDiscovery.ServerGroupsAndResources()
	return groups, append(lists, list("a/b/c", metav1.APIResource{Name: "widgets", Kind: "Widget"})), err
}

func TestInvalidGroupVersionIsAPartialFailure(t *testing.T) {
	d := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{
		list("v1", metav1.APIResource{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: []string{"delete"}}),
	}}}
	table, err := resources.NewCache(wrong{d}).Get(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Preferred) != 1 || table.Failure == nil {
		t.Errorf("preferred %v, failure %v", table.Preferred, table.Failure)
	}
}
